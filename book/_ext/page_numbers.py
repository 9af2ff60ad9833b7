"""Every number that a prose page prints, computed from the package when the site is built."""

import io
import json
import os
from collections import defaultdict
from contextlib import redirect_stdout
from dataclasses import replace
from statistics import median

import numpy as np

import roofline
import roofline_helpers as rh
import samples
from page_board import board, markdown
from page_figures import EXPLAINED, ROOT, program
from page_gpus import gpus
from page_promises import promises
from roofline import validation
from roofline.diagnosis.answer import answer
from roofline.labs import riddle
from roofline.labs.mfu import START
from roofline.validation.utilization import fastest, mfu, runs
from roofline.xla.expected import worth_of_cycles
from roofline.xla.report import load_report
from roofline_helpers.chips import Chip, Figure
from roofline_helpers.common.show import significant
from theme import INSTALLS


def numbers() -> dict[str, str]:
    """Return the text of each name that a page may write as ``{{ name }}``.

    Returns
    -------
    dict of str to str
        Name to Markdown. A value may span several lines, a table for instance; on the page it
        is then alone in its paragraph.
    """
    return {
        **_front(),
        **_install(),
        **_samples(),
        **_riddle(),
        **_mfu(),
        **_ridges(),
        **_rules_of_thumb(),
        **_departures(),
        **board(),
        **promises(),
        **gpus(),
        "chip_summary": _chip_summary(),
        "chip_figures": _chip_figures(),
        "chip_sources": _chip_sources(),
        "chip_count": str(len(rh.all_chips())),
        "cycles_worth": worth_of_cycles().why,
        **_compilers(),
    }


def _front() -> dict[str, str]:
    """The front page: one kernel predicted, compiled and measured."""
    fused = rh.fuse(*rh.work.fusion_chain(65536, 4096))
    least = rh.chip("h100").roofline("bf16").time(fused)
    h100 = rh.measured.device_records()["h100"]

    def measured(how: str, source: str) -> float:
        return h100.sample(f"chain {how} 65536×4096 bf16", source).seconds

    pallas = measured("pallas", "pallas")
    return {
        "front_roof_fused": rh.si(least, "s"),
        "front_time_jit": rh.si(measured("one jit", "jax"), "s"),
        "front_time_pallas": rh.si(pallas, "s"),
        "front_share": f"{least / pallas:.0%}",
        "front_compiled_times": f"{load_report(EXPLAINED).hbm_bytes / fused.bytes:.2f}×",
    }


def _block(language: str, *lines: str) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def _install() -> dict[str, str]:
    """Commands that install the package: by the repository's address where the build knows it."""
    slug = os.environ.get("GITHUB_REPOSITORY", "")
    archive = f"roofline_helpers[{{}}] @ https://github.com/{slug}/archive/main.zip"
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(program("book/install.md"), {})
    button = "The button *Open in Colab* opens a chapter, and its first cell installs the package."
    chapters = (path.read_text("utf-8") for path in ROOT.glob("notebooks/*.ipynb"))
    if not any(map(INSTALLS.search, chapters)):
        button = "The chapters of this copy of the site have no Colab button, because their first "
        button += "cells have no address to install from. `make repository URL=…` writes it there."
    own = _block("python", f'%pip install --quiet "{archive.format("plots")}"')
    clone = (
        [f"git clone https://github.com/{slug}", f"cd {slug.rpartition('/')[2]}"] if slug else []
    )
    here = "In the repository's folder:\n\n"
    pip = f'"{archive.format("all")}"' if slug else "'.[all]'"
    return {
        "install_pip": ("" if slug else here) + _block("sh", f"pip install {pip}"),
        "install_colab": f"{button} In a notebook of your own:\n\n{own}" if slug else button,
        "install_clone": ("" if slug else here) + _block("sh", *clone, "make lab"),
        "install_without_jax": _block("text", printed.getvalue().strip()),
    }


