"""Operations counted by hand: elementwise, reductions, norms, matmuls, exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    Number,
    apply,
    broadcast,
    ceil_div,
    flag,
    quantity,
    shown,
    size,
    sizes,
    text,
)
from roofline_helpers.common.dtypes import BITS, nbytes
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.work.work import Work

# --- FLOPs per element and per row of operations other than matmuls ------------------------------

COSTS: Mapping[str, Mapping[str, int]] = {
    "add": {"add": 1},
    "relu": {"max": 1},
    "gelu": {  # the tanh form: x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))
        "x² and x³": 2,
        "× 0.044715": 1,
        "+ x": 1,
        "× √(2/π)": 1,
        "tanh": 1,
        "+ 1": 1,
        "× x": 1,
        "× ½": 1,
    },
    "swiglu": {"negate": 1, "exp": 1, "+ 1": 1, "divide": 1, "× the other branch": 1},
    "dropout": {"× mask": 1, "× 1/(1 − p)": 1},
    "softmax": {"max": 1, "− max": 1, "exp": 1, "sum": 1, "÷ sum": 1},
    "layernorm": {
        "sum": 1,
        "− mean": 1,
        "square": 1,
        "sum of squares": 1,
        "× 1/σ": 1,
        "× γ": 1,
        "+ β": 1,
    },
    "rmsnorm": {"square": 1, "sum of squares": 1, "× 1/rms": 1, "× γ": 1},
}
"""FLOPs of each step on one element, by operation."""

ROW_COSTS: Mapping[str, Mapping[str, int]] = {
    "layernorm": {"÷ n": 2, "+ ε": 1, "rsqrt": 1},
    "rmsnorm": {"÷ n": 1, "+ ε": 1, "rsqrt": 1},
}
"""FLOPs of a normalisation's steps that run once per row."""

TRANSCENDENTAL = frozenset({"tanh", "exp", "rsqrt"})
"""Steps of `COSTS` and `ROW_COSTS` that are transcendental."""


def per_element(op: str) -> tuple[int, int]:
    """Return an operation's FLOPs per element, and how many of them are transcendental."""
    return _counted(COSTS[op])


def per_row(op: str) -> tuple[int, int]:
    """Return an operation's FLOPs per row, and how many of them are transcendental."""
    return _counted(ROW_COSTS.get(op, {}))


def _counted(steps: Mapping[str, int]) -> tuple[int, int]:
    special = sum(flops for step, flops in steps.items() if step in TRANSCENDENTAL)
    return sum(steps.values()), special


# --- Operations on each element by itself --------------------------------------------------------


def elementwise(
    n: Any,
    reads: int | Mapping[str, Any] = 1,
    writes: int | Mapping[str, Any] = 1,
    flops: Any = 1,
    dtype: Any = "bf16",
    *,
    transcendentals: Any = 0,
    name: str = "elementwise",
) -> Work:
    """Count one pass over `n` elements: n · flops FLOPs, each tensor once.

    Parameters
    ----------
    n : int or array
        Elements of each tensor.
    reads, writes : int or mapping of str to data type
        How many tensors of n elements, all of type `dtype`; or their names and types.
    flops : number
        FLOPs per element, for the whole chain of operations in the kernel. 0 is a copy.
    dtype : str or data type
        Type of the tensors that are given by number, and of the arithmetic.
    transcendentals : number
        How many of the FLOPs per element are transcendental.

    Raises
    ------
    BadType, BadValue, UnknownName
        n is not a whole number from 1 to 10¹⁸; no tensor at all, or more than 1000; more
        transcendentals than FLOPs; no such data type.

    Examples
    --------
    >>> copy = elementwise(4096, flops=0)
    >>> copy.bytes, copy.flops
    (16384, 0)
    """
    n = size("n", n)
    flops = quantity("flops per element", flops, zero=True)
    special = quantity("transcendentals per element", transcendentals, zero=True)
    broadcast([("n", n), ("flops", flops), ("transcendentals", special)])
    return Work(
        name=name,
        reads=_tensors("reads", reads, "x", n, dtype),
        writes=_tensors("writes", writes, "y", n, dtype),
        vector_flops=n * flops,
        transcendentals=n * special,
        dtype=dtype,
    )


def _tensors(what: str, tensors: Any, letter: str, n: Number, dtype: Any) -> dict[str, Number]:
    if isinstance(tensors, Mapping):
        return {tensor: nbytes(n, each_type) for tensor, each_type in tensors.items()}
    allowed = "a count of tensors from 0 to 1000, or a mapping of names to data types"
    if not isinstance(tensors, int | np.integer) or isinstance(tensors, bool):
        raise BadType(f"{what} must be {allowed}, got {shown(tensors)}")
    if not 0 <= tensors <= 1000:
        raise BadValue(f"{what} must be {allowed}, got {shown(tensors)}")
    count = int(tensors)
    names = [letter] if count == 1 else [f"{letter}{i}" for i in range(count)]
    return {tensor: nbytes(n, dtype) for tensor in names}


