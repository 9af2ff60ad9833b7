"""What the result of a program needs at least, from the program as JAX wrote it.

Its work as written, less what is in vain: values that nobody reads, products with zeros, values
computed twice, or again in each turn of a loop. Arguments and results cross the memory once, as far
as they are read, or change. Types are those of the arguments: a product that JAX's promotion
widened counts in the narrower type. No repair that keeps the algorithm takes less; another
algorithm, unit, type or order of products may.

Where it isn't known how much is needed, the least counts: the cheapest branch, for each example the
cheaper side of a choice that `vmap` made of a branch, places that data choose once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from roofline.xla.facts import Known, bits_of, facts_of
from roofline.xla.flops import (
    Flops,
    counted_as,
    declared,
    flops_of,
    is_depthwise,
    product_type,
)
from roofline.xla.graph import BRANCH, CARRY, Graph, Node
from roofline.xla.hlo import FREE_CALLS, Module, parse
from roofline.xla.lower import Lowered
from roofline.xla.needs import Needs, needs_of
from roofline.xla.pallas import PallasKernel
from roofline.xla.parts import Part, whole
from roofline.xla.roofs import chip_roofline
from roofline_helpers.chips import Chip
from roofline_helpers.common.show import Fields


@dataclass(frozen=True, repr=False)
class Needed(Fields):
    """What one device has to do for a program's result, at least.

    Parameters
    ----------
    bytes : float
        Bytes of arguments that are read, and of results that are new or changed, each once.
    matrix : mapping of str to float
        FLOPs of matmuls by their type, as in `Row.matrix_types`.
    vector : float
        All other FLOPs.
    refused : str
        Why this isn't known, with what would be needed: then there are no seconds, and the numbers
        above are those of the rest. Empty if it is known.
    notes : tuple of str
        What data decide, and how it was counted.

    Examples
    --------
    >>> from roofline_helpers import chips
    >>> work = Needed(bytes=25165824, matrix={"bf16": 2**34}, vector=0.0)
    >>> f"{work.seconds(chips.chip('v6e')):.2e}", work.limit(chips.chip("v6e"))
    ('1.87e-05', 'matrix')
    """

    bytes: float
    matrix: Mapping[str, float] = field(default_factory=dict)
    vector: float = 0.0
    refused: str = ""
    notes: tuple[str, ...] = ()

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return sum(self.matrix.values()) + self.vector

    def times(self, chip: Chip) -> dict[str, float]:
        """Return the least seconds on one device of a chip: of its memory and of its units.

        Published ceilings count. Empty if the chip's bandwidth isn't published.
        """
        chip = chip.per_device()
        roof = chip_roofline(chip, ())
        if roof is None:
            return {}
        matrix = 0.0
        for kind, flops in self.matrix.items():
            rate = chip_roofline(chip, (kind,)) or roof
            matrix += flops / rate.peak
        vector = self.vector / (roof.vector or roof.peak)
        return {"hbm": self.bytes / roof.bandwidth, "matrix": matrix, "vector": vector}

    def seconds(self, chip: Chip) -> float | None:
        """Return the least seconds on one device of a chip; None if that isn't known."""
        return None if self.refused else max(self.times(chip).values(), default=None)

    def limit(self, chip: Chip) -> str:
        """Return what takes the most of `times`: "hbm", "matrix" or "vector"; empty without any."""
        times = self.times(chip)
        return max(times, key=lambda name: times[name]) if times else ""


def needed_seconds(work: Needed | None, chip: Chip | None) -> float | None:
    """Return the least seconds that a result needs; None if they aren't known."""
    return None if work is None or chip is None else work.seconds(chip)


def needed_of(lowered: Lowered, turns: Mapping[str, int] | None = None) -> Needed:
    """Return what the result of a lowered program needs at least, on one of its devices.

    `turns` are as in `needed`.
    """
    stated = lowered.module.operation.attributes
    name = "mhlo.num_partitions"  # replicas, as of `pmap`, have arrays of their own
    devices = int(stated[name].value) if name in stated else 1
    return needed(lowered.written, devices=devices, calls=lowered.calls, turns=turns)