def _samples() -> dict[str, str]:
    """The front page's sample reports: what the first one says, and the times of two."""
    first, last = samples.explanation("decode-first"), samples.explanation("decode-last")
    return {
        "front_answer": f"> {' '.join(answer(first))}",
        "front_why_least": rh.si(first.hand, "s"),
        "front_why_first": rh.si(first.wall, "s"),
        "front_why_last": rh.si(last.wall, "s"),
    }


def _riddle() -> dict[str, str]:
    """The page of the decode step's 40 orders: what its prose says of the record."""
    record, states = riddle.record(), riddle.orders()
    rows = {row["rung"]: row for row in record["rows"]}
    first, torch = states[""], rows["PyTorch"]
    versions = record["software"]

    def donated(state: str) -> str:
        """Return what donation changes about a state."""
        chosen = "".join(move for move in riddle.MOVES if move in state + "d")
        return rh.si(1e-3 * abs(states[state]["ms"] - states[chosen]["ms"]), "s", digits=2)

    race = [
        row["seconds"]
        for row in roofline.evidence.decode()["race"]["steps"]
        if row["batch"] == torch["batch"] and row["program"].startswith("PyTorch")
    ]
    return {
        "riddle_batch": str(torch["batch"]),
        "riddle_context": f"{torch['context']:,}",
        "riddle_device": record["device"]["name"].removeprefix("NVIDIA "),
        "riddle_date": record["date"][:10],
        "riddle_versions": f"JAX {versions['jax']}, PyTorch {versions['torch']}",
        "riddle_orders": str(sum("scan" in row for row in record["rows"])),
        "riddle_first": rh.si(1e-3 * first["ms"], "s"),
        "riddle_last": rh.si(rows["narrow sums"]["seconds"], "s"),
        "riddle_least": rh.si(1e-3 * first["bars"][0], "s"),
        "riddle_plain": rh.si(min(r["seconds"] for r in record["rows"] if "scan" in r), "s"),
        "riddle_torch": rh.si(torch["seconds"], "s"),
        "riddle_torch_way": f"*{torch['attention']}*",
        "riddle_torch_tuned": rh.si(min(race), "s"),
        "riddle_donate_first": donated(""),
        "riddle_donate_loop": donated("h"),
        "riddle_donate_unrolled": donated("uh"),
    }


