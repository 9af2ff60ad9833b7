"""A compiled program as data: HLO text, shapes, opcodes, instructions, the module."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from roofline.xla.metadata import Frames, frames
from roofline_helpers.common.checks import RooflineError, ceil_div
from roofline_helpers.common.show import Fields

# --- Text: lines, brackets and commas, and the brief form ----------------------------------------

INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
"""The start of an instruction's line."""

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[(\[{]|[)\]}]|,|[^"()\[\]{},]+')
_DEPTH = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}  # the change of depth by a token


class UnreadableProgram(RooflineError, ValueError):
    """Text that is not a compiled HLO module.

    Examples
    --------
    >>> issubclass(UnreadableProgram, RooflineError)
    True
    """


def module_lines(text: str) -> Iterator[str]:
    """Yield the lines of a module, each instruction as one.

    XLA breaks an instruction's line inside the metadata of a Pallas kernel, so lines are joined
    until their brackets close.
    """
    pending = ""
    for line in text.splitlines():
        # a new instruction though brackets are still open: yield the malformed line as it is
        if pending and INSTRUCTION.match(line):
            yield pending
            pending = ""
        pending += line
        if INSTRUCTION.match(pending) and _is_open(pending):
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _is_open(line: str) -> bool:
    """Return whether a line has open brackets at its end."""
    if all(line.count(opening) == line.count(closing) for opening, closing in ("()", "[]", "{}")):
        return False  # the usual case, without the slow pass over tokens
    return sum(_DEPTH.get(token, 0) for token in _TOKEN.findall(line)) > 0


def split_commas(text: str) -> list[str]:
    """Split at the commas outside of quotes and brackets."""
    parts, depth, piece = [], 0, ""
    for token in _TOKEN.findall(text):
        if token == "," and depth == 0:
            parts.append(piece.strip())
            piece = ""
            continue
        depth += _DEPTH.get(token, 0)
        piece += token
    return [*parts, piece.strip()] if piece.strip() else parts


def closing(text: str, at: int) -> int:
    """Return the index of the bracket that closes the one at `at`.

    Raises
    ------
    UnreadableProgram
        There is none.
    """
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += _DEPTH.get(token.group(), 0)
        if depth == 0:
            return token.start()
    raise UnreadableProgram(f"no closing bracket in {text[at : at + 60]!r}")


_NOTES = ("metadata", "backend_config", "frontend_attributes", "sharding", "is_scheduled")


def brief(text: str) -> str:
    r"""Return the computations of a module without the compiler's annotations.

    Drops the module's header, source positions, and the attributes metadata, backend_config,
    frontend_attributes and sharding of instructions. Fields text stays as it is.

    Examples
    --------
    >>> root = 'ROOT %x = f32[8] parameter(0), backend_config={"a":1}'
    >>> text = f"HloModule t\nENTRY %m (x: f32[8]) -> f32[8] {{\n  {root}\n}}"
    >>> "backend_config" in brief(text)
    False
    """
    kept = [line for line in module_lines(text) if line[:1] in ("%", "E", " ", "}")]
    return "\n".join(_without_notes(line) for line in kept if not line.startswith("Entry")).strip()


def _without_notes(line: str) -> str:
    kept = [part for part in split_commas(line) if part.partition("=")[0] not in _NOTES]
    return line[: len(line) - len(line.lstrip())] + ", ".join(kept)


# --- Shapes and memory spaces --------------------------------------------------------------------

SPACES: Mapping[str, Mapping[int, str]] = {
    "tpu": {0: "hbm", 1: "vmem", 3: "cmem", 5: "host", 6: "smem"},  # cmem: TPU v4 only
    "gpu": {0: "hbm", 1: "hbm", 2: "hbm", 5: "host"},  # 1 and 2 are buffers of collectives
    "cpu": {0: "hbm"},
}
"""The memory of `S(n)` on each platform. "hbm" is the main memory of any technology."""

BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128, "bf16": 16}
_DIGITS = re.compile(r"^[sufc](\d+)")  # s32, u8, f32, f8e4m3fn … ; s4 takes a byte unless E(4)
_ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{([^{}]*)\})?")


@dataclass(frozen=True)
class Shape:
    """An array, or a tuple of shapes: `bf16[8,128]{1,0:T(8,128)(2,1)S(1)}`.

    `order` lists the dimensions from the slowest to the fastest in memory, `tile` is the first
    tile of the layout, `space` the number in `S(…)`.

    Examples
    --------
    >>> shape, _ = read_shape("bf16[8,100]{1,0:T(8,128)(2,1)}")
    >>> shape.bytes, shape.padded_bytes
    (1600, 2048)
    """

    dtype: str = ""
    dims: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    tile: tuple[int, ...] = ()
    space: int = 0
    packed: int = 0
    parts: tuple[Shape, ...] | None = None

    @property
    def leaves(self) -> tuple[Shape, ...]:
        """The arrays in it."""
        return (self,) if self.parts is None else self._in_parts

    @cached_property
    def _in_parts(self) -> tuple[Shape, ...]:
        return tuple(leaf for part in self.parts or () for leaf in part.leaves)

    @property
    def elements(self) -> int:
        """Elements of all arrays in it."""
        return sum(math.prod(leaf.dims) for leaf in self.leaves)

    @property
    def bits(self) -> int:
        """Bits of one element."""
        if self.packed:
            return self.packed
        digits = _DIGITS.match(self.dtype)
        return BITS.get(self.dtype, max(int(digits.group(1)), 8) if digits else 0)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays in it, without the padding of tiles."""
        return sum(ceil_div(math.prod(leaf.dims) * leaf.bits, 8) for leaf in self.leaves)

    @property
    def padded_bytes(self) -> int:
        """Bytes in memory – dimensions rounded up to whole tiles."""
        total = 0
        for leaf in self.leaves:
            dims = [leaf.dims[d] for d in leaf.order] if leaf.order else list(leaf.dims)
            tiles = leaf.tile[-len(dims) :] if dims else ()
            for back, tile in enumerate(reversed(tiles), 1):
                dims[-back] = ceil_div(dims[-back], tile) * tile
            total += ceil_div(math.prod(dims) * leaf.bits, 8)
        return total

    @property
    def is_scalar(self) -> bool:
        """Whether every array in it has one element or none."""
        return all(math.prod(leaf.dims) <= 1 for leaf in self.leaves)

    def __str__(self) -> str:
        if self.parts is not None:
            return f"({', '.join(map(str, self.parts))})"
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


def read_shape(text: str, at: int = 0) -> tuple[Shape, int]:
    """Read the shape that starts at `at`; return it and where it ends.

    Raises
    ------
    UnreadableProgram
        There is no shape.
    """
    if text[at] == "(":
        parts: list[Shape] = []
        at += 1
        while text[at] != ")":
            if text[at] in ", ":
                at += 1
                continue
            part, at = read_shape(text, at)
            parts.append(part)
        return Shape(parts=tuple(parts)), at + 1
    array = _ARRAY.match(text, at)
    if not array:
        raise UnreadableProgram(f"no shape in {text[at : at + 60]!r}")
    dtype, dims, layout = array.group(1), array.group(2), array.group(3) or ""
    order, _, rest = layout.partition(":")
    tile = re.search(r"T\(([\d,]+)\)", rest)
    space = re.search(r"S\((\d+)\)", rest)
    packed = re.search(r"E\((\d+)\)", rest)
    shape = Shape(
        dtype,
        tuple(int(d.strip("<= ")) for d in dims.split(",") if d.strip()),
        tuple(int(d) for d in reversed(order.split(",")) if d),
        tuple(int(d) for d in tile.group(1).split(",")) if tile else (),
        int(space.group(1)) if space else 0,
        int(packed.group(1)) if packed else 0,
    )
    return shape, array.end()


# --- Opcodes by cost -----------------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TRANSCENDENTAL = _words(
    "exponential exponential-minus-one log log-plus-one tanh logistic sine cosine tan sqrt rsqrt "
    "cbrt power erf atan2 asin acos atan sinh cosh asinh acosh atanh"
)
"""Opcodes of transcendental functions: one FLOP per element, and listed separately."""

ARITHMETIC = _words(
    "add subtract multiply divide remainder maximum minimum compare select clamp negate abs sign "
    "floor ceil round-nearest-afz round-nearest-even is-finite and or xor not shift-left "
    "shift-right-logical shift-right-arithmetic popcnt count-leading-zeros mulhi"
)
"""Opcodes with one FLOP per element of the result."""

MOVING = _words(
    "copy convert bitcast-convert broadcast reshape transpose slice dynamic-slice pad reverse "
    "dynamic-update-slice concatenate iota gather reduce-precision stochastic-convert rng "
    "rng-bit-generator rng-get-and-update-state dynamic-reshape real-dynamic-slice set-dimension-"
    "size real imag complex infeed outfeed send recv all-gather all-to-all ragged-all-to-all "
    "collective-permute collective-broadcast all-reduce reduce-scatter copy-start"
)
"""Opcodes that only move, convert or make data. The sums inside collectives are not counted."""

FREE = _words(
    "parameter constant bitcast tuple get-tuple-element after-all opt-barrier optimization-barrier "
    "partition-id replica-id add-dependency domain get-dimension-size"
)
"""Opcodes without work at run time, or with negligible work."""

COLLECTIVES = _words(
    "all-reduce all-gather reduce-scatter all-to-all ragged-all-to-all collective-permute "
    "collective-broadcast"
)
"""Opcodes that exchange data between devices."""

FREE_CALLS = _words(
    "AssumeGatherIndicesInBound Sharding SPMDFullToShardShape SPMDShardToFullShape AllocateBuffer "
    "ConcatBitcast annotate_device_placement xla.sdy.FuncResultSharding PrepareAsyncCallStart "
    "PrepareAsyncCallDone GatherScatterIndicesBitpacked SliceId"
)
"""Targets of custom calls that are only markers and run nothing."""

APPLYING = _words("reduce map reduce-window scatter select-and-scatter sort scan")
"""Opcodes that apply a small computation many times."""

PRODUCTS = _words("dot convolution")
"""Opcodes of matmuls."""

VIEWS = _words("bitcast reshape copy convert transpose")
"""Opcodes whose result has the operand's values in another layout, type or place."""

