"""Work: the FLOPs and bytes of one kernel, counted by hand.

The rules, everywhere:

- One multiply, add, compare, exponential … on one element is one FLOP; a multiply-add is two.
  A sum over n elements counts n. Exponentials and their like are also listed as
  `transcendentals`, since hardware does them on another unit.
- Products of matrices run on the matrix unit, everything else on the vector unit.
- Bytes are those that cross the main memory's boundary ("hbm"): each tensor that a kernel reads
  is read once, and each that it writes is written once, unless `passes` says otherwise. What
  stays inside a kernel (accumulators, intermediates) costs nothing.
- Sizes may be NumPy arrays: the counts are then float64 arrays of the broadcast shape. With plain
  integers the counts are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from roofline_helpers._checks import (
    BadType,
    BadValue,
    Number,
    each,
    fitting,
    flag,
    folded,
    mapping,
    name_of,
    plain,
    quantity,
    shown,
    size,
    sizes,
    text,
)
from roofline_helpers.dtypes import BITS, nbytes
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.show import cell, facts_html, si, span

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
"""FLOPs of the steps that a normalisation does once a row."""

TRANSCENDENTAL = frozenset({"tanh", "exp", "rsqrt"})
"""Steps of `COSTS` and `ROW_COSTS` that are transcendental."""


@dataclass(frozen=True, repr=False)
class Work:
    """FLOPs and bytes of one kernel.

    Parameters
    ----------
    name : str
        What the kernel does.
    reads, writes : mapping of str to number
        Bytes of each tensor that it reads and writes, by name: `fuse` joins kernels by these.
    matrix_flops, vector_flops : number
        FLOPs on each unit. `vector_flops` includes the transcendentals, one each.
    transcendentals : number
        How many of the vector FLOPs are exponentials and their like.
    dtype : str
        The type that the unit computes in: picks the peak.
    passes : mapping of str to number
        How often a tensor in `reads` is read, where that isn't once: at least 1.
    others : mapping of str to number
        Bytes across other boundaries: an on-chip level, or "network". Names are kept in lower
        case, without space, "-" and "_", as `Roofline` keeps those of its levels.

    Raises
    ------
    BadType, BadValue, UnknownName
        A count that is not a finite number of at least 0; no byte at all; more transcendentals
        than vector FLOPs; passes over a tensor that is not read; one level, or one tensor of
        `passes`, under two spellings; arrays whose shapes don't fit.

    Examples
    --------
    >>> job = matmul(1024, 1024, 1024, "bf16")
    >>> job.flops, job.bytes, round(job.intensity, 1)
    (2147483648, 6291456, 341.3)
    """

    name: str
    reads: Mapping[str, Number]
    writes: Mapping[str, Number]
    matrix_flops: Number = 0
    vector_flops: Number = 0
    transcendentals: Number = 0
    dtype: str = "fp32"
    passes: Mapping[str, Number] = field(default_factory=dict)
    others: Mapping[str, Number] = field(default_factory=dict)

    def __post_init__(self) -> None:
        text("name", self.name)
        object.__setattr__(self, "dtype", dtype_of(self.dtype))
        counts: dict[str, Number] = {}
        for flops in ("matrix_flops", "vector_flops", "transcendentals"):
            counts[flops] = quantity(flops, getattr(self, flops), zero=True)
            object.__setattr__(self, flops, counts[flops])
        for group in ("reads", "writes", "passes", "others"):
            checked = {
                tensor: quantity(f"{group}[{tensor!r}]", n, zero=group in ("reads", "writes"))
                for tensor, n in mapping(group, getattr(self, group)).items()
            }
            counts |= {f"{group}[{tensor!r}]": n for tensor, n in checked.items()}
            checked = folded("others", checked) if group == "others" else checked
            object.__setattr__(self, group, MappingProxyType(checked))
        fitting(counts.items())
        passes = {
            name_of(f"tensor read by {self.name}", tensor, self.reads): n
            for tensor, n in self.passes.items()
        }
        if len(passes) < len(self.passes):
            raise BadValue(f"passes must name each tensor once, got {', '.join(self.passes)}")
        object.__setattr__(self, "passes", MappingProxyType(passes))
        for tensor, n in passes.items():
            if np.any(np.less(n, 1)):
                raise BadValue(f"passes over {tensor} must be at least 1, got {shown(n)}")
        if "hbm" in self.others:
            raise BadValue("traffic at hbm follows from reads and writes: change those")
        if not np.all(np.greater(self.bytes, 0)):
            raise BadValue(f"{self.name} must read or write at least one byte, got none")
        if np.any(np.greater(self.transcendentals, self.vector_flops)):
            raise BadValue(
                f"transcendentals must be at most the vector FLOPs, got "
                f"{shown(self.transcendentals)} and {shown(self.vector_flops)}"
            )

    def _facts(self) -> dict[str, str]:
        """Return what it shows of itself."""
        moved = {"bytes" if at == "hbm" else at: n for at, n in self.traffic.items()}
        return {
            "FLOPs": span(self.flops, lambda n: si(n, "FLOP")),
            **{name: span(n, lambda n: si(n, "B")) for name, n in moved.items()},
            "intensity": span(self.intensity, lambda n: f"{cell(n)} FLOP/byte"),
        }

    def __repr__(self) -> str:
        return f"<{self.name} in {self.dtype}: {', '.join(self._facts().values())}>"

    def _repr_html_(self) -> str:
        tensors = {"reads": ", ".join(self.reads), "writes": ", ".join(self.writes)}
        return facts_html(f"{self.name} in {self.dtype}", {**tensors, **self._facts()})

    @property
    def flops(self) -> Number:
        """FLOPs on both units."""
        return self.matrix_flops + self.vector_flops

    @property
    def read_bytes(self) -> Number:
        """Bytes read from the main memory."""
        return sum(n * self.passes.get(tensor, 1) for tensor, n in self.reads.items())

    @property
    def written_bytes(self) -> Number:
        """Bytes written to the main memory."""
        return sum(self.writes.values())

    @property
    def bytes(self) -> Number:
        """Bytes across the main memory's boundary."""
        return self.read_bytes + self.written_bytes

    @property
    def traffic(self) -> dict[str, Number]:
        """Bytes across each boundary – "hbm", and what `others` adds."""
        return {"hbm": self.bytes, **self.others}

    @property
    def intensity(self) -> Any:
        """Arithmetic intensity at the main memory, FLOP/byte."""
        return plain(np.divide(self.flops, self.bytes))

    def intensity_at(self, level: str) -> Any:
        """Return the arithmetic intensity at another boundary, FLOP/byte.

        Raises
        ------
        UnknownName
            This work has no traffic at that level.
        """
        where = name_of(f"level of {self.name}", level, self.traffic)
        return plain(np.divide(self.flops, self.traffic[where]))

    def reading(self, **passes: Any) -> Work:
        """Return the same work with some tensors read more than once: ``reading(x=3)``.

        Raises
        ------
        UnknownName
            Not a tensor that this kernel reads.
        BadType, BadValue
            Not a number; fewer than one pass.
        """
        return replace(self, passes={**self.passes, **passes})

    def with_traffic(self, **others: Any) -> Work:
        """Return the same work with its bytes at other boundaries: ``with_traffic(vmem=1e9)``.

        Raises
        ------
        BadType, BadValue
            Not a positive finite number of bytes; "hbm", which follows from reads and writes.
        """
        return replace(self, others={**self.others, **folded("others", others)})


