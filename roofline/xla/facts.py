"""What is known of each value before a program runs: one walk from arguments to results.

Where it can differ from zero, and where a mask can be false; its values, if only counters and
constants make them; the axes along which it varies; the type that the reader asked for. A zero is
taken to stay one when it is multiplied or divided, whatever by.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roofline.xla import hlo
from roofline.xla.graph import BRANCH, CARRY, ELEMENT, Graph, Node
from roofline.xla.hlo import Instruction
from roofline.xla.parts import Axes, Part, Places, Steps, chosen, nothing, part, whole
from roofline.xla.products import Space, space_of

Array: TypeAlias = "NDArray[Any]"

MOST_VALUES = 2**18
"""Elements of a value up to which it is computed from counters and constants."""

MOST_COMPUTED = 2**26
"""Elements of such values in a program from which on no more are computed."""


@dataclass(frozen=True)
class Facts:
    """What is known of one value.

    Parameters
    ----------
    nonzero : Part
        Where it can differ from zero: of a mask, where it can be true.
    false : Part
        Where a mask can be false.
    varies : frozenset of int
        The axes along which its values can differ.
    distinct : float
        The number of elements that can differ from each other.
    values : array or None
        Its values, with one element along axes where they don't vary; None if they aren't known.
    asked : str
        The type that it would have, had nothing been widened by accident.
    zeros : Node or None
        Where its zeros come from.
    widened : Node or None
        The cast that widened it by accident.
    most : mapping of int to float
        How many elements along an axis can differ from zero, wherever one is along the others: one
        in a row of an identity, whichever row data choose. Axes with no such limit are left out.
    """

    nonzero: Part
    false: Part
    varies: Axes
    distinct: float
    values: Array | None = None
    asked: str = ""
    zeros: Node | None = None
    widened: Node | None = None
    most: Mapping[int, float] = field(default_factory=dict)


@dataclass
class Known:
    """The facts of a graph's nodes, and the places of its products, both by the node's number."""

    graph: Graph
    facts: dict[int, Facts]
    spaces: dict[int, Space]
    computed: int = 0

    def __getitem__(self, node: Node) -> Facts:
        return self.facts[node.number]

    def used(self, node: Node) -> Part | None:
        """Return the places at which a product multiplies what can differ from zero.

        None if the node is no product.
        """
        space = self.spaces.get(node.number)
        if space is None:
            return None
        sides = (
            space.of_side(self[operand].nonzero, side, _name(node, "side", side))
            for side, operand in enumerate(node.ops[:2])
        )
        first, second = sides
        return first & second


def facts_of(graph: Graph) -> Known:
    """Return what is known of each value of a graph."""
    known = Known(graph, {}, {})
    backs = {
        node.number: back
        for loop in graph.loops.values()
        for node, back in zip(loop.carry, loop.back, strict=True)
    }
    for node in graph.nodes:
        if node.instruction is not None and len(node.ops) >= 2:
            space = space_of(node, graph.site(node))
            if space is not None:
                known.spaces[node.number] = space
        known.facts[node.number] = _facts(known, node, backs.get(node.number) is node)
    return known


def _name(node: Node, *what: object) -> int:
    """Return a name for what an operation makes of places."""
    return hash((node.number, *map(str, what)))


def _axes(dims: tuple[int, ...]) -> Axes:
    return frozenset(axis for axis, size in enumerate(dims) if size > 1)


def _facts(known: Known, node: Node, same: bool) -> Facts:
    """Return the facts of a node; `same` says that a loop carries it unchanged."""
    dims = node.dims
    unknown = Facts(whole(dims), whole(dims), _axes(dims), node.size, asked=node.dtype)
    if node.op == CARRY:
        before = known[node.ops[0]]
        return before if same else replace(unknown, asked=before.asked, widened=before.widened)
    if node.op == ELEMENT and node.numbers("index") == (0,) and node.dims == node.ops[0].dims:
        return known[node.ops[0]]  # of a library's product, beside its scratch memory
    product = node.number in known.spaces
    if node.op == BRANCH or (node.shape.parts is not None and not product):
        return unknown
    facts = [known[operand] for operand in node.ops]
    varies = _varies(known, node, facts)
    distinct = min(_distinct(node, facts), math.prod(dims[axis] for axis in varies))
    values = _values(known, node, facts)
    asked, widened = _asked(known, node, facts)
    nonzero, false = _nonzero(known, node, facts), _false(known, node, facts)
    if values is not None:
        varies = varies & _axes(values.shape)
        if node.dtype == "pred" or nonzero.share == 1:
            nonzero = nonzero & chosen(dims, values != 0)
            false = false & chosen(dims, values == 0) if node.dtype == "pred" else false
    elif node.op == "compare":
        true, untrue = _compared(node, facts)
        nonzero, false = nonzero & true, false & untrue
    most = {a: n for a, n in _most(known, node, facts, values).items() if n < dims[a]}
    for axis, count in most.items():
        others = _axes(dims) - {axis}
        total = count * math.prod(dims[other] for other in others)
        if total < nonzero.elements:
            nonzero = nonzero & part(dims, {others | {axis}: {_name(node, "most", axis): total}})
    zeros = _origin(node, facts, nonzero) if nonzero.share < 1 else None
    return Facts(nonzero, false, varies, distinct, values, asked, zeros, widened, most)


# --- places: how operations move them -------------------------------------------------------------


def moved(node: Node, given: Part) -> Part | None:
    """Return where a part of the first operand is in the result of an operation that only moves.

    None of other operations.
    """
    operand = node.ops[0] if node.ops else None
    if operand is None:
        return None
    name = _name(node, "moved")
    op, dims = node.op, node.dims
    if op in _KEPT and operand.dims == dims:
        return given
    if op == "broadcast":
        return given.onto(dims, dict(enumerate(node.numbers("dimensions"))), name)
    if op == "transpose":
        return given.onto(
            dims, {old: new for new, old in enumerate(node.numbers("dimensions"))}, name
        )
    if op == "reshape":
        return given.turned(dims, name)
    if op == "bitcast":
        return bitcast(operand, node, given, name)
    if op == "reverse":
        return given.mirrored(node.numbers("dimensions"), name)
    if op == "slice":
        return given.taken(dims, sliced(node), name)
    if op == "dynamic-slice":
        return given.taken(dims, picked(node, operand.dims, dims), name)
    return None


_KEPT = frozenset("copy convert reduce-precision bitcast-convert copy-start".split())


def bitcast(before: Node, after: Node, given: Part, name: int) -> Part:
    """Return a part after a bitcast: the same elements in memory, with other axes."""
    if before.dims == after.dims and before.shape.order == after.shape.order:
        return given
    if before.shape.bits != after.shape.bits or before.size != after.size:
        return given.onto(after.dims, {}, name)
    orders = [node.shape.order or tuple(range(len(node.dims))) for node in (before, after)]
    old = tuple(before.dims[axis] for axis in orders[0])
    new = tuple(after.dims[axis] for axis in orders[1])
    tiled = bool(before.shape.tile or after.shape.tile)
    in_rows = all(order == tuple(range(len(order))) for order in orders)
    alike = [size for size in old if size > 1] == [size for size in new if size > 1]
    if tiled and not in_rows and not alike:  # tiles lie in another order
        return anywhere(after.dims, given, name)
    given = given.onto(old, {axis: n for n, axis in enumerate(orders[0])}, name).turned(new, name)
    return given.onto(after.dims, dict(enumerate(orders[1])), name)


def anywhere(dims: tuple[int, ...], given: Part, name: int) -> Part:
    """Return a part of an array with as many elements as another, no matter where."""
    axes = frozenset(range(len(dims)))
    if not given.share:
        return nothing(dims)
    return part(dims, {axes: {hash((name, given.name)): given.elements}})


def sliced(node: Node) -> dict[int, Steps]:
    """Return the places that a slice takes, by axis, where it doesn't take all."""
    bounds = re.findall(r"\[(\d+):(\d+)(?::(\d+))?\]", node.attribute("slice"))
    steps = (Steps(int(start), int(step or 1)) for start, _, step in bounds)
    whole_axes = node.ops[0].dims
    return {
        axis: step
        for axis, (step, size) in enumerate(zip(steps, whole_axes, strict=True))
        if node.dims[axis] != size
    }


