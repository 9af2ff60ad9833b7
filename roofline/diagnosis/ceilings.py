"""The ceilings over a device here: published ones, and what it really reaches."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from roofline import xla
from roofline.measure.workloads import level_cases, matmul_case, memory_cases, run, vector_case
from roofline.xla.expected import Like, as_one_call, combined, expected_of, like
from roofline.xla.kernel import kernel_of
from roofline.xla.roofs import DeviceRoofs, best_peak, passes_of, type_on
from roofline_helpers import chips
from roofline_helpers.chips import Chip, Figure
from roofline_helpers.common.checks import BadType, BadValue, RooflineError, shown
from roofline_helpers.common.show import Fields, si
from roofline_helpers.measured.judging import Judgement, judged
from roofline_helpers.measured.kernels import Expected
from roofline_helpers.measured.record import Record
from roofline_helpers.roofline import Kernel, Roofline, bound_of
from roofline_helpers.work import Work

if TYPE_CHECKING:
    from jax import Device

    from roofline.diagnosis.rows import TimedRow


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
    >>> Roofs({"hbm": 4.8e12}, {"hbm": 4.3e12}, "h200").best["hbm"]
    4300000000000.0
    """

    published: Mapping[str, float] = field(default_factory=dict)
    reached: Mapping[str, float] = field(default_factory=dict)
    origin: str = ""

    @property
    def best(self) -> Mapping[str, float]:
        """The reached ceilings, else the published ones."""
        return self.reached or self.published

    def roofline(self, dtype: str | None, name: str = "") -> Roofline:
        """Return the roofline of `best` for matmuls of a data type; the highest peak without one.

        Raises
        ------
        BadValue
            No bandwidth is known.
        """
        peaks = dict(self.best)
        if "hbm" not in peaks:
            raise BadValue(f"{name} has no known ceilings: give ceilings= to explain")
        bandwidth, vector = peaks.pop("hbm"), peaks.pop("vector", None)
        highest = max(peaks.values(), default=vector or bandwidth)
        if dtype == "fp64" and "fp32" in peaks:
            highest = peaks["fp32"] / 2  # a CPU's vector holds half as many
        return Roofline(peaks.get(dtype or "", highest), {"hbm": bandwidth}, vector, name=name)


CLOSE = 0.8
"""Share of its roof from which on a kernel counts as near it."""


