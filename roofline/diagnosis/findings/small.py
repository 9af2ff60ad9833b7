"""Kernels that are small or wait for others, and those that handle one item at a time."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from roofline import xla
from roofline.diagnosis.findings.causes import (
    FLOOR,
    Case,
    Claim,
    Claims,
    whole,
)
from roofline.diagnosis.flow import VIEWS, Flow
from roofline.diagnosis.rows import KERNEL, TimedRow
from roofline.xla.graph import CARRY, Loop, Node
from roofline.xla.hlo import COLLECTIVES, FREE_CALLS, SLICES
from roofline_helpers.common.show import many, si

_MANY = 20


# --- small, or waiting ----------------------------------------------------------------------------


def short_kernels(case: Case) -> Claims:
    """Yield kernels that are shorter than it takes to launch them, where there are many.

    Those of a loop gain at least half of what they lose if two turns become one, unless turns need
    one another's products. Where nothing ran, what launches take beyond the roof is a floor that is
    assumed: what comes one after the other can't do without.
    """
    floor = FLOOR[case.platform]
    kernels = [row for row in case.rows if row.kind == KERNEL and row.launches]
    if not case.measured:
        kernels = [row for row in kernels if row.lost > 0.5 * row.seconds]
        kernels = [row for row in kernels if not (row.kernel.host_bytes or row.kernel.at_least)]
    for row in kernels:
        if row.inside >= _MANY and row.busy / row.inside < floor and row.lost > 0.5 * row.seconds:
            evidence = f"{row.inside:,.0f} kernels inside a loop take {row.busy * 1e6:,.0f} µs"
            yield Claim("short-kernels", ((row, row.lost),), evidence)
    short = [row for row in kernels if row.busy / row.launches < floor]
    if sum(row.launches for row in short) < _MANY:
        return
    around = {id(row): _loop_of(case, row) for row in short}
    for loop in dict.fromkeys(around.values()):
        rows = [row for row in short if around[id(row)] == loop]
        launches = sum(row.launches for row in rows)
        waits = loop is None or _waits(case.programs[loop[0]].flow, loop[1])
        if waits and not case.measured:
            continue
        parts = tuple((row, max(row.lost, 0.0)) for row in rows)
        evidence = f"{launches:,.0f} launches of less than {floor * 1e6:.0f} µs each"
        lines = [row.source for row in sorted(rows, key=lambda r: -r.launches) if row.source]
        yield Claim(
            "short-kernels",
            parts,
            evidence,
            more=launches * case.gap,
            source=lines[0] if lines else "",
            # unrolled, a CPU still runs each operation: only a GPU's launches become fewer
            known=not waits and case.measured and case.platform == "gpu",
            sure=0.5,
        )


def _loop_of(case: Case, row: TimedRow) -> tuple[str, str] | None:
    """Return the program and the name of the loop that a kernel is in; None outside of loops."""
    program = case.programs.get(row.program)
    nodes = () if program is None else program.flow.kernels.get(row.name, ())
    loops = next((node.loops for node in nodes if node.loops), ())
    return (row.program, loops[-1]) if loops else None


def _waits(flow: Flow, name: str) -> bool:
    """Return whether turns can't become fewer: each multiplies what the one before made."""
    loop = flow.graph.loops[name]
    late = _after(flow, {carry.number for carry in loop.carry if carry.size > 1})
    inside = (number in late and name in flow.graph.nodes[number].loops for number in flow.products)
    return name in flow.inner_loops or any(inside)


def _after(flow: Flow, numbers: set[int]) -> set[int]:
    """Return some nodes, and those that depend on them in the same turn."""
    found = set(numbers)
    for node in flow.graph.nodes:
        if node.op != CARRY and any(operand.number in found for operand in node.ops):
            found.add(node.number)
    return found