def picked(node: Node, large: tuple[int, ...], small: tuple[int, ...]) -> dict[int, Steps | int]:
    """Return a name for the places that indices pick, for each axis that is shorter."""
    first = 2 if node.op == "dynamic-update-slice" else 1
    return {
        axis: hash((axis, tuple(n.number for n in node.ops[first:])))
        for axis, (size, part) in enumerate(zip(large, small, strict=True))
        if size != part
    }


def padded(node: Node) -> dict[int, Steps] | None:
    """Return where a pad places its operand, by axis; None if it cuts some of it off."""
    edges = [list(map(int, axis.split("_"))) for axis in node.attribute("padding").split("x")]
    if any(low < 0 or high < 0 for low, high, *_ in edges):
        return None
    return {
        axis: Steps(low, 1 + (inner[0] if inner else 0))
        for axis, (low, high, *inner) in enumerate(edges)
        if low or high or any(inner)
    }


def offsets(node: Node) -> list[dict[int, Steps]]:
    """Return where a concatenation places each operand along its axis."""
    axis, at, places = node.numbers("dimensions")[0], 0, []
    for operand in node.ops:
        whole_axis = operand.dims[axis] == node.dims[axis]
        places.append({} if whole_axis else {axis: Steps(at)})
        at += operand.dims[axis]
    return places


