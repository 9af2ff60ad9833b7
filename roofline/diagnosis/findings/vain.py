"""What no result needs: values that nobody reads, and work on zeros."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import replace

from roofline import xla
from roofline.diagnosis.findings.again import between_products
from roofline.diagnosis.findings.causes import (
    CAUSES,
    Case,
    Claim,
    Claims,
)
from roofline.diagnosis.flow import VIEWS, Flow, Kept, counted, largest
from roofline.diagnosis.rows import TimedRow
from roofline.xla.collectives import CollectiveOp
from roofline.xla.flops import windows_of
from roofline.xla.graph import CARRY, ELEMENT, Node
from roofline.xla.hlo import ARITHMETIC, FREE, PRODUCTS, TRANSCENDENTAL
from roofline.xla.minimum import chooses, is_real, only_for
from roofline.xla.orders import trees
from roofline_helpers.common.show import many, significant

MOST = 0.75
"""Share of a kernel's work that is needed from which on it isn't looked into."""


def less(row: xla.Row, kept: Kept) -> xla.Row:
    """Return a kernel's work with only what is kept of it."""
    return replace(
        row,
        flops=row.flops * kept.flops,
        read={level: round(n * kept.read) for level, n in row.read.items()},
        written={level: round(n * kept.written) for level, n in row.written.items()},
    )


def in_vain(case: Case) -> Claims:
    """Yield kernels of whose work results need a part only: the rest is unread, or on zeros."""
    others = list[Claim]()
    for row in case.kernels:
        flow = case.program(row).flow
        nodes = [n for n in flow.kernels.get(row.name, ()) if n.op not in FREE]
        if row.kernel.collective is not None:
            sums = [node for node in nodes if node.op == "all-reduce"]
            yield from _exchanged(flow, row, row.kernel.collective, sums)
            continue
        if row.kernel.overlaps or not nodes:
            continue
        kept = flow.kept(row.name, sum(row.kernel.read.values()), flow.needs.useful)
        main = largest(nodes, functools.partial(_lost, flow))
        works = main is not None and flow.work(main) and main.op != "select"
        if main is None or kept.least > (MOST if works else 0.5 * MOST):
            continue
        seconds = case.saved(row, less(row.kernel, kept))
        unread = flow.whole(main).share <= flow.needs.useful(main).share * 1.01
        claim = (_unread if unread else _on_zeros)(flow, row, main, seconds)
        if claim is None:
            continue
        if unread or main.number not in flow.known.spaces:
            others.append(claim)
        else:  # before what only makes its zeros, which goes with it
            yield replace(claim, parts=(*claim.parts, *_masks(case, row, main)))
    yield from others


def _masks(case: Case, row: TimedRow, main: Node) -> Iterator[tuple[TimedRow, float]]:
    """Yield the kernels that only make the factor with zeros of a product, which goes with it."""
    flow = case.program(row).flow
    side = min((0, 1), key=lambda n: flow.known[main.ops[n]].nonzero.share)
    alone = {node.number for node in only_for(main, side)}
    for name in dict.fromkeys(flow.graph.nodes[number].kernel for number in sorted(alone)):
        maker = case.row(row, name)
        others = (n for n in flow.kernels[name] if n.op not in (*VIEWS, "constant"))
        if maker is not None and maker is not row and all(n.number in alone for n in others):
            yield maker, maker.seconds


def _lost(flow: Flow, node: Node) -> float:
    """Return the operations, or elements, of a node that no result needs; masks cost nothing."""
    if node.dtype == "pred" or flow.known[node].values is not None:
        return 0.0
    return max(flow.work(node), node.size) * (1 - flow.needs.useful(node).share)


# --- unread ---------------------------------------------------------------------------------------


