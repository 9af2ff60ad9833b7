"""What a traced function asks for, counted from its jaxpr alone: nothing here reads HLO.

Matmuls and convolutions are exact, two FLOPs for each multiply-add that meets data. All else is a
range, since a compiler may do a function of one element in one operation or in sixty. Whole numbers
that don't depend on arguments are computed, so that loops end and conditions choose as they do when
the program runs; what data choose leaves a range, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr

# --- ranges ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """From `low` to `high`."""

    low: float = 0.0
    high: float = 0.0

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __mul__(self, times: float) -> Range:
        return Range(self.low * times, self.high * times)

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True)
class Count:
    """FLOPs of `matrix` products and of all `other` operations, bytes, and what is exchanged.

    `outer` are those of products that sum nothing, which may become multiplications. `moved` are
    the bytes if nothing were fused, `sent` those that one device sends in rings; `open` says that
    data, or a library, decide how much there is; `strange` what has no rule.
    """

    matrix: Range = field(default_factory=Range)
    other: Range = field(default_factory=Range)
    outer: float = 0.0
    moved: float = 0.0
    sent: Range = field(default_factory=Range)
    open: bool = False
    strange: frozenset[str] = frozenset()

    def __add__(self, more: Count) -> Count:
        return Count(
            self.matrix + more.matrix,
            self.other + more.other,
            self.outer + more.outer,
            self.moved + more.moved,
            self.sent + more.sent,
            self.open or more.open,
            self.strange | more.strange,
        )

    def __mul__(self, times: int) -> Count:
        numbers = self.matrix, self.other, self.outer, self.moved, self.sent
        return Count(*(each * times for each in numbers), self.open, self.strange)

    def __or__(self, other: Count) -> Count:
        return Count(
            self.matrix | other.matrix,
            self.other | other.other,
            max(self.outer, other.outer),
            max(self.moved, other.moved),
            self.sent | other.sent,
            self.open or other.open,
            self.strange | other.strange,
        )


# --- one operation --------------------------------------------------------------------------------

ONE = frozenset(
    "add sub mul div max min neg abs floor ceil sign eq ne lt le gt ge and or xor not is_finite "
    "exp log sin cos tanh sqrt rsqrt square add_any select_n shift_left shift_right_logical "
    "shift_right_arithmetic population_count clz logistic exp2 round one_minus_square".split()
)
"""Operations that take one FLOP an element, or the few of a compiler that writes them out."""

MANY = {
    "clamp": 2,
    "integer_pow": 8,
    **dict.fromkeys(("pow", "rem", "cbrt", "atan2"), 40),
    **dict.fromkeys(("tan", "sinh", "cosh", "expm1", "log1p", "nextafter"), 40),
    **dict.fromkeys(("asin", "acos", "atan", "asinh", "acosh", "atanh", "erf"), 60),
    "erfc": 200,
    "erf_inv": 120,
    **dict.fromkeys(("lgamma", "digamma"), 300),
}
"""The most operations an element of those that compilers write as polynomials."""

MOVING = frozenset(
    "broadcast_in_dim reshape squeeze transpose convert_element_type bitcast_convert_type iota "
    "slice rev copy stop_gradient real imag complex reduce_precision split expand_dims "
    "random_wrap random_unwrap optimization_barrier sharding_constraint axis_index pvary pcast "
    "mesh_cast reshard device_put platform_index tile concatenate pad dynamic_slice conj stack "
    "unstack dynamic_update_slice copy_p empty".split()
)
"""Operations that move, or select where a compiler writes them so."""

RANDOM = frozenset(
    "threefry2x32 random_bits random_seed random_fold_in random_split rng_bit_generator".split()
)
DENSE = {
    "cholesky": 1 / 3,
    "lu": 2 / 3,
    "qr": 4 / 3,
    "geqrf": 4 / 3,
    "householder_product": 2 / 3,
    "svd": 2,
    "eigh": 4 / 3,
    "triangular_solve": 1,
    "tridiagonal_solve": 0,
    "lu_pivots_to_permutation": 0,
}
"""Linear algebra: the share of n³ that it takes at least."""

SUMS = frozenset("psum psum2 psum_invariant pmax pmin".split())
EXCHANGES = {"all_gather", "all_gather_invariant", "reduce_scatter", "ppermute", "all_to_all"}
EXCHANGES |= SUMS


def sent_by(equation: Any, sizes: Mapping[Any, int]) -> Range:
    """Return the bytes that one device sends in a ring, in an exchange along axes of these sizes.

    A single number counts, too. Of a sum of which each keeps a part, a compiler may sum all.
    """
    name, params = equation.primitive.name, equation.params
    axes = params.get("axes", params.get("axis_name", ()))
    n = math.prod(sizes[axis] for axis in (axes if isinstance(axes, tuple) else (axes,)))
    size = float(sum(var.aval.size * var.aval.dtype.itemsize for var in equation.invars))
    if name == "ppermute":
        size *= any(source != target for source, target in params["perm"])
        return Range(size, size)
    once = size * (n - 1) / n
    if name in SUMS:
        return Range(2 * once, 2 * once)
    if name == "all_to_all":
        return Range(once, once)
    return Range(once, 2 * once) if name == "reduce_scatter" else Range(n * once, n * once)


def equation_count(equation: Any, sizes: Mapping[Any, int]) -> Count:
    """Return the count of an operation that has no jaxpr inside; `sizes` are those of mesh axes."""
    name, params = equation.primitive.name, equation.params
    before = [var.aval for var in equation.invars if hasattr(var.aval, "shape")]
    after = [var.aval for var in equation.outvars if hasattr(var.aval, "shape")]
    moved = sum(map(bytes_of, [*before, *after]))
    if name in PARTLY - {"dynamic_update_slice"}:  # what is sliced is read as far as it is wanted
        moved = 2 * sum(map(bytes_of, after)) + sum(map(bytes_of, before[1:]))
    size, out = (max((aval.size for aval in side), default=0) for side in (before, after))
    # a TPU computes both parts of a complex number apart: a square root has 152 operations
    wide = 40 if any("complex" in str(aval.dtype) for aval in before) else 1
    if name in ("dot_general", "conv_general_dilated", "ragged_dot", "ragged_dot_general"):
        flops = product_flops(equation)
        # a ragged product may be computed for every group, and masked; a convolution in groups as
        # one, spread with zeros
        groups = before[1].shape[0] if name.startswith("ragged") else 0
        if params.get("feature_group_count", 1) * params.get("batch_group_count", 1) > 1:
            groups = params["feature_group_count"] * params["batch_group_count"]
        masked, moved = groups * flops, moved + 8 * groups * (before[0].size + out)
        outer = flops if flops <= (8 if wide > 1 else 2) * out else 0.0
        return Count(Range(flops, flops), Range(0, masked), outer, moved)
    if name in DENSE:
        cube = before[-1].size * before[0].shape[-1] * DENSE[name]
        return Count(other=Range(cube / 2, math.inf), moved=math.inf, open=True)
    if name in EXCHANGES:
        sent = sent_by(equation, sizes)
        return Count(other=Range(0, 16 * max(size, out)), moved=2 * moved, sent=sent)
    if name in MOVING:
        other = Range(0, 2 * max(size, out))
    elif name in ONE or name in MANY:
        # a power may be one, and both sides of a select the same, as of a mapped conditional
        least = 0 if name in ("integer_pow", "select_n") else out
        other = Range(least, out * max(MANY.get(name, 1), wide, 6))
    elif name.startswith("reduce_window") or name.startswith("select_and"):
        taps = math.prod(params.get("window_dimensions", (1,)))
        other = Range(0, 12 * max(size, out) * taps)
        moved = math.inf if name.startswith("select_and") else moved  # as of a scatter
    elif name.startswith(("reduce_", "arg")):
        other = Range(size - out, 10 * size * wide)
    elif name.startswith("cum"):
        length = before[0].shape[params["axis"]]
        other = Range(size - size // max(length, 1), size * (length + 2) * wide * 30)
        moved *= 2 * math.ceil(math.log2(length + 2))  # as many slices and sums one after another
    elif name in ("sort", "top_k", "approx_top_k"):
        length = before[0].shape[params.get("dimension", -1)] if before[0].shape else 1
        rounds = math.ceil(math.log2(max(length, 2)))
        other = Range(size * rounds / 8 if name == "sort" else 0, 60 * size * rounds**2)
        moved += 24 * size  # pairs of 32 bits each: made, read, and written in order
    elif name.startswith("scatter"):
        other = Range(0, 6 * (before[2].size + before[1].size) + 2 * size)
        moved = math.inf  # a CPU may write all of it for each update
    elif name == "gather":
        other = Range(0, 12 * max(before[1].size, 1024) + 3 * out)  # TPUs take 1024 at a time
    elif name == "fft":
        points = math.prod(params["fft_lengths"])
        other = Range(1.2 * max(size, out) * math.log2(max(points, 1)), 10 * size * (points + 2))
    elif name in RANDOM:
        other, moved = Range(0, 500 * (out + 8)), math.inf  # twenty rounds
    else:
        return Count(other=Range(0, math.inf), moved=math.inf, strange=frozenset({name}))
    return Count(other=other, moved=moved)


def product_flops(equation: Any) -> float:
    """Return the FLOPs of a product: two for each multiply-add, of complex numbers eight."""
    name, params = equation.primitive.name, equation.params
    lhs, rhs = (var.aval for var in equation.invars[:2])
    out = equation.outvars[0].aval
    if name == "dot_general":
        (inner, _), _ = params["dimension_numbers"]
        macs = out.size * math.prod(lhs.shape[axis] for axis in inner)
    elif name.startswith("ragged_dot"):
        macs = lhs.size * rhs.shape[-1]
    else:
        sides = params["dimension_numbers"]
        macs = lhs.shape[sides.lhs_spec[0]] // params["batch_group_count"]
        macs *= math.prod(rhs.shape[axis] for axis in sides.rhs_spec[:2])
        triples = zip(sides.lhs_spec[2:], sides.rhs_spec[2:], sides.out_spec[2:], strict=True)
        for n, axes in enumerate(triples):
            dilate = params["lhs_dilation"][n]
            at = np.arange(out.shape[axes[2]])[:, None] * params["window_strides"][n]
            at = at + np.arange(rhs.shape[axes[1]])[None] * params["rhs_dilation"][n]
            at = at - params["padding"][n][0]
            last = (lhs.shape[axes[0]] - 1) * dilate
            macs *= int(((at >= 0) & (at <= last) & (at % dilate == 0)).sum())
    return float(macs) * (8 if "complex" in str(lhs.dtype) else 2)


def bytes_of(aval: Any) -> int:
    """Return the bytes of an array; none of a single number, which no kernel moves by itself."""
    kind = str(getattr(aval, "dtype", ""))
    if not hasattr(aval, "shape") or aval.size <= 1 or "key" in kind:
        return 0
    bits = 4 if kind.endswith("int4") or "float4" in kind else 8 * aval.dtype.itemsize
    return math.ceil(aval.size * bits / 8)


# --- a whole jaxpr --------------------------------------------------------------------------------

FEW = 64
"""Elements of arrays of whole numbers that are computed."""

MOST_TURNS = 300

FIXED = object()
"""A value that depends on no argument, and isn't computed here: a compiler may do that."""