def turn_by_turn(case: Case) -> Claims:
    """Yield what loops do in each turn though no turn needs another: one for all does as much.

    Where that is all of a loop, or each turn only adds to what the last one made, all its kernels
    go, and what its line makes is made at once. Of other loops, products do.
    """
    for name, program in case.programs.items():
        flow = program.flow
        alone, whole_loops = _alone(flow) if flow.graph.loops else (set[int](), set[str]())
        for loop in flow.graph.loops.values():
            rows = [
                row
                for kernel in flow.kernels
                for row in [case.by_name.get((name, kernel))]
                if row is not None and _loop_of(case, row) == (name, loop.name)
            ]
            turns = loop.turns or round(max((row.launches for row in rows), default=0))
            if turns < 4 or loop.name in flow.inner_loops:
                continue
            if loop.name in whole_loops:
                yield from _at_once(case, flow, loop, rows)
            elif _is_linear(flow, loop):
                yield from _by_halves(case, flow, loop, rows, turns)
            else:
                products = {flow.graph.nodes[n].kernel: n for n in flow.products if n in alone}
                for row in rows:
                    if row.name in products:
                        node = flow.graph.nodes[products[row.name]]
                        evidence = f"{node.op} {node.shape} in each of {turns:,} turns, "
                        evidence += "though none needs another's"
                        parts = ((row, _gained(case, flow, row)),)
                        yield Claim(
                            "turn-by-turn", parts, evidence, source=flow.line(node), known=True
                        )


def _at_once(case: Case, flow: Flow, loop: Loop, rows: list[TimedRow]) -> Claims:
    """Yield the claim on a loop whose turns don't need one another."""
    parts = []
    for row in rows:
        nodes = flow.kernels[row.name]
        moves = all(node.op in MOVES or node.size <= 1 for node in nodes)
        parts.append((row, row.seconds if moves else _gained(case, flow, row)))
    line = flow.line(loop.carry[0]) or next((row.source for row in rows if row.source), "")
    evidence = f"{loop.turns:,} turns" if loop.turns else "turns"
    evidence += f" of {many(len(rows), 'kernel')}, though none needs another's"
    more = sum(row.launches for row in rows) * case.gap
    if sum(saved for _, saved in parts) + more > 0.3 * sum(row.seconds for row in rows):
        yield Claim("turn-by-turn", tuple(parts), evidence, more=more, source=line, known=True)


MOVES = VIEWS | {"dynamic-slice", "dynamic-update-slice", "copy", "constant", "slice", "parameter"}


def _gained(case: Case, flow: Flow, row: TimedRow) -> float:
    """Return the seconds that a loop's launches lose beside one that does what all of them do."""
    turns, kernel = round(row.launches), row.kernel
    fixed = {
        operand.number: operand.shape.bytes
        for operand, reader, _ in flow.taken(row.name)
        if flow.source(operand).loops != reader.loops and reader.op not in SLICES
    }
    same = min(sum(fixed.values()), kernel.read_bytes)
    like = replace(
        kernel,
        flops=kernel.flops * turns,
        read={"hbm": kernel.read_bytes * turns - same * (turns - 1)},
        written={"hbm": kernel.written_bytes * turns},
    )
    together = max(case.likely(replace(row, launches=1.0), like), FLOOR[case.platform] / 2)
    now = max(case.likely(row, kernel), FLOOR[case.platform] / 2 * row.launches)
    return row.seconds * max(1 - together / now, 0.0)


def _by_halves(case: Case, flow: Flow, loop: Loop, rows: list[TimedRow], turns: int) -> Claims:
    """Yield the claim on a loop whose turns are combined in any order: a scan by halves.

    It takes two kernels for each halving, which move four times the bytes of all turns.
    """
    steps = 2 * math.ceil(math.log2(turns))
    moved = 4 * sum(row.bytes for row in rows)
    now = sum(row.seconds for row in rows)
    launch = FLOOR[case.platform] / 2 + case.gap
    like = xla.Row("", "", read={"hbm": round(moved / 2)}, written={"hbm": round(moved / 2)})
    after = case.likely(TimedRow(""), like) + steps * launch
    if rows and after < 0.5 * now:
        parts = tuple((row, row.seconds * (1 - after / now)) for row in rows)
        evidence = f"each of {turns:,} turns only scales what the last one made, and adds to it"
        more = sum(row.launches for row in rows) * case.gap
        line = next((row.source for row in rows if row.source), "")
        yield Claim("linear-recurrence", parts, evidence, more=more, source=line, known=True)


def _is_linear(flow: Flow, loop: Loop) -> bool:
    """Return whether each turn only scales by element what the last one made, and adds to it."""
    changing = [
        (carry, back)
        for carry, back in zip(loop.carry, loop.back, strict=True)
        if back is not carry and not _counts(carry, back) and not _fills(carry, back)
    ]
    if not changing or any(carry.size < 2 for carry, _ in changing):
        return False
    late = _after(flow, {carry.number for carry, _ in changing})
    left, seen = [back for _, back in changing], set[int]()
    for node in left:
        if node.number in seen or node.number not in late or node.op == CARRY:
            continue
        seen.add(node.number)
        scaled = [n for n, operand in enumerate(node.ops) if operand.number in late]
        linear = node.op in _LINEAR and scaled in _LINEAR[node.op]
        if node.op not in (*VIEWS, "copy", "convert") and not linear:
            return False
        left += node.ops
    return bool(seen)


