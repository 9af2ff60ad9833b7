"""Which of the program's arguments a kernel reads: weights keep their names in loops and copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from roofline_helpers.hlo.module import Computation, Instruction, Module, Site
from roofline_helpers.hlo.opcodes import VIEWS

Label: TypeAlias = "str | tuple[Label, ...] | None"
"""The name of a value that is an argument of the program, a tuple of labels, None for others."""

_PASSING = VIEWS | frozenset(
    "copy-start copy-done slice slice-start slice-done dynamic-slice all-gather all-gather-start "
    "all-gather-done optimization-barrier opt-barrier async-start async-done async-update pad "
    "collective-permute collective-permute-start collective-permute-done reduce-precision".split()
)


def arguments(entry: Computation) -> tuple[Label, ...]:
    """Return the names of a program's parameters, as JAX noted them: "params['up']"."""
    return tuple(each.op_name.replace("\\'", "'") or None for each in entry.parameters)


def labels(program: Module, where: Computation, given: Sequence[Label]) -> dict[str, Label]:
    """Return the label of each value of a computation whose parameters have those `given`."""
    known: dict[str, Label] = {}
    for each in where.instructions:
        known[each.name] = _label(program, where, each, known, given)
    return known


def _label(
    program: Module,
    where: Computation,
    each: Instruction,
    known: Mapping[str, Label],
    given: Sequence[Label],
) -> Label:
    operands = [known.get(name) for name in each.operands]
    if each.opcode == "parameter":
        place = int(each.literal or 0)
        return given[place] if place < len(given) else None
    if each.opcode == "tuple":
        return tuple(operands)
    first = operands[0] if operands else None
    if each.opcode == "get-tuple-element":
        index = each.numbers("index")[0]
        if isinstance(first, tuple):
            return first[index] if index < len(first) else None
        return first
    if each.opcode in _PASSING:
        return first
    if each.opcode == "while":
        return looped(program, each, first)
    if each.opcode in ("fusion", "call") and any(operands):
        inner = program.called(each, "calls", "to_apply")[0]
        return labels(program, inner, operands).get(inner.root.name)
    return None


def looped(program: Module, loop: Instruction, start: Label) -> Label:
    """Return the label of a loop's tuple: an element that a turn changes has none."""
    if not isinstance(start, tuple):
        return None
    body = program.called(loop, "body")[0]
    ends = body.results
    if len(ends) != len(start):
        return None
    return tuple(
        label if _stays(body, name, place) else None
        for place, (label, name) in enumerate(zip(start, ends, strict=True))
    )


def _stays(body: Computation, name: str, place: int) -> bool:
    """Return whether an element of a loop's tuple is after a turn what it was before."""
    each = body.by_name[name]
    while each.opcode in ("copy", "bitcast", "copy-start", "copy-done"):
        each = body.by_name[each.operands[0]]
    if each.opcode != "get-tuple-element" or each.numbers("index")[0] != place:
        return False
    return body.by_name[each.operands[0]].opcode == "parameter"


def read(site: Site, known: Mapping[str, Label]) -> tuple[str, ...]:
    """Return the names of the program's arguments among the operands of a kernel."""
    names: list[str] = []
    for operand, shape in zip(site.instruction.operands, site.operands, strict=True):
        if not shape.is_scalar:
            names += _names(known.get(operand))
    return tuple(dict.fromkeys(names))


def _names(label: Label) -> list[str]:
    if isinstance(label, tuple):
        return [name for part in label for name in _names(part)]
    return [label] if label else []
