"""Data that moves for no reason of its own: layouts, slices of loops, arguments not donated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofline import xla
from roofline.diagnosis.findings.causes import Case, Cause, Check, Claim, Claims, whole
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow
from roofline.xla.flops import reorders, results
from roofline.xla.hlo import ARITHMETIC, TRANSCENDENTAL, Site
from roofline.xla.metadata import source_of
from roofline_helpers.common.show import si

PLACING = frozenset({"copy", "transpose", "convert", "bitcast-convert", "reshape", "bitcast"})
"""Opcodes of kernels that only place an array elsewhere, in another order or type."""

_INDEXING = frozenset("add subtract compare select clamp iota broadcast".split())
"""Opcodes of an index that is counted from the end; they only matter on whole arrays."""

_SLICING = frozenset("slice dynamic-slice dynamic-update-slice concatenate pad".split())
_SMALL = 2**14
"""Bytes below which a loop's copy is not reported."""


LAYOUT = Cause(
    "layout-copy",
    "an array is copied into another layout",
    "store it in the order in which the matmul reads it, or write the matmul for the order "
    "that is there (einsum names the axes)",
    "notebooks/decode-step-made-fast",
    {"gpu": Check(1.05, 1.08, "2 pairs of programs timed on an H200")},
)
REORDERED = Cause(
    "reordered",
    "an array is read in another order than it lies in memory",
    "keep it in the order in which it is read, or work along the axes that lie together",
    "notebooks/where-the-time-goes",
)
SCAN = Cause(
    "scan-copy",
    "a loop copies a slice of its stacked inputs or outputs in every iteration",
    "write the iterations as a Python loop; keep what changes in the carry, updated in place, and "
    "not among the stacked inputs and outputs",
    "notebooks/decode-step-made-fast",
    {"gpu": Check(0.83, 2.03, "6 pairs of programs timed on an H200")},
)
CARRY = Cause(
    "carry-copy",
    "a loop copies what it carries in every iteration",
    "let nothing need the old value once the new one is there: read before you write, write in "
    "place (.at[i].set, lax.dynamic_update_slice), and keep each array at its place in the carry",
    "notebooks/decode-step-made-fast",
)
DONATE = Cause(
    "not-donated",
    "an argument is copied before it is updated",
    "donate it: jax.jit(f, donate_argnums=…), and use the result in its place",
    "notebooks/decode-step-made-fast",
)


def layout_copies(case: Case) -> Claims:
    """Yield kernels that only move data: layout copies, copied arguments, copies in loops."""
    for row in case.kernels:
        program, opcodes = case.program(row), set(row.kernel.operations)
        if not row.kernel.written_bytes or row.kernel.bytes < _SMALL:
            continue
        if program.in_loop(row.name) and _only_moves(program, row.name, opcodes):
            copied = _in_a_loop(case, row)
            if copied is not None:
                yield copied
        elif opcodes <= PLACING and opcodes & {"copy", "transpose"}:
            if any(map(reorders, program.instructions(row.name))):
                if not _is_the_job(program, row.name):
                    yield _in_another_order(case, row)
            elif _could_be_donated(program, row.name):
                value = program.arguments(row.name)[0]
                text = f"argument {value.index} ({value.shape}) is copied, since it isn't donated"
                yield whole(DONATE, row, text)


def _in_another_order(case: Case, row: TimedRow) -> Claim:
    """Return a claim on a copy into another order: one that a matmul asks for, or another's."""
    copied = results(case.program(row).sites[row.name].instruction)
    writers = (writer for writer in case.kernels if row in case.readers(writer))
    near = (row, *case.readers(row), *writers)
    cause = LAYOUT if any(kernel.kernel.matrix_types for kernel in near) else REORDERED
    return whole(cause, row, f"{copied} is read in one order and written in another")


def _only_moves(program: Program, name: str, opcodes: set[str]) -> bool:
    """Return whether a kernel only moves data: slices, copies, updates."""
    moves = PLACING | _SLICING
    if not opcodes & moves or not opcodes <= moves | _INDEXING:
        return False
    parts = (part.instruction for part in program.instructions(name))
    return all(part.shape.is_scalar for part in parts if part.opcode in _INDEXING)