SLICES = _words("slice dynamic-slice gather")
"""Opcodes that need only part of their first operand."""

UPDATES = _words("dynamic-update-slice scatter")
"""Opcodes that write only part of their result if they update in place."""


# --- A compiled program as data: instructions, computations, the module --------------------------


@dataclass(frozen=True, repr=False)
class Instruction(Fields):
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
        """Its opcode, without "-start" of an asynchronous one."""
        return self.opcode.removesuffix("-start")

    @property
    def target(self) -> str:
        """The target of a custom call."""
        return self.attributes.get("custom_call_target", "").strip('"')

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """Return an attribute such as `dimensions={0,2}` as numbers."""
        return tuple(int(n) for n in re.findall(r"-?\d+", self.attributes.get(attribute, "")))

    @cached_property
    def config(self) -> dict[str, Any]:
        """The backend's notes: on a TPU tile windows and cycles, for loops the trip count."""
        text = self.attributes.get("backend_config", "")
        try:
            notes = json.loads(text)
            notes = json.loads(notes) if isinstance(notes, str) else notes
        except ValueError:
            return {}
        return notes if isinstance(notes, dict) else {}

    @property
    def metadata(self) -> str:
        """The text of its metadata, JAX's note of its origin."""
        return self.attributes.get("metadata", "")

    @cached_property
    def op_name(self) -> str:
        """The name JAX gave it in the traced function: jit(step)/mlp/up/dot_general."""
        named = re.search(r'op_name="([^"]*)"', self.metadata)
        return named.group(1) if named else ""


