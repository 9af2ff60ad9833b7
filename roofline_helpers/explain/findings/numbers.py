"""Products in the wrong type, on the wrong unit, or of the wrong size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from roofline_helpers import hlo
from roofline_helpers.explain.findings.base import Case, Claim
from roofline_helpers.explain.program import Program
from roofline_helpers.explain.rows import Row
from roofline_helpers.hlo.module import Site
from roofline_helpers.hlo.opcodes import PRODUCTS, VIEWS

_NARROW = ("bf16", "f16")
_FOLLOWED = VIEWS | {"slice", "dynamic-slice", "broadcast", "pad"}


# --- float32 --------------------------------------------------------------------------------------


def float32(case: Case) -> Iterator[Claim]:
    """Yield products in float32 one side of which, or both, came as bfloat16 or float16."""
    for row in case.kernels:
        program = case.program(row)
        for part in program.instructions(row.name):
            if part.instruction.opcode not in PRODUCTS or not _in_float32(part):
                continue
            narrow = [_came(program, row.name, part, n) for n in range(2)]
            if not any(narrow) or (case.platform == "cpu" and not _asked(program, row, part)):
                continue
            claim = _in_bfloat16(case, row, part, narrow)
            if claim is not None:
                yield claim
            break


def _in_float32(part: Site) -> bool:
    """Return whether one side of a product is float32, and the other that or narrower."""
    types = {shape.dtype for shape in part.operands[:2]}
    return len(part.operands) >= 2 and "f32" in types and types <= {"f32", *_NARROW}


@dataclass(frozen=True)
class _Wide:
    """A float32 operand that was narrower: its type, and the kernel that widened it, if another."""

    dtype: str
    maker: str
    elements: int
    asked: bool


def _came(program: Program, kernel: str, part: Site, operand: int) -> _Wide | None:
    """Return what an operand of a product was converted from; None if it came as float32."""
    name, where, maker = part.instruction.operands[operand], part.where, kernel
    if part.operands[operand].dtype in _NARROW:
        return _Wide(part.operands[operand].dtype, "", part.operands[operand].elements, True)
    outer: list[tuple[str, hlo.Computation]] = []
    site = program.sites[kernel]
    if site.fused is not None:
        outer = [(kernel, site.where)]
    for _ in range(40):
        each = where.by_name[name]
        if each.opcode == "convert":
            source = where.by_name[each.operands[0]]
            if source.shape.dtype in _NARROW and each.shape.dtype == "f32":
                asked = each.op_name.endswith("convert_element_type")
                away = maker if maker != kernel else ""
                return _Wide(source.shape.dtype, away, each.shape.elements, asked)
        if each.opcode == "parameter" and outer:
            fusion, above = outer.pop()
            call = above.by_name[fusion]
            name, where = call.operands[int(each.literal or 0)], above
            continue
        if each.opcode == "fusion":
            inner = program.module.called(each, "calls")[0]
            if inner.root.opcode == "tuple":
                return None
            maker = each.name if where is site.where else maker
            outer.append((each.name, where))
            name, where = inner.root.name, inner
            continue
        if each.opcode not in _FOLLOWED or not each.operands:
            return None
        if where is site.where:
            maker = each.name
        name = each.operands[0]
    return None


def _asked(program: Program, row: Row, part: Site) -> bool:
    """Return whether the author widened an operand: the CPU's compiler widens all by itself."""
    sides = [_came(program, row.name, part, n) for n in range(2)]
    return any(side is not None and side.asked for side in sides)


