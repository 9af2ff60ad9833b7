"""What prose pages draw: the package draws it, ``tools.site`` keeps it."""

from __future__ import annotations

import io
from dataclasses import dataclass

import matplotlib.pyplot as plt

import roofline_helpers as rh
from roofline_helpers.explain import Explanation, ladder
from roofline_helpers.roofline import Roofline


@dataclass(frozen=True)
class First:
    """A kernel of chapter 1 on an H100: the roof of its unit, and its time there in seconds."""

    work: rh.Work
    roof: Roofline
    measured: float

    @property
    def least(self) -> float:
        """The roof's time, in seconds."""
        return float(self.roof.time(self.work))


def first_kernels() -> tuple[First, First]:
    """Return a + s · b on vectors of 2³⁰ numbers in fp32, and a 4096³ matmul in bf16.

    Both are as the book's record of an H100 has them.
    """
    chip, record = rh.chip("h100"), rh.measure.measured()["h100"]
    triad = rh.work.elementwise(2**30, 2, 1, flops=2, dtype="fp32", name="a + s · b")
    matmul = rh.work.matmul(4096, 4096, 4096, "bf16")
    vector = chip.roofline("fp32", unit="vector")
    return (
        First(triad, vector, record.sample("triad 4 GiB fp32").seconds),
        First(matmul, chip.roofline("bf16"), record.sample("matmul 4096×4096×4096 bf16").seconds),
    )


def draw_first_kernels() -> bytes:
    """Return the picture of both under the H100's roof, a PNG."""
    rh.plot.use_style()
    triad, matmul = first_kernels()
    jobs = {"a + s · b": triad.work, "4096³ matmul": matmul.work}
    figure, axes = plt.subplots()
    rh.plot.roofline(matmul.roof, jobs, vector=True, ax=axes)
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=200)
    plt.close(figure)
    return written.getvalue()


# --- the front page -------------------------------------------------------------------------------


def slow_step() -> Explanation:
    """Return what the front page explains: a decode step with its layers in a Python loop."""
    steps = ladder.committed()["decode"].of(batch=64, context=2048)
    return next(step.why for step in steps if step.why is not None)
