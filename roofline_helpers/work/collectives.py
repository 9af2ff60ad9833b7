"""Exchanges between chips on a ring."""

from __future__ import annotations

from typing import Any

import numpy as np

from roofline_helpers._checks import BadValue, Number, ceil_div, each, shown, sizes
from roofline_helpers.dtypes import nbytes
from roofline_helpers.work.work import Work


def all_gather(elements: Any, chips: Any, dtype: Any = "bf16") -> Work:
    """Count an all-gather on a ring: each chip ends with `elements`, having sent (c−1)/c of them.

    Where c does not divide the elements, the busiest chip is counted.

    Parameters
    ----------
    elements : int or array
        Elements of the gathered tensor.
    chips : int or array
        Chips on the ring, at least 2.

    Source: jax-ml/scaling-book, "Sharded matrices and how to multiply them".

    Examples
    --------
    >>> all_gather(2**20, 4).traffic
    {'hbm': 2621440, 'network': 1572864}
    """
    n, chips = _ring(elements, chips)
    return Work(
        name="all-gather",
        reads={"shard": nbytes(each(ceil_div, n, chips), dtype)},
        writes={"gathered": nbytes(n, dtype)},
        others={"network": nbytes(n - n // chips, dtype)},
        dtype=dtype,
    )


def all_reduce(elements: Any, chips: Any, dtype: Any = "bf16") -> Work:
    """Count an all-reduce on a ring: a reduce-scatter, then an all-gather.

    Each chip sends 2 (c−1)/c of the tensor and adds (c−1)/c of it. Where c does not divide the
    elements, the busiest chip is counted.

    Parameters
    ----------
    elements : int or array
        Elements of the tensor that every chip has a summand of.
    chips : int or array
        Chips on the ring, at least 2.

    Source: jax-ml/scaling-book, "Sharded matrices and how to multiply them".

    Examples
    --------
    >>> all_reduce(2**20, 4).traffic
    {'hbm': 4194304, 'network': 3145728}
    """
    n, chips = _ring(elements, chips)
    others = n - n // chips
    return Work(
        name="all-reduce",
        reads={"summand": nbytes(n, dtype)},
        writes={"sum": nbytes(n, dtype)},
        vector_flops=others,
        others={"network": 2 * nbytes(others, dtype)},
        dtype=dtype,
    )


def _ring(elements: Any, chips: Any) -> list[Number]:
    n, count = sizes(elements=elements, chips=chips)
    if np.any(np.less(count, 2)):
        raise BadValue(f"a collective needs at least 2 chips, got {shown(chips)}")
    return [n, count]
