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
    "Keep 512 and take the Jetson Orin NX. Is the same matmul still memory-bound?",
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
    """
    h100 = chip_of("h100")
    roof, job = h100.roofline("bf16"), work.matmul(512, 512, 512, "bf16")
    numbers = _numbers(roof, job)
    peak, limit, done, of_peak, of_roof, _, ridge, _ = numbers
    story = [
        "A kernel multiplies many independent pairs of 512 × 512 matrices in bf16 on an H100, "
        f"and reaches {done}. The data sheet promises {peak} for dense matrices, so that is "
        f"{of_peak} of the peak. Three weeks of tuning the inner loop have not moved it.",
        "You are asked why. Commit yourself first; the roofline opens after that.",
    ]
    predict = _prediction(numbers)
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


def _prediction(numbers: _Numbers) -> Element:
    peak, limit, done, _, of_roof, intensity, ridge, first = numbers
    return ask.choice(
        f"What holds this kernel at {done}?",
        {
            "Its arithmetic: a matmul is compute-bound, so the inner loop has a fault": (
                f"A matmul is compute-bound only if it is large enough. This one does {intensity} "
                f"FLOPs for each byte, and the ridge of an H100 is at {ridge}: left of it the "
                f"memory allows {limit}, however good the inner loop is."
            ),
            "Its memory, and nothing else: it runs as fast as its bytes arrive": (
                f"Half of the answer. At {intensity} FLOP/byte the memory allows {limit}, less "
                f"than the peak. But {done} is only {of_roof} of that. The memory doesn't explain "
                "the rest: the kernel doesn't even reach its own roof."
            ),
            "Two things: its roof is lower than the peak, and it stays below its roof": (
                f"Each has its own cure. The roof is at {limit}, not {peak}, "
                f"because {intensity} FLOP/byte lies left of the ridge ({ridge}): only more FLOPs "
                f"per byte, or faster memory, lift it. And {done} is {of_roof} of that roof: this "
                "part is the kernel's own, for instance bytes moved twice, or waiting."
            ),
            "Nothing: about a third of the peak is what tensor cores really give": (
                f"The same chip's roof reaches the peak for larger matrices, from N = {first} on. "
                f"Here the roof is {limit}, so there is room above {done}: it is {of_roof} of it."
            ),
        },
        right="Two things: its roof is lower than the peak, and it stays below its roof",
        key="lab-memory-wall",
        lead="",
    )


def _reflection(h100: Chip) -> Element:
    def top(chip: Chip, side: int, dtype: str) -> float:
        return float(chip.roofline(dtype).attainable(work.matmul(side, side, side, dtype)))

    before = top(h100, 512, "bf16")

    def gain(chip: Any, side: int, dtype: str) -> str:
        after = top(chip_of(chip), side, dtype)
        return f"{rate(after)}, {significant(after / before)} times as high"

    fp8, large = "fp8 in place of bf16, for inputs and output", "Products of 1024 × 1024 matrices"
    memory = "An H200: the same peak, faster memory"
    return ask.choice(
        "Back to the 512 × 512 matrices on the H100. Which of these lift their roof? Choose all.",
        {
            "A higher clock of the tensor cores, the same memory": (
                "That lifts the flat part only. This kernel is under the slope, which is bandwidth."
            ),
            fp8: f"Half the bytes, twice the intensity. The roof is then {gain(h100, 512, 'fp8')}.",
            large: "Work grows with the cube, bytes with the square. The roof is then "
            f"{gain(h100, 1024, 'bf16')}.",
            memory: f"The slope is steeper. The roof is then {gain('h200', 512, 'bf16')}.",
            "Twice the memory capacity at the same bandwidth": (
                "How much the memory holds is not how fast it delivers: the roof doesn't move."
            ),
        },
        right=[fp8, large, memory],
        multi=True,
        key="lab-memory-wall-back",
        lead="",
    )


def _draw(roof: Roofline, job: Work, ax: Any) -> None:
    from roofline_helpers import plot

    plot.roofline(roof, {"N = 512": job}, achieved={"N = 512": ACHIEVED}, ax=ax)
