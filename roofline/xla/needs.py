"""Which part of each value any result needs: one walk from results back to arguments.

A slice needs the places that it takes, a select only those where its mask can be true, a product
only what meets something else than zero. What several users need adds up, unless they need the same
places. What a loop carries is needed as all its turns together need it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from roofline.xla import hlo
from roofline.xla.facts import Known, bitcast, offsets, padded, picked, sliced
from roofline.xla.graph import BRANCH, CARRY, ELEMENT, Graph, Node
from roofline.xla.parts import TURNS, Part, nothing, part, whole

PASSES = 3
"""Walks from which on what a loop carries counts as a whole, if more of it is needed each time."""

_EFFECTS = frozenset("outfeed send".split())
_BY_ELEMENT = (
    hlo.ARITHMETIC
    | hlo.TRANSCENDENTAL
    | frozenset(
        "copy convert reduce-precision bitcast-convert copy-start real imag complex erf atan2 "
        "stochastic-convert".split()
    )
)


@dataclass
class Needs:
    """Which part of each value is needed, and by which user it falls most.

    Parameters
    ----------
    known : Known
        What is known of the values.
    parts : dict of int to Part
        The needed part of each node, by its number.
    """

    known: Known
    parts: dict[int, Part] = field(default_factory=dict)

    def __getitem__(self, node: Node) -> Part:
        return self.parts[node.number]

    def useful(self, node: Node) -> Part:
        """Return the part of a node's work that results need, and that isn't on zeros.

        Of a product it is a part of its multiply-adds, of others of its elements.
        """
        space, used = self.known.spaces.get(node.number), self.known.used(node)
        if space is not None and used is not None:
            return space.of_result(self[node], _name(node, "useful")) & used
        return self[node] & self.known[node].nonzero

    def limit(self, node: Node, reach: int = 64) -> Node | None:
        """Return the user that reads only a part of what a node's readers need: a slice, a mask."""
        at = node
        for _ in range(reach):
            share, users = self[at].share, [u for u in at.users if self[u].share]
            if not users:
                return None
            largest = max(users, key=lambda user: self._asks(user, at))
            if self[largest].share > 1.2 * share or largest.op in hlo.SLICES:
                return largest
            at = largest
        return None

    def _asks(self, user: Node, node: Node) -> float:
        return max(need.share for operand, need in asked(self, user) if operand is node)


def needs_of(known: Known, roots: Iterable[tuple[Node, Part]] | None = None) -> Needs:
    """Return which part of each value of a graph is needed, by its results or by other `roots`."""
    graph, needs = known.graph, Needs(known)
    wholly = [*([] if roots is not None else graph.results), *graph.conditions]
    wholly += [node for node in graph.nodes if _has_effect(node)]
    always = [*(roots or ()), *((node, whole(node.dims)) for node in wholly)]
    carried: dict[int, Part] = {n.number: nothing(n.dims) for n in graph.nodes if n.op == CARRY}
    for walk in range(2 * PASSES + len(graph.loops)):
        _walk(needs, always, carried)
        after = {number: needs.parts[number] for number in carried}
        if after == carried:
            break
        wide = walk >= PASSES
        carried = {
            number: whole(now.dims) if wide and now != carried[number] else now
            for number, now in after.items()
        }
    return needs


def _has_effect(node: Node) -> bool:
    """Return whether a node does something besides computing its value."""
    if node.op != "custom-call" or node.instruction is None:
        return node.op in _EFFECTS
    target = node.instruction.target
    marker = target in hlo.FREE_CALLS or target.startswith("xla.sdy.")
    stated = node.attribute("custom_call_has_side_effect") == "true"
    return "callback" in target or (stated and not marker)


def _walk(needs: Needs, always: Iterable[tuple[Node, Part]], carried: Mapping[int, Part]) -> None:
    """Go once from results to arguments; `carried` is what the walk before found of loops."""
    graph = needs.known.graph
    needs.parts = {n.number: nothing(n.dims) for n in graph.nodes}
    for node, need in always:
        needs.parts[node.number] = needs[node] | need
    for loop in graph.loops.values():
        for node, back in zip(loop.carry, loop.back, strict=True):
            for each in (node, back):
                needs.parts[each.number] = needs[each] | carried[node.number]
    for node in reversed(graph.nodes):
        if needs[node].share:
            for operand, need in asked(needs, node):
                needs.parts[operand.number] = needs[operand] | need


