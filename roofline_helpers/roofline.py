"""The roofline model: how fast a kernel can be, and what bounds it.

Nothing here knows a chip or an operation. A `Roofline` holds ceilings, `Counted` is whatever has
FLOPs by unit and bytes by memory level: `roofline_helpers.work` counts them by hand, `roofline.xla`
reads them from a compiled program. A `Kernel` is such a count on a roofline, launched once or more.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model
for multicore architectures", Communications of the ACM 52(4), 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeGuard, runtime_checkable

import numpy as np

from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    Number,
    all_true,
    broadcast,
    flag,
    folded,
    name_of,
    plain,
    quantity,
    shown,
    single,
)
from roofline_helpers.common.show import Facts, Fields, si, significant

__all__ = ["Counted", "Roofline", "Kernel"]

NETWORK = "network"
FLOOR = "floor"
UNITS = ("matrix", "vector")


# --- Ceilings, and how fast anything counted may go under them -----------------------------------


def bound_of(limit: str) -> str:
    """Return the bound of a kernel that meets this ceiling first, as `Roofline.bound` does."""
    words = {**dict.fromkeys(UNITS, "compute"), NETWORK: NETWORK, FLOOR: "latency"}
    return words.get(limit, "memory")


@runtime_checkable
class Counted(Protocol):
    """The work of a kernel: FLOPs by unit, and bytes by memory level.

    Unknown FLOPs are left out, so that every time is a lower bound.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> isinstance(matmul(8, 8, 8), Counted)
    True
    """

    @property
    def matrix_flops(self) -> Number:
        """FLOPs on the matrix unit."""

    @property
    def vector_flops(self) -> Number:
        """FLOPs on the vector unit."""

    @property
    def traffic(self) -> Mapping[str, Number]:
        """Bytes across each boundary, by memory level; "network" for what is sent."""


def is_counted(value: Any) -> TypeGuard[Counted]:
    """Return whether a value is `Counted`, and not the class of such values."""
    # isinstance(value, Counted) would work out the traffic, and take 20 µs
    counts = hasattr(value, "matrix_flops") and hasattr(value, "vector_flops")
    return counts and not isinstance(value, type)


def _complete(kernel: Counted) -> None:
    """Raise BadValue for counts that are only the least: times are bounds still, no verdict is."""
    reason = getattr(kernel, "at_least", "")
    if reason:
        raise BadValue(f"what bounds it isn't known, its FLOPs and bytes are the least: {reason}")


@dataclass(frozen=True, repr=False)
class Roofline(Facts):
    """The ceilings of one device for one data type.

    Parameters
    ----------
    peak : float
        The compute ceiling, FLOP/s.
    levels : float or mapping of str to float
        Bandwidth of each memory level, byte/s, outermost first. A number is short for ``{"hbm":
        number}``. Names are kept in lower case, without space, "-" and "_".
    vector : float, optional
        The vector unit's ceiling, FLOP/s. Without it vector work is compared with `peak`: a looser
        bound, never a wrong one.
    network : float, optional
        Byte/s that the device can send to others.
    floor : float, optional
        Seconds of one launch in a row of small kernels. Launching overlaps with work, so it is one
        more time of which the longest counts. It bounds no kernel's own duration, and doesn't apply
        to a plain intensity, which has no size.
    name : str
        Shown in plots and tables.

    Raises
    ------
    BadType, BadValue
        Here and in all methods: what is not a positive finite number, or not a kernel; no memory
        level, or one under two spellings; a kernel that moves bytes at none of them; arrays whose
        shapes don't fit.
    UnknownName
        No such level or unit here; the message gives the nearest.

    Examples
    --------
    >>> roof = Roofline(peak=100e12, levels=1e12)
    >>> roof.ridge
    100.0
    >>> roof.attainable(25)
    25000000000000.0
    >>> roof.bound([25, 400]).tolist()
    ['memory', 'compute']
    """

    peak: float
    levels: Mapping[str, float]  # a number is accepted too
    vector: float | None = None
    network: float | None = None
    floor: float | None = None
    name: str = "roofline"

    def __post_init__(self) -> None:
        bandwidths: Any = self.levels
        by_level = bandwidths if isinstance(bandwidths, Mapping) else {"hbm": bandwidths}
        levels = folded("levels", by_level)
        if not levels:
            raise BadValue("a roofline needs at least one memory level, got none")
        for taken in (*UNITS, NETWORK, FLOOR):
            if taken in levels:
                raise BadValue(f"{taken!r} is no memory level: it has an argument of its own")
        checked = {level: single(f"bandwidth of {level}", bw) for level, bw in levels.items()}
        object.__setattr__(self, "levels", MappingProxyType(checked))
        object.__setattr__(self, "peak", single("peak", self.peak))
        for optional in ("vector", "network", "floor"):
            if getattr(self, optional) is not None:
                value = single(optional, getattr(self, optional), zero=optional == "floor")
                object.__setattr__(self, optional, value or None)

    _named = True

    def _facts(self) -> dict[str, str]:
        ceilings = {"peak": self.peak, "vector": self.vector}
        facts = {unit: si(value, "FLOP/s", "T", 4) for unit, value in ceilings.items() if value}
        names = {"hbm": "memory"} if list(self.levels) == ["hbm"] else {}
        for key, value in self.slopes.items():
            facts[names.get(key, key)] = si(value, "B/s", "G", 5)
        facts |= {FLOOR: si(self.floor, "s")} if self.floor else {}
        ridges = {"ridge": self.peak, "vector ridge": self.vector}
        return facts | {
            name: f"{significant(peak / self.bandwidth, 4)} FLOP/byte"
            for name, peak in ridges.items()
            if peak
        }

    @property
    def bandwidth(self) -> float:
        """Bandwidth of the outermost memory level, byte/s."""
        return next(iter(self.levels.values()))

    @property
    def slopes(self) -> dict[str, float]:
        """Bandwidth of each memory level and, where it is known, of the "network", byte/s."""
        return {**self.levels, **({NETWORK: self.network} if self.network else {})}

    @property
    def ridge(self) -> float:
        """Intensity at which the memory and the compute ceiling meet – peak / bandwidth."""
        return self.peak / self.bandwidth

    def ridge_at(self, level: str, unit: str = "matrix") -> float:
        """Return the ridge of another memory level, or of the "vector" unit, FLOP/byte."""
        peaks = {"matrix": self.peak}
        if self.vector is not None:
            peaks["vector"] = self.vector
        bandwidth = self.levels[name_of("memory level", level, self.levels)]
        return peaks[name_of("unit", unit, peaks)] / bandwidth

    def without_floor(self) -> Self:
        """Return this roofline without its floor, so that only rates count, at any size."""
        return replace(self, floor=None)

    def measured(
        self,
        peak: float | None = None,
        levels: Mapping[str, float] | float | None = None,
        vector: float | None = None,
    ) -> Self:
        """Return this roofline with measured ceilings in place of published ones.

        A ceiling that is not given, also a level that `levels` does not name, keeps its published
        value. A number for `levels` is the bandwidth of the outermost level.
        """
        if peak is None and levels is None and vector is None:
            raise BadType("at least one of peak, levels, vector is needed, got none")
        by_level = dict(self.levels)
        if levels is not None:
            given = levels if isinstance(levels, Mapping) else {next(iter(by_level)): levels}
            for level, bandwidth in folded("levels", given).items():
                by_level[name_of("memory level", level, by_level)] = bandwidth
        return replace(
            self,
            name=f"{self.name}, measured",
            peak=self.peak if peak is None else peak,
            levels=by_level,
            vector=self.vector if vector is None else vector,
        )

    def attainable(self, intensity: Any) -> Any:
        """Return the highest FLOP/s that the ceilings allow: min(peak, bandwidth · intensity).

        Parameters
        ----------
        intensity : number, array, or Counted
            FLOP/byte at the outermost level. A kernel is compared with every ceiling that it has
            work for, and with the floor.
        """
        if is_counted(intensity):
            _complete(intensity)
            flops = intensity.matrix_flops + intensity.vector_flops
            return plain(np.minimum(self.peak, np.divide(flops, self.time(intensity))))
        value = np.asarray(quantity("intensity", intensity, zero=True), dtype=float)
        slope = np.minimum(self.peak, self.bandwidth * value)
        return plain(np.where(value < self.ridge, slope, self.peak)[()])

    def bound(self, intensity: Any) -> Any:
        """Return the bound: "memory" or "compute", for a kernel also "network" or "latency".

        Argument as in `attainable`. At the ridge itself the answer is "compute". "latency" means
        that the kernel is so small that it meets the floor first.

        Returns
        -------
        str, array of str, or None for a kernel that costs nothing
        """
        if is_counted(intensity):
            _complete(intensity)
            limit = self.limit(intensity)
            if limit is None or isinstance(limit, str):
                return limit and bound_of(limit)
            return np.vectorize(bound_of)(limit)
        below = np.less(self.attainable(intensity), self.peak)
        return _words(np.where(below, "memory", "compute"))

    def times(self, kernel: Counted) -> dict[str, Number]:
        """Return the seconds that each ceiling alone would take for a kernel.

        By "matrix" and "vector" (FLOPs over the unit's peak), memory level (bytes over bandwidth),
        "network" and "floor"; without a key where there is nothing to do. A level that this
        roofline doesn't have is left out, which can only make the bound looser.
        """
        if not is_counted(kernel):
            raise BadType(f"a kernel (roofline_helpers.work) is needed, got {shown(kernel)}")
        traffic = folded("traffic", kernel.traffic)
        if not traffic.keys() & self.levels.keys():
            raise BadValue(
                f"the kernel has traffic at {list(traffic)}, "
                f"this roofline has the levels {list(self.levels)}: none in common"
            )
        rates = {"matrix": self.peak, "vector": self.vector or self.peak, **self.slopes}
        done = {"matrix": kernel.matrix_flops, "vector": kernel.vector_flops, **traffic}
        seconds: dict[str, Number] = {
            ceiling: done[ceiling] / rate
            for ceiling, rate in rates.items()
            if not all_true(done.get(ceiling, 0) == 0)
        }
        return seconds if self.floor is None else {**seconds, FLOOR: self.floor}

    def time(self, *kernels: Counted, overlap: bool = True) -> Any:
        """Return the least seconds for kernels that run one after another.

        Each takes as long as its slowest part if all parts overlap perfectly, the sum of its parts
        if none do (`overlap=False`), and never less than the floor.
        """
        if not kernels:
            raise BadType("time() needs at least one kernel, got none")
        join = np.maximum if flag("overlap", overlap) else np.add
        seconds = []
        for kernel in kernels:
            parts = self.times(kernel)
            least = parts.pop(FLOOR, 0.0)
            seconds.append(np.maximum(least, reduce(join, [0.0, *parts.values()])))
        broadcast((f"kernel {i}", time) for i, time in enumerate(seconds))
        return plain(sum(seconds))

    def limit(self, kernel: Counted) -> Any:
        """Return the name of the ceiling that a kernel meets first, as `times` names them.

        None for a kernel that costs nothing.
        """
        seconds = self.times(kernel)
        if not seconds:
            return None
        if all(np.ndim(second) == 0 for second in seconds.values()):
            return max(seconds, key=lambda ceiling: seconds[ceiling])
        longest = np.argmax(np.stack(np.broadcast_arrays(*seconds.values())), axis=0)
        return _words(np.array(list(seconds))[longest])

    def mfu(self, achieved: Any) -> Any:
        """Return achieved FLOP/s over the *peak*: model FLOPs utilisation."""
        return plain(np.divide(quantity("achieved FLOP/s", achieved, zero=True), self.peak))

    def efficiency(self, achieved: Any, intensity: Any) -> Any:
        """Return achieved FLOP/s over the *attainable*: roofline efficiency.

        Above 1 means that more bytes were counted than moved. `intensity` is what `attainable`
        takes, but not 0, where the roof is 0.
        """
        value = quantity("achieved FLOP/s", achieved, zero=True)
        roof = self.attainable(intensity)
        if not np.all(np.greater(roof, 0)):
            raise BadValue("the roof at intensity 0 is 0 FLOP/s: compare bytes per second there")
        broadcast([("achieved FLOP/s", value), ("intensity", roof)])
        return plain(np.divide(value, roof))


def _words(names: Any) -> Any:
    return names if np.ndim(names) else str(names)


# --- A kernel on a device: the one class that predicted and compiled kernels extend --------------


@dataclass(frozen=True, repr=False)
class Kernel(Fields):
    """The work of one launch, the number of launches, and the least seconds of all of them.

    Parameters
    ----------
    work : Counted
        FLOPs and bytes of one launch.
    roof : Roofline or None
        The device's ceilings for its data type; without it there are counts and no times.
    launches : int

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> layer = Kernel(matmul(64, 4096, 4096), Roofline(peak=100e12, levels=1e12), launches=32)
    >>> layer.bound, f"{layer.roof_seconds * 1e3:.2f} ms"
    ('memory', '1.11 ms')
    """

    work: Counted
    roof: Roofline | None = None
    launches: int = 1

    @cached_property
    def times(self) -> dict[str, float]:
        """Seconds that each ceiling alone would take, by name (`Roofline.times`)."""
        if self.roof is None:
            return {}
        once = self.roof.times(self.work)
        return {ceiling: self.launches * float(seconds) for ceiling, seconds in once.items()}

    @property
    def roof_seconds(self) -> float | None:
        """Least seconds – the longest of `times`; None where the device is not known."""
        return None if self.roof is None else max(self.times.values(), default=0.0)

    @property
    def limit(self) -> str | None:
        """The ceiling that it meets first; None without a device, or where it costs nothing."""
        return max(self.times, key=lambda ceiling: self.times[ceiling], default=None)

    @property
    def bound(self) -> str | None:
        """The bound – "memory", "compute", "network" or "latency"; None where `limit` is."""
        return None if self.roof is None else self.roof.bound(self.work)
