"""The ceilings over a device here: published ones, and what it really reaches."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from roofline import xla
from roofline.measure.workloads import (
    level_cases,
    matmul_case,
    memory_cases,
    run,
    vector_case,
)
from roofline.xla.expected import Expected, Like, best_peak, like, reached_roof
from roofline.xla.kernel import chip_roofline, main_dtype
from roofline_helpers import chips
from roofline_helpers.common.checks import BadType, RooflineError, shown
from roofline_helpers.common.show import Fields, si
from roofline_helpers.measured.record import Record
from roofline_helpers.roofline import Kernel, Roofline
from roofline_helpers.work import Work

if TYPE_CHECKING:
    from roofline.diagnosis.rows import TimedRow


@dataclass(frozen=True)
class Reached:
    """The rates that a device was seen to reach.

    Parameters
    ----------
    bandwidth : float
        Byte/s of its main memory.
    peaks : mapping of str to float
        FLOP/s of matmuls, by data type.
    vector : float, optional
        FLOP/s of everything else, in fp32.
    caches : sequence of (float, float)
        Byte/s by the bytes of the working set, for devices whose caches are measured.
    origin : str
        Where these numbers come from.
    """

    bandwidth: float
    peaks: Mapping[str, float]
    vector: float | None = None
    caches: Sequence[tuple[float, float]] = field(default=())
    origin: str = ""

    def for_type(self, dtype: str | None) -> Roofline:
        """Return the roofline for matmuls of a data type; the highest peak without one."""
        highest = max(self.peaks.values(), default=self.vector or self.bandwidth)
        if dtype == "fp64" and "fp32" in self.peaks:
            highest = self.peaks["fp32"] / 2  # a CPU's vector holds half as many
        peak = self.peaks.get(dtype or "", highest)
        return Roofline(peak, {"hbm": self.bandwidth}, self.vector)

    def roof(self, row: xla.Row) -> Roofline:
        """Return the roofline for a kernel: its data type, and a working set of its size."""
        tf32 = "tf32" in self.peaks and row.matrix_types[:1] == ("f32",)  # JAX's default there
        roof = self.for_type("tf32" if tf32 else main_dtype(row.matrix_types))
        fast = [bandwidth for size, bandwidth in self.caches if row.bytes <= size]
        return replace(roof, levels={"hbm": max([self.bandwidth, *fast])})


@dataclass(frozen=True, repr=False)
class Roofs(Fields):
    """The ceilings that an explanation is compared with.

    Parameters
    ----------
    published, reached : mapping of str to float
        FLOP/s by data type; byte/s as "hbm"; FLOP/s of the vector unit as "vector". Empty where
        they aren't known.
    origin : str
        Where `reached` comes from.

    Examples
    --------
    >>> Roofs({"hbm": 4.8e12}, {"hbm": 4.3e12}, "h200").reached["hbm"]
    4300000000000.0
    """

    published: Mapping[str, float] = field(default_factory=dict)
    reached: Mapping[str, float] = field(default_factory=dict)
    origin: str = ""


@dataclass(frozen=True)
class Ceilings:
    """Both sorts of ceilings over one device; either may be unknown.

    Parameters
    ----------
    chip : Chip or None
        The device as the chip table has it: published figures, and those that were reached.
    reached : Reached or None
        Rates that were measured here, or given; they take precedence over the chip table.
    vector : float, optional
        FLOP/s that the vector unit is assumed to reach, where the chip table has none.
    """

    chip: chips.Chip | None
    reached: Reached | None
    vector: float | None = None

    def roof(self, row: xla.Row, reached: bool) -> Roofline | None:
        """Return the roofline over a kernel, without a floor: a launch is no part of a kernel."""
        if reached and self.reached is not None:
            return self.reached.roof(row)
        if self.chip is None:
            return None
        over = reached_roof if reached else chip_roofline
        roof = over(self.chip, row.matrix_types)
        if roof is None:
            return None
        assumed = self.vector if reached else None
        return replace(roof, floor=None, vector=roof.vector or assumed)

    def seconds(self, row: xla.Row, launches: float, *, reached: bool = True) -> float | None:
        """Return the least seconds of a kernel's launches by reached, or published, ceilings.

        Reached ones are what good kernels of its size take, where the public tables have them.
        """
        once = Kernel(row, self.roof(row, reached)).roof_seconds
        if once is None:
            return None
        known = self.like(row) if reached else None
        return max(once, known.good if known is not None else 0.0) * launches

    def like(self, row: xla.Row) -> Like | None:
        """Return what measured kernels of a kernel's size take, if the chip's ceilings count."""
        return None if self.chip is None or self.reached is not None else like(row, self.chip)

    def expected(self, rows: Iterable[TimedRow]) -> Expected | None:
        """Return the time to expect of a call's kernels; None if they have no roof."""
        roofed = [row for row in rows if row.reachable is not None]
        if not roofed:
            return None
        good = math.fsum(row.reachable or 0.0 for row in roofed)
        pairs = [(row.reachable or 0.0, self.like(row.kernel)) for row in roofed]
        more = math.fsum(
            seconds * (known.usual / known.good - 1) for seconds, known in pairs if known
        )
        return Expected(good, good, good + more, self.figures().origin)

    def roofs(self, row: xla.Row, launches: float) -> dict[str, Any]:
        """Return a timed row's fields about its roofs: two times, and the ceiling met first.

        None for a kernel whose counts don't say how long it takes (`Row.untimed`).
        """
        if row.untimed:
            return {"least": None, "reachable": None, "limit": ""}
        return {
            "least": self.seconds(row, launches, reached=False),
            "reachable": self.seconds(row, launches),
            "limit": Kernel(row, self.roof(row, True)).limit or "",
        }

    @property
    def bandwidth(self) -> float | None:
        """Byte/s of the main memory: reached, else published."""
        figures = self.figures()
        return figures.reached.get("hbm", figures.published.get("hbm"))

    def hand(self, works: Sequence[Work]) -> float | None:
        """Return the least seconds of work counted by hand: by published ceilings, if there are."""
        if self.chip is not None:
            roofs = [self.chip.roofline(work.dtype).without_floor() for work in works]
        else:
            roofs = [self.reached.for_type(work.dtype) for work in works if self.reached]
        times = [float(roof.time(work)) for roof, work in zip(roofs, works, strict=False)]
        return sum(times) if times else None

    def figures(self) -> Roofs:
        """Return the figures of both sorts, for display and record."""
        chip, there, published = self.chip, self.reached, {}
        if chip is not None:
            published = _figures(chip.matrix, chip.vector, chip.memory["hbm"].bandwidth)
        if there is not None:
            vector = {} if there.vector is None else {"vector": there.vector}
            return Roofs(published, {**there.peaks, **vector, "hbm": there.bandwidth}, there.origin)
        stream = None if chip is None else chip.reached.stream()
        if chip is None or stream is None:
            return Roofs(published)
        reached = _figures(chip.reached.matrix, chip.reached.vector, stream)
        origin, kept = stream.source.title, dict(reached)
        for dtype in chip.matrix:
            best = best_peak(chip, dtype)
            if best is not None and best > reached.get(dtype, 0.0):
                reached[dtype] = best
        if reached.get("bf16") != kept.get("bf16"):
            sustained = f", {si(kept['bf16'], 'FLOP/s')} sustained" if "bf16" in kept else ""
            origin += f"; matmuls as the best measured one, {si(reached['bf16'], 'FLOP/s')} in bf16"
            origin += sustained
        return Roofs(published, published | reached, origin)


