"""The times that kernels of the same kind and about the same size take on a GPU."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadValue, single
from roofline_helpers.common.show import si
from roofline_helpers.measured.laws import Law, law, least_times
from roofline_helpers.measured.tables import NoData, count, dtype_in_tables, group, summed_length
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
        This kernel's time by the published roof, seconds, with all operands from memory and all
        FLOPs over the matrix unit's peak (`least_times`): for a causal `flash_attention` on an H100
        1 to 2% above `Roofline.time`. It is no bound for a kernel whose operands the L2 holds: of
        the measured matmuls, on an L40S one in five in bf16 is faster, nearly all of them such
        kernels.
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
            f"({self._reached(middle, ' of the roof')}), best {si(self.best, 's')} "
            f"({self._reached(self.best)})"
        )

    def _reached(self, seconds: float, of: str = "") -> str:
        """Return the share of the roof, which only operands from a cache exceed."""
        share = self.roof / seconds
        return f"{share:.0%}{of}{', operands from a cache' if share > 1.02 else ''}"


def typical(job: Work, chip: str | Chip) -> Typical:
    """Return the times of measured kernels like this one on a GPU.

    A kernel is similar if it ran on the same chip, in the same type and family, and each side is
    within a factor of 1.5 of this one's, or 2 for other kinds than matmul, whose grids are coarser.
    For each shape the fastest of up to three serving libraries counts. The shapes are a benchmark's
    grid, not those of real programs.

    Kernels without a matmul, as XLA makes them, have laws of their classes (`expected`).

    Parameters
    ----------
    job : Work
        Of `work.matmul`, `flash_attention` (one query per sequence, or causal with as many
        queries as keys), `latent_attention` or `grouped_matmul`, with numbers as sizes.
    chip : str or Chip
        A100, H100, H200, B200, B300, GB200, L40S or RTX PRO 6000.

    Returns
    -------
    Typical

    Raises
    ------
    NoData
        No kernels of this kind were measured, or fewer than 20 that are near.
    UnknownName
        No such chip, or none of its kernels were measured; the message says which were.

    Source: `aiconfigurator-core` 0.12.0, see `table`.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> good = typical(matmul(8192, 8192, 8192), "h100")
    >>> good.count >= 20, 0.6 < good.roof / good.quantile(0.5) < 0.9
    (True, True)
    """
    if not isinstance(job, Work):
        raise BadValue(f"a kernel must be a Work, got {job!r}")
    chip = chip_of(chip)
    if job.kind not in SIZES:
        kinds = "matmul, flash_attention (decode or causal), latent_attention, grouped_matmul"
        raise NoData(f"no kernels like {job.name!r} were measured by libraries. Measured: {kinds}")
    fitted = law(job.kind, chip, dtype_in_tables(job))
    rows = group(job.kind, chip.key, fitted.dtype)
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
            f"{few} measured kernels are like this one ({shape}, {fitted.dtype} on "
            f"{chip.name}); at least {FEWEST} are needed"
        )
    times = _over_law(fitted)[like] * fitted.seconds(job)
    why = (
        f"{job.name} in {fitted.dtype} on {chip.name}, each of {shape} within a factor of "
        f"{factor:g}; of up to three libraries the fastest for each shape; a benchmark's grid of "
        "shapes, whose small activations often come from a cache"
    )
    return Typical(np.sort(times), float(max(least_times(job, chip))), why)


@functools.cache
def _over_law(fitted: Law) -> Any:
    """Return the measured time of each kernel of a law's group over the time by the law."""
    rows = group(fitted.family, fitted.chip, fitted.dtype)
    job = count(fitted.family, rows, fitted.dtype)
    seconds = fitted.time(*least_times(job, chip_of(fitted.chip)), summed_length(job))
    return rows["seconds"] / seconds
