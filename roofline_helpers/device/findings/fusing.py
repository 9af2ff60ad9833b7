"""What is written to memory and read again, and what is computed again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from roofline_helpers import xla
from roofline_helpers.device.findings.causes import Case, Claim
from roofline_helpers.device.program import Program, Value
from roofline_helpers.device.rows import TimedRow
from roofline_helpers.xla.flops import is_product, results
from roofline_helpers.xla.metadata import scope_of, source_of
from roofline_helpers.xla.module import (
    ARITHMETIC,
    PRODUCTS,
    TRANSCENDENTAL,
    Computation,
    Instruction,
    Site,
)

# --- What a program computes though it has the value already: it has the same operands -----------

Number: TypeAlias = "Any"
"""What a value is computed from, as one hashable; of a tuple, of each of its parts."""

_REMAT = re.compile(r"\.remat\d*(\.|$)")
_SAME = frozenset(
    "copy convert bitcast reshape transpose broadcast copy-start copy-done opt-barrier "
    "optimization-barrier".split()
)
_COMPUTING = ARITHMETIC | TRANSCENDENTAL | PRODUCTS


def recomputed(case: Case) -> Iterator[Claim]:
    """Yield kernels that compute again what was there: for the backward pass, or want of memory.

    A `jax.checkpoint` around values that the forward pass never made costs nothing, and neither
    does one around values that would take as long to write and read.
    """
    again = {row.program for row in case.kernels if row.step == "recomputed"}
    made = {name: _Made(case.programs[name]) for name in again}
    for row in case.kernels:
        short = bool(_REMAT.search(row.name))
        if not short and (row.step != "recomputed" or not made[row.program].before(row)):
            continue
        why = "since memory is short" if short else "in the backward pass"
        seconds = row.seconds if short else _share(case, row) * row.seconds
        yield Claim("recomputed", ((row, seconds, row.bytes),), f"{row.what} runs again {why}")


def _share(case: Case, row: TimedRow) -> float:
    """Return the share of a kernel's time that keeping what it computes again would save."""
    program = case.program(row)
    matmuls = [part for part in program.instructions(row.name) if is_product(part)]
    if matmuls:
        steps = [scope_of(part.instruction.op_name).step for part in matmuls]
        return steps.count("recomputed") / len(steps)
    kept = 2 * program.sites[row.name].instruction.shape.bytes * row.launches
    return 1 - kept / (case.ceilings.bandwidth or math.inf) / (row.seconds or math.inf)