def _in_bfloat16(case: Case, row: Row, part: Site, narrow: list[_Wide | None]) -> Claim | None:
    """Return what a product would save with both sides narrow; None where that is nothing."""
    there = case.counted(row)
    sides = [side for side in narrow if side is not None]
    wide = sum(2 * side.elements for side in sides if side.maker)
    others = [n for n, side in enumerate(narrow) if side is None]
    wide += sum(part.operands[n].bytes // 2 for n in others)  # the float32 side, cast as well
    read = max(there.read.get("hbm", 0) - wide, there.read.get("hbm", 0) // 2)
    like = replace(there, matrix_types=("bf16",), read={"hbm": read})
    parts = [(row, case.saved(row, like), float(wide) * row.launches)]
    for side in sides:
        maker = case.by_name.get((row.program, side.maker))
        if maker is not None and set(maker.operations) <= _FOLLOWED | {"copy"}:
            parts.append((maker, maker.seconds, maker.bytes))
    if not any(seconds for _, seconds, _ in parts):
        return None
    shapes = " · ".join(str(shape) for shape in part.operands[:2])
    which = "both sides were" if not others else "one side was"
    return Claim("float32", tuple(parts), f"{shapes}, where {which} {sides[0].dtype} before")


# --- sizes ----------------------------------------------------------------------------------------


class Product(NamedTuple):
    """Sizes of a product: `batch` of [m, k] · [k, n]."""

    batch: int
    m: int
    n: int
    k: int


def product_of(part: Site) -> Product | None:
    """Return the sizes of a product; None where it isn't one, or not a plain one."""
    each = part.instruction
    if each.opcode != "dot" or len(part.operands) < 2:
        return None
    left, right = part.operands[:2]
    inner = math.prod(left.dims[d] for d in each.numbers("lhs_contracting_dims"))
    batch = math.prod(left.dims[d] for d in each.numbers("lhs_batch_dims"))
    k = max(inner, 1)
    m, n = left.elements // (batch * k), right.elements // (batch * k)
    return Product(batch, m, n, k)


_SIDE = {"cpu": 48, "gpu": 64, "tpu": 128}
"""Below this length of every side a product doesn't fill a platform's unit, however many."""


def small_products(case: Case) -> Iterator[Claim]:
    """Yield products that are small, many, and slower than their roof by more than half."""
    for row in case.kernels:
        found = (product_of(part) for part in case.program(row).instructions(row.name))
        sizes = [size for size in found if size is not None]
        if not sizes or row.reachable is None:
            continue
        size = max(sizes, key=lambda s: s.batch * s.m * s.n * s.k)
        many = size.batch * row.launches
        if max(size.m, size.n, size.k) >= _SIDE[case.platform] or many < 8:
            continue
        if row.lost > 0.5 * row.seconds:
            evidence = f"{many:,.0f} products of {size.m}×{size.k} · {size.k}×{size.n}"
            yield Claim("small-product", ((row, row.lost, 0.0),), evidence)


def padded_products(case: Case) -> Iterator[Claim]:
    """Yield products whose arrays take much more memory than they hold, padded to whole tiles."""
    for row in case.kernels:
        there, bandwidth = case.counted(row), case.ceilings.bandwidth
        if not row.matrix_types or there.padding < 0.25 * there.bytes or not bandwidth:
            continue
        moved = float(there.padding) * row.launches
        seconds = moved / bandwidth if not case.measured else min(moved / bandwidth, row.lost)
        shapes = [part.operands for part in case.program(row).instructions(row.name)]
        widest = max((s for each in shapes for s in each), key=lambda s: s.padded_bytes - s.bytes)
        evidence = (
            f"{widest} takes {widest.padded_bytes / max(widest.bytes, 1):.1f} times its bytes"
        )
        yield Claim("small-product", ((row, seconds, moved),), evidence)


# --- the unit -------------------------------------------------------------------------------------


def vector_products(case: Case) -> Iterator[Claim]:
    """Yield sums of products of two broadcast arrays: a matrix product on the vector unit."""
    for row in case.kernels:
        if row.reachable is None or not {"reduce", "multiply"} <= set(row.operations):
            continue
        for part in case.program(row).instructions(row.name):
            spread = _outer(part)
            if spread is None or part.instruction.op_name.endswith("dot_general"):
                continue
            there = case.counted(row)
            flops = replace(there.flops, vector=0, transcendentals=0, matrix=2 * spread)
            types = (_type(part),)
            like = replace(there, flops=flops, matrix_types=types, operations={})
            seconds = row.seconds - case.roof(row, like)
            if seconds > 0.5 * row.seconds:
                evidence = f"{spread:,} products of two broadcast arrays are summed one by one"
                yield Claim("vector-product", ((row, seconds, 0.0),), evidence)
            break


def _outer(part: Site) -> int | None:
    """Return how many products a sum takes in, where both factors are broadcast along some axis."""
    each = part.instruction
    if each.opcode != "reduce":
        return None
    where = part.where
    source = _through(where, each.operands[0])
    if source.opcode != "multiply":
        return None
    elements = source.shape.elements
    factors = [_through(where, name) for name in source.operands]
    kept: set[int] = set(each.numbers("dimensions"))
    spread = []
    for factor in factors:
        if factor.opcode != "broadcast" or _elements(where, factor) * 2 > elements:
            return None
        spread.append(set(factor.numbers("dimensions")))
    shared = spread[0] & spread[1]
    both = bool(spread[0] - shared - kept) and bool(spread[1] - shared - kept)
    return elements if both and shared & kept else None


def _through(where: hlo.Computation, name: str) -> hlo.Instruction:
    each = where.by_name[name]
    while each.opcode in ("convert", "bitcast", "copy", "reshape") and each.operands:
        each = where.by_name[each.operands[0]]
    return each


def _elements(where: hlo.Computation, broadcast: hlo.Instruction) -> int:
    return where.by_name[broadcast.operands[0]].shape.elements


def _type(part: Site) -> str:
    return part.where.by_name[part.instruction.operands[0]].shape.dtype