def asked(needs: Needs, user: Node) -> Iterator[tuple[Node, Part]]:
    """Yield each operand of a node with the part of it that the node's own needed part needs."""
    for position, operand in enumerate(user.ops):
        need = _asked(needs, user, position, operand)
        turns = _turns(needs.known.graph, user, operand)
        yield (
            operand,
            need if turns is None else need.in_turns(turns, _name(user, "turns", position)),
        )


def _name(node: Node, *what: object) -> int:
    return hash((node.number, *map(str, what)))


def _turns(graph: Graph, user: Node, operand: Node) -> float | None:
    """Return how many turns of a user read one operand; None if it is made anew in each turn."""
    around = operand.loops[:-1] if operand.op == CARRY else operand.loops
    inside = user.loops[len(around) :]
    if not inside or user.op == CARRY:
        return None
    counts = [graph.loops[name].turns for name in inside]
    return math.inf if None in counts else math.prod(n for n in counts if n is not None)


def _asked(needs: Needs, user: Node, position: int, operand: Node) -> Part:
    """Return the part of an operand that a node's needed part needs, in one turn."""
    known, need, op = needs.known, needs[user], user.op
    name, dims = _name(user, "asks", position), operand.dims
    same = dims == user.dims
    if op in (CARRY, BRANCH):
        return need if same else _all(need, dims, name)
    space = known.spaces.get(user.number)
    if space is not None and position < 2:
        other = known[user.ops[1 - position]].nonzero
        places = space.of_result(need, name)
        places = places & space.of_side(other, 1 - position, name)
        return space.to_side(places, position, dims, name)
    if op == "select" and position and same:
        mask = known[user.ops[0]]
        if user.ops[0].dims != dims:
            return need
        return need & (mask.nonzero if position == 1 else mask.false)
    if op in ("multiply", "and") and same:
        return need & known[user.ops[1 - position]].nonzero
    if op in ("divide", "remainder") and same and position == 1:
        return need & known[user.ops[0]].nonzero
    if op in _BY_ELEMENT:
        return need if same else _all(need, dims, name)
    if position == 0:
        through = _through(user, operand, need, name)
        if through is not None:
            return through
    return _others(needs, user, position, operand, name)


def _all(need: Part, dims: tuple[int, ...], name: int) -> Part:
    """Return all of an operand, in the turns in which any of the result is needed."""
    return need.onto(dims, {}, name)


def _through(user: Node, operand: Node, need: Part, name: int) -> Part | None:
    """Return what an operation that only moves its first operand needs of it."""
    op, dims = user.op, operand.dims
    if op == "broadcast":
        return need.onto(dims, {new: n for n, new in enumerate(user.numbers("dimensions"))}, name)
    if op == "transpose":
        return need.onto(dims, dict(enumerate(user.numbers("dimensions"))), name)
    if op == "reshape":
        return need.turned(dims, name)
    if op == "bitcast":
        return bitcast(user, operand, need, name)
    if op == "reverse":
        return need.mirrored(user.numbers("dimensions"), name)
    if op == "slice":
        return need.placed(dims, sliced(user), name)
    if op == "dynamic-slice":
        return need.placed(dims, picked(user, dims, user.dims), name)
    if op == "pad":
        places = padded(user)
        return None if places is None else need.taken(dims, places, name)
    if op == "gather":
        return _gathered(user, operand, need, name)
    return None