class _Made:
    """What a program computes: two instructions of one number have the same operands."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.numbers: dict[tuple[str, str], Number] = {}
        self._walk(program.module.entry, ())
        self.forward = {
            self._identity(name, part)
            for name in program.rows
            for part in self._parts(name, "forward")
        }

    def before(self, row: TimedRow) -> bool:
        """Return whether the forward pass made what a kernel computes: its matmuls, if any."""
        parts = self._parts(row.name, "recomputed")
        parts = [part for part in parts if is_product(part)] or parts
        return any(self._identity(row.name, part) in self.forward for part in parts)

    def _parts(self, name: str, step: str) -> list[Site]:
        return [
            part
            for part in self.program.instructions(name)
            if part.instruction.opcode in _COMPUTING
            and not part.instruction.shape.is_scalar
            and scope_of(part.instruction.op_name).step == step
        ]

    def _identity(self, name: str, part: Site) -> Number:
        """Return what is the same for two instructions that compute the same value.

        In loops, where values come through carries and stacks, it is the line of code.
        """
        each = part.instruction
        if self.program.in_loop(name):
            line = source_of(each.metadata, self.program.module.frames)
            return str(line), scope_of(each.op_name).primitive, _dims(each)
        return self.numbers.get((part.where.name, each.name))

    def _walk(self, where: Computation, given: Sequence[Number]) -> Number:
        """Number a computation's values, where its parameters are as given; return its root's."""
        for each in where.instructions:
            operands = [self.numbers[where.name, name] for name in each.operands]
            self.numbers[where.name, each.name] = self._number(where, each, operands, given)
        return self.numbers[where.name, where.root.name]

    def _number(
        self,
        where: Computation,
        each: Instruction,
        operands: Sequence[Number],
        given: Sequence[Number],
    ) -> Number:
        if each.opcode == "parameter" and int(each.literal or 0) < len(given):
            return given[int(each.literal or 0)]
        if each.opcode == "tuple":
            return tuple(operands)
        if each.opcode == "get-tuple-element" and isinstance(operands[0], tuple):
            return operands[0][each.numbers("index")[0]]
        if each.opcode in _SAME:
            return operands[0]
        if each.opcode in ("fusion", "call"):
            return self._walk(self.program.module.called(each, "calls", "to_apply")[0], operands)
        if each.opcode in ("constant", "iota"):
            return hash((each.opcode, each.literal, _dims(each)))
        if each.opcode in _COMPUTING:  # types and layouts, and which side is first, don't matter
            return hash((each.opcode, _dims(each), tuple(sorted(map(hash, operands)))))
        return hash((where.name, each.name, tuple(operands)))


def _dims(each: Instruction) -> tuple[int, ...]:
    return tuple(sorted(d for leaf in each.shape.leaves for d in leaf.dims if d > 1))


# --- What is written to memory and read again: chains, reductions, scores; and what is done twice

_POINTWISE = ARITHMETIC | TRANSCENDENTAL | {"convert", "broadcast", "iota", "reshape", "copy"}
_ON_CHIP = 2**18
"""Bytes of a row that a kernel can keep on the chip between two passes over it."""


# --- chains ---------------------------------------------------------------------------------------


def chains(case: Case) -> Iterator[Claim]:
    """Yield elementwise kernels that only other elementwise kernels read: one would do."""
    for row in case.kernels:
        program = case.program(row)
        if not _pointwise(row) or program.returned(row.name):
            continue
        names = program.readers.get(row.name, [])
        readers = case.readers(row)
        if not readers or len(readers) < len(names) or not all(map(_pointwise, readers)):
            continue
        size = program.sites[row.name].instruction.shape.bytes
        parts = [(row, case.without_bytes(row, written=size), float(size) * row.launches)]
        for reader in readers:
            seconds = case.without_bytes(reader, read=size)
            parts.append((reader, seconds, float(size) * reader.launches))
        after = ", ".join(reader.what for reader in readers[:2])
        evidence = f"{program.sites[row.name].instruction.shape} is written for {after} to read"
        yield Claim("unfused", tuple(parts), evidence, source=readers[-1].source or row.source)
    yield from _separate_programs(case)


def _pointwise(row: TimedRow) -> bool:
    opcodes = set(row.operations)
    return opcodes <= _POINTWISE and bool(opcodes & (ARITHMETIC | TRANSCENDENTAL))


def _separate_programs(case: Case) -> Iterator[Claim]:
    """Yield elementwise programs of one kernel each that follow on one another: no common jit."""
    alone = {row.program for row in case.kernels}
    for row in case.kernels:
        others = [other for other in case.kernels if other.program == row.program]
        if len(others) > 1:
            alone.discard(row.program)
    chain: list[TimedRow] = []
    for row in case.kernels:
        follows = not chain or _elements(case, chain[-1]) == _elements(case, row)
        if row.program in alone and _pointwise(row) and follows:
            chain.append(row)
            continue
        if len(chain) > 1:
            yield _chain(case, chain)
        chain = []
    if len(chain) > 1:
        yield _chain(case, chain)


def _elements(case: Case, row: TimedRow) -> int:
    return case.program(row).sites[row.name].instruction.shape.elements


def _chain(case: Case, chain: Sequence[TimedRow]) -> Claim:
    parts = []
    for place, row in enumerate(chain):
        shape = case.program(row).sites[row.name].instruction.shape
        last, first = place == len(chain) - 1, place == 0
        written, read = 0 if last else shape.bytes, 0 if first else shape.bytes
        seconds = case.without_bytes(row, read=read, written=written)
        parts.append((row, seconds, float(read + written) * row.launches))
    evidence = f"{len(chain)} programs of one elementwise kernel each, one after another"
    return Claim("unfused", tuple(parts), evidence, source=chain[-1].source)


# --- reductions -----------------------------------------------------------------------------------


def split_reductions(case: Case) -> Iterator[Claim]:
    """Yield reductions along rows whose input the kernel that uses their result reads again."""
    for row in case.kernels:
        program = case.program(row)
        if not _reduces_rows(program, row) or row.matrix_types:
            continue
        for value in program.reads(row.name):
            if value.kind == "constant" or value.shape.is_scalar:
                continue
            again = _reads_again(case, row, value)
            if again is None:
                continue
            size = value.shape.bytes
            seconds = case.without_bytes(row, read=size)
            evidence = f"{value.shape} is read for the reduction, and again by {again.what}"
            part = (row, seconds, float(size) * row.launches)
            yield Claim("split-reduction", (part,), evidence)
            break


def _reduces_rows(program: Program, row: TimedRow) -> bool:
    """Return whether a kernel reduces along its input's fastest dimension, rows that fit a chip."""
    for part in program.instructions(row.name):
        each = part.instruction
        if each.opcode != "reduce" or not part.operands:
            continue
        taken = part.operands[0]
        dims = set(each.numbers("dimensions"))
        if not dims or taken.parts is not None or not taken.dims:
            continue
        order = [d for d in (taken.order or range(len(taken.dims))) if taken.dims[d] > 1]
        length = taken.elements // max(each.shape.leaves[0].elements, 1)
        many = each.shape.leaves[0].elements >= 8
        fits = length >= 8 and length * taken.bits // 8 <= _ON_CHIP
        if order and order[-1] in dims and many and fits:
            return True
    return False