def is_known(value: Any) -> bool:
    return value is not None and value is not FIXED


def jaxprs_in(equation: Any) -> Iterator[Any]:
    """Yield the jaxprs inside an equation."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield part


def chooses(jaxpr: Any) -> bool:
    """Return whether a jaxpr has a condition or a loop whose turns differ."""
    inner = [part for equation in jaxpr.eqns for part in jaxprs_in(equation)]
    named = {equation.primitive.name for equation in jaxpr.eqns}
    return bool(named & {"cond", "while"}) or any(chooses(getattr(j, "jaxpr", j)) for j in inner)


def count_of(
    closed: Any, inputs: Sequence[Any] = (), sizes: Mapping[Any, int] = MappingProxyType({})
) -> tuple[Count, list[Any]]:
    """Return the count of a jaxpr, and the whole numbers among its results; others are None.

    `inputs` and results are numbers, `FIXED`, or None for what depends on arguments.
    """
    jaxpr = getattr(closed, "jaxpr", closed)
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=False))
    known |= dict(zip(jaxpr.invars, inputs, strict=False))

    def value(var: Any) -> Any:
        return var.val if hasattr(var, "val") else known.get(var)

    total, whole = Count(), wanted_whole(jaxpr, surely=False)
    for equation in jaxpr.eqns:
        values = [value(var) for var in equation.invars]
        one, results = _equation(equation, values, sizes)
        in_part = not whole.intersection(equation.outvars) and not equation.effects
        total += replace(one, other=replace(one.other, low=0)) if in_part else one
        known |= dict(zip(equation.outvars, results, strict=False))
    return total, [value(var) for var in jaxpr.outvars]


def _equation(
    equation: Any, values: list[Any], sizes: Mapping[Any, int]
) -> tuple[Count, list[Any]]:
    name, params, nothing = equation.primitive.name, equation.params, [None] * len(equation.outvars)
    if name == "cond":
        if is_known(values[0]):
            chosen = int(np.clip(int(values[0]), 0, len(params["branches"]) - 1))
            return count_of(params["branches"][chosen], values[1:], sizes)
        counts = [count_of(branch, values[1:], sizes)[0] for branch in params["branches"]]
        either = counts[0]
        for other in counts[1:]:
            either = either | other
        return either, nothing
    if name == "scan":
        count, results = _scan(params, values, sizes)
        # a CPU may write all that is stacked in each turn
        stacked = params["length"] * sum(bytes_of(var.aval) for var in equation.outvars)
        return replace(count, moved=count.moved + stacked), results
    if name == "while":  # what it begins with may be copied
        count, results = _while(params, values, sizes)
        state = sum(bytes_of(var.aval) for var in equation.outvars)
        return replace(count, moved=count.moved + 2 * state), results
    if name == "shard_map":
        count = count_of(params["jaxpr"], values, params["mesh"].shape)[0]
        return replace(count * params["mesh"].size, sent=count.sent), nothing
    if name == "pallas_call":
        return Count(other=Range(0, math.inf), moved=math.inf, open=True), nothing
    inner = list(jaxprs_in(equation))
    if inner and not name.startswith(("reduce", "scatter", "select_and", "sort", "arg")):
        closed = inner[0]  # of custom derivatives the first is the function itself
        return count_of(closed, values[-len(getattr(closed, "jaxpr", closed).invars) :], sizes)
    count = equation_count(equation, sizes)
    whole = all(
        getattr(var.aval, "size", FEW + 1) <= FEW
        and np.dtype(var.aval.dtype).kind in ("b", "u", "i")
        for var in equation.outvars
        if "key" not in str(var.aval.dtype)
    )
    if any(value is None for value in values):
        return count, nothing
    count = replace(count, matrix=replace(count.matrix, low=0), other=replace(count.other, low=0))
    if not whole or not all(map(is_known, values)) or name in RANDOM or equation.effects:
        return count, [FIXED] * len(nothing)
    made = equation.primitive.bind(*values, **params)
    return count, list(made) if equation.primitive.multiple_results else [made]


def _scan(params: Any, values: list[Any], sizes: Mapping[Any, int]) -> tuple[Count, list[Any]]:
    closed, length = params["jaxpr"], params["length"]
    groups = params.get("ft_in")  # since JAX 0.11
    lengths = [len(part) for part in groups.unpack()] if groups else []
    consts, carries = lengths[:2] if groups else (params["num_consts"], params["num_carry"])
    fixed, state, slices = (
        values[:consts],
        values[consts : consts + carries],
        values[consts + carries :],
    )
    outputs = len(closed.jaxpr.outvars) - carries
    if not chooses(closed.jaxpr) or length > MOST_TURNS:
        unknown = [None] * (carries + len(slices))
        return count_of(closed, [*fixed, *unknown], sizes)[0] * length, [None] * (carries + outputs)
    total, turns = Count(), range(length)
    for turn in reversed(turns) if params.get("reverse") else turns:
        given = [np.asarray(part)[turn] if is_known(part) else part for part in slices]
        one, made = count_of(closed, [*fixed, *state, *given], sizes)
        total, state = total + one, made[:carries]
    return total, [*state, *[None] * outputs]


def _while(params: Any, values: list[Any], sizes: Mapping[Any, int]) -> tuple[Count, list[Any]]:
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    first, second = params["cond_nconsts"], params["body_nconsts"]
    of_test, of_body = values[:first], values[first : first + second]
    state, total = values[first + second :], Count()
    for _ in range(MOST_TURNS):
        asked, [goes_on] = count_of(test, [*of_test, *state], sizes)
        total += asked
        if not is_known(goes_on):
            break
        if not bool(goes_on):
            return total, state
        turn, state = count_of(body, [*of_body, *state], sizes)
        total += turn
    turn = count_of(body, [*of_body, *[None] * len(state)], sizes)[0]
    endless = Range(0, math.inf)
    without_end = Count(endless, endless, 0.0, math.inf, endless, True, turn.strange)
    return total + without_end, [None] * len(state)


# --- a program ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A program's count without dead code, its matmul FLOPs with it, and its least bytes.

    `chooses` says whether it has conditions, or loops that a condition ends.
    """

    count: Count
    requested: Range
    least: float
    chooses: bool


