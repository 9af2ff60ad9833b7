"""What the page on JAX on GPUs prints: flags, schedules and graphs, as timed."""

from __future__ import annotations

import json
import re
from statistics import fmean, median

import roofline
import roofline_helpers as rh
from page_figures import ROOT
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
        **{name: rh.si(steps[rung].wall, "s") for name, rung in RUNGS.items()},
        **{name: f"{100 * share:.1f}%".replace("-", "−") for name, share in shares.items()},
        "gpus_exposed_first": rh.si(exposed(first), "s"),
        "gpus_exposed_last": rh.si(exposed(last), "s"),
        "gpus_graphs": f"{min(ends):.0%} to {max(ends):.0%}",
        "gpus_jax": first.software["jax"],
    }
