"""What the page on JAX on GPUs prints: flags, schedules and graphs, as timed."""

from __future__ import annotations

import json
import re
from statistics import fmean, median
from typing import Any

import roofline
import roofline_helpers as rh
from page_board import markdown
from page_figures import ROOT
from roofline import evidence
from roofline.diagnosis import Explanation, ladder

RUNGS = {
    "gpus_first": "as first written",
    "gpus_last": "all kept",
    "gpus_cudnn": "cuDNN",
    "gpus_doubled": "scan, double buffering",
    "gpus_unrolled": "unrolled",
}
"""The training step's versions that the page names."""


def flags() -> dict[str, float]:
    """Return the share of a step's time that flags saved, by flags, version and GPUs."""
    saved = {}
    for chip in ("h100", "h200"):
        record = json.loads((ROOT / f"examples/train_step/{chip}-flags.json").read_text("utf-8"))
        took = {
            (row["name"], f"{row['rung']} {row['devices']} {chip}"): median(row["seconds"])
            for row in record["rows"]
        }
        for (name, where), seconds in took.items():
            if name != "none" and ("none", where) in took:
                key = re.sub(r"\W+", "_", f"gpus {name} {where}".lower())
                saved[key] = 1 - seconds / took["none", where]
    return saved


def exposed(why: Explanation) -> float:
    """Return the seconds for which a device waits for exchanges, the mean of all."""
    return fmean(device.moving + device.waiting for device in why.devices)


def graphs() -> list[float]:
    """Return the time in CUDA graphs over that without, of each decode step that ran both ways."""
    steps = ladder.committed()["decode-rungs"].steps
    whys = [step.why for step in steps if step.why is not None and step.why.graphs]
    return [median(why.graphs) / why.wall for why in whys]


def scheduler() -> float:
    """Return how much the latency-hiding scheduler changed a layer's time, at most."""
    layers = roofline.validation.layers()
    mlps = layers[(layers.devices == 4) & (layers.layer == "MLP")].set_index(["tokens", "way"])
    plain, hiding = (mlps["measured ms"][mlps.variant == v] for v in ("", "latency hiding"))
    return float((hiding / plain - 1).abs().max())


def settings() -> dict[str, str]:
    """Return what settings of the H200's record gained, by name."""
    record = evidence.load("settings")
    steps = {row["setting"]: median(row["steps"][5:]) for row in record["step"]}
    took = {(row["setting"], row["program"]): row for row in record["compiling"]}
    usual, untuned, untried = (
        took[setting, "training"] for setting in ("as JAX does it", "no autotuning", "no Triton")
    )
    slower = median(untuned["seconds"]) / median(usual["seconds"])
    return {
        "gpus_loop": f"{1e6 * _turn('fori', 'elementwise'):.0f}",
        "gpus_loop_reduce": f"{1e6 * _turn('fori', 'reduce'):.0f}",
        "gpus_loop_graph": f"{1e6 * _turn('fori', 'reduce4'):.0f}",
        "gpus_loop_waits": f"{1e6 * _turn('condition', 'elementwise'):.0f}",
        "gpus_loop_hidden": f"{1e6 * _turn('fori', 'big matmul'):.0f}",
        "gpus_loop_shown": f"{1e6 * _turn('condition', 'big matmul'):.0f}",
        "gpus_pgle": f"{1 - steps['PGLE'] / steps['as JAX does it']:.0%}",
        "gpus_combined": f"{abs(1 - steps['larger exchanges'] / steps['as JAX does it']):.0%}",
        "gpus_untuned": f"{slower:.0f}",
        "gpus_compiling": rh.si(usual["compiling"], "s"),
        "gpus_compiling_untuned": rh.si(untuned["compiling"], "s"),
        "gpus_compiling_untried": rh.si(untried["compiling"], "s"),
        "gpus_calls": _calls(record["graphs"]),
        "gpus_products": _products(record["products"], took),
        **_precisions([row for row in record["precisions"] if row["side"] == 4096]),
    }


def _turn(loop: str, body: str) -> float:
    rows = evidence.load("settings")["loops"]
    (row,) = (row for row in rows if (row["loop"], row["body"]) == (loop, body))
    return float(min(row["graphs"][1], row["plain"][1]) / 400)


def _calls(rows: list[dict[str, Any]]) -> str:
    heads = ["Program", "launches", "queued, in graphs", "without", "alone, in graphs", "without"]
    lines = []
    for row in rows:
        ways = [row["graphs"], row["plain"]]
        times = [way[often]["median"] for often in ("queued", "alone") for way in ways]
        lines.append(
            [row["program"], f"{ways[0]['launches']:.0f}", *(f"{1e6 * t:,.0f}" for t in times)]
        )
    return markdown(heads, lines, 5)


def _products(rows: list[dict[str, Any]], took: dict[tuple[str, str], Any]) -> str:
    heads = ["m × k × n", "as JAX does it", "by", "padded to 64", "without Triton, times as fast"]
    lines = []
    for row in rows:
        size = "×".join(str(row[axis]) for axis in "mkn")
        work = 2 * row["m"] * row["k"] * row["n"]
        rate, padded = (
            f"{work / median(seconds) / 1e12:,.0f}" for seconds in (row["default"], row["padded"])
        )
        usual = took.get(("as JAX does it", size))  # by one clock, which isn't that of the rates
        bare = took["no Triton", size]
        times = f"{median(usual['seconds']) / median(bare['seconds']):.1f}" if usual else "–"
        lines.append([size.replace("×", " × "), rate, row["default by"], padded, times])
    return markdown(heads, lines, 3)


def _precisions(rows: list[dict[str, Any]]) -> dict[str, str]:
    took = {row["asked"]: median(row["seconds"]) for row in rows}
    off = {row["asked"]: row["error"] for row in rows}
    usual = took["default"]
    lines = [
        [f"`{asked}`", f"{1e6 * t:,.0f}", f"{t / usual:.1f}", f"{1e6 * off[asked]:,.0f}"]
        for asked, t in took.items()
    ]
    times = {
        "highest": "gpus_highest",
        "BF16_BF16_F32_X3": "gpus_x3",
        "BF16_BF16_F32_X6": "gpus_x6",
    }
    return {
        "gpus_precisions": markdown(
            ["Asked for", "µs", "times the default", "error, millionths"], lines, 3
        ),
        **{name: f"{took[asked] / usual:.1f}" for asked, name in times.items()},
        "gpus_x3_error": f"{off['default'] / off['BF16_BF16_F32_X3']:.0f}",
        "gpus_x9": f"{took['BF16_BF16_F32_X9'] / usual:.1f}",
    }


def gpus() -> dict[str, str]:
    """Return the texts of the page, by name."""
    steps = {step.rung: step.why for step in ladder.committed()["train-step"].steps if step.why}
    first, last, saved, ends = steps["as first written"], steps["all kept"], flags(), graphs()
    shares = saved | {
        "gpus_best": max(saved.values()),
        "gpus_worst": -min(saved.values()),
        "gpus_bound_first": exposed(first) / first.wall,
        "gpus_bound_last": exposed(last) / last.wall,
        "gpus_scheduler": scheduler(),
    }
    return {
        **settings(),
        **{name: rh.si(steps[rung].wall, "s") for name, rung in RUNGS.items()},
        **{name: f"{100 * share:.1f}%".replace("-", "−") for name, share in shares.items()},
        "gpus_exposed_first": rh.si(exposed(first), "s"),
        "gpus_exposed_last": rh.si(exposed(last), "s"),
        "gpus_graphs": f"{min(ends):.0%} to {max(ends):.0%}",
        "gpus_jax": first.software["jax"],
    }