def _reads_again(case: Case, row: TimedRow, value: Value) -> TimedRow | None:
    """Return a kernel that reads a value again, and what the reduction over it made."""
    program = case.program(row)
    after = _descendants(case, row, hops=3)
    for other in case.kernels:
        if other.program != row.program or other.name == row.name or other.name not in after:
            continue
        if other.matrix_types:
            continue
        if any(v.name == value.name and v.index == value.index for v in program.reads(other.name)):
            return other
    return None


def _descendants(case: Case, row: TimedRow, hops: int) -> set[str]:
    below, edge = set[str](), {row.name}
    readers = case.program(row).readers
    for _ in range(hops):
        edge = {name for each in edge for name in readers.get(each, ())} - below
        below |= edge
    return below


# --- scores ---------------------------------------------------------------------------------------


def scores(case: Case) -> Iterator[Claim]:
    """Yield products whose result goes through a softmax in memory: attention, cross-entropy."""
    for row in case.kernels:
        program = case.program(row)
        made = _large_product(program, row)
        if made is None:
            continue
        group = _through_softmax(case, row, made.elements)
        if group is None:
            continue
        members, attention = group
        parts = []
        for member in members:
            read, written = _moved(case, member, made.elements, members)
            seconds = case.without_bytes(member, read, written)
            parts.append((member, seconds, (read + written) * member.launches))
        fused = attention and case.platform == "gpu" and _half(case, row)
        what = "scores" if attention else "logits"
        evidence = f"{what} {made} pass through {len(members)} kernels"
        yield Claim("attention" if fused else what, tuple(parts), evidence)


def _large_product(program: Program, row: TimedRow) -> xla.Shape | None:
    """Return the result of a kernel's product that makes more than half of what it reads."""
    for part in program.instructions(row.name):
        if is_product(part):
            inputs = sum(shape.bytes for shape in part.operands[:2])
            made = results(part.instruction)
            if made.elements and made.bytes > 0.5 * inputs:
                return made.leaves[0]
    return None


def _through_softmax(case: Case, row: TimedRow, size: int) -> tuple[list[TimedRow], bool] | None:
    """Return the kernels that a product's result passes through, and whether a product ends it.

    None unless there is an exponential and a reduction along rows among them.
    """
    program = case.program(row)
    members, edge, ends = [row], [row], False
    for _ in range(5):
        following: list[TimedRow] = []
        for each in edge:
            if not _makes(program, each, size) and each is not row:
                continue
            following += [r for r in case.readers(each) if r not in members + following]
        for each in following:
            # the matmuls that end a loss are its gradient's
            ends = ends or (bool(each.matrix_types) and each.step != "backward")
        members += following
        edge = [each for each in following if not each.matrix_types]
    touching = [m for m in members if _touches(program, m, size)]
    if any("softmax" in program.sites[m.name].instruction.name for m in touching):
        return touching, True  # libtpu's own kernel: it takes the second product along
    opcodes = set().union(*(set(m.operations) for m in touching))
    reduced = any(_reduces_size(program, m, size) for m in touching)
    if not opcodes & {"exponential", "exponential-minus-one"} or not reduced:
        return None
    return touching, ends


