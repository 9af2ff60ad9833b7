"""Values known before a program runs: names of its arguments, counters, trip counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from roofline.xla.hlo import VIEWS, Computation, Instruction, Module

_COPIES = VIEWS | {"copy-start", "copy-done"}
_PARTS = frozenset(
    "slice slice-start slice-done dynamic-slice all-gather all-gather-start all-gather-done "
    "optimization-barrier opt-barrier async-start async-done async-update pad collective-permute "
    "collective-permute-start collective-permute-done reduce-precision".split()
)
"""Opcodes whose result keeps the operand's name, although its values may differ."""


def values_of(program: Module, where: Computation, parameters: Sequence[Any]) -> dict[str, Any]:
    """Return known values of a computation whose parameters are `given`.

    A known value is the name of the program's argument that it is or was sliced from; a whole
    number; a list of these for a tuple; both sides and the direction for a comparison of numbers.
    All else is None.
    """
    values: dict[str, Any] = {}
    for instruction in where.instructions:
        operands = [values.get(name) for name in instruction.operands]
        values[instruction.name] = _value(program, instruction, operands, parameters)
    return values


def _value(
    program: Module, instruction: Instruction, operands: list[Any], parameters: Sequence[Any]
) -> Any:
    first = operands[0] if operands else None
    if instruction.opcode == "parameter":
        position = int(instruction.literal or 0)
        return parameters[position] if position < len(parameters) else None
    if instruction.opcode == "constant":
        number = re.fullmatch(r"\{?\s*(-?\d+)\s*\}?", instruction.literal)
        return int(number.group(1)) if number and instruction.shape.is_scalar else None
    if instruction.opcode == "tuple":
        return operands
    if instruction.opcode == "get-tuple-element" and isinstance(first, list):
        index = instruction.numbers("index")[0]
        return first[index] if index < len(first) else None
    if instruction.opcode == "get-tuple-element" or instruction.opcode in _COPIES:
        return first
    if instruction.opcode in _PARTS:
        return None if isinstance(first, int) else first
    if instruction.opcode == "while":
        return [None if isinstance(v, int) else v for v in carried(program, instruction, first)]
    if instruction.opcode in ("fusion", "call") and any(value is not None for value in operands):
        inner = program.called(instruction, "calls", "to_apply")[0]
        return values_of(program, inner, operands)[inner.root.name]
    if not instruction.shape.is_scalar or not all(isinstance(value, int) for value in operands):
        return None
    if instruction.opcode in ("add", "subtract"):
        return first + operands[1] * (1 if instruction.opcode == "add" else -1)
    if instruction.opcode == "compare":
        return (*operands, instruction.attributes["direction"])
    return None


# --- Loops ----------------------------------------------------------------------------------------


def carried(program: Module, loop: Instruction, start: Any) -> list[Any]:
    """Return known values of a loop's tuple that hold in every iteration."""
    steps = _steps(program, loop, start)
    return [v if step == 0 else None for v, step in zip(start or (), steps, strict=True)]


def turns_of_loop(program: Module, loop: Instruction, start: Any) -> int | None:
    """Return the trip count of a `while` loop that starts with this tuple; None if unknown."""
    stated = loop.config.get("known_trip_count")
    if isinstance(stated, dict) and str(stated.get("n", "")).isdigit():
        return int(stated["n"])
    condition, gaps = program.called(loop, "condition")[0], []
    for turn in (0, 1):
        state = [
            value + turn * step if isinstance(value, int) and step is not None else None
            for value, step in zip(start or (), _steps(program, loop, start), strict=True)
        ]
        test = values_of(program, condition, [state])[condition.root.name]
        if not isinstance(test, tuple):
            return None
        gaps.append(test[0] - test[1])
    return turns(gaps[0], gaps[1] - gaps[0], test[2])


def _steps(program: Module, loop: Instruction, start: Any) -> list[int | None]:
    """Return the constant step of each element of a loop's tuple; None if it isn't constant."""
    (body,), steps = program.called(loop, "body"), []
    for factor in (1009, 20011):  # two arbitrary states: only a constant step is the same from both
        state = [factor * (number + 1) for number in range(len(start or ()))]
        end = values_of(program, body, [state])[body.root.name] or [None] * len(state)
        pairs = zip(state, end, strict=False)
        steps.append([new - old if isinstance(new, int) else None for old, new in pairs])
    return [first if first == second else None for first, second in zip(*steps, strict=True)]


def turns(first: int, step: int, direction: str) -> int | None:
    """Return how often first, first + step, … passes the test against 0."""
    end = {"LT": 0, "LE": 1, "GT": 0, "GE": -1, "NE": 0}.get(direction)
    rises = direction in ("LT", "LE") or (direction == "NE" and step > 0)
    endless = step == 0 or rises != (step > 0) or (direction == "NE" and first % step)
    return None if end is None or endless else len(range(first, end, step))
