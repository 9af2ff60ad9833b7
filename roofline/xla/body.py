"""The body of a Pallas kernel, walked through at all steps of its grid at once.

Branches (`pl.when`) that depend on the position in the grid, or on constants, count in the steps
that take them; loops count every iteration. Where data decide, the least counts: the cheapest
branch, and nothing of a loop without a known count or a copy without a known size. With `most` it
is the dearest branch; such loops and copies then make the count `endless`. Bytes are those that the
body itself moves: copies that it starts (`make_async_copy`) on a TPU, loads and stores on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roofline.xla.windows import Window

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn, Var

Value: TypeAlias = Any
"""A number, or an array with one number for each step of the grid."""

Values: TypeAlias = "Sequence[Any]"
"""Of the inputs of an equation; None for what isn't known."""

Known: TypeAlias = "dict[Var, Value]"
"""The known values of variables."""

Positions: TypeAlias = "NDArray[Any]"
"""[axes, steps]: where each step is in the grid."""

_TRANSCENDENTAL = frozenset(
    "exp exp2 expm1 log log1p tanh logistic erf erfc erf_inv sin cos tan sqrt rsqrt cbrt pow atan2 "
    "asin acos atan sinh cosh asinh acosh atanh digamma lgamma".split()
)
_ARITHMETIC = frozenset(
    "add sub mul div rem max min neg sign abs floor ceil round eq ne lt le gt ge and or not xor "
    "select_n clamp integer_pow nextafter is_finite shift_left shift_right_logical square "
    "shift_right_arithmetic add_any population_count clz one_minus_square".split()
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
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "floor": np.floor,
    "ceil": np.ceil,
}


def small(value: object) -> Value | None:
    """Return a constant as an array, or None if it is large: indices don't depend on weights."""
    if getattr(value, "size", 0) > 1_000_000 or getattr(value, "dtype", None) is None:
        return None
    try:
        return np.asarray(value)
    except Exception:  # a shape without a value
        return None


def value_of(var: Var, known: Known) -> Value | None:
    """Return the value of a variable, None if it isn't known."""
    if hasattr(var, "val"):
        return np.asarray(var.val)
    return known.get(var)


def inside(equation: JaxprEqn) -> Iterator[tuple[Jaxpr, Sequence[object]]]:
    """Yield the jaxprs among the parameters of an equation, and their constants."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple | list) else [value]:
            if hasattr(part, "jaxpr") and hasattr(part, "consts"):
                yield part.jaxpr, part.consts
            elif hasattr(part, "eqns"):
                yield part, ()


def short(dtype: Any) -> str:
    """Return the name of a data type as HLO writes it: bf16, f32, s8, f8e4m3fn."""
    name = str(dtype)
    for long, letters in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "s")):
        if name.startswith(long):
            return name.replace(long, letters, 1).replace("_", "")
    return name


MAIN = ("any", "hbm")
"""Memory spaces of references in the main memory: a kernel's body copies from and to them."""


def space_of(aval: Any) -> str:
    """Return the memory space of a reference: "vmem", "smem", "any" …, "none" for none."""
    return str(getattr(aval, "memory_space", None)).rpartition(".")[2].lower()


def item_bytes(dtype: Any) -> float:
    """Return the bytes of one element."""
    return 0.5 if "int4" in str(dtype) else float(getattr(dtype, "itemsize", 4))


MOST_EQUATIONS = 100_000
"""A loop with more, over all turns, isn't followed turn by turn: its branches count as unknown."""

_ADDING = ("addupdate", "atomic_rmw", "atomic_cas")
_SPECIAL = {
    "cond": "_branches",
    "scan": "_scan",
    "while": "_while",
    "program_id": "_place",
    "num_programs": "_place",
    "dma_start": "_copy",
    **dict.fromkeys(("get", "load", "masked_load", "swap", "masked_swap"), "_touch"),
    **dict.fromkeys(_ADDING, "_touch"),
    **dict.fromkeys(("pallas_call", "mpmd_map"), "_uncounted"),
    "dot_general": "_product",
    "ragged_dot_general": "_product",
    "conv_general_dilated": "_convolution",
}
"""Operations with their own rule, and the rule."""