# --- zeros ----------------------------------------------------------------------------------------

_KEEPS_ZERO = frozenset(
    "negate sine tan tanh sqrt cbrt abs sign floor ceil round-nearest-even round-nearest-afz "
    "real imag erf sinh asin atan asinh atanh exponential-minus-one log-plus-one divide remainder "
    "shift-left shift-right-logical shift-right-arithmetic popcnt".split()
)
_SUMS = frozenset("add subtract or maximum minimum xor complex atan2".split())
_PRODUCT = frozenset("multiply and".split())


def _nonzero(known: Known, node: Node, facts: list[Facts]) -> Part:
    """Return where a value can differ from zero."""
    op, dims = node.op, node.dims
    parts = [each.nonzero for each in facts]
    through = moved(node, parts[0]) if parts else None
    if through is not None:
        return through
    same = all(operand.dims == dims for operand in node.ops)
    if op in _KEEPS_ZERO and same:
        return parts[0]
    if op in _SUMS and same:
        return _joined(parts)
    if op in _PRODUCT and same:
        return parts[0] & parts[1] & _between(known, node)
    if op == "select":
        return _chosen(node, facts, [each.nonzero for each in facts])
    if op == "not":
        return facts[0].false
    if op == "pad" and parts[1].share == 0:
        places = padded(node)
        return whole(dims) if places is None else parts[0].placed(dims, places, _name(node, "pad"))
    if op == "concatenate":
        return _joined(
            [
                given.placed(dims, at, _name(node, "concatenate", n))
                for n, (given, at) in enumerate(zip(parts, offsets(node), strict=True))
            ]
        )
    if op == "dynamic-update-slice":
        at = picked(node, dims, node.ops[1].dims)
        return parts[0] | parts[1].placed(dims, at, _name(node, "update"))
    if op == "scatter" and len(parts) == 3:
        return parts[0] | anywhere(dims, parts[2], _name(node, "scatter"))
    if op == "gather":
        return parts[0].onto(dims, _window_axes(node), _name(node, "gather"))
    if op == "reduce" and len(parts) == 2 and _reduces_zeros(known.graph, node, facts[1]):
        gone = set(node.numbers("dimensions"))
        kept = [axis for axis in range(len(node.ops[0].dims)) if axis not in gone]
        return parts[0].onto(dims, {axis: n for n, axis in enumerate(kept)}, _name(node, "reduce"))
    space = known.spaces.get(node.number)
    if space is not None:
        used = [space.of_side(parts[side], side, _name(node, "side", side)) for side in range(2)]
        return space.to_result(used[0] & used[1], _name(node, "result"))
    return whole(dims)


