"""What is done again, and what is kept in memory for later."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from roofline import xla
from roofline.diagnosis.findings.causes import (
    Case,
    Claim,
    Claims,
    whole,
)
from roofline.diagnosis.findings.small import MOVES, beyond
from roofline.diagnosis.flow import VIEWS, Flow, largest
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow
from roofline.xla.buffers import buffers_at_peak
from roofline.xla.expected import expected_features
from roofline.xla.graph import CARRY, Loop, Node
from roofline.xla.hlo import ARITHMETIC, FREE, TRANSCENDENTAL
from roofline.xla.metadata import scope_of, source_of
from roofline.xla.minimum import turning_of
from roofline_helpers.common.show import many, si, significant
from roofline_helpers.measured.kernels import Features

# --- again ----------------------------------------------------------------------------------------

_REMAT = re.compile(r"\.remat\d*(\.|$)")


def recomputed(case: Case) -> Claims:
    """Yield kernels that the compiler runs twice, since their results took too much memory."""
    for row in case.kernels:
        if _REMAT.search(row.name):
            yield whole("recomputed", row, f"{row.title} runs again, since memory is short")


FULL = 0.7
"""Share of a device's memory up to which it holds more without a second thought."""


def checkpoints(case: Case) -> Claims:
    """Yield what `jax.checkpoint` computes again where memory would hold it from the first time."""
    chip = case.ceilings.chip
    capacity = None if chip is None else chip.memory["hbm"].capacity
    for name, program in case.programs.items():
        rows = [row for row in case.kernels if row.program == name]
        rows = [row for row in rows if row.kernel.step == "recomputed"]
        if not rows or chip is None or capacity is None:
            continue
        flow, again = program.flow, {row.name for row in rows}
        kept = {
            node.number: node.shape.bytes * node.runs
            for row in rows
            for node in flow.made(row.name)
            if any(reader.kernel not in again for reader in flow.readers(node))
        }
        more = math.fsum(kept.values())
        held = sum(buffer.bytes for buffer in buffers_at_peak(program.module, case.platform))
        if held + more > FULL * capacity.value / chip.devices:
            continue
        stored = case.likely(TimedRow(""), xla.Row("", "", written={"hbm": round(more)}))
        whole_time = sum(row.seconds for row in rows)
        share = max(1 - stored / whole_time, 0.0)
        parts = tuple((row, share * row.seconds) for row in rows)
        evidence = (
            f"the backward pass computes {many(len(rows), 'kernel')} again; to keep their results, "
            f"{si(more, 'B')} beside {si(held, 'B')} would spare that"
        )
        dearest = max(rows, key=lambda row: row.seconds)
        yield Claim("checkpoint", parts, evidence, source=dearest.source, known=True)


def in_each_turn(case: Case) -> Claims:
    """Yield kernels in loops of which most is the same in each turn.

    Their work counts in FLOPs, or in elements where it has none: casts, a library's calls.
    """
    for program, compiled in case.programs.items():
        flow = compiled.flow
        turning = turning_of(flow.graph) if flow.graph.loops else []
        for name, nodes in flow.kernels.items() if turning else ():
            row = case.by_name.get((program, name))
            if row is None or row.launches < 2:
                continue
            doing = [node for node in nodes if node.op not in _IDLE]
            counted = flow.work if any(map(flow.work, doing)) else _elements
            still = [n for n in doing if n.loops and n.loops[-1] not in turning[n.number]]
            if any(node.op in _PICKS for node in doing if node not in still):
                continue  # FLOPs, or elements, say nothing of the time that places take
            work, total = (sum(map(counted, some)) for some in (still, doing))
            main = largest(still, counted)
            if main is None or work < 0.5 * total or max(n.shape.bytes for n in still) < 2**12:
                continue
            lost = row.seconds * work / total * (1 - 1 / row.launches)
            evidence = f"{main.op} {main.shape} in each of {row.launches:,.0f} turns"
            line = flow.line(main)
            yield Claim("in-each-turn", ((row, lost),), evidence, source=line, known=True)


_IDLE = VIEWS | FREE | {"broadcast", "dynamic-slice", "dynamic-update-slice"}
_PICKS = frozenset({"gather", "scatter"})


def _elements(node: Node) -> float:
    return float(node.size)


