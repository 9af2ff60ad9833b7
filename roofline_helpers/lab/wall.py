"""Lab 1: a matmul that three weeks of tuning have not moved."""

from __future__ import annotations

from typing import Any, NamedTuple

from roofline_helpers import ask, work
from roofline_helpers.ask import Element
from roofline_helpers.hardware import Chip
from roofline_helpers.hardware import chip as chip_of
from roofline_helpers.lab.shared import (
    first_compute_bound,
    lab,
    matmul_row,
    percent,
    rate,
)
from roofline_helpers.roofline import Roofline
from roofline_helpers.show import significant
from roofline_helpers.work import Work

ACHIEVED = 312e12
"""FLOP/s of the story's kernel."""

TASKS = [
    "Raise all three sides together until the point meets the ridge. At which N is that?",
    "Keep 512 and change the type to fp8. Do point, roof and ridge all move? What stays?",
    "Keep 512 and take the L4, then the TPU v5p. Which way does the ridge move, and does the "
    "regime? (What the story's kernel achieved is a figure of the H100.)",
    "Set M to 1, as when a model makes one token. Which side decides now?",
]

EQUATIONS = [
    "attainable(I) = min(peak, bandwidth · I)          ridge = peak / bandwidth",
    "I of a matmul = 2·M·N·K / ((M·K + K·N + M·N) · bytes per element)",
    "I of a square one = 2·N / (3 · bytes per element): N/3 in bf16",
    "MFU = achieved / peak          roofline efficiency = achieved / attainable(I)",
    "least time = max(FLOPs / peak, bytes / bandwidth)",
]


def memory_wall() -> Element:
    """Return lab 1, "The memory wall": a matmul that three weeks of tuning have not moved.

    The reader predicts what stops it, then plays with chip, shape and data type under the roof,
    and looks back. Answers and the last setting stay in the reader's ledger.

    Examples
    --------
    >>> memory_wall().kind  # doctest: +SKIP
    'memory-wall'
    """
    h100 = chip_of("h100")
    # Many products in one launch: the floor of a launch says nothing about them
    roof, job = h100.roofline("bf16").without_floor(), work.matmul(512, 512, 512, "bf16")
    numbers = _numbers(roof, job)
    peak, limit, done, of_peak, of_roof, _, ridge, _ = numbers
    story = [
        "A kernel multiplies many independent pairs of 512 × 512 matrices in bf16 on an H100, "
        f"and reaches {done}. The data sheet promises {peak} for dense matrices, so that is "
        f"{of_peak} of the peak. Three weeks of tuning the inner loop have not moved it.",
        "You are asked why. Commit yourself first; the roofline opens after that.",
    ]
    predict = ask.question("lab-memory-wall", numbers=numbers)
    data = {
        "key": "memory-wall",
        "keep": "Lab 1: your setting",
        "story": story,
        "predict": predict.data,
        "locked": "The roofline opens when you have answered. A wrong answer opens it too.",
        "start": {
            "chip": "h100",
            "dtype": "bf16",
            "m": 512,
            "n": 512,
            "k": 512,
            "achieved": ACHIEVED / 1e12,
        },
        "tasks": TASKS,
        "reflect": _reflection(h100).data,
        "equations": EQUATIONS,
    }
    rows = [matmul_row(roof, "bf16", side) for side in (128, 512, 1024, 2048, 8192)]
    alt = (
        f"Roofline of the H100 in bf16. A 512 cubed matmul lies left of the ridge at {ridge}, "
        f"under a roof of {limit}; the {done} achieved are {of_roof} of that roof."
    )
    return lab("memory-wall", data, predict, rows, lambda ax: _draw(roof, job, ax), alt)


class _Numbers(NamedTuple):
    """What the story and its questions name, as text."""

    peak: str
    limit: str
    done: str
    of_peak: str
    of_roof: str
    intensity: str
    ridge: str
    first: int


def _numbers(roof: Roofline, job: Work) -> _Numbers:
    return _Numbers(
        peak=rate(roof.peak),
        limit=rate(roof.attainable(job)),
        done=rate(ACHIEVED),
        of_peak=percent(roof.mfu(ACHIEVED)),
        of_roof=percent(roof.efficiency(ACHIEVED, job)),
        intensity=significant(job.intensity),
        ridge=significant(roof.ridge),
        first=first_compute_bound(roof, "bf16"),
    )


def _reflection(h100: Chip) -> Element:
    def top(chip: Chip, side: int, dtype: str) -> float:
        return float(
            chip.roofline(dtype).attainable(work.matmul(side, side, side, dtype).intensity)
        )

    before = top(h100, 512, "bf16")

    def gain(chip: Chip, side: int, dtype: str) -> str:
        after = top(chip, side, dtype)
        return f"{rate(after)}, {significant(after / before)} times as high"

    return ask.question(
        "lab-memory-wall-back",
        narrow=gain(h100, 512, "fp8"),
        large=gain(h100, 1024, "bf16"),
        faster=gain(chip_of("h200"), 512, "bf16"),
    )


def _draw(roof: Roofline, job: Work, ax: Any) -> None:
    from roofline_helpers import plot

    plot.roofline(roof, {"N = 512": job}, achieved={"N = 512": ACHIEVED}, ax=ax)
