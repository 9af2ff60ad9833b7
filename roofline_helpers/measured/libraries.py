"""The times that serving libraries' kernels of one kind and about one size take on a GPU."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import single
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


def seconds_like(job: Work, chip: str | Chip) -> Any:
    """Return the seconds of measured kernels like this one on a GPU, in ascending order.

    A kernel is similar if it ran on the same chip, in the same type and family, and each side is
    within a factor of 1.5 of this one's, or 2 for other kinds than matmul, whose grids are coarser.
    Each was measured at its own size: its time is scaled by the law's times for this kernel and for
    that size. For each shape the fastest of up to three serving libraries counts. The shapes are a
    benchmark's grid, whose small activations often come from a cache.

    What is normal for a kernel of any kind, and how wide, is `expected`.

    Parameters
    ----------
    job : Work
        Of `work.matmul`, `flash_attention` (one query per sequence, or causal with as many
        queries as keys), `latent_attention` or `grouped_matmul`, with numbers as sizes.
    chip : str or Chip
        A100, H100, H200, B200, B300, GB200, L40S or RTX PRO 6000.

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
    >>> seconds = seconds_like(matmul(8192, 8192, 8192), "h100")
    >>> len(seconds), round(1e3 * float(seconds[0]), 2)
    (22, 1.33)
    """
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
    if len(like) < FEWEST:
        shape = ", ".join(f"{name} {side:g}" for name, side in sides.items())
        raise NoData(
            f"{len(like)} measured kernels are like this one ({shape}, {fitted.dtype} on "
            f"{chip.name}); at least {FEWEST} are needed"
        )
    return np.sort(_over_law(fitted)[like] * fitted.seconds(job))


@functools.cache
def _over_law(fitted: Law) -> Any:
    """Return the measured time of each kernel of a law's group over the time by the law."""
    rows = group(fitted.family, fitted.chip, fitted.dtype)
    job = count(fitted.family, rows, fitted.dtype)
    seconds = fitted.time(*least_times(job, chip_of(fitted.chip)), summed_length(job))
    return rows["seconds"] / seconds
