"""Data that moves for no reason of its own: layouts, carries of loops, arguments not given away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofline_helpers import hlo
from roofline_helpers.explain.findings.base import Case, Claim
from roofline_helpers.explain.program import Program, Value
from roofline_helpers.explain.rows import Row
from roofline_helpers.hlo.calls import results
from roofline_helpers.hlo.module import Site
from roofline_helpers.hlo.opcodes import ARITHMETIC, TRANSCENDENTAL

_PLACING = frozenset({"copy", "transpose", "convert", "bitcast-convert", "reshape", "bitcast"})
_SLICING = _PLACING | {
    "slice",
    "dynamic-slice",
    "dynamic-update-slice",
    "concatenate",
    "pad",
    "broadcast",
    "iota",
    # the arithmetic of an index that is counted from the end
    "add",
    "compare",
    "select",
    "clamp",
}
_SMALL = 2**14
"""Bytes below which what a loop copies is no array worth a word."""


def copies(case: Case) -> Iterator[Claim]:
    """Yield kernels that only move: layout copies, copied arguments, and what loops copy."""
    for row in case.kernels:
        program, opcodes = case.program(row), set(row.operations)
        if not row.written or row.bytes < _SMALL * row.launches:
            continue
        if program.in_loop(row.name) and _only_moves(program, row.name, opcodes):
            yield _claim("scan-copy", row, _in_a_loop(program, row))
        elif opcodes <= _PLACING and opcodes & {"copy", "transpose"}:
            if _changes_layout(program, row.name):
                if not _is_the_job(program, row.name):
                    yield _claim("layout-copy", row, _described(program, row))
            elif _could_be_donated(program, row.name):
                yield _claim("not-donated", row, _argument(program, row))
            elif _of_a_new_layout(case, row):
                kind = f"{_shape(program, row.name)} is copied once more, to be changed in place:"
                yield _claim("layout-copy", row, f"{kind} its new layout is still read elsewhere")
        elif opcodes <= _PLACING | ARITHMETIC | TRANSCENDENTAL | {"broadcast"} and _slowed(
            program, row
        ):
            claim = ((row, row.lost, row.bytes),)
            yield Claim("layout-copy", claim, _described(program, row))


def _claim(cause: str, row: Row, evidence: str) -> Claim:
    return Claim(cause, ((row, row.seconds, row.bytes),), evidence)


def _only_moves(program: Program, name: str, opcodes: set[str]) -> bool:
    """Return whether a kernel computes nothing but places: slices, copies, updates."""
    if not opcodes <= _SLICING or not opcodes & (_SLICING - {"add", "compare", "select", "clamp"}):
        return False
    # arithmetic on whole arrays is work; on an index it isn't
    arithmetic = {"add", "compare", "select", "clamp", "iota", "broadcast"}
    return not any(
        part.instruction.opcode in arithmetic and not part.instruction.shape.is_scalar
        for part in program.instructions(name)
    )


def _slowed(program: Program, row: Row) -> bool:
    """Return whether a kernel with a little arithmetic loses more than half to a new layout.

    Exponentials and their like may cost a few times what the roof has for them, and not ten times.
    """
    slow = 0.9 if TRANSCENDENTAL & set(row.operations) else 0.5
    return row.lost > slow * row.seconds and _changes_layout(program, row.name)


def _changes_layout(program: Program, name: str) -> bool:
    return any(_permutes(part) for part in program.instructions(name))


def _permutes(part: Site) -> bool:
    """Return whether an instruction writes an array in another order than it reads it."""
    each = part.instruction
    if each.opcode not in ("copy", "transpose") or not part.operands:
        return False
    mine, theirs = each.shape, part.operands[0]
    if mine.parts is not None or theirs.parts is not None:
        return False
    if each.opcode == "copy":
        return _order(mine, mine.dims) != _order(theirs, theirs.dims)
    moved = each.numbers("dimensions")
    placed = [moved[d] for d in mine.order] if mine.order else list(moved)
    written = [d for d in placed if theirs.dims[d] > 1]
    return written != _order(theirs, theirs.dims)


def _of_a_new_layout(case: Case, row: Row) -> bool:
    """Return whether a kernel copies what another one has just copied into another layout."""
    makers = case.makers(row)
    return bool(makers) and all(
        set(maker.operations) <= _PLACING
        and _changes_layout(case.program(maker), maker.name)
        and not _is_the_job(case.program(maker), maker.name)
        for maker in makers
    )


def _order(shape: hlo.Shape, dims: tuple[int, ...]) -> list[int]:
    """Return the dimensions from slow to fast, without those of length 1."""
    order = shape.order or tuple(range(len(dims)))
    return [d for d in order if dims[d] > 1]


def _is_the_job(program: Program, name: str) -> bool:
    """Return whether a transposed argument is what the program was asked for."""
    reads = [value for value in program.reads(name) if value.kind != "constant"]
    return program.returned(name) and all(value.kind == "argument" for value in reads)


def _could_be_donated(program: Program, name: str) -> bool:
    """Return whether a kernel copies an argument that a result could take the memory of."""
    where = program.sites[name].where
    if where is not program.module.entry:
        return False
    arguments = [value for value in program.reads(name) if value.kind == "argument"]
    results = where.root.shape.leaves
    return any(
        value.index not in program.donated
        and any(_alike(value.shape, result) for result in results)
        and not (program.returned(name) and not program.readers.get(name))
        for value in arguments
    )


def _alike(one: hlo.Shape, other: hlo.Shape) -> bool:
    return one.dtype == other.dtype and one.dims == other.dims


def _in_a_loop(program: Program, row: Row) -> str:
    opcodes = row.operations
    sort = "its carry" if not {"dynamic-slice", "slice"} & set(opcodes) else "a slice"
    if "dynamic-update-slice" in opcodes:
        sort = "a result into the stack of all turns"
    return f"each of {row.launches:.0f} turns copies {sort} ({_shape(program, row.name)})"


def _described(program: Program, row: Row) -> str:
    from_where = next((v for v in program.reads(row.name) if v.kind != "constant"), None)
    source = ""
    if from_where is not None and from_where.kind == "argument":
        source = f" of argument {from_where.index}"
    return f"{_shape(program, row.name)}{source} is read in one order and written in another"


def _argument(program: Program, row: Row) -> str:
    value = next(v for v in program.reads(row.name) if v.kind == "argument")
    return f"argument {value.index} ({value.shape}) is copied, since it isn't donated"


def _shape(program: Program, name: str) -> str:
    return str(results(program.sites[name].instruction))


def whole_updates(case: Case) -> Iterator[Claim]:
    """Yield kernels that write a whole argument anew to change a part of it."""
    for row in case.kernels:
        program = case.program(row)
        if program.in_loop(row.name) or "dynamic-update-slice" not in row.operations:
            continue
        site = program.sites[row.name]
        if site.fused is None or not row.written:
            continue
        update = next((p for p in site.parts() if _updates(p)), None)
        if update is None:
            continue
        whole = update.instruction.shape.bytes
        value = _argument_of(program, row.name, whole)
        small = update.operands[1].bytes
        if value is None or row.written / row.launches < 0.9 * whole or small > 0.5 * whole:
            continue
        there = case.counted(row)
        like = replace(there, read={"hbm": small}, written={"hbm": small})
        evidence = f"argument {value.index} ({value.shape}) is written anew to change a part of it"
        saved = case.saved(row, like)
        yield Claim("not-donated", ((row, saved, row.bytes),), evidence)


def turned_updates(case: Case) -> Iterator[Claim]:
    """Yield kernels that change a part of an array, and write all of it in another layout."""
    for row in case.kernels:
        program = case.program(row)
        if "dynamic-update-slice" not in row.operations or _is_the_job(program, row.name):
            continue
        turned = [part for part in program.instructions(row.name) if _turns_an_update(part)]
        moved = sum(part.instruction.shape.bytes for part in turned)
        if not row.written or moved < 0.5 * row.written / row.launches:
            continue
        saved = case.without_bytes(row, read=moved, written=moved)
        shape = turned[0].operands[0]
        evidence = f"{shape} is changed in part, and all of it written in another order"
        yield Claim("layout-copy", ((row, saved, 2.0 * moved * row.launches),), evidence)


def _turns_an_update(part: Site) -> bool:
    """Return whether an instruction puts an array, of which little is new, in another order."""
    if not _permutes(part):
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


def _argument_of(program: Program, name: str, size: int) -> Value | None:
    for value in program.reads(name):
        if value.kind == "argument" and value.shape.bytes == size:
            return None if value.index in program.donated else value
    return None
