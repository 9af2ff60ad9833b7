"""The rates that kernels of the same kind and about the same size reach on a GPU."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadValue, UnknownName, single
from roofline_helpers.common.show import si
from roofline_helpers.measured.law import Law, NoData, laws, least_times
from roofline_helpers.measured.record import device_records
from roofline_helpers.measured.tables import TYPES, count, group, reduced
from roofline_helpers.work import Work

NEAR = {"matmul": 1.5}
OTHERWISE = 2.0
"""Largest factor between sides that count as near. Only the grid of matmuls is finer than 2."""
FEWEST = 20
SIZES = {
    "matmul": ("m", "n", "k"),
    "prefill_attention": ("batch", "heads", "kv_heads", "head_dim", "kv_len"),
    "decode_attention": ("batch", "heads", "kv_heads", "head_dim", "kv_len"),
    "prefill_mla": ("batch", "heads", "kv_len"),
    "decode_mla": ("batch", "heads", "kv_len"),
    "grouped_matmul": ("tokens", "hidden", "inter", "local_experts", "top_k"),
}
STREAMS = {
    "add": "add",
    "gelu": "gelu",
    "reduction": "row sums",
    "rmsnorm": "RMSNorm",
    "softmax": "softmax",
}
"""Kinds of kernels without a matmul, and what the records of small kernels call them."""
COLUMNS = 4096
"""Length of the rows of all of these."""


@dataclass(frozen=True, repr=False)
class Typical:
    """Times that measured kernels like one kernel suggest for it.

    Each neighbour was measured at its own size. Its time is scaled by the law's times for this
    kernel and for that size, so that neighbours of other sizes can be compared.

    Parameters
    ----------
    times : array of float
        Scaled seconds of each neighbour, in ascending order.
    roof : float
        This kernel's time by the published roof, seconds, with all operands from memory. It is no
        bound for a kernel whose operands the L2 holds: of the measured matmuls, on an L40S one in
        five in bf16 is faster, nearly all of them such kernels.
    why : str
        How neighbours were chosen.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> good = typical(matmul(4096, 4096, 4096), "h200")
    >>> good.roof < good.best < good.quantile(0.5) < 2 * good.roof
    True
    """

    times: Any = field(compare=False)
    roof: float
    why: str

    @property
    def count(self) -> int:
        """The number of measured kernels like it."""
        return len(self.times)

    @property
    def best(self) -> float:
        """Scaled seconds of the best neighbour."""
        return float(self.times.min())

    def quantile(self, q: float) -> float:
        """Return the seconds that a share `q` of kernels like it stay within.

        Examples
        --------
        >>> from roofline_helpers.work import matmul
        >>> good = typical(matmul(4096, 4096, 4096), "h200")
        >>> good.quantile(0.1) < good.quantile(0.9)
        True
        """
        share = single("q", q, zero=True)
        if share > 1:
            raise BadValue(f"q must be a share from 0 to 1, got {q}")
        return float(np.quantile(self.times, share))

    def rank(self, seconds: float) -> float:
        """Return the share of kernels like it that are no faster than `seconds`.

        Examples
        --------
        >>> from roofline_helpers.work import matmul
        >>> good = typical(matmul(4096, 4096, 4096), "h200")
        >>> good.rank(good.best), good.rank(1.0)
        (1.0, 0.0)
        """
        return float(np.mean(self.times >= single("seconds", seconds)))

    def __repr__(self) -> str:
        middle = self.quantile(0.5)
        return (
            f"{self.count} measured kernels like it: median {si(middle, 's')} "
            f"({self.roof / middle:.0%} of the roof), best {si(self.best, 's')} "
            f"({self.roof / self.best:.0%})"
        )


def dtype_in_tables(job: Work) -> str:
    """Return the tables' name of a kernel's type; raise NoData if they don't have it."""
    if job.kind == "matmul" and job.dtype in ("bf16", "fp16"):
        bits = job.dims["weight_bits"]
        return {16: "bf16", 8: "int8 weights", 4: "int4 weights"}.get(int(bits), "bf16")
    if job.dtype in ("bf16", "fp16") and job.dims.get("kv_bits") == 8:
        return "bf16, fp8 cache"
    named = {"fp16": "bf16", "mxfp8": "fp8 in blocks", "fp4": "nvfp4"}.get(job.dtype, job.dtype)
    if named not in TYPES:
        raise NoData(f"no measured kernels in {job.dtype}. Allowed: {'; '.join(TYPES)}")
    return named


