"""A compiled program as data: instructions, computations, the module."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from roofline_helpers.hlo.metadata import Frames, frames
from roofline_helpers.hlo.shapes import Shape, read_shape
from roofline_helpers.hlo.text import INSTRUCTION, UnreadableProgram, closing, lines, split


@dataclass(frozen=True)
class Instruction:
    r"""One line of a computation. `operands` are names; `attributes` are kept as text.

    Examples
    --------
    >>> text = "HloModule t\nENTRY %m (x: f32[8]) -> f32[8] {\n  ROOT %x = f32[8] parameter(0)\n}"
    >>> parse(text).entry.root.opcode
    'parameter'
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...]
    attributes: Mapping[str, str]
    is_root: bool = False
    literal: str = ""

    @property
    def base(self) -> str:
        """Its opcode, without the "-start" that an asynchronous one begins with."""
        return self.opcode.removesuffix("-start")

    @property
    def target(self) -> str:
        """What a custom call calls."""
        return self.attributes.get("custom_call_target", "").strip('"')

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """Return an attribute such as `dimensions={0,2}` as numbers."""
        return tuple(int(n) for n in re.findall(r"-?\d+", self.attributes.get(attribute, "")))

    def called(self, *attributes: str) -> tuple[str, ...]:
        """Return the names of the computations that these attributes name."""
        text = " ".join(self.attributes.get(each, "") for each in attributes)
        return tuple(re.findall(r"%([\w.\-]+)", text))

    @cached_property
    def config(self) -> dict[str, Any]:
        """What the backend noted: on a TPU tile windows and cycles, for loops the trip count."""
        text = self.attributes.get("backend_config", "")
        try:
            notes = json.loads(text)
            notes = json.loads(notes) if isinstance(notes, str) else notes
        except ValueError:
            return {}
        return notes if isinstance(notes, dict) else {}

    @property
    def metadata(self) -> str:
        """What JAX noted of where it comes from, as text."""
        return self.attributes.get("metadata", "")

    @cached_property
    def op_name(self) -> str:
        """What it is in the traced function, as JAX named it: jit(step)/mlp/up/dot_general."""
        named = re.search(r'op_name="([^"]*)"', self.metadata)
        return named.group(1) if named else ""


@dataclass(frozen=True)
class Computation:
    r"""A named list of instructions, in the order in which they run.

    Examples
    --------
    >>> text = "HloModule t\nENTRY %m (x: f32[8]) -> f32[8] {\n  ROOT %x = f32[8] parameter(0)\n}"
    >>> entry = parse(text).entry
    >>> entry.name, [each.name for each in entry.parameters]
    ('m', ['x'])
    """

    name: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        """Its instructions by name."""
        return {each.name: each for each in self.instructions}

    @cached_property
    def root(self) -> Instruction:
        """The instruction whose value it returns."""
        return next((i for i in self.instructions if i.is_root), self.instructions[-1])

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the values that it returns – several where its root is a tuple."""
        return self.root.operands if self.root.opcode == "tuple" else (self.root.name,)

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """Its parameters, by number."""
        parameters = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(parameters, key=lambda i: int(i.literal or 0)))

    @cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Which instructions use each value."""
        users: dict[str, list[Instruction]] = {}
        for each in self.instructions:
            for operand in each.operands:
                users.setdefault(operand, []).append(each)
        return users

    def operands(self, each: Instruction) -> list[Instruction]:
        """Return the instructions that make the operands of one."""
        return [self.by_name[name] for name in each.operands]


@dataclass(frozen=True)
class Module:
    r"""A compiled program.

    Examples
    --------
    >>> text = "HloModule t\nENTRY %m (x: f32[8]) -> f32[8] {\n  ROOT %x = f32[8] parameter(0)\n}"
    >>> parse(text).name
    't'
    """

    name: str
    computations: Mapping[str, Computation]
    entry: Computation
    partitions: int = 1
    frames: Frames = field(default_factory=lambda: frames(""))

    def called(self, each: Instruction, *attributes: str) -> list[Computation]:
        """Return the computations that these attributes of an instruction name."""
        return [self.computations[name] for name in each.called(*attributes)]


@dataclass(frozen=True)
class Site:
    """An instruction where it is: in a computation of a program."""

    program: Module
    where: Computation
    instruction: Instruction

    @cached_property
    def operands(self) -> list[Shape]:
        """The shapes of its operands."""
        return [operand.shape for operand in self.where.operands(self.instruction)]

    @cached_property
    def fused(self) -> Computation | None:
        """What a fusion consists of; None for other instructions."""
        if self.instruction.base != "fusion":
            return None
        return self.program.called(self.instruction, "calls")[0]

    def parts(self) -> Iterator[Site]:
        """Yield each instruction that a kernel consists of: what it fuses, or itself alone."""
        if self.fused is None:
            yield self
            return
        for part in self.fused.instructions:
            yield from Site(self.program, self.fused, part).parts()


_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")


def parse(text: str) -> Module:
    """Return the program that HLO text describes.

    Parameters
    ----------
    text : str
        What ``jax.jit(f).lower(...).compile().as_text()`` gives.

    Raises
    ------
    UnreadableProgram
        Not HLO text, or no entry computation in it.

    Examples
    --------
    >>> program = parse('''HloModule tiny
    ... ENTRY %main (x: f32[8]) -> f32[8] {
    ...   %x = f32[8]{0} parameter(0)
    ...   ROOT %y = f32[8]{0} tanh(%x)
    ... }''')
    >>> program.entry.root.opcode, program.entry.root.shape.bytes
    ('tanh', 32)
    """
    if not isinstance(text, str) or not text.lstrip().startswith("HloModule"):
        raise UnreadableProgram(f"HLO text starts with 'HloModule', got {str(text)[:60]!r}")
    computations: dict[str, Computation] = {}
    entry = None
    name, is_entry = "", False
    instructions: list[Instruction] = []
    for line in lines(re.sub(r"/\*.*?\*/", "", text)):
        if name and line.startswith("}"):
            computations[name] = Computation(name, tuple(instructions))
            entry = computations[name] if is_entry else entry
            name, instructions = "", []
        elif name:
            each = read_instruction(line)
            if each is not None:
                instructions.append(each)
        elif header := _HEADER.match(line):
            is_entry, name = bool(header.group(1)), header.group(2)
    if entry is None or not entry.instructions:
        raise UnreadableProgram("this HLO text has no ENTRY computation with instructions")
    title = re.match(r"\s*HloModule ([^\s,]+)", text)
    partitions = re.search(r"num_partitions=(\d+)", text[:20000])
    return Module(
        title.group(1) if title else "",
        computations,
        entry,
        int(partitions.group(1)) if partitions else 1,
        frames(text),
    )


def read_instruction(line: str) -> Instruction | None:
    """Return the instruction that a line of a computation holds; None if it holds none."""
    start = INSTRUCTION.match(line)
    if not start:
        return None
    shape, at = read_shape(line, start.end())
    opened = line.index("(", at)
    opcode = line[at:opened].strip()
    closed = closing(line, opened)
    inside = line[opened + 1 : closed]
    attributes: dict[str, str] = {}
    for part in split(line[closed + 1 :]):
        name, _, value = part.partition("=")
        attributes[name.strip()] = value
    takes_literal = opcode in ("parameter", "constant", "iota")
    operands = () if takes_literal else tuple(p.split()[-1].lstrip("%") for p in split(inside))
    literal = inside if takes_literal else ""
    return Instruction(
        start.group(2), opcode, shape, operands, attributes, bool(start.group(1)), literal
    )