@dataclass(frozen=True)
class Ceilings:
    """The roofs over the kernels of one device.

    Parameters
    ----------
    chip : Chip, optional
        The device as the chip table has it: published figures, and reached ones.
    measured : Roofs, optional
        Rates that were reached here, or given; they take precedence over the chip table.
    caches : sequence of (float, float)
        Byte/s by the bytes of the working set, if caches were measured.
    vector : float, optional
        FLOP/s that the vector unit is assumed to reach, where the chip table has none.
    """

    chip: Chip | None = None
    measured: Roofs | None = None
    caches: Sequence[tuple[float, float]] = ()
    vector: float | None = None

    @functools.cached_property
    def device(self) -> DeviceRoofs:
        """The roofs by the chip table alone."""
        return DeviceRoofs(self.chip)

    def roof(self, kernel: xla.Row, *, reached: bool = True) -> Roofline | None:
        """Return the roofline over a kernel, without a floor: a launch is no part of a kernel."""
        if reached and self.measured is not None:
            return self._measured_roof(kernel, self.measured)
        roof = self.device.over(kernel.matrix_types, reached=reached)
        if roof is None:
            return None
        assumed = self.vector if reached else None
        return replace(roof, floor=None, vector=roof.vector or assumed)

    def _measured_roof(self, kernel: xla.Row, rates: Roofs) -> Roofline:
        """Return the roofline for a kernel's data type, and a working set of its size."""
        product = next(iter(kernel.matrix_types), None)
        roof = rates.roofline(product and type_on(product, rates.reached))
        cached = [bandwidth for size, bandwidth in self.caches if kernel.bytes <= size]
        peak = roof.peak / passes_of(product or "")
        return replace(roof, peak=peak, levels={"hbm": max([roof.bandwidth, *cached])})

    def seconds(self, kernel: xla.Row, launches: float, *, reached: bool = True) -> float | None:
        """Return the least seconds of a kernel's launches by reached, or published, ceilings.

        Reached ones are what good kernels of its size take, where the public tables have them.
        """
        once = Kernel(kernel, self.roof(kernel, reached=reached)).roof_seconds
        if once is None:
            return None
        known = self.like(kernel) if reached else None
        return max(once, known.good if known is not None else 0.0) * launches

    def like(self, kernel: xla.Row) -> Like | None:
        """Return what measured kernels of a kernel's size take, if the chip's ceilings count."""
        return None if self.chip is None or self.measured is not None else like(kernel, self.chip)

    def expected(self, rows: Iterable[TimedRow]) -> Expected | None:
        """Return the time to expect of a call, on a GPU with gaps; None if no kernel has a roof."""
        roofed = [row for row in rows if row.reachable is not None]
        if not roofed:
            return None
        if self.chip is None or self.measured is not None:
            good = math.fsum(row.reachable or 0.0 for row in roofed)
            return Expected(good, good, good, "reached ceilings", self.roofs.origin)
        every = [
            expected_of(kernel_of(row.kernel.running(1), self.device)).times(row.launches)
            for row in roofed
        ]
        whole = math.fsum(each.known for each in every)
        found = combined(every, whole, self.chip)
        return as_one_call(found, [round(row.launches) for row in roofed], self.chip)

    def judged(self, row: TimedRow) -> Judgement | None:
        """Return what a launch of a timed kernel is worth (`rh.judge`); None without a roof.

        Where kernels aren't measured, as on a CPU, a launch within `CLOSE` of its roof is normal.
        """
        if row.reachable is None or not row.launches:
            return None
        once = row.reachable / row.launches
        found = Expected(once, 0.0, once / CLOSE, "reached ceilings")
        if self.chip is not None and self.measured is None:
            found = expected_of(kernel_of(row.kernel.running(1), self.device))
        least = (row.least or row.reachable) / row.launches
        bound = bound_of(row.limit.partition(" or ")[0] or "hbm")
        return judged(row.seconds / row.launches, found, least, bound)

    def under_roofs(self, row: TimedRow, kernel: xla.Row) -> TimedRow:
        """Return a timed row with its kernel, two times by its roofs, and the ceiling met first.

        None of them for a kernel whose counts don't say how long it takes (`Row.untimed`).
        """
        if kernel.untimed:
            return replace(row, kernel=kernel)
        return replace(
            row,
            kernel=kernel,
            least=self.seconds(kernel, row.launches, reached=False),
            reachable=self.seconds(kernel, row.launches),
            limit=Kernel(kernel, self.roof(kernel)).limit or "",
        )

    def hand(self, works: Sequence[Work]) -> float | None:
        """Return the least seconds of work counted by hand: by published ceilings, if there are."""
        if self.chip is not None:
            roofs = [self.chip.roofline(work.dtype).without_floor() for work in works]
        elif self.measured is not None:
            roofs = [self.measured.roofline(work.dtype) for work in works]
        else:
            return None
        times = [float(roof.time(work)) for roof, work in zip(roofs, works, strict=True)]
        return sum(times) if times else None

    @functools.cached_property
    def roofs(self) -> Roofs:
        """The figures of both sorts, for display and record."""
        chip, published = self.chip, {}
        if chip is not None:
            published = _known(chip.matrix, chip.vector, chip.memory["hbm"].bandwidth)
        if self.measured is not None:
            return replace(self.measured, published=published)
        stream = None if chip is None else chip.reached.stream()
        if chip is None or stream is None:
            return Roofs(published)
        reached = _known(chip.reached.matrix, chip.reached.vector, stream)
        origin, sustained = stream.source.title, reached.get("bf16")
        for dtype in chip.matrix:
            best = best_peak(chip, dtype)
            if best is not None and best > reached.get(dtype, 0.0):
                reached[dtype] = best
        if reached.get("bf16") != sustained:
            origin += f"; matmuls as the best measured one, {si(reached['bf16'], 'FLOP/s')} in bf16"
            origin += "" if sustained is None else f", {si(sustained, 'FLOP/s')} sustained"
        return Roofs(published, published | reached, origin)