def on_each_device(case: Case) -> Claims:
    """Yield kernels of lines whose FLOPs, over all devices, are a multiple of those as written.

    The line that is named is the first of them in the program's order: from there on devices have
    the same data.
    """
    for name, program in case.programs.items():
        flow, devices = program.intent, _devices(case, name)
        if flow is None or devices < 2:
            continue
        asked: dict[str, float] = {}
        for node in flow.graph.nodes:
            if node.op in ("dot", "convolution"):
                line = flow.line(node)
                asked[line] = asked.get(line, 0.0) + flow.work(node) * node.runs * node.copies
        rows = [row for row in case.kernels if row.program == name and row.kernel.flops.matrix]
        made: dict[str, float] = {}
        for row in rows:
            amount = row.kernel.flops.matrix * row.launches * devices
            made[row.source] = made.get(row.source, 0.0) + amount
        times = {line: made[line] / asked[line] for line in made if asked.get(line)}
        more = [row for row in rows if times.get(row.source, 1.0) > 1.8]
        if more:
            yield _repeated(case, program, more, times)


def _devices(case: Case, name: str) -> int:
    return case.programs[name].module.partitions


def _repeated(case: Case, program: Program, rows: list[TimedRow], times: dict[str, float]) -> Claim:
    """Return the claim on kernels that several devices run with the same data."""
    lines = list(dict.fromkeys(row.source for row in rows))
    parts = [(row, row.seconds * (1 - 1 / times[row.source])) for row in rows]
    around = {row.source for row in rows}
    for row in case.kernels:  # what lies between these matmuls works on the same data
        if row.source in around and not row.kernel.flops.matrix and not row.kernel.collective:
            share = 1 - 1 / times[row.source]
            parts.append((row, row.seconds * share))
    exchange, first, line = _first_whole(case, program, rows[0])
    parts += [(exchange, exchange.seconds)] if exchange is not None else []
    devices = significant(max(times[line] for line in lines))
    evidence = f"each of {devices} devices computes the same at {', '.join(lines[:3])}"
    evidence += f": from {first} on the batch isn't split over them" if first else ""
    remedy = (
        f"keep the batch split: jax.lax.with_sharding_constraint on what {line} makes, with the "
        "mesh's axis on its batch"
    )
    planted = _whole_by_request(program.intent, lines)
    if planted:
        line, evidence = planted, f"{evidence}; {planted} asks for whole arrays"
        remedy = (
            f"keep the batch split: give jax.lax.with_sharding_constraint at {line} the mesh's "
            "axis on the batch"
        )
    return Claim("on-each-device", tuple(parts), evidence, source=line, remedy=remedy, known=True)


def _whole_by_request(flow: Flow | None, lines: list[str]) -> str:
    """Return the line of a constraint that asks for whole arrays beside these lines, if any."""
    if flow is None:
        return ""
    module = flow.graph.module
    for where in module.computations.values():
        told = {i.name: str(source_of(i.metadata, module.frames) or "") for i in where.instructions}
        for each in where.instructions:
            whole_array = each.attributes.get("sharding") == "{replicated}"
            if each.base == "custom-call" and each.target == "Sharding" and whole_array:
                users = (user.name for user in where.instructions if each.name in user.operands)
                if any(told.get(name) in lines for name in (*each.operands, *users)):
                    return told[each.name]
    return ""


def _first_whole(case: Case, program: Program, row: TimedRow) -> tuple[TimedRow | None, str, str]:
    """Return the exchange that gives devices the same data before a kernel, and its line."""
    flow, left, seen = program.flow, list(program.flow.kernels.get(row.name, ())), set[int]()
    exchange: Node | None = None
    for node in left:
        for operand in node.ops:
            if operand.number in seen or len(seen) > 500:
                continue
            seen.add(operand.number)
            left.append(operand)
            source = case.by_name.get((row.program, operand.kernel))
            if source is not None and source.kernel.collective is not None:
                exchange = exchange or operand
    if exchange is None:
        return None, "", row.source
    before = [operand for operand in exchange.ops if operand.op != "parameter"]
    line = flow.line(before[0]) if before else flow.line(exchange)
    said = f"the {exchange.op} at {flow.line(exchange)}"
    return case.row(row, exchange.kernel), said, line or row.source