def _copied(ref: Any, transforms: Sequence[Any]) -> float | None:
    """Return the bytes that the indexers of a reference select; None if data say how many."""
    kind = ref.aval.dtype
    size = float(math.prod(ref.aval.shape) * item_bytes(kind))
    for transform in transforms or ():
        kind = getattr(transform, "dtype", kind)  # from here on it is read as another type
        if hasattr(transform, "get_indexer_shape"):
            sizes = transform.get_indexer_shape()
            if not all(isinstance(n, int) for n in sizes):
                return None
            size = float(math.prod(sizes) * item_bytes(kind))
    return size


def _ends(copy: Any) -> list[tuple[Any, Sequence[Any]]]:
    """Return source and target of a copy: each as a reference and its indexers."""
    parts = copy.params["tree"].unflatten(copy.invars)
    if len(parts) >= 8:  # before JAX 0.8: each reference, then its parts
        return [(parts[0], parts[1]), (parts[2], parts[3])]
    first = parts[:2]
    return [(getattr(part, "ref", part), getattr(part, "transforms", ())) for part in first]


def _scalar(equation: JaxprEqn, values: Values) -> Value | None:
    """Return the value of an operation on known scalars, or None."""
    name = equation.primitive.name
    if name == "get":
        return _read(equation, values)
    scalar = len(equation.outvars) == 1 and not equation.outvars[0].aval.shape
    if not scalar or any(v is None for v in values):
        return None
    if name in _SCALARS:
        return _SCALARS[name](*values)
    if name == "div":
        whole = np.issubdtype(equation.outvars[0].aval.dtype, np.integer)
        divisor = np.where(values[1] == 0, 1, values[1])
        quotient = np.asarray(values[0]) / divisor
        return np.trunc(quotient).astype(np.int64) if whole else quotient
    if name == "select_n":
        chosen, *cases = map(np.asarray, values)
        return np.select([chosen == number for number in range(len(cases))], cases)
    if name == "clamp":
        return np.clip(values[1], values[0], values[2])
    if name == "convert_element_type":
        return np.asarray(values[0]).astype(equation.params["new_dtype"])
    if name in ("broadcast_in_dim", "reshape", "squeeze", "copy", "stop_gradient"):
        return values[0]
    return None


def _read(equation: JaxprEqn, values: Values) -> Value | None:
    """Return the number in a known array at known indices."""
    if values[0] is None or equation.outvars[0].aval.shape:
        return None
    indexers = equation.params["tree"].unflatten(values[1:])
    if len(indexers) != 1 or any(index is None for index in indexers[0].indices):
        return None
    try:
        indices = (np.asarray(index).astype(np.int64) for index in indexers[0].indices)
        return np.asarray(values[0])[tuple(indices)]
    except (IndexError, TypeError, ValueError):
        return None


