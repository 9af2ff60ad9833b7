"""Data that moves and doesn't change, or lies in memory several times over."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from roofline.diagnosis.findings.again import is_drawn, stacks
from roofline.diagnosis.findings.causes import (
    Case,
    Claim,
    Claims,
)
from roofline.diagnosis.flow import VIEWS, Flow
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow
from roofline.xla.facts import bits_of
from roofline.xla.flops import reorders
from roofline.xla.graph import CARRY, Node
from roofline.xla.hlo import ARITHMETIC, TRANSCENDENTAL, Shape
from roofline_helpers.common.show import many, si

_SMALL = 2**14
"""Bytes below which what moves isn't reported."""

_CACHE = 2**25
"""Bytes that a CPU's caches hold: a copy of less stays in cache and costs almost nothing."""


_SAME = frozenset(
    "copy transpose reshape bitcast convert copy-start reverse slice dynamic-slice "
    "reduce-precision bitcast-convert".split()
)


def moved_share(flow: Flow, node: Node, kernel: str) -> float:
    """Return the share of a value's elements that its kernel takes unchanged from another array."""
    if node.kernel != kernel:
        return 1.0
    if node.op in _SAME:
        return moved_share(flow, node.ops[0], kernel)
    if node.op == "concatenate":
        parts = [moved_share(flow, part, kernel) * part.size for part in node.ops]
        return sum(parts) / max(node.size, 1)
    if node.op == "pad":
        return moved_share(flow, node.ops[0], kernel) * min(
            1.0, node.ops[0].size / max(node.size, 1)
        )
    if node.op == "dynamic-update-slice":
        small = node.ops[1].size / max(node.size, 1)
        old, new = (moved_share(flow, part, kernel) for part in node.ops[:2])
        return (1 - small) * old + small * new
    if node.op in ("add", "subtract", "maximum", "or"):
        if all(_padded(part, kernel) for part in node.ops):
            return min(1.0, sum(moved_share(flow, part, kernel) for part in node.ops))
        return max(
            moved_share(flow, kept, kernel) * (1 - flow.known[other].nonzero.share)
            for kept, other in (node.ops, node.ops[::-1])
        )
    if node.op == "select" and node.ops[0].dims == node.dims:
        mask = flow.known[node.ops[0]]
        shares = mask.nonzero.share, mask.false.share
        if sum(shares) > 1.01:
            # data choose: at least this, if one side is the old value and the mask is mostly known
            shares = (1 - mask.false.share, 1 - mask.nonzero.share)
        sides = (moved_share(flow, side, kernel) for side in node.ops[1:])
        return sum(share * side for share, side in zip(shares, sides, strict=True))
    return 0.0


def _padded(node: Node, kernel: str) -> bool:
    """Return whether a value is a part of a concatenation, as a TPU's compiler writes one."""
    if node.kernel != kernel:
        return False
    if node.op in ("maximum", "or", "add"):
        return all(_padded(part, kernel) for part in node.ops)
    return node.op == "pad" or (
        node.op in ("bitcast", "convert", "copy") and _padded(node.ops[0], kernel)
    )


def moved(case: Case) -> Claims:
    """Yield kernels whose results are mostly another array's elements, unchanged."""
    for row in case.kernels:
        program = case.program(row)
        flow, kernel = program.flow, row.kernel
        made = flow.made(row.name)
        size = sum(node.shape.bytes for node in made)
        apart = (
            kernel.collective is not None or kernel.host_bytes or not any(kernel.written.values())
        )
        if apart or not made or sum(kernel.traffic.values()) < _SMALL or _fetches(made):
            continue
        nodes = flow.kernels[row.name]
        inner = flow.in_library(made[0]) or is_drawn(flow, made[0])
        if inner or {node.op for node in nodes} & {"gather", "scatter", "sort", "custom-call"}:
            continue
        share = sum(n.shape.bytes * moved_share(flow, n, row.name) for n in made) / size
        if share > 0.5:
            yield from _claimed(case, program, row, made, share)


def _fetches(made: list[Node]) -> bool:
    """Return whether a kernel only brings arrays, or slices of them, into another memory."""
    return all(node.op == "copy-start" or _is_fetched(node) for node in made)


