"""A compiled program at the ceilings that were reached, in the place of published ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofline_helpers._checks import single
from roofline_helpers.compiled import timeline as schedule
from roofline_helpers.compiled.kernel import CompiledKernel
from roofline_helpers.compiled.links import Links

if TYPE_CHECKING:
    from roofline_helpers.compiled.report import Report


@dataclass(frozen=True)
class AtReached:
    """Seconds of a program, one kernel after another, by what bounds each.

    `compute` are kernels that FLOPs bound, `fed` products that bytes bound, `memory` other kernels
    that bytes bound. `attention` are Pallas kernels, `network` what the program waits for exchanges
    by its own schedule.

    Examples
    --------
    >>> AtReached(compute=2e-3, attention=1e-3, memory=1e-3, network=0.0).seconds
    0.004
    """

    compute: float
    attention: float
    memory: float
    network: float
    fed: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of all."""
        return sum(self.waterfall().values())

    def waterfall(self) -> Mapping[str, float]:
        """Return what `seconds` is made of, in order."""
        return {
            "products": self.compute,
            "products that wait for memory": self.fed,
            "Pallas kernels": self.attention,
            "passes over memory": self.memory,
            "exchanges that wait": self.network,
        }


def at_reached(report: Report, *, filled: float = 1.0) -> AtReached:
    """Return the time of a program for a TPU at reached ceilings, exchanges by its schedule.

    Parameters
    ----------
    report : Report
        Of one device.
    filled : float
        Share of the matrix unit that products of Pallas kernels fill, which the program doesn't
        say.

    Raises
    ------
    BadType, BadValue
        Not a positive number.
    """
    share = single("filled", filled)
    links = Links(report.target, report.topology, report.mesh, report.devices)
    kernels = [_reached(kernel, links) for kernel in report.kernels]
    parts = dict.fromkeys(("compute", "fed", "memory", "network", "attention"), 0.0)
    slowed = []
    for kernel in kernels:
        if kernel.row.opcode == "custom-call" and kernel.bound == "compute" and kernel.roof:
            kernel = replace(kernel, roof=replace(kernel.roof, peak=kernel.roof.peak * share))
        slowed.append(kernel)
        if not kernel.row.overlaps and kernel.limit is not None:
            parts[_part(kernel)] += kernel.roof_seconds or 0.0
    exposed = schedule.timeline(slowed).exposed
    waited = zip(slowed, exposed, strict=True)
    parts["network"] += sum(seconds for kernel, seconds in waited if kernel.row.overlaps)
    return AtReached(**parts)


def _part(kernel: CompiledKernel) -> str:
    """Return the part of `AtReached` that a kernel's time belongs to."""
    if kernel.row.opcode == "custom-call":
        return "attention"
    bound = kernel.bound or "memory"
    return "fed" if bound == "memory" and kernel.row.matrix_flops else bound


def _reached(kernel: CompiledKernel, links: Links) -> CompiledKernel:
    """Return a kernel under reached ceilings, its exchange on links as they reach."""
    exchange = kernel.row.collective
    seconds = None if exchange is None else links.seconds(exchange, reached=True)
    return replace(kernel, roof=kernel.ceilings(reached=True), link_seconds=seconds)
