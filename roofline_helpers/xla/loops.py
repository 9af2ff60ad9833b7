"""How often loops turn: as the backend says, or from the counter and the bound."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

from roofline_helpers.xla.module import Computation, Instruction, Module, Site


class Origin(NamedTuple):
    """Where a scalar comes from: element `element` of the loop's tuple, plus `offset`.

    Without an element it is the constant `offset`.
    """

    element: int | None
    offset: int

    def value(self, constants: Mapping[int, int]) -> int | None:
        """Return the number, where the tuple's elements that are `constants` determine it."""
        if self.element is None:
            return self.offset
        known = constants.get(self.element)
        return None if known is None else known + self.offset


Passed: TypeAlias = "Mapping[str, Origin | None]"  # what the parameters of a fusion are


def origin(
    program: Module, where: Computation, name: str, passed: Passed | None = None
) -> Origin | None:
    """Follow a scalar to its origin; None where it can't be followed."""
    if passed is not None and name in passed:
        return passed[name]
    each = where.by_name[name]

    def follow(operand: str) -> Origin | None:
        return origin(program, where, operand, passed)

    if each.opcode == "constant" and each.shape.is_scalar:
        number = re.fullmatch(r"\{?\s*(-?\d+)\s*\}?", each.literal)
        return Origin(None, int(number.group(1))) if number else None
    if each.opcode == "get-tuple-element":
        index, source = each.numbers("index")[0], where.by_name[each.operands[0]]
        if source.opcode == "tuple":
            return follow(source.operands[index])
        return Origin(index, 0) if source.opcode == "parameter" else None
    if each.opcode in ("copy", "bitcast", "reshape", "convert", "copy-start", "copy-done"):
        return follow(each.operands[0])
    if each.opcode in ("add", "subtract"):
        return _sum(each, follow(each.operands[0]), follow(each.operands[1]))
    if each.opcode in ("fusion", "call"):
        inner, inside = _entered(program, where, each, passed)
        return origin(program, inner, inner.root.name, inside)
    return None


def _sum(each: Instruction, first: Origin | None, second: Origin | None) -> Origin | None:
    if first is None or second is None:
        return None
    if each.opcode == "subtract":
        minus = Origin(first.element, first.offset - second.offset)
        return minus if second.element is None else None
    if first.element is not None and second.element is not None:
        return None
    element = first.element if second.element is None else second.element
    return Origin(element, first.offset + second.offset)


def _entered(
    program: Module, where: Computation, each: Instruction, passed: Passed | None
) -> tuple[Computation, Passed]:
    """Return the computation that a fusion or a call enters, and what its parameters are."""
    inner = program.called(each, "calls", "to_apply")[0]
    values = [origin(program, where, operand, passed) for operand in each.operands]
    return inner, {p.name: value for p, value in zip(inner.parameters, values, strict=True)}


@dataclass(frozen=True)
class Loop:
    """A `while` loop.

    `known` holds the elements of the enclosing loop's tuple that are constants.
    """

    site: Site
    known: Mapping[int, int]

    @cached_property
    def body(self) -> Computation:
        """What it repeats."""
        return self.site.program.called(self.site.instruction, "body")[0]

    @cached_property
    def condition(self) -> Computation:
        """What it tests before each turn."""
        return self.site.program.called(self.site.instruction, "condition")[0]

    @cached_property
    def start(self) -> Instruction:
        """The tuple that it begins with."""
        return self.site.where.by_name[self.site.instruction.operands[0]]

    @property
    def _has_tuples(self) -> bool:
        return self.start.opcode == "tuple" and self.body.root.opcode == "tuple"

    def _before(self, element: int) -> int | None:
        """Return the value of an element of the tuple before the first turn."""
        site = self.site
        value = origin(site.program, site.where, self.start.operands[element])
        return None if value is None else value.value(self.known)

    def _after(self, element: int) -> Origin | None:
        """Return what an element of the tuple is after a turn."""
        return origin(self.site.program, self.body, self.body.root.operands[element])

    @cached_property
    def constants(self) -> dict[int, int]:
        """The elements of its tuple that keep one known value."""
        values: dict[int, int] = {}
        if not self._has_tuples:
            return values
        for element, part in enumerate(self.start.shape.parts or ()):
            if part.is_scalar and self._after(element) == (element, 0):
                before = self._before(element)
                if before is not None:
                    values[element] = before
        return values

    @cached_property
    def trips(self) -> int | None:
        """How often it turns; None where that can't be told."""
        stated = self.site.instruction.config.get("known_trip_count")
        if isinstance(stated, dict) and str(stated.get("n", "")).isdigit():
            return int(stated["n"])
        tested = self._tested()
        if tested is None or not self._has_tuples:
            return None
        left, right, direction = tested
        if left.element is None or left.element in self.constants:  # bound first: turn it round
            left, right = right, left
            direction = direction.translate(str.maketrans("LG", "GL"))
        bound = right.value(self.constants)
        if left.element is None or bound is None:
            return None
        first, after = self._before(left.element), self._after(left.element)
        if first is None or after is None or after.element != left.element:
            return None
        return turns(first + left.offset, bound, after.offset, direction)

    def _tested(self) -> tuple[Origin, Origin, str] | None:
        """Return both sides of the comparison that ends the loop, and its direction."""
        program, inner, test = self.site.program, self.condition, self.condition.root
        passed: Passed | None = None
        while test.opcode in ("fusion", "call", "copy", "bitcast", "convert"):
            if test.opcode in ("fusion", "call"):
                inner, passed = _entered(program, inner, test, passed)
                test = inner.root
            else:
                test = inner.by_name[test.operands[0]]
        if test.opcode != "compare":
            return None
        left, right = (origin(program, inner, operand, passed) for operand in test.operands)
        if left is None or right is None:
            return None
        return left, right, test.attributes.get("direction", "")


def turns(first: int, bound: int, step: int, direction: str) -> int | None:
    """Return how often a counter from `first` by `step` passes the test against `bound`."""
    if step > 0 and direction in ("LT", "LE", "NE"):
        distance = bound + (direction == "LE") - first
        if direction == "NE" and distance % step:
            return None
        return max(0, -(-distance // step))
    if step < 0 and direction in ("GT", "GE", "NE"):
        flipped = {"GT": "LT", "GE": "LE", "NE": "NE"}[direction]
        return turns(-first, -bound, -step, flipped)
    return None
