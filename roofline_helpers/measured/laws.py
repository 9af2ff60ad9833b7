"""A roofline with a fixed cost, two plateaus and a rounded corner, fitted to measured kernels."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import UnknownName, name_of
from roofline_helpers.measured.tables import FOLDER, NoData, dtype_in_tables, summed_length
from roofline_helpers.work import Work

FASTEST = "fastest"
"""The `library` of a law that is fitted to the fastest library of each shape."""


class Errors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Relative errors of predicted times on shapes that were left out of the fit.

    `median` and `p90` are quantiles of ``|predicted / measured − 1|``.

    Examples
    --------
    >>> fitted = law("matmul", "h100", "bf16")
    >>> fitted.law.median < fitted.law.p90 < fitted.roof.p90
    True
    """

    median: float
    p90: float


class Law(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A time model fitted to one kernel family, on one chip and in one data type.

    ``time = start + ((t_compute / compute)^q + (t_memory / memory)^q + (step · k)^q)^(1/q)`` with
    t_compute and t_memory by the published peaks (`least_times`: all FLOPs over the matrix unit's),
    q = `corner`, and k the length that one output is summed over. Of a grouped matmul, k are the
    elements that the kernels around it pass on (`summed_length`). Of a collective, t_memory are the
    ring's bytes over the rate of a GPU's links, and k the other GPUs.

    Parameters
    ----------
    start : float
        Fixed cost, seconds.
    compute, memory : float
        Shares of the published peak and bandwidth that large kernels reach.
    corner : float
        How sharp the corner between them is: infinite for the roofline, 1 for a sum of times, below
        1 where middle sizes take longer than that.
    step : float
        Seconds for each element of k: the steps of one sum wait for each other.
    shapes, left_out : int
        Shapes that were fitted, and others that were measured. Of a TPU's few points each was left
        out in turn.
    law, roof, nearest : Errors
        On shapes left out: of this law, of the bare roof (the longer of t_compute and t_memory), of
        the nearest shape that was fitted.
    unseen : Errors
        With constants that are the geometric means of the other chips'.

    Examples
    --------
    >>> fitted = law("matmul", "h100", "bf16")
    >>> 0.7 < fitted.compute < 0.9 and fitted.law.median < fitted.roof.median
    True
    """

    family: str
    chip: str
    dtype: str
    library: str
    start: float
    compute: float
    memory: float
    corner: float
    step: float
    shapes: int
    left_out: int
    law: Errors
    roof: Errors
    nearest: Errors
    unseen: Errors | None = None

    def __repr__(self) -> str:
        shares = f"{self.compute:.0%} of the peak, {self.memory:.0%} of the bandwidth"
        return f"<law of {self.family}, {self.dtype} on {self.chip}: {self.start:.2g} s, {shares}>"

    def time(self, t_compute: Any, t_memory: Any, k: Any) -> Any:
        """Return seconds, for least times in seconds and a length in elements; arrays work too.

        Examples
        --------
        >>> fitted = law("matmul", "h100", "bf16")
        >>> fitted.time(0.0, 0.0, 0) == fitted.start
        True
        """
        q = self.corner
        parts = (t_compute / self.compute) ** q + (t_memory / self.memory) ** q
        return self.start + (parts + (self.step * k) ** q) ** (1 / q)

    def seconds(self, job: Work) -> float:
        """Return the predicted time of a kernel of this law's family, in seconds.

        Examples
        --------
        >>> from roofline_helpers.work import matmul
        >>> fitted = law("matmul", "h100", "bf16")
        >>> 80e-6 < fitted.seconds(matmul(4096, 4096, 4096)) < 400e-6
        True
        """
        return float(self.time(*least_times(job, chip_of(self.chip)), summed_length(job)))


def least_times(job: Work, chip: Chip) -> tuple[Any, Any]:
    """Return a kernel's FLOPs over the published peak and its bytes over the bandwidth, seconds.

    The first has all FLOPs over the matrix unit's peak, those of the vector unit too: for a causal
    `flash_attention` on an H100 it is 1 to 2% above `Roofline.time`.
    """
    bandwidth = chip.memory["hbm"].bandwidth
    assert bandwidth
    return job.flops / chip.peak(job.dtype).value, job.bytes / bandwidth.value


@functools.cache
def every_law() -> list[Law]:
    """Return all laws, of each library and of the fastest one.

    Examples
    --------
    >>> len(every_law()) > 200
    True
    """
    return msgspec.json.decode((FOLDER / "laws.json").read_bytes(), type=list[Law])


def laws_of(family: str) -> list[Law]:
    """Return the laws of a family's fastest kernels, one per chip and type.

    The family is named as in `law`; one that nobody measured has none.

    Examples
    --------
    >>> {fitted.family for fitted in laws_of("matmul")}
    {'matmul'}
    """
    wanted = (family, FASTEST)
    return [fitted for fitted in every_law() if (fitted.family, fitted.library) == wanted]


def law(family: str, chip: Any, dtype: str) -> Law:
    """Return the law of a family's fastest kernels on a chip, of up to three libraries.

    Parameters
    ----------
    family : str
        "matmul", "prefill_attention", …: a table of `table`; "all-reduce" or another collective;
        "dispatch, low latency", "combine, throughput", … of experts; "copy", of TPUs.
    chip : str or Chip
        One in the tables, or "v7x": its matmuls and copies as Google published them.
    dtype : str
        As the tables have it: "bf16", "fp8", "fp8 in blocks", "nvfp4", …; of collectives "fp16".

    Raises
    ------
    UnknownName
        No such chip, or no law under these names; the message says which there are.

    Examples
    --------
    >>> law("matmul", "b200", "nvfp4").compute < law("matmul", "b200", "bf16").compute
    True
    """
    name_of("family", family, sorted({fitted.family for fitted in every_law()}))
    by_chip = {(fitted.chip, fitted.dtype): fitted for fitted in laws_of(family)}
    key, measured = chip_of(chip).key, sorted({chip_key for chip_key, _ in by_chip})
    if key not in measured:
        raise UnknownName(f"{key} has no measured kernels of {family}; {', '.join(measured)} have")
    types = sorted(name for chip_key, name in by_chip if chip_key == key)
    return by_chip[key, name_of("measured type", dtype, types)]


def law_of(job: Work, chip: str | Chip) -> Law | None:
    """Return the law of kernels like one; None where none was fitted.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> law_of(matmul(64, 4096, 4096), "h200").family, law_of(matmul(64, 4096, 4096), "v6e")
    ('matmul', None)
    """
    try:
        kind = dtype_in_tables(job)
    except NoData:
        return None
    return _fastest().get((job.kind, chip_of(chip).key, kind))


@functools.cache
def _fastest() -> dict[tuple[str, str, str], Law]:
    laws = [fitted for fitted in every_law() if fitted.library == FASTEST]
    return {(fitted.family, fitted.chip, fitted.dtype): fitted for fitted in laws}
