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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from roofline.xla import hlo
from roofline.xla.hlo import Computation, Instruction, Module, Shape, Site
from roofline.xla.metadata import SourceLine, source_of
from roofline.xla.roles import role_of
from roofline_helpers.common.show import si

SHOWN = 10
"""Buffers that are listed."""

_SAME = frozenset("bitcast tuple while opt-barrier optimization-barrier add-dependency".split())
_VIEWS = _SAME | frozenset("parameter get-tuple-element conditional call".split())
_COPIED = hlo.VIEWS | {"get-tuple-element", "copy-done"}
_OVER = hlo.ARITHMETIC | hlo.TRANSCENDENTAL | hlo.UPDATES | {"all-reduce"}

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
        first = min(live.spans[value][0] for value in members)
        last = max(live.spans[value][1] for value in members)
        made = [(value[0], live.defined[value]) for value in members]
        if any(i.opcode == "constant" or live.outside(name, i) for name, i in made):
            first, last = 0, live.time
        size = live.size(members)
        changes += [(first, size), (last + 1, -size)]
        spans.append((first, last, size, members))
    # what is alive after each change: the moment, and the bytes
    moments = list(itertools.accumulate(sorted(changes), lambda a, b: (b[0], a[1] + b[1])))
    peak = max(moments, key=lambda moment: moment[1], default=(0, 0))[0]
    found = Counter(
        live.described(members, size)
        for first, last, size, members in spans
        if size and first <= peak <= last
    )
    alike = [replace(b, bytes=b.bytes * count, count=count) for b, count in found.items()]
    return tuple(sorted(alike, key=lambda buffer: -buffer.bytes))


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
        attributes = "condition", "body", "branch_computations", "true_computation"
        more = ("calls", "to_apply") if instruction.base in ("call", "async") else ()
        return self.program.called(instruction, *attributes, "false_computation", *more)

    def _values(self, where: Computation, name: str) -> list[Value]:
        count = len(where.by_name[name].shape.leaves)
        return [(where.name, name, number) for number in range(count)]

    def _one_buffer(
        self, where: Computation, instruction: Instruction
    ) -> Iterator[tuple[Value, Value]]:
        """Yield pairs of arrays that lie in the same memory."""
        opcode, own = instruction.opcode, self._values(where, instruction.name)
        operands = [self._values(where, name) for name in instruction.operands]
        shapes = [where.by_name[name].shape for name in instruction.operands]
        given = list(itertools.chain(*operands))
        started = _before(instruction.shape, 1) if opcode.endswith("-start") else 0
        for number, called in enumerate(self._called(instruction)):
            passed = operands[number + 1] if opcode == "conditional" else given
            inside = [self._values(called, argument.name) for argument in called.parameters]
            yield from zip(itertools.chain(*inside), passed, strict=False)
            if opcode != "while" or number:  # its condition returns no array of the loop
                results = self._values(called, called.root.name)
                yield from zip(own[started:], results, strict=False)
        if opcode == "get-tuple-element":
            given = given[_before(shapes[0], *instruction.numbers("index")) :]
        elif opcode.endswith("-done") and opcode != "copy-done" and len(given) > len(own):
            given = given[_before(shapes[0], 1) :]
        elif opcode.endswith("-update"):  # which may hand over arguments
            given = given[len(shapes[0].leaves) :] or given
        elif opcode == "copy-start":
            own = own[1:]
        elif opcode in _OVER or instruction.attributes.get("kind") == "kLoop":
            given = []
            for name, values, shape in zip(instruction.operands, operands, shapes, strict=True):
                kept = where.by_name[name].opcode in _VIEWS | {"constant"}
                read_last = where.users[name][-1] is instruction
                if shape == instruction.shape and read_last and not kept:
                    given = values[:1]  # the result takes the memory of the first such operand
                    break
        elif opcode not in _SAME and not opcode.endswith(("-start", "-done")):
            return
        yield from zip(own, given, strict=False)

    def described(self, members: Sequence[Value], size: int) -> Buffer:
        """Return a buffer of these arrays: its shape, its kind, and what wrote it."""
        arrays = [(where, self.defined[where, name, n], n) for where, name, n in members]
        shapes = [instruction.shape.leaves[number] for _, instruction, number in arrays]
        shape = str(max(shapes, key=lambda shape: shape.padded_bytes))
        kind, writers = "temporary", []
        for where, instruction, number in arrays:
            if self.outside(where, instruction):
                if instruction.opcode == "parameter":
                    name = instruction.op_name.replace("\\'", "'")
                    return Buffer(shape, size, "argument", name or f"number {instruction.literal}")
                kind = "result"
            opcode = instruction.opcode
            views = opcode in _VIEWS or instruction.target in hlo.FREE_CALLS
            if opcode.endswith("-start"):  # its result has its operands in it, too
                operands = _before(instruction.shape, 1)
                views = number == 1 if opcode == "copy-start" else number < operands
            if not views and not opcode.endswith("-done"):
                site = Site(self.program, self.program.computations[where], instruction)
                role, source, _ = role_of(site, hlo.SPACES[self.platform])
                while source is None and instruction.base in _COPIED and instruction.operands:
                    instruction = site.where.by_name[instruction.operands[0]]
                    source = source_of(instruction.metadata, self.program.frames)
                moves = role.startswith(("copy", "broadcast"))
                writers.append((source is None, moves, role, source))
        _, _, role, source = min(
            writers, key=lambda found: found[:2], default=(0, 0, "unwritten", None)
        )
        return Buffer(shape, size, "constant" if role == "constant" else kind, role, source)


def _before(shape: Shape, index: int) -> int:
    """Return the number of arrays in a tuple's parts before one of them."""
    return sum(len(part.leaves) for part in (shape.parts or ())[:index])
