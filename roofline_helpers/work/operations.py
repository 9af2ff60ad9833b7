"""Operations counted by hand: elementwise, reductions, norms, matmuls, exchanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    Number,
    ceil_div,
    plain,
    quantity,
    shown,
    size,
    sizes,
)
from roofline_helpers.common.dtypes import BITS, nbytes
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.work.work import Work

# --- FLOPs per element and per row of operations other than matmuls ------------------------------

COSTS: Mapping[str, tuple[int, int]] = {
    "add": (1, 0),
    "relu": (1, 0),
    # x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))): x² and x³, four products, two sums, the tanh
    "gelu": (9, 1),
    "swiglu": (5, 1),  # negate, exp, + 1, divide, × the other branch
    "dropout": (2, 0),  # × mask, × 1/(1 − p)
    "softmax": (5, 1),  # max, − max, exp, sum, ÷ sum
    "layernorm": (7, 0),  # sum, − mean, square, sum of squares, × 1/σ, × γ, + β
    "rmsnorm": (4, 0),  # square, sum of squares, × 1/rms, × γ
}
"""FLOPs on one element by operation, and how many of them are transcendental."""

ROW_COSTS: Mapping[str, tuple[int, int]] = {
    "layernorm": (4, 1),  # twice ÷ n, + ε, rsqrt
    "rmsnorm": (3, 1),  # ÷ n, + ε, rsqrt
}
"""The same of the steps that run once a row."""


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
        How many tensors of type `dtype`; or their names and types.
    flops : number
        FLOPs per element, of all operations in the kernel. 0 is a copy.
    dtype : str or data type
        Type of the arithmetic.
    transcendentals : number
        How many of the FLOPs per element are transcendental.

    Raises
    ------
    BadValue
        No tensor at all, or more than 1000; more transcendentals than FLOPs.

    Examples
    --------
    >>> copy = elementwise(4096, flops=0)
    >>> copy.bytes, copy.flops
    (16384, 0)
    """
    n = size("n", n)
    flops = quantity("flops per element", flops, zero=True)
    special = quantity("transcendentals per element", transcendentals, zero=True)
    return Work(
        name=name,
        reads=_tensors("reads", reads, "x", n, dtype),
        writes=_tensors("writes", writes, "y", n, dtype),
        vector_flops=n * flops,
        transcendentals=n * special,
        dtype=dtype,
    )


def _tensors(group: str, tensors: Any, letter: str, n: Number, dtype: Any) -> dict[str, Number]:
    if isinstance(tensors, Mapping):
        return {tensor: nbytes(n, kind) for tensor, kind in tensors.items()}
    if not isinstance(tensors, int) or not 0 <= tensors <= 1000:
        raise BadValue(
            f"{group} must be a count of tensors from 0 to 1000, or a mapping of names to data "
            f"types, got {shown(tensors)}"
        )
    names = [letter] if tensors == 1 else [f"{letter}{i}" for i in range(tensors)]
    return {tensor: nbytes(n, dtype) for tensor in names}


def _pointwise(op: str, n: Any, reads: Sequence[str], write: str, dtype: Any) -> Work:
    flops, special = COSTS[op]
    inputs = dict.fromkeys(reads, dtype)
    job = elementwise(n, inputs, {write: dtype}, flops, dtype, transcendentals=special, name=op)
    return replace(job, kind=op)


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


def dropout(n: Any, dtype: Any = "bf16", *, mask: Any = None, x: str = "x", y: str = "y") -> Work:
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
    reads = {x: dtype, "mask": dtype if mask is None else mask}
    flops, _ = COSTS["dropout"]
    return elementwise(n, reads, {y: dtype}, flops, dtype, name="dropout")


# --- Operations along rows: reductions, normalisations, softmax ----------------------------------