def _unread(flow: Flow, row: TimedRow, main: Node, seconds: float) -> Claim | None:
    """Return the claim on a kernel of which a part is read.

    None of a search for the largest, and of what a library's call leaves out by itself.
    """
    need, limit = flow.needs[main], flow.needs.limit(main)
    at = flow.line(limit) if limit is not None else ""
    line, share = flow.line(main), counted(need.share)
    by = f", by a {limit.op} ({at})" if limit is not None and at != line else ""
    evidence = f"of {main.op} {main.shape} {share} is read{by}"
    cause, known, remedy = "read-in-part", True, ""
    if main.op == "sort" and main.op_name.endswith("top_k"):
        return None  # how XLA makes it of short rows
    if limit is not None and flow.in_library(limit) and flow.in_library(main):
        return None
    if main.op == "sort":
        cause, known, seconds = "sort", _by_rows(main, need.axes), row.seconds
        evidence = f"{main.shape.leaves[0]} is sorted, and {share} is read{by}"
    elif main.op in _TOGETHER:
        known = not need.axes & set(range(len(main.dims))[-_TOGETHER[main.op] :])
        length = main.dims[-1]
        if main.op == "fft" and not known and need.share * length > _FEW * math.log2(length):
            return None  # the sums of a fast transform serve all of its places
    elif any(len(axes) > 1 for axes in need.along):
        cause = "done-densely"
        known = main.op in PRODUCTS  # a convolution in groups is another kernel, often a slow one
        evidence = f"{main.shape} is computed, and {share} of it is used{by}"
        if need.elements <= max(main.dims):
            remedy = _ENTRIES
        elif main.number in between_products(flow):
            remedy = _BLOCKS
    elif limit is not None:
        remedy = _sooner(need.axes, main, limit)
    return Claim(cause, ((row, seconds),), evidence, source=at or line, remedy=remedy, known=known)


_ENTRIES = (
    "sum the products of these entries alone: (a * b.T).sum(-1) for the diagonal of a @ b, "
    "jnp.vdot(a, b.T) for its trace"
)

_BLOCKS = (
    "attention that leaves out the blocks which its mask hides: splash attention on a TPU, "
    "jax.nn.dot_product_attention with implementation='cudnn' on an NVIDIA GPU"
)

_FEW = 16
"""Multiply-adds of a matrix unit in the time of one of a fast transform."""

_TOGETHER = {"fft": 1, "cholesky": 2, "triangular-solve": 2}
"""Operations that need all of their last axes for any part of these."""


def _by_rows(node: Node, axes: frozenset[int]) -> bool:
    """Return whether fewer rows are sorted if fewer are read."""
    return bool(axes) and not axes & set(node.numbers("dimensions"))


def _sooner(axes: frozenset[int], main: Node, limit: Node) -> str:
    """Return what to do about values that a later operation leaves out."""
    word = {"select": "mask", "multiply": "mask", "gather": "index"}.get(limit.op, "slice")
    if len(axes) == 1:
        size = main.dims[min(axes)]
        return f"{word} before computing, along the axis of {size:,}: then only that part is made"
    return f"{word} before computing, so that only that part is made"


def _exchanged(flow: Flow, row: TimedRow, exchange: CollectiveOp, sums: list[Node]) -> Claims:
    """Yield a sum over devices of which each reads its own part only."""
    devices = exchange.group_size
    if not sums or devices < 2:
        return
    [node, *_] = sums
    parts = [node] if node.shape.parts is None else [n for n in node.users if n.op == ELEMENT]
    sliced = [part for part in parts if flow.needs[part].share <= 1.01 / devices]
    if sliced:
        share = sum(p.shape.bytes for p in sliced) / sum(p.shape.bytes for p in parts)
        evidence = f"of {sliced[0].shape} on {devices} devices each reads its own part"
        yield Claim("all-reduce-sliced", ((row, 0.5 * share * row.seconds),), evidence, known=True)


def branches(case: Case) -> Claims:
    """Yield kernels that only serve one side of a choice made for each example.

    What the dearer side takes is the cost: how many examples take it, only data know.
    """
    for name, program in case.programs.items():
        flow = program.flow
        for node in reversed(flow.graph.nodes):  # of a `switch` the last choice is between all
            if not chooses(flow.known, node):
                continue
            sides = [_seconds_of(case, name, flow, only_for(node, side)) for side in (1, 2)]
            dearer = max(sides, key=lambda side: sum(side.values()))
            if not dearer:
                continue
            rows = [case.by_name[name, kernel] for kernel in dearer]
            parts = tuple(zip(rows, dearer.values(), strict=True))
            options = _options(flow, node)
            words = ("two", "both", "the other") if options == 2 else (options, "all", "another")
            evidence = (
                f"{node.shape} is one of {words[0]} values, chosen after {words[1]} were computed "
                "for all examples; what the dearest takes is in vain for each that takes "
                f"{words[2]}"
            )
            yield Claim("both-branches", parts, evidence, source=flow.line(node))


def _options(flow: Flow, node: Node) -> int:
    """Return between how many values a choice, and those before it, are made."""
    return sum(_options(flow, side) for side in node.ops[1:]) if chooses(flow.known, node) else 1