_LINEAR = {
    "add": ([0], [1], [0, 1]),
    "subtract": ([0], [1], [0, 1]),
    "multiply": ([0], [1]),
    "divide": ([0],),
    "negate": ([0],),
    "select": ([1], [2], [1, 2]),
}
"""Operations by element, and which operands may come from the turn before."""


def _counts(carry: Node, back: Node) -> bool:
    """Return whether a carry is a counter, or a sum that no turn looks at."""
    looked = [user for user in carry.users if user is not back and user.loops == back.loops]
    return carry.size == 1 and back.op == "add" and (not looked or carry.dtype[:1] in "su")


def _alone(flow: Flow) -> tuple[set[int], set[str]]:
    """Return the nodes in loops that depend on no earlier turn, and the loops of such alone."""
    late, whole_loops = set[int](), set[str]()
    for name, loop in flow.graph.loops.items():
        handed = {
            carry.number
            for carry, back in zip(loop.carry, loop.back, strict=True)
            if back is not carry and not _counts(carry, back) and not _fills(carry, back)
        }
        late |= handed
        whole_loops |= set() if handed else {name}
    late = _after(flow, late)
    return {node.number for node in flow.graph.nodes if node.loops} - late, whole_loops


def _fills(carry: Node, back: Node) -> bool:
    """Return whether a loop only adds pieces to what it carries, as a scan stacks its results."""
    while back.op in ("copy", "bitcast") and back.ops:
        back = back.ops[0]
    users = [user for user in carry.users if user.loops[: len(carry.loops)] == carry.loops]
    filled = back.op == "dynamic-update-slice" and back.ops[0] is carry and users == [back]
    return filled and not any(u.op == "dynamic-slice" for u in beyond(carry, carry.loops[-1]))


def beyond(carry: Node, loop: str) -> list[Node]:
    """Return what reads a loop's result in other loops."""
    found, left, seen = [], list(carry.users), set[int]()
    for user in left:
        if user.number in seen:
            continue
        seen.add(user.number)
        inside = loop in user.loops
        if user.op in (CARRY, "bitcast", "copy", "convert", "reshape") and not inside:
            left += user.users
        elif user.loops and not inside:
            found.append(user)
    return found


def communication(case: Case) -> Claims:
    """Yield exchanges between devices that no kernel hides."""
    for row in case.kernels:
        sent = row.kernel.collective
        operations = row.kernel.operations
        if sent is None and not any(op.removesuffix("-start") in COLLECTIVES for op in operations):
            continue
        moved = row.bytes if sent is None else max(sent.bytes_in, sent.bytes_out) * row.launches
        often = f" in each of {row.launches:,.0f} turns" if row.launches > 1 else ""
        evidence = f"{', '.join(operations)} of {si(moved, 'B')}, by itself{often}"
        small = moved / max(row.launches, 1) <= 4096
        remedy = _apart(row) if small else ""
        yield Claim("communication", ((row, row.seconds),), evidence, remedy=remedy)


def _apart(row: TimedRow) -> str:
    """Return what to do about devices that wait for each other to exchange next to nothing."""
    if row.launches > 1:
        return (
            "let each device loop on its own (jax.shard_map around the loop), and exchange once, "
            "after it"
        )
    return "put what follows it before it, or sum several such numbers in one exchange"


# --- one at a time --------------------------------------------------------------------------------


_OF_MATRICES = re.compile(
    r"/(cholesky|lu|lu_pivots_to_permutation|qr|geqrf|householder_product|eigh?|svd|triangular_solve"
    r"|custom_linear_solve|schur|tridiagonal_solve)\b"
)
_SIDE, _BATCH = 32, 256
"""The largest side of a small matrix, and how many of them are many."""


