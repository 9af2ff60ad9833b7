"""Pallas kernels, counted from what JAX traced of them: FLOPs of their body, bytes of their blocks.

A kernel's body runs once for each step of its grid, the last axis fastest. Before a step, each
input's block is fetched if its index differs from the step before; an output's block is written
back when its index changes. So the index maps, evaluated over the whole grid, give the bytes, and
the body gives the FLOPs: branches (`pl.when`) that depend on the place in the grid, or on
constants, count where they are taken. Copies that a kernel starts itself (`make_async_copy`) count
as they are written. What depends on data that isn't known counts as its dearest branch, or as one
turn, and the count says so.

FLOPs follow the rules of `roofline_helpers.hlo`: two for a multiply-add of a product, one an
element for everything else that computes, n for a sum over n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roofline_helpers.hlo.calls import Counted

MOST_STEPS = 4_000_000
"""Steps of a grid above which nothing is counted: what the kernel declares then stands."""

_TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log1p tanh logistic erf erfc erf_inv sin cos tan sqrt rsqrt cbrt pow atan2 "
    "asin acos atan sinh cosh asinh acosh atanh digamma lgamma".split()
)
_ARITHMETIC = frozenset(
    "add sub mul div rem max min neg sign abs floor ceil round eq ne lt le gt ge and or not xor "
    "select_n clamp integer_pow nextafter is_finite shift_left shift_right_logical square "
    "shift_right_arithmetic add_any population_count clz".split()
)
_REDUCING = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin cumsum "
    "cumprod cummax cummin cumlogsumexp".split()
)

_SCALARS: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "sign": np.sign,
    "abs": np.abs,
    "rem": np.fmod,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a if np.asarray(a).dtype != bool else np.logical_not(a),
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "floor": np.floor,
    "ceil": np.ceil,
    "squeeze": lambda a: a,
    "copy": lambda a: a,
    "stop_gradient": lambda a: a,
}


def counted(jaxpr: Any) -> tuple[Counted, ...]:
    """Return the Pallas kernels in a traced function, in order.

    Parameters
    ----------
    jaxpr : jax.core.ClosedJaxpr
        What ``jax.jit(f).trace(...).jaxpr`` is.
    """
    constants = [_small(value) for value in jaxpr.consts]
    known = dict(zip(jaxpr.jaxpr.constvars, constants, strict=True))
    return tuple(_kernels(jaxpr.jaxpr, known))


def requested(jaxpr: Any) -> float | None:
    """Return the FLOPs of the products of matrices that a traced function asks for, on all devices.

    None where that isn't known: convolutions, loops and branches that depend on data.
    """
    walk = _Body((), np.zeros((0, 1)))
    walk.run(jaxpr.jaxpr, {}, np.ones(1))
    return None if walk.unsure else walk.matrix


def _small(value: Any) -> Any:
    """Return a constant as an array, None if it is large: no index depends on a weight."""
    if getattr(value, "size", 0) > 1_000_000 or getattr(value, "dtype", None) is None:
        return None
    try:
        return np.asarray(value)
    except Exception:  # a shape without a value
        return None


def _kernels(jaxpr: Any, known: dict[Any, Any]) -> Iterator[Counted]:
    for each in jaxpr.eqns:
        values = [_value(var, known) for var in each.invars]
        if each.primitive.name == "pallas_call":
            kernel = _kernel(each, values)
            if kernel is not None:
                yield kernel
            continue
        for inner, constants in _inside(each):
            inputs = inner.invars
            given = dict(zip(inner.constvars, map(_small, constants), strict=False))
            if len(inputs) == len(values):
                given |= dict(zip(inputs, values, strict=True))
            yield from _kernels(inner, given)


def _value(var: Any, known: Mapping[Any, Any]) -> Any:
    """Return the value of a variable, None where it isn't known."""
    if hasattr(var, "val"):
        return np.asarray(var.val)
    return known.get(var)


