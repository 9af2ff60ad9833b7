"""How often loops turn: as the backend says, or from the counter and the bound."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from roofline_helpers.xla.module import Computation, Module, Site

_PASSING = ("copy", "bitcast", "reshape", "convert", "copy-start", "copy-done")


def value_of(program: Module, where: Computation, name: str, given: Sequence[Any]) -> Any:
    """Return what an instruction makes of whole numbers, for parameters that are `given`.

    An int; a list of them for a tuple; both sides and the direction for a comparison; None for
    everything else.
    """
    each = where.by_name[name]
    if each.shape.parts is None and not each.shape.is_scalar:
        return None

    def operands() -> list[Any]:
        return [value_of(program, where, operand, given) for operand in each.operands]

    if each.opcode == "parameter":
        place = int(each.literal or 0)
        return given[place] if place < len(given) else None
    if each.opcode == "constant":
        number = re.fullmatch(r"\{?\s*(-?\d+)\s*\}?", each.literal)
        return int(number.group(1)) if number else None
    if each.opcode == "tuple":
        return operands()
    if each.opcode == "get-tuple-element":
        (elements,) = operands()
        return elements[each.numbers("index")[0]] if elements else None
    if each.opcode in _PASSING:
        return operands()[0]
    if each.opcode == "compare":
        return (*operands(), each.attributes.get("direction", ""))
    if each.opcode in ("add", "subtract"):
        first, second = operands()
        if not isinstance(first, int) or not isinstance(second, int):
            return None
        return first + second if each.opcode == "add" else first - second
    if each.opcode in ("fusion", "call"):
        inner = program.called(each, "calls", "to_apply")[0]
        return value_of(program, inner, inner.root.name, operands())
    return None


def turns_of_loop(site: Site, given: Sequence[Any]) -> tuple[int | None, list[int | None]]:
    """Return how often a `while` loop turns, and which elements of its tuple keep a known value.

    None for a number of turns that can't be told, and for other elements. `given` are the values
    of the parameters of the computation around it.
    """
    program, each = site.program, site.instruction
    start = value_of(program, site.where, each.operands[0], given)
    start = [v if isinstance(v, int) else None for v in start] if start else []
    steps = _steps(program, program.called(each, "body")[0], len(start))
    constants = [v if step == 0 else None for v, step in zip(start, steps, strict=True)]
    stated = each.config.get("known_trip_count")
    if isinstance(stated, dict) and str(stated.get("n", "")).isdigit():
        return int(stated["n"]), constants
    condition, gaps = program.called(each, "condition")[0], []
    for turn in (0, 1):
        pairs = zip(start, steps, strict=True)
        state = [None if v is None or step is None else v + turn * step for v, step in pairs]
        test = value_of(program, condition, condition.root.name, [state])
        if not isinstance(test, tuple) or None in test:
            return None, constants
        gaps.append(test[0] - test[1])
    return turns(gaps[0], gaps[1] - gaps[0], test[2]), constants


def _steps(program: Module, body: Computation, count: int) -> list[int | None]:
    """Return what a turn adds to each element of a loop's tuple; None where that differs."""
    found = []
    for factor in (1009, 20011):  # any two states: a constant step is the same from both
        state = [factor * (place + 1) for place in range(count)]
        after = value_of(program, body, body.root.name, [state])
        pairs = zip(state, after or [None] * count, strict=False)
        found.append([new - old if isinstance(new, int) else None for old, new in pairs])
    return [one if one == other else None for one, other in zip(*found, strict=True)]


def turns(first: int, step: int, direction: str) -> int | None:
    """Return how often first, first + step, … passes the test against 0."""
    if direction in ("GT", "GE") or (direction == "NE" and step < 0):
        opposite = {"GT": "LT", "GE": "LE", "NE": "NE"}[direction]
        return turns(-first, -step, opposite)
    if step <= 0 or direction not in ("LT", "LE", "NE") or (direction == "NE" and first % step):
        return None
    return max(0, -((first - (direction == "LE")) // step))
