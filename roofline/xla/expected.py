"""The time to expect of a compiled program: what good kernels of its sizes reach."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from roofline import evidence as files
from roofline.network.measured import best_exchange, exchange_seconds, law_of_exchange
from roofline.xla.kernel import CompiledKernel, chip_roofline, main_dtype
from roofline.xla.ledger import Row
from roofline.xla.targets import assumed_vector_peak, clock_of
from roofline_helpers import chips
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.show import Fields, si
from roofline_helpers.measured.laws import Law, law_of, least_times
from roofline_helpers.measured.tables import count, group
from roofline_helpers.roofline import Kernel, Roofline
from roofline_helpers.work import flash_attention, matmul


@dataclass(frozen=True, repr=False)
class Expected(Fields):
    """The time to expect of one call, in seconds.

    Parameters
    ----------
    seconds : float
        The time if each kernel does as well as good ones of its size.
    low, high : float
        Its interval.
    why : str
        What it rests on.

    Examples
    --------
    >>> Expected(2e-3, 2e-3, 2.4e-3, "measured kernels").high
    0.0024
    """

    seconds: float
    low: float
    high: float
    why: str

    def __str__(self) -> str:
        """Return it as text: the time, and its interval if it has one."""
        high = "more" if math.isinf(self.high) else si(self.high, "s")
        if self.high <= 1.01 * self.seconds and self.low >= 0.99 * self.seconds:
            return si(self.seconds, "s")
        return f"{si(self.seconds, 's')} ({si(self.low, 's')} to {high})"


class Like(NamedTuple):
    """Seconds of measured kernels of a kernel's size: of good ones, and of half of them."""

    good: float
    usual: float


def expected_of(kernel: CompiledKernel, floor: float) -> Like:
    """Return the seconds to expect of all launches of a compiled kernel, good and usual.

    The compiler's cycles count wherever they exceed the reached roof; a TPU's kernel without them
    takes the floor of a launch at least.
    """
    roof = None if kernel.chip is None else reached_roof(kernel.chip, kernel.work.matrix_types)
    if roof is None or kernel.chip is None:
        return Like(0.0, 0.0)
    assumed = assumed_vector_peak(kernel.chip)
    vector = roof.vector or (assumed[0] if assumed is not None else None)
    once = Kernel(kernel.work, replace(roof, floor=None, vector=vector)).roof_seconds or 0.0
    measured = like(kernel.work, kernel.chip)
    least = max(once * kernel.launches, kernel.roof_seconds or 0.0)
    if kernel.cycle_seconds is not None:
        least = max(least, kernel.cycle_seconds)
    elif kernel.chip.kind == "tpu":
        least = max(least, floor * kernel.launches)
    if measured is None:
        return Like(least, least)
    return Like(*(max(least, seconds * kernel.launches) for seconds in measured))


def like(row: Row, chip: chips.Chip) -> Like | None:
    """Return what one launch's size takes by the laws of measured kernels; None without a law.

    For exchanges on one host's links, and on GPUs for matmuls and attention that the matrix unit
    limits. A kernel that memory limits is left to the stream's bandwidth, since a benchmark's
    small arrays often come from a cache.
    """
    exchange = row.collective
    if exchange is not None:
        law, devices = law_of_exchange(exchange.kind, chip), exchange.group_size
        best = best_exchange(exchange.kind, devices, chip)
        if law is None or best is None:
            return None
        # The law's start is a launch, which is no part of a kernel
        good = law.step * (devices - 1) + exchange.link_bytes / best
        usual = exchange_seconds(law, chip, exchange.link_bytes, devices) - law.start
        return Like(good, max(good, usual))
    if chip.kind != "gpu" or len(row.matrix_types) != 1 or "×" in row.matrix_types[0]:
        return None
    dtype = main_dtype(row.matrix_types) or ""
    if row.role.startswith("cuDNN attention"):
        law = law_of(flash_attention(1, 128, 128, dtype=dtype, causal=True), chip)
        times = row.matrix_flops / chip.roofline(dtype).peak, 0.0
        if law is None:
            return None
        return Like(times[0] / at_best(law).compute, times[0] / law.compute)
    if not row.matmul:
        return None
    m, n, k = row.matmul
    job = matmul(m, n, k, dtype)
    law = law_of(job, chip)
    times = least_times(job, chip)
    if law is None or times[0] <= times[1]:
        return None
    return Like(at_best(law).seconds(job), law.seconds(job))