def fuse(*kernels: Work, keep: Sequence[str] = (), name: str | None = None) -> Work:
    """Return the one kernel that does what `kernels` do one after another.

    Its bytes are those of the tensors that enter (read, and not made inside) and leave (made, and
    not read again inside). FLOPs and bytes over the network add up; traffic at on-chip levels
    changes with fusion in ways that no rule gives, so it is dropped.

    Parameters
    ----------
    *kernels : Work
        In order. Tensors are matched by name. One that several kernels read is read once, or as
        often as the kernel that makes the most passes over it.
    keep : sequence of str
        Tensors made inside that are needed outside too, and so are written all the same.
    name : str, optional
        By default the kernels' names joined with "+".

    Raises
    ------
    BadType
        Nothing to fuse, or something that isn't a `Work`.
    BadValue
        Two tensors of one name and different size, or a tensor made twice.
    UnknownName
        `keep` names a tensor that no kernel makes.

    Examples
    --------
    >>> chain = [elementwise(10**6, {"x": "fp32"}, {"t": "fp32"}),
    ...          elementwise(10**6, {"t": "fp32", "bias": "fp32"}, {"y": "fp32"})]
    >>> sum(kernel.bytes for kernel in chain), fuse(*chain).bytes
    (20000000, 12000000)
    """
    _all_work(kernels)
    if isinstance(keep, str) or not isinstance(keep, Sequence | Set):
        raise BadType(f"keep must be a sequence of tensor names, got {shown(keep)}")
    sizes: dict[str, Number] = {}
    made: dict[str, Number] = {}
    entering: dict[str, Number] = {}
    passes: dict[str, Number] = {}
    consumed: set[str] = set()
    for kernel in kernels:
        for tensor, n in [*kernel.reads.items(), *kernel.writes.items()]:
            if not np.all(np.equal(sizes.setdefault(tensor, n), n)):
                raise BadValue(f"tensor {tensor!r} has {sizes[tensor]} bytes and then {n}")
        for tensor, n in kernel.reads.items():
            if tensor in made:
                consumed.add(tensor)
            else:
                entering[tensor] = n
                again = np.maximum(passes.get(tensor, 1), kernel.passes.get(tensor, 1))
                passes[tensor] = plain(again)
        for tensor, n in kernel.writes.items():
            if tensor in made:
                raise BadValue(f"tensor {tensor!r} is made twice: give the second another name")
            made[tensor] = n
    kept = {name_of("tensor made in this chain", tensor, made) for tensor in keep}
    leaving = {t: n for t, n in made.items() if t not in consumed or t in kept}
    return replace(
        _summed(kernels, name or "+".join(kernel.name for kernel in kernels)),
        reads=entering,
        writes=leaving,
        passes=passes,
        others={k: v for k, v in _traffic(kernels).items() if k == "network"},
    )


