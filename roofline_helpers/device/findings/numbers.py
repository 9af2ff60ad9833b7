"""Products in the wrong type, on the wrong unit, or of the wrong size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from roofline_helpers import xla
from roofline_helpers.device.findings.causes import Case, Claim
from roofline_helpers.device.program import Program
from roofline_helpers.device.rows import TimedRow
from roofline_helpers.xla.flops import is_product
from roofline_helpers.xla.module import (
    ARITHMETIC,
    PRODUCTS,
    SLICES,
    TRANSCENDENTAL,
    VIEWS,
    Computation,
    Instruction,
    Site,
)

# --- Values that came in a narrow type, were widened to float32, and never narrowed again --------

NARROW = ("bf16", "f16")

Wide: TypeAlias = "bool | tuple[Wide, ...]"
"""Whether a value was widened; of a tuple, which of its parts."""

_KEEPS_TYPE = VIEWS | SLICES | {"concatenate", "pad", "reverse", "dynamic-update-slice"}
_SAME = frozenset({"opt-barrier", "optimization-barrier", "copy-start", "copy-done"})
_ELEMENTWISE = ARITHMETIC | TRANSCENDENTAL


def widened_products(program: Program) -> frozenset[tuple[str, str]]:
    """Return products that run in float32 because a narrow value was widened on its way there.

    By computation and instruction. A value counts as widened from where the author's code converts
    it (``x.astype(float32)``, or NumPy's promotion), through arithmetic on whole arrays and through
    other products, until it is narrowed. What is summed up or broadcast from little counts no more.
    """
    found: set[tuple[str, str]] = set()
    entry = program.module.entry
    _follow(program.module, entry, (False,) * len(entry.parameters), found)
    return frozenset(found)


def _follow(
    module: xla.Module, where: Computation, given: tuple[Wide, ...], found: set[tuple[str, str]]
) -> Wide:
    """Return whether a computation's result is widened, where its parameters are as given."""
    wide: dict[str, Wide] = {}
    for each in where.instructions:
        operands = [wide.get(name, False) for name in each.operands]
        wide[each.name] = _widened(module, where, each, operands, given, found)
    return wide[where.root.name]


def _widened(
    module: xla.Module,
    where: Computation,
    each: Instruction,
    operands: list[Wide],
    given: tuple[Wide, ...],
    found: set[tuple[str, str]],
) -> Wide:
    """Return whether an instruction's result is widened."""
    opcode = each.opcode
    if opcode == "parameter":
        number = int(each.literal or 0)
        return given[number] if number < len(given) else False
    if opcode == "tuple":
        return tuple(operands)
    if opcode in _SAME:
        return operands[0]
    if opcode == "get-tuple-element":
        source, index = operands[0], each.numbers("index")[0]
        return source[index] if isinstance(source, tuple) and index < len(source) else False
    if opcode in ("fusion", "call"):
        called = module.called(each, "calls", "to_apply")[0]
        return _follow(module, called, tuple(operands), found)
    if opcode == "while":
        for body in module.called(each, "body"):
            _follow(module, body, tuple(operands), found)
        return operands[0]
    shape = each.shape.parts[0] if each.shape.parts else each.shape
    if shape.dtype != "f32":
        return _library(where, each, operands, found)
    if opcode in PRODUCTS or opcode == "custom-call":
        return _library(where, each, operands, found)
    if opcode == "convert" and where.by_name[each.operands[0]].shape.dtype in NARROW:
        return each.op_name.endswith("convert_element_type")
    if opcode in _KEEPS_TYPE:
        return any(operand is True for operand in operands)
    if opcode in _ELEMENTWISE:
        whole = (where.by_name[name].shape.elements == shape.elements for name in each.operands)
        return any(a is True and b for a, b in zip(operands, whole, strict=True))
    return False


def _library(
    where: Computation,
    each: Instruction,
    operands: list[Wide],
    found: set[tuple[str, str]],
) -> Wide:
    """Return whether the result of a product, or of a library's call, is widened; note it."""
    if each.opcode not in (*PRODUCTS, "custom-call") or True not in operands[:2]:
        return False
    types = {where.by_name[name].shape.dtype for name in each.operands[:2]}
    if types != {"f32"}:
        return False
    found.add((where.name, each.name))
    if each.shape.parts:
        return tuple(part.dtype == "f32" for part in each.shape.parts)
    return each.shape.dtype == "f32"


# --- Products in the wrong type, on the wrong unit, or of the wrong size -------------------------

_FOLLOWED = VIEWS | {"slice", "dynamic-slice", "broadcast", "pad"}


# --- float32 --------------------------------------------------------------------------------------


def float32(case: Case) -> Iterator[Claim]:
    """Yield products in float32 one side of which, or both, came as bfloat16 or float16.

    As it is, or worked out further: except on a CPU, whose compiler widens all by itself, and
    leaves out what narrows between.
    """
    cpu = case.platform == "cpu"
    widened = {name: () if cpu else widened_products(each) for name, each in case.programs.items()}
    for row in case.kernels:
        program = case.program(row)
        for part in program.instructions(row.name):
            if not is_product(part) or not _in_float32(part):
                continue
            narrow = [_widened_from(program, row.name, part, n) for n in range(2)]
            further = (part.where.name, part.instruction.name) in widened[row.program]
            if not any(narrow) and not further:
                continue
            if cpu and not _asked(program, row, part):
                continue
            claim = _in_bfloat16(case, row, part, narrow)
            if claim is not None:
                yield claim
            break


def _in_float32(part: Site) -> bool:
    """Return whether one side of a product is float32, and the other that or narrower."""
    types = {shape.dtype for shape in part.operands[:2]}
    return "f32" in types and types <= {"f32", *NARROW}


@dataclass(frozen=True)
class _Wide:
    """A float32 operand that was narrower: its type, and the kernel that widened it, if another."""

    dtype: str
    maker: str
    elements: int
    asked: bool


def _widened_from(program: Program, kernel: str, part: Site, operand: int) -> _Wide | None:
    """Return what an operand of a product was converted from; None if it came as float32."""
    if part.operands[operand].dtype in NARROW:
        return _Wide(part.operands[operand].dtype, "", part.operands[operand].elements, True)
    for each, where, maker in _origins(
        program, kernel, part.where, part.instruction.operands[operand]
    ):
        if each.opcode == "convert":
            source = where.by_name[each.operands[0]]
            if source.shape.dtype in NARROW and each.shape.dtype == "f32":
                asked = each.op_name.endswith("convert_element_type")
                away = maker if maker != kernel else ""
                return _Wide(source.shape.dtype, away, each.shape.elements, asked)
        if each.opcode not in _FOLLOWED:
            return None
    return None


def _asked(program: Program, row: TimedRow, part: Site) -> bool:
    """Return whether the author widened an operand: the CPU's compiler widens all by itself."""
    sides = [_widened_from(program, row.name, part, n) for n in range(2)]
    return any(side is not None and side.asked for side in sides)


def _in_bfloat16(case: Case, row: TimedRow, part: Site, narrow: list[_Wide | None]) -> Claim | None:
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
    before = "worked out from values that were widened to float32 on the way"
    if sides:
        which = "both sides were" if not others else "one side was"
        before = f"where {which} {sides[0].dtype} before"
    return Claim("float32", tuple(parts), f"{shapes}, {before}")


def _origins(
    program: Program, kernel: str, where: Computation, name: str
) -> Iterator[tuple[Instruction, Computation, str]]:
    """Yield what a value comes from, by first operands, into the kernels before: where, and whose.

    A fusion is followed to its root, a parameter of a fusion to what is given for it.
    """
    maker, top = kernel, program.sites[kernel].where
    outer = [(kernel, top)] if where is not top else []
    for _ in range(40):
        each = where.by_name[name]
        if each.opcode == "parameter" and outer:
            fusion, above = outer.pop()
            name, where = above.by_name[fusion].operands[int(each.literal or 0)], above
            continue
        if each.opcode == "fusion":
            inner = program.module.called(each, "calls")[0]
            if inner.root.opcode == "tuple":
                return
            maker = each.name if where is top else maker
            outer.append((each.name, where))
            name, where = inner.root.name, inner
            continue
        if where is top:
            maker = each.name
        yield each, where, maker
        if not each.operands:
            return
        name = each.operands[0]


# --- float64 --------------------------------------------------------------------------------------


def float64(case: Case) -> Iterator[Claim]:
    """Yield kernels on float64 arrays: twice the bytes, and half the rate at best."""
    for row in case.kernels:
        wide = next(_float64(case.program(row), row.name), None)
        if wide is None:
            continue
        there = case.counted(row)
        narrow = tuple(kind.replace("f64", "f32") for kind in there.matrix_types)
        read, written = there.read.get("hbm", 0) // 2, there.written.get("hbm", 0) // 2
        like = replace(there, matrix_types=narrow, read={"hbm": read}, written={"hbm": written})
        saved = max(case.saved(row, like), row.seconds / 2)
        yield Claim("float64", ((row, saved, float(read + written) * row.launches),), wide)


def _float64(program: Program, kernel: str) -> Iterator[str]:
    """Yield float64 arrays in a kernel, those that came as arguments first."""
    for value in program.reads(kernel):
        if value.kind == "argument" and _is_wide(value.shape):
            yield f"argument {value.index} is {value.shape}"
    for part in program.instructions(kernel):
        if part.instruction.opcode != "parameter" and _is_wide(part.instruction.shape):
            yield f"{part.instruction.opcode} of {part.instruction.shape}"


def _is_wide(shape: xla.Shape) -> bool:
    return not shape.is_scalar and any(leaf.dtype in ("f64", "c128") for leaf in shape.leaves)


def emulated_float64(case: Case) -> Iterator[Claim]:
    """Yield all kernels of a TPU's program with float64 arguments: it has no such unit.

    Each operation on them becomes many on float32 and integers, among which none says so.
    """
    for name, program in case.programs.items():
        entry = program.module.entry
        wide = [each for each in entry.parameters if _is_wide(each.shape)]
        if case.platform != "tpu" or not wide:
            continue
        parts = tuple((row, row.seconds, row.bytes) for row in case.kernels if row.program == name)
        evidence = f"argument {wide[0].literal} is {wide[0].shape}, which a TPU has to emulate"
        yield Claim("float64", parts, evidence)


# --- one-hot --------------------------------------------------------------------------------------


def one_hot(case: Case) -> Iterator[Claim]:
    """Yield matmuls of a one-hot matrix and a table, where reading the rows moves far less."""
    for row in case.kernels:
        program = case.program(row)
        if program.module.partitions > 1:
            continue  # a table in shards is better multiplied than gathered
        for part in program.instructions(row.name):
            if not is_product(part) or part.instruction.shape.parts:
                continue
            claim = _looked_up(case, row, part)
            if claim is not None:
                yield claim
                break


def _looked_up(case: Case, row: TimedRow, part: Site) -> Claim | None:
    program, made = case.program(row), part.instruction.shape
    for side in range(2):
        hot = _is_one_hot(program, row.name, part, side)
        table = part.operands[1 - side]
        if hot is None or hot[0] in made.dims or hot[0] not in table.dims:
            continue
        entries, maker = hot
        looked_up = part.operands[side].elements // entries * (table.bytes // entries)
        there = case.counted(row)
        like = replace(there, flops=xla.Flops(), matrix_types=(), read={"hbm": looked_up})
        if case.roof(row, like) > 0.25 * case.roof(row, there):
            return None
        parts = [(row, case.saved(row, like), 0.0)]
        writer = case.by_name.get((row.program, maker))
        if writer is not None and writer is not row:
            parts.append((writer, writer.seconds, writer.bytes))
        shape = part.operands[side]
        return Claim("one-hot", tuple(parts), f"{shape} · {table}, where each row has a single 1")
    return None


def _is_one_hot(program: Program, kernel: str, part: Site, side: int) -> tuple[int, str] | None:
    """Return the entries of a one-hot operand, and the kernel that makes it; None for others."""
    name = part.instruction.operands[side]
    for each, where, maker in _origins(program, kernel, part.where, name):
        if each.opcode == "compare" and each.attributes.get("direction") == "EQ":
            for operand in each.operands:
                found = list(_origins(program, maker, where, operand))
                counted = next((one for one, _, _ in found if one.opcode == "iota"), None)
                if counted is not None:
                    along = counted.numbers("iota_dimension")[0]
                    return counted.shape.dims[along], maker
            return None
        if each.opcode not in _PASSED:
            return None
    return None


# --- ragged ---------------------------------------------------------------------------------------


def dense_ragged(case: Case) -> Iterator[Claim]:
    """Yield ragged matmuls made dense: each row by the weights of all groups, all but one zeros."""
    for row in case.kernels:
        program = case.program(row)
        for part in program.instructions(row.name):
            if not is_product(part):
                continue
            for side in range(2):
                found = _spread_over_groups(program, row.name, part, side)
                if found is None:
                    continue
                groups, maker = found
                there, spread = case.counted(row), part.operands[side]
                read = there.read.get("hbm", 0) - spread.bytes * (groups - 1) // groups
                like = replace(there, flops=there.flops * (1 / groups), read={"hbm": max(read, 0)})
                parts = [(row, case.saved(row, like), 0.0)]
                writer = case.by_name.get((row.program, maker))
                if writer is not None and writer is not row:
                    parts.append((writer, writer.seconds, writer.bytes))
                evidence = f"{spread}: each row {groups} times, {groups - 1} of them zeros"
                yield Claim("ragged", tuple(parts), evidence)


def _spread_over_groups(
    program: Program, kernel: str, part: Site, side: int
) -> tuple[int, str] | None:
    """Return over how many groups an operand's rows are spread, and by which kernel.

    That is an array [rows, width], repeated along a new axis of groups, and zero where a row's
    number isn't between the bounds of its group.
    """
    name = part.instruction.operands[side]
    for each, where, maker in _origins(program, kernel, part.where, name):
        if each.opcode == "select":
            chosen, kept, left = (
                list(_origins(program, maker, where, operand)) for operand in each.operands
            )
            copied = next((one for one, _, _ in kept if one.opcode not in _PASSED), None)
            zeros = left[-1][0].opcode == "constant" and left[-1][0].literal in ("0", "0.0")
            compare = next((one for one in chosen if one[0].opcode == "compare"), None)
            if not zeros or compare is None or copied is None or copied.opcode != "broadcast":
                return None
            axes = set(range(len(copied.shape.dims))) - set(copied.numbers("dimensions"))
            groups = math.prod(copied.shape.dims[axis] for axis in axes)
            counted = _bounded(program, compare, axes)
            made = part.instruction.shape
            dims = made.parts[0].dims if made.parts else made.dims  # a library's has a workspace
            if counted is None or groups < 2 or groups in dims:  # the groups are summed over
                return None
            return (groups, maker) if copied.shape.dims[counted] in dims else None
        if each.opcode not in (*_PASSED, "transpose"):
            return None
    return None


def _bounded(
    program: Program, compare: tuple[Instruction, Computation, str], axes: set[int]
) -> int | None:
    """Return the axis along which places are compared with a bound for each place on `axes`."""
    each, where, maker = compare
    sides = {}
    for operand in each.operands:
        for one, _, _ in _origins(program, maker, where, operand):
            if one.opcode in ("broadcast", "iota"):
                sides[one.opcode] = one
                break
    if len(sides) < 2 or each.attributes.get("direction") not in ("LE", "LT", "GE", "GT"):
        return None
    counted = sides["iota"].numbers("iota_dimension")[0]
    along = set(sides["broadcast"].numbers("dimensions")) == axes and counted not in axes
    return counted if along else None


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
        products = (product_of(part) for part in case.program(row).instructions(row.name))
        sizes = [size for size in products if size is not None]
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
        if row.reachable is None or "reduce" not in row.operations:
            continue
        for part in case.program(row).instructions(row.name):
            spread = _outer(case.program(row), row.name, part)
            if spread is None or part.instruction.op_name.endswith("dot_general"):
                continue
            claim = _as_product(case, row, part, spread)
            if claim is not None:
                yield claim
            break


@dataclass(frozen=True)
class _Spread:
    """A sum of products of two broadcast arrays: how many, and the kernels that write what is
    broadcast, with the bytes that a product of matrices wouldn't ask of them.
    """

    products: int
    makers: tuple[tuple[str, int], ...]


def _as_product(case: Case, row: TimedRow, part: Site, spread: _Spread) -> Claim | None:
    """Return what a sum of products would save as a product of matrices; None where little."""
    there = case.counted(row)
    flops = replace(there.flops, vector=0, transcendentals=0, matrix=2 * spread.products)
    read = max(there.read.get("hbm", 0) - sum(size for _, size in spread.makers), 0)
    like = replace(
        there, flops=flops, matrix_types=(_type(part),), operations={}, read={"hbm": read}
    )
    parts = [(row, max(row.seconds - case.roof(row, like), 0.0), 0.0)]
    for name, size in spread.makers:
        maker = case.by_name.get((row.program, name))
        if maker is not None:
            parts.append((maker, case.without_bytes(maker, written=size), size * maker.launches))
    if parts[0][1] <= 0.5 * row.seconds:
        return None
    evidence = f"{spread.products:,} products of two broadcast arrays are summed one by one"
    return Claim("vector-product", tuple(parts), evidence, source=row.source)


_PASSED = frozenset({"convert", "bitcast", "copy", "reshape"})


def _outer(program: Program, kernel: str, part: Site) -> _Spread | None:
    """Return how many products a sum takes in, where both factors are broadcast along some axis."""
    each = part.instruction
    if each.opcode != "reduce":
        return None
    source = _first(program, kernel, part.where, each.operands[0], "multiply")
    if source is None:
        return None
    product, where, maker = source
    elements = product.shape.elements
    kept: set[int] = set(each.numbers("dimensions"))
    spread, makers = [], {} if maker == kernel else {maker: product.shape.bytes}
    for name in product.operands:
        factor = _first(program, maker, where, name, "broadcast")
        if factor is None:
            return None
        widened, inside, by = factor
        if inside.by_name[widened.operands[0]].shape.elements * 2 > elements:
            return None
        spread.append(set(widened.numbers("dimensions")))
        if by != maker:
            makers[by] = widened.shape.bytes
    shared = spread[0] & spread[1]
    both = bool(spread[0] - shared - kept) and bool(spread[1] - shared - kept)
    return _Spread(elements, tuple(makers.items())) if both and shared & kept else None


def _first(
    program: Program, kernel: str, where: Computation, name: str, opcode: str
) -> tuple[Instruction, Computation, str] | None:
    """Return the instruction of an opcode that a value comes from, its place and its kernel."""
    for origin in _origins(program, kernel, where, name):
        if origin[0].opcode == opcode:
            return origin
        if origin[0].opcode not in _PASSED:
            return None
    return None


def _type(part: Site) -> str:
    return part.where.by_name[part.instruction.operands[0]].shape.dtype