def _is_fetched(node: Node) -> bool:
    source = node
    while source.op in _SAME and source.kernel == node.kernel:
        source = source.ops[0]
    return source is not node and source.shape.leaves[0].space != node.shape.leaves[0].space


def _claimed(case: Case, program: Program, row: TimedRow, made: list[Node], share: float) -> Claims:
    """Yield the claim on a kernel that moves a share of what it writes."""
    flow, kernel = program.flow, row.kernel
    nodes, largest = flow.kernels[row.name], max(made, key=lambda node: node.shape.bytes)
    opcodes = {node.op for node in nodes}
    # what is updated in place isn't moved: the ledger counts what is written
    written = sum(kernel.written.values()) * flow.graph.places[row.name]
    in_place = written < 0.5 * sum(node.shape.bytes for node in made)
    found = _cause_of(case, program, row, nodes, largest, opcodes, in_place)
    if found is None:
        return
    cause, evidence = found
    left = 0.0 if share > 0.99 else 1 - share
    like = replace(
        kernel,
        read={level: round(n * left) for level, n in kernel.read.items()},
        written={level: round(n * left) for level, n in kernel.written.items()},
    )
    seconds = row.seconds if left == 0.0 else case.saved(row, like)
    line = row.source or next(filter(None, map(flow.line, [largest, *nodes])), "")
    as_it_is = cause == "not-donated" and opcodes <= _SAME and not flow.readers(largest)
    remedy = "leave it out of the results, as the caller has it, or donate it" if as_it_is else ""
    yield Claim(cause, ((row, seconds),), evidence, source=line, remedy=remedy, known=True)


def _cause_of(
    case: Case,
    program: Program,
    row: TimedRow,
    nodes: list[Node],
    largest: Node,
    opcodes: set[str],
    in_place: bool,
) -> tuple[str, str] | None:
    """Return why a kernel moves an array, and how that shows; None if that is its job."""
    flow, shape = program.flow, largest.shape.leaves[0]
    turns = f"{many(row.launches, 'copy')} of {shape}, {si(shape.bytes, 'B')} each"
    looped = any(node.loops for node in nodes)
    sources = [flow.source(operand) for operand, _, _ in flow.taken(row.name)]
    cast = _cast(nodes, largest)
    if looped and opcodes & {"dynamic-slice", "slice", "dynamic-update-slice"}:
        return _in_a_loop(case, flow, row, nodes, shape, in_place)
    if in_place or cast or _is_the_job(flow, largest, sources):
        return None
    turned = any(_reorders(flow, node) for node in nodes) or "reverse" in opcodes
    if turned:
        if any(map(flow.is_algorithm, (*flow.readers(largest), *sources))):
            return None  # a library's own order
        near = _beside_a_product(case, flow, row, largest)
        return (
            "layout-copy" if near else "reordered"
        ), f"{shape} is read in one order and written in another"
    if looped:
        return ("carry-copy", turns) if opcodes <= _SAME | {"constant"} else ("rewritten", turns)
    partly = opcodes & {"dynamic-update-slice", "select", "add", "subtract"}
    if opcodes & {"concatenate", "pad"}:
        return "joined", f"{shape} ({si(shape.bytes, 'B')}) holds copies of {_named(sources)}"
    argument = next((s for s in sources if _replaces(program, s)), None)
    if argument is not None and opcodes <= _SAME | {"constant", "dynamic-update-slice"}:
        what = "is copied, since it isn't donated"
        if not partly and not flow.readers(largest):
            what = "is returned as it is, which copies it"
        what = "is written anew to change a part of it" if partly else what
        return "not-donated", f"{_named([argument])} {what}"
    if partly:
        return (
            "rewritten",
            f"{shape} ({si(shape.bytes, 'B')}) is written anew to change a part of it",
        )
    return None


