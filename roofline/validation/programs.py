"""The time of a compiled TPU program at reached ceilings."""

from __future__ import annotations

from dataclasses import replace

from roofline.xla.kernel import CompiledKernel, Links, timeline_of
from roofline.xla.report import Report
from roofline.xla.roofs import chip_roofline

_FED, _WAITING = "matmuls that wait for memory", "exchanges that wait"


def seconds_by_bound(report: Report, *, filled: float) -> dict[str, float]:
    """Return the seconds of a program's kernels, one after another, by the bound of each.

    Ceilings are reached ones, and exchanges overlap as the program schedules them.

    Parameters
    ----------
    report : Report
        Of one device.
    filled : float
        Share of the matrix unit that matmuls of Pallas kernels fill, which the program doesn't
        state.
    """
    names = ("matmuls", _FED, "Pallas kernels", "passes over memory", _WAITING)
    parts, kernels = dict.fromkeys(names, 0.0), []
    for kernel in (_reached(published, report.links) for published in report.kernels):
        if kernel.work.opcode == "custom-call" and kernel.bound == "compute" and kernel.roof:
            kernel = replace(kernel, roof=replace(kernel.roof, peak=kernel.roof.peak * filled))
        kernels.append(kernel)
        if not kernel.work.overlaps and kernel.limit is not None:
            parts[_part(kernel)] += kernel.roof_seconds or 0.0
    waited = zip(kernels, timeline_of(kernels).exposed, strict=True)
    parts[_WAITING] += sum(seconds for kernel, seconds in waited if kernel.work.overlaps)
    return parts


def _part(kernel: CompiledKernel) -> str:
    """Return the part that a kernel's time belongs to."""
    if kernel.work.opcode == "custom-call":
        return "Pallas kernels"
    if kernel.bound in ("compute", "network"):
        return "matmuls" if kernel.bound == "compute" else _WAITING
    return _FED if kernel.work.matrix_flops else "passes over memory"


def _reached(kernel: CompiledKernel, links: Links | None) -> CompiledKernel:
    """Return a kernel under reached ceilings, with its exchange at reached link rates."""
    exchange, chip = kernel.work.collective, kernel.chip
    seconds = None if exchange is None or links is None else links.seconds(exchange, reached=True)
    roof = chip_roofline(chip, kernel.work.matrix_types, reached=True) if chip else None
    return replace(kernel, roof=roof, link_seconds=seconds)