def factorisations(case: Case) -> Claims:
    """Yield the kernels of factorisations, and of solutions, of many small matrices."""
    for name, program in case.programs.items():
        written = program.intent or program.flow
        lines = dict[str, str]()
        for node in written.graph.nodes:
            operand = node.ops[0] if node.ops else None
            if operand is None or len(operand.dims) < 3 or not _OF_MATRICES.search(node.op_name):
                continue
            side, batch = max(operand.dims[-2:]), math.prod(operand.dims[:-2])
            if node.op in _OPAQUE and side <= _SIDE and batch >= _BATCH:
                evidence = f"{batch:,} matrices of {operand.dims[-2]} × {operand.dims[-1]}"
                lines.setdefault(written.line(node), evidence)
        for row in case.kernels:
            nodes = program.flow.kernels.get(row.name, ()) if row.program == name else ()
            if row.source in lines and any(_OF_MATRICES.search(node.op_name) for node in nodes):
                yield whole("small-factorisations", row, lines[row.source], row.source)


_OPAQUE = {"custom-call", "cholesky", "triangular-solve"}

_SINGLE = 2**12
"""Single elements from which on it matters that they are moved one after another."""


def single_elements(case: Case) -> Claims:
    """Yield a TPU's moves of single elements, of which its compiler doesn't say the time."""
    for row in case.kernels if case.platform == "tpu" else ():
        flow = case.program(row).flow
        for node in flow.kernels.get(row.name, ()):
            if node.op not in ("gather", "scatter") or row.kernel.cycles is not None:
                continue
            pieces = node.ops[-1] if node.op == "scatter" else node
            window = "update_window_dims" if node.op == "scatter" else "offset_dims"
            each = math.prod(pieces.dims[axis] for axis in node.numbers(window))
            if each <= 1 and pieces.size >= _SINGLE:
                evidence = f"{pieces.size:,} single elements, one after another: nothing says how "
                evidence += "long it takes"
                claim = whole("gather", row, evidence, flow.line(node))
                yield replace(claim, remedy=_of_known_places(flow, node))


def _of_known_places(flow: Flow, node: Node) -> str:
    """Return what to do about a gather or scatter of which every place isn't chosen by data."""
    places = node.ops[1]
    if _consecutive(flow, places):
        return (
            "its indices count up by one, so take a slice in their place: x[a:b], "
            "x.at[a:b].set(y), or jax.lax.dynamic_slice where data say its start"
        )
    if node.op == "scatter" and _source(places).op == "constant":
        return (
            "its indices are constants, so read in place of writing, if none comes twice: "
            "jnp.where(filled, x[inverse], 0) with the inverse of the indices"
        )
    return ""


def _source(node: Node) -> Node:
    """Return the value that is only moved, bounded or cast on its way to a node."""
    while node.ops and (node.op in _ON_THE_WAY or _passes(node)):
        node = node.ops[1 if node.op == "clamp" else 0]
    return node


def _passes(node: Node) -> bool:
    """Return whether an operation only marks a value, or leaves out its axes of one element."""
    marks = node.instruction is not None and node.instruction.target in FREE_CALLS
    return marks or (node.op == "reduce" and node.size == node.ops[0].size)


def _consecutive(flow: Flow, node: Node) -> bool:
    """Return whether a value is a counter to which one number is added, or another below zero."""
    node = _source(node)
    if node.op in ("add", "subtract"):
        first, second = node.ops
        if node.op == "add" and not flow.known[first].varies:
            first, second = second, first
        return not flow.known[second].varies and _consecutive(flow, first)
    if node.op == "select":  # an index below zero counts from the end
        return all(_consecutive(flow, operand) for operand in node.ops[1:3])
    return node.op == "iota" and sum(size > 1 for size in node.dims) == 1


_ON_THE_WAY = VIEWS | {"convert", "copy", "reshape", "transpose", "slice", "pad", "clamp"}


def gathers(case: Case) -> Claims:
    """Yield gathers and scatters that take more than twice their roof."""
    for row in case.kernels:
        flow = case.program(row).flow
        for node in flow.kernels.get(row.name, ()):
            if node.op == "sort" and node.op_name.rpartition("/")[2].startswith("scatter"):
                yield whole(
                    "collisions", row, f"{row.title} brings equal places of a scatter together"
                )
            if node.op not in ("gather", "scatter"):
                continue
            if not case.slow(row):
                continue
            scatters = node.op == "scatter"
            piece = node.ops[-1] if scatters else node
            evidence = f"{node.op} of {piece.shape} in {node.ops[0].shape}"
            # more values than places: some of them certainly meet
            crowded = scatters and piece.size > node.ops[0].size
            cause = "collisions" if crowded else "gather"
            remedy = "" if crowded else _of_known_places(flow, node)
            yield Claim(cause, ((row, row.lost),), evidence, source=flow.line(node), remedy=remedy)