def _inside(each: Any) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Yield the jaxprs among the parameters of an equation, and their constants."""
    for value in each.params.values():
        for part in value if isinstance(value, tuple | list) else [value]:
            if hasattr(part, "jaxpr") and hasattr(part, "consts"):
                yield part.jaxpr, part.consts
            elif hasattr(part, "eqns"):
                yield part, ()


# --- one kernel -----------------------------------------------------------------------------------


def _kernel(each: Any, values: Sequence[Any]) -> Counted | None:
    """Return the count of a `pallas_call`; None where its grid isn't known, or too large."""
    mapping = each.params["grid_mapping"]
    grid = mapping.grid
    if not all(isinstance(size, int) for size in grid) or math.prod(grid) > MOST_STEPS:
        return None
    steps = np.indices(grid, dtype=np.int64).reshape(len(grid), math.prod(grid))
    prefetched = list(values[: mapping.num_index_operands])
    body = each.params["jaxpr"]
    walk = _Body(tuple(grid), steps)
    walk.run(body, dict(zip(body.invars, prefetched, strict=False)), np.ones(steps.shape[1]))
    moved = [_moved(block, steps, prefetched, walk) for block in mapping.block_mappings]
    reads = [_size(var.aval) for var in each.invars[: mapping.num_index_operands]]
    inputs = mapping.num_inputs
    refs = body.invars[mapping.num_index_operands :]
    by_ref = [walk.copied.get(ref, (0.0, 0.0)) for ref in refs]
    reads += [n + by_ref[i][0] for i, n in enumerate(moved[:inputs])]
    writes = [n + by_ref[inputs + i][1] for i, n in enumerate(moved[inputs:])]
    named = each.params.get("name_and_src_info")
    return Counted(
        name=str(each.params.get("name") or getattr(named, "name", "") or ""),
        operands=tuple(_dims(var.aval) for var in each.invars),
        matrix=walk.matrix,
        vector=walk.vector,
        transcendentals=walk.transcendentals,
        reads=tuple(reads),
        writes=tuple(writes),
        types=tuple(walk.types),
        unsure=tuple(sorted(walk.unsure)),
    )


def _short(dtype: Any) -> str:
    """Return the name of a data type as HLO writes it: bf16, f32, s8, f8e4m3fn."""
    name = str(dtype)
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "s")):
        if name.startswith(long):
            return name.replace(long, short, 1).replace("_", "")
    return name


def _dims(aval: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in aval.shape)


def _size(aval: Any) -> float:
    """Return the bytes of an array, or of what a reference points to."""
    inner = getattr(aval, "inner_aval", aval)
    bits = getattr(inner.dtype, "itemsize", 4)
    return float(math.prod(inner.shape)) * (0.5 if "int4" in str(inner.dtype) else bits)


def _space(aval: Any) -> str:
    return str(getattr(aval, "memory_space", None)).rpartition(".")[2].lower()


def _moved(block: Any, steps: Any, prefetched: Sequence[Any], walk: _Body) -> float:
    """Return the bytes that a block is fetched or written back with, over the whole grid."""
    if _space(block.block_aval) in ("any", "hbm"):
        return 0.0  # stays where it is: the kernel copies itself
    closed = block.index_map_jaxpr
    inner = closed.jaxpr
    known = dict(zip(inner.constvars, map(_small, closed.consts), strict=False))
    known |= dict(zip(inner.invars, [*steps, *prefetched], strict=False))
    reader = _Body(walk.grid, steps)
    reader.run(inner, known, np.ones(steps.shape[1]))
    indices = []
    for var in inner.outvars:
        value = _value(var, known)
        if value is None:
            walk.unsure.add("blocks chosen by data")
            return float(steps.shape[1]) * _size(block.block_aval)
        indices.append(np.broadcast_to(value, steps.shape[1:]))
    places = np.stack(indices) if indices else np.zeros((1, steps.shape[1]))
    new = np.ones(steps.shape[1], dtype=bool)
    new[1:] = (places[:, 1:] != places[:, :-1]).any(axis=0)
    return _clipped(block, places[:, new])


def _clipped(block: Any, places: Any) -> float:
    """Return the bytes of blocks at these places: what lies outside of the array isn't moved."""
    array = getattr(block, "array_aval", None) or block.array_shape_dtype
    elements = np.ones(places.shape[1])
    for place, whole, size in zip(places, array.shape, block.block_shape, strict=True):
        length = getattr(size, "block_size", size if isinstance(size, int) else 1)
        first = place * length if type(size).__name__ != "Element" else place
        elements = elements * np.clip(whole - first, 0, length)
    item = 0.5 if "int4" in str(array.dtype) else array.dtype.itemsize
    return float(elements.sum()) * item


# --- its body -------------------------------------------------------------------------------------


