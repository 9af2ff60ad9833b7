"""The roofline of energy: joules add up where times overlap, so its line is an arch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from roofline_helpers.common.checks import BadType, BadValue, plain, quantity, shown, single
from roofline_helpers.roofline.model import Roofline


@dataclass(frozen=True)
class EnergyRoofline:
    """What work costs in joules on one device: each FLOP, each byte, and every second.

    energy = FLOPs · `per_flop` + bytes · `per_byte` + seconds · `idle`

    Source: J. W. Choi, D. Bedard, R. Fowler, R. Vuduc, "A roofline model of energy", IPDPS 2013,
    doi:10.1109/IPDPS.2013.77. `limit` is as in J. Choi, M. Dukhan, X. Liu, R. Vuduc, "Algorithmic
    time, energy, and power on candidate HPC compute building blocks", IPDPS 2014.

    Parameters
    ----------
    roof : Roofline
        The device's times.
    per_flop, per_byte : float
        Joules of a FLOP, and of a byte of the main memory, above what the idle device takes.
    idle : float
        Watts that it takes whatever it does.
    limit : float, optional
        Watts that it may take: what would take more goes slower. None is no limit.

    Raises
    ------
    BadType, BadValue
        No roofline; costs that aren't positive finite numbers; a limit not above `idle`.

    Examples
    --------
    >>> cost = EnergyRoofline(Roofline(100e12, 1e12), per_flop=1e-12, per_byte=100e-12, idle=100.0)
    >>> cost.balance
    100.0
    >>> cost.seconds(flops=100e12, bytes=1e12)
    1.0
    >>> cost.joules(flops=100e12, bytes=1e12)
    300.0
    """

    roof: Roofline
    per_flop: float
    per_byte: float
    idle: float
    limit: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.roof, Roofline):
            raise BadType(f"roof must be a Roofline, got {shown(self.roof)}")
        for name in ("per_flop", "per_byte"):
            object.__setattr__(self, name, single(name, getattr(self, name)))
        object.__setattr__(self, "idle", single("idle", self.idle, zero=True))
        if self.limit is not None and single("limit", self.limit) <= self.idle:
            raise BadValue(f"limit must be more than idle, {self.idle:g} W, got {self.limit:g}")

    @property
    def balance(self) -> float:
        """FLOP/byte at which the bytes cost as much as the FLOPs, time apart."""
        return self.per_byte / self.per_flop

    def seconds(self, flops: Any, bytes: Any) -> Any:
        """Return the least seconds of some work: by the roofline, and by the limit of power.

        Parameters
        ----------
        flops, bytes : float or array
            Of the work; bytes of the main memory.
        """
        flops = quantity("flops", flops, zero=True)
        bytes = quantity("bytes", bytes, zero=True)
        least = np.maximum(flops / self.roof.peak, bytes / self.roof.bandwidth)
        if self.limit is not None:
            above = flops * self.per_flop + bytes * self.per_byte
            least = np.maximum(least, above / (self.limit - self.idle))
        return plain(least)

    def joules(self, flops: Any, bytes: Any, seconds: Any = None) -> Any:
        """Return the joules of some work.

        Parameters
        ----------
        flops, bytes : float or array
            Of the work; bytes of the main memory.
        seconds : float or array, optional
            How long it takes; by default the least.
        """
        took = self.seconds(flops, bytes) if seconds is None else quantity("seconds", seconds)
        flops = quantity("flops", flops, zero=True)
        bytes = quantity("bytes", bytes, zero=True)
        return plain(flops * self.per_flop + bytes * self.per_byte + took * self.idle)

    def watts(self, intensity: Any) -> Any:
        """Return the power of a kernel of some intensity (FLOP/byte) at its least time."""
        bytes = 1 / quantity("intensity", intensity)
        return plain(self.joules(1.0, bytes) / self.seconds(1.0, bytes))

    def flops_per_joule(self, intensity: Any) -> Any:
        """Return what a joule buys at some intensity (FLOP/byte): FLOPs, at the least time."""
        return plain(1 / self.joules(1.0, 1 / quantity("intensity", intensity)))

    def flops_per_second(self, intensity: Any) -> Any:
        """Return the rate at some intensity (FLOP/byte): the roofline's, or what power allows."""
        return plain(1 / self.seconds(1.0, 1 / quantity("intensity", intensity)))
