"""Work that the result doesn't need: pairs of groups, branches, repeats, zeros, random numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from roofline import xla
from roofline.diagnosis.findings.arithmetic import PASSED, counted_axis, first_of, origins
from roofline.diagnosis.findings.causes import Case, Cause, Claim, Claims, whole
from roofline.diagnosis.findings.copies import PLACING
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow
from roofline.xla.flops import PALLAS, windows_of
from roofline.xla.hlo import ARITHMETIC, TRANSCENDENTAL, Instruction, Site
from roofline.xla.metadata import source_of

# --- what a value is made of ----------------------------------------------------------------------


class Feeders(NamedTuple):
    """The instructions inside a kernel that a value is computed from, and what the kernel reads."""

    parts: list[Instruction]
    kernels: set[str]


def _feeders(program: Program, kernel: str, part: Site, operand: str) -> Feeders:
    """Return what an operand of an instruction inside a kernel is computed from."""
    top = program.sites[kernel].where
    found, kernels, seen = [], set[str](), set[tuple[str, str]]()
    left = [(part.where, operand)]
    while left:
        where, name = left.pop()
        if (where.name, name) in seen:
            continue
        seen.add((where.name, name))
        instruction = where.by_name[name]
        if where is top:
            value = program.value(where, name)
            kernels |= {value.name} if value.kind == "kernel" else set()
        elif instruction.opcode == "parameter":
            fusion, outer = program.around(kernel, where)[-1]
            left.append((outer, outer.by_name[fusion].operands[int(instruction.literal or 0)]))
        else:
            found.append(instruction)
            if instruction.opcode == "fusion":
                inner = program.module.called(instruction, "calls")[0]
                left.append((inner, inner.root.name))
            else:
                left += [(where, operand) for operand in instruction.operands]
    return Feeders(found, kernels)


def _varies(part: Site, operand: str) -> set[int]:
    """Return the axes of an operand along which its values may differ, as its fusion shows."""
    axes: set[int] = set()
    todo, seen = [operand], {operand}
    while todo:
        instruction = part.where.by_name[todo.pop()]
        if instruction.opcode == "broadcast":
            wide = part.where.by_name[instruction.operands[0]].shape.elements > 1
            axes |= set(instruction.numbers("dimensions")) if wide else set()
        elif instruction.opcode in ARITHMETIC | {"convert", "copy"}:
            todo += [name for name in instruction.operands if name not in seen]
            seen.update(instruction.operands)
        elif instruction.opcode != "constant":
            axes |= set(range(len(instruction.shape.dims)))
    return axes


# --- branches -------------------------------------------------------------------------------------

BRANCHES = Cause(
    "both-branches",
    "both sides of a choice are computed, and one is used",
    "choose before computing: lax.cond outside of vmap, lax.map over the examples, or each branch "
    "only for the examples that take it (sort them by their choice first)",
    "notebooks/where-the-time-goes",
)


def branches(case: Case) -> Claims:
    """Yield kernels that only serve one side of a choice made per example, as vmap makes of cond.

    One side is always needed: what the cheaper one costs is lost at least.
    """
    for row, program, part in case.parts():
        select = part.instruction
        if select.opcode != "select" or select.shape.is_scalar:
            continue
        choices = math.prod(select.shape.dims[axis] for axis in _varies(part, select.operands[0]))
        if choices * 8 > select.shape.elements:
            continue
        sides = [_feeders(program, row.name, part, name) for name in select.operands[1:]]
        alone = [
            _only_for(case, row, side.kernels - other.kernels, other.kernels)
            for side, other in (sides, sides[::-1])
        ]
        for side, rows in zip(sides, alone, strict=True):
            if any(instruction.opcode in ("dot", "convolution") for instruction in side.parts):
                rows.append(row)
        cheaper = min(alone, key=lambda rows: sum(kernel.seconds for kernel in rows))
        if cheaper:
            share = 0.5 if row in alone[0] and row in alone[1] else 1.0
            evidence = f"{select.shape} is one of two values, chosen after both were computed"
            parts = tuple((k, k.seconds * (share if k is row else 1)) for k in cheaper)
            yield Claim(BRANCHES, parts, evidence, source=row.source)


def _only_for(case: Case, row: TimedRow, first: set[str], others: set[str]) -> list[TimedRow]:
    """Return the kernels whose results only lead to one operand of a kernel."""
    program, found, edge = case.program(row), dict[str, TimedRow](), sorted(first)
    while edge:
        name = edge.pop()
        feeder = case.by_name.get((row.program, name))
        readers = set(program.readers.get(name, ())) - {row.name}
        if feeder is None or name in others or program.returned(name) or readers - found.keys():
            continue
        found[name] = feeder
        edge += [v.name for v in program.reads(name) if v.kind == "kernel" and v.name not in found]
    return list(found.values())


# --- products over groups -------------------------------------------------------------------------

DIAGONAL = Cause(
    "done-densely",
    "a product is computed for all groups, and a mask keeps the entries of one",
    "compute only these: einsum or vmap over the shared axis (for the gradient of a depthwise "
    "convolution by its kernel a sum of products for each tap), or jax.lax.ragged_dot over rows "
    "sorted by group",
    "notebooks/where-the-time-goes",
)


def diagonals(case: Case) -> Claims:
    """Yield products of which a mask keeps a part: the diagonal, or one group for each row."""
    for row, program, part in case.products():
        readers = case.readers(row)
        least = _kept(case, row, part)
        if least == 1 and len(readers) == len(program.readers.get(row.name, [""])):
            used = [_kept(case, reader, part) for reader in readers]
            least = 1 if program.returned(row.name) else min(used)
        if least > 1:
            flops = row.kernel.flops * (1 / least)
            saved = case.saved(row, replace(row.kernel, flops=flops))
            evidence = f"{part.instruction.shape} is computed, and 1 in {least} of it is used"
            yield Claim(DIAGONAL, ((row, saved),), evidence, source=row.source)


def _kept(case: Case, row: TimedRow, product: Site) -> int:
    """Return of how many entries a kernel keeps one, all others made zero; 1 if it uses others."""
    program = case.program(row)
    for part in program.instructions(row.name):
        masking = part.instruction
        if masking.opcode not in ("select", "multiply"):
            continue
        if masking.shape.elements != _size(product):
            continue
        first, *values = masking.operands
        if masking.opcode == "select" and not _is_zero(part, values.pop()):
            continue
        pairs = [(values[0], first)] + [(first, values[0])] * (masking.opcode == "multiply")
        for value, mask in pairs:
            if _only_use(part, value, product):
                groups = _one_of(program, row.name, part, mask)
                if groups > 1:
                    return groups
    return 1


def _size(product: Site) -> int:
    result = product.instruction.shape
    return (result.parts[0] if result.parts else result).elements


def _is_zero(part: Site, name: str) -> bool:
    source = part.where.by_name[name]
    while source.opcode in ("broadcast", "bitcast", "convert"):
        source = part.where.by_name[source.operands[0]]
    return source.opcode == "constant" and source.literal in ("0", "0.0")


def _only_use(part: Site, name: str, product: Site) -> bool:
    """Return whether a value is a product's result that nothing else in the kernel uses."""
    source = part.where.by_name[name]
    while len(part.where.users.get(source.name, ())) == 1:
        if source.opcode == "parameter" or source.name == product.instruction.name:
            return source.shape.elements == _size(product)
        if source.opcode not in PLACING or not source.operands:
            return False
        source = part.where.by_name[source.operands[0]]
    return False


