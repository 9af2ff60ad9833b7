"""What is alive when a compiled program needs most memory, with the lines of code that made it.

The text of a compiled program lists instructions in the order in which they run, so an array is
alive from the instruction that writes it to the last one that reads it. Arrays that must lie in the
same memory are one buffer: what a loop carries, what an update changes in place, a result in the
place of a donated argument. Arguments and results have their memory as long as the program runs.
Nine tenths of the programs that the tests compile for TPUs need within 1% of what this counts, by
the compiler's allocation; in others it puts a temporary where a result will be, or leaves gaps.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from roofline.xla import hlo
from roofline.xla.hlo import Computation, Instruction, Module, Site
from roofline.xla.metadata import SourceLine
from roofline.xla.roles import role_of
from roofline_helpers.common.show import si

SHOWN = 10
"""Buffers that are listed."""

_ALIASED = re.compile(r"\{([\d, ]*)\}: \((\d+), \{[\d, ]*\}")
_SAME = frozenset({"bitcast", "tuple", "opt-barrier", "optimization-barrier", "add-dependency"})
_MADE = frozenset({"parameter", "tuple", "get-tuple-element", "while", "conditional", "call"})
_OVER = hlo.ARITHMETIC | hlo.TRANSCENDENTAL | {"all-reduce"}

Value = tuple[str, str, int]
"""A computation, an instruction of it, and the number of an array in its result."""


@dataclass(frozen=True)
class Buffer:
    """An array in a device's main memory, or `count` that are alike.

    `bytes` are of all of them, with the padding of their layout. `kind` is "argument", "result",
    "temporary" or "constant"; `role` what an argument is called, or the operation that writes the
    array; `source` that operation's line of code.

    Examples
    --------
    >>> print(listing([Buffer("bf16[8192,32000]", 524288000, "temporary", "matmul of loss")]))
    524 MB are alive at its peak:
      524 MB  1 × bf16[8192,32000]  temporary: matmul of loss
    """

    shape: str
    bytes: int
    kind: str
    role: str = ""
    source: SourceLine | None = None
    count: int = 1


def listing(buffers: Sequence[Buffer]) -> str:
    """Return the largest buffers as lines of text."""
    lines = [f"{si(sum(b.bytes for b in buffers), 'B')} are alive at its peak:"]
    for b in buffers[:SHOWN]:
        line = f" ({b.source})" if b.source is not None else ""
        lines.append(f"  {si(b.bytes, 'B')}  {b.count} × {b.shape}  {b.kind}: {b.role}{line}")
    more = [b.bytes for b in buffers[SHOWN:]]
    return "\n".join([*lines, *([f"  {si(sum(more), 'B')}  in smaller ones"] if more else [])])


def buffers_at_peak(program: Module, platform: str) -> tuple[Buffer, ...]:
    """Return what is alive in the main memory when a program needs most of it, largest first."""
    live = _Lives(program, platform)
    live.run(program.entry)
    groups: dict[Value, list[Value]] = {}
    for value in live.spans:
        groups.setdefault(live.of(value), []).append(value)
    changes, spans = [], []
    for members in groups.values():
        first, last = (pick(live.spans[value][n] for value in members) for n, pick in ENDS)
        made = [(value[0], live.defined[value]) for value in members]
        if any(i.opcode == "constant" or live.outside(name, i) for name, i in made):
            first, last = 0, live.time
        if size := live.size(members):
            changes += [(first, size), (last + 1, -size)]
            spans.append((first, last, size, members))
    moments = list(itertools.accumulate(sorted(changes), lambda a, b: (b[0], a[1] + b[1])))
    peak = max(moments, key=lambda moment: moment[1], default=(0, 0))[0]
    alive = [(members, size) for first, last, size, members in spans if first <= peak <= last]
    found = Counter(live.described(members, size) for members, size in alive)
    alike = [replace(b, bytes=b.bytes * count, count=count) for b, count in found.items()]
    return tuple(sorted(alike, key=lambda buffer: -buffer.bytes))


ENDS = ((0, min), (1, max))


@dataclass
class _Lives:
    """When each array of a program is written and last read, and which of them are one buffer."""

    program: Module
    platform: str
    time: int = 0
    spans: dict[Value, list[int]] = field(default_factory=dict)
    defined: dict[Value, Instruction] = field(default_factory=dict)
    joined: dict[Value, Value] = field(default_factory=dict)

    def of(self, value: Value) -> Value:
        """Return the array that stands for a value's buffer."""
        while value in self.joined:
            value = self.joined[value]
        return value

    def outside(self, where: str, instruction: Instruction) -> bool:
        """Return whether it is an argument of the program, or its result."""
        entry = self.program.entry
        ends = instruction.opcode == "parameter" or instruction is entry.root
        return where == entry.name and ends

    def size(self, members: Sequence[Value]) -> int:
        """Return the bytes of the main memory that a buffer of these arrays takes."""
        made = [(value, self.defined[value]) for value in members]
        if all(i.opcode == "parameter" and not self.outside(v[0], i) for v, i in made):
            return 0  # of a computation that is handed its arguments later
        spaces, shapes = hlo.SPACES[self.platform], [i.shape.leaves[v[2]] for v, i in made]
        return max(s.padded_bytes if spaces.get(s.space) == "hbm" else 0 for s in shapes)

    def run(self, where: Computation) -> None:
        """Follow a computation, and those that it calls, in the order in which they run."""
        for instruction in where.instructions:
            for called in self._called(instruction):
                self.run(called)
            self.time += 1
            for number, _ in enumerate(instruction.shape.leaves):
                value = (where.name, instruction.name, number)
                self.defined[value] = instruction
                self.spans.setdefault(value, [self.time, self.time])
            same = list(self._one_buffer(where, instruction))
            used = [value for name in instruction.operands for value in self._values(where, name)]
            if instruction.opcode == "get-tuple-element":  # it reads nothing of the others
                used = [value for _, value in same]
            for value in used:
                self.spans[value][1] = self.time
            for one, other in same:
                if (one := self.of(one)) != (other := self.of(other)):
                    self.joined[one] = other
        if where is self.program.entry:
            for number, index in self.program.donated.items():
                argument = where.parameters[number].name
                one = self.of((where.name, argument, 0))
                other = self.of((where.name, where.root.name, int(index or 0)))
                if one != other:
                    self.joined[other] = one

    def _called(self, instruction: Instruction) -> list[Computation]:
        attributes: tuple[str, ...] = ()
        if instruction.opcode == "while":
            attributes = ("condition", "body")
        elif instruction.opcode == "conditional":
            attributes = ("branch_computations", "true_computation", "false_computation")
        elif instruction.base in ("call", "async"):
            attributes = ("calls", "to_apply")
        return self.program.called(instruction, *attributes)

    def _values(self, where: Computation, name: str) -> list[Value]:
        count = len(where.by_name[name].shape.leaves)
        return [(where.name, name, number) for number in range(count)]

    def _one_buffer(
        self, where: Computation, instruction: Instruction
    ) -> Iterator[tuple[Value, Value]]:
        """Yield pairs of arrays that lie in the same memory."""
        own = self._values(where, instruction.name)
        operands = [self._values(where, name) for name in instruction.operands]
        given = [value for values in operands for value in values]
        opcode, parts = instruction.opcode, instruction.shape.parts or ()
        if opcode == "get-tuple-element":
            (index,) = instruction.numbers("index")
            before = where.by_name[instruction.operands[0]].shape.parts or ()
            start = sum(len(part.leaves) for part in before[:index])
            yield from zip(own, given[start:], strict=False)
        elif opcode in _SAME:
            yield from zip(own, given, strict=False)
        elif opcode in ("while", "conditional") or instruction.base in ("call", "async"):
            start = len(parts[0].leaves) if opcode.endswith("-start") else 0
            for number, called in enumerate(self._called(instruction)):
                inside = [
                    value for p in called.parameters for value in self._values(called, p.name)
                ]
                passed = operands[number + 1] if opcode == "conditional" else given
                yield from zip(inside, passed, strict=False)
                condition = opcode == "while" and number == 0
                results = [] if condition else self._values(called, called.root.name)
                yield from zip(own[start:], results, strict=False)
            if opcode == "while" or opcode.endswith("-start"):
                yield from zip(own, given, strict=False)
        if opcode.endswith("-update"):
            handle = where.by_name[instruction.operands[0]].shape
            late = given[len(handle.leaves) :]  # arguments that the start was not yet given
            yield from zip(own, late or given, strict=False)
        elif opcode.endswith("-done"):
            source = where.by_name[instruction.operands[0]].shape.parts or ()
            copied = opcode == "copy-done" or len(given) == len(own)
            start = 0 if copied else len(source[0].leaves)
            yield from zip(own, given[start:], strict=False)
        elif opcode == "copy-start":
            yield own[1], given[0]
        elif opcode.endswith("-start") and len(parts) > 1:
            yield from zip(own, given, strict=False)
        for number, operand in self._in_place(where, instruction):
            yield own[number], operands[operand][0]

    def _in_place(self, where: Computation, instruction: Instruction) -> Iterator[tuple[int, int]]:
        """Yield results of an instruction that lie where an operand was, each with the operand."""
        aliasing = instruction.attributes.get("output_to_operand_aliasing", "")
        for index, operand in _ALIASED.findall(aliasing):
            yield int(index or 0), int(operand)
        if instruction.opcode in hlo.UPDATES:
            yield 0, 0
        if instruction.opcode in _OVER or instruction.attributes.get("kind") == "kLoop":
            yield from self._written_over(where, instruction)
        if aliasing or instruction.opcode != "fusion":
            return
        (fused,) = self.program.called(instruction, "calls")
        for number, name in enumerate(fused.results):
            inner = _behind(fused, name)
            if inner.opcode not in hlo.UPDATES:
                continue
            updated = _behind(fused, inner.operands[0])
            if updated.opcode == "parameter":
                operand = int(updated.literal or 0)
                argument = where.by_name[instruction.operands[operand]]
                kept = where is self.program.entry and argument.opcode == "parameter"
                if not kept or int(argument.literal or 0) in self.program.donated:
                    yield number, operand

    def _written_over(
        self, where: Computation, instruction: Instruction
    ) -> Iterator[tuple[int, int]]:
        """Yield the operand of the result's shape that nothing reads any more."""
        for number, name in enumerate(instruction.operands):
            operand = where.by_name[name]
            ends = where.users[name][-1] is instruction and operand.opcode not in _MADE | _SAME
            if ends and operand.shape == instruction.shape and operand.opcode != "constant":
                yield 0, number
                return

    def described(self, members: Sequence[Value], size: int) -> Buffer:
        """Return a buffer of these arrays: its shape, its kind, and what wrote it."""
        arrays = [(where, self.defined[where, name, n], n) for where, name, n in members]
        shapes = [instruction.shape.leaves[number] for _, instruction, number in arrays]
        shape = str(max(shapes, key=lambda shape: shape.padded_bytes))
        kind, writers = "temporary", []
        for where, instruction, _ in arrays:
            if self.outside(where, instruction):
                if instruction.opcode == "parameter":
                    name = instruction.op_name.replace("\\'", "'")
                    return Buffer(shape, size, "argument", name or f"number {instruction.literal}")
                kind = "result"
            views = instruction.opcode in _MADE | _SAME or instruction.target in hlo.FREE_CALLS
            if not views and not instruction.opcode.endswith("-done"):
                site = Site(self.program, self.program.computations[where], instruction)
                role, source, _ = role_of(site, hlo.SPACES[self.platform])
                moves = role.startswith(("copy", "broadcast"))
                writers.append((source is None, moves, role, source))
        _, _, role, source = min(writers, key=lambda found: found[:2], default=(0, 0, "", None))
        return Buffer(shape, size, "constant" if role == "constant" else kind, role, source)


def _behind(where: Computation, name: str) -> Instruction:
    """Return the instruction whose value this is, seen through bitcasts."""
    instruction = where.by_name[name]
    while instruction.opcode in ("bitcast", "copy"):
        instruction = where.by_name[instruction.operands[0]]
    return instruction