def needed(
    written: str | Module,
    *,
    devices: int = 1,
    calls: Sequence[PallasKernel] = (),
    turns: Mapping[str, int] | None = None,
) -> Needed:
    """Return what the result of a program needs at least, on one of its devices.

    Parameters
    ----------
    written : str or Module
        The HLO that JAX wrote, before any pass: `Lowered.written`. Of a sharded program it holds
        the whole arrays; each device is taken to do an equal part, and to receive nothing.
    devices : int
        Devices over which these arrays are spread.
    calls : sequence of PallasKernel
        Its Pallas kernels, as they were traced.
    turns : mapping of str to int, optional
        Trip counts that the program doesn't state, as in `analyze`.

    Raises
    ------
    UnreadableProgram
        Not HLO text.

    Examples
    --------
    >>> last = needed('''HloModule t
    ... ENTRY %m (a: f32[64,8], b: f32[8,32]) -> f32[1,32] {
    ...   %a = f32[64,8] parameter(0)
    ...   %b = f32[8,32] parameter(1)
    ...   %c = f32[64,32] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ...   ROOT %d = f32[1,32] slice(%c), slice={[63:64], [0:32]}
    ... }''')
    >>> last.matrix, last.bytes  # one row of 64, and what that takes of a
    ({'f32': 512.0}, 1184.0)
    """
    module = parse(written) if isinstance(written, str) else written
    graph = Graph(replace(module, partitions=devices), turns)
    known = facts_of(graph)
    changes = [_changed(known, result) for result in graph.results]
    roots = [root for change in changes for root in change.roots]
    needs = needs_of(known, roots)
    count = _Count(needs, calls)
    refused, notes = count.run()
    loops = [loop for loop in graph.loops.values() if loop.turns is None]
    if loops:
        name = loops[0].instruction.name
        line = graph.line(loops[0].carry[0]) if loops[0].carry else None
        called = f"{name} ({line})" if line is not None else name
        reason = f"nothing says how often the loop {called} turns: state it with turns="
        refused = [reason + f"{{{str(line or name)!r}: n}}", *refused]
    moved = sum(needs[node].share * node.shape.bytes for node in graph.parameters)
    moved += sum(
        change.elements / max(node.size, 1) * node.shape.bytes * _narrowing(known, node)
        for node, change in zip(graph.results, changes, strict=True)
    )
    return Needed(
        bytes=moved / devices,
        matrix={kind: flops / devices for kind, flops in count.matrix.items() if flops},
        vector=count.vector / devices,
        refused="; ".join(dict.fromkeys(refused)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _narrowing(known: Known, node: Node) -> float:
    """Return the share of a value's bytes that it would have without accidents."""
    asked, own = bits_of(known[node].asked), bits_of(node.dtype)
    return asked / own if asked and own else 1.0


# --- results that are arguments, changed in part --------------------------------------------------


@dataclass(frozen=True)
class _Change:
    """How a value differs from an argument, or from a slice of one.

    `source` is the argument and the indices of the slice, None of a value that is all new;
    `elements` are those that differ, and `roots` the values that they come from, as far as they do.
    """

    source: tuple[object, ...] | None
    elements: float
    roots: tuple[tuple[Node, Part], ...]


def _changed(known: Known, node: Node, depth: int = 32) -> _Change:
    """Return how a value differs from an argument in its place."""
    new = _Change(None, float(node.size), _wholly(node))
    if not depth:
        return new
    if node.op == "parameter":
        return _Change((node.number,), 0.0, ())
    if node.op == CARRY:
        return _carried(known, node, depth) or new
    if node.op == BRANCH:
        every = [_changed(known, operand, depth - 1) for operand in node.ops]
        least = min(every, key=lambda change: change.elements)
        return new if least.source is None else least
    if node.op == "select":
        old, mask = [_changed(known, side, depth - 1) for side in node.ops[1:]], known[node.ops[0]]
        for side, part in ((1, mask.nonzero), (0, mask.false)):
            if old[side].source is not None:
                chosen = part.share * node.size + old[side].elements
                mine = node.ops[2 - side]
                at = part if part.dims == mine.dims else whole(mine.dims)
                return _or_new(new, old[side], chosen, ((mine, at), *_wholly(node.ops[0])))
        return new
    if not node.ops or node.ops[0].dtype != node.dtype:
        return new
    before = _changed(known, node.ops[0], depth - 1)
    if before.source is None:
        return new
    if node.op in ("copy", "reshape", "bitcast", "convert"):
        return before
    if node.op == "dynamic-slice":
        return _Change((*before.source, *_indices(known, node.ops[1:])), 0.0, ())
    if node.op == "dynamic-update-slice":
        return _or_new(new, before, before.elements + node.ops[1].size, _wholly(*node.ops[1:]))
    if node.op == "scatter" and len(node.ops) == 3:
        return _or_new(new, before, before.elements + node.ops[2].size, _wholly(*node.ops[1:]))
    return new


def _wholly(*nodes: Node) -> tuple[tuple[Node, Part], ...]:
    return tuple((node, whole(node.dims)) for node in nodes)


def _indices(known: Known, nodes: Sequence[Node]) -> tuple[object, ...]:
    """Return indices as numbers where they are known, else as names of their nodes."""
    values = [known[node].values for node in nodes]
    return tuple(
        f"node {node.number}" if value is None else int(value.ravel()[0])
        for node, value in zip(nodes, values, strict=True)
    )


def _or_new(
    new: _Change, old: _Change, elements: float, roots: tuple[tuple[Node, Part], ...]
) -> _Change:
    """Return a change in part; all of it is new if that is less."""
    if elements >= new.elements:
        return new
    return _Change(old.source, elements, (*old.roots, *roots))


def _carried(known: Known, node: Node, depth: int) -> _Change | None:
    """Return how what a loop carries differs from an argument: updated in place, or a new stack."""
    loop = known.graph.loops[node.loops[-1]]
    back = dict(zip((n.number for n in loop.carry), loop.back, strict=True))[node.number]
    before = _changed(known, node.ops[0], depth - 1)
    if back is node:
        return before
    update = back
    while update.op in ("copy", "bitcast") and update.ops:
        update = update.ops[0]
    if update.op != "dynamic-update-slice" or update.ops[0] is not node or loop.turns is None:
        return None
    pieces, indices = update.ops[1], _indices(known, update.ops[2:])
    inner = _changed(known, pieces, depth - 1)
    if inner.source is not None and inner.source[1:] == indices:  # a slice of an argument's stack
        return _Change(inner.source[:1], inner.elements * loop.turns, inner.roots)
    if before.source is not None:
        elements = before.elements + loop.turns * pieces.size
        roots = (*before.roots, *_wholly(*update.ops[1:]))
        return _Change(before.source, min(elements, node.size), roots)
    return None


# --- FLOPs ----------------------------------------------------------------------------------------

_FREE = (
    frozenset("cu_threefry2x32 cu_threefry2x32_ffi Sharding annotate_device_placement".split())
    | FREE_CALLS
)
"""Targets of custom calls that count nothing: a cheaper generator of random bits may do."""

_LOOKED_AT = frozenset("TopK ApproxTopK PartialReduce sort topk".split())
"""What looks at least once at each element of its operand."""


@dataclass
class _Count:
    """The FLOPs of a program's needed work: by type of matmuls, and all others."""

    needs: Needs
    calls: Sequence[PallasKernel]
    matrix: dict[str, float] = field(default_factory=dict)
    vector: float = 0.0

    def run(self) -> tuple[list[str], list[str]]:
        """Count all nodes; return why some can't be counted, and notes."""
        graph, refused = self.needs.known.graph, list[str]()
        values = _distinct_values(graph)
        turning, dropped = turning_of(graph), self._choices()
        needed: dict[int, Part] = {}
        runs: dict[int, float] = {}
        for node in graph.nodes:
            first = values[node.number]
            often = math.prod((graph.loops[n].turns or 1) for n in turning[node.number])
            runs[first] = min(runs.get(first, math.inf), often * node.copies)
            useful = self.needs.useful(node)
            if node.number not in dropped:
                needed[first] = needed[first] | useful if first in needed else useful
        dearer = self._dearer(values, needed, runs)
        for number, part in needed.items():
            node = graph.nodes[number]
            if node.instruction is None or not part.share or node.number in dearer:
                continue
            flops, reason = self._flops(node)
            if reason:
                refused.append(reason)
            self._add(node, flops, part, runs[number])
        return refused, self._notes()

    def _add(self, node: Node, flops: Flops, part: Part, runs: float) -> None:
        """Add the FLOPs of a node, of which a part is needed."""
        known, share = self.needs.known, part.share
        if known[node].values is not None:
            return  # the compiler computes it
        if flops.matrix or flops.declared:
            kind = self._type(node)
            amount = (flops.matrix + flops.declared) * share * runs * self._terms(node, share)
            self.matrix[kind] = self.matrix.get(kind, 0.0) + amount
        if flops.vector:
            operand = node.ops[0] if node.op in ("reduce", "reduce-window", "scan") else node
            differ = known[operand].distinct / max(operand.size, 1)
            self.vector += flops.vector * min(share, differ) * runs

    def _terms(self, node: Node, share: float) -> float:
        """Return the share of a product's FLOPs that remain if it picks or sums others' values.

        A factor that is 0 or 1 needs no multiplication, a sum of one term no addition.
        """
        space = self.needs.known.spaces.get(node.number)
        if space is None:
            return 1.0
        alone = share * math.prod(space.dims) <= self.needs[node].elements
        return 1.0 - 0.5 * alone - 0.5 * any(map(_is_mask, node.ops[:2]))

    def _type(self, node: Node) -> str:
        """Return the type of a product, as narrow as the arguments that it comes from."""
        known = self.needs.known
        kinds = [operand.dtype for operand in node.ops[:2]] or [node.dtype]
        asked = [known[operand].asked for operand in node.ops[:2]]
        floats = [kind for kind in asked if bits_of(kind)]
        if floats and all(bits_of(kind) for kind in kinds):
            narrow = min(floats, key=bits_of)
            kinds = [narrow if bits_of(kind) > bits_of(narrow) else kind for kind in kinds]
        return product_type(kinds, node.instruction.attributes if node.instruction else {})

    def _flops(self, node: Node) -> tuple[Flops, str]:
        """Return the least FLOPs of a node as a whole, and why they aren't known."""
        assert node.instruction is not None
        site, target = self.needs.known.graph.site(node), node.instruction.target
        if node.op in _LOOKED_AT or target in _LOOKED_AT:
            return Flops(vector=node.ops[0].size), ""
        if node.op == "reduce-window":
            return Flops(vector=node.ops[0].size), ""
        if node.op in ("cholesky", "triangular-solve"):
            return Flops(matrix=_solved(node)), ""
        if node.op == "fft":
            flops = flops_of(site)
            return flops * (0.5 if is_real(self.needs.known, node.ops[0]) else 1), ""
        if node.op in ("dot", "convolution") and not is_depthwise(
            node.instruction, *site.operands[:2]
        ):
            return flops_of(site), ""
        if node.op == "custom-call":
            pallas = counted_as(site, self.calls)
            if pallas is not None:
                return Flops(pallas.matrix_flops, pallas.vector_flops), ""
            if target in _FREE or target.startswith("xla.sdy."):
                return Flops(), ""
        flops = flops_of(site)
        if flops.unknown and not declared(node.instruction):
            line = self.needs.known.graph.line(node)
            at = f" ({line})" if line is not None else ""
            known = replace(flops, unknown=())
            return known, (
                f"nothing says what {', '.join(flops.unknown)}{at} needs: count it by hand, or "
                "write it in JAX's own operations"
            )
        return flops, ""

    # -- branches, and choices between values that were both computed ------------------------------

    def _dearer(
        self, values: list[int], needed: Mapping[int, Part], runs: Mapping[int, float]
    ) -> set[int]:
        """Return the values that only branches compute which aren't the cheapest of their choice.

        Two branches may compute the same value: it is part of the cost of both.
        """
        graph = self.needs.known.graph
        within: dict[str, set[int]] = {}
        for node in graph.nodes:
            if values[node.number] in needed and node.instruction is not None:
                for name in node.branches:
                    within.setdefault(name, set()).add(values[node.number])
        costs: dict[str, float] = {}
        for name, inside in within.items():
            each = ((self._flops(graph.nodes[number])[0], runs[number]) for number in inside)
            costs[name] = sum((f.matrix + f.vector + f.declared) * often for f, often in each)
        least: dict[str, str] = {}
        for name in graph.branches:
            choice = name.rpartition("/")[0]
            best = least.setdefault(choice, name)
            if costs.get(name, 0.0) < costs.get(best, 0.0):
                least[choice] = name
        kept = set(least.values())
        return set(needed) - {values[n.number] for n in graph.nodes if kept.issuperset(n.branches)}

    def _choices(self) -> set[int]:
        """Return the nodes that only serve the dearer side of a choice that `vmap` made."""
        dropped: set[int] = set()
        for node in self.needs.known.graph.nodes:
            if chooses(self.needs.known, node) and self.needs[node].share:
                sides = [only_for(node, side) for side in (1, 2)]
                costs = [sum(self._cost(each) for each in side) for side in sides]
                dropped |= {each.number for each in sides[0 if costs[0] > costs[1] else 1]}
        return dropped

    def _cost(self, node: Node) -> float:
        if node.instruction is None:
            return 0.0
        flops, _ = self._flops(node)
        return (flops.matrix + flops.vector + flops.declared) * self.needs.useful(node).share

    def _notes(self) -> list[str]:
        graph = self.needs.known.graph
        lines = [
            graph.line(node)
            for node in graph.nodes
            if chooses(self.needs.known, node) and self.needs[node].share
        ]
        return [
            f"data choose between two values{f' ({line})' if line else ''}: the cheaper one counts"
            for line in dict.fromkeys(lines)
        ] + [
            f"conditional {name}: its cheapest branch counts"
            for name in dict.fromkeys(branch.rpartition("/")[0] for branch in graph.branches)
        ]


def is_real(known: Known, node: Node) -> bool:
    """Return whether a complex value has no imaginary part."""
    while node.op in ("broadcast", "reshape", "transpose", "copy", "bitcast"):
        node = node.ops[0]
    if node.op == "convert":
        return not node.ops[0].dtype.startswith("c")
    return node.op == "complex" and not known[node.ops[1]].nonzero.share


def chooses(known: Known, node: Node) -> bool:
    """Return whether a select is what `vmap` makes of a `cond` or `switch`.

    Its mask compares the number of a branch, which data choose.
    """
    if node.op != "select" or node.ops[0].dims != node.dims or node.ops[1] is node.ops[2]:
        return False
    mask = node.ops[0]
    while mask.op in ("broadcast", "reshape", "bitcast", "copy", "transpose"):
        mask = mask.ops[0]
    if mask.op != "compare" or known[node.ops[0]].nonzero.share < 1:
        return False
    for index in mask.ops:
        while index.op in ("broadcast", "reshape", "bitcast", "copy", "transpose"):
            index = index.ops[0]
        if index.op == "clamp" or (index.op == "convert" and index.ops[0].dtype == "pred"):
            return index.dtype in ("s32", "s64", "u32", "s8") and known[index].values is None
    return False


def only_for(user: Node, position: int) -> list[Node]:
    """Return the nodes whose values only lead to one operand of a node."""
    first = user.ops[position]
    found: dict[int, Node] = {}
    left = [first] if user.ops.count(first) == 1 else []
    while left:
        node = max(left, key=lambda each: each.number)
        left.remove(node)
        inside = all(u.number in found or (u is user and node is first) for u in node.users)
        if node.number in found or node.op in ("parameter", "constant", CARRY) or not inside:
            continue
        found[node.number] = node
        left += [operand for operand in node.ops if operand not in left]
    return list(found.values())


def _is_mask(node: Node) -> bool:
    """Return whether all elements of a value are 0 or 1."""
    while node.op in ("broadcast", "reshape", "transpose", "copy", "bitcast"):
        node = node.ops[0]
    return node.op == "convert" and node.ops[0].dtype == "pred"


def _solved(node: Node) -> float:
    """Return the FLOPs of a factorisation, or of a solution with a triangle."""
    n = node.ops[0].dims[-1]
    batch = node.ops[0].size / max(n * n, 1)
    if node.op == "cholesky":
        return batch * n**3 / 3
    return float(n * node.ops[1].size)


# --- values that are computed once ----------------------------------------------------------------

_UNCOMPARED = ("metadata", "backend_config", "sharding", "frontend_attributes")


def _distinct_values(graph: Graph) -> list[int]:
    """Return the first node of the same value for each node: same operation, same operands."""
    first: list[int] = []
    found: dict[object, int] = {}
    for node in graph.nodes:
        key: object = node.number
        if node.instruction is not None and node.op not in ("parameter", "rng", "custom-call"):
            stated = node.instruction.attributes
            key = (
                node.op,
                str(node.shape),
                node.instruction.literal,
                tuple((name, stated[name]) for name in stated if name not in _UNCOMPARED),
                tuple(first[operand.number] for operand in node.ops),
            )
        first.append(found.setdefault(key, node.number))
    return first


def turning_of(graph: Graph) -> list[frozenset[str]]:
    """Return the loops in whose turns each node differs."""
    same = {
        node.number
        for loop in graph.loops.values()
        for node, back in zip(loop.carry, loop.back, strict=True)
        if back is node
    }
    turning: list[frozenset[str]] = []
    for node in graph.nodes:
        if node.op == CARRY:
            before = turning[node.ops[0].number]
            turning.append(before if node.number in same else before | {node.loops[-1]})
            continue
        around = frozenset().union(*(turning[operand.number] for operand in node.ops))
        if node.op in ("rng", "rng-bit-generator", "rng-get-and-update-state", "infeed", "recv"):
            around = frozenset(node.loops)
        turning.append(around & frozenset(node.loops))
    return turning