def typical(job: Work, chip: str | Chip) -> Typical:
    """Return the times of measured kernels like this one on a GPU.

    A kernel is similar if it ran on the same chip, in the same type and family, and each side is
    within a factor of 1.5 of this one's, or 2 for other kinds than matmul, whose grids are coarser.
    For each shape the fastest of up to three serving libraries counts. The shapes are a benchmark's
    grid, not those of real programs.

    Of `add`, `gelu`, `reduction`, `rmsnorm` and `softmax` on an H100 and an H200, XLA's kernel and
    PyTorch's were measured on rows of 4096 from 0.1 MB to 3 GB, with operands in memory. Their
    times at this kernel's bytes are taken between the two nearest sizes, and `why` has those with
    operands in the L2 too.

    Parameters
    ----------
    job : Work
        Of `work.matmul`, `flash_attention` (one query per sequence, or causal with as many
        queries as keys), `latent_attention`, `grouped_matmul` or one of those five, with numbers
        as sizes.
    chip : str or Chip
        A100, H100, H200, B200, B300, GB200, L40S or RTX PRO 6000.

    Returns
    -------
    Typical

    Raises
    ------
    NoData
        No kernels of this kind were measured, or fewer than 20 that are near; none without a
        matmul in this type, of these bytes, with such rows.
    UnknownName
        No such chip, or none of its kernels were measured; the message says which were.

    Source: `aiconfigurator-core` 0.12.0, see `table`; the five, our own records.

    Examples
    --------
    >>> from roofline_helpers.work import matmul, softmax
    >>> good = typical(matmul(8192, 8192, 8192), "h100")
    >>> good.count >= 20, 0.6 < good.roof / good.quantile(0.5) < 0.9
    (True, True)
    >>> typical(softmax(64, 4096), "h100")
    2 measured kernels like it: median 3.25 µs (10% of the roof), best 2.93 µs (11%)
    """
    if not isinstance(job, Work):
        raise BadValue(f"a kernel must be a Work, got {job!r}")
    on = chip_of(chip)
    if job.kind in STREAMS:
        return _stream(job, on)
    if job.kind not in SIZES:
        kinds = "matmul, flash_attention (decode or causal), latent_attention, grouped_matmul"
        raise NoData(
            f"no kernels like {job.name!r} were measured. Measured: {kinds}, {', '.join(STREAMS)}"
        )
    law = laws(job.kind, on, dtype_in_tables(job))
    rows = group(job.kind, on.key, law.dtype)
    sides = {name: single(name, job.dims[name]) for name in SIZES[job.kind]}
    factor = NEAR.get(job.kind, OTHERWISE)
    like = np.arange(len(rows["seconds"]))
    for name, side in sides.items():
        values = rows[name][like]
        like = like[(values <= side * factor) & (values >= side / factor)]
    shape = ", ".join(f"{name} {side:g}" for name, side in sides.items())
    if len(like) < FEWEST:
        few = f"only {len(like)}" if len(like) else "no"
        raise NoData(
            f"{few} measured kernels are like this one ({shape}, {law.dtype} on "
            f"{on.name}); at least {FEWEST} are needed"
        )
    times = _over_law(law)[like] * law.seconds(job)
    why = (
        f"{job.name} in {law.dtype} on {on.name}, each of {shape} within a factor of {factor:g}; "
        "of up to three libraries the fastest for each shape; a benchmark's grid of shapes, whose "
        "small activations often come from a cache"
    )
    return Typical(np.sort(times), float(max(least_times(job, on))), why)


def _stream(job: Work, on: Chip) -> Typical:
    """Return the times of a kernel without a matmul, as XLA's and PyTorch's were measured."""
    name, size = STREAMS[job.kind], single("bytes", job.bytes)
    columns = job.dims.get("columns", COLUMNS)
    curves = _curves(name, job.dtype)
    sizes = [n for curve in curves.get(on.key, {}).values() for n, _ in curve]
    kernels = f"kernels like {job.name!r} in {job.dtype}"
    if not sizes:
        known = ", ".join(sorted(curves)) or "none in this type"
        raise NoData(f"no {kernels} were measured on {on.name}. Measured: {known}")
    if job.passes:
        raise NoData(f"{kernels} were measured reading each operand once")
    if not COLUMNS / OTHERWISE <= columns <= COLUMNS * OTHERWISE:
        raise NoData(f"{kernels} were measured on rows of {COLUMNS}, not of {columns:g}")
    if not min(sizes) <= size <= max(sizes):
        span = f"{si(min(sizes), 'B')} to {si(max(sizes), 'B')}"
        raise NoData(f"{kernels} were measured from {span}, not at {si(size, 'B')}")
    times = {}
    for how, curve in curves[on.key].items():
        n, seconds = np.log(curve).T
        times[how] = float(np.exp(np.interp(np.log(size), n, seconds)))
    listed = ", ".join(f"{source} {how} {si(t, 's')}" for (source, how), t in times.items())
    why = f"{name} in {job.dtype} on {on.name} at these bytes, between measured sizes: {listed}"
    cold = [t for (_, how), t in times.items() if how == "cold"]
    return Typical(np.sort(cold), float(max(least_times(job, on))), why)


@functools.cache
def _curves(name: str, dtype: str) -> dict[str, dict[tuple[str, str], list[tuple[float, float]]]]:
    """Return (bytes, seconds) of a small kernel in a type by chip, and by source and cold or warm.

    Cold is with operands from memory, warm with those that the L2 holds still there.
    """
    curves: dict[str, dict[tuple[str, str], list[tuple[float, float]]]] = {}
    for chip, record in device_records("timed").items():
        for sample in record.samples:
            group, _, how = sample.group.partition(", ")
            kind = sample.name.rsplit(" ", 3)[0]
            if group == "small kernels" and (kind, sample.dtype) == (name, dtype):
                point = sample.bytes, sample.seconds
                curves.setdefault(chip, {}).setdefault((sample.source, how), []).append(point)
    return curves


def law_of(job: Work, chip: str | Chip) -> Law | None:
    """Return the law of kernels like one; None where none was fitted.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> law_of(matmul(64, 4096, 4096), "h200").family, law_of(matmul(64, 4096, 4096), "v6e")
    ('matmul', None)
    """
    try:
        return laws(job.kind, chip, dtype_in_tables(job))
    except (NoData, UnknownName):
        return None


@functools.cache
def _over_law(law: Law) -> Any:
    """Return the measured time of each kernel of a law's group over the time by the law."""
    rows = group(law.family, law.chip, law.dtype)
    job = count(law.family, rows, law.dtype)
    return rows["seconds"] / law.time(*least_times(job, chip_of(law.chip)), reduced(job))
