"""Values known before a program runs: names of its arguments, counters, trip counts, conditions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from roofline.xla.hlo import VIEWS, Computation, Instruction, Module

Number: TypeAlias = "int | NDArray[np.int64]"
"""A whole number, the same in all turns of the loops around, or one for each of them."""


class _Test(NamedTuple):
    """A comparison of numbers."""

    left: Number
    right: Number
    direction: str

    @property
    def outcome(self) -> Number:
        """1 where it holds, else 0."""
        return _plain(_COMPARED[self.direction](self.left, self.right))


class _Table(NamedTuple):
    """An array of known numbers."""

    numbers: NDArray[np.int64]


MOST_TURNS = 200_000
"""Turns of loops, or elements of an array, for which each number is known; of more, none is."""

_PARTS = frozenset(
    "slice dynamic-slice all-gather optimization-barrier opt-barrier pad collective-permute "
    "reduce-precision".split()
)
"""Opcodes whose result keeps the operand's name, although its values may differ."""


def values_of(
    program: Module, where: Computation, parameters: Sequence[Any], *, affine: bool = False
) -> dict[str, Any]:
    """Return known values of a computation whose parameters are `given`.

    A known value is the name of the program's argument that it is or was sliced from; a number; an
    array of them; a comparison of numbers; a list of these for a tuple. All else is None, and with
    `affine` also every number that isn't a sum or difference.
    """
    values: dict[str, Any] = {}
    for instruction in where.instructions:
        operands = [values.get(name) for name in instruction.operands]
        values[instruction.name] = _value(program, instruction, operands, parameters, affine)
    return values


def _value(
    program: Module,
    instruction: Instruction,
    operands: list[Any],
    parameters: Sequence[Any],
    affine: bool,
) -> Any:
    first, opcode = operands[0] if operands else None, instruction.base
    if opcode == "parameter":
        position = int(instruction.literal or 0)
        return parameters[position] if position < len(parameters) else None
    if opcode in ("constant", "iota"):
        return _constant(instruction)
    if opcode == "tuple":
        return operands
    if opcode == "get-tuple-element" and isinstance(first, list):
        index = instruction.numbers("index")[0]
        return first[index] if index < len(first) else None
    if opcode == "convert" and isinstance(first, int | np.ndarray) and not affine:
        return _in_range(first, instruction.shape.dtype)
    if opcode == "get-tuple-element" or opcode in VIEWS or opcode.endswith(("-done", "-update")):
        return first
    if opcode == "dynamic-slice" and isinstance(first, _Table):
        at = number_of(operands[1]) if len(operands) == 2 else None
        if at is None or not instruction.shape.is_scalar:
            return None
        return _plain(first.numbers[np.clip(at, 0, len(first.numbers) - 1)])
    if opcode in _PARTS:
        return None if isinstance(first, int | np.ndarray | _Test | _Table) else first
    if opcode == "while":
        kept = carried(program, instruction, first)
        return [None if isinstance(v, int | np.ndarray) else v for v in kept]
    if opcode in ("fusion", "call", "async") and (
        not operands or any(v is not None for v in operands)
    ):
        inner = program.called(instruction, "calls", "to_apply")[0]
        return values_of(program, inner, operands, affine=affine)[inner.root.name]
    if instruction.shape.is_scalar:
        return _computed(instruction, [number_of(value) for value in operands], affine)
    length = instruction.shape.dims[0] if instruction.shape.parts is None else 0
    if affine or not 0 < length == instruction.shape.elements <= MOST_TURNS:
        return None
    if opcode == "broadcast" and isinstance(first, int):
        return _Table(np.full(length, first))
    tables = [value.numbers if isinstance(value, _Table) else None for value in operands]
    result = number_of(_computed(instruction, tables, affine))
    return None if result is None else _Table(np.broadcast_to(result, (length,)))


def _computed(
    instruction: Instruction, numbers: Sequence[Any], affine: bool
) -> Number | _Test | None:
    """Return what an operation makes of numbers; None if they, or the operation, aren't known."""
    opcode, dtype = instruction.opcode, instruction.shape.dtype
    if not numbers or any(number is None for number in numbers):
        return None
    if opcode == "compare":
        return _Test(numbers[0], numbers[1], instruction.attributes["direction"])
    rule = _AFFINE.get(opcode) if affine else _RULES.get(opcode)
    if rule is None or not (opcode in _AFFINE or dtype.startswith(("s", "u", "pred"))):
        return None
    if opcode in ("divide", "remainder") and not np.all(numbers[1]):
        return None
    if opcode.startswith("shift") and not np.all((numbers[1] >= 0) & (numbers[1] < 32)):
        return None
    if opcode == "not" and dtype == "pred":
        return _plain(np.equal(numbers[0], 0))
    if opcode == "shift-right-logical":  # of the bits, without a sign
        numbers = _in_range(numbers[0], dtype.replace("s", "u")), numbers[1]
    result = _plain(rule(*numbers))
    return result if affine else _in_range(result, dtype)


_COMPARED: Mapping[str, Callable[..., Any]] = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NE": operator.ne,
}
_AFFINE: Mapping[str, Callable[..., Any]] = {"add": operator.add, "subtract": operator.sub}
_RULES: Mapping[str, Callable[..., Any]] = {
    **_AFFINE,
    "multiply": operator.mul,
    "divide": lambda x, y: np.trunc(np.true_divide(x, y)).astype(np.int64),
    "remainder": np.fmod,
    "negate": operator.neg,
    "abs": np.abs,
    "sign": np.sign,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift-left": operator.lshift,
    "shift-right-arithmetic": operator.rshift,
    "shift-right-logical": operator.rshift,
    "select": np.where,
    "clamp": lambda low, x, high: np.clip(x, low, high),
}
"""Operations on whole numbers."""