def _is_the_job(program: Program, name: str) -> bool:
    """Return whether a copy only gives the program's result the order that it is returned in.

    Also a transposed argument that is a result and read again.
    """
    reads = [value for value in program.reads(name) if value.kind != "constant"]
    if program.sites[name].where is program.module.entry and not program.readers.get(name):
        return True
    return program.returned(name) and all(value.kind == "argument" for value in reads)


def _could_be_donated(program: Program, name: str) -> bool:
    """Return whether a kernel copies an argument whose memory a result could reuse."""
    where = program.sites[name].where
    if where is not program.module.entry:
        return False
    results = {(leaf.dtype, leaf.dims) for leaf in where.root.shape.leaves}
    return any(
        value.index not in program.module.donated
        and (value.shape.dtype, value.shape.dims) in results
        and not (program.returned(name) and not program.readers.get(name))
        for value in program.arguments(name)
    )


_CACHE = 2**25
"""Bytes that a CPU's caches hold: a copy of less stays in cache and costs almost nothing."""


def _in_a_loop(case: Case, row: TimedRow) -> Claim | None:
    """Return a claim on a slice or stacked result that a loop copies in every iteration."""
    program, opcodes = case.program(row), set(row.kernel.operations)
    if not opcodes & _SLICING:
        return _carried(case, row)
    if case.platform == "cpu" and row.kernel.bytes < _CACHE:
        return None
    sort = "a slice"
    if "dynamic-update-slice" in opcodes:
        # `jax.lax.scan` stacks its results outside of the call of its body. An update inside is the
        # author's own, of the carry, in place
        parts = (part.instruction for part in program.instructions(row.name) if _updates(part))
        if any(name in part.op_name for part in parts for name in _BODIES):
            return None
        sort = "a result into the stack of all iterations"
    elif not opcodes & {"dynamic-slice", "slice"}:
        return None
    shape = results(program.sites[row.name].instruction)
    return whole(SCAN, row, f"each of {row.launches:.0f} iterations copies {sort} ({shape})")


_BODIES = ("closed_call", "eval_jaxpr")
"""What JAX calls the body of a scan in the names of its operations: before 0.11, and since."""


def filled_stacks(case: Case) -> Claims:
    """Yield kernels that fill the stack of a loop's results with zeros before its first turn."""
    for row, program, loop, shape in _entering(case):
        if row.kernel.bytes < _SMALL or set(row.kernel.operations) - {"broadcast", "copy"}:
            continue
        if _slices(program, loop, shape, "dynamic-update-slice"):
            evidence = f"{shape} is filled before the loop that overwrites all of it"
            yield whole(SCAN, row, evidence, _line(program, loop))


def _entering(case: Case) -> Iterator[tuple[TimedRow, Program, Site, xla.Shape]]:
    """Yield the kernels whose result enters a loop, with their program, the loop and its shape."""
    for name, program in case.programs.items():
        for loop in program.loops.values():
            for value in program.enters(loop):
                row = case.by_name.get((name, value.name))
                if row is not None:
                    yield row, program, loop, value.shape


def _line(program: Program, loop: Site) -> str:
    return str(source_of(loop.instruction.metadata, program.module.frames) or "")


def _carried(case: Case, row: TimedRow) -> Claim | None:
    """Return a claim on a copy in a loop: of the carry as it is, or into another order."""
    program = case.program(row)
    if any(map(reorders, program.instructions(row.name))):
        return _in_another_order(case, row)
    if set(row.kernel.operations) != {"copy"}:
        return None
    if any(reader.kernel.host_bytes for reader in case.readers(row)):
        return None  # what leaves the device is read from the main memory
    shape = results(program.sites[row.name].instruction)
    return whole(CARRY, row, f"{row.launches:.0f} copies of {shape}, {si(shape.bytes, 'B')} each")


RELAID = Cause(
    "relaid-weights",
    "stacked weights are laid out anew before the loop that slices them",
    "unroll the loop: jax.lax.scan(…, unroll=True), or write it as a Python loop",
    "notebooks/decode-step-made-fast",
)


def relaid_weights(case: Case) -> Claims:
    """Yield copies of an argument into the tiles that a loop's matmuls prefer."""
    for row, program, loop, shape in _entering(case):
        source = next(iter(program.arguments(row.name)), None)
        if source is None or set(row.kernel.operations) - PLACING:
            continue
        if order_of(source.shape) != order_of(shape) and _slices(program, loop, shape):
            evidence = f"argument {source.index} ({source.shape}) is written in other tiles"
            yield whole(RELAID, row, evidence, _line(program, loop))