def _mfu() -> dict[str, str]:
    """The page on MFU: one run counted in four ways, names of devices, and published runs."""
    chips, seq, model = 8, 8192, "Llama 3 8B"
    run = mfu(model, "h100", START["tokens"], chips=chips, seq=seq)
    shares = {how: f"{run.rate * flops / run.peak.value:.1%}" for how, flops in run.counts.items()}

    def others(chip: str) -> str:
        return f"{mfu(model, chip, START['tokens'], chips=chips, seq=seq).mfu:.0%}"

    counted = [step for step in validation.steps() if isinstance(step, validation.PublishedStep)]
    counted = [step for step in counted if {"tokens", "tflops"} <= step.printed.keys()]
    counted = [step for step in counted if step.count != "own"]
    near = []
    for step in counted:
        one = mfu(step.model, step.chip, 1, seq=step.seq, dtype=step.dtype).counts
        told = 1e12 * step.printed["tflops"] / step.printed["tokens"]
        near.append(abs(one["whole" if step.count == "whole" else "attention"] / told - 1) < 0.003)

    kinds = defaultdict[tuple[str, bool], list[float]](list)
    for row in runs():
        kinds[row.chip, row.experts].append(row.mfu)
    usual = [
        [
            rh.chip(chip).name,
            "mixture" if experts else "dense",
            str(len(found)),
            *(f"{100 * share:.0f}" for share in (min(found), median(found), max(found))),
        ]
        for (chip, experts), found in sorted(kinds.items(), key=lambda kind: kind[0])
    ]
    mixture = roofline.model("deepseek-v3")
    narrow = [row for row in runs() if row.chip == "h100" and not row.experts]
    return {
        **{f"mfu_{how}": share for how, share in shares.items()},
        **{
            f"mfu_token_{how}": rh.si(run.counts[how], "FLOP")
            for how in ("6N", "matmuls", "attention")
        },
        "mfu_pairs": rh.si(run.counts["attention"] - run.counts["matmuls"], "FLOP"),
        "mfu_tokens": f"{START['tokens']:,}",
        "mfu_rate": f"{run.rate:,.0f}",
        "mfu_achieved": f"{run.achieved / 1e12:.1f}",
        "mfu_peak": f"{run.peak.value / 1e12:.0f}",
        "mfu_sparse": rh.si(run.peak.sparse or 0, "FLOP/s", "T", 4),
        "mfu_by_sparse": f"{run.achieved / (run.peak.sparse or 1):.1%}",
        "mfu_by_pcie": others("h100-pcie"),
        "mfu_by_nvl": others("h100-nvl"),
        "mfu_weights": f"{run.model.active_parameters / 1e9:.2f}",
        "mfu_hfu": f"{replace(run, recompute='full').hfu:.1%}",
        "mfu_fastest": f"{(fastest('h100', 'bf16') or 0) / 1e12:.0f}",
        "mfu_standing": run.standing(),
        "mfu_narrow": f"{sum(row.dtype == 'fp8' for row in narrow)} of the {len(narrow)}",
        "mfu_wide": f"{max(row.mfu for row in narrow if row.dtype == 'bf16'):.1%}",
        "mfu_total": f"{mixture.parameters / 1e9:.0f}",
        "mfu_active": f"{mixture.active_parameters / 1e9:.0f}",
        "mfu_printed": str(len(near)),
        "mfu_near": f"{sum(near)}",
        "mfu_devices": markdown(
            ["printed", "the chip", "dense bf16, TFLOP/s", "with 2:4 sparsity"],
            [[f"`{name}`", *_peaks(rh.chip(name))] for name in DEVICES],
            numbers=2,
        ),
        "mfu_usual": markdown(
            ["Chip", "Models", "runs", "lowest, %", "median", "highest"], usual, numbers=4
        ),
    }


DEVICES = (
    "NVIDIA H100 80GB HBM3",
    "NVIDIA H100 PCIe",
    "NVIDIA H100 NVL",
    "NVIDIA B200",
    "NVIDIA GB200",
    "NVIDIA B300 SXM6 AC",
    "NVIDIA A100-SXM4-80GB",
    "AMD Instinct MI300X",
    "TPU v5 lite",
    "TPU7x",
)
"""Names of devices that the page on MFU reads."""


def _peaks(chip: Chip) -> list[str]:
    peak = chip.peak("bf16")
    sparse = significant(peak.sparse / 1e12, 4) if peak.sparse else "—"
    return [chip.name, significant(peak.value / 1e12, 4), sparse]


def _compilers() -> dict[str, str]:
    """What XLA and Inductor made of the same programs on one GPU."""
    record = json.loads((ROOT / "roofline/data/compared/compilers.json").read_text("utf-8"))
    tensor = rh.nbytes(8192 * 8192, "bf16")
    rows = []
    for name, made in record["programs"].items():
        # both compilers add up partial sums in a further kernel, which moves next to nothing
        by_xla = sum(moved > tensor / 1000 for moved in made["xla"].values())
        by_inductor = sum("_per_" not in kernel for kernel in made["inductor"])
        times = [f"{1e6 * made[f'{who}_seconds']:,.0f}" for who in ("xla", "inductor")]
        rows.append([f"`{name}`", str(by_xla), str(by_inductor), *times])
    header = ["program", "kernels, XLA", "kernels, Inductor", "µs, XLA", "µs, Inductor"]
    versions = f"JAX {record['jax']}, PyTorch {record['pytorch']}, Triton {record['triton']}"
    return {"compilers_table": markdown(header, rows, 4), "compilers_versions": versions}


