"""Matmuls in the wrong type, on the wrong unit, or padded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofline import xla
from roofline.diagnosis.findings.causes import OVERSTATED, Case, Cause, Claim, Claims, whole
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow
from roofline.xla.hlo import ARITHMETIC, TRANSCENDENTAL, VIEWS, Computation, Instruction, Site
from roofline_helpers.common.show import si


class Origin(NamedTuple):
    """An instruction that a value comes from, where it is, and the kernel that runs it."""

    instruction: Instruction
    where: Computation
    kernel: str


PASSED = frozenset({"convert", "bitcast", "copy", "reshape"})


def origins(program: Program, kernel: str, where: Computation, name: str) -> Iterator[Origin]:
    """Yield the origins of a value along first operands, back into earlier kernels.

    A fusion is followed to its root, a parameter of a fusion to its operand.
    """
    maker, top = kernel, program.sites[kernel].where
    outer = program.around(kernel, where)
    for _ in range(40):
        instruction = where.by_name[name]
        if instruction.opcode == "parameter" and outer:
            fusion, above = outer.pop()
            operands = above.by_name[fusion].operands
            name, where = operands[int(instruction.literal or 0)], above
            continue
        element = 0
        if instruction.opcode == "get-tuple-element":
            source = where.by_name[instruction.operands[0]]
            if source.opcode == "fusion":
                instruction, element = source, instruction.numbers("index")[0]
        if instruction.opcode == "fusion":
            inner = program.module.called(instruction, "calls")[0]
            maker = instruction.name if where is top else maker
            outer.append((instruction.name, where))
            results = inner.results  # of a reduction of several arrays one, with all of them
            name, where = results[min(element, len(results) - 1)], inner
            continue
        if where is top:
            maker = instruction.name
        yield Origin(instruction, where, maker)
        if not instruction.operands:
            return
        name = instruction.operands[0]


def first_of(
    origins: Iterable[Origin], opcode: str, passed: frozenset[str] = PASSED
) -> Origin | None:
    """Return the first origin with this opcode; None if an opcode not in `passed` comes first."""
    for origin in origins:
        if origin.instruction.opcode == opcode:
            return origin
        if origin.instruction.opcode not in passed:
            return None
    return None


def counted_axis(instruction: Instruction) -> int:
    """Return the axis along which an iota counts."""
    return instruction.numbers("iota_dimension")[0]


def _with_makers(
    case: Case, cause: Cause, row: TimedRow, like: xla.Row, makers: Sequence[str], evidence: str
) -> Claim:
    """Return a claim on a kernel's saving, and on all of those that write its operands."""
    writers = (case.by_name.get((row.program, maker)) for maker in makers)
    others = [(w, w.seconds) for w in writers if w is not None and w is not row]
    return Claim(cause, ((row, case.saved(row, like)), *others), evidence)


# --- float32 --------------------------------------------------------------------------------------

FLOAT32 = Cause(
    "float32",
    "a matmul runs in float32 though one side came as bfloat16",
    "store the other side in bfloat16 (a cast inside the step still reads float32), and ask "
    "for float32 sums with preferred_element_type",
    "notebooks/low-precision",
)
_NARROW = ("bf16", "f16")
_FOLLOWED = VIEWS | {"slice", "dynamic-slice", "broadcast", "pad"}
_WIDENING = _FOLLOWED | {"copy", "convert"}