def order_of(shape: xla.Shape) -> tuple[list[int], tuple[int, ...]]:
    """Return the order of an array in memory, and its tile."""
    order = shape.order or range(len(shape.dims))
    return [d for d in order if shape.dims[d] > 1], shape.tile


def _slices(program: Program, loop: Site, shape: xla.Shape, opcode: str = "dynamic-slice") -> bool:
    """Return whether the body of a loop slices, or updates, one of many in such an array."""
    return any(
        part.instruction.opcode == opcode
        and part.operands[0].dims == shape.dims
        and (part.instruction.shape if opcode == "dynamic-slice" else part.operands[1]).dims[:1]
        == (1,)
        for body in program.module.called(loop.instruction, "body")
        for instruction in body.instructions
        for part in Site(program.module, body, instruction).parts()
    )


def whole_updates(case: Case) -> Claims:
    """Yield kernels that rewrite a whole argument to change a part of it."""
    for row in case.kernels:
        program = case.program(row)
        if program.in_loop(row.name) or "dynamic-update-slice" not in row.kernel.operations:
            continue
        site = program.sites[row.name]
        if site.fused is None:
            continue
        update = next((p for p in site.parts() if _updates(p)), None)
        if update is None:
            continue
        size = update.instruction.shape.bytes
        values = (v for v in program.arguments(row.name) if v.index not in program.module.donated)
        value = next((v for v in values if v.shape.bytes == size), None)
        small = update.operands[1].bytes
        written = row.kernel.written_bytes
        if value is None or written < 0.9 * size or small > 0.5 * size:
            continue
        like = replace(row.kernel, read={"hbm": small}, written={"hbm": small})
        evidence = f"argument {value.index} ({value.shape}) is written anew to change a part of it"
        yield Claim(DONATE, ((row, case.saved(row, like)),), evidence)


def transposed_updates(case: Case) -> Claims:
    """Yield kernels that change a part of an array, and write all of it in another layout."""
    for row in case.kernels:
        program = case.program(row)
        if "dynamic-update-slice" not in row.kernel.operations or _is_the_job(program, row.name):
            continue
        transposed = [
            part for part in program.instructions(row.name) if _transposes_an_update(part)
        ]
        moved = sum(part.instruction.shape.bytes for part in transposed)
        if moved < 0.5 * max(row.kernel.written_bytes, 1):
            continue
        saved = case.without_bytes(row, read=moved, written=moved)
        shape = transposed[0].operands[0]
        evidence = f"{shape} is changed in part, and all of it written in another order"
        yield Claim(LAYOUT, ((row, saved),), evidence)


def _transposes_an_update(part: Site) -> bool:
    """Return whether an instruction transposes an array of which only a small part is new."""
    if not reorders(part):
        return False
    source = part.where.by_name[part.instruction.operands[0]]
    while source.opcode in ("bitcast", "convert", "copy"):
        source = part.where.by_name[source.operands[0]]
    if source.opcode != "dynamic-update-slice":
        return False
    update = part.where.by_name[source.operands[1]].shape
    return update.bytes <= 0.5 * source.shape.bytes


def _updates(part: Site) -> bool:
    return part.instruction.opcode == "dynamic-update-slice" and len(part.operands) > 1


def strided(case: Case) -> Claims:
    """Yield kernels far below their roof that read an array across the order in which it lies."""
    for row in case.kernels:
        if not case.measured or not case.slow(row):
            continue
        crossing = [part for part in case.program(row).instructions(row.name) if _crosses(part)]
        if sum(part.instruction.shape.bytes for part in crossing) >= 0.25 * row.kernel.bytes > 0:
            evidence = f"{row.title} reads {crossing[0].operands[0]} in another order than it lies"
            yield Claim(REORDERED, ((row, row.lost),), evidence)


def _crosses(part: Site) -> bool:
    """Return whether an instruction reads its operand in another order than it writes."""
    instruction = part.instruction
    if instruction.opcode in ARITHMETIC | TRANSCENDENTAL | {"convert"}:
        written, _ = order_of(instruction.shape)
        return any(order_of(shape)[0] != written for shape in part.operands if shape.order)
    return reorders(part)