@dataclass
class Body:
    """A walk over a kernel's body, at all steps of its grid at once.

    Known scalars are arrays with one number for each step, or one for all; `weight` is the number
    of runs of a part in each step. `loads` is whether each use of a reference in the body reads or
    writes the main memory, and `moved` holds the bytes of each reference. `unsure` says what data
    decide; with `most` it counts as the most that can be, if that has an end.
    """

    grid: tuple[int, ...]
    steps: Positions
    loads: bool = False
    most: bool = False
    endless: bool = False
    matrix: float = 0.0
    vector: float = 0.0
    transcendentals: float = 0.0
    moved: dict[Any, float] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    types: dict[str, None] = field(default_factory=dict)
    refs: dict[Any, Any] = field(default_factory=dict)

    def run(self, jaxpr: Jaxpr, known: Known, weight: Value) -> None:
        """Count the equations of a jaxpr."""
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            values = [value_of(var, known) for var in equation.invars]
            if name in _SPECIAL:
                getattr(self, _SPECIAL[name])(equation, values, known, weight)
            elif any(True for _ in inside(equation)) and name not in _REDUCING:
                self._call(equation, values, known, weight)
            else:
                self._count(equation, weight)
            result = _scalar(equation, values)
            if result is not None:
                known[equation.outvars[0]] = result

    def _times(self, weight: Value) -> float:
        """Return the number of runs in all steps together."""
        return float(np.broadcast_to(weight, self.steps.shape[1:]).sum())

    def _enter(
        self,
        inputs: Sequence[Var],
        jaxpr: Jaxpr,
        outer: Sequence[Var],
        values: Values,
        weight: Value,
    ) -> Any:
        """Count an inner jaxpr with these variables and values as inputs."""
        known = dict(zip(inputs, values, strict=False))
        for within, without in zip(inputs, outer, strict=False):
            if not hasattr(without, "val"):
                self.refs[within] = self.refs.get(without, without)
        self.run(jaxpr, known, weight)
        return [value_of(var, known) for var in jaxpr.outvars]

    # --- rules of other operations: each gets the equation, its values, all values, its weight

    def _uncounted(self, equation: JaxprEqn, *_: object) -> None:
        self.unsure.add(equation.primitive.name)  # only outside of a kernel's body

    def _product(self, equation: JaxprEqn, _: object, __: object, weight: Value) -> None:
        """Count a matmul; of a ragged one, each row with the weights of its group."""
        grouped: tuple[int, ...] = ()
        numbers = equation.params.get("dimension_numbers")
        if numbers is None:
            ragged = equation.params["ragged_dot_dimension_numbers"]
            numbers, grouped = ragged.dot_dimension_numbers, tuple(ragged.rhs_group_dimensions)
        (_, contracted), (_, batch) = numbers
        lhs, rhs = (var.aval for var in equation.invars[:2])
        left_out = {*contracted, *batch, *grouped}
        columns = math.prod(n for d, n in enumerate(rhs.shape) if d not in left_out)
        self._multiplied(equation, math.prod(lhs.shape) * columns, weight)

    def _convolution(self, equation: JaxprEqn, _: object, __: object, weight: Value) -> None:
        """Count a convolution, without the taps that meet only padding."""
        lhs, rhs, out = (var.aval.shape for var in (*equation.invars, *equation.outvars))
        left, right, made = equation.params["dimension_numbers"]
        macs = lhs[left[0]] // equation.params["batch_group_count"] * rhs[right[0]] * rhs[right[1]]
        names = "window_strides", "padding", "lhs_dilation", "rhs_dilation"
        sides = zip(
            left[2:], right[2:], made[2:], *(equation.params[n] for n in names), strict=True
        )
        for x, w, y, stride, (low, _), base, dilation in sides:
            macs *= Window(rhs[w], stride, low, base, dilation).taps(lhs[x], out[y])
        self._multiplied(equation, macs, weight)

    def _multiplied(self, equation: JaxprEqn, macs: int, weight: Value) -> None:
        """Add the FLOPs of so many multiply-adds, of complex numbers eight each."""
        types = [var.aval.dtype for var in equation.invars[:2]]
        flops = 8 if "complex" in str(types[0]) else 2
        self.matrix += flops * macs * self._times(weight)
        self.types["×".join(dict.fromkeys(map(short, types)))] = None

    def _place(self, equation: JaxprEqn, _: object, known: Known, __: object) -> None:
        """Note the position of each step in the grid, or the grid's size."""
        axis, whole = equation.params["axis"], equation.primitive.name == "num_programs"
        known[equation.outvars[0]] = np.asarray(self.grid[axis]) if whole else self.steps[axis]

    def _call(self, equation: JaxprEqn, values: Values, known: Known, weight: Value) -> None:
        (jaxpr, _), name = next(inside(equation)), equation.primitive.name
        # a call with its own memory (run_scoped) has its inputs as constants
        inputs = jaxpr.constvars if name == "run_scoped" else jaxpr.invars
        mapped = equation.params["mesh"].size if name == "shard_map" else 1
        times = weight * equation.params.get("global_axis_size", mapped)  # of an old JAX's pmap
        results = self._enter(inputs, jaxpr, equation.invars, values, times)
        known |= {v: r for v, r in zip(equation.outvars, results, strict=False) if r is not None}

    def _branches(self, equation: JaxprEqn, values: Values, _: object, weight: Value) -> None:
        branches, chosen = equation.params["branches"], values[0]
        if chosen is None:
            costs = [self._cost(equation.jaxpr) for equation in branches]
            flops, copied = zip(*costs, strict=True)
            self.unsure |= {"branches"} if max(flops) > min(flops) else set()
            self.unsure |= {"copies"} if max(copied) > min(copied) else set()
            totals = list(map(sum, costs))
            chosen = int(np.argmax(totals) if self.most else np.argmin(totals))
            jaxpr = branches[chosen].jaxpr
            self._enter(jaxpr.invars, jaxpr, equation.invars[1:], values[1:], weight)
            return
        for number, branch in enumerate(branches):
            taken = weight * (np.asarray(chosen) == number)
            if np.any(taken):
                jaxpr = branch.jaxpr
                self._enter(jaxpr.invars, jaxpr, equation.invars[1:], values[1:], taken)

    def _cost(self, jaxpr: Jaxpr) -> tuple[float, float]:
        """Return the FLOPs and the bytes of a branch on its own."""
        alone = Body(self.grid, self.steps, self.loads, self.most)
        alone.run(jaxpr, {}, np.ones(1))
        if alone.endless:
            return math.inf, math.inf
        return alone.matrix + alone.vector, sum(alone.moved.values())

    def _scan(self, equation: JaxprEqn, values: Values, _: object, weight: Value) -> None:
        groups = equation.params.get("ft_in")  # since JAX 0.11: constants, carries, slices
        constants = len(groups.unpack()[0]) if groups else equation.params["num_consts"]
        inner, length = equation.params["jaxpr"].jaxpr, equation.params["length"]
        unknown = [None] * (len(inner.invars) - constants)
        alone = Body(self.grid, self.steps, self.loads, self.most)
        alone.run(inner, dict(zip(inner.invars, [*values[:constants], *unknown], strict=True)), 1)
        if not alone.unsure or length * len(inner.eqns) > MOST_EQUATIONS:
            known = [*values[:constants], *unknown]
            self._enter(inner.invars, inner, equation.invars, known, weight * length)
            return
        carries = len(groups.unpack()[1]) if groups else equation.params["num_carry"]
        carried, slices = values[constants : constants + carries], unknown[carries:]
        for _ in range(length):  # what a turn does depends on its number, as of `emit_pipeline`
            known = [*values[:constants], *carried, *slices]
            carried = self._enter(inner.invars, inner, equation.invars, known, weight)[:carries]

    def _while(self, equation: JaxprEqn, values: Values, _: object, weight: Value) -> None:
        before, inner = equation.params["cond_nconsts"], equation.params["body_nconsts"]
        body, outer = equation.params["body_jaxpr"].jaxpr, equation.invars[before:]
        constants, first = list(values[before : before + inner]), list(values[before + inner :])
        unknown = [None] * len(first)
        turns = self._turns(equation, values)
        if turns is not None:
            alone = Body(self.grid, self.steps, self.loads, self.most)
            alone.run(body, dict(zip(body.invars, [*constants, *unknown], strict=True)), 1)
            if not alone.unsure:
                self._enter(body.invars, body, outer, [*constants, *unknown], weight * turns)
                return
        if self._turn_by_turn(equation, constants, values[:before], first, weight):
            return
        self.unsure.add("trip counts")
        self.endless = self.most
        turns = int(self.most) if turns is None else turns
        self._enter(body.invars, body, outer, [*constants, *unknown], weight * turns)

    def _turn_by_turn(
        self,
        equation: JaxprEqn,
        constants: Values,
        asked: Values,
        carried: Values,
        weight: Value,
    ) -> bool:
        """Count a loop as it runs; without a count, return whether all its turns are known."""
        test, body = (equation.params[name].jaxpr for name in ("cond_jaxpr", "body_jaxpr"))
        outer = equation.invars[len(asked) :]
        turns: list[tuple[Values, Value]] = []
        walk, active = Body(self.grid, self.steps), np.asarray(True)
        for _ in range(MOST_EQUATIONS // (len(body.eqns) + 1)):
            [again] = walk._enter(test.invars, test, (), [*asked, *carried], 1)
            if again is None:
                return False
            active = active & again
            if not np.any(active):
                for turn, taken in turns:
                    self._enter(body.invars, body, outer, turn, weight * taken)
                return True
            turn = [*constants, *carried]
            turns.append((turn, active))
            carried = walk._enter(body.invars, body, (), turn, 1)
        return False

    def _turns(self, equation: JaxprEqn, values: Values) -> Value | None:
        """Return the trip count of a loop whose counter goes up by one; None for others."""
        before, inner = equation.params["cond_nconsts"], equation.params["body_nconsts"]
        test = equation.params["cond_jaxpr"].jaxpr
        if len(test.eqns) != 1 or test.eqns[0].primitive.name != "lt":
            return None
        inputs = [*values[:before], *values[before + inner :]]
        known = dict(zip(test.invars, inputs, strict=True))
        counter, end = test.eqns[0].invars
        first, bound = value_of(counter, known), value_of(end, known)
        if first is None or bound is None:
            return None
        body = equation.params["body_jaxpr"].jaxpr
        turned = zip(body.invars[inner:], body.outvars, strict=True)
        carried = dict(zip(map(id, test.invars[before:]), turned, strict=True))
        old, new = carried.get(id(counter), (None, None))
        as_before, after = carried.get(id(end), (None, None))
        for step in body.eqns if as_before is after else ():
            if step.primitive.name == "add" and step.outvars == [new]:
                by = [getattr(var, "val", None) for var in step.invars if var is not old]
                if by == [1]:
                    return np.maximum(np.asarray(bound) - np.asarray(first), 0)
        return None

    def _move(self, ref: Any, size: float | None, weight: Value) -> None:
        """Add the bytes of reading or writing a reference."""
        if size is None:
            self.unsure.add("sizes of copies")
            self.endless = self.most
            size = 0.0
        amount = self._times(weight) * size
        outer = self.refs.get(ref, ref)
        self.moved[outer] = self.moved.get(outer, 0.0) + amount

    def _copy(self, equation: JaxprEqn, _: object, __: object, weight: Value) -> None:
        """Count a copy that a TPU's kernel starts: from or to the main memory."""
        for ref, indexers in _ends(equation):
            if space_of(ref.aval) in MAIN:
                self._move(ref, _copied(ref, indexers), weight)

    def _touch(self, equation: JaxprEqn, _: object, __: object, weight: Value) -> None:
        """Count the loads and stores of a GPU's program; masked lanes count like others."""
        if self.loads:
            both = equation.primitive.name in _ADDING
            value = (equation.outvars or equation.invars[1:])[0]
            size = math.prod(value.aval.shape) * item_bytes(value.aval.dtype)
            self._move(equation.invars[0], 2 * size if both else size, weight)

    def _count(self, equation: JaxprEqn, weight: Value) -> None:
        """Add the FLOPs of an operation on arrays that multiplies no matrices."""
        name = equation.primitive.name
        shape = equation.outvars[0].aval.shape if equation.outvars else ()
        if not shape and name not in _REDUCING:
            return
        times = self._times(weight)
        n = math.prod(shape)
        if name in _TRANSCENDENTAL:
            self.vector += n * times
            self.transcendentals += n * times
        elif name in _ARITHMETIC:
            self.vector += n * times
        elif name in _REDUCING:
            self.vector += math.prod(equation.invars[0].aval.shape) * times
