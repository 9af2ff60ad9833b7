"""What is done again, and what is kept in memory for later."""

from __future__ import annotations

import re
from dataclasses import replace

from roofline.diagnosis.findings.causes import (
    AGAIN,
    KEPT,
    Case,
    Cause,
    Check,
    Claim,
    Claims,
    whole,
)
from roofline.diagnosis.flow import Flow, largest
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow
from roofline.xla.graph import CARRY, Loop, Node
from roofline.xla.hlo import ARITHMETIC, TRANSCENDENTAL
from roofline.xla.metadata import scope_of
from roofline.xla.minimum import turning_of
from roofline_helpers.common.show import si, significant

RECOMPUTED = Cause(
    "recomputed",
    "values are computed again, since memory is short",
    "give the program less to keep (a smaller batch, a jax.checkpoint policy of your own), or "
    "donate what it replaces",
    kind=AGAIN,
)
INVARIANT = Cause(
    "in-each-turn",
    "a loop computes the same value in each turn",
    "compute it once, before the loop",
    kind=AGAIN,
)
ON_EACH_DEVICE = Cause(
    "on-each-device",
    "several devices do the same work",
    "keep the batch sharded: jax.lax.with_sharding_constraint on what the line makes",
    kind=AGAIN,
)
RANDOM = Cause(
    "random",
    "random numbers are drawn in the call",
    "draw fewer (one mask for several uses, dropout in fewer places), or draw them by a cheaper "
    "generator: jax.random.key(seed, impl='rbg') on a TPU or GPU, 'unsafe_rbg' on a CPU too",
    kind=AGAIN,
)
CAPTURED = Cause(
    "captured",
    "a large array is a constant of the program",
    "pass it as an argument: a constant is compiled in, again with each new shape",
    kind=AGAIN,
)
RESIDUALS = Cause(
    "residuals",
    "a loop stores what its backward pass could compute again",
    "jax.checkpoint on the loop's body: it keeps the carry, and computes the rest again",
    kind=KEPT,
)
SCORES = Cause(
    "scores",
    "attention scores are written to memory and read again",
    "work through them block by block: fused attention",
    kind=KEPT,
)
ATTENTION = Cause(
    "attention",
    "attention runs as separate matmuls where one kernel could do it",
    "jax.nn.dot_product_attention with implementation cudnn on an NVIDIA GPU, splash "
    "attention on a TPU",
    checked={"gpu": Check(1.09, 1.14, "2 pairs of programs timed on an H200")},
    kind=KEPT,
)
LARGE = Cause(
    "large-between",
    "an array larger than all that goes in and out is written and read again",
    "compute in parts what needs it: a loss over chunks of tokens, fewer tangents at a time "
    "(jax.lax.map over jax.jvp, products with a Hessian)",
    kind=KEPT,
)

# --- again ----------------------------------------------------------------------------------------

_REMAT = re.compile(r"\.remat\d*(\.|$)")


def recomputed(case: Case) -> Claims:
    """Yield kernels that the compiler runs twice, since their results took too much memory."""
    for row in case.kernels:
        if _REMAT.search(row.name):
            yield whole(RECOMPUTED, row, f"{row.title} runs again, since memory is short")


def in_each_turn(case: Case) -> Claims:
    """Yield kernels in loops of which most is the same in each turn."""
    for program in case.programs.values():
        flow = program.flow
        if not flow.graph.loops:
            continue
        turning = turning_of(flow.graph)
        for name, nodes in flow.kernels.items():
            row = case.by_name.get((program.module.name, name))
            still = [n for n in nodes if n.loops and n.loops[-1] not in turning[n.number]]
            work, total = (sum(map(flow.work, some)) for some in (still, nodes))
            if row is None or row.launches < 2 or not total or work < 0.5 * total:
                continue
            main = largest(still, flow.work)
            if main is None or max(node.shape.bytes for node in still) < 2**12:
                continue
            lost = row.seconds * work / total * (1 - 1 / row.launches)
            evidence = f"{main.op} {main.shape} in each of {row.launches:,.0f} turns"
            line = flow.line(main)
            yield Claim(INVARIANT, ((row, lost),), evidence, source=line, known=True)


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
    return Claim(ON_EACH_DEVICE, tuple(parts), evidence, source=line, remedy=remedy, known=True)


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
        nodes = flow.kernels.get(row.name, [])
        work = [(n, max(flow.work(n), n.size)) for n in nodes if n.op in _COUNTED]
        total = sum(amount for _, amount in work)
        drawn = [(n, amount) for n, amount in work if _draws(n)]
        share = sum(amount for _, amount in drawn) / total if total else 0.0
        if any(node.op == "sort" for node in nodes):
            continue  # what shuffles isn't what draws
        if nodes and (_in_a_generator(flow, nodes[-1]) or _DRAWS.search(row.kernel.op_name)):
            share, drawn = 1.0, [(nodes[-1], 1.0)]
        if share < 0.1 or not drawn:
            continue
        flops = row.kernel.flops
        like = replace(row.kernel, flops=replace(flops, vector=flops.vector * (1 - share)))
        lost = row.seconds if share > 0.95 else case.saved(row, like)
        evidence = f"{share:.0%} of the operations of {row.title} draw them"
        source = flow.line(max(drawn, key=lambda pair: pair[1])[0])
        yield Claim(RANDOM, ((row, lost),), evidence, source=source)