def _figures(matrix: Mapping[str, Any], vector: Mapping[str, Any], stream: Any) -> dict[str, float]:
    """Return peaks by data type, the vector unit's and the bandwidth: those that are known."""
    figures = {**matrix, "vector": vector.get("fp32"), "hbm": stream}
    return {name: figure.value for name, figure in figures.items() if figure is not None}


def ceilings_of(device: Any, dtypes: Sequence[str], given: Any = None) -> Ceilings:
    """Return the ceilings over a device.

    Parameters
    ----------
    device : jax.Device, str or Chip
        The one that is explained, or what it is called.
    dtypes : sequence of str
        Types of the matmuls in the program.
    given : device.Record, Roofline or None
        The rates that the device reaches. By default those of the chip table; a CPU is measured
        here, once, in a few seconds.
    """
    chip = None
    with contextlib.suppress(RooflineError):
        chip = chips.chip(device).per_device()
    if isinstance(given, Roofline):
        peaks = dict.fromkeys(dtypes or ["fp32"], given.peak)
        return Ceilings(chip, Reached(given.bandwidth, peaks, given.vector, (), given.name))
    if isinstance(given, Record):
        return Ceilings(chip, _of_record(given))
    if given is not None:
        raise BadType(f"ceilings must be a Roofline or a device.Record, got {shown(given)}")
    if getattr(device, "platform", "") == "cpu":
        return Ceilings(
            None, _of_this_cpu(tuple(sorted({"fp32", *dtypes} & {"fp32", "bf16", "int8"})))
        )
    return Ceilings(chip, None)


def _of_record(record: Record) -> Reached:
    streams = record.streams
    return Reached(
        bandwidth=max(streams.values()),
        peaks=record.peaks,
        vector=record.vector_peaks.get("fp32"),
        origin=f"measured on {record.name}, {record.date[:10]}",
    )


@functools.cache
def _of_this_cpu(dtypes: tuple[str, ...]) -> Reached:
    """Measure streams, caches and matmuls of the CPU here: a few seconds, once per process."""
    # A server's last cache may hold hundreds of megabytes: arrays of 128 MiB, new for each call,
    # are as large as what readers explain, and take a second each
    streams = [case for case in memory_cases(2**27) if case.name.startswith(("read", "scale in"))]
    cached = [2**e for e in (19, 22, 25)]
    chosen = [
        *streams,
        *level_cases(cached),
        *(matmul_case(1024, 1024, 1024, dtype, turned=False) for dtype in dtypes),
        vector_case("fp32", 2**20, steps=64),
    ]
    # A ceiling is the best of all passes. Other work on the machine only makes a pass longer, and
    # may last a second, so each pass goes through all samples in turn
    record = run(chosen=chosen, passes=3, seconds=0.03, progress=False)
    measured = (sample for sample in record.samples if sample.passes)
    best = {sample.name: min(each.low for each in sample.passes) for sample in measured}
    memory, compute, vector, levels = map(record.group, ("memory", "compute", "vector", "levels"))
    return Reached(
        bandwidth=max(sample.bytes / best[sample.name] for sample in memory),
        peaks={sample.dtype: sample.flops / best[sample.name] for sample in compute},
        vector=vector[0].flops / best[vector[0].name],
        caches=[
            (float(size), sample.bytes / best[sample.name])
            for size, sample in zip(cached, levels, strict=True)
        ],
        origin=f"measured here, {record.date[:10]}",
    )