_DRAWS = re.compile(
    r"threefry|random_bits|rng_bit_generator|iota_2x32_shape"
    r"|jit\(_(uniform|normal|normal_real|bernoulli|randint|gumbel|exponential|categorical|gamma"
    r"|truncated_normal|laplace|cauchy|shuffle|permutation)\)"
)
_GENERATORS = frozenset({"rng", "rng-bit-generator", "rng-get-and-update-state"})


def random_numbers(case: Case) -> Claims:
    """Yield kernels that draw random numbers; of a fused one, the part that draws them."""
    for row in case.kernels:
        flow = case.program(row).flow
        inside = flow.kernels.get(row.name, [])
        nodes = [node for node in inside if node.op in _COUNTED] or inside
        work = {node: max(flow.work(node), node.size) for node in nodes}
        drawn = {node: amount for node, amount in work.items() if is_drawn(flow, node)}
        share = sum(drawn.values()) / max(sum(work.values()), 1)
        if share < 0.1 or any(node.op == "sort" for node in nodes):
            continue  # what shuffles isn't what draws
        flops = row.kernel.flops
        like = replace(row.kernel, flops=replace(flops, vector=flops.vector * (1 - share)))
        lost = row.seconds if share > 0.95 else case.saved(row, like)
        evidence = f"{share:.0%} of the operations of {row.title} draw them"
        source = flow.line(max(drawn, key=lambda node: drawn[node]))
        asked = any(is_drawn(flow, flow.graph.nodes[number]) for number in flow.returned)
        remedy = CHEAPER if asked and not any(n.op in _GENERATORS for n in drawn) else ""
        yield Claim("random", ((row, lost),), evidence, source=source, remedy=remedy)


CHEAPER = (
    "they are what the call returns, so only a cheaper generator helps: jax.random.key(seed, "
    "impl='rbg') on a TPU or GPU, 'unsafe_rbg' on a CPU too"
)

_COUNTED = ARITHMETIC | TRANSCENDENTAL | _GENERATORS | {"custom-call", "sort"}


def is_drawn(flow: Flow, node: Node) -> bool:
    """Return whether a node draws random numbers, or is in a loop that does."""
    around = (flow.graph.loops[name].instruction.op_name for name in node.loops)
    return node.op in _GENERATORS or any(map(_DRAWS.search, (node.op_name, *around)))


# --- kept for later -------------------------------------------------------------------------------


def residuals(case: Case) -> Claims:
    """Yield stacks of cheap values that one loop fills and a later one reads."""
    for name, program in case.programs.items():
        for carry, (update, readers) in stacks(program.flow).items():
            yield _stored(case, name, program.flow.graph.nodes[carry], update, readers)


def stacks(flow: Flow) -> dict[int, tuple[Node, list[Node]]]:
    """Return what loops stack of cheap values for later ones: the update, and what slices it."""
    found = {}
    for loop in flow.graph.loops.values():
        for carry, back in zip(loop.carry, loop.back, strict=True):
            update = _update(back)
            if update is None or carry.shape.bytes < 2**20 or _checkpointed(update):
                continue
            readers = [u for u in beyond(carry, loop.name) if u.op == "dynamic-slice"]
            if readers and _cheap(flow, update.ops[1], loop):
                found[carry.number] = update, readers
    return found


def _update(back: Node) -> Node | None:
    """Return the update in place by which a turn adds to a stack."""
    while back.op in ("copy", "bitcast", "convert") and back.ops:
        back = back.ops[0]
    return back if back.op == "dynamic-update-slice" and back.loops else None


def _checkpointed(node: Node) -> bool:
    return "checkpoint" in node.op_name or scope_of(node.op_name).step == "recomputed"


def _cheap(flow: Flow, piece: Node, loop: Loop) -> bool:
    """Return whether a value is computed in a turn from others without a product."""
    left, seen, works = [piece], set[int](), False
    for node in left:
        if node.number in seen or loop.name not in node.loops or len(seen) > 200:
            continue
        seen.add(node.number)
        if node.op in ("dot", "convolution", "custom-call", "sort"):
            return False
        works = works or bool(flow.work(node))
        if node.op not in (CARRY, "dynamic-slice", "parameter"):
            left += node.ops
    return works