def _ends(copy: Any) -> list[tuple[Any, Sequence[Any]]]:
    """Return source and target of a copy: each the reference, and which part of it."""
    parts = copy.params["tree"].unflatten(copy.invars)
    if len(parts) >= 8:  # before JAX 0.8: each reference, then its parts
        return [(parts[0], parts[1]), (parts[2], parts[3])]
    return [(getattr(part, "ref", part), getattr(part, "transforms", ())) for part in parts[:2]]


@dataclass
class _Body:
    """A walk over a kernel's body, at all steps of its grid at once.

    Known scalars are arrays with one number for each step, or one for all; `weight` says how often
    a part runs in each step.
    """

    grid: tuple[int, ...]
    steps: Any
    matrix: float = 0.0
    vector: float = 0.0
    transcendentals: float = 0.0
    copied: dict[Any, tuple[float, float]] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    types: dict[str, None] = field(default_factory=dict)
    refs: dict[Any, Any] = field(default_factory=dict)

    def run(self, jaxpr: Any, known: dict[Any, Any], weight: Any) -> None:
        """Count what a jaxpr does."""
        for each in jaxpr.eqns:
            name = each.primitive.name
            values = [_value(var, known) for var in each.invars]
            if name == "cond":
                self._branches(each, values, weight)
            elif name == "scan":
                self._scan(each, values, weight)
            elif name == "while":
                self._while(each, values, weight)
            elif name == "dma_start":
                self._copy(each, weight)
            elif name == "shard_map":
                everywhere = weight * each.params["mesh"].size
                self._enter(next(_inside(each))[0], each.invars, values, everywhere)
            elif name in ("pallas_call", "conv_general_dilated", "ragged_dot_general"):
                self.unsure.add(name)  # only where it isn't a kernel's body
            elif name in ("program_id", "num_programs"):
                axis = each.params["axis"]
                known[each.outvars[0]] = (
                    self.steps[axis] if name == "program_id" else np.asarray(self.grid[axis])
                )
            elif any(True for _ in _inside(each)) and name not in _REDUCING:
                self._call(each, values, known, weight)
            else:
                self._count(each, weight)
                result = self._scalar(each, values)
                if result is not None:
                    known[each.outvars[0]] = result

    def _enter(self, jaxpr: Any, outer: Sequence[Any], values: Sequence[Any], weight: Any) -> Any:
        """Count a jaxpr inside, whose inputs are these variables with these values."""
        given = dict(zip(jaxpr.invars, values, strict=False))
        for inside, outside in zip(jaxpr.invars, outer, strict=False):
            if not hasattr(outside, "val"):
                self.refs[inside] = self.refs.get(outside, outside)
        self.run(jaxpr, given, weight)
        return [_value(var, given) for var in jaxpr.outvars]

    def _call(self, each: Any, values: Sequence[Any], known: dict[Any, Any], weight: Any) -> None:
        inner, _ = next(_inside(each))
        results = self._enter(inner, each.invars, values, weight)
        for var, result in zip(each.outvars, results, strict=False):
            if result is not None:
                known[var] = result

    def _branches(self, each: Any, values: Sequence[Any], weight: Any) -> None:
        branches, chosen = each.params["branches"], values[0]
        if chosen is None:
            if len(branches) > 1 and any(branch.jaxpr.eqns for branch in branches):
                self.unsure.add("branches chosen by data")
            costs = []
            for branch in branches:  # the dearest
                alone = _Body(self.grid, self.steps)
                alone.run(branch.jaxpr, {}, np.ones(1))
                costs.append(alone.matrix + alone.vector + sum(map(sum, alone.copied.values())))
            dearest = branches[int(np.argmax(costs))]
            self._enter(dearest.jaxpr, each.invars[1:], values[1:], weight)
            return
        for number, branch in enumerate(branches):
            taken = weight * (np.asarray(chosen) == number)
            if np.any(taken):
                self._enter(branch.jaxpr, each.invars[1:], values[1:], taken)

    def _scan(self, each: Any, values: Sequence[Any], weight: Any) -> None:
        constants = each.params["num_consts"]
        inner = each.params["jaxpr"].jaxpr
        given = [*values[:constants], *[None] * (len(inner.invars) - constants)]
        self._enter(inner, each.invars, given, weight * each.params["length"])

    def _while(self, each: Any, values: Sequence[Any], weight: Any) -> None:
        before, inside = each.params["cond_nconsts"], each.params["body_nconsts"]
        body = each.params["body_jaxpr"].jaxpr
        turns = self._turns(each, values)
        if turns is None:
            self.unsure.add("loops whose turns depend on data")
            turns = 1
        constants = values[before : before + inside]
        given = [*constants, *[None] * (len(body.invars) - len(constants))]
        self._enter(body, each.invars[before:], given, weight * turns)

    def _turns(self, each: Any, values: Sequence[Any]) -> Any:
        """Return how often a loop turns whose counter goes up by one; None for others."""
        before, inside = each.params["cond_nconsts"], each.params["body_nconsts"]
        test = each.params["cond_jaxpr"].jaxpr
        if len(test.eqns) != 1 or test.eqns[0].primitive.name != "lt":
            return None
        given = dict(zip(test.invars, [*values[:before], *values[before + inside :]], strict=True))
        first, bound = (_value(var, given) for var in test.eqns[0].invars)
        if first is None or bound is None:
            return None
        return np.maximum(np.asarray(bound) - np.asarray(first), 0)

    def _copy(self, each: Any, weight: Any) -> None:
        """Count a copy that the kernel starts: from or to the main memory."""
        for side, (ref, places) in enumerate(_ends(each)):
            if _space(ref.aval) in ("any", "hbm"):
                shape = places[-1].get_indexer_shape() if places else ref.aval.shape
                item = getattr(ref.aval.dtype, "itemsize", 4)
                amount = float(np.broadcast_to(weight, self.steps.shape[1:]).sum())
                amount *= math.prod(shape) * item
                outer = self.refs.get(ref, ref)
                read, written = self.copied.get(outer, (0.0, 0.0))
                sides = (read + amount, written) if side == 0 else (read, written + amount)
                self.copied[outer] = sides

    def _count(self, each: Any, weight: Any) -> None:
        """Add the FLOPs of an operation on arrays."""
        name = each.primitive.name
        shape = each.outvars[0].aval.shape if each.outvars else ()
        if not shape and name not in _REDUCING:
            return
        times = float(np.broadcast_to(weight, self.steps.shape[1:]).sum())
        n = math.prod(shape)
        if name == "dot_general":
            (contracted, _), _ = each.params["dimension_numbers"]
            inner = math.prod(each.invars[0].aval.shape[d] for d in contracted)
            self.matrix += 2 * n * inner * times
            names = dict.fromkeys(_short(var.aval.dtype) for var in each.invars)
            self.types["×".join(names)] = None
        elif name in _TRANSCENDENTAL:
            self.vector += n * times
            self.transcendentals += n * times
        elif name in _ARITHMETIC:
            self.vector += n * times
        elif name in _REDUCING:
            self.vector += math.prod(each.invars[0].aval.shape) * times

    def _scalar(self, each: Any, values: Sequence[Any]) -> Any:
        """Return the value of an operation on known scalars; None where it isn't one."""
        name = each.primitive.name
        if name == "get":
            return self._read(each, values)
        if len(each.outvars) != 1 or each.outvars[0].aval.shape or any(v is None for v in values):
            return None
        if name in _SCALARS:
            return _SCALARS[name](*values)
        if name == "div":
            whole = np.issubdtype(each.outvars[0].aval.dtype, np.integer)
            quotient = np.asarray(values[0]) / np.where(values[1] == 0, 1, values[1])
            return np.trunc(quotient).astype(np.int64) if whole else quotient
        if name == "select_n":
            return np.select(
                [np.asarray(values[0]) == i for i in range(len(values) - 1)], values[1:]
            )
        if name == "clamp":
            return np.clip(values[1], values[0], values[2])
        if name == "convert_element_type":
            return np.asarray(values[0]).astype(each.params["new_dtype"])
        if name in ("broadcast_in_dim", "reshape"):
            return values[0]
        return None

    def _read(self, each: Any, values: Sequence[Any]) -> Any:
        """Return the number that a known array holds at known places."""
        if values[0] is None or each.outvars[0].aval.shape:
            return None
        places = each.params["tree"].unflatten(values[1:])
        if len(places) != 1 or any(place is None for place in places[0].indices):
            return None
        try:
            index = tuple(np.asarray(place).astype(np.int64) for place in places[0].indices)
            return np.asarray(values[0])[index]
        except (IndexError, TypeError, ValueError):
            return None
