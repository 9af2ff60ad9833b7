"""A kernel on a device: the one class that predicted and compiled kernels extend."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from roofline_helpers.roofline.model import Counted, Roofline


@dataclass(frozen=True)
class Kernel:
    """What one launch of a kernel does, how often it is launched, and the time it takes at least.

    Seconds are those of all launches together.

    Parameters
    ----------
    work : Counted
        FLOPs and bytes of one launch.
    roof : Roofline or None
        The ceilings over it: those of the device, for the data type that it computes in. None
        where the device is not known; the kernel then has counts and no times.
    launches : int
        How often it runs.

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
        """What bounds it – "memory", "compute" or "network"; None where `limit` is."""
        return None if self.roof is None else self.roof.bound(self.work)

    @property
    def attainable(self) -> float | None:
        """FLOP/s under its roof; None where `limit` is."""
        return None if self.roof is None or not self.times else self.roof.attainable(self.work)