def _stored(case: Case, name: str, carry: Node, update: Node, readers: list[Node]) -> Claim:
    """Return the claim on the kernels that write and read a stack of residuals."""
    flow = case.programs[name].flow
    size, parts = update.ops[1].shape.bytes, list[tuple[TimedRow, float]]()
    for node in (update, *{reader.kernel: reader for reader in readers}.values()):
        row = case.by_name.get((name, node.kernel))
        if row is not None:
            moves = {"written" if node is update else "read": float(size)}
            only = all(each.op in MOVES for each in flow.kernels[node.kernel])
            # what makes nothing but the stack goes: the later loop makes it from what it has
            only |= node is update and all(m.size == carry.size for m in flow.made(node.kernel))
            parts.append((row, row.seconds if only else case.without_bytes(row, **moves)))
    at = flow.line(readers[0])
    evidence = (
        f"{carry.shape} ({si(carry.shape.bytes, 'B')}) is filled by one loop and read by another"
    )
    evidence += f" ({at})" if at and at != flow.line(update) else ""
    return Claim("residuals", tuple(parts), evidence, source=flow.line(update), known=True)


def scores(case: Case) -> Claims:
    """Yield products larger than their factors that go through a softmax to another product.

    Where fused attention was measured, it takes the place of all these kernels, and of the products
    at both ends.
    """
    for name, program in case.programs.items():
        flow = program.flow
        for number in flow.products:
            node = flow.graph.nodes[number]
            factors = sum(operand.shape.bytes for operand in node.ops[:2])
            size = node.shape.leaves[0].bytes
            if size <= 0.5 * factors or node.size < 2**10:
                continue
            passed, ends = _through_softmax(flow, node)
            if not ends:
                continue
            half = node.ops[0].dtype in ("bf16", "f16")
            fused = case.platform == "gpu" and half
            parts = _moving(case, name, node, passed)
            kernels = {row.name for row, _ in parts}
            evidence = f"scores {node.shape.leaves[0]} pass through {many(len(kernels), 'kernel')}"
            after = _fused(case, flow, node, ends) if fused else None
            if after is not None:
                made = [*kernels, node.kernel, *_products_beside(flow, passed, node)]
                rows = [case.by_name.get((name, kernel)) for kernel in sorted({*made})]
                whole_rows = [row for row in rows if row is not None]
                now = sum(row.seconds for row in whole_rows)
                parts = [(row, row.seconds * max(1 - after / now, 0.0)) for row in whole_rows]
            cause = "attention" if fused else "scores"
            known = not half or after is not None
            yield Claim(cause, tuple(parts), evidence, source=flow.line(node), known=known)


def _products_beside(flow: Flow, passed: list[Node], scores: Node) -> Iterator[str]:
    """Yield the kernels of the products that make, or read, arrays of the scores' size."""
    for node in (scores, *passed):
        for each in (*node.ops, *flow.readers(node)):
            if flow.source(each).number in flow.known.spaces:
                yield flow.source(each).kernel


def _fused(case: Case, flow: Flow, scores: Node, ends: list[Node]) -> float | None:
    """Return the seconds that fused attention takes, forward and backward if there is a gradient.

    None where it wasn't measured.
    """
    space, chip = flow.known.spaces[scores.number], case.ceilings.chip
    if chip is None or case.ceilings.measured is not None or len(scores.dims) < 2:
        return None
    depth = math.prod(space.dims[space.result :])
    sizes = math.prod(scores.dims[:-2]), scores.dims[-2], depth
    moved = 2.0 * sum(operand.shape.bytes for operand in scores.ops[:2])
    gradient = any(scope_of(end.op_name).step == "backward" for end in ends)
    seconds = 0.0
    for kind, times in (("attention", 2.0), ("attention backward", 5.0))[: 1 + gradient]:
        flops = times * 2.0 * scores.size * depth
        dtype = "fp16" if scores.ops[0].dtype == "f16" else "bf16"
        found = expected_features(
            Features(kind, moved * (1 + (times > 2)), flops, dtype=dtype, sizes=sizes), chip
        )
        if found is None or found.seconds is None:
            return None
        seconds += found.seconds
    return seconds * scores.runs


def _through_softmax(flow: Flow, scores: Node) -> tuple[list[Node], list[Node]]:
    """Return the values of a product's size between it and the next, and what multiplies them.

    Nothing multiplies them unless a softmax is among them, and what does so isn't its gradient.
    """
    left, found, ends, sums = [scores], dict[int, Node](), list[Node](), False
    for node in left:
        for user in node.users:
            if user.number in found or len(found) > 400:
                continue
            if user.number in flow.known.spaces:
                ends.append(user)
                continue
            own = user.op == "custom-call" and "softmax" in user.kernel
            if user.op == "custom-call" and not own:
                continue  # a library's attention, or anything else
            found[user.number] = user
            if own:  # a TPU's kernel, which multiplies by the values too
                ends.append(user)
            sums = sums or own or _sums_exponentials(user)
            if user.size >= 0.5 * scores.size or user.op in ("reduce", "broadcast"):
                left.append(user)
    members = [node for node in found.values() if node.size == scores.size]
    forward = any(scope_of(end.op_name).step != "backward" for end in ends)
    return members, ends if forward and sums else []