def _seconds_of(case: Case, program: str, flow: Flow, nodes: list[Node]) -> dict[str, float]:
    """Return the seconds that some nodes take of their kernels."""
    alone: dict[str, float] = {}
    for each in nodes:
        alone[each.kernel] = alone.get(each.kernel, 0.0) + max(flow.work(each), 1)
    found = {}
    for kernel, work in alone.items():
        row = case.by_name.get((program, kernel))
        if row is not None:
            total = sum(max(flow.work(each), 1) for each in flow.kernels[kernel])
            found[kernel] = row.seconds * min(1.0, work / total)
    return found


# --- zeros ----------------------------------------------------------------------------------------


def _on_zeros(flow: Flow, row: TimedRow, main: Node, seconds: float) -> Claim | None:
    """Return the claim on a kernel that mostly works on zeros; None inside of a library's call."""
    space, useful = flow.known.spaces.get(main.number), flow.needs.useful(main)
    operands = main.ops[:2] if space is not None else main.ops
    with_zeros = [o for o in operands if flow.known[o].zeros is not None] or [main]
    sparse = min(with_zeros, key=lambda operand: flow.known[operand].nonzero.share)
    origin = flow.known[sparse].zeros or main
    if flow.in_library(main) and flow.in_library(origin):
        return None
    at = flow.line(origin) or flow.line(main)
    apart = f" ({at})" if at != flow.line(main) else ""
    if space is None:
        zero = 1 - flow.known[main].nonzero.share  # what isn't useful may be unread, too
        evidence = f"{zero:.1%} of {main.op} {main.shape} is zero, by {origin.op}{apart}"
        rows_of_it = main.users and _is_identity(flow, origin) and _rows_are_picked(main)
        cause = "one-hot" if rows_of_it else "zeros"
        remedy = _TANGENTS if cause == "zeros" and _of_tangents(main) else ""
        return Claim(cause, ((row, seconds),), evidence, source=at, remedy=remedy, known=True)
    summed = math.prod(space.dims[space.result :])
    rows = max(math.prod(sparse.dims) // max(summed, 1), 1)
    terms = useful.elements / max(flow.needs[main].elements, 1)
    several = "isn't zero" if round(terms) <= 1 else "aren't zero"
    every = f"each of the {rows:,} rows" if rows > 1 else "the row"
    evidence = f"{every} is multiplied by {summed:,}, of which {_number(terms)} {several}{apart}"
    cause, remedy = _with_zeros(flow, main, sparse, origin, terms)
    return Claim(cause, ((row, seconds),), evidence, source=at, remedy=remedy, known=True)


_TANGENTS = (
    "take fewer basis vectors at a time: jax.lax.map over jax.jvp or jax.vjp, or products with the "
    "Hessian (jax.jvp of jax.grad) where not all of it is used"
)


def _of_tangents(node: Node) -> bool:
    """Return whether a value is one of many tangents or cotangents, as of a Jacobian's basis."""
    return "vmap" in node.op_name and re.search(r"jvp|transpose", node.op_name) is not None


def _rows_are_picked(node: Node) -> bool:
    """Return whether data pick rows of a matrix wherever it is read."""
    return all(
        user.op in ("gather", "dynamic-slice") or (user.op in VIEWS and _rows_are_picked(user))
        for user in node.users
    )


def _is_identity(flow: Flow, origin: Node) -> bool:
    """Return whether zeros are those of an identity matrix: two counters that are compared."""
    equal = origin.op == "compare" and origin.attribute("direction") == "EQ"
    return equal and all(flow.known[side].values is not None for side in origin.ops[:2])


_DIAGONAL = "scale the rows by the diagonal alone: d[:, None] * x"


def _picked(flow: Flow, node: Node, origin: Node) -> bool:
    """Return whether data choose rows of a matrix between its making and a value."""
    while node is not origin:
        if node.op in ("gather", "dynamic-slice"):
            return True
        node = next((o for o in node.ops if flow.known[o].zeros is origin), origin)
    return False


def _number(value: float) -> str:
    return "one" if round(value) <= 1 else f"{value:,.0f}"


def _with_zeros(
    flow: Flow, main: Node, sparse: Node, origin: Node, terms: float
) -> tuple[str, str]:
    """Return the cause of a product with zeros, and what to do about it."""
    if origin.op == "compare" and origin.attribute("direction") == "EQ":
        if _is_identity(flow, origin) and not _picked(flow, sparse, origin):
            blocks = "multiply the blocks alone: einsum or vmap over their shared axis"
            if _of_tangents(main):
                return "zeros", _TANGENTS
            return "zeros", _DIAGONAL if round(terms) <= 1 else blocks
        space = flow.known.spaces[main.number]
        places = space.sides[0 if main.ops[0] is sparse else 1]
        summed = {axis for axis, place in places.items() if place >= space.result}
        if _only_masks(sparse) and summed & flow.known[sparse].most.keys():
            more = f"{CAUSES['one-hot'].advice}, and add what they name"
            return "one-hot", "" if round(terms) <= 1 else more
        placed = _only_masks(sparse) and flow.known[sparse].most
        if placed or flow.known[sparse].nonzero.axes <= summed:
            return "zeros", "add to the places that the indices name: jax.ops.segment_sum"
        return "ragged", ""
    if origin.op in ("pad", "convolution"):
        return "zeros", "compute with the array as it is, and place the result"
    if origin.op == "and" or sparse.size > 2 * flow.source(sparse).size:
        return "ragged", ""
    return "zeros", ""


def dilated(case: Case) -> Claims:
    """Yield convolutions over a spread input that stay far below the roof of their useful taps."""
    for row in case.kernels:
        flow = case.program(row).flow
        for node in flow.kernels.get(row.name, ()):
            if node.op != "convolution" or node.instruction is None or not case.slow(row):
                continue
            space, labels = flow.known.spaces[node.number], node.attribute("dim_labels")
            data, spatial = labels.partition("_")[0], sorted(filter(str.isdigit, labels))
            windows = windows_of(node.instruction, len(spatial) // 3)
            # a TPU's compiler writes a batch of matmuls as a convolution whose input is spread
            batch = {axis for axis, p in space.sides[0].items() if p in space.sides[1].values()}
            read = labels.partition(">")[2]
            met = 1.0
            for name, window in zip(spatial[::3], windows, strict=True):
                size, out = node.ops[0].dims[data.index(name)], node.dims[read.index(name)]
                # with its operands exchanged, the same convolution spreads the other one
                spread = window.base > 1 or (window.dilation > 1 and out > size)
                if spread and data.index(name) not in batch:
                    met *= window.taps(size, out) / (window.size * out)
            times = round(1 / met)
            if times > 1:
                evidence = f"{node.ops[0].shape}: {times - 1} of {times} places it reads are zeros"
                yield Claim("dilated", ((row, row.lost),), evidence, source=flow.line(node))


def _only_masks(node: Node, depth: int = 16) -> bool:
    """Return whether a value is made of masks alone, as one-hot rows and sums of them are."""
    if node.dtype == "pred" or node.op == "constant":
        return True
    picks = node.op in ("gather", "dynamic-slice")
    through = picks or node.op in _PLACES
    given = node.ops[:1] if picks else node.ops
    return through and depth > 0 and all(_only_masks(each, depth - 1) for each in given)


_PLACES = frozenset(
    "convert bitcast reshape broadcast copy transpose add select slice concatenate pad "
    "reverse reduce reduce-precision".split()
)
"""What makes masks of masks, beside what data pick."""


def real_transforms(case: Case) -> Claims:
    """Yield kernels on complex numbers of which half says all: real ones, and their spectra."""
    for name, program in case.programs.items():
        flow = program.flow
        halves = _halves(flow)
        ffts = [flow.graph.nodes[n] for n in halves if flow.graph.nodes[n].op == "fft"]
        for kernel in flow.kernels if ffts else ():
            row = case.by_name.get((name, kernel))
            made = flow.made(kernel)
            if row is None or not made:
                continue
            read = [operand for operand, _, _ in flow.taken(kernel)]
            kept = [_kept(some, halves) for some in (made, read)]
            if any(node.op == "fft" for node in made):
                lost = row.seconds * (1 - kept[0])
            else:
                lost = case.saved(row, less(row.kernel, Kept(kept[0], kept[1], kept[0])))
            if lost > 0:
                evidence = f"{ffts[0].ops[0].shape} has no imaginary part"
                source = flow.line(ffts[0])
                yield Claim("real-as-complex", ((row, lost),), evidence, source=source, known=True)


def _kept(nodes: list[Node], halves: set[int]) -> float:
    """Return the share of some arrays' bytes that are left if half of certain ones goes."""
    sizes = {node.number: node.shape.bytes for node in nodes}
    half = sum(size for number, size in sizes.items() if number in halves)
    return 1 - 0.5 * half / max(sum(sizes.values()), 1)


def _halves(flow: Flow) -> set[int]:
    """Return the complex values without an imaginary part, the spectra of such, and their parts.

    A spectrum of real numbers mirrors itself, and so does what is made of such by element; its
    inverse transform is real.
    """
    real, mirrored = set[int](), set[int]()
    for node in flow.graph.nodes:
        sides = [operand.number for operand in node.ops if operand.size > 1]
        if not sides:
            continue
        if is_real(flow.known, node):
            real.add(node.number)
        elif node.op == "fft" and node.attribute("fft_type") in ("FFT", "IFFT"):
            real |= {node.number} if sides[0] in mirrored else set()
            mirrored |= {node.number} if sides[0] in real else set()
        elif all(number in real for number in sides) and node.dtype.startswith("c"):
            real.add(node.number)
        elif all(number in mirrored for number in sides) and _by_element(node):
            mirrored.add(node.number)
    return real | mirrored


def _by_element(node: Node) -> bool:
    same = all(operand.dims in ((), node.dims) for operand in node.ops)
    views = node.op in ("copy", "convert", "bitcast", "real", "imag", "complex", CARRY)
    return same and (views or node.op in ARITHMETIC | TRANSCENDENTAL)


# --- products in a dearer order -------------------------------------------------------------------

_FEWER = 0.4
"""Share of the multiply-adds up to which another order is named."""


def dearer_orders(case: Case) -> Claims:
    """Yield products of which another order takes far fewer multiply-adds, and less time."""
    for name, program in case.programs.items():
        flow = program.flow
        for tree in trees(flow.known):
            within = [*tree.products, *tree.between]
            alone = _seconds_of(case, name, flow, within) if tree.share <= _FEWER else {}
            rows = {kernel: case.by_name[name, kernel] for kernel in alone}
            if not rows or tree.products[0].kernel not in rows:
                continue
            row, size = rows[tree.products[0].kernel], tree.products[0].shape.bytes
            each = size / max(tree.products[0].size, 1)
            now = sum(case.likely(r, r.kernel) * alone[k] / r.seconds for k, r in rows.items())
            after = 0.0
            for step in tree.steps:
                like = replace(
                    row.kernel,
                    flops=xla.Flops(matrix=2 * step.terms),
                    read={"hbm": round(step.read * each)},
                    written={"hbm": round(step.written * each)},
                )
                after += case.likely(row, like)
            large = max(tree.products, key=lambda node: node.size * (node is not tree.products[0]))
            first = next(step.sides for step in tree.steps if all(len(s) == 1 for s in step.sides))
            pair = " by ".join(str(tree.arrays[n].shape.leaves[0]) for side in first for n in side)
            evidence = (
                f"{many(len(tree.arrays), 'array')} are multiplied by way of "
                f"{large.shape.leaves[0]}, which takes {significant(1 / tree.share, 2)} times the "
                "FLOPs of another order"
            )
            parts = [(rows[k], seconds * (1 - after / now)) for k, seconds in alone.items()]
            if after < now:
                yield Claim(
                    "dearer-order",
                    tuple(parts),
                    evidence,
                    source=flow.line(large),
                    remedy=f"multiply {pair} first, with parentheses, or all in one jnp.einsum",
                )


# --- as written -----------------------------------------------------------------------------------


def as_written(case: Case) -> Claims:
    """Yield kernels of lines of which results need a part, where only the program as written says.

    A compiler may have written the same product in a form in which that can't be seen.
    """
    for program in case.programs.values():
        flow = program.intent
        if flow is None:
            continue
        lines: dict[str, list[Node]] = {}
        for node in flow.graph.nodes:
            if flow.work(node):
                lines.setdefault(flow.line(node), []).append(node)
        shown = {line for line in lines if _shares(flow, lines[line])[1] <= MOST}
        for row in case.kernels:
            if row.source not in shown or row.kernel.collective is not None:
                continue
            own = program.flow
            kept = own.kept(row.name, sum(row.kernel.read.values()), own.needs.useful)
            nodes = lines[row.source]
            whole, useful = _shares(flow, nodes)
            main = largest(nodes, functools.partial(_lost, flow))
            if kept.least <= MOST or main is None or not row.kernel.flops.matrix:
                continue
            seconds = case.saved(row, less(row.kernel, Kept(useful, 1.0, 1.0)))
            claim = (_unread if whole <= useful * 1.01 else _on_zeros)(flow, row, main, seconds)
            if claim is not None:
                yield claim


def _shares(flow: Flow, nodes: list[Node]) -> tuple[float, float]:
    """Return the shares of some nodes' work that is read, and that isn't on zeros either."""
    total = sum(map(flow.work, nodes)) or 1.0
    return (
        sum(flow.work(node) * flow.whole(node).share for node in nodes) / total,
        sum(flow.work(node) * flow.needs.useful(node).share for node in nodes) / total,
    )
