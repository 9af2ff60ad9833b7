"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from roofline_helpers._checks import (
    BadType,
    BadValue,
    ceil_div,
    each,
    fitting,
    flag,
    shown,
    size,
    sizes,
    text,
)
from roofline_helpers.dtypes import BITS, nbytes
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.work.work import Work


def matmul(
    m: Any,
    n: Any,
    k: Any,
    dtype: Any = "bf16",
    *,
    b: Any = None,
    out: Any = None,
    accumulator: Any = "fp32",
    batch: Any = 1,
    shared_b: bool = False,
    tile: tuple[Any, Any] | None = None,
    splits: Any = 1,
    names: tuple[str, str, str] = ("a", "b", "c"),
) -> Work:
    """Count C[m, n] = A[m, k] · B[k, n]: 2mnk FLOPs; A and B are read, C is written.

    Parameters
    ----------
    m, n, k : int or array
        Dimensions.
    dtype : str or data type
        Type of A, and of B and C unless given.
    b, out : str or data type, optional
        Type of B (weights) and C. The unit computes in the wider of A's and B's type.
    accumulator : str or data type
        Type of the running sums. They stay on the chip and cost no traffic, unless `splits` > 1.
    batch : int or array
        Independent products.
    shared_b : bool
        Whether all products of the batch use one B. It is read once for the whole batch, or with
        `tile` once per row of tiles of each product: no tile lies in two of them.
    tile : (rows, columns), optional
        Output tile. A is then read once per column of tiles and B once per row of tiles:
        what a tiled kernel moves when nothing is reused between tiles. Without it each operand
        is read once, the lower bound.
    splits : int or array
        Parts that k is split into, at most k; each writes its sums in the accumulator type and
        they are read again to be added.
    names : three names
        Tensor names of A, B and C, for `fuse`.

    Raises
    ------
    BadType, BadValue, UnknownName
        A size that is not a whole number from 1 to 10¹⁸; arrays whose shapes don't fit; more
        splits than k; no such data type; not three different names.

    Examples
    --------
    >>> matmul(1, 4096, 4096).intensity < 1
    True
    """
    a_type, b_type = dtype_of(dtype), dtype_of(dtype if b is None else b)
    out_type, sum_type = dtype_of(dtype if out is None else out), dtype_of(accumulator)
    m, n, k, batch, splits = sizes(m=m, n=n, k=k, batch=batch, splits=splits)
    if np.any(np.greater(splits, k)):
        raise BadValue(f"splits must be at most k ({shown(k)}), got {shown(splits)}")
    a_name, b_name, c_name = _exactly(3, "names", names)
    if len({text("a name in names", name) for name in names}) < 3:
        raise BadValue(f"names must be three different names, got {shown(names)}")
    b_elements = n * k if flag("shared_b", shared_b) else batch * n * k
    reads = {a_name: nbytes(batch * m * k, a_type), b_name: nbytes(b_elements, b_type)}
    writes = {c_name: nbytes(batch * m * n, out_type)}
    parts = each(lambda s: s if s > 1 else 0, splits)
    if np.any(np.greater(parts, 0)):
        partial = parts * nbytes(batch * m * n, sum_type)
        writes[f"partial sums of {c_name}"] = partial
        reads[f"partial sums of {c_name}, again"] = partial
    passes = {}
    if tile is not None:
        rows, columns = (size("tile", side) for side in _exactly(2, "tile", tile))
        tiles = [("m", m), ("n", n), ("batch", batch), ("tile rows", rows)]
        fitting([*tiles, ("tile columns", columns)])
        tile_rows = each(ceil_div, m, rows)
        passes = {
            a_name: each(ceil_div, n, columns),
            b_name: tile_rows * batch if shared_b else tile_rows,
        }
    return Work(
        name="matmul",
        reads=reads,
        writes=writes,
        matrix_flops=2 * batch * m * n * k,
        vector_flops=parts * (batch * m * n),
        dtype=max(a_type, b_type, key=lambda name: BITS[name]),
        passes=passes,
        kind="matmul" if isinstance(batch, int) and batch == 1 else "",
        dims={"m": m, "n": n, "k": k, "weight_bits": BITS[b_type]},
    )


def _exactly(count: int, name: str, members: Any) -> Sequence[Any]:
    if isinstance(members, str) or not isinstance(members, Sequence) or len(members) != count:
        raise BadType(f"{name} must be a sequence of {count}, got {shown(members)}")
    return members