def _joined(parts: list[Part]) -> Part:
    result = parts[0]
    for other in parts[1:]:
        result = result | other
    return result


def _chosen(node: Node, facts: list[Facts], parts: list[Part]) -> Part:
    """Return where a select has either of two parts; its mask may be one number for all."""
    mask = facts[0]
    if node.ops[0].dims != node.dims:
        return parts[1] | parts[2]
    return (mask.nonzero & parts[1]) | (mask.false & parts[2])


def _false(known: Known, node: Node, facts: list[Facts]) -> Part:
    """Return where a mask can be false."""
    dims = node.dims
    if node.dtype != "pred" or not facts or any(op.dtype != "pred" for op in node.ops):
        return whole(dims)
    parts = [each.false for each in facts]
    through = moved(node, parts[0])
    if through is not None:
        return through
    if node.op == "not":
        return facts[0].nonzero
    if node.op == "and":
        return parts[0] | parts[1]
    if node.op == "or":
        return parts[0] & parts[1]
    if node.op == "select":
        return _chosen(node, facts, parts)
    return whole(dims)


def _most(known: Known, node: Node, facts: list[Facts], values: Array | None) -> dict[int, float]:
    """Return how many elements along each axis can differ from zero, wherever along the others."""
    op, dims = node.op, node.dims
    if values is not None:
        nonzero = values != 0
        return {a: float(nonzero.sum(a).max(initial=0)) for a in _axes(values.shape)}
    if op == "compare":
        return _equal_along(node, facts)
    rows = [
        each.most if each.nonzero.share else dict.fromkeys(range(len(operand.dims)), 0.0)
        for each, operand in zip(facts, node.ops, strict=True)
    ]
    same = all(operand.dims == dims for operand in node.ops)
    if (op in _KEEPS_ZERO and same) or (op == "pad" and not facts[1].nonzero.share):
        return dict(rows[0])
    if op in _PRODUCT and same:
        return _fewer(rows)
    if (op in _SUMS and same) or op == "dynamic-update-slice":
        return _sums(rows[:2])
    if op == "select":
        return _sums([_fewer(rows[:2]) if node.ops[0].dims == dims else rows[1], rows[2]])
    if op == "concatenate":
        joined = _sums(rows)
        along = node.numbers("dimensions")[0]
        return {a: n if a == along else max(each[a] for each in rows) for a, n in joined.items()}
    if op == "gather":
        return {at: rows[0][axis] for axis, at in _offsets_of(node).items() if axis in rows[0]}
    most: dict[int, float] = {}
    for axis, count in rows[0].items() if rows else ():
        operand = node.ops[0].dims
        still = moved(node, part(operand, {frozenset({axis}): {-1 - axis: count}}))
        for group, sets in still.along.items() if still is not None else ():
            if len(group) == 1:
                most |= dict.fromkeys(group, sum(sets.values()))
    return most