def _known(
    matrix: Mapping[str, Figure], vector: Mapping[str, Figure], stream: Figure | None
) -> dict[str, float]:
    """Return peaks by data type, the vector unit's and the bandwidth: those that are known."""
    figures = {**matrix, "vector": vector.get("fp32"), "hbm": stream}
    return {name: figure.value for name, figure in figures.items() if figure is not None}


def ceilings_of(
    device: Device | Chip | str, dtypes: Sequence[str], given: object = None
) -> Ceilings:
    """Return the ceilings over a device for matmuls of these types.

    By default its reached rates are those of the chip table; a CPU is measured here, once, in a few
    seconds.
    """
    chip = None
    with contextlib.suppress(RooflineError):
        chip = chips.chip(device).per_device()
    if isinstance(given, Roofline):
        peaks = dict.fromkeys(dtypes or ["fp32"], given.peak)
        return Ceilings(chip, _measured(given.bandwidth, peaks, given.vector, given.name))
    if isinstance(given, Record):
        origin = f"measured on {given.name}, {given.date[:10]}"
        vector = given.vector_peaks.get("fp32")
        return Ceilings(chip, _measured(given.bandwidth, given.peaks, vector, origin))
    if given is not None:
        raise BadType(f"ceilings must be a Roofline or a Record, got {shown(given)}")
    if getattr(device, "platform", "") == "cpu":
        return _of_this_cpu(tuple(sorted({"fp32", *dtypes} & {"fp32", "bf16", "int8"})))
    return Ceilings(chip)


def _measured(
    bandwidth: float, peaks: Mapping[str, float], vector: float | None, origin: str
) -> Roofs:
    rates = {**peaks, "hbm": bandwidth} | ({} if vector is None else {"vector": vector})
    return Roofs(reached=rates, origin=origin)


@functools.cache
def _of_this_cpu(dtypes: tuple[str, ...]) -> Ceilings:
    """Measure streams, caches and matmuls of the CPU here: a few seconds, once per process."""
    # A server's last cache may hold hundreds of megabytes: arrays of 128 MiB, new for each call,
    # are as large as what readers explain, and take a second each
    streams = [case for case in memory_cases(2**27) if case.name.startswith(("read", "scale in"))]
    cached = [2**e for e in (19, 22, 25)]
    chosen = [
        *streams,
        *level_cases(cached),
        *(matmul_case(1024, 1024, 1024, dtype, transposed=False) for dtype in dtypes),
        vector_case("fp32", 2**20, steps=64),
    ]
    # A ceiling is the best of all passes. Other work on the machine only makes a pass longer, and
    # may last a second, so each pass goes through all samples in turn
    record = run(chosen=chosen, passes=3, seconds=0.03, progress=False)

    def rates(group: str, counted: str) -> list[float]:
        samples = record.group(group)
        return [getattr(s, counted) / min(timing.low for timing in s.passes) for s in samples]

    peaks = [sample.dtype for sample in record.group("compute")]
    measured = _measured(
        max(rates("memory", "bytes")),
        dict(zip(peaks, rates("compute", "flops"), strict=True)),
        rates("vector", "flops")[0],
        f"measured here, {record.date[:10]}",
    )
    caches = zip(map(float, cached), rates("levels", "bytes"), strict=True)
    return Ceilings(measured=measured, caches=tuple(caches))