_COUNTED = ARITHMETIC | TRANSCENDENTAL | _GENERATORS | {"custom-call"}


def _draws(node: Node) -> bool:
    """Return whether a node draws random numbers."""
    return node.op in _GENERATORS or bool(_DRAWS.search(node.op_name))


def _in_a_generator(flow: Flow, node: Node) -> bool:
    """Return whether a node is in a loop that draws random numbers."""
    loops = (flow.graph.loops[name].instruction for name in node.loops)
    return any(_DRAWS.search(loop.op_name) for loop in loops)


def captured(case: Case) -> Claims:
    """Yield large constants of a program that took long to compile."""
    for program in case.programs.values():
        flow = program.intent or program.flow
        constants = [node for node in flow.graph.nodes if node.op == "constant"]
        largest = max(constants, key=lambda node: node.shape.bytes, default=None)
        if largest is None or largest.shape.bytes < 2**20 or case.compiled < 0.5:
            continue
        size = si(largest.shape.bytes, "B")
        evidence = (
            f"{largest.shape} ({size}) is compiled into the program, in {case.compiled:.1f} s"
        )
        yield Claim(CAPTURED, (), evidence, more=1e-12, source=flow.line(largest))


# --- kept for later -------------------------------------------------------------------------------


def residuals(case: Case) -> Claims:
    """Yield stacks of cheap values that one loop fills and a later one reads."""
    for program in case.programs.values():
        flow = program.flow
        for loop in flow.graph.loops.values():
            for carry, back in zip(loop.carry, loop.back, strict=True):
                update = _update(back)
                if update is None or carry.shape.bytes < 2**20 or _checkpointed(update):
                    continue
                readers = [u for u in _beyond(carry, loop) if u.op == "dynamic-slice"]
                if not readers or not _cheap(flow, update.ops[1], loop):
                    continue
                yield _stored(case, program, carry, update, readers)


def _update(back: Node) -> Node | None:
    """Return the update in place by which a turn adds to a stack."""
    while back.op in ("copy", "bitcast", "convert") and back.ops:
        back = back.ops[0]
    return back if back.op == "dynamic-update-slice" and back.loops else None


def _beyond(carry: Node, loop: Loop) -> list[Node]:
    """Return what reads a loop's result in other loops."""
    found, left, seen = [], list(carry.users), set[int]()
    for user in left:
        if user.number in seen:
            continue
        seen.add(user.number)
        inside = loop.name in user.loops
        if user.op in (CARRY, "bitcast", "copy", "convert", "reshape") and not inside:
            left += user.users
        elif user.loops and not inside:
            found.append(user)
    return found


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


def _stored(case: Case, program: Program, carry: Node, update: Node, readers: list[Node]) -> Claim:
    """Return the claim on the kernels that write and read a stack of residuals."""
    flow, name = program.flow, program.module.name
    parts: list[tuple[TimedRow, float]] = []
    writer = case.by_name.get((name, update.kernel))
    size = update.ops[1].shape.bytes
    if writer is not None:
        parts.append((writer, case.without_bytes(writer, written=size)))
    for reader in {reader.kernel: reader for reader in readers}.values():
        row = case.by_name.get((name, reader.kernel))
        if row is not None:
            parts.append((row, case.without_bytes(row, read=size)))
    at = flow.line(readers[0])
    evidence = (
        f"{carry.shape} ({si(carry.shape.bytes, 'B')}) is filled by one loop and read by another"
    )
    evidence += f" ({at})" if at and at != flow.line(update) else ""
    return Claim(RESIDUALS, tuple(parts), evidence, source=flow.line(update), known=True)


