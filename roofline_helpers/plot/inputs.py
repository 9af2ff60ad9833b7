"""What the pictures take: kernels and intensities in any of their forms, and where they belong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from roofline_helpers._checks import BadType, BadValue, single
from roofline_helpers.dtypes import BITS
from roofline_helpers.plot.style import short_number
from roofline_helpers.roofline import Roofline
from roofline_helpers.work import Work, total

T = TypeVar("T")
Job: TypeAlias = "Work | float"
Kernels: TypeAlias = "Work | Sequence[Work]"
Jobs: TypeAlias = "Job | Mapping[str, Job] | Iterable[Work | tuple[str, Job]]"


def need(value: Any, kind: type) -> None:
    """Raise BadType unless a value is of this type."""
    if not isinstance(value, kind):
        name = kind.__name__
        raise BadType(f"{name} is needed, got {value!r} ({type(value).__name__})")


def named_jobs(jobs: Jobs) -> list[tuple[str, Job]]:
    """Return jobs in any of their forms as (label, job)."""
    if isinstance(jobs, Mapping):
        pairs: list[Any] = list(jobs.items())
    elif isinstance(jobs, Work) or not isinstance(jobs, Iterable):
        pairs = [jobs]
    else:
        pairs = list(jobs)
    named: list[tuple[str, Job]] = []
    for entry in pairs:
        if isinstance(entry, Work):
            named.append((entry.name, entry))
        elif isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
            label, job = entry
            if not isinstance(job, Work):
                job = single(f"intensity of {label}", job)
            named.append((label, job))
        else:
            value = single("an intensity", entry)
            named.append((short_number(value), value))
    return named


def position(label: str, job: Job, roof: Roofline) -> tuple[float, float]:
    """Return where a job sits: (intensity at the outermost level, attainable)."""
    if not isinstance(job, Work):
        return job, float(roof.attainable(job))
    x = job.intensity_at(next(iter(roof.levels)))
    if np.ndim(x):
        raise BadType(f"{label}: a point needs one size, got arrays of {np.size(x)}")
    if not x > 0:
        raise BadValue(f"{label} has no FLOPs: intensity 0 has no place on a logarithmic axis")
    return float(x), float(roof.attainable(job))


def positions(jobs: Jobs, roof: Roofline) -> list[tuple[str, Job, tuple[float, float]]]:
    """Return each job as (label, job, position)."""
    return [(label, job, position(label, job, roof)) for label, job in named_jobs(jobs)]


def level_positions(
    label: str, job: Any, roof: Roofline, slopes: Mapping[str, float]
) -> tuple[dict[str, float], float, set[str]]:
    """Return a kernel's intensity at each level, the FLOP/s it can attain, and what stops it.

    It has one rate, which the slowest of its levels and units allows. What stops it are the levels
    whose ceiling that is; all of them, if it is the ceiling of a unit.
    """
    position(label, job, roof)
    seconds = {level: float(t) for level, t in roof.times(job).items()}
    across = {level: float(job.intensity_at(level)) for level in slopes if level in seconds}
    longest = max(seconds[name] for name in (*across, "matrix", "vector") if name in seconds)
    stopping = {level for level in across if seconds[level] == longest}
    return across, float(job.flops) / longest, stopping or set(across)


def on_vector_only(job: Job) -> bool:
    """Tell whether a kernel has FLOPs for the vector unit and none for the matrix unit."""
    return isinstance(job, Work) and bool(job.vector_flops > 0) and bool(job.matrix_flops == 0)


def several(entries: Any, kind: type[T], what: str) -> list[T]:
    """Return one or several of a type as a list; raise for anything else, and for none."""
    members = list(entries) if isinstance(entries, Iterable) else [entries]
    for member in members:
        need(member, kind)
    if not members:
        raise BadValue(f"at least one {what} is needed, got none")
    return members


def works_of(entries: Any) -> list[Work]:
    """Return one kernel or several as a list."""
    return several(entries, Work, "kernel")


def labelled_work(end: Any, label: str) -> tuple[str, Work]:
    """Return one end of a fusion arrow as (label, work): `label` where it brings none."""
    if isinstance(end, tuple) and len(end) == 2 and isinstance(end[0], str):
        label, end = end
    return label, end if isinstance(end, Work) else total(*works_of(end))


def roofs_of(entries: Any) -> list[Roofline]:
    """Return one roofline or several as a list."""
    return several(entries, Roofline, "roofline")


def short_names(names: Sequence[str]) -> tuple[list[str], str]:
    """Return names without the vendor and without a data type that all share, and that type."""
    last = {name.rsplit(" ", 1)[-1] for name in names}
    shared = last.pop() if len(last) == 1 and last <= set(BITS) else ""
    cut = [name.removesuffix(f" {shared}") if shared else name for name in names]
    return [name.removeprefix("NVIDIA ").removeprefix("AMD ") for name in cut], shared