def _sums_exponentials(node: Node) -> bool:
    """Return whether a node sums exponentials, as a softmax does; a norm sums squares."""
    if node.op not in ("reduce", "reduce-window"):
        return False
    summed = node.ops[0]
    while summed.op in ("convert", "bitcast", "copy", "reshape", "transpose", "select"):
        summed = summed.ops[1 if summed.op == "select" else 0]
    return summed.op == "exponential"


def _moving(
    case: Case, name: str, scores: Node, passed: list[Node]
) -> list[tuple[TimedRow, float]]:
    """Return the kernels that write and read arrays of the scores' size, and what that takes."""
    flow = case.programs[name].flow
    written: dict[str, float] = {}
    read: dict[str, float] = {}
    for node in (scores, *passed):
        readers = dict.fromkeys(reader.kernel for reader in flow.readers(node))
        if readers and node.op not in ("bitcast", "reshape"):
            written[node.kernel] = written.get(node.kernel, 0.0) + node.shape.leaves[0].bytes
            for reader in readers:
                read[reader] = read.get(reader, 0.0) + node.shape.leaves[0].bytes
    parts = []
    for kernel in dict.fromkeys([*written, *read]):
        row = case.by_name.get((name, kernel))
        if row is not None:
            saved = case.without_bytes(row, read.get(kernel, 0.0), written.get(kernel, 0.0))
            parts.append((row, saved))
    return parts


def between_products(flow: Flow) -> set[int]:
    """Return the values between two products that have a softmax between them."""
    found = set[int]()
    for number in flow.products:
        passed, ends = _through_softmax(flow, flow.graph.nodes[number])
        found |= {number, *(node.number for node in passed)} if ends else set()
    return found


def _is_scattered(node: Node, depth: int = 8) -> bool:
    """Return whether a value is only written, as it is or by element, where data choose."""
    through = _IDLE | ARITHMETIC | TRANSCENDENTAL | {"convert", "copy"}
    return bool(node.users) and all(
        user.op == "scatter"
        or (depth > 0 and user.op in through and _is_scattered(user, depth - 1))
        for user in node.users
    )


_OUTGROWN = 8
"""Times the largest argument or result from which on an array between them is called large."""


def large_between(case: Case) -> Claims:
    """Yield kernels around an array that is larger than all arguments and results."""
    for name, program in case.programs.items():
        flow = program.flow
        scores_of = between_products(flow)
        arrays = [*flow.graph.parameters, *flow.graph.results]
        limit = max([2**20, *(node.shape.bytes for node in arrays)])
        if max((row.kernel.written_bytes for row in case.kernels), default=0) < _OUTGROWN * limit:
            continue
        for kernel in flow.kernels:
            row = case.by_name.get((name, kernel))
            if row is None or row.kernel.overlaps:
                continue
            for node in flow.made(kernel):
                small = node.shape.bytes < _OUTGROWN * limit
                if node.shape.parts is not None or small or node.number in scores_of:
                    continue
                rows = [case.row(row, each.kernel) for each in flow.readers(node)]
                readers = {each.name: each for each in rows if each is not None}
                stacked = node.op in ("copy-start", "bitcast", "dynamic-update-slice")
                # where data choose places, no other operation can read or write in its stead
                stacked |= node.op == "gather" or _is_scattered(node)
                if not readers or stacked or not flow.known[node].varies:
                    continue
                size = float(node.shape.bytes)
                parts = [(row, case.without_bytes(row, written=size))]
                parts += [(r, case.without_bytes(r, read=size)) for r in readers.values()]
                readings = many(len(readers), "kernel")
                evidence = f"{node.shape} ({si(size, 'B')}) is written for {readings} to read"
                line = flow.line(node)
                # in parts the array is still written, a part at a time: no promise
                yield Claim("large-between", tuple(parts), evidence, source=line)