def _one_of(program: Program, kernel: str, part: Site, mask: str) -> int:
    """Return of how many entries a mask keeps one: a one-hot row, a diagonal; 1 for others."""
    passed = PASSED | {"broadcast", "transpose"}
    found = first_of(origins(program, kernel, part.where, mask), "compare", passed)
    if found is None or found.instruction.attributes.get("direction") != "EQ":
        return 1
    counted: list[tuple[int, int]] = []  # the axis that is counted, and its groups
    for operand in found.instruction.operands:
        within = 1
        for instruction, where, _ in origins(program, found.kernel, found.where, operand):
            if instruction.opcode == "divide":
                divisor = where.by_name[instruction.operands[1]]
                while divisor.opcode == "broadcast":
                    divisor = where.by_name[divisor.operands[0]]
                within *= int(divisor.literal) if divisor.literal.isdigit() else 1
            if instruction.opcode == "iota":
                axis = counted_axis(instruction)
                counted.append((axis, instruction.shape.dims[axis] // within))
    if not counted or len({axis for axis, _ in counted}) < len(counted):
        return 1
    return min(groups for _, groups in counted)


# --- repeated operands ----------------------------------------------------------------------------

REPEATED = Cause(
    "repeated",
    "an operand of a product is written to memory several times over",
    "don't repeat it: give the other side an axis of groups (queries as [kv head, group, width]) "
    "and let einsum share it; jax.nn.dot_product_attention takes fewer heads of K and V as they "
    "are",
    "notebooks/where-the-time-goes",
)


def repeats(case: Case) -> Claims:
    """Yield kernels that repeat an array along a new axis, for a product to read."""
    for row, program, part in case.parts():
        repeated = part.instruction.shape
        moving = set(row.kernel.operations) <= PLACING | {"broadcast", "constant"}
        if part.instruction.opcode != "broadcast" or not moving or repeated.bytes < 2**20:
            continue
        source, readers = part.operands[0], case.readers(row)
        copies = [reader for reader in readers if set(reader.kernel.operations) <= PLACING]
        readers += [reader for copy in copies for reader in case.readers(copy)]
        times = repeated.elements // max(source.elements, 1)
        if source.elements < 2**10 or times < 2 or not any(map(_multiplies, readers)):
            continue
        size = program.sites[row.name].instruction.shape.bytes * (1 - 1 / times)
        parts = [(row, row.seconds)]
        parts += [(reader, case.without_bytes(reader, read=size)) for reader in readers]
        yield Claim(REPEATED, tuple(parts), f"{source} is written {times} times, as {repeated}")


def _multiplies(row: TimedRow) -> bool:
    kernel = row.kernel
    return bool(kernel.matrix_types) or kernel.op_name.endswith(("dot_general", "dot"))


# --- zeros between the elements -------------------------------------------------------------------

DILATED = Cause(
    "dilated",
    "a convolution reads an input that is spread with zeros",
    "convolve the input as it is, to stride × stride as many channels, and arrange these in space "
    "(a sub-pixel convolution); where kernel and stride are equal, that is one matmul",
    "notebooks/where-the-time-goes",
)


def dilated(case: Case) -> Claims:
    """Yield convolutions over a spread input that stay far below the roof of their useful taps."""
    for row, _, part in case.parts():
        convolution = part.instruction
        if convolution.opcode != "convolution" or not case.slow(row):
            continue
        labels = convolution.attributes.get("dim_labels", "").partition("->")[2]
        windows = windows_of(convolution, sum(label.isdigit() for label in labels))
        # a TPU's compiler writes a batch of matmuls as a spread convolution with that stride
        times = math.prod(w.base for w in windows if w.stride == 1)
        if times > 1:
            evidence = f"{part.operands[0]}: {times - 1} of {times} places it reads are zeros"
            yield Claim(DILATED, ((row, row.lost),), evidence)


# --- random numbers -------------------------------------------------------------------------------

RANDOM = Cause(
    "random",
    "random numbers are drawn in the call",
    "draw fewer (one mask for several uses, dropout in fewer places), or draw them by a cheaper "
    "generator: jax.random.key(seed, impl='rbg') on a TPU or GPU, 'unsafe_rbg' on a CPU too",
    "notebooks/where-the-time-goes",
)
_DRAWS = re.compile(
    r"threefry|random_bits|rng_bit_generator|iota_2x32_shape"
    r"|jit\(_(uniform|normal|normal_real|bernoulli|randint|gumbel|exponential|categorical|gamma"
    r"|truncated_normal|laplace|cauchy|shuffle|permutation)\)"
)
_GENERATORS = frozenset({"rng", "rng-bit-generator", "rng-get-and-update-state"})


def random_numbers(case: Case) -> Claims:
    """Yield kernels that draw random numbers; of a fused one, the part that draws them."""
    for row in case.kernels:
        program = case.program(row)
        site = program.sites[row.name]
        around = program.loops.get(site.where.name)
        within = around is not None and _DRAWS.search(around.instruction.op_name)
        if site.instruction.opcode == "while":
            within = within or _DRAWS.search(site.instruction.op_name)
        if within or _DRAWS.search(site.instruction.target):
            loop = (around or site).instruction
            line = row.source or str(source_of(loop.metadata, program.module.frames) or "")
            yield whole(RANDOM, row, f"{row.title} is part of the generator", line)
            continue
        drawing = dict[bool, int]()
        for part in program.instructions(row.name):
            instruction = part.instruction
            generator = instruction.opcode in _GENERATORS
            if generator or instruction.opcode in ARITHMETIC | TRANSCENDENTAL:
                drawn = generator or bool(_DRAWS.search(instruction.op_name))
                drawing[drawn] = drawing.get(drawn, 0) + instruction.shape.elements
        if not drawing.get(True):
            continue
        share = drawing[True] / sum(drawing.values())
        flops = row.kernel.flops
        like = replace(row.kernel, flops=replace(flops, vector=flops.vector * (1 - share)))
        lost = row.seconds if share > 0.95 else case.saved(row, like)
        evidence = f"{share:.0%} of its {sum(drawing.values()):,} operations draw them"
        yield Claim(RANDOM, ((row, lost),), evidence)


# --- copies that grow -----------------------------------------------------------------------------

GROWING = Cause(
    "growing",
    "an array is copied again at each of many lengths",
    "reserve all of it once and write in place (lax.dynamic_update_slice in the carry of a loop), "
    "or replace the slices of growing length by one operation with a mask or a cumulative sum",
    "notebooks/where-the-time-goes",
)
_PIECES = frozenset({"slice", "concatenate", "pad", "dynamic-slice", "dynamic-update-slice"})
_LENGTHS = 16
"""Different lengths from which on copies count as those of a growing array."""


def growing(case: Case) -> Claims:
    """Yield many kernels of one line that move an array, each at another length."""
    lines: dict[tuple[str, str, str], list[tuple[TimedRow, xla.Shape]]] = {}
    for row in case.kernels:
        parts = (part.instruction for part in case.program(row).instructions(row.name))
        pieces = [piece for piece in parts if piece.opcode in _PIECES]
        largest = max(pieces, key=lambda piece: piece.shape.bytes, default=None)
        read = sum(row.kernel.read.values())  # of any memory
        if largest is not None and 4 * largest.shape.bytes >= read > 0:
            key = row.program, row.source, largest.opcode
            lines.setdefault(key, []).append((row, largest.shape))
    for (_, line, opcode), moved in lines.items():
        sizes = {shape.elements for _, shape in moved}
        if len(sizes) < _LENGTHS or len(sizes) < 0.5 * len(moved):
            continue
        ordered = sorted((shape for _, shape in moved), key=lambda shape: shape.elements)
        costs = tuple(_moving_costs(case, moved))
        evidence = f"{opcode} of {len(sizes)} lengths, {ordered[0]} to {ordered[-1]}"
        yield Claim(GROWING, costs, evidence, source=line)


def _moving_costs(
    case: Case, pieces: Iterable[tuple[TimedRow, xla.Shape]]
) -> Iterator[tuple[TimedRow, float]]:
    """Yield kernels with the seconds that they spend on moving a piece of an array."""
    for row, shape in pieces:
        only = set(row.kernel.operations) <= PLACING | _PIECES | {"constant", "broadcast"}
        yield row, row.seconds if only else case.without_bytes(row, read=shape.bytes)


# --- blocks that are read again -------------------------------------------------------------------

BLOCKS = Cause(
    "small-blocks",
    "a Pallas kernel reads its operands from memory again and again",
    "choose larger blocks, so that each operand is read for fewer of them (block_q and block_kv "
    "of an attention kernel, the index maps' grid of your own)",
    "notebooks/fused-kernel",
)


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
            yield Claim(BLOCKS, ((row, saved),), evidence)


# --- types ----------------------------------------------------------------------------------------

NARROW = Cause(
    "slow-type",
    "a matmul sums integers in a type for which there is no fast path",
    "ask for sums in int32 (preferred_element_type=jnp.int32), which also can't overflow as soon, "
    "and narrow the result afterwards",
    "notebooks/low-precision",
)


def narrow_sums(case: Case) -> Claims:
    """Yield integer products whose sums have fewer than 32 bits, far below their roof."""
    for row, _, part in case.products():
        kinds = [shape.dtype for shape in (*part.operands[:2], *part.instruction.shape.leaves[:1])]
        if case.slow(row) and all(re.fullmatch(r"[su](4|8|16)", kind) for kind in kinds):
            evidence = f"{part.operands[0]} · {part.operands[1]} → {part.instruction.shape}"
            yield Claim(NARROW, ((row, row.lost),), evidence)