def _pointwise(op: str, n: Any, reads: Sequence[str], write: str, dtype: Any) -> Work:
    flops, special = per_element(op)
    inputs = dict.fromkeys(reads, dtype)
    return elementwise(n, inputs, {write: dtype}, flops, dtype, transcendentals=special, name=op)


def relu(n: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y") -> Work:
    """Count max(x, 0) on n elements: 1 FLOP each; one tensor in, one out.

    Examples
    --------
    >>> relu(4096).bytes, relu(4096).flops
    (16384, 4096)
    """
    return _pointwise("relu", n, [x], y, dtype)


def gelu(n: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y") -> Work:
    """Count GELU in its tanh form on n elements: 9 FLOPs each, one of them a tanh.

    Source: D. Hendrycks, K. Gimpel, arXiv:1606.08415.

    Examples
    --------
    >>> job = gelu(4096)
    >>> job.flops, job.transcendentals
    (36864, 4096)
    """
    return _pointwise("gelu", n, [x], y, dtype)


def swiglu(n: Any, dtype: Any = "bf16", *, gate: str = "g", up: str = "u", y: str = "y") -> Work:
    """Count silu(gate) · up on n elements: 5 FLOPs each, one of them an exponential.

    Source: N. Shazeer, arXiv:2002.05202.

    Examples
    --------
    >>> job = swiglu(4096)
    >>> job.bytes, job.flops
    (24576, 20480)
    """
    return _pointwise("swiglu", n, [gate, up], y, dtype)


def add(n: Any, dtype: Any = "bf16", *, x: str = "x0", other: str = "x1", y: str = "y") -> Work:
    """Count x + other on n elements: 1 FLOP each; two tensors in, one out.

    Examples
    --------
    >>> add(4096).bytes
    24576
    """
    return _pointwise("add", n, [x, other], y, dtype)


def dropout(
    n: Any,
    dtype: Any = "bf16",
    *,
    mask: Any = None,
    x: str = "x",
    mask_name: str = "mask",
    y: str = "y",
) -> Work:
    """Count x · mask / (1 − p) on n elements: 2 FLOPs each; x and the mask in, one tensor out.

    Parameters
    ----------
    mask : str or data type, optional
        Type of the mask as it is stored; that of x if not given.

    Examples
    --------
    >>> dropout(4096, mask="int8").bytes
    20480
    """
    reads = {x: dtype, mask_name: dtype if mask is None else mask}
    flops, _ = per_element("dropout")
    return elementwise(n, reads, {y: dtype}, flops, dtype, name="dropout")


# --- Operations along rows: reductions, normalisations, softmax ----------------------------------


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
    broadcast([("rows", rows), ("columns", columns), ("flops", flops)])
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
    """Count LayerNorm over rows of `columns`: 7 FLOPs per element and 4 per row.

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
    """Count RMSNorm over rows of `columns`: 4 FLOPs per element and 3 per row.

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


# --- Matmuls -------------------------------------------------------------------------------------


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
        Independent matmuls.
    shared_b : bool
        Whether all matmuls of the batch use one B. It is read once for the whole batch, or with
        `tile` once per row of tiles of each matmul, since no tile spans two of them.
    tile : (rows, columns), optional
        Output tile. A is then read once per column of tiles and B once per row of tiles, as in a
        tiled kernel without reuse between tiles. By default each operand is read once, the lower
        bound.
    splits : int or array
        Parts of k (split-K), at most k; each writes its sums in the accumulator type, and they are
        read again to be added.
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
    parts = apply(lambda s: s if s > 1 else 0, splits)
    if np.any(np.greater(parts, 0)):
        partial = parts * nbytes(batch * m * n, sum_type)
        writes[f"partial sums of {c_name}"] = partial
        reads[f"partial sums of {c_name}, again"] = partial
    passes = {}
    if tile is not None:
        rows, columns = (size("tile", side) for side in _exactly(2, "tile", tile))
        tiles = [("m", m), ("n", n), ("batch", batch), ("tile rows", rows)]
        broadcast([*tiles, ("tile columns", columns)])
        tile_rows = apply(ceil_div, m, rows)
        passes = {
            a_name: apply(ceil_div, n, columns),
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


# --- Exchanges between chips on a ring -----------------------------------------------------------


def all_gather(elements: Any, chips: Any, dtype: Any = "bf16") -> Work:
    """Count an all-gather on a ring: each chip ends with `elements`, having sent (c−1)/c of them.

    If c does not divide the elements, the busiest chip is counted.

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
        reads={"shard": nbytes(apply(ceil_div, n, chips), dtype)},
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
