"""Laws of kernels on GPUs where nobody measured them: those of other GPUs."""

from __future__ import annotations

import functools
from statistics import geometric_mean, median

import msgspec

from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.measured.laws import Errors, Law, laws_of
from roofline_helpers.measured.tables import NoData, dtype_in_tables
from roofline_helpers.work import Work

ELSEWHERE = "other chips"
"""The `library` of a law whose constants are those of other chips."""


def law_elsewhere(job: Work, chip: str | Chip) -> Law | None:
    """Return the law of kernels like one on other GPUs, for a GPU without a law of its own.

    Its constants are their geometric means, and its `law` errors what such a law misses on chips
    that have one. Weights of 8 and 4 bits that are widened to 16 take those of integers. None for
    another kind of chip, or where no kernels like it were measured.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> law_elsewhere(matmul(64, 4096, 4096), "l4").library
    'other chips'
    """
    bits = job.dims.get("weight_bits", 0)
    try:
        kind = dtype_in_tables(job)
    except NoData:
        kind = f"int{int(bits)} weights"
    device = chip_of(chip)
    return _elsewhere(job.kind, kind, device.key) if device.vendor == "NVIDIA" else None


@functools.cache
def _elsewhere(family: str, kind: str, chip: str) -> Law | None:
    others = [fitted for fitted in laws_of(family) if fitted.dtype == kind]
    if not others:
        return None
    constants = {
        name: geometric_mean(getattr(fitted, name) for fitted in others)
        for name in ("start", "compute", "memory", "corner", "step")
    }
    missed = [fitted.unseen for fitted in laws_of(family) if fitted.unseen]
    errors = Errors(*(median(getattr(e, q) for e in missed) for q in ("median", "p90")))
    return msgspec.structs.replace(others[0], chip=chip, library=ELSEWHERE, law=errors, **constants)
