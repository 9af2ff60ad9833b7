"""Operations along rows: reductions, normalisations, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline_helpers._checks import fitting, quantity, sizes
from roofline_helpers.dtypes import nbytes
from roofline_helpers.work.costs import per_element, per_row
from roofline_helpers.work.work import Work


def reduction(
    rows: Any,
    columns: Any,
    dtype: Any = "bf16",
    *,
    out: Any = None,
    flops: Any = 1,
    x: str = "x",
    y: str = "y",
) -> Work:
    """Count a reduction of each row to one number: rows · columns · flops FLOPs.

    Parameters
    ----------
    rows, columns : int or array
        Shape of x; y has `rows` elements.
    out : str or data type, optional
        Type of y; that of x if not given.
    flops : number
        FLOPs per element: 1 for a sum or a maximum, 2 for a sum of squares.

    Raises
    ------
    BadType, BadValue, UnknownName
        A size that is not a whole number from 1 to 10¹⁸; no such data type.

    Examples
    --------
    >>> job = reduction(8, 4096, out="fp32")
    >>> job.bytes, job.flops
    (65568, 32768)
    """
    rows, columns = sizes(rows=rows, columns=columns)
    flops = quantity("flops per element", flops)
    fitting([("rows", rows), ("columns", columns), ("flops", flops)])
    return Work(
        name="reduction",
        reads={x: nbytes(rows * columns, dtype)},
        writes={y: nbytes(rows, dtype if out is None else out)},
        vector_flops=rows * columns * flops,
        dtype=dtype,
    )


def _rowwise(
    op: str, rows: Any, columns: Any, dtype: Any, x: str, y: str, parameters: Sequence[str]
) -> Work:
    rows, columns = sizes(rows=rows, columns=columns)
    n, tensor = rows * columns, nbytes(rows * columns, dtype)
    flops, special = per_element(op)
    flops_once, special_once = per_row(op)
    return Work(
        name=op,
        reads={x: tensor} | {each_one: nbytes(columns, dtype) for each_one in parameters},
        writes={y: tensor},
        vector_flops=n * flops + rows * flops_once,
        transcendentals=n * special + rows * special_once,
        dtype=dtype,
    )


def layernorm(
    rows: Any, columns: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y", tag: str = ""
) -> Work:
    """Count LayerNorm over rows of `columns`: 7 FLOPs per element and 4 per row (`COSTS`).

    x is read once, which needs a row to fit on the chip; γ and β are read once, y is written.
    `tag` tells the parameters of several LayerNorms apart.

    Source: J. L. Ba, J. R. Kiros, G. E. Hinton, arXiv:1607.06450.

    Examples
    --------
    >>> layernorm(8192, 4096).intensity < 2
    True
    """
    return _rowwise("layernorm", rows, columns, dtype, x, y, [f"γ{tag}", f"β{tag}"])


def rmsnorm(
    rows: Any, columns: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y", tag: str = ""
) -> Work:
    """Count RMSNorm over rows of `columns`: 4 FLOPs per element and 3 per row (`COSTS`).

    Source: B. Zhang, R. Sennrich, arXiv:1910.07467.

    Examples
    --------
    >>> rmsnorm(8192, 4096).flops < layernorm(8192, 4096).flops
    True
    """
    return _rowwise("rmsnorm", rows, columns, dtype, x, y, [f"γ{tag}"])


def softmax(rows: Any, columns: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y") -> Work:
    """Count a softmax over rows of `columns`: 5 FLOPs per element, one of them an exponential.

    x is read once, which needs a row to fit on the chip; ``softmax(…).reading(x=3)`` is the
    version that reads it for the maximum, for the sum and for the result.

    Examples
    --------
    >>> once = softmax(8192, 8192)
    >>> once.reading(x=3).bytes / once.bytes
    2.0
    """
    return _rowwise("softmax", rows, columns, dtype, x, y, [])