def number_of(value: Any) -> Number | None:
    """Return a known value as a number, 1 for a comparison that holds; None for all else."""
    if isinstance(value, _Test):
        return value.outcome
    return value if isinstance(value, int | np.ndarray) else None


def _plain(number: Any) -> Number:
    """Return a number of NumPy's as Python's, and an array as it is."""
    return np.asarray(number, np.int64) if np.ndim(number) else int(number)


def _in_range(number: Number, dtype: str) -> Number:
    """Return a number as its type holds it: integers wrap around."""
    if dtype == "pred":
        return _plain(np.not_equal(number, 0))
    bits = re.fullmatch(r"[su](\d+)", dtype)
    if bits is None or int(bits[1]) > 32:
        return number
    span, low = 1 << int(bits[1]), 1 << int(bits[1]) - 1 if dtype.startswith("s") else 0
    return (number + low) % span - low


def _constant(instruction: Instruction) -> Number | _Table | None:
    """Return the numbers of a constant, or of an iota of one dimension."""
    shape = instruction.shape
    if instruction.opcode == "iota":
        length = shape.dims[0] if len(shape.dims) == 1 else MOST_TURNS + 1
        return _Table(np.arange(length)) if length <= MOST_TURNS else None
    text = instruction.literal.replace("true", "1").replace("false", "0")
    if shape.is_scalar:
        number = re.fullmatch(r"\{?\s*(-?\d+)\s*\}?", text)
        return int(number.group(1)) if number else None
    if len(shape.dims) != 1 or not re.fullmatch(r"\{[-\d, ]+\}", text):
        return None
    return _Table(np.array([int(n) for n in text.strip("{} ").split(",")]))


# --- Loops ----------------------------------------------------------------------------------------


def carried(program: Module, loop: Instruction, start: Any) -> list[Any]:
    """Return known values of a loop's tuple that hold in every iteration."""
    steps = _steps(program, loop, start)
    return [v if step == 0 else None for v, step in zip(start or (), steps, strict=True)]


def in_each_turn(
    program: Module, loop: Instruction, start: Any, trips: int, turns: int
) -> list[Any]:
    """Return known values of a loop's tuple in its body, of counters a number for each turn.

    The loops around have so many `turns` in all, and their counters so many numbers.
    """
    values: list[Any] = []
    for value, step in zip(start or (), _steps(program, loop, start), strict=True):
        number = number_of(value)
        if number is None or step is None:
            values.append(same_in_all(value) if step == 0 else None)
        elif step == 0 and isinstance(number, int):
            values.append(number)
        else:
            first = np.repeat(np.broadcast_to(number, (turns,)), trips)
            values.append(first + step * np.tile(np.arange(trips), turns))
    return values


def chosen_in(value: Any, turns: NDArray[np.bool_]) -> Any:
    """Return a known value in some of the turns."""
    if isinstance(value, list):
        return [chosen_in(part, turns) for part in value]
    if isinstance(value, _Test):
        return _Test(chosen_in(value.left, turns), chosen_in(value.right, turns), value.direction)
    return value[turns] if isinstance(value, np.ndarray) else value


def same_in_all(value: Any) -> Any:
    """Return a known value without the numbers that differ between turns."""
    if isinstance(value, list):
        return [same_in_all(part) for part in value]
    numbers = value[:2] if isinstance(value, _Test) else (value,)
    return None if any(isinstance(number, np.ndarray) for number in numbers) else value


def turns_of_loop(program: Module, loop: Instruction, start: Any) -> int | None:
    """Return the trip count of a `while` loop that starts with this tuple; None if unknown."""
    stated = loop.config.get("known_trip_count")
    if isinstance(stated, dict) and str(stated.get("n", "")).isdigit():
        return int(stated["n"])
    condition, gaps = program.called(loop, "condition")[0], []
    for turn in (0, 1):
        state: list[int | None] = []  # that of the loop at the first turn, and at the second
        for value, step in zip(start or (), _steps(program, loop, start), strict=True):
            if isinstance(value, int) and step is not None:
                state.append(value + turn * step)
            else:
                state.append(None)
        test = values_of(program, condition, [state], affine=True)[condition.root.name]
        if not isinstance(test, _Test):
            return None
        gaps.append(test.left - test.right)
    return turns(int(gaps[0]), int(gaps[1] - gaps[0]), test.direction)


def _steps(program: Module, loop: Instruction, start: Any) -> list[int | None]:
    """Return the constant step of each element of a loop's tuple; None if it isn't constant."""
    (body,), steps = program.called(loop, "body"), []
    for factor in (1009, 20011):  # two arbitrary states: only a constant step is the same from both
        state = [factor * (number + 1) for number in range(len(start or ()))]
        end = values_of(program, body, [state], affine=True)[body.root.name]
        pairs = zip(state, end or [None] * len(state), strict=False)
        steps.append([new - old if isinstance(new, int) else None for old, new in pairs])
    return [first if first == second else None for first, second in zip(*steps, strict=True)]


def turns(first: int, step: int, direction: str) -> int | None:
    """Return how often first, first + step, … passes the test against 0."""
    end = {"LT": 0, "LE": 1, "GT": 0, "GE": -1, "NE": 0}.get(direction)
    rises = direction in ("LT", "LE") or (direction == "NE" and step > 0)
    endless = step == 0 or rises != (step > 0)
    if direction == "NE" and not endless:  # it passes 0 by, or goes away from it
        endless = bool(first % step) or first * step > 0
    return None if end is None or endless else len(range(first, end, step))