def _ridges() -> dict[str, str]:
    named = {}
    for chip, dtype in (("v5p", "bf16"), ("v6e", "bf16"), ("v7x", "bf16"), ("v7x", "fp8")):
        named[f"ridge_{chip}_{dtype}"] = f"{rh.chip(chip).roofline(dtype).ridge:.0f}"
    for chip in ("h100", "h200", "b200"):
        named[f"ridge_{chip}"] = f"{rh.chip(chip).roofline('bf16').ridge:.0f}"
    for chip in ("v7x", "v6e", "v5p"):
        named[f"hbm_{chip}"] = rh.si(rh.chip(chip).roofline().bandwidth, "B/s", "T", 4)
    return named


def _rules_of_thumb() -> dict[str, str]:
    """Return the summary's rules, each with the number that the package gives."""
    tail = rh.work.fusion_chain(32 * 2048, 4096)
    layernorm = tail[0]
    v7x = rh.chip("v7x").roofline("bf16")
    batch = np.arange(1, 4097)
    decode = rh.chip("v5e").roofline("bf16").bound(rh.work.matmul(batch, 16384, 4096))
    h100 = rh.chip("h100")
    floors = {"kernel": h100.floor, "call": h100.dispatch}
    return {
        **{f"floor_{of}": rh.si(f.value, "s") for of, f in floors.items() if f},
        "tail_ratio": f"{rh.total(*tail).bytes / rh.fuse(*tail).bytes:.1f}",
        "layernorm_intensity": significant(layernorm.intensity),
        "layernorm_mfu": f"{v7x.mfu(v7x.attainable(layernorm)):.1%}",
        "up256_intensity": f"{rh.work.matmul(256, 16384, 4096).intensity:.0f}",
        "decode32_intensity": significant(rh.work.matmul(32, 16384, 4096).intensity),
        "decode_batch_v5e": str(int(batch[decode == "compute"][0])),
    }


def _departures() -> dict[str, str]:
    """Return what the page on corrections compares."""
    sizes = np.arange(1, 4097)
    named = {}
    for name, dtype, out in (
        ("bf16", "bf16", None),
        ("fp8", "fp8", None),
        ("mixed", "fp8", "bf16"),
    ):
        squares = rh.work.matmul(sizes, sizes, sizes, dtype, out=out)
        bound = rh.chip("v7x").roofline(dtype).bound(squares)
        named[f"crossing_v7x_{name}"] = str(int(sizes[bound == "compute"][0]))
    tail, mask = rh.work.fusion_chain(65536, 4096), 65536 * 4096 * 2
    unmasked = (rh.total(*tail).bytes - mask) / (rh.fuse(*tail).bytes - mask)
    h100, orin = rh.chip("h100"), rh.chip("orin-nx").roofline("fp16")
    n = 10**6
    chain = [
        rh.work.elementwise(n, {"x": "fp32"}, {"t1": "fp32"}),
        rh.work.elementwise(n, {"t1": "fp32", "bias": "fp32"}, {"t2": "fp32"}),
        rh.work.elementwise(n, {"t2": "fp32"}, {"y": "fp32"}),
    ]
    kv_token = rh.models.LLAMA_3_8B.cache_per_token("bf16")
    scores = rh.work.attention_scores(32, 2048, heads=32, head_dim=128)
    return named | {
        "h100_vector_ridge": f"{h100.roofline('fp32', unit='vector').ridge:.0f}",
        "bf16_h100_sparse": rh.si(h100.peak("bf16").sparse or 0, "FLOP/s", "T", 4),
        "bf16_h100_dense": rh.si(h100.peak("bf16").value, "FLOP/s", "T", 4),
        "roof_h100_512": rh.si(h100.roofline("bf16").attainable(512 / 3), "FLOP/s"),
        "share_312_of_512": f"{312e12 / h100.roofline('bf16').attainable(512 / 3):.0%}",
        "relu_apart": rh.si(rh.total(*chain).bytes, "B"),
        "relu_fused": rh.si(rh.fuse(*chain).bytes, "B"),
        "kv_per_token": f"{kv_token / 1024:.0f} KiB",
        "kv_64_2048": rh.si(kv_token * 64 * 2048, "B"),
        "scores_intensity": f"{scores.intensity:.0f}",
        "a100_vector_ridge": f"{rh.chip('a100').roofline('fp32', unit='vector').ridge:.0f}",
        "orin_ridge": f"{orin.ridge:.0f}",
        "orin_peak": rh.si(orin.peak, "FLOP/s"),
        "tail_ratio_unmasked": f"{unmasked:.0f}",
        "matmul2048_bytes": rh.si(rh.work.matmul(2048, 2048, 2048).bytes, "B"),
    }