def relaid(case: Case) -> Claims:
    """Yield copies of an argument into the tiles that a loop's matmuls prefer."""
    for row in case.kernels:
        flow = case.program(row).flow
        made = flow.made(row.name)
        if len(made) != 1 or made[0].op not in _SAME or not _enters_a_loop(flow, made[0]):
            continue
        source = flow.source(made[0].ops[0])
        if source.op == "parameter" and _tiles(source.shape) != _tiles(made[0].shape):
            evidence = f"{_named([source])} is written in other tiles, as {made[0].shape}"
            line = row.source or flow.line(made[0])
            yield Claim("relaid-weights", ((row, row.seconds),), evidence, source=line, known=True)


def _named(sources: Sequence[Node]) -> str:
    """Return the largest of some arrays as text."""
    node = max(sources, key=lambda each: each.shape.bytes, default=None)
    if node is None:
        return "others"
    number = node.instruction.literal if node.op == "parameter" and node.instruction else ""
    return f"argument {number} ({node.shape})" if number else f"{node.shape}"


def _cast(nodes: list[Node], largest: Node) -> bool:
    """Return whether a kernel mainly changes an array's type, as its author asked."""
    return any(
        node.op == "convert"
        and node.size >= 0.5 * largest.size
        and bits_of(node.dtype) != bits_of(node.ops[0].dtype)
        for node in nodes
    )


