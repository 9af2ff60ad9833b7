"""How a kernel does its work: on which unit, in which tiles and blocks, in how many kernels."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from roofline.diagnosis.findings.causes import FLOOR, OVERSTATED, Case, Claim, Claims
from roofline.diagnosis.flow import Flow
from roofline.diagnosis.rows import KERNEL, TimedRow
from roofline.xla.flops import PALLAS
from roofline.xla.graph import Node
from roofline.xla.hlo import ARITHMETIC, TRANSCENDENTAL
from roofline_helpers.common.show import si

# --- sizes ----------------------------------------------------------------------------------------


def padded_products(case: Case) -> Claims:
    """Yield matmuls whose arrays take much more memory than they hold, padded to whole tiles."""
    for row in case.kernels:
        kernel, bandwidth = row.kernel, case.ceilings.roofs.best.get("hbm")
        if not kernel.matrix_types or kernel.padding < 0.25 * kernel.bytes or not bandwidth:
            continue
        seconds = float(kernel.padding) * row.launches / bandwidth
        seconds = min(seconds, row.lost) if case.measured else seconds
        shapes = [s for part in case.program(row).instructions(row.name) for s in part.operands]
        widest = max(shapes, key=lambda s: s.padded_bytes - s.bytes)
        times = widest.padded_bytes / max(widest.bytes, 1)
        yield Claim("padded", ((row, seconds),), f"{widest} takes {times:.1f} times its bytes")


def small_blocks(case: Case) -> Claims:
    """Yield Pallas kernels that move far more than their operands and results hold."""
    for row in case.kernels:
        site = case.program(row).sites[row.name]
        if site.instruction.target not in PALLAS:
            continue
        held = sum(shape.bytes for shape in (*site.operands, site.instruction.shape))
        if row.kernel.bytes > 2 * held:
            saved = case.without_bytes(row, read=row.kernel.bytes - held)
            evidence = (
                f"it moves {row.kernel.bytes / 1e6:,.1f} MB a launch, and its operands and results "
                f"hold {held / 1e6:,.1f}"
            )
            yield Claim("small-blocks", ((row, saved),), evidence)


_DETAIL = re.compile(r"(\w+):([\d.,]+)")


def tails(case: Case) -> Claims:
    """Yield kernels of a GPU whose last wave of blocks leaves most multiprocessors idle."""
    for row in case.rows if case.processors else ():
        known = dict(_DETAIL.findall(row.details))
        if row.kind != KERNEL or "grid" not in known or not row.launches:
            continue
        blocks, threads = (
            math.prod(int(n) for n in known.get(name, "1024").split(",") if n)
            for name in ("grid", "block")
        )
        # as many blocks as a multiprocessor holds at once, by the occupancy that CUPTI states
        occupied = 2048 * float(known.get("occ_pct", 0)) / 100  # threads
        resident = max(round(occupied / max(threads, 1)), 1)
        waves = blocks / (case.processors * resident)
        full = math.ceil(waves)
        lost = min(row.seconds * (1 - waves / max(full, 1)), row.lost)
        long = row.busy / row.launches > FLOOR["gpu"] and lost > 0.1 * row.seconds
        if long and 1 < full <= 8:
            evidence = f"{blocks} blocks are {waves:.2f} waves on {case.processors} multiprocessors"
            yield Claim("tail", ((row, lost),), evidence)


# --- units ----------------------------------------------------------------------------------------

_PASSED = frozenset({"convert", "bitcast", "copy", "reshape"})


def vector_products(case: Case) -> Claims:
    """Yield sums of products of two arrays that are repeated for it: matmuls on the vector unit."""
    for row in case.kernels:
        flow = case.program(row).flow
        for node in flow.kernels.get(row.name, ()):
            product = _summed(flow, node) if node.op == "reduce" else None
            if product is None or row.reachable is None or node.op_name.endswith("dot_general"):
                continue
            made = [each for each in product.ops if each.kernel != row.name]
            kernel, size = row.kernel, sum(each.shape.bytes for each in made)
            flops = replace(kernel.flops, vector=0, transcendentals=0, matrix=2 * product.size)
            distinct = sum(
                flow.known[each].distinct * each.shape.bytes / max(each.size, 1) for each in made
            )
            like = replace(
                kernel,
                flops=flops,
                matrix_types=(product.dtype,),
                operations={},
                read={"hbm": max(kernel.read_bytes - round(size - distinct), 0)},
            )
            saved = max(row.seconds - case.likely(row, like), 0.0)
            if saved > 0.5 * row.seconds:
                parts = [(row, saved), *_makers(case, row, made)]
                evidence = f"{product.size:,} products of two repeated arrays are summed one by one"
                yield Claim(
                    "vector-product", tuple(parts), evidence, source=row.source or flow.line(node)
                )


def _makers(case: Case, row: TimedRow, made: list[Node]) -> list[tuple[TimedRow, float]]:
    makers = ((case.row(row, node.kernel), float(node.shape.bytes)) for node in made)
    return [(m, case.without_bytes(m, written=size)) for m, size in makers if m is not None]


def _summed(flow: Flow, node: Node) -> Node | None:
    """Return the product that a sum adds up, if both factors are repeated along some axis."""
    product = node.ops[0]
    while product.op in _PASSED and product.ops:
        product = product.ops[0]
    if product.op != "multiply" or product.dims != node.ops[0].dims:
        return None
    summed = set(node.numbers("dimensions"))
    first, second = (flow.known[factor].varies for factor in product.ops)
    sizes = [flow.known[factor].distinct for factor in product.ops]
    apart = (first - second - summed) and (second - first - summed)
    return product if apart and first & second & summed and 2 * max(sizes) <= product.size else None


_STEPS = 20
"""FLOPs that one takes at least on a unit that has no instruction for it: a short polynomial."""
_PLAIN = ARITHMETIC | TRANSCENDENTAL | {"broadcast", "convert", "iota", "reshape"}


def transcendentals(case: Case) -> Claims:
    """Yield elementwise kernels that exponentials, logarithms, sines and their like slow down.

    At the vector unit's rate they must account for half of a measured kernel's time. Of a program
    that didn't run the compiler's cycles say so, and an eighth is enough: exp, tanh and sin alone
    are a fifth of theirs on a v6e.
    """
    roofs = case.ceilings.roofs
    rate = {**roofs.published, **roofs.reached}.get("vector", case.ceilings.vector)
    factor, part = (1.5, 2) if case.measured else (OVERSTATED, 8)
    for row in case.kernels:
        number = row.kernel.flops.transcendentals * row.launches
        if not number or row.matrix_flops or not set(row.kernel.operations) <= _PLAIN:
            continue
        least, roof = _STEPS * number / rate if rate else 0.0, row.reachable or row.seconds
        if row.seconds > factor * roof and part * least > row.seconds:
            evidence = (
                f"{si(number, '').strip()} of them in {si(row.seconds, 's')}, where its bytes "
            )
            evidence += f"and other work take {si(roof, 's')}"
            yield Claim("transcendentals", ((row, row.lost),), evidence)


# --- schedule -------------------------------------------------------------------------------------

_POINTWISE = ARITHMETIC | TRANSCENDENTAL | {"convert", "broadcast", "iota", "reshape", "copy"}


def chains(case: Case) -> Claims:
    """Yield elementwise kernels that only other elementwise kernels read: one would do."""
    for row in filter(_pointwise, case.kernels):
        flow = case.program(row).flow
        made = flow.made(row.name)
        names = {reader.kernel for node in made for reader in flow.readers(node)}
        readers = [case.row(row, name) for name in sorted(names)]
        found = [reader for reader in readers if reader is not None and _pointwise(reader)]
        if not found or len(found) < len(names) or any(n.number in flow.returned for n in made):
            continue
        size = float(sum(node.shape.bytes for node in made))
        parts = [(row, case.without_bytes(row, written=size))]
        parts += [(reader, case.without_bytes(reader, read=size)) for reader in found]
        after = ", ".join(reader.title for reader in found[:2])
        evidence = f"{made[0].shape} is written for {after} to read"
        barrier = "opt-barrier" in case.program(row).opcodes
        remedy = "" if barrier else _together(case, row)
        source = found[-1].source or row.source
        yield Claim("unfused", tuple(parts), evidence, source=source, remedy=remedy, known=True)


def _together(case: Case, row: TimedRow) -> str:
    """Return what to do where no barrier keeps kernels apart."""
    if len({each.program for each in case.kernels}) > 1:
        return "put it into one jit"
    less = f"give the compiler less that reads {row.title}"
    if case.platform == "cpu":  # for which Pallas compiles nothing
        return f"the compiler splits it here: {less}"
    return f"the compiler splits it here: write it as one kernel (Pallas), or {less}"


def _pointwise(row: TimedRow) -> bool:
    opcodes = set(row.kernel.operations)
    return opcodes <= _POINTWISE and bool(opcodes & (ARITHMETIC | TRANSCENDENTAL))