def total(*kernels: Work, name: str = "total") -> Work:
    """Return the sum of kernels that run one after another: FLOPs and bytes add up.

    The intensity of the sum is what a whole layer or model has. Its time on a roofline is a
    looser bound than the sum of the kernels' times, which `Roofline.time(*kernels)` gives.

    Raises
    ------
    BadType, BadValue
        No kernel, or something that isn't a `Work`; arrays whose shapes don't fit.
    """
    _all_work(kernels)
    return replace(
        _summed(kernels, name),
        reads={"all that is read": sum(kernel.read_bytes for kernel in kernels)},
        writes={"all that is written": sum(kernel.written_bytes for kernel in kernels)},
        others={k: v for k, v in _traffic(kernels).items() if k != "hbm"},
    )


def _all_work(kernels: Sequence[Any]) -> None:
    if not kernels:
        raise BadType("at least one kernel is needed, got none")
    for kernel in kernels:
        if not isinstance(kernel, Work):
            raise BadType(f"a kernel must be a Work, got {shown(kernel)}")
    for count in ("flops", "bytes"):
        fitting((f"{count} of {kernel.name}", getattr(kernel, count)) for kernel in kernels)


def _summed(kernels: Sequence[Work], name: str) -> Work:
    widest = max(kernels, key=lambda k: (np.any(np.greater(k.matrix_flops, 0)), BITS[k.dtype]))
    return replace(
        kernels[0],
        name=name,
        matrix_flops=sum(k.matrix_flops for k in kernels),
        vector_flops=sum(k.vector_flops for k in kernels),
        transcendentals=sum(k.transcendentals for k in kernels),
        dtype=widest.dtype,
        passes={},
    )


def _traffic(kernels: Sequence[Work]) -> dict[str, Number]:
    sums: dict[str, Number] = {}
    for kernel in kernels:
        for level, n in kernel.traffic.items():
            sums[level] = sums.get(level, 0) + n
    return sums


