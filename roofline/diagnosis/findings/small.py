"""Kernels that are small or wait for others, and those that handle one item at a time."""

from __future__ import annotations

import math
from dataclasses import replace

from roofline.diagnosis.findings.causes import (
    FLOOR,
    SERIAL,
    SMALL,
    Case,
    Cause,
    Claim,
    Claims,
    whole,
)
from roofline.diagnosis.flow import Flow
from roofline.diagnosis.rows import BETWEEN, KERNEL, LOOP, TimedRow
from roofline.xla.graph import CARRY, Node
from roofline.xla.hlo import COLLECTIVES
from roofline_helpers.common.show import si

_MANY = 20

SHORT = Cause(
    "short-kernels",
    "many kernels are shorter than it takes to launch them",
    "fuse or batch them, do more in each iteration of a loop (unroll=), or use one operation on "
    "the whole array in its place",
    kind=SMALL,
)
ALONE = Cause(
    "turn-by-turn",
    "a loop multiplies in each turn what no turn needs another for",
    "multiply for all turns at once, before or after the loop: x @ w outside of the scan, or vmap "
    "instead of lax.map",
    kind=SMALL,
)
EXPOSED = Cause(
    "communication",
    "devices wait for an exchange that nothing hides",
    "shard so that less travels, or so that the exchange overlaps computation",
    kind=SMALL,
)
GATHER = Cause(
    "gather",
    "a gather or scatter moves single rows below the memory's rate",
    "move longer rows, or sort the indices, so that neighbours lie together",
    kind=SERIAL,
)
COLLISIONS = Cause(
    "collisions",
    "a scatter combines many values at the same places",
    "combine them before: sort by place once, and say indices_are_sorted=True if they are; for few "
    "places a one-hot matmul may be faster",
    kind=SERIAL,
)

# --- small, or waiting ----------------------------------------------------------------------------


def short_kernels(case: Case) -> Claims:
    """Yield kernels that are shorter than it takes to launch them, where there are many."""
    floor = FLOOR[case.platform]
    kernels = [row for row in case.rows if row.kind == KERNEL and row.launches]
    if not case.measured:  # what the launches take beyond the roof is the floor that is assumed
        kernels = [row for row in kernels if row.lost > 0.5 * row.seconds]
        kernels = [row for row in kernels if not (row.kernel.host_bytes or row.kernel.at_least)]
    for row in kernels:
        if row.inside >= _MANY and row.busy / row.inside < floor and row.lost > 0.5 * row.seconds:
            evidence = f"{row.inside:,.0f} kernels inside a loop take {row.busy * 1e6:,.0f} µs"
            yield Claim(SHORT, ((row, row.lost),), evidence)
    short = [row for row in kernels if row.busy / row.launches < floor]
    launches = sum(row.launches for row in short)
    if launches < _MANY:
        return
    share = launches / sum(row.launches for row in kernels)
    between = (row for row in case.rows if row.kind == LOOP or row.name == BETWEEN)
    gaps = share * sum(row.seconds for row in between)
    parts = tuple((row, max(row.lost, 0.0)) for row in short)
    evidence = f"{launches:,.0f} launches of less than {floor * 1e6:.0f} µs each"
    lines = [row.source for row in sorted(short, key=lambda r: -r.launches) if row.source]
    yield Claim(SHORT, parts, evidence, more=gaps, source=lines[0] if lines else "")


def turn_by_turn(case: Case) -> Claims:
    """Yield products in loops to which no turn hands anything: one for all turns does as much."""
    for name, program in case.programs.items():
        flow = program.flow
        if not flow.graph.loops:
            continue
        alone = _alone(flow)
        for node in (flow.graph.nodes[number] for number in flow.known.spaces):
            row = case.by_name.get((name, node.kernel))
            if row is None or node.number not in alone or row.launches < 4:
                continue
            turns, kernel = round(row.launches), row.kernel
            fixed = sum(
                operand.shape.bytes
                for operand in node.ops[:2]
                if flow.source(operand).loops != node.loops
            )
            once = max(kernel.read_bytes * turns - fixed * (turns - 1), fixed)
            like = replace(
                kernel,
                flops=kernel.flops * turns,
                read={"hbm": round(once)},
                written={"hbm": kernel.written_bytes * turns},
            )
            together = case.likely(replace(row, launches=1.0), like)
            saved = max(row.seconds - max(together, FLOOR[case.platform] / 2), 0.0)
            evidence = (
                f"{node.op} {node.shape} in each of {turns:,} turns, though none needs another's"
            )
            line = flow.line(node)
            yield Claim(ALONE, ((row, saved),), evidence, source=line, known=True)


def _alone(flow: Flow) -> set[int]:
    """Return the nodes in loops that depend on no earlier turn: only on counters, and on slices."""
    late: set[int] = set()
    for loop in flow.graph.loops.values():
        for carry, back in zip(loop.carry, loop.back, strict=True):
            counter = carry.size == 1 and back.op == "add"
            if back is not carry and not counter and not _fills(carry, back):
                late.add(carry.number)
    for node in flow.graph.nodes:
        if node.op != CARRY and any(operand.number in late for operand in node.ops):
            late.add(node.number)
    return {node.number for node in flow.graph.nodes if node.loops} - late


def _fills(carry: Node, back: Node) -> bool:
    """Return whether a loop only adds pieces to what it carries, as a scan stacks its results."""
    while back.op in ("copy", "bitcast") and back.ops:
        back = back.ops[0]
    users = [user for user in carry.users if user.loops[: len(carry.loops)] == carry.loops]
    return back.op == "dynamic-update-slice" and back.ops[0] is carry and users == [back]


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
        yield Claim(EXPOSED, ((row, row.seconds),), evidence, remedy=remedy)


def _apart(row: TimedRow) -> str:
    """Return what to do about devices that wait for each other to exchange next to nothing."""
    if row.launches > 1:
        return (
            "let each device loop on its own (jax.shard_map around the loop), and exchange once, "
            "after it"
        )
    return "put what follows it before it, or sum several such numbers in one exchange"


# --- one at a time --------------------------------------------------------------------------------


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
                yield whole(GATHER, row, evidence, flow.line(node))


def gathers(case: Case) -> Claims:
    """Yield gathers and scatters that take more than twice their roof."""
    for row in case.kernels:
        flow = case.program(row).flow
        for node in flow.kernels.get(row.name, ()):
            if node.op == "sort" and node.op_name.rpartition("/")[2].startswith("scatter"):
                yield whole(
                    COLLISIONS, row, f"{row.title} brings equal places of a scatter together"
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
            cause = COLLISIONS if crowded else GATHER
            yield Claim(cause, ((row, row.lost),), evidence, source=flow.line(node))