def scores(case: Case) -> Claims:
    """Yield products larger than their factors that go through a softmax to another product."""
    for program in case.programs.values():
        flow = program.flow
        for number in flow.known.spaces:
            node = flow.graph.nodes[number]
            factors = sum(operand.shape.bytes for operand in node.ops[:2])
            size = node.shape.leaves[0].bytes
            if size <= 0.5 * factors or node.size < 2**10:
                continue
            passed, ends = _through_softmax(flow, node)
            if not ends:
                continue
            parts = _moving(case, program, node, passed)
            half = node.ops[0].dtype in ("bf16", "f16")
            cause = ATTENTION if case.platform == "gpu" and half else SCORES
            kernels = {row.name for row, _ in parts}
            evidence = f"scores {node.shape.leaves[0]} pass through {len(kernels)} kernels"
            yield Claim(cause, tuple(parts), evidence, source=flow.line(node), known=not half)


def _through_softmax(flow: Flow, scores: Node) -> tuple[list[Node], bool]:
    """Return the values of a product's size between it and the next, if a softmax is among them."""
    left, found, ends, sums = [scores], dict[int, Node](), False, False
    for node in left:
        for user in node.users:
            if user.number in found or len(found) > 400:
                continue
            if user.number in flow.known.spaces:
                ends = ends or scope_of(user.op_name).step != "backward"
                continue
            found[user.number] = user
            # a TPU's kernel, which multiplies by the values too
            ends = ends or (user.op == "custom-call" and "softmax" in user.kernel)
            sums = sums or _sums_exponentials(user)
            if user.size >= 0.5 * scores.size or user.op in ("reduce", "broadcast"):
                left.append(user)
    members = [node for node in found.values() if node.size == scores.size]
    own = any(node.op == "custom-call" for node in found.values())
    return members, ends and (own or sums)


def _sums_exponentials(node: Node) -> bool:
    """Return whether a node sums exponentials, as a softmax does; a norm sums squares."""
    if node.op not in ("reduce", "reduce-window"):
        return False
    summed = node.ops[0]
    while summed.op in ("convert", "bitcast", "copy", "reshape", "transpose", "select"):
        summed = summed.ops[1 if summed.op == "select" else 0]
    return summed.op == "exponential"


def _moving(
    case: Case, program: Program, scores: Node, passed: list[Node]
) -> list[tuple[TimedRow, float]]:
    """Return the kernels that write and read arrays of the scores' size, and what that takes."""
    flow, name = program.flow, program.module.name
    written: dict[str, float] = {}
    read: dict[str, float] = {}
    for node in (scores, *passed):
        readers = {reader.kernel for reader in flow.readers(node)}
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


def _scores(flow: Flow) -> set[int]:
    """Return the values between two products that have a softmax between them."""
    found = set[int]()
    for number in flow.known.spaces:
        passed, ends = _through_softmax(flow, flow.graph.nodes[number])
        found |= {number, *(node.number for node in passed)} if ends else set()
    return found


_OUTGROWN = 8
"""Times the largest argument or result from which on an array between them is called large."""


def large_between(case: Case) -> Claims:
    """Yield kernels around an array that is larger than all arguments and results."""
    for name, program in case.programs.items():
        flow = program.flow
        scored = _scores(flow)
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
                if node.shape.parts is not None or small or node.number in scored:
                    continue
                rows = [case.row(row, each.kernel) for each in flow.readers(node)]
                readers = {each.name: each for each in rows if each is not None}
                stacked = node.op in ("copy-start", "bitcast", "dynamic-update-slice")
                if not readers or stacked or not flow.known[node].varies:
                    continue
                size = float(node.shape.bytes)
                parts = [(row, case.without_bytes(row, written=size))]
                parts += [(r, case.without_bytes(r, read=size)) for r in readers.values()]
                evidence = (
                    f"{node.shape} ({si(size, 'B')}) is written for {len(readers)} kernels to read"
                )
                yield Claim(LARGE, tuple(parts), evidence, source=flow.line(node))
