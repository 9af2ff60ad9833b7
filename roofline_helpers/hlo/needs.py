"""Which share of each value inside a fusion has to be computed or read.

A fusion that slices, gathers or updates in place touches part of a buffer, not all of it. FLOPs,
bytes and tiles are all counted by these shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roofline_helpers.hlo.module import Computation, Instruction, Module, Site
from roofline_helpers.hlo.opcodes import SLICES, UPDATES, VIEWS

_HALVES = ("X64SplitLow", "X64SplitHigh")


@dataclass(frozen=True)
class InPlace:
    """A result of a fusion that updates one of its parameters in place.

    `update` is the name of the updating instruction ("" where a fusion inside does it), `buffer`
    that of the parameter, and `share` is how much of the buffer is written.
    """

    update: str
    buffer: str
    share: float


def in_place(program: Module, inner: Computation) -> dict[str, InPlace]:
    """Return the results of a fusion that update a parameter in place, by name."""
    updates = {}
    for result in inner.results:
        each = _through(result, program, inner)
        if each.opcode == "fusion":
            called = program.called(each, "calls")[0]
            for inside in list(in_place(program, called).values())[:1]:
                place = [p.name for p in called.parameters].index(inside.buffer)
                buffer = _through(each.operands[place], program, inner)
                if buffer.opcode == "parameter" and called.root.opcode != "tuple":
                    updates[result] = InPlace("", buffer.name, inside.share)
            continue
        if each.opcode not in UPDATES:
            continue
        buffer = _through(each.operands[0], program, inner)
        if buffer.opcode == "parameter" and buffer.shape.elements == each.shape.elements:
            share = updated(each, inner) / max(each.shape.leaves[0].elements, 1)
            updates[result] = InPlace(each.name, buffer.name, min(share, 1.0))
    return updates


def _through(name: str, program: Module, where: Computation) -> Instruction:
    """Follow a value back through what keeps its order: bitcasts, copies, conversions.

    A fusion of nothing else is one of them: XLA for v7x puts the change of a tile into one.
    """
    each = where.by_name[name]
    while each.operands:
        if each.opcode == "fusion":
            [called, *_] = program.called(each, "calls")
            if _through(called.root.name, program, called).name != called.parameters[0].name:
                break
        elif each.opcode not in VIEWS or _reorders(each, where):
            break
        each = where.by_name[each.operands[0]]
    return each


def _reorders(each: Instruction, where: Computation) -> bool:
    """Return whether a transpose or copy changes the order in memory: then all of it moves."""
    if each.opcode not in ("transpose", "copy"):
        return False
    before, after = where.by_name[each.operands[0]].shape, each.shape
    if not before.order or not after.order:
        return False
    axes = each.numbers("dimensions") or tuple(range(len(after.dims)))
    written = [axes[d] for d in after.order if after.dims[d] > 1]
    return written != [d for d in before.order if before.dims[d] > 1]


def updated(each: Instruction, where: Computation) -> int:
    """Return the elements that a dynamic-update-slice or scatter writes."""
    update = 1 if each.opcode == "dynamic-update-slice" else -(len(each.operands) // 2)
    return where.by_name[each.operands[update]].shape.elements


def combines(program: Module, each: Instruction) -> bool:
    """Return whether an update reads what it writes to: a scatter whose combiner uses it."""
    if each.opcode != "scatter":
        return False
    inner = program.called(each, "to_apply", "scatter")[0]
    return any(p.name in inner.users for p in inner.parameters[: len(inner.parameters) // 2])


def of_parameters(program: Module, inner: Computation, share: float = 1) -> list[float]:
    """Return which share of each parameter of a fusion is read, for a `share` of its result."""
    needed = of_values(program, inner, share)
    return [needed[parameter.name] for parameter in inner.parameters]


def of_operands(site: Site) -> list[float]:
    """Return which share of each operand a kernel reads, as far as its fusion tells."""
    if site.fused is None:
        half = site.instruction.target in _HALVES  # of complex numbers, or of a wide integer
        return [0.5 if half else 1.0] * len(site.instruction.operands)
    return of_parameters(site.program, site.fused)


def of_values(program: Module, inner: Computation, share: float = 1) -> dict[str, float]:
    """Return which share of each value inside a fusion has to be computed or read.

    From the result backwards: whoever uses a value needs as much of it as is needed of its own
    result, but a slice needs only what it cuts out, and an update in place needs nothing of the
    buffer that it updates (a scatter that adds needs what it adds to).
    """
    whole = dict.fromkeys(inner.by_name, 0.0)
    cut: dict[str, dict[Any, float]] = {name: {} for name in inner.by_name}
    updating = {update.update for update in in_place(program, inner).values()}
    needed: dict[str, float] = {}
    key: tuple[Any, ...]
    whole[inner.root.name] = share
    for each in reversed(inner.instructions):
        mine = needed[each.name] = min(1.0, whole[each.name] + sum(cut[each.name].values()))
        if mine == 0:
            continue
        for position, (operand, part) in enumerate(_asked(program, each, mine)):
            elements = max(inner.by_name[operand].shape.leaves[0].elements, 1)
            if position == 0 and each.opcode in SLICES:
                key = (each.opcode, each.attributes.get("slice"), each.operands[1:])
                piece = mine * min(1.0, each.shape.elements / elements)
            elif position == 0 and each.name in updating:
                key = (each.name,)
                adds = combines(program, each)
                piece = mine * min(1.0, updated(each, inner) / elements) if adds else 0.0
            else:
                whole[operand] = max(whole[operand], part)
                continue
            cut[operand][key] = max(cut[operand].get(key, 0.0), piece)
    # Views pass a share on unchanged, so they need nothing more
    return needed


def _asked(program: Module, each: Instruction, share: float) -> list[tuple[str, float]]:
    """Return each operand, and the share of it that a share of the result asks for."""
    parts = [share] * len(each.operands)
    if each.opcode == "fusion":
        parts = of_parameters(program, program.called(each, "calls")[0], share)
    elif each.opcode == "broadcast":
        parts = [1.0]
    return list(zip(each.operands, parts, strict=True))