def reduction(rows: Any, columns: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y") -> Work:
    """Count a sum or a maximum of each row: rows · columns FLOPs.

    Parameters
    ----------
    rows, columns : int or array
        Shape of x; y has `rows` elements.

    Examples
    --------
    >>> job = reduction(8, 4096)
    >>> job.bytes, job.flops
    (65552, 32768)
    """
    rows, columns = sizes(rows=rows, columns=columns).values()
    return Work(
        name="reduction",
        reads={x: nbytes(rows * columns, dtype)},
        writes={y: nbytes(rows, dtype)},
        vector_flops=rows * columns,
        dtype=dtype,
        kind="reduction",
        dims={"columns": columns},
    )


def _rowwise(
    op: str, rows: Any, columns: Any, dtype: Any, x: str, y: str, parameters: Sequence[str]
) -> Work:
    rows, columns = sizes(rows=rows, columns=columns).values()
    n, tensor = rows * columns, nbytes(rows * columns, dtype)
    flops, special = COSTS[op]
    flops_once, special_once = ROW_COSTS.get(op, (0, 0))
    return Work(
        name=op,
        reads={x: tensor} | {parameter: nbytes(columns, dtype) for parameter in parameters},
        writes={y: tensor},
        vector_flops=n * flops + rows * flops_once,
        transcendentals=n * special + rows * special_once,
        dtype=dtype,
        kind=op,
        dims={"columns": columns},
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
    batch: Any = 1,
    tile: tuple[Any, Any] | None = None,
    names: tuple[str, str, str] = ("a", "b", "c"),
) -> Work:
    """Count C[m, n] = A[m, k] · B[k, n]: 2mnk FLOPs; A and B are read, C is written.

    Parameters
    ----------
    m, n, k : int or array
    dtype : str or data type
        Type of A, and of B and C unless given.
    b, out : str or data type, optional
        Type of B (weights) and C. The unit computes in the wider of A's and B's type.
    batch : int or array
        Independent matmuls.
    tile : (rows, columns), optional
        Output tile: A is then read once per column of tiles and B once per row, as by a kernel
        without reuse between tiles. By default each is read once, the lower bound.
    names : three names
        Tensor names of A, B and C, for `fuse`.

    Examples
    --------
    >>> matmul(1, 4096, 4096).intensity < 1
    True
    >>> job = matmul(600, 600, 600, "bf16")
    >>> job.intensity == 2 * 600**3 / (2 * 3 * 600**2) == 200
    True
    """
    a_type, b_type = dtype_of(dtype), dtype_of(dtype if b is None else b)
    m, n, k, batch = sizes(m=m, n=n, k=k, batch=batch).values()
    if not isinstance(names, Sequence) or not len(names) == len(set(names)) == 3:
        raise BadValue(f"names must be three different names, got {shown(names)}")
    a_name, b_name, c_name = names
    passes = {}
    if tile is not None:
        if not isinstance(tile, Sequence) or len(tile) != 2:
            raise BadType(f"tile must be (rows, columns), got {shown(tile)}")
        s = sizes(m=m, n=n, tile_rows=tile[0], tile_columns=tile[1])
        passes = {a_name: ceil_div(n, s["tile_columns"]), b_name: ceil_div(m, s["tile_rows"])}
    return Work(
        name="matmul",
        reads={a_name: nbytes(batch * m * k, a_type), b_name: nbytes(batch * k * n, b_type)},
        writes={c_name: nbytes(batch * m * n, dtype if out is None else out)},
        matrix_flops=2 * batch * m * n * k,
        dtype=max(a_type, b_type, key=lambda name: BITS[name]),
        passes=passes,
        kind="matmul" if isinstance(batch, int) and batch == 1 else "",
        dims={"m": m, "n": n, "k": k, "weight_bits": BITS[b_type]},
    )


def grouped_matmul(
    tokens: Any,
    hidden: Any,
    inter: Any,
    experts: Any,
    top_k: Any,
    dtype: Any = "bf16",
    *,
    local_experts: Any = None,
    weights: Any = None,
) -> Work:
    """Count the gated feed-forward of a mixture: three matmuls per token and chosen expert.

    2 · 3 · hidden · inter FLOPs for each of tokens · top_k pairs, spread evenly over the experts.
    The weights of an expert with a token are read once, a token's row is read and written for each
    pair.

    Parameters
    ----------
    tokens, hidden, inter, experts, top_k : int or array
        Tokens, their width, the inner width of an expert, experts, and how many each token uses.
    local_experts : int or array, optional
        Experts on this device, which computes that share of the pairs; by default all.
    weights : str or data type, optional
        Type of the experts' weights, where it isn't `dtype`.

    Where an exchange brings a device only the pairs of its experts, its law counts too much for the
    other tokens: give the pairs as `tokens`, its experts as `experts`, and a `top_k` of 1.

    Raises
    ------
    BadValue
        More chosen or local experts than there are.

    Examples
    --------
    >>> job = grouped_matmul(1024, 4096, 1536, 128, 8)
    >>> job.matrix_flops == 2 * 3 * 4096 * 1536 * 1024 * 8
    True
    """
    local = experts if local_experts is None else local_experts
    named = {"tokens": tokens, "hidden": hidden, "inter": inter, "experts": experts}
    s = sizes(**named, top_k=top_k, local_experts=local)
    for name in ("top_k", "local_experts"):
        if np.any(np.greater(s[name], s["experts"])):
            raise BadValue(
                f"{name} must be at most experts ({shown(experts)}), got {shown(s[name])}"
            )
    share = s["tokens"] * s["top_k"] * s["local_experts"] / s["experts"]
    pairs = size("pairs", np.maximum(1, np.rint(share)))
    busy = plain(np.minimum(s["local_experts"], pairs))
    matrix = s["hidden"] * s["inter"]
    gated = swiglu(pairs * s["inter"], dtype)
    return Work(
        name="grouped matmul",
        reads={
            "x": nbytes(pairs * s["hidden"], dtype),
            "weights": nbytes(3 * busy * matrix, dtype if weights is None else weights),
        },
        writes={"y": nbytes(pairs * s["hidden"], dtype)},
        matrix_flops=6 * pairs * matrix,
        vector_flops=gated.vector_flops,
        transcendentals=gated.transcendentals,
        dtype=dtype,
        kind="grouped_matmul",
        dims={**s, "weight_bits": BITS[dtype_of(dtype if weights is None else weights)]},
    )


# --- An exchange between chips on a ring ---------------------------------------------------------


def all_reduce(elements: Any, chips: Any, dtype: Any = "bf16") -> Work:
    """Count an all-reduce on a ring of c ≥ 2 chips: a reduce-scatter, then an all-gather.

    Every chip has a summand of `elements`, sends 2 (c−1)/c of them and adds (c−1)/c. If c does not
    divide the elements, the busiest chip is counted.

    Source: jax-ml/scaling-book, "Sharded matrices and how to multiply them".

    Examples
    --------
    >>> all_reduce(2**20, 4).traffic
    {'hbm': 4194304, 'network': 3145728}
    """
    checked = sizes(elements=elements, chips=chips)
    n, chips = checked["elements"], checked["chips"]
    if np.any(np.less(chips, 2)):
        raise BadValue(f"a collective needs at least 2 chips, got {shown(chips)}")
    sent = n - n // chips
    return Work(
        name="all-reduce",
        reads={"summand": nbytes(n, dtype)},
        writes={"sum": nbytes(n, dtype)},
        vector_flops=sent,
        others={"network": 2 * nbytes(sent, dtype)},
        dtype=dtype,
    )