def _tiles(shape: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(d for d in shape.order if shape.dims[d] > 1), shape.tile


def _reorders(flow: Flow, node: Node) -> bool:
    return node.op in ("transpose", "copy") and reorders(flow.graph.site(node))


def _is_the_job(flow: Flow, made: Node, sources: list[Node]) -> bool:
    """Return whether a copy only gives an argument the form in which it is returned."""
    returned = {flow.source(result).number for result in flow.graph.results}
    if made.number not in returned or flow.readers(made):
        return False
    same = any(_tiles(s.shape) == _tiles(made.shape) and s.dims == made.dims for s in sources)
    return not same and all(source.op == "parameter" for source in sources)


def _replaces(program: Program, node: Node) -> bool:
    """Return whether a value is an argument that isn't donated, and that a result could replace."""
    if node.op != "parameter" or node.instruction is None:
        return False
    number = int(node.instruction.literal or 0)
    kinds = [(result.dtype, result.dims) for result in program.flow.graph.results]
    return number not in program.module.donated and (node.dtype, node.dims) in kinds


def _enters_a_loop(flow: Flow, node: Node) -> bool:
    """Return whether a loop slices an array that a kernel makes before it."""
    left, seen = [node], set[int]()
    for each in left:
        for user in each.users:
            if user.number in seen or len(seen) > 64:
                continue
            seen.add(user.number)
            if user.op in ("dynamic-slice", "slice") and user.loops:
                return True
            if user.op in VIEWS or (user.loops and user.op in _SAME):
                left.append(user)
    return False


def _beside_a_product(case: Case, flow: Flow, row: TimedRow, made: Node) -> bool:
    """Return whether a matmul reads what a kernel moves, or made it."""
    beside = [reader.kernel for reader in flow.readers(made)]
    beside += [flow.source(operand).kernel for operand, _, _ in flow.taken(row.name)]
    rows = [case.row(row, name) for name in [row.name, *beside]]
    return any(each is not None and each.kernel.matrix_types for each in rows)


_BODIES = ("closed_call", "eval_jaxpr")
"""What JAX calls the body of a scan in the names of its operations: before 0.11, and since."""


def _in_a_loop(
    case: Case, flow: Flow, row: TimedRow, nodes: list[Node], shape: Shape, in_place: bool
) -> tuple[str, str] | None:
    """Return how a loop copies a slice of its inputs, or a result into its stack."""
    if case.platform == "cpu" and row.kernel.bytes < _CACHE:
        return None
    if any(_reorders(flow, node) for node in nodes):
        return "layout-copy", f"{shape} is read in one order and written in another"
    updates = [node for node in nodes if node.op == "dynamic-update-slice"]
    if not updates:
        return "scan-copy", f"each of {row.launches:,.0f} iterations copies a slice ({shape})"
    # `jax.lax.scan` stacks its results outside of the call of its body. An update inside is the
    # author's own, of the carry, in place
    if in_place and any(name in node.op_name for node in updates for name in _BODIES):
        return None
    if in_place:
        what = "a result into the stack of all iterations"
        kept = {node.ops[0].number for node in updates} & stacks(flow).keys()
        return (
            "residuals" if kept else "scan-copy",
            f"each of {row.launches:,.0f} iterations copies {what} ({shape})",
        )
    return "rewritten", f"{shape} is written anew in each of {row.launches:,.0f} iterations"


def filled_stacks(case: Case) -> Claims:
    """Yield kernels that fill the stack of a loop's results before its first turn."""
    for row in case.kernels:
        flow = case.program(row).flow
        made = flow.made(row.name)
        if row.kernel.bytes < _SMALL or len(made) != 1 or made[0].op not in ("broadcast", "copy"):
            continue
        if flow.known[made[0]].varies or not any(_overwrites(u) for u in _carried(flow, made[0])):
            continue
        evidence = f"{made[0].shape} is filled before the loop that overwrites all of it"
        line = row.source or flow.line(made[0])
        kept = {user.number for user in made[0].users} & stacks(flow).keys()
        cause = "residuals" if kept else "scan-copy"
        yield Claim(cause, ((row, row.seconds),), evidence, source=line, known=True)


def _carried(flow: Flow, node: Node) -> Iterator[Node]:
    """Yield what reads an array inside of loops that carry it."""
    for user in node.users:
        if user.op == CARRY:
            yield from (each for each in user.users if each.op not in VIEWS)


def _overwrites(node: Node) -> bool:
    return node.op == "dynamic-update-slice" and bool(node.loops)


def repeats(case: Case) -> Claims:
    """Yield kernels that write an array several times over, for others to read."""
    for row in case.kernels:
        flow = case.program(row).flow
        for node in flow.made(row.name):
            facts = flow.known[node]
            times = node.size / max(facts.distinct, 1)
            small = node.shape.bytes < 2**20 or times < 1.9 or facts.distinct < 2**10
            if small or facts.values is not None:
                continue
            readers = {reader.kernel for reader in flow.readers(node)}
            rows = [each for each in (case.row(row, name) for name in sorted(readers)) if each]
            if not rows:
                continue
            size = node.shape.bytes * (1 - 1 / times)
            parts = [(row, case.without_bytes(row, written=size))]
            if set(row.kernel.operations) <= _SAME | {"broadcast", "constant"}:
                parts = [(row, row.seconds)]
            parts += [(each, case.without_bytes(each, read=size)) for each in rows]
            evidence = (
                f"{node.shape} ({si(node.shape.bytes, 'B')}) holds everything {times:,.0f} times"
            )
            line = row.source or flow.line(node)
            yield Claim("repeated", tuple(parts), evidence, source=line, known=True)


def strided(case: Case) -> Claims:
    """Yield kernels far below their roof that read an array across the order in which it lies."""
    for row in case.kernels:
        flow = case.program(row).flow
        nodes = flow.kernels.get(row.name, ())
        if case.measured and not case.slow(row):
            continue
        crossing = [node for node in nodes if _crosses(flow, node)]
        if not case.measured:  # a compiler's cycles count no way across a TPU's lanes
            crossing = [
                node for node in crossing if node.op == "reverse" and case.platform == "tpu"
            ]
        moved = math.fsum(node.shape.bytes for node in crossing)
        if moved >= 0.25 * row.kernel.bytes > 0:
            evidence = f"{row.title} reads {crossing[0].ops[0].shape} in another order than it lies"
            yield Claim("reordered", ((row, row.lost),), evidence)


def _crosses(flow: Flow, node: Node) -> bool:
    """Return whether an operation reads its operand in another order than it writes."""
    if node.op == "reverse":
        last = node.shape.order[-1] if node.shape.order else len(node.dims) - 1
        return last in node.numbers("dimensions")
    if node.op not in ARITHMETIC | TRANSCENDENTAL | {"convert"}:
        return _reorders(flow, node)
    orders = [_tiles(o.shape)[0] for o in node.ops if o.shape.order]
    return bool(orders) and any(order != _tiles(node.shape)[0] for order in orders)