def _fewer(rows: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the limits of what is zero where any of some values is."""
    return {axis: min(r[axis] for r in rows if axis in r) for row in rows for axis in row}


def _sums(rows: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the limits of what is zero where all of some values are."""
    return {axis: sum(r[axis] for r in rows) for axis in rows[0] if all(axis in r for r in rows)}


def _equal_along(node: Node, facts: list[Facts]) -> dict[int, float]:
    """Return how often a comparison with a counter is true along the counter's axis."""
    most: dict[int, float] = {}
    for side, each in enumerate(facts[:2] if node.attribute("direction") == "EQ" else ()):
        along = frozenset() if each.values is None else _axes(each.values.shape)
        if each.values is not None and len(along) == 1 and not along & facts[1 - side].varies:
            _, times = np.unique(each.values, return_counts=True)
            most |= dict.fromkeys(along, float(times.max()))
    return most


def _between(known: Known, node: Node) -> Part:
    """Return where a counter lies between two bounds, if each lower one is the upper one before.

    Bounds are taken to rise, as sums of sizes do: then each place lies between one pair of them.
    """
    sides = [_bounded(known, mask) for mask in node.ops]
    for lower, upper in (sides, sides[::-1]):
        if lower is None or upper is None or not lower.below or upper.below:
            continue
        groups = known[lower.node].varies
        apart = len(groups) == 1 and not groups & lower.axes and lower.axes == upper.axes
        if apart and lower.inclusive != upper.inclusive and _next(lower.node, upper.node):
            count = math.prod(node.dims[axis] for axis in lower.axes)
            return part(node.dims, {lower.axes | groups: {_name(node, "between"): count}})
    return whole(node.dims)


class _Bound(NamedTuple):
    """A bound of a counter: whether it is below it, or equal too, and the counter's axes."""

    node: Node
    below: bool
    inclusive: bool
    axes: Axes


def _bounded(known: Known, mask: Node) -> _Bound | None:
    """Return the bound of a counter in a comparison; None of other masks."""
    way = mask.attribute("direction")
    if mask.op != "compare" or way[:1] not in ("L", "G"):
        return None
    one, other = mask.ops[:2]
    for counter, bound, first in ((one, other, True), (other, one, False)):
        values = known[counter].values
        if values is not None and len(np.unique(values)) == values.size > 1:
            return _Bound(bound, (way[0] == "L") != first, way[1] == "E", known[counter].varies)
    return None


def _next(lower: Node, upper: Node) -> bool:
    """Return whether the lower bounds are the upper ones, moved on by one."""
    lower, upper = _unspread(lower), _unspread(upper)
    if lower.op == "concatenate" and [o.size for o in lower.ops] == [1, upper.size - 1]:
        before = _unspread(lower.ops[1])
        starts = [step.start for step in sliced(before).values()] if before.op == "slice" else [1]
        return not any(starts) and _unspread(before.ops[0]) is upper
    if lower.op != "pad" or lower.attribute("padding") not in ("1_0", "1_-1"):
        return False
    before = lower.ops[0]
    before = before.ops[0] if before.op == "slice" and not sliced(before)[0].start else before
    return before is upper


def _unspread(node: Node) -> Node:
    while node.op in ("broadcast", "reshape", "bitcast", "copy", "convert") and node.ops:
        node = node.ops[0]
    return node


def _reduces_zeros(graph: Graph, node: Node, start: Facts) -> bool:
    """Return whether a reduction of zeros is zero."""
    (inner,) = graph.module.called(node.instruction, "to_apply")  # type: ignore[arg-type]
    if inner.root.opcode in ("add", "or", "xor"):
        return start.nonzero.share == 0
    return inner.root.opcode in ("maximum", "minimum", "multiply", "and") and (
        start.values is not None and (not start.values.any() or bool(np.isinf(start.values).all()))
    )


def _offsets_of(node: Node) -> dict[int, int]:
    """Return which axis of a gather's result is along which axis of its operand."""
    gone = {*node.numbers("collapsed_slice_dims"), *node.numbers("operand_batching_dims")}
    kept = [axis for axis in range(len(node.ops[0].dims)) if axis not in gone]
    return dict(zip(kept, node.numbers("offset_dims"), strict=True))


def _window_axes(node: Node) -> dict[int, int]:
    """Return which axis of a gather's result is which axis of its operand, taken whole."""
    sizes, dims = node.numbers("slice_sizes"), node.ops[0].dims
    return {axis: at for axis, at in _offsets_of(node).items() if sizes[axis] == dims[axis]}


def _origin(node: Node, facts: list[Facts], nonzero: Part) -> Node:
    """Return where most zeros of a value come from."""
    found = [each for each in facts if each.zeros is not None and each.zeros.op != "constant"]
    if node.op == "select" and 0 in (facts[1].nonzero.share, facts[2].nonzero.share):
        mask, kept = facts[0], max(facts[1:], key=lambda each: each.nonzero.share)
        if kept.zeros is None or min(mask.nonzero.share, mask.false.share) < kept.nonzero.share:
            return mask.zeros or node.ops[0]
        return kept.zeros
    if node.op in ("compare", "pad", "iota", "constant") or not found:
        return node
    best = min(found, key=lambda each: each.nonzero.share)
    return best.zeros or node


# --- masks ----------------------------------------------------------------------------------------


def _compared(node: Node, facts: list[Facts]) -> tuple[Part, Part]:
    """Return where a comparison can be true, and where it can be false.

    Two counters along different axes are counted. A counter that is equal to something else is so
    once, where that doesn't vary along its axis.
    """
    dims, way = node.dims, node.attribute("direction")
    every = whole(dims), whole(dims)
    first, second = (each.values for each in facts[:2])
    if first is not None and second is not None and node.ops[0].dims == dims:
        axes = [_axes(array.shape) for array in (first, second)]
        if all(len(a) == 1 for a in axes) and axes[0] != axes[1]:
            true = _pairs(first.ravel(), second.ravel(), way)
            total = first.size * second.size
            names = [hash((first.tobytes(), second.tobytes(), way, side)) for side in range(2)]
            group = axes[0] | axes[1]
            return (
                part(dims, {group: {Places(names[0]): true}}),
                part(dims, {group: {Places(names[1]): total - true}}),
            )
    if way not in ("EQ", "NE"):
        return every
    for side, counter in enumerate((first, second)):
        if counter is None:
            continue
        along, others = _axes(counter.shape), facts[1 - side].varies
        if len(along) != 1 or along & others:
            continue
        _, times = np.unique(counter, return_counts=True)
        total = math.prod(dims[axis] for axis in others)
        equal = part(dims, {along | others: {node.number: float(times.max() * total)}})
        return (equal, every[1]) if way == "EQ" else (every[0], equal)
    return every


def _pairs(first: Array, second: Array, way: str) -> float:
    """Return the number of pairs of which a comparison is true."""
    ordered = np.sort(second)
    below = np.searchsorted(ordered, first, "left")  # smaller ones in the second
    upto = np.searchsorted(ordered, first, "right")
    total = len(first) * len(second)
    counts = {
        "GT": below.sum(),
        "GE": upto.sum(),
        "LE": total - below.sum(),
        "LT": total - upto.sum(),
        "EQ": (upto - below).sum(),
        "NE": total - (upto - below).sum(),
    }
    return float(counts[way])


# --- values ---------------------------------------------------------------------------------------

_TYPES: Mapping[str, Any] = {
    "pred": np.bool_,
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    "f32": np.float32,
    "f64": np.float64,
}

_COMPUTED: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "negate": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "remainder": np.fmod,
    "select": np.where,
    "clamp": lambda low, x, high: np.clip(x, low, high),
    "convert": lambda x: x,
    "copy": lambda x: x,
}