def _gathered(user: Node, operand: Node, need: Part, name: int) -> Part:
    """Return what a gather needs: as many pieces as it has places, along the axes of its indices.

    Along the axes of which it takes all, it needs what is needed of its result.
    """
    dims, sizes = operand.dims, user.numbers("slice_sizes")
    batch = user.numbers("operand_batching_dims")
    gone = {*user.numbers("collapsed_slice_dims"), *batch}
    kept = [axis for axis in range(len(dims)) if axis not in gone]
    offset = dict(zip(user.numbers("offset_dims"), kept, strict=True))
    picked_axes = frozenset(axis for axis in range(len(dims)) if sizes[axis] != dims[axis])
    rows = need.onto(user.dims, {a: a for a in range(len(user.dims)) if a not in offset}, name)
    pieces = rows.share * math.prod(n for a, n in enumerate(user.dims) if a not in offset)
    through = {place: axis for place, axis in offset.items() if axis not in picked_axes}
    result = need.onto(dims, through, name)
    if not picked_axes:
        return result
    indices = hash(("gather", tuple(n.number for n in user.ops[1:]), rows.name))
    count = pieces * math.prod(sizes[axis] for axis in picked_axes)
    return result & part(dims, {picked_axes: {indices: count}})


def _others(needs: Needs, user: Node, position: int, operand: Node, name: int) -> Part:
    """Return what operations that compute along some axes, or place an operand, need of it."""
    need, op, dims = needs[user], user.op, operand.dims
    if op == "concatenate":
        return need.taken(dims, offsets(user)[position], name)
    if op == "dynamic-update-slice" and position == 0:
        return nothing(dims) if user.ops[1].dims == dims else need
    if op == "dynamic-update-slice" and position == 1:
        return _updates(needs, user, operand, name)
    if op == "scatter" and position == 0 and dims == user.dims:
        return need
    if op == "reduce" and position < len(user.ops) // 2:
        gone = set(user.numbers("dimensions"))
        kept = [axis for axis in range(len(dims)) if axis not in gone]
        return need.onto(dims, dict(enumerate(kept)), name)
    if op in ("sort", "scan") and dims == user.dims:
        along = set(user.numbers("dimensions"))
        return need.onto(dims, {a: a for a in range(len(dims)) if a not in along}, name)
    if op in ("fft", "cholesky", "triangular-solve") and len(dims) == len(user.dims):
        last = len(user.numbers("fft_length")) if op == "fft" else 2
        return need.onto(dims, {a: a for a in range(len(dims) - last)}, name)
    if op == ELEMENT and dims == user.dims:
        first = operand.number in needs.known.spaces and user.numbers("index") == (0,)
        if first or operand.op in ("sort", "reduce", "scan"):
            return need
    if op in ("all-reduce", "collective-permute") and dims == user.dims:
        return need.in_turns(math.inf, name)  # other devices may need other places
    return _all(need, dims, name)


def _updates(needs: Needs, user: Node, operand: Node, name: int) -> Part:
    """Return what an update in place needs of its new values.

    Along axes that these fill, it is what is needed of the result. A loop that writes each piece
    once, and reads none of them, needs no more of all pieces than is needed of the whole.
    """
    need, dims = needs[user], operand.dims
    short = {axis for axis, (a, b) in enumerate(zip(user.dims, dims, strict=True)) if a != b}
    through = {axis: axis for axis in range(len(dims)) if axis not in short}
    result = need.onto(dims, through, name)
    turns = _pieces(needs.known.graph, user)
    if turns is None or not short:
        return result
    groups = [axes for axes in need.along if axes & short]
    places = math.prod(need.count(axes) / need.places(axes) for axes in groups)
    share = places * math.prod(user.dims[a] for a in short) / math.prod(dims[a] for a in short)
    return result & part(dims, {TURNS: {name: min(1.0, share / turns)}})


def _pieces(graph: Graph, update: Node) -> int | None:
    """Return the turns of a loop that only writes pieces of what it carries; None of others."""
    carry = update.ops[0]
    if carry.op != CARRY or carry.loops != update.loops or not update.loops:
        return None
    loop = graph.loops[update.loops[-1]]
    pairs = dict(zip((n.number for n in loop.carry), loop.back, strict=True))
    alone = pairs.get(carry.number) is update and set(update.users) == {carry}
    inside = [user for user in carry.users if user.loops[: len(carry.loops)] == carry.loops]
    return loop.turns if alone and inside == [update] else None
