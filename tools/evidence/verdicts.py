"""The book's kernels on every chip: which verdicts depend on something, and on what.

    python -m tools.evidence.verdicts            write roofline_helpers/data/evidence/verdicts.json
    python -m tools.evidence.verdicts show       print them

Every kernel and every change that the chapters speak of, on every chip of the catalogue, under
published and reached ceilings, without a floor and with one, with tensors that travel between
kernels or stay. What all cases agree on is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from roofline_helpers import evidence, gain, serving, verdict, work
from roofline_helpers.hardware import Chip, all_chips
from roofline_helpers.serving import LLAMA_3_8B
from roofline_helpers.show import significant
from roofline_helpers.verdicts import DEPENDS, Case, Gain, Verdict
from tools.evidence import keep

SQUARES = (64, 128, 256, 512, 600, 938, 1024, 2048, 4096, 8192)
BATCHES = (1, 8, 16, 64, 128, 256, 512)
LENGTHS = (128, 256, 512, 1024, 2048, 8192)
SIZES = (12, 16, 20, 24, 28)
TODAY: dict[str, Any] = {"batch": 8, "context": 2048, "fusion": "none", "attention": "naive"}
STEPS: tuple[dict[str, Any], ...] = (
    *({"batch": batch} for batch in (1, 16, 64, 256)),
    {"phase": "prefill", "batch": 1, "context": 2048},
    TODAY,
)


def programs(chip: Chip) -> Iterator[tuple[str, Any]]:
    """Yield what the chapters ask "what bounds it?" of: name, and kernels or a step."""
    half = chip.half
    for n in SQUARES:
        yield f"matmul {n}×{n}×{n}", work.matmul(n, n, n, half)
    for batch in BATCHES:
        yield f"matmul {batch}×8192×8192", work.matmul(batch, 8192, 8192, half)
    for power in SIZES:
        yield f"x + y on 2^{power}", work.add(2**power, half)
    yield "GELU on 2^28", work.gelu(2**28, half)
    yield "LayerNorm 8192×1024", work.layernorm(8192, 1024, half)
    yield "LayerNorm 65536×4096", work.layernorm(65536, 4096, half)
    yield "softmax 8192×8192", work.softmax(8192, 8192, half)
    for rows, columns in ((64, 1024), (2048, 4096), (65536, 4096)):
        yield f"chain {rows}×{columns}", work.fusion_chain(rows, columns, half)
    for length in LENGTHS:
        sizes: dict[str, Any] = {"heads": 32, "head_dim": 64, "dtype": half}
        yield f"naive attention 4×32×{length}×64", work.naive_attention(4, length, **sizes)
        yield f"flash attention 4×32×{length}×64", work.flash_attention(4, length, **sizes)
    for setting in STEPS:
        yield _step_name(setting), serving.step(LLAMA_3_8B, chip, **setting)


def changes(chip: Chip) -> Iterator[tuple[str, Any, Any]]:
    """Yield what the chapters advise: name, program before, program after."""
    half = chip.half
    for rows, columns in ((64, 1024), (2048, 4096), (65536, 4096)):
        four = work.fusion_chain(rows, columns, half)
        yield f"fusing the chain {rows}×{columns}", four, work.fuse(*four)
    for length in LENGTHS:
        sizes: dict[str, Any] = {"heads": 32, "head_dim": 64, "dtype": half}
        three = work.naive_attention(4, length, **sizes)
        flash = work.flash_attention(4, length, **sizes)
        yield f"flash attention 4×32×{length}×64", three, flash
    today = serving.step(LLAMA_3_8B, chip, **TODAY)
    narrow = "fp8" if "fp8" in chip.matrix else "int8"
    advice: tuple[tuple[str, dict[str, Any]], ...] = (
        ("fused kernels in decode, batch 8", {"fusion": "epilogue", "attention": "flash"}),
        ("an 8-bit cache in decode, batch 8", {"cache": narrow}),
        ("4-bit weights in decode, batch 8", {"weights": "int4"}),
    )
    for name, change in advice:
        yield name, today, today.but(**change)
    prompt = serving.step(LLAMA_3_8B, chip, **{**TODAY, "phase": "prefill", "batch": 1})
    fused = prompt.but(fusion="epilogue", attention="flash")
    yield "fused kernels in prefill of 2048 tokens", prompt, fused


def moves() -> Iterator[tuple[str, Any, Any]]:
    """Yield changes of the chip: what an H200 is worth in place of an H100."""
    for batch in BATCHES:
        job = work.matmul(batch, 8192, 8192)
        yield f"an H200 for the H100, matmul {batch}×8192×8192", job, job
    for batch in (1, 64, 256):
        one = serving.step(LLAMA_3_8B, "h100", batch=batch)
        yield f"an H200 for the H100, decode, batch {batch}", one, one.but(chip="h200")


def sweep(chips: tuple[Chip, ...] | None = None) -> list[dict[str, Any]]:
    """Return each verdict that depends on something, one row a chip and program."""
    rows = []
    for chip in all_chips() if chips is None else chips:
        for name, program in programs(chip):
            rows.append(bound_row(verdict(program, chip, name=name)))
        for name, before, after in changes(chip):
            rows.append(gain_row(gain(before, after, chip, name=name)))
    return [row for row in rows if row]


def moved() -> list[dict[str, Any]]:
    """Return what depends on something of moving to another chip."""
    rows = []
    for name, before, after in moves():
        if hasattr(before, "setting"):
            gained = gain(before, after, name=name)
        else:
            ours, theirs = (verdict(before, key, name=name) for key in ("h100", "h200"))
            ratios = {
                case: each.seconds / theirs.found[case].seconds for case, each in ours.found.items()
            }
            gained = Gain(name, ours.chip, ours.floor, ratios)
        rows.append(gain_row(gained))
    return [row for row in rows if row]


def bound_row(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as the file has it; empty where all cases agree."""
    if verdict.word != DEPENDS:
        return {}
    words = {each.bound or "nothing" for each in verdict.found.values()}
    first = verdict.found[Case()].bound
    return {
        "program": verdict.name,
        "chip": verdict.chip.key,
        "asked": "what bounds it",
        "at first": first,
        "or": sorted(words - {first}),
        "on": list(verdict.on),
    }


def gain_row(gained: Gain) -> dict[str, Any]:
    """Return a gain as the file has it; empty where all cases agree."""
    if gained.word != DEPENDS:
        return {}
    low, high = (significant(each) for each in gained.times)
    return {
        "program": gained.name,
        "chip": gained.chip.key,
        "asked": "what it gains",
        "at first": f"{significant(gained.found[Case()])}×",
        "or": [f"{low}×", f"{high}×"],
        "on": list(gained.on),
    }


def _step_name(setting: dict[str, Any]) -> str:
    fused = "" if setting.get("fusion") != "none" else ", each operation a kernel"
    phase, batch = setting.get("phase", "decode"), setting["batch"]
    return f"{LLAMA_3_8B.name}, {phase}, batch {batch}, context 2048{fused}"


def main() -> None:
    """Sweep, and keep or show it."""
    if sys.argv[1:] == ["show"]:
        print(evidence.verdicts().to_string())
        return
    total = sum(1 for chip in all_chips() for _ in (*programs(chip), *changes(chip)))
    rows = [*sweep(), *moved()]
    keep("verdicts", {"asked": total + sum(1 for _ in moves()), "depend": rows})


if __name__ == "__main__":
    main()