def reached_roof(chip: chips.Chip, matrix_types: Sequence[str]) -> Roofline | None:
    """Return the reached roofline for matmuls of HLO's types (`kernel.chip_roofline`).

    On a GPU its peak is the best measured matmul's, if that is above the sustained one.
    """
    roof = chip_roofline(chip, matrix_types, reached=True)
    if roof is None or len(matrix_types) != 1 or "×" in matrix_types[0]:
        return roof
    dtype = "tf32" if matrix_types[0] == "f32" else main_dtype(matrix_types) or ""
    best = best_peak(chip, dtype)  # tf32 is JAX's default for float32 on GPUs
    return roof if best is None else replace(roof, peak=max(roof.peak, best))


def best_peak(chip: chips.Chip, dtype: str) -> float | None:
    """Return the FLOP/s of the best measured matmul of a GPU in a type; None without any.

    TF32 wasn't measured: it counts with bf16's share of its peak, on the same unit.

    Examples
    --------
    >>> f"{best_peak(chips.chip('h200'), 'bf16') / 1e12:.0f} TFLOP/s"
    '852 TFLOP/s'
    """
    if chip.kind != "gpu" or dtype not in chip.matrix:
        return None
    measured = "bf16" if dtype == "tf32" else dtype
    law = law_of(matmul(4096, 4096, 4096, measured), chip)
    return None if law is None else at_best(law).compute * chip.roofline(dtype).peak


class Worth(NamedTuple):
    """Published times over the compiler's cycles: the least and the largest, and where from."""

    least: float
    largest: float
    why: str


@functools.cache
def worth_of_cycles() -> Worth:
    """Return what published kernels took, as shares of the time that the cycles make of them.

    That is the cycles at the chip's clock, or the roof where it is longer.

    Examples
    --------
    >>> worth = worth_of_cycles()
    >>> round(worth.least, 2), round(worth.largest, 2)
    (0.44, 1.22)
    """
    shares: dict[str, list[float]] = {"matmul": [], "copy": []}
    for row in files.load("cycles")["rows"]:
        hertz, _ = clock_of(chips.chip(row["chip"]).per_device()) or (math.nan, "")
        if row["published"]:
            shares[row["kind"]].append(row["published"] / max(row["cycles"] / hertz, row["roof"]))
    ranges = {kind: f"{min(group):.2f} to {max(group):.2f}" for kind, group in shares.items()}
    every = [share for group in shares.values() for share in group]
    return Worth(
        min(every),
        max(every),
        f"the compiler's cycles, or the roof where it is longer; published matmuls took "
        f"{ranges['matmul']} of that, copies {ranges['copy']}; others weren't compared",
    )


@functools.cache
def at_best(law: Law) -> Law:
    """Return a law whose large kernels reach what the best measured one of its group does.

    Examples
    --------
    >>> from roofline_helpers.measured import law
    >>> fitted = law("matmul", "h200", "bf16")
    >>> round(fitted.compute, 2), round(at_best(fitted).compute, 2)
    (0.8, 0.86)
    """
    rows = group(law.family, law.chip, law.dtype)
    if not len(rows["seconds"]):  # a TPU's published points
        return law
    times, _ = least_times(count(law.family, rows, law.dtype), chip_of(law.chip))
    return msgspec.structs.replace(law, compute=float((times / rows["seconds"]).max()))