def float32(case: Case) -> Claims:
    """Yield float32 matmuls of which the author's code widened one side or both."""
    for row, program, part in case.products():
        types = {shape.dtype for shape in part.operands[:2]}
        if "f32" not in types or not types <= {"f32", *_NARROW}:
            continue
        sides = [_widened(program, row.name, part, n) for n in range(2)]
        widened = [side for side in sides if side is not None]
        if not widened:
            continue
        kernel, shapes = row.kernel, part.operands[:2]
        pairs = zip(shapes, sides, strict=True)
        wide = sum(shape.bytes // 2 for shape, side in pairs if side != "")
        read = max(kernel.read_bytes - wide, kernel.read_bytes // 2)
        like = replace(kernel, matrix_types=("bf16",), read={"hbm": read})
        parts = [(row, case.saved(row, like))]
        for name in widened:
            maker = case.by_name.get((row.program, name))
            if maker is not None and set(maker.kernel.operations) <= _WIDENING:
                parts.append((maker, maker.seconds))
        if any(seconds for _, seconds in parts):
            which = "both sides were" if len(widened) == 2 else "one side was"
            evidence = f"{' · '.join(map(str, shapes))}, where {which} narrow before"
            yield Claim(FLOAT32, tuple(parts), evidence)


def _widened(program: Program, kernel: str, part: Site, operand: int) -> str | None:
    """Return the other kernel that widened an operand; "" if this one does, None if none does."""
    traced = origins(program, kernel, part.where, part.instruction.operands[operand])
    if part.operands[operand].dtype in _NARROW:
        sources = [origin.instruction for origin in traced]
        # TPUs' compiler narrows what float32 programs compute: that isn't the author's
        own = any(map(_is_cast, sources))
        return "" if own or not sources or sources[-1].shape.dtype in _NARROW else None
    found = first_of(traced, "convert", _FOLLOWED)
    if found is None or not _is_cast(found.instruction):  # a CPU's compiler widens on its own
        return None
    narrow = found.where.by_name[found.instruction.operands[0]].shape.dtype in _NARROW
    return (found.kernel if found.kernel != kernel else "") if narrow else None


def _is_cast(instruction: Instruction) -> bool:
    """Return whether the author's code asked for a conversion."""
    return instruction.op_name.endswith("convert_element_type")


# --- float64 --------------------------------------------------------------------------------------

FLOAT64 = Cause(
    "float64",
    "arrays are float64",
    "if the digits of float32 are enough, cast the arguments before the call: arrays from "
    "NumPy are float64 unless you say otherwise",
    "notebooks/where-the-time-goes",
)


def float64(case: Case) -> Claims:
    """Yield kernels on float64 arrays: twice the bytes, and half the rate at best."""
    for row in case.kernels:
        wide = next(_float64(case.program(row), row.name), None)
        if wide is None:
            continue
        kernel = row.kernel
        narrow = tuple(dtype.replace("f64", "f32") for dtype in kernel.matrix_types)
        read, written = kernel.read_bytes // 2, kernel.written_bytes // 2
        like = replace(kernel, matrix_types=narrow, read={"hbm": read}, written={"hbm": written})
        saved = max(case.saved(row, like), row.seconds / 2)
        yield Claim(FLOAT64, ((row, saved),), wide)


def _float64(program: Program, kernel: str) -> Iterator[str]:
    """Yield float64 arrays in a kernel, those that came as arguments first."""
    for value in program.arguments(kernel):
        if _is_wide(value.shape):
            yield f"argument {value.index} is {value.shape}"
    for part in program.instructions(kernel):
        if part.instruction.opcode != "parameter" and _is_wide(part.instruction.shape):
            yield f"{part.instruction.opcode} of {part.instruction.shape}"


def _is_wide(shape: xla.Shape) -> bool:
    return not shape.is_scalar and any(leaf.dtype in ("f64", "c128") for leaf in shape.leaves)


def emulated_float64(case: Case) -> Claims:
    """Yield all kernels of a TPU's program with float64 arguments: it has no such unit.

    Each operation on them becomes many on float32 and integers, among which none says so.
    """
    for name, program in case.programs.items():
        wide = [
            parameter for parameter in program.module.entry.parameters if _is_wide(parameter.shape)
        ]
        if case.platform == "tpu" and wide:
            evidence = f"argument {wide[0].literal} is {wide[0].shape}, which a TPU has to emulate"
            yield from (whole(FLOAT64, r, evidence) for r in case.kernels if r.program == name)


# --- one-hot --------------------------------------------------------------------------------------

ONE_HOT = Cause(
    "one-hot",
    "a matmul with a one-hot matrix looks rows up in a table",
    "index the table: table[indices]",
    "notebooks/where-the-time-goes",
)


def one_hot(case: Case) -> Claims:
    """Yield matmuls of a one-hot matrix and a table if reading the rows moves far less."""
    for row, program, part in case.products():
        result = part.instruction.shape
        if program.module.partitions > 1 or result.parts:
            continue  # a matmul with a sharded table is cheaper than gathering its shards
        for side in range(2):
            hot, shape = _one_hot_entries(program, row.name, part, side), part.operands[side]
            table = part.operands[1 - side]
            if hot is None or hot[0] in result.dims or hot[0] not in table.dims:
                continue
            entries, maker = hot
            looked_up = shape.elements // entries * (table.bytes // entries)
            like = replace(row.kernel, flops=xla.Flops(), matrix_types=(), read={"hbm": looked_up})
            if case.roof(row, like) <= 0.25 * case.roof(row, row.kernel):
                evidence = f"{shape} · {table}, where each row has a single 1"
                yield _with_makers(case, ONE_HOT, row, like, [maker], evidence)


def _one_hot_entries(
    program: Program, kernel: str, part: Site, side: int
) -> tuple[int, str] | None:
    """Return the entries of a one-hot operand, and the kernel that makes it; None for others."""
    name = part.instruction.operands[side]
    compare = first_of(origins(program, kernel, part.where, name), "compare")
    if compare is None or compare.instruction.attributes.get("direction") != "EQ":
        return None
    for counted in _counted(program, compare):
        return counted.shape.dims[counted_axis(counted)], compare.kernel
    return None


def _counted(program: Program, compare: Origin) -> Iterator[Instruction]:
    """Yield the iotas that a comparison's sides come from."""
    for operand in compare.instruction.operands:
        for origin in origins(program, compare.kernel, compare.where, operand):
            if origin.instruction.opcode == "iota":
                yield origin.instruction


# --- ragged ---------------------------------------------------------------------------------------

RAGGED = Cause(
    "ragged",
    "a ragged matmul multiplies every row for all groups",
    "pad each group to one size and multiply in a batch, or call a grouped kernel",
    "notebooks/where-the-time-goes",
)


def dense_ragged(case: Case) -> Claims:
    """Yield ragged matmuls made dense: each row by the weights of all groups, all but one zeros."""
    for row, program, part in case.products():
        spread = [(n, _spread_over_groups(program, row.name, part, n)) for n in range(2)]
        sides = [(part.operands[n], *found) for n, found in spread if found is not None]
        if not sides:
            continue
        kernel, (shape, groups, _) = row.kernel, sides[0]
        zeros = sum(side.bytes * (groups - 1) // groups for side, groups, _ in sides)
        read = max(kernel.read_bytes - zeros, 0)
        like = replace(kernel, flops=kernel.flops * (1 / groups), read={"hbm": read})
        evidence = f"{shape}: each row {groups} times, {groups - 1} of them zeros"
        yield _with_makers(case, RAGGED, row, like, [maker for *_, maker in sides], evidence)


def _spread_over_groups(
    program: Program, kernel: str, part: Site, side: int
) -> tuple[int, str] | None:
    """Return over how many groups an operand's rows are spread, and by which kernel.

    That is an array [rows, width], repeated along a new axis of groups, and zero where a row's
    number isn't between the bounds of its group.
    """
    name = part.instruction.operands[side]
    passed = PASSED | {"transpose"}
    selected = first_of(origins(program, kernel, part.where, name), "select", passed)
    if selected is None:
        masked = first_of(origins(program, kernel, part.where, name), "multiply", passed)
        return None if masked is None else _one_hot_groups(program, masked)
    select, where, maker = selected
    chosen, kept, left = (origins(program, maker, where, name) for name in select.operands)
    copied, (*_, zero) = first_of(kept, "broadcast"), left
    compare = next((origin for origin in chosen if origin.instruction.opcode == "compare"), None)
    if copied is None or compare is None or zero.instruction.literal not in ("0", "0.0"):
        return None
    shape = copied.instruction.shape
    axes = set(range(len(shape.dims))) - set(copied.instruction.numbers("dimensions"))
    groups = math.prod(shape.dims[axis] for axis in axes)
    return (groups, maker) if groups > 1 and _is_bounded(program, compare, axes) else None


def _one_hot_groups(program: Program, masked: Origin) -> tuple[int, str] | None:
    """Return over how many groups rows are spread by a one-hot factor, and by which kernel."""
    multiply, where, maker = masked
    factors = [[*origins(program, maker, where, name)] for name in multiply.operands]
    for rows, mask in (factors, factors[::-1]):
        copied = first_of(rows, "broadcast")
        hot = first_of(mask, "compare", PASSED | {"broadcast"})
        if copied is None or hot is None or hot.instruction.attributes.get("direction") != "EQ":
            continue
        dims, kept = copied.instruction.shape.dims, copied.instruction.numbers("dimensions")
        groups = math.prod(size for axis, size in enumerate(dims) if axis not in kept)
        counts = [iota.shape.dims[counted_axis(iota)] for iota in _counted(program, hot)]
        if counts == [groups] and groups > 1 and len(kept) > 1:
            return groups, maker
    return None


def _is_bounded(program: Program, compare: Origin, axes: set[int]) -> bool:
    """Return whether places along another axis are compared with a bound for each on `axes`."""
    sides: dict[str, Instruction] = {}
    for operand in compare.instruction.operands:
        for origin in origins(program, compare.kernel, compare.where, operand):
            if origin.instruction.opcode in ("broadcast", "iota"):
                sides[origin.instruction.opcode] = origin.instruction
                break
    direction = compare.instruction.attributes.get("direction")
    if len(sides) < 2 or direction not in ("LE", "LT", "GE", "GT"):
        return False
    along = set(sides["broadcast"].numbers("dimensions")) == axes
    return along and counted_axis(sides["iota"]) not in axes


# --- sizes ----------------------------------------------------------------------------------------

PADDED = Cause(
    "padded",
    "a matmul's arrays take more memory than they hold, padded to tiles",
    "choose sizes that are multiples of the tile, or batch small matmuls into larger ones",
    "notebooks/limitations",
)


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
        yield Claim(PADDED, ((row, seconds),), f"{widest} takes {times:.1f} times its bytes")


# --- the unit -------------------------------------------------------------------------------------

VECTOR = Cause(
    "vector-product",
    "a matmul is computed on the vector unit",
    "write it as a dot or einsum instead of multiplying and summing",
    "notebooks/where-the-time-goes",
)


def vector_products(case: Case) -> Claims:
    """Yield sums of products of two broadcast arrays: a matmul on the vector unit."""
    for row, program, part in case.parts():
        if part.instruction.opcode != "reduce" or row.reachable is None:
            continue
        spread = _outer_products(program, row.name, part)
        if spread is None or part.instruction.op_name.endswith("dot_general"):
            continue
        products, makers = spread
        kernel, dtype = row.kernel, part.operands[0].dtype
        flops = replace(kernel.flops, vector=0, transcendentals=0, matrix=2 * products)
        read = max(kernel.read_bytes - sum(makers.values()), 0)
        like = replace(
            kernel, flops=flops, matrix_types=(dtype,), operations={}, read={"hbm": read}
        )
        saved = max(row.seconds - case.roof(row, like), 0.0)
        if saved <= 0.5 * row.seconds:
            continue
        parts = [(row, saved)]
        for name, size in makers.items():
            maker = case.by_name.get((row.program, name))
            if maker is not None:
                parts.append((maker, case.without_bytes(maker, written=size)))
        evidence = f"{products:,} products of two broadcast arrays are summed one by one"
        yield Claim(VECTOR, tuple(parts), evidence, source=row.source)


def _outer_products(program: Program, kernel: str, part: Site) -> tuple[int, dict[str, int]] | None:
    """Return the number of products in a sum, if both factors are broadcast along some axis.

    Also the kernels that write the broadcast arrays, with the bytes that a matmul wouldn't need.
    """
    multiplied = first_of(
        origins(program, kernel, part.where, part.instruction.operands[0]), "multiply"
    )
    if multiplied is None:
        return None
    product, where, maker = multiplied
    makers = {} if maker == kernel else {maker: product.shape.bytes}
    kept, spread = set(part.instruction.numbers("dimensions")), []
    for name in product.operands:
        factor = first_of(origins(program, maker, where, name), "broadcast")
        if factor is None:
            return None
        broadcast, inside, by = factor
        if inside.by_name[broadcast.operands[0]].shape.elements * 2 > product.shape.elements:
            return None
        spread.append(set(broadcast.numbers("dimensions")))
        if by != maker:
            makers[by] = broadcast.shape.bytes
    shared = spread[0] & spread[1]
    both = bool(spread[0] - shared - kept) and bool(spread[1] - shared - kept)
    return (product.shape.elements, makers) if both and shared & kept else None


# --- exponentials and their like ------------------------------------------------------------------

TRANSCENDENTALS = Cause(
    "transcendentals",
    "exponentials and their like take longer than the bytes",
    "compute fewer of them: keep what is used again, take exp2 or a rational form that is exact "
    "enough, drop a pair that cancels (log of exp); or compute them in a narrower type, if the "
    "chip is faster in it",
    "notebooks/limitations",
)
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
            yield Claim(TRANSCENDENTALS, ((row, row.lost),), evidence)
