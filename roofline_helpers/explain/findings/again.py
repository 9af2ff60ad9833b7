"""What a program computes though it has the value already: it has the same operands."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from roofline_helpers import hlo
from roofline_helpers.explain.findings.base import Case, Claim
from roofline_helpers.explain.program import Program
from roofline_helpers.explain.rows import Row
from roofline_helpers.hlo.calls import is_product
from roofline_helpers.hlo.metadata import scope_of, source_of
from roofline_helpers.hlo.module import Site
from roofline_helpers.hlo.opcodes import ARITHMETIC, PRODUCTS, TRANSCENDENTAL

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


def _share(case: Case, row: Row) -> float:
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

    def before(self, row: Row) -> bool:
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

    def _walk(self, where: hlo.Computation, given: Sequence[Number]) -> Number:
        """Number a computation's values, where its parameters are as given; return its root's."""
        for each in where.instructions:
            operands = [self.numbers[where.name, name] for name in each.operands]
            self.numbers[where.name, each.name] = self._number(where, each, operands, given)
        return self.numbers[where.name, where.root.name]

    def _number(
        self,
        where: hlo.Computation,
        each: hlo.Instruction,
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


def _dims(each: hlo.Instruction) -> tuple[int, ...]:
    return tuple(sorted(d for leaf in each.shape.leaves for d in leaf.dims if d > 1))