_WAYS: Mapping[str, Callable[..., Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _values(known: Known, node: Node, facts: list[Facts]) -> Array | None:
    """Return a value that counters and constants make, if it isn't large."""
    # narrow types round, so that only what is constant or moved is known of them
    narrow = np.float32 if bits_of(node.dtype) and node.op in _PASSING | {"constant"} else None
    kind = _TYPES.get(node.dtype, narrow)
    if kind is None or known.computed > MOST_COMPUTED:
        return None
    given = [each.values for each in facts]
    if any(array is None for array in given):
        return None
    with np.errstate(all="ignore"):
        array = _computed(node, given, kind)
    if array is None:
        return None
    known.computed += array.size
    return np.asarray(array).astype(kind)


def _computed(node: Node, given: list[Any], kind: Any) -> Any:
    op, dims = node.op, node.dims
    if op == "constant":
        return _constant(node)
    if op == "iota":
        axis = (node.numbers("iota_dimension") or (0,))[0]
        if not dims or dims[axis] > MOST_VALUES:
            return None
        return np.arange(dims[axis]).reshape([-1 if a == axis else 1 for a in range(len(dims))])
    if op == "broadcast":
        axes = node.numbers("dimensions")
        if list(axes) != sorted(axes):
            return None
        sizes = dict(zip(axes, given[0].shape, strict=True))
        return given[0].reshape([sizes.get(axis, 1) for axis in range(len(dims))])
    if op == "transpose":
        return given[0].transpose(node.numbers("dimensions"))
    if op == "reshape":
        if node.size > MOST_VALUES and given[0].size > 1:
            return None
        if given[0].size == 1:
            return given[0].reshape([1] * len(dims))
        return np.broadcast_to(given[0], node.ops[0].dims).reshape(dims)
    if op == "slice":
        steps = sliced(node)
        return given[0][
            tuple(
                slice(s.start, s.start + s.step * dims[a], s.step)
                if (s := steps.get(a)) is not None and given[0].shape[a] > 1
                else slice(None)
                for a in range(len(dims))
            )
        ]
    if op == "concatenate" and node.size <= MOST_VALUES:
        parts = [np.broadcast_to(g, n.dims) for g, n in zip(given, node.ops, strict=True)]
        return np.concatenate(parts, node.numbers("dimensions")[0])
    if len({operand.dims for operand in node.ops}) > 1 and op != "clamp":
        return None
    if given and math.prod(np.broadcast_shapes(*(g.shape for g in given))) > MOST_VALUES:
        return None
    if op == "compare":
        return _WAYS[node.attribute("direction")](*given)
    if op == "divide":
        return _divided(given[0], given[1], kind)
    return _COMPUTED[op](*given) if op in _COMPUTED else None


def _divided(a: Array, b: Array, kind: Any) -> Any:
    if np.issubdtype(kind, np.integer):
        return np.trunc(a / np.where(b == 0, 1, b))
    return a / b


def _constant(node: Node) -> Array | None:
    text = node.instruction.literal if node.instruction is not None else ""
    if "..." in text or node.size > MOST_VALUES:
        return None
    words = re.findall(r"true|false|-?inf|nan|-?[\d.]+(?:e[+-]?\d+)?", text)
    if len(words) != node.size:
        return None
    numbers = [{"true": 1.0, "false": 0.0}.get(word) for word in words]
    values = [float(w) if n is None else n for w, n in zip(words, numbers, strict=True)]
    array = np.array(values).reshape(node.dims)
    if array.size and (array == array.flat[0]).all():
        return array.reshape(-1)[:1].reshape([1] * len(node.dims))
    return array


# --- axes, and how many elements differ -----------------------------------------------------------


def _varies(known: Known, node: Node, facts: list[Facts]) -> Axes:
    """Return the axes along which a value can differ."""
    dims, every = node.dims, _axes(node.dims)
    op = node.op
    if op == "constant":
        return frozenset() if node.size == 1 else every
    if op == "iota":
        return frozenset(node.numbers("iota_dimension") or (0,)) & every
    if not facts:
        return every
    space = known.spaces.get(node.number)
    if space is not None:
        sides = [
            {place for axis, place in space.sides[n].items() if axis in facts[n].varies}
            | ({*range(space.result)} if len(space.sides[n]) < len(node.ops[n].dims) else set())
            for n in range(2)
        ]
        return every & (sides[0] | sides[1])
    if op in ("slice", "dynamic-slice", "reverse", "copy", "convert") or (
        op in hlo.ARITHMETIC | hlo.TRANSCENDENTAL and all(o.dims == dims for o in node.ops)
    ):
        return every & frozenset().union(*(each.varies for each in facts))
    if op == "reduce":
        gone = set(node.numbers("dimensions"))
        kept = [axis for axis in range(len(node.ops[0].dims)) if axis not in gone]
        return every & {n for n, axis in enumerate(kept) if axis in facts[0].varies}
    # axes along which the operand varies, as a part of which one place is missing
    still = moved(node, _marked(node.ops[0].dims, facts[0].varies))
    if still is None or op in ("slice", "dynamic-slice"):
        return every
    return every & still.axes


def _marked(dims: tuple[int, ...], axes: Axes) -> Part:
    """Return a part that leaves out a place along each of some axes, so that these can be seen."""
    return part(dims, {frozenset({a}): {-1 - a: dims[a] - 0.5} for a in axes if dims[a] > 1})


def _distinct(node: Node, facts: list[Facts]) -> float:
    """Return how many elements of a value can differ from each other."""
    if not facts:
        return node.size
    if node.op in ("broadcast", "reshape", "bitcast", "transpose", "copy", "convert", "reverse"):
        return min(facts[0].distinct, node.size)
    if node.op in hlo.ARITHMETIC | hlo.TRANSCENDENTAL:
        varying = [each for each in facts if each.varies]
        if len(varying) <= 1:
            return min(varying[0].distinct if varying else 1.0, node.size)
    return node.size


# --- types ----------------------------------------------------------------------------------------

_FLOATS = {"f64": 64, "f32": 32, "bf16": 16, "f16": 16, "f8e4m3fn": 8, "f8e5m2": 8}
"""Bits of the floating-point types that JAX promotes between."""

_PASSING = frozenset(
    "broadcast reshape transpose bitcast copy slice dynamic-slice gather reverse pad reduce "
    "reduce-window scan sort dynamic-update-slice scatter concatenate all-reduce all-gather "
    "reduce-scatter all-to-all collective-permute".split()
)


def bits_of(dtype: str) -> int:
    """Return the bits of a floating-point type; 0 of others."""
    return _FLOATS.get(dtype, 0)


def _asked(known: Known, node: Node, facts: list[Facts]) -> tuple[str, Node | None]:
    """Return the type that a value would have without accidents, and the cast that widened it."""
    own, bits = node.dtype, bits_of(node.dtype)
    if not bits or not facts:
        return own, None
    if node.op == "convert":
        before = facts[0]
        if not bits_of(before.asked) or bits <= bits_of(before.asked):
            return own, None
        if before.widened is not None and bits_of(node.ops[0].dtype) >= bits:
            return before.asked, before.widened
        return (before.asked, before.widened or node) if accidental(known, node) else (own, None)
    space = known.spaces.get(node.number)
    if space is not None:
        pair = [(f, bits_of(f.asked)) for f in facts[:2]]
        narrow = min(pair, key=lambda each: each[1])[0]
        kinds = [bits_of(operand.dtype) for operand in node.ops[:2]]
        narrowed = 0 < bits_of(narrow.asked) < max(kinds)
        return (narrow.asked, narrow.widened) if narrowed and bits <= max(kinds) else (own, None)
    if node.op in _PASSING or node.op in hlo.ARITHMETIC | hlo.TRANSCENDENTAL:
        sides = [(f, op) for f, op in zip(facts, node.ops, strict=True) if bits_of(op.dtype)]
        largest = max((f.distinct for f, _ in sides), default=0.0)
        # what is much smaller, a number or a vector, hasn't asked for the type of a matrix
        sides = [(f, op) for f, op in sides if 8 * f.distinct > largest]
        if not sides:
            return own, None
        widest, _ = max(sides, key=lambda side: bits_of(side[0].asked))
        if bits_of(widest.asked) < bits:
            widened = [f.widened for f, _ in sides if f.widened is not None]
            return (widest.asked, widened[0]) if widened else (own, None)
    return own, None


def accidental(known: Known, cast: Node) -> bool:
    """Return whether JAX's promotion made a cast, and not the reader.

    Then it is part of an expression that has another operand: both have the same place in the
    code. Where a program has no columns, casts of the same line count as accidents.
    """
    if cast.op_name.endswith(("dot_general", "conv_general_dilated")):
        return True
    place, left = place_of(cast), list(cast.users)
    for user in left:
        if user.op in ("broadcast", "reshape", "transpose") and len(left) < 16:
            left += user.users
        joins = len(user.ops) > 1 and user.op not in ("reduce", "sort", "scan", "reduce-window")
        if joins and place_of(user) == place:
            return True
    return False


def place_of(node: Node) -> str:
    """Return the text that says where in the code an operation is."""
    places = (place_in(each) for each in (node.instruction, node.caller) if each is not None)
    return next(filter(None, places), "")


def place_in(instruction: Instruction) -> str:
    """Return the text that says where in the code an instruction is; empty without any."""
    found = re.search(r"stack_frame_id=\d+|source_file=.*", instruction.metadata)
    return found.group() if found else ""