def _chip_summary() -> str:
    def tera(figure: Figure | None) -> str:
        return f"{figure.value / 1e12:,.4g}" if figure else "–"

    def row(chip: Chip) -> list[str]:
        hbm = chip.memory["hbm"]
        roof, half, fp8 = chip.roofline(chip.half), chip.matrix[chip.half], chip.matrix.get("fp8")
        doubt = "?" if fp8 and fp8.value > 4 * half.value else ""
        return [
            f"[{chip.name}](#{chip.key})",
            str(chip.year),
            tera(half) + ("" if chip.half == "bf16" else " (fp16)"),
            f"{roof.bandwidth / 1e9:,.0f}",
            f"{roof.ridge:.0f}{doubt}",
            f"{hbm.capacity.value / 1e9:,.4g}",
            tera(fp8),
            tera(chip.matrix.get("int8")),
            tera(chip.vector.get("fp32")),
            str(chip.devices),
        ]

    header = "chip, year, bf16, GB/s, ridge, memory GB, fp8, int8, fp32 vector, JAX devices"
    return markdown(header.split(", "), map(row, rh.all_chips()), numbers=9)


def _value(figure: Figure) -> str:
    return rh.si(figure.value, figure.unit.replace("byte", "B"), digits=4)


def _chip_figures() -> str:
    parts: list[str] = []
    for chip in rh.all_chips():
        maker = f"## {chip.name.split()[0]}\n"  # what the page's menu lists
        parts += [maker] if maker not in parts else []
        named = ", ".join([f"`{name}`" for name in (chip.key, *chip.aliases)])
        kinds = ", ".join(f"`{kind}`" for kind in chip.device_kinds)
        parts.append(f"({chip.key})=\n### {chip.name}\n")
        parts.append(f"Names: {named}." + (f" JAX's `device_kind`: {kinds}." if kinds else ""))
        rows = [
            [
                path,
                _value(figure),
                figure.basis,
                f"[{figure.source.key}](#source-{figure.source.key})",
                _notes(figure),
            ]
            for path, figure in chip.figures().items()
        ]
        parts.append("\n" + markdown(["quantity", "value", "basis", "source", "note"], rows) + "\n")
    return "\n".join(parts)


def _notes(figure: Figure) -> str:
    sparse = "" if not figure.sparse else rh.si(figure.sparse, figure.unit, digits=4)
    return "; ".join(filter(None, [sparse and f"with 2:4 sparsity {sparse}", figure.note]))


def _chip_sources() -> str:
    figures = [figure for chip in rh.all_chips() for figure in chip.figures().values()]
    lines = []
    for key, source in sorted({each.source.key: each.source for each in figures}.items()):
        page = f"[{source.title}]({source.url})" if source.public else source.title
        lines.append(f"(source-{key})=\n- `{key}` ({source.kind}): {page}, read {source.read}.\n")
    return "\n".join(lines)