def asked_of(closed: Any) -> Asked:
    """Return what a traced function asks for."""
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    needed = closed.replace(jaxpr=jaxpr)
    read = wanted_whole(jaxpr, surely=True)
    free = ("broadcast_in_dim", "iota")
    made = {v for e in jaxpr.eqns if e.primitive.name not in free for v in e.outvars}
    results = {v for v in jaxpr.outvars if not hasattr(v, "val") and v in made}
    copied = sum(bytes_of(v.aval) for v in jaxpr.outvars if v in jaxpr.invars)
    count = count_of(needed)[0]
    return Asked(
        replace(count, moved=count.moved + 2 * copied),
        count_of(closed)[0].matrix,
        sum(bytes_of(var.aval) for var in jaxpr.invars if var in read)
        + sum(bytes_of(var.aval) for var in results),
        chooses(closed.jaxpr),
    )


def _length(sort: Any) -> int:
    return int(sort.invars[0].aval.shape[sort.params["dimension"]])


SLICING = frozenset("slice dynamic_slice gather split".split())
PARTLY = SLICING | {"dynamic_update_slice", "squeeze"}
HALVING = PARTLY | {"real", "imag"}
PERHAPS = frozenset("cond while scan pad select_n device_put".split())


def wanted_whole(jaxpr: Any, surely: bool) -> set[Any]:
    """Return the values that are wanted whole, and not only in part; if `surely`, in any case.

    Of what is only sliced, or of rows that are chosen, a compiler needs to make no more.
    """
    whole = {var for var in jaxpr.outvars if not hasattr(var, "val")}
    for equation in reversed(jaxpr.eqns):
        name, inner = equation.primitive.name, list(jaxprs_in(equation))
        reads = [True] * len(equation.invars)
        if not any(v in whole and getattr(v.aval, "size", 1) for v in equation.outvars):
            continue
        if name in SLICING or (surely and (name in HALVING or name.startswith("scatter"))):
            reads[0] = False
        elif name in PERHAPS or name.startswith(("random", "threefry", "custom")):
            reads = [not surely] * len(equation.invars)
        elif name == "sort" and _length(equation) == 1:  # it compares nothing
            reads = [var in whole for var in equation.outvars]
        elif inner and len(getattr(inner[0], "jaxpr", inner[0]).invars) == len(reads):
            own = getattr(inner[0], "jaxpr", inner[0])
            wanted = wanted_whole(own, surely)
            reads = [var in wanted for var in own.invars]
        pairs = zip(equation.invars, reads, strict=True)
        whole |= {var for var, read in pairs if read and not hasattr(var, "val")}
    return whole
