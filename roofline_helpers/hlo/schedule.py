"""When asynchronous work starts and ends, and which exchanges are steps of a larger one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from roofline_helpers.hlo.collectives import collective_of, feeds_product
from roofline_helpers.hlo.module import Computation, Instruction, Module, Site
from roofline_helpers.hlo.opcodes import PRODUCTS

STARTS, DONE = "AsyncCollectiveStart", "AsyncCollectiveDone"
"""Calls by which a TPU's fusion starts an exchange, or waits for it. Fusions between the two carry
it on alongside their own work."""


def chain(site: Site) -> str | None:
    """Return which part of a chain of fusions around one exchange a kernel is.

    "start", "between" or "done"; None for kernels that are no such part.
    """
    if site.fused is None:
        return None
    targets = {part.target for part in site.fused.instructions if part.opcode == "custom-call"}
    if STARTS in targets:
        return "start"
    if DONE in targets:
        return "done"
    exchange = collective_of(site, 1)
    return None if exchange is None or not aliased(site.instruction)[0] else "between"


def aliased(each: Instruction) -> tuple[set[int], set[int]]:
    """Return the results of a kernel that are its operands, and those operands, by number."""
    text = each.attributes.get("output_to_operand_aliasing", "")
    pairs = re.findall(r"\{(\d*)\}: \((\d+), \{[^}]*\}\)", text)
    return {int(out or 0) for out, _ in pairs}, {int(operand) for _, operand in pairs}


def place(each: Instruction) -> str:
    """Return what tells the operations of a traced function apart: its name and its frame."""
    frame = re.search(r"stack_frame_id=\d+|source_line=\d+", each.metadata)
    return f"{each.op_name} {frame.group()}" if frame else each.op_name


def windowed(program: Module) -> dict[str, str]:
    """Return the products that XLA takes apart into steps, with the exchange that they hide.

    By their `place`, which XLA also gives to the permutes that run alongside the steps. It is an
    all-gather where what arrives is multiplied, a reduce-scatter where it is added to what was.
    """
    kinds: dict[str, str] = {}
    for where in program.computations.values():
        named: dict[str, list[Instruction]] = {}
        for each in where.instructions:
            if each.base == "collective-permute" and each.op_name:
                named.setdefault(place(each), []).append(each)
        for site in _products(program, where) if named else ():
            for name in {place(part.instruction) for part in _multiplying(site)} & named.keys():
                passed = {value for each in named[name] for value in _values(where, each)}
                multiplied = any(feeds_product(site, value) for value in passed)
                kinds[name] = "all-gather" if multiplied else kinds.get(name, "reduce-scatter")
    return kinds


def _products(program: Module, where: Computation) -> list[Site]:
    """Return the kernels of a computation that hold a product."""
    sites = (Site(program, where, each) for each in where.instructions)
    kept = (site for site in sites if site.instruction.opcode in ("fusion", *PRODUCTS))
    return [site for site in kept if _multiplying(site)]


def _multiplying(site: Site) -> list[Site]:
    return [part for part in site.parts() if part.instruction.opcode in PRODUCTS]


def _values(where: Computation, each: Instruction) -> list[str]:
    """Return the names of what a permute takes and leaves, and of views of it."""
    names, todo = list(each.operands), [each.name]
    while todo:
        name = todo.pop()
        names.append(name)
        for user in where.users.get(name, []):
            if user.opcode in ("collective-permute-done", "bitcast", "copy", "reshape"):
                todo.append(user.name)
    return names


@dataclass
class Pending:
    """What has started and hasn't ended: which row starts it, by instruction."""

    starts: dict[str, int] = field(default_factory=dict)

    def ended(self, each: Instruction) -> int | None:
        """Return the row whose work an instruction waits for; None if it waits for none."""
        first = each.operands[0] if each.operands else ""
        place = self.starts.get(first)
        if place is not None and each.opcode.endswith("-update"):
            self.starts[each.name] = place
            return None
        return place
