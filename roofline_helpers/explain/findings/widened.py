"""Values that came in a narrow type, were widened to float32, and never narrowed again."""

from __future__ import annotations

from typing import TypeAlias

from roofline_helpers import hlo
from roofline_helpers.explain.program import Program
from roofline_helpers.hlo.opcodes import ARITHMETIC, PRODUCTS, SLICES, TRANSCENDENTAL, VIEWS

NARROW = ("bf16", "f16")

Wide: TypeAlias = "bool | tuple[Wide, ...]"
"""Whether a value was widened; of a tuple, which of its parts."""

_PASSED = VIEWS | SLICES | {"concatenate", "pad", "reverse", "dynamic-update-slice"}
_SAME = frozenset({"opt-barrier", "optimization-barrier", "copy-start", "copy-done"})
_ELEMENTWISE = ARITHMETIC | TRANSCENDENTAL


def widened_products(program: Program) -> frozenset[tuple[str, str]]:
    """Return products that run in float32 because a narrow value was widened on its way there.

    By computation and instruction. A value counts as widened from where the author's code converts
    it (``x.astype(float32)``, or NumPy's promotion), through arithmetic on whole arrays and through
    other products, until it is narrowed. What is summed up or broadcast from little counts no more.
    """
    found: set[tuple[str, str]] = set()
    entry = program.module.entry
    _follow(program.module, entry, (False,) * len(entry.parameters), found)
    return frozenset(found)


def _follow(
    module: hlo.Module, where: hlo.Computation, given: tuple[Wide, ...], found: set[tuple[str, str]]
) -> Wide:
    """Return whether a computation's result is widened, where its parameters are as given."""
    wide: dict[str, Wide] = {}
    for each in where.instructions:
        operands = [wide.get(name, False) for name in each.operands]
        wide[each.name] = _one(module, where, each, operands, given, found)
    return wide[where.root.name]


def _one(
    module: hlo.Module,
    where: hlo.Computation,
    each: hlo.Instruction,
    operands: list[Wide],
    given: tuple[Wide, ...],
    found: set[tuple[str, str]],
) -> Wide:
    """Return whether an instruction's result is widened."""
    opcode = each.opcode
    if opcode == "parameter":
        number = int(each.literal or 0)
        return given[number] if number < len(given) else False
    if opcode == "tuple":
        return tuple(operands)
    if opcode in _SAME:
        return operands[0]
    if opcode == "get-tuple-element":
        source, index = operands[0], each.numbers("index")[0]
        return source[index] if isinstance(source, tuple) and index < len(source) else False
    if opcode in ("fusion", "call"):
        called = module.called(each, "calls", "to_apply")[0]
        return _follow(module, called, tuple(operands), found)
    if opcode == "while":
        for body in module.called(each, "body"):
            _follow(module, body, tuple(operands), found)
        return operands[0]
    shape = each.shape.parts[0] if each.shape.parts else each.shape
    if shape.dtype != "f32":
        return _library(where, each, operands, found)
    if opcode in PRODUCTS or opcode == "custom-call":
        return _library(where, each, operands, found)
    if opcode == "convert" and where.by_name[each.operands[0]].shape.dtype in NARROW:
        return each.op_name.endswith("convert_element_type")
    if opcode in _PASSED:
        return any(operand is True for operand in operands)
    if opcode in _ELEMENTWISE:
        whole = (where.by_name[name].shape.elements == shape.elements for name in each.operands)
        return any(a is True and b for a, b in zip(operands, whole, strict=True))
    return False


def _library(
    where: hlo.Computation,
    each: hlo.Instruction,
    operands: list[Wide],
    found: set[tuple[str, str]],
) -> Wide:
    """Return whether the result of a product, or of a library's call, is widened; note it."""
    if each.opcode not in (*PRODUCTS, "custom-call") or True not in operands[:2]:
        return False
    types = {where.by_name[name].shape.dtype for name in each.operands[:2]}
    if types != {"f32"}:
        return False
    found.add((where.name, each.name))
    if each.shape.parts:
        return tuple(part.dtype == "f32" for part in each.shape.parts)
    return each.shape.dtype == "f32"