def _makes(program: Program, row: TimedRow, size: int) -> bool:
    shape = program.sites[row.name].instruction.shape
    return any(leaf.elements == size for leaf in shape.leaves)


def _touches(program: Program, row: TimedRow, size: int) -> bool:
    reads = (leaf for value in program.reads(row.name) for leaf in value.shape.leaves)
    return _makes(program, row, size) or any(leaf.elements == size for leaf in reads)


def _reduces_size(program: Program, row: TimedRow, size: int) -> bool:
    return any(
        part.instruction.opcode == "reduce" and part.operands[0].elements == size
        for part in program.instructions(row.name)
        if part.operands
    )


def _moved(
    case: Case, row: TimedRow, size: int, members: Sequence[TimedRow]
) -> tuple[float, float]:
    """Return the bytes of score-sized arrays that a kernel reads and writes, a launch."""
    program, there = case.program(row), case.counted(row)
    names = {member.name for member in members}
    read = sum(
        value.shape.bytes
        for value in program.reads(row.name)
        if value.kind == "kernel" and value.name in names and value.shape.elements == size
    )
    shape = program.sites[row.name].instruction.shape
    written = sum(leaf.bytes for leaf in shape.leaves if leaf.elements == size)
    return (
        float(min(read, there.read.get("hbm", 0))),
        float(min(written, there.written.get("hbm", 0))),
    )


def _half(case: Case, row: TimedRow) -> bool:
    """Return whether a product's operands are of a type that fused attention takes."""
    return any(kind.startswith(("bf16", "f16")) for kind in row.matrix_types)


# --- moved by rows --------------------------------------------------------------------------------


def gathers(case: Case) -> Iterator[Claim]:
    """Yield gathers and scatters that take more than twice their roof."""
    for row in case.kernels:
        wanted = {"gather", "scatter"} & set(row.operations)
        if not wanted or row.reachable is None or row.lost < 0.5 * row.seconds:
            continue
        program = case.program(row)
        for part in program.instructions(row.name):
            if part.instruction.opcode in wanted:
                evidence = f"{part.instruction.opcode} of {_rows(part)}"
                yield Claim("gather", ((row, row.lost, 0.0),), evidence)
                break


def _rows(part: Site) -> str:
    moved = part.operands[2] if part.instruction.opcode == "scatter" else part.instruction.shape
    shape: xla.Shape = moved
    return f"{shape} in {part.operands[0]}"


# --- more than was asked for ----------------------------------------------------------------------


def sorts(case: Case) -> Iterator[Claim]:
    """Yield sorts of which the program uses a small part: the largest or smallest few."""
    for row in case.kernels:
        program = case.program(row)
        if "sort" not in row.operations or program.returned(row.name):
            continue
        for part in program.instructions(row.name):
            if part.instruction.opcode != "sort" or not part.operands:
                continue
            taken = part.operands[0]
            (along,) = part.instruction.numbers("dimensions")[:1]
            many, length = len(program.readers.get(row.name, [])), taken.dims[along]
            used = [_used(program, reader.name, taken, along) for reader in case.readers(row)]
            if used and len(used) == many and max(used) <= length / 4:
                evidence = f"{taken} is sorted, and {max(used):,} of each {length:,} are used"
                yield Claim("sort", ((row, row.seconds, row.bytes),), evidence)
            break


def _used(program: Program, reader: str, taken: xla.Shape, along: int) -> int:
    """Return how many of a sorted array a kernel reads, along the sorted dimension."""
    slices = [
        part.instruction.shape.dims[along]
        for part in program.instructions(reader)
        if part.instruction.opcode == "slice" and part.operands[0].dims == taken.dims
    ]
    return max(slices, default=taken.dims[along])