@dataclass(frozen=True, repr=False)
class Computation(Fields):
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
        return {instruction.name: instruction for instruction in self.instructions}

    @cached_property
    def root(self) -> Instruction:
        """The instruction whose value it returns."""
        return next((i for i in self.instructions if i.is_root), self.instructions[-1])

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the values that it returns – several if its root is a tuple."""
        return self.root.operands if self.root.opcode == "tuple" else (self.root.name,)

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """Its parameters, by number."""
        parameters = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(parameters, key=lambda i: int(i.literal or 0)))

    @cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """The instructions that use each value."""
        users: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for operand in instruction.operands:
                users.setdefault(operand, []).append(instruction)
        return users


@dataclass(frozen=True, repr=False)
class Module(Fields):
    r"""A compiled program.

    `donated` are the arguments whose memory a result takes over, by number, with that result's
    index.

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
    donated: Mapping[int, str] = field(default_factory=dict)

    def called(self, instruction: Instruction, *attributes: str) -> list[Computation]:
        """Return the computations that these attributes of an instruction name."""
        text = " ".join(instruction.attributes.get(attribute, "") for attribute in attributes)
        return [self.computations[name] for name in re.findall(r"%([\w.\-]+)", text)]


@dataclass(frozen=True)
class Site:
    """An instruction with its computation and its program."""

    program: Module
    where: Computation
    instruction: Instruction

    @cached_property
    def operands(self) -> list[Shape]:
        """The shapes of its operands."""
        return [self.where.by_name[name].shape for name in self.instruction.operands]

    @cached_property
    def fused(self) -> Computation | None:
        """The computation of a fusion; None for other instructions."""
        if self.instruction.base != "fusion":
            return None
        return self.program.called(self.instruction, "calls")[0]

    def parts(self) -> Iterator[Site]:
        """Yield each instruction of a kernel: those that it fuses, or itself alone."""
        if self.fused is None:
            yield self
            return
        for part in self.fused.instructions:
            yield from Site(self.program, self.fused, part).parts()


_DONATED = re.compile(r"\{([\d, ]*)\}: \((\d+), \{[\d, ]*\}, (?:may|must)-alias\)")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")


def parse(text: str) -> Module:
    """Parse HLO text.

    Parameters
    ----------
    text : str
        The result of ``jax.jit(f).lower(...).compile().as_text()``.

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
    for line in module_lines(re.sub(r"/\*.*?\*/", "", text)):
        if name and line.startswith("}"):
            computations[name] = Computation(name, tuple(instructions))
            entry = computations[name] if is_entry else entry
            name, instructions = "", []
        elif name:
            instruction = read_instruction(line)
            if instruction is not None:
                instructions.append(instruction)
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
        {int(number): index for index, number in _DONATED.findall(text.partition("\n")[0])},
    )


def read_instruction(line: str) -> Instruction | None:
    """Return the instruction in a line of a computation; None if it has none."""
    start = INSTRUCTION.match(line)
    if not start:
        return None
    shape, at = read_shape(line, start.end())
    opened = line.index("(", at)
    opcode = line[at:opened].strip()
    closed = closing(line, opened)
    inside = line[opened + 1 : closed]
    attributes: dict[str, str] = {}
    for part in split_commas(line[closed + 1 :]):
        name, _, value = part.partition("=")
        attributes[name.strip()] = value
    takes_literal = opcode in ("parameter", "constant", "iota")
    operands = (
        () if takes_literal else tuple(p.split()[-1].lstrip("%") for p in split_commas(inside))
    )
    literal = inside if takes_literal else ""
    return Instruction(
        start.group(2), opcode, shape, operands, attributes, bool(start.group(1)), literal
    )