# --- matrix products ----------------------------------------------------------------------------


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
        tile_rows = each(_ceil, m, rows)
        passes = {
            a_name: each(_ceil, n, columns),
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
    )


def _exactly(count: int, name: str, given: Any) -> Sequence[Any]:
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != count:
        raise BadType(f"{name} must be a sequence of {count}, got {shown(given)}")
    return given


def _ceil(a: Any, b: Any) -> Any:
    return -(-a // b)


# --- elementwise operations, reductions, normalisations -------------------------------------------


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
    """
    n = size("n", n)
    flops = quantity("flops per element", flops, zero=True)
    special = quantity("transcendentals per element", transcendentals, zero=True)
    fitting([("n", n), ("flops", flops), ("transcendentals", special)])
    return Work(
        name=name,
        reads=_tensors("reads", reads, "x", n, dtype),
        writes=_tensors("writes", writes, "y", n, dtype),
        vector_flops=n * flops,
        transcendentals=n * special,
        dtype=dtype,
    )


def _tensors(what: str, given: Any, letter: str, n: Number, dtype: Any) -> dict[str, Number]:
    if isinstance(given, Mapping):
        return {tensor: nbytes(n, each_type) for tensor, each_type in given.items()}
    allowed = "a count of tensors from 0 to 1000, or a mapping of names to data types"
    if not isinstance(given, int | np.integer) or isinstance(given, bool):
        raise BadType(f"{what} must be {allowed}, got {shown(given)}")
    if not 0 <= given <= 1000:
        raise BadValue(f"{what} must be {allowed}, got {shown(given)}")
    count = int(given)
    names = [letter] if count == 1 else [f"{letter}{i}" for i in range(count)]
    return {tensor: nbytes(n, dtype) for tensor in names}


def _pointwise(op: str, n: Any, reads: Sequence[str], write: str, dtype: Any) -> Work:
    return elementwise(
        n,
        dict.fromkeys(reads, dtype),
        {write: dtype},
        sum(COSTS[op].values()),
        dtype,
        transcendentals=_transcendentals(COSTS[op]),
        name=op,
    )


def _transcendentals(costs: Mapping[str, int]) -> int:
    return sum(flops for step, flops in costs.items() if step in TRANSCENDENTAL)


def relu(n: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y") -> Work:
    """Count max(x, 0) on n elements: 1 FLOP each; one tensor in, one out."""
    return _pointwise("relu", n, [x], y, dtype)


def gelu(n: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y") -> Work:
    """Count GELU in its tanh form on n elements: 9 FLOPs each, one of them a tanh.

    Source: D. Hendrycks, K. Gimpel, arXiv:1606.08415.
    """
    return _pointwise("gelu", n, [x], y, dtype)


def swiglu(n: Any, dtype: Any = "bf16", *, gate: str = "g", up: str = "u", y: str = "y") -> Work:
    """Count silu(gate) · up on n elements: 5 FLOPs each, one of them an exponential.

    Source: N. Shazeer, arXiv:2002.05202.
    """
    return _pointwise("swiglu", n, [gate, up], y, dtype)


def add(n: Any, dtype: Any = "bf16", *, x: str = "x0", other: str = "x1", y: str = "y") -> Work:
    """Count x + other on n elements: 1 FLOP each; two tensors in, one out."""
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
    """
    reads = {x: dtype, mask_name: dtype if mask is None else mask}
    flops = sum(COSTS["dropout"].values())
    return elementwise(n, reads, {y: dtype}, flops, dtype, name="dropout")


def fusion_chain(
    rows: Any, columns: Any, dtype: Any = "bf16", *, mask: Any = None
) -> tuple[Work, ...]:
    """Count this book's chain, x → LayerNorm → GELU → dropout → + residual, as four kernels.

    Parameters
    ----------
    rows, columns : int or array
        Shape of x.
    dtype, mask : str or data type
        Type of x, residual and y; type of the mask, that of x if not given.

    Examples
    --------
    >>> four = fusion_chain(65536, 4096)
    >>> round(total(*four).bytes / fuse(*four).bytes, 3)
    2.5
    """
    rows, columns = sizes(rows=rows, columns=columns)
    return (
        layernorm(rows, columns, dtype, y="a"),
        gelu(rows * columns, dtype, x="a", y="b"),
        dropout(rows * columns, dtype, mask=mask, x="b", y="c"),
        add(rows * columns, dtype, x="c", other="residual"),
    )


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
    costs, once = COSTS[op], ROW_COSTS.get(op, {})
    tensor = nbytes(rows * columns, dtype)
    return Work(
        name=op,
        reads={x: tensor} | {each_one: nbytes(columns, dtype) for each_one in parameters},
        writes={y: tensor},
        vector_flops=rows * columns * sum(costs.values()) + rows * sum(once.values()),
        transcendentals=rows * columns * _transcendentals(costs) + rows * _transcendentals(once),
        dtype=dtype,
    )


def layernorm(
    rows: Any, columns: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y", tag: str = ""
) -> Work:
    """Count LayerNorm over rows of `columns`: 7 FLOPs per element and 4 per row (`COSTS`).

    x is read once, which needs a row to fit on the chip; γ and β are read once, y is written.
    `tag` tells the parameters of several LayerNorms apart.

    Source: J. L. Ba, J. R. Kiros, G. E. Hinton, arXiv:1607.06450.
    """
    return _rowwise("layernorm", rows, columns, dtype, x, y, [f"γ{tag}", f"β{tag}"])


def rmsnorm(
    rows: Any, columns: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y", tag: str = ""
) -> Work:
    """Count RMSNorm over rows of `columns`: 4 FLOPs per element and 3 per row (`COSTS`).

    Source: B. Zhang, R. Sennrich, arXiv:1910.07467.
    """
    return _rowwise("rmsnorm", rows, columns, dtype, x, y, [f"γ{tag}"])


def softmax(rows: Any, columns: Any, dtype: Any = "bf16", *, x: str = "x", y: str = "y") -> Work:
    """Count a softmax over rows of `columns`: 5 FLOPs per element, one of them an exponential.

    x is read once, which needs a row to fit on the chip; ``softmax(…).reading(x=3)`` is the
    version that reads it for the maximum, for the sum and for the result.
    """
    return _rowwise("softmax", rows, columns, dtype, x, y, [])


# --- attention and the transformer block ---------------------------------------------------------


def _attention_sizes(
    batch: Any, q_len: Any, kv_len: Any, heads: Any, head_dim: Any, kv_heads: Any
) -> dict[str, Number]:
    given = {
        "batch": batch,
        "q_len": q_len,
        "kv_len": q_len if kv_len is None else kv_len,
        "heads": heads,
        "head_dim": head_dim,
        "kv_heads": heads if kv_heads is None else kv_heads,
    }
    s = dict(zip(given, sizes(**given), strict=True))
    if np.any(np.remainder(s["heads"], s["kv_heads"])):
        raise BadValue(f"heads ({heads}) must be a multiple of kv_heads ({kv_heads})")
    return s


def attention_scores(
    batch: Any,
    q_len: Any,
    kv_len: Any = None,
    heads: Any = 1,
    head_dim: Any = 128,
    kv_heads: Any = None,
    dtype: Any = "bf16",
) -> Work:
    """Count S = Q·Kᵀ: 2 · batch · heads · q_len · kv_len · head_dim FLOPs.

    Parameters
    ----------
    batch, q_len, kv_len, heads, head_dim, kv_heads : int or array
        Q is [batch, heads, q_len, head_dim], K is [batch, kv_heads, kv_len, head_dim], S is
        [batch, heads, q_len, kv_len]. `kv_len` is q_len and `kv_heads` is heads if not given;
        fewer KV heads (grouped-query attention) mean fewer bytes and the same FLOPs.

    Raises
    ------
    BadValue
        heads is not a multiple of kv_heads.
    """
    s = _attention_sizes(batch, q_len, kv_len, heads, head_dim, kv_heads)
    pairs = s["batch"] * s["heads"] * s["q_len"] * s["kv_len"]
    return Work(
        name="Q·Kᵀ",
        reads={
            "q": nbytes(s["batch"] * s["heads"] * s["q_len"] * s["head_dim"], dtype),
            "k": nbytes(s["batch"] * s["kv_heads"] * s["kv_len"] * s["head_dim"], dtype),
        },
        writes={"scores": nbytes(pairs, dtype)},
        matrix_flops=2 * pairs * s["head_dim"],
        dtype=dtype,
    )


def naive_attention(
    batch: Any,
    q_len: Any,
    kv_len: Any = None,
    heads: Any = 1,
    head_dim: Any = 128,
    kv_heads: Any = None,
    dtype: Any = "bf16",
) -> tuple[Work, Work, Work]:
    """Return the three kernels of attention that keeps its scores in memory.

    Q·Kᵀ, then scale and softmax (6 FLOPs per score), then P·V. The scores are written and read,
    and the probabilities too: 4 · batch · heads · q_len · kv_len elements of traffic. A causal
    mask changes nothing here: a kernel that stores all scores computes them all.

    Shapes and errors as in `attention_scores`.
    """
    s = _attention_sizes(batch, q_len, kv_len, heads, head_dim, kv_heads)
    scores = attention_scores(batch, q_len, kv_len, heads, head_dim, kv_heads, dtype)
    rows = s["batch"] * s["heads"] * s["q_len"]
    normalise = softmax(rows, s["kv_len"], dtype, x="scores", y="p")
    scaled = normalise.vector_flops + rows * s["kv_len"]
    output = Work(
        name="P·V",
        reads={
            "p": scores.writes["scores"],
            "v": nbytes(s["batch"] * s["kv_heads"] * s["kv_len"] * s["head_dim"], dtype),
        },
        writes={"o": scores.reads["q"]},
        matrix_flops=scores.matrix_flops,
        dtype=dtype,
    )
    return scores, replace(normalise, vector_flops=scaled, name="scale+softmax"), output


def flash_attention(
    batch: Any,
    q_len: Any,
    kv_len: Any = None,
    heads: Any = 1,
    head_dim: Any = 128,
    kv_heads: Any = None,
    dtype: Any = "bf16",
    *,
    causal: bool = False,
    block_q: Any = None,
) -> Work:
    """Count attention in one kernel: `naive_attention` fused, so no scores in memory.

    Parameters
    ----------
    causal : bool
        Skip the scores above the diagonal (the last query sees every key): FLOPs shrink to the
        share of pairs that is left. Whole blocks are skipped in practice, so this is the least.
    block_q : int or array, optional
        Rows of Q that one program holds. K and V are then read once per block of rows. Without
        it they are read once: the lower bound. The rescaling of the online softmax, less than one
        FLOP per score, is not counted.

    Shapes and errors as in `attention_scores`; also BadValue if causal and q_len > kv_len.

    Source: T. Dao et al., arXiv:2205.14135.
    """
    s = _attention_sizes(batch, q_len, kv_len, heads, head_dim, kv_heads)
    kernels = naive_attention(batch, q_len, kv_len, heads, head_dim, kv_heads, dtype)
    job = fuse(*kernels, name="flash attention")
    if flag("causal", causal):
        if np.any(np.greater(s["q_len"], s["kv_len"])):
            raise BadValue(f"causal attention needs q_len ≤ kv_len, got {q_len} and {kv_len}")
        seen = 2 * s["kv_len"] - s["q_len"] + 1  # twice the mean number of keys a query sees
        job = replace(
            job,
            matrix_flops=each(_half_of, job.matrix_flops * seen, s["kv_len"]),
            vector_flops=each(_half_of, job.vector_flops * seen, s["kv_len"]),
            transcendentals=each(_half_of, job.transcendentals * seen, s["kv_len"]),
        )
    if block_q is not None:
        block_q = size("block_q", block_q)
        fitting([*s.items(), ("block_q", block_q)])
        blocks = each(_ceil, s["q_len"], block_q)
        job = job.reading(k=blocks, v=blocks)
    return job


def _half_of(a: Any, b: Any) -> Any:
    return a // (2 * b)


def transformer_block(
    batch: Any,
    seq: Any,
    d_model: Any,
    heads: Any,
    d_ff: Any,
    *,
    kv_heads: Any = None,
    head_dim: Any = None,
    kv_len: Any = None,
    gated: bool = False,
    flash: bool = True,
    dtype: Any = "bf16",
    weights: Any = None,
) -> tuple[Work, ...]:
    """Return the kernels of one pre-norm transformer block, in order.

    LayerNorm (RMSNorm if gated) → QKV projection → attention → output projection → residual →
    norm → up projection → GELU (gate and up projection → SwiGLU if gated) → down projection →
    residual. Biases, rotary embedding and dropout are not counted.

    Parameters
    ----------
    batch, seq : int or array
        Sequences, and new tokens in each: seq=1 is a decode step.
    d_model, heads, d_ff, kv_heads, head_dim : int
        Widths. `kv_heads` is heads, and `head_dim` is d_model / heads if not given.
    kv_len : int or array, optional
        Keys that each query may see, the new ones included; seq if not given (prefill).
    gated : bool
        SwiGLU feed-forward with RMSNorm, as in Llama, in place of GELU with LayerNorm.
    flash : bool
        One attention kernel rather than three.
    weights : str or data type, optional
        Type of the weight matrices; `dtype` if not given.

    Raises
    ------
    BadValue
        kv_len < seq, heads not a multiple of kv_heads, or d_model of heads where head_dim is
        to be derived.

    Source: A. Vaswani et al., arXiv:1706.03762; H. Touvron et al., arXiv:2302.13971 (gated).
    """
    batch, seq, d_model, heads, d_ff = sizes(
        batch=batch, seq=seq, d_model=d_model, heads=heads, d_ff=d_ff
    )
    rows = batch * seq
    if head_dim is None:
        if np.any(np.remainder(d_model, heads)):
            raise BadValue(f"d_model ({d_model}) must be a multiple of heads ({heads})")
        head_dim = each(lambda d, h: d // h, d_model, heads)
    s = _attention_sizes(batch, seq, kv_len, heads, head_dim, kv_heads)
    fitting([*s.items(), ("d_model", d_model), ("d_ff", d_ff)])
    if np.any(np.less(s["kv_len"], s["q_len"])):
        raise BadValue(f"kv_len ({kv_len}) must be at least seq ({seq})")
    norm = rmsnorm if flag("gated", gated) else layernorm

    def project(label: str, x: str, y: str, n: Number, k: Number) -> Work:
        job = matmul(rows, n, k, dtype, b=weights, names=(x, f"W {label}", y))
        return replace(job, name=label)

    q_width, kv_width = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    qkv = project("QKV projection", "n1", "qkv", q_width + 2 * kv_width, d_model)
    new_kv = nbytes(rows * kv_width, dtype)
    qkv_out = {"q": nbytes(rows * q_width, dtype), "k, new": new_kv, "v, new": new_kv}
    dims = (batch, seq, kv_len, heads, head_dim, kv_heads, dtype)
    attention = [flash_attention(*dims)] if flag("flash", flash) else [*naive_attention(*dims)]
    hidden = rows * d_ff
    if gated:
        up = [
            project("gate projection", "n2", "g", d_ff, d_model),
            project("up projection", "n2", "u", d_ff, d_model),
            swiglu(hidden, dtype, gate="g", up="u", y="h"),
        ]
    else:
        up = [
            project("up projection", "n2", "u", d_ff, d_model),
            gelu(hidden, dtype, x="u", y="h"),
        ]
    return (
        norm(rows, d_model, dtype, x="x", y="n1", tag="1"),
        replace(qkv, writes=qkv_out),
        *attention,
        project("output projection", "o", "a", d_model, q_width),
        add(rows * d_model, dtype, x="x", other="a", y="x'"),
        norm(rows, d_model, dtype, x="x'", y="n2", tag="2"),
        *up,
        project("down projection", "h", "f", d_model, d_ff),
        add(rows * d_model, dtype, x="x'", other="f", y="x''"),
    )


# --- collectives ----------------------------------------------------------------------------------


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
    """
    n, chips = _ring(elements, chips)
    return Work(
        name="all-gather",
        reads={"shard": nbytes(each(_ceil, n, chips), dtype)},
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
