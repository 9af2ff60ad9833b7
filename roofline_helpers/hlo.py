"""Read a program as XLA compiled it, and count the FLOPs and bytes of each kernel.

XLA prints a compiled program as HLO text. It is a list of computations; one is the ENTRY. A
computation is a list of instructions in the order in which they run:

    %fusion = bf16[2048,2048]{1,0:T(8,128)(2,1)} fusion(%a, %b), kind=kOutput, calls=%body
     name     type and shape  layout, tiles      opcode  operands    attributes

In the layout, `S(1)` means that the value lives in a TPU's VMEM; without `S(…)` it lives in HBM.
Everything here follows from four rules:

1. What the entry (or a loop's body) lists is a **kernel**; what a fusion calls is inside one. A
   kernel reads its operands and writes its results, each once, in the memory that their layouts
   name. What happens inside a fusion touches no memory.
2. Of an operand that is only sliced, gathered from or updated in place, the slice, the gathered
   rows or the update count, not the whole buffer. This holds inside fusions too.
3. A loop's body counts as often as the loop turns, a conditional as its dearest branch, an
   asynchronous pair (`copy-start`, `copy-done`) once.
4. FLOPs follow from shapes. A multiply-add is two. Products of matrices (dot, convolution) are
   matrix FLOPs; of a convolution only the taps count that meet data, so that a batched product,
   which TPUs write as a dilated convolution, costs what it should, and padding costs nothing.
   Everything else is vector FLOPs: one per element for each arithmetic, comparing or selecting
   operation, on integers too; n for a sum over n elements; transcendentals (exp, tanh, rsqrt …)
   one each, and listed apart as well. Moving and converting data costs none.

These are the rules of `roofline_helpers.work`. Scalars (loop counters, predicates, indices of one
slice) are left out: neither their bytes nor the instructions on them alone count.

The module is plain Python and needs no JAX. JAX 0.7.2 to 0.12 give access to the names, opcodes
and operands of instructions (`executable.hlo_modules()[0].computations()`), but to no shapes or
attributes, so the text is read. Tested with the text of JAX 0.7.2, 0.10.2 and 0.12.0.1 for TPUs
and CPUs, and of JAX 0.11.2 for an NVIDIA H100, where calls of cuBLAS and cuDNN state what they do.

Source: the operation semantics and HloCostAnalysis of OpenXLA, https://openxla.org/xla.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from roofline_helpers._checks import BadValue, RooflineError, flag, whole

TESTED_WITH = ("0.7.2", "0.10.2", "0.12.0.1")
"""JAX versions whose HLO text the tests hold this reader against."""


class UnknownInstruction(RooflineError, LookupError):
    """An opcode, data type or attribute that this reader does not know (strict mode)."""


class UnreadableProgram(RooflineError, ValueError):
    """Text that is not a compiled HLO module."""


# --- shapes -------------------------------------------------------------------------------------

_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128, "bf16": 16}
_DIGITS = re.compile(r"^[sufc](\d+)")  # s32, u8, f32, f8e4m3fn … ; s4 takes a byte unless E(4)

SPACES: Mapping[str, Mapping[int, str]] = {
    "tpu": {0: "hbm", 1: "vmem", 3: "cmem", 5: "host", 6: "smem"},  # cmem: TPU v4 only
    "gpu": {0: "hbm", 1: "hbm", 2: "hbm", 5: "host"},  # 1 and 2 mark buffers of collectives
    "cpu": {0: "hbm"},
}
"""The memory that `S(n)` means on each platform. "hbm" is the main memory, whatever it is."""


@dataclass(frozen=True)
class Shape:
    """An array, or a tuple of shapes: `bf16[8,128]{1,0:T(8,128)(2,1)S(1)}`.

    `order` lists the dimensions from the slowest to the fastest in memory, `tile` is the first
    tile of the layout, `space` the number in `S(…)`.
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
        if self.parts is None:
            return (self,)
        return tuple(leaf for part in self.parts for leaf in part.leaves)

    @property
    def elements(self) -> int:
        """Elements of all arrays in it."""
        return sum(math.prod(leaf.dims) for leaf in self.leaves)

    @property
    def bits(self) -> int:
        """Bits of one element."""
        if self.packed:
            return self.packed
        found = _DIGITS.match(self.dtype)
        return _BITS.get(self.dtype, max(int(found.group(1)), 8) if found else 0)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays in it, without the padding of tiles."""
        return sum(-(-math.prod(leaf.dims) * leaf.bits // 8) for leaf in self.leaves)

    @property
    def padded_bytes(self) -> int:
        """Bytes that it takes in memory – dimensions rounded up to whole tiles."""
        total = 0
        for leaf in self.leaves:
            dims = [leaf.dims[d] for d in leaf.order] if leaf.order else list(leaf.dims)
            for back, tile in enumerate(reversed(leaf.tile[-len(dims) :] if dims else ()), 1):
                dims[-back] = -(-dims[-back] // tile) * tile
            total += -(-math.prod(dims) * leaf.bits // 8)
        return total

    @property
    def is_scalar(self) -> bool:
        """Whether every array in it has one element or none."""
        return all(math.prod(leaf.dims) <= 1 for leaf in self.leaves)

    def __str__(self) -> str:
        if self.parts is not None:
            return f"({', '.join(map(str, self.parts))})"
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


_ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{([^{}]*)\})?")


def _shape(text: str, at: int) -> tuple[Shape, int]:
    """Read the shape that starts at `at`; return it and where it ends."""
    if text[at] == "(":
        parts: list[Shape] = []
        at += 1
        while text[at] != ")":
            if text[at] in ", ":
                at += 1
                continue
            part, at = _shape(text, at)
            parts.append(part)
        return Shape(parts=tuple(parts)), at + 1
    found = _ARRAY.match(text, at)
    if not found:
        raise UnreadableProgram(f"no shape in {text[at : at + 60]!r}")
    dtype, dims, layout = found.group(1), found.group(2), found.group(3) or ""
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
    return shape, found.end()


# --- instructions, computations, modules --------------------------------------------------------


@dataclass(frozen=True)
class Instruction:
    """One line of a computation. `operands` are names; `attributes` are kept as text."""

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...]
    attributes: Mapping[str, str]
    is_root: bool = False
    literal: str = ""

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
            found = json.loads(text)
            found = json.loads(found) if isinstance(found, str) else found
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def source(self) -> str:
        """Where in the traced function it comes from, as JAX named it."""
        found = re.search(r'op_name="([^"]*)"', self.attributes.get("metadata", ""))
        return found.group(1) if found else ""


@dataclass(frozen=True)
class Computation:
    """A named list of instructions, in the order in which they run."""

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

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """Its parameters, by number."""
        found = [i for i in self.instructions if i.opcode == "parameter"]
        return tuple(sorted(found, key=lambda i: int(i.literal or 0)))

    @cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Which instructions use each value."""
        found: dict[str, list[Instruction]] = {}
        for each in self.instructions:
            for operand in each.operands:
                found.setdefault(operand, []).append(each)
        return found


@dataclass(frozen=True)
class Module:
    """A compiled program."""

    name: str
    computations: Mapping[str, Computation]
    entry: Computation
    partitions: int = 1

    def shape(self, where: Computation, operand: str) -> Shape:
        """Return the shape of a value of a computation."""
        return where.by_name[operand].shape


_LINE = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_PIECE = re.compile(r'"(?:\\.|[^"\\])*"|[(\[{]|[)\]}]|,|[^"()\[\]{},]+')


def _split(text: str) -> list[str]:
    """Split at the commas that stand outside of quotes and brackets."""
    parts, depth, piece = [], 0, ""
    for token in _PIECE.findall(text):
        if token == "," and depth == 0:
            parts.append(piece.strip())
            piece = ""
            continue
        depth += (token in "([{") - (token in ")]}") if len(token) == 1 else 0
        piece += token
    return [*parts, piece.strip()] if piece.strip() else parts


def _closing(text: str, at: int) -> int:
    """Return the index of the bracket that closes the one at `at`."""
    depth = 0
    for token in _PIECE.finditer(text, at):
        if len(token.group()) == 1:
            depth += (token.group() in "([{") - (token.group() in ")]}")
            if depth == 0:
                return token.start()
    raise UnreadableProgram(f"no closing bracket in {text[at : at + 60]!r}")


def _instruction(line: str) -> Instruction | None:
    start = _LINE.match(line)
    if not start:
        return None
    shape, at = _shape(line, start.end())
    opened = line.index("(", at)
    opcode = line[at:opened].strip()
    closed = _closing(line, opened)
    inside = line[opened + 1 : closed]
    attributes: dict[str, str] = {}
    for part in _split(line[closed + 1 :]):
        name, _, value = part.partition("=")
        attributes[name.strip()] = value
    takes_literal = opcode in ("parameter", "constant", "iota")
    operands = () if takes_literal else tuple(p.split()[-1].lstrip("%") for p in _split(inside))
    literal = inside if takes_literal else ""
    return Instruction(
        start.group(2), opcode, shape, operands, attributes, bool(start.group(1)), literal
    )


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
    lines: list[Instruction] = []
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        if name and line.startswith("}"):
            computations[name] = Computation(name, tuple(lines))
            entry = computations[name] if is_entry else entry
            name, lines = "", []
        elif name:
            each = _instruction(line)
            if each is not None:
                lines.append(each)
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
    )


# --- FLOPs of one instruction -------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TRANSCENDENTAL = _words(
    "exponential exponential-minus-one log log-plus-one tanh logistic sine cosine tan sqrt rsqrt "
    "cbrt power erf atan2 asin acos atan sinh cosh asinh acosh atanh"
)
"""Opcodes of transcendental functions: one FLOP per element, and listed apart."""

ARITHMETIC = _words(
    "add subtract multiply divide remainder maximum minimum compare select clamp negate abs sign "
    "floor ceil round-nearest-afz round-nearest-even is-finite and or xor not shift-left "
    "shift-right-logical shift-right-arithmetic popcnt count-leading-zeros real imag complex "
    "mulhi"
)
"""Opcodes that do one FLOP per element of the result."""

MOVING = _words(
    "copy convert bitcast-convert broadcast reshape transpose slice dynamic-slice pad reverse "
    "dynamic-update-slice concatenate iota gather reduce-precision stochastic-convert rng "
    "rng-bit-generator rng-get-and-update-state dynamic-reshape real-dynamic-slice set-dimension-"
    "size infeed outfeed send recv all-gather all-to-all ragged-all-to-all collective-permute "
    "collective-broadcast all-reduce reduce-scatter copy-start"
)
"""Opcodes that only move, convert or make data. The sums inside collectives are not counted."""

FREE = _words(
    "parameter constant bitcast tuple get-tuple-element after-all opt-barrier optimization-barrier "
    "partition-id replica-id add-dependency domain get-dimension-size"
)
"""Opcodes that do nothing at run time, or nothing that counts."""

COLLECTIVES = _words(
    "all-reduce all-gather reduce-scatter all-to-all ragged-all-to-all collective-permute "
    "collective-broadcast"
)

FREE_CALLS = _words(
    "AssumeGatherIndicesInBound Sharding SPMDFullToShardShape SPMDShardToFullShape AllocateBuffer "
    "ConcatBitcast annotate_device_placement xla.sdy.FuncResultSharding PrepareAsyncCallStart "
    "PrepareAsyncCallDone GatherScatterIndicesBitpacked"
)
"""Targets of custom calls that mark something and run nothing."""


@dataclass(frozen=True)
class Flops:
    """FLOPs by unit. `declared` are those that a custom call states without naming a unit."""

    matrix: float = 0
    vector: float = 0
    transcendentals: float = 0
    declared: float = 0
    unknown: tuple[str, ...] = ()

    def __add__(self, other: Flops) -> Flops:
        return Flops(
            self.matrix + other.matrix,
            self.vector + other.vector,
            self.transcendentals + other.transcendentals,
            self.declared + other.declared,
            self.unknown + other.unknown,
        )

    def __mul__(self, times: float) -> Flops:
        return Flops(
            self.matrix * times,
            self.vector * times,
            self.transcendentals * times,
            self.declared * times,
            self.unknown,
        )


@lru_cache(maxsize=4096)
def _taps(size: int, out: int, window: int, stride: int, low: int, base: int, dilation: int) -> int:
    """Count the pairs (output position, window position) that meet an element of the input.

    Output o and tap k meet position o·stride + k·dilation − low of the input spread out by
    `base`: an element stands at each multiple of `base`, zeros between and around.
    """
    total, last = 0, (size - 1) * base
    step = math.gcd(stride, base)
    period = base // step
    inverse = pow(stride // step, -1, period) if period > 1 else 0
    for k in range(window):
        offset = k * dilation - low
        if offset % step:
            continue
        first = (-offset // step * inverse) % period if period > 1 else 0  # smallest o that fits
        least = max(0, -(offset // stride))  # o·stride + offset ≥ 0
        most = min(out - 1, (last - offset) // stride)
        if least > first:
            first += -(-(least - first) // period) * period
        if most >= first:
            total += (most - first) // period + 1
    return total


def _window(text: str, dims: int) -> list[dict[str, int]]:
    """Read `{size=3x3 stride=1x1 pad=1_1x1_1 lhs_dilate=1x1 rhs_dilate=1x1}`."""
    given = dict(part.split("=", 1) for part in text.strip("{} ").split() if "=" in part)

    def numbers(key: str, default: int) -> list[int]:
        return [int(n) for n in given[key].split("x")] if key in given else [default] * dims

    pads = given["pad"].split("x") if "pad" in given else ["0_0"] * dims
    return [
        {"window": w, "stride": s, "low": int(p.split("_")[0]), "base": b, "dilation": d}
        for w, s, p, b, d in zip(
            numbers("size", 1),
            numbers("stride", 1),
            pads,
            numbers("lhs_dilate", 1),
            numbers("rhs_dilate", 1),
            strict=True,
        )
    ]


def _labels(each: Instruction) -> tuple[str, str, str]:
    """Split `dim_labels=bf0_io0->bf0`: what each dimension of input, kernel and output is."""
    operands, _, out = each.attributes["dim_labels"].partition("->")
    lhs, _, rhs = operands.partition("_")
    return lhs, rhs, out


def matrix_flops(each: Instruction, lhs: Shape, rhs: Shape) -> int:
    """Return the FLOPs of a dot or a convolution: two for each multiply-add that meets data."""
    if each.opcode == "dot":
        inner = math.prod(lhs.dims[d] for d in each.numbers("lhs_contracting_dims"))
        return 2 * each.shape.elements * inner
    left, right, out = _labels(each)
    spatial = [label for label in out if label.isdigit()]
    macs = lhs.dims[left.index("b")] // int(each.attributes.get("batch_group_count", 1))
    macs *= rhs.dims[right.index("i")] * rhs.dims[right.index("o")]
    for label, window in zip(
        spatial, _window(each.attributes.get("window", ""), len(spatial)), strict=True
    ):
        size = lhs.dims[left.index(label)]
        macs *= _taps(size, each.shape.dims[out.index(label)], **window)
    return 2 * macs


# --- counting a computation ---------------------------------------------------------------------


@dataclass(frozen=True)
class Collective:
    """One exchange between devices, as one device sees it.

    `link_bytes` is what a device sends when the exchange runs as a ring: 2(n−1)/n of the operand
    for an all-reduce, (n−1)/n of the larger side for gathers and scatters, all for a permute.
    """

    name: str
    kind: str
    bytes_in: int
    bytes_out: int
    group_size: int
    groups: tuple[tuple[int, ...], ...] | None
    launches: int = 1
    axis: str | None = None

    @property
    def link_bytes(self) -> float:
        """Bytes that one device sends, once."""
        n = max(self.group_size, 1)
        share = (n - 1) / n
        if self.kind == "all-reduce":
            return 2 * share * self.bytes_in
        if self.kind in ("collective-permute", "collective-broadcast"):
            return float(self.bytes_in)
        return share * max(self.bytes_in, self.bytes_out)


@dataclass(frozen=True)
class Row:
    """One kernel: what one launch of it does, and how often it is launched.

    `read` and `written` are bytes by memory level. `tile_read` is what it reads from the main
    memory when operands are fetched again as its tiles imply; None where that is not known.
    `matrix_types` are the types and the precision of its products of matrices. `overlaps` marks
    an asynchronous copy or exchange, which runs beside other kernels.
    """

    name: str
    opcode: str
    operations: Mapping[str, int]
    flops: Flops
    read: Mapping[str, int]
    written: Mapping[str, int]
    launches: int = 1
    source: str = ""
    cycles: int | None = None
    windows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tile_read: int | None = None
    padding: int = 0
    matrix_types: tuple[str, ...] = ()
    declared_bytes: int | None = None
    overlaps: bool = False
    uncounted: bool = False
    collective: Collective | None = None

    @property
    def bytes(self) -> int:
        """Bytes read from and written to the main memory by one launch."""
        return self.read.get("hbm", 0) + self.written.get("hbm", 0)


@dataclass(frozen=True)
class Ledger:
    """The kernels of a program in order, and what could not be known."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def kernels(
    module: Module | str,
    platform: str = "tpu",
    *,
    strict: bool = False,
    unknown_trips: int = 1,
    price: Callable[[Sequence[Row]], float] | None = None,
) -> Ledger:
    """Return the kernels of a compiled program, each with its FLOPs and bytes.

    Parameters
    ----------
    module : Module or str
        A program, or its HLO text.
    platform : {"tpu", "gpu", "cpu"}
        What it was compiled for: says what the memory spaces mean.
    strict : bool
        Whether an instruction that this reader doesn't know is an error. Otherwise it becomes a
        row marked `uncounted`, with its operands and results as bytes and no FLOPs.
    unknown_trips : int
        How often a loop turns whose trip count can't be found, at least 1. A note says so.
    price : callable, optional
        What rows cost: picks the dearest branch of a conditional. By default, bytes of the main
        memory and FLOPs at 200 a byte.

    Raises
    ------
    BadType, BadValue
        An option of another type, or outside what is allowed.
    UnreadableProgram
        Not HLO text.
    UnknownInstruction
        An unknown opcode, in strict mode.

    Examples
    --------
    >>> ledger = kernels('''HloModule tiny
    ... ENTRY %main (x: f32[1024]) -> f32[1024] {
    ...   %x = f32[1024]{0} parameter(0)
    ...   ROOT %y = f32[1024]{0} tanh(%x)
    ... }''')
    >>> [(row.name, row.flops.vector, row.bytes) for row in ledger.rows]
    [('y', 1024, 8192)]
    """
    if platform not in SPACES:
        raise BadValue(f"platform must be one of {', '.join(SPACES)}, got {platform!r}")
    strict, unknown_trips = flag("strict", strict), whole("unknown_trips", unknown_trips)
    program = parse(module) if isinstance(module, str) else module
    counter = _Counter(program, SPACES[platform], strict, unknown_trips, price or _price)
    counter.walk(program.entry, 1, {})
    return Ledger(tuple(counter.rows), tuple(dict.fromkeys(counter.notes)))


def _price(rows: Sequence[Row]) -> float:
    return sum((r.bytes + (r.flops.matrix + r.flops.vector) / 200) * r.launches for r in rows)


def _is_complex(each: Instruction, where: Computation) -> bool:
    """Whether it computes with complex numbers, whose real operations are not counted."""
    leaves = (leaf for o in each.operands for leaf in where.by_name[o].shape.leaves)
    return each.opcode in _COMPUTE and any(leaf.dtype in ("c64", "c128") for leaf in leaves)


_COMPUTE = frozenset(
    {*ARITHMETIC, *TRANSCENDENTAL, "dot", "convolution", "reduce", "reduce-window"}
    - {"real", "imag", "complex"}
)
_VIEWS = frozenset(["bitcast", "reshape", "copy", "convert", "transpose"])
_SLICES = frozenset(["slice", "dynamic-slice", "gather"])
_PARTIAL = frozenset(["dynamic-update-slice", "scatter"])


class _Counter:
    """Walks over a program and collects rows and notes."""

    def __init__(
        self,
        module: Module,
        spaces: Mapping[int, str],
        strict: bool,
        unknown_trips: int,
        price: Callable[[Sequence[Row]], float],
    ) -> None:
        self.module, self.spaces, self.strict = module, spaces, strict
        self.unknown_trips, self.price = unknown_trips, price
        self.rows: list[Row] = []
        self.notes: list[str] = []

    # -- which instructions run, and how often ---------------------------------------------------

    def walk(self, where: Computation, times: int, known: Mapping[int, int]) -> None:
        """Add a row for each kernel of a computation that runs `times` times.

        `known` holds the elements of its parameter tuple that are constants.
        """
        for each in where.instructions:
            base = each.opcode.removesuffix("-start")
            if each.opcode in FREE or each.opcode.endswith(("-done", "-update")):
                continue
            if each.opcode == "while":
                self._loop(each, where, times, known)
            elif each.opcode == "conditional":
                self._branches(each, times)
            elif base == "call" or base == "async":
                for name in each.called("calls", "to_apply"):
                    self.walk(self.module.computations[name], times, {})
            elif base == "custom-call" and self._target(each) in FREE_CALLS:
                continue
            elif self._is_refill(each, where):
                self.notes.append(
                    f"{each.name} fetches a value into fast memory for the next run of the "
                    "program, which then finds it there: counted once, not twice"
                )
            elif not self._is_scalar(each, where):
                self.rows.append(self._row(each, where, times))

    def _is_scalar(self, each: Instruction, where: Computation) -> bool:
        shapes = [each.shape, *(where.by_name[o].shape for o in each.operands)]
        return all(shape.is_scalar for shape in shapes) and "custom-call" not in each.opcode

    def _is_refill(self, each: Instruction, where: Computation) -> bool:
        """Whether a copy's result is never used: XLA refills VMEM before the program ends."""
        if each.opcode not in ("copy-start", "slice-start") or where is not self.module.entry:
            return False
        done = where.users.get(each.name, [])
        return not each.is_root and all(
            d.opcode.endswith("-done") and not d.is_root and d.name not in where.users for d in done
        )

    def _loop(
        self, each: Instruction, where: Computation, times: int, known: Mapping[int, int]
    ) -> None:
        body = self.module.computations[each.called("body")[0]]
        condition = self.module.computations[each.called("condition")[0]]
        constants = self._constants(each, where, body, known)
        trips = self._trips(each, where, body, condition, known, constants)
        if trips is None:
            trips = self.unknown_trips
            counted = "once" if trips == 1 else f"as {trips} turns"
            self.notes.append(f"loop {each.name}: its trip count is unknown; counted {counted}")
        elif trips != 1:
            self.notes.append(f"loop {each.name}: its body counts {trips} times")
        self.walk(condition, times * (trips + 1), constants)
        self.walk(body, times * trips, constants)

    def _branches(self, each: Instruction, times: int) -> None:
        names = each.called("branch_computations", "true_computation", "false_computation")
        before = self.rows
        choices: list[tuple[tuple[float, float], str, list[Row]]] = []
        for name in names:
            self.rows = []
            self.walk(self.module.computations[name], times, {})
            flops = sum((r.flops.matrix + r.flops.vector) * r.launches for r in self.rows)
            choices.append(((self.price(self.rows), flops), name, self.rows))
        _, name, rows = max(choices, key=lambda choice: choice[0])
        self.rows = before + rows
        self.notes.append(
            f"conditional {each.name}: the dearest of {len(names)} branches counts ({name})"
        )

    # -- trip counts -----------------------------------------------------------------------------

    def _value(
        self, name: str, where: Computation, given: Mapping[str, Any] | None = None
    ) -> tuple[int | None, int] | None:
        """Follow a scalar to its origin.

        Returns (None, n) for the constant n, (i, n) for element i of the loop's tuple plus n,
        None where it can't be followed. `given` holds what the parameters of a fusion stand for.
        """
        each = where.by_name[name]
        if given is not None and name in given:
            found: tuple[int | None, int] | None = given[name]
            return found
        follow = [self._value(o, where, given) for o in each.operands[:2]] if each.operands else []
        if each.opcode == "constant" and each.shape.is_scalar:
            number = re.fullmatch(r"\{?\s*(-?\d+)\s*\}?", each.literal)
            return (None, int(number.group(1))) if number else None
        if each.opcode == "get-tuple-element":
            source = where.by_name[each.operands[0]]
            if source.opcode == "tuple":
                return self._value(source.operands[each.numbers("index")[0]], where, given)
            return (each.numbers("index")[0], 0) if source.opcode == "parameter" else None
        if each.opcode in ("copy", "bitcast", "reshape", "convert", "copy-start", "copy-done"):
            return follow[0]
        if each.opcode in ("add", "subtract") and len(follow) == 2 and None not in follow:
            (a, x), (b, y) = follow  # type: ignore[misc]
            if each.opcode == "subtract" and b is None:
                return a, x - y
            if each.opcode == "add" and (a is None or b is None):
                return (a if b is None else b), x + y
        if each.opcode in ("fusion", "call"):
            inner = self.module.computations[each.called("calls", "to_apply")[0]]
            values = [self._value(o, where, given) for o in each.operands]
            passed = {p.name: v for p, v in zip(inner.parameters, values, strict=True)}
            return self._value(inner.root.name, inner, passed)
        return None

    def _constants(
        self, loop: Instruction, where: Computation, body: Computation, known: Mapping[int, int]
    ) -> dict[int, int]:
        """Return the elements of a loop's tuple that keep one known value."""
        found: dict[int, int] = {}
        start = where.by_name[loop.operands[0]]
        if start.opcode != "tuple" or body.root.opcode != "tuple":
            return found
        for i, operand in enumerate(start.operands):
            if not start.shape.leaves[i].is_scalar if i < len(start.shape.leaves) else True:
                continue
            first = self._resolve(self._value(operand, where), known)
            after = self._value(body.root.operands[i], body)
            if first is not None and after == (i, 0):
                found[i] = first
        return found

    @staticmethod
    def _resolve(value: tuple[int | None, int] | None, known: Mapping[int, int]) -> int | None:
        if value is None:
            return None
        index, offset = value
        if index is None:
            return offset
        return known[index] + offset if index in known else None

    def _trips(
        self,
        loop: Instruction,
        where: Computation,
        body: Computation,
        condition: Computation,
        known: Mapping[int, int],
        constants: Mapping[int, int],
    ) -> int | None:
        """Return how often a loop turns: as the backend says, or from counter and bound."""
        stated = loop.config.get("known_trip_count")
        if isinstance(stated, dict) and str(stated.get("n", "")).isdigit():
            return int(stated["n"])
        test, given = condition.root, None
        inner = condition
        while test.opcode in ("fusion", "call", "copy", "bitcast", "convert"):
            if test.opcode in ("fusion", "call"):
                called = self.module.computations[test.called("calls", "to_apply")[0]]
                values = [self._value(o, inner, given) for o in test.operands]
                given = {p.name: v for p, v in zip(called.parameters, values, strict=True)}
                inner, test = called, called.root
            else:
                test = inner.by_name[test.operands[0]]
        start = where.by_name[loop.operands[0]]
        if test.opcode != "compare" or start.opcode != "tuple" or body.root.opcode != "tuple":
            return None
        left, right = (self._value(o, inner, given) for o in test.operands)
        direction = test.attributes.get("direction", "")
        if left is None or right is None:
            return None
        if left[0] is None or left[0] in constants:  # bound first: turn it round
            left, right = right, left
            direction = direction.translate(str.maketrans("LG", "GL"))
        counter, shift = left
        bound = self._resolve(right, constants)
        if counter is None or bound is None:
            return None
        first = self._resolve(self._value(start.operands[counter], where), known)
        after = self._value(body.root.operands[counter], body)
        if first is None or after is None or after[0] != counter:
            return None
        return _turns(first + shift, bound, after[1], direction)

    # -- one kernel ------------------------------------------------------------------------------

    def _row(self, each: Instruction, where: Computation, times: int) -> Row:
        uncounted = False
        try:
            flops = self._flops(each, where)
        except UnknownInstruction:
            if self.strict:
                raise
            uncounted, flops = True, Flops(unknown=(each.opcode,))
        read, written, padding = self._traffic(each, where)
        windows = each.config.get("window_config", {})
        cycles = int(windows.get("estimated_cycles", 0) or 0) or None
        declared = self._declared(each)
        collective = self._collective(each, where, times)
        touched = sum(read.values()) + sum(written.values())
        if declared and abs(float(declared["bytes_accessed"]) - touched) > 0.01 * touched:
            self.notes.append(
                f"{each.name}: its author declares {int(declared['bytes_accessed']):,} bytes, its "
                f"operands and results have {touched:,}; the latter count"
            )
        if uncounted:
            self.notes.append(f"{each.name}: opcode {each.opcode!r} is unknown; FLOPs uncounted")
        elif flops.unknown:
            what = ", ".join(dict.fromkeys(flops.unknown))
            self.notes.append(f"{each.name}: its FLOPs are unknown ({what} declares none)")
        if any(_is_complex(part, inner) for part, inner in self._inside(each, where)):
            self.notes.append("complex numbers: an operation on one counts as one FLOP")
        return Row(
            name=each.name,
            opcode=each.opcode.removesuffix("-start"),
            operations=self._operations(each, where),
            flops=flops,
            read=read,
            written=written,
            launches=times,
            source=each.source,
            cycles=cycles,
            windows={
                name: tuple(int(n) for n in windows.get(name, ()))
                for name in (
                    "input_window_bounds",
                    "kernel_window_bounds",
                    "output_window_bounds",
                    "iteration_bounds",
                )
                if windows.get(name)
            },
            tile_read=self._tile_read(each, where),
            padding=padding,
            matrix_types=self._matrix_types(each, where),
            declared_bytes=int(declared["bytes_accessed"]) if declared else None,
            overlaps=each.opcode.endswith("-start"),
            uncounted=uncounted,
            collective=collective,
        )

    def _inside(self, each: Instruction, where: Computation) -> Iterator[tuple[Instruction, Any]]:
        """Yield each instruction that a kernel consists of, with the computation it stands in."""
        names = each.called("calls") if each.opcode == "fusion" else ()
        if not names:
            yield each, where
            return
        inner = self.module.computations[names[0]]
        for part in inner.instructions:
            yield from self._inside(part, inner)

    def _operations(self, each: Instruction, where: Computation) -> dict[str, int]:
        plain = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element"}
        names = [part.opcode.removesuffix("-start") for part, _ in self._inside(each, where)]
        return dict(Counter(name for name in names if name not in plain))

    def _matrix_types(self, each: Instruction, where: Computation) -> tuple[str, ...]:
        found = []
        for part, inner in self._inside(each, where):
            if part.opcode in ("dot", "convolution"):
                types = [inner.by_name[o].shape.dtype for o in part.operands[:2]]
                precision = part.attributes.get("operand_precision", "").strip("{}").split(",")[0]
                found.append(f"{'×'.join(dict.fromkeys(types))} {precision}".strip())
            elif part.opcode == "custom-call":
                shapes = [inner.by_name[o].shape for o in part.operands]
                library = _library_product(part, shapes)
                if library is not None:
                    found.append("×".join(dict.fromkeys(s.dtype for s in library[1:])))
        return tuple(dict.fromkeys(found))

    # -- FLOPs -----------------------------------------------------------------------------------

    def _flops(self, each: Instruction, where: Computation, share: float = 1) -> Flops:
        """Return the FLOPs of an instruction of which a `share` of the elements is needed."""
        opcode = each.opcode.removesuffix("-start")
        n = each.shape.leaves[0].elements if each.shape.leaves else 0
        if opcode == "fusion":
            inner = self.module.computations[each.called("calls")[0]]
            need = self._need(inner, share)
            total = Flops()
            for part in inner.instructions:
                total += self._flops(part, inner, need[part.name])
            return total
        if opcode in FREE or opcode in MOVING:
            return Flops()
        if opcode in ARITHMETIC:
            return Flops(vector=n) * share
        if opcode in TRANSCENDENTAL:
            return Flops(vector=n, transcendentals=n) * share
        if opcode in ("dot", "convolution"):
            lhs, rhs = (where.by_name[o].shape for o in each.operands[:2])
            return Flops(matrix=matrix_flops(each, lhs, rhs)) * share
        if opcode in ("reduce", "map", "reduce-window", "scatter", "select-and-scatter", "sort"):
            return self._applied(each, where) * share
        if opcode == "custom-call":
            return self._call_flops(each, where)
        first = where.by_name[each.operands[0]].shape if each.operands else each.shape
        side = first.dims[-1] if first.dims else 1
        if opcode == "fft":  # 5 n log₂ n, the textbook's count
            points = math.prod(each.numbers("fft_length")) or 1
            return Flops(vector=5 * each.shape.elements * math.log2(max(points, 1)))
        if opcode == "cholesky":
            return Flops(vector=first.elements * side / 3)
        if opcode == "triangular-solve":
            return Flops(vector=each.shape.elements * side)
        raise UnknownInstruction(
            f"opcode {each.opcode!r} of {each.name} is not known to roofline_helpers.hlo"
        )

    def _applied(self, each: Instruction, where: Computation) -> Flops:
        """Return the FLOPs of an instruction that applies a small computation many times."""
        operand = where.by_name[each.operands[0]].shape
        per = Flops()
        for name in each.called("to_apply", "scatter"):
            inner = self.module.computations[name]
            for part in inner.instructions:
                per += self._flops(part, inner)
        if each.opcode == "reduce":
            return per * operand.elements
        if each.opcode == "map":
            return per * each.shape.elements
        if each.opcode == "scatter":  # operands, indices, updates
            count = len(each.operands) // 2
            return per * where.by_name[each.operands[-count]].shape.elements
        if each.opcode == "reduce-window":
            dims = each.shape.leaves[0].dims
            windows = _window(each.attributes.get("window", ""), len(dims))
            taps = [
                _taps(size, out, **w)
                for size, out, w in zip(operand.dims, dims, windows, strict=True)
            ]
            # Where every window holds the whole dimension, it is one reduction, kept as a broadcast
            # (v7x writes the maximum of a softmax so): its elements count once
            once = [
                size if tap == size * out else tap
                for tap, size, out in zip(taps, operand.dims, dims, strict=True)
            ]
            return per * math.prod(once)
        if each.opcode == "select-and-scatter":  # a compare for each tap, an add for each window
            source = where.by_name[each.operands[1]].shape
            windows = _window(each.attributes.get("window", ""), len(source.dims))
            taps = [
                _taps(size, out, **w)
                for size, out, w in zip(operand.dims, source.dims, windows, strict=True)
            ]
            return Flops(vector=math.prod(taps)) + per * source.elements
        axis = (each.numbers("dimensions") or (0,))[0]  # sort: ⌈log₂ n⌉ compares an element
        return per * (operand.elements * math.ceil(math.log2(max(operand.dims[axis], 2))))

    @staticmethod
    def _target(each: Instruction) -> str:
        return each.attributes.get("custom_call_target", "").strip('"')

    @staticmethod
    def _declared(each: Instruction) -> dict[str, Any] | None:
        if not each.opcode.startswith("custom-call"):
            return None
        found = each.config.get("custom_call_config", {}).get("cost_estimate")
        return found if isinstance(found, dict) else None

    def _call_flops(self, each: Instruction, where: Computation) -> Flops:
        """Return what a custom call declares; undeclared is unknown, never 0."""
        target = self._target(each)
        if target in FREE_CALLS or target.startswith("X64"):  # X64…: split and join numbers
            return Flops()
        declared = self._declared(each)
        if declared is None:
            library = _library_product(each, [where.by_name[o].shape for o in each.operands])
            if library is not None:
                return Flops(matrix=matrix_flops(*library))
            return Flops(unknown=(each.name if target == "tpu_custom_call" else target,))
        return Flops(
            declared=float(declared.get("flops", 0)),
            transcendentals=float(declared.get("transcendentals", 0)),
        )

    # -- bytes -----------------------------------------------------------------------------------

    def _in_place(self, inner: Computation) -> dict[str, tuple[str, str, float]]:
        """Find the results of a fusion that update one of its parameters in place.

        Returns, for each such result of the fusion, the updating instruction, the parameter and
        the share of the buffer that is written.
        """
        found = {}
        results = inner.root.operands if inner.root.opcode == "tuple" else (inner.root.name,)
        for result in results:
            each = self._through(result, inner)
            if each.opcode == "fusion":  # a fusion inside may be what updates
                called = self.module.computations[each.called("calls")[0]]
                for _, parameter, share in list(self._in_place(called).values())[:1]:
                    place = [p.name for p in called.parameters].index(parameter)
                    buffer = self._through(each.operands[place], inner)
                    if buffer.opcode == "parameter" and called.root.opcode != "tuple":
                        found[result] = ("", buffer.name, share)
                continue
            if each.opcode not in _PARTIAL:
                continue
            buffer = self._through(each.operands[0], inner)
            if buffer.opcode == "parameter" and buffer.shape.elements == each.shape.elements:
                share = self._updated(each, inner) / max(each.shape.leaves[0].elements, 1)
                found[result] = (each.name, buffer.name, min(share, 1.0))
        return found

    def _through(self, name: str, where: Computation) -> Instruction:
        """Follow a value back through bitcasts, copies and conversions."""
        each = where.by_name[name]
        while each.opcode in _VIEWS and each.operands:
            each = where.by_name[each.operands[0]]
        return each

    @staticmethod
    def _updated(each: Instruction, where: Computation) -> int:
        """Elements that a dynamic-update-slice or scatter writes."""
        update = 1 if each.opcode == "dynamic-update-slice" else -(len(each.operands) // 2)
        return where.by_name[each.operands[update]].shape.elements

    def _need(self, inner: Computation, share: float = 1) -> dict[str, float]:
        """Return which share of each value inside a fusion has to be computed or read.

        From the result backwards: whoever uses a value needs as much of it as is needed of its own
        result, but a slice needs only what it cuts out, and an update in place needs nothing of
        the buffer that it updates (a scatter that adds needs what it adds to).
        """
        whole = dict.fromkeys(inner.by_name, 0.0)
        cut: dict[str, dict[Any, float]] = {name: {} for name in inner.by_name}
        in_place = {update: buffer for update, buffer, _ in self._in_place(inner).values()}
        need: dict[str, float] = {}
        whole[inner.root.name] = share
        for each in reversed(inner.instructions):
            mine = need[each.name] = min(1.0, whole[each.name] + sum(cut[each.name].values()))
            if mine == 0:
                continue
            parts = [mine] * len(each.operands)
            if each.opcode == "fusion":
                called = self.module.computations[each.called("calls")[0]]
                below = self._need(called, mine)
                parts = [below[p.name] for p in called.parameters]
            elif each.opcode == "broadcast":
                parts = [1.0]
            for position, (operand, part) in enumerate(zip(each.operands, parts, strict=True)):
                elements = max(inner.by_name[operand].shape.leaves[0].elements, 1)
                key: Any = None
                if position == 0 and each.opcode in _SLICES:
                    key = (each.opcode, each.attributes.get("slice"), each.operands[1:])
                    part = mine * min(1.0, each.shape.elements / elements)
                elif position == 0 and each.name in in_place:
                    adds = each.opcode == "scatter" and self._combines(each)
                    key, part = each.name, 0.0
                    if adds:
                        part = mine * min(1.0, self._updated(each, inner) / elements)
                if key is None:
                    whole[operand] = max(whole[operand], part)
                else:
                    cut[operand][key] = max(cut[operand].get(key, 0.0), part)
        # Views carry a partial need unchanged, so nothing more is to do for them
        return need

    def _combines(self, scatter: Instruction) -> bool:
        """Whether a scatter reads what it writes to: its combiner uses the old value."""
        inner = self.module.computations[scatter.called("to_apply", "scatter")[0]]
        return any(p.name in inner.users for p in inner.parameters[: len(inner.parameters) // 2])

    def _traffic(
        self, each: Instruction, where: Computation
    ) -> tuple[dict[str, int], dict[str, int], int]:
        """Return the bytes that one launch reads and writes by memory level, and the padding."""
        opcode = each.opcode.removesuffix("-start")
        operands = [where.by_name[o].shape for o in each.operands]
        reads = [1.0] * len(operands)
        results = list(self._results(each).leaves)
        writes = [1.0] * len(results)
        if opcode == "fusion":
            inner = self.module.computations[each.called("calls")[0]]
            need = self._need(inner)
            reads = [need[p.name] for p in inner.parameters]
            in_place = self._in_place(inner)
            names = inner.root.operands if inner.root.opcode == "tuple" else (inner.root.name,)
            if len(names) == len(writes):
                writes = [in_place[n][2] if n in in_place else 1.0 for n in names]
        elif opcode in _SLICES:
            reads[0] = min(1.0, results[0].elements / max(operands[0].elements, 1))
        elif opcode in _PARTIAL:
            share = min(1.0, self._updated(each, where) / max(operands[0].elements, 1))
            reads[0] = share if opcode == "scatter" and self._combines(each) else 0.0
            writes = [share] * len(results)
        read: dict[str, int] = {}
        written: dict[str, int] = {}
        seen: dict[str, float] = {}
        padding = 0.0
        for name, shape, share in zip(each.operands, operands, reads, strict=True):
            more = max(share - seen.get(name, 0.0), 0.0)  # the same buffer twice counts once
            seen[name] = max(share, seen.get(name, 0.0))
            for leaf in shape.leaves:
                padding += self._book(read, leaf, more)
        for leaf, share in zip(results, writes, strict=True):
            padding += self._book(written, leaf, share)
        return read, written, round(padding)

    def _book(self, book: dict[str, int], leaf: Shape, share: float) -> float:
        if leaf.is_scalar:
            return 0.0
        amount = round(leaf.bytes * share)
        level = self.spaces.get(leaf.space, f"S({leaf.space})")
        if amount:
            book[level] = book.get(level, 0) + amount
        return (leaf.padded_bytes - leaf.bytes) * share if level == "hbm" else 0.0

    @staticmethod
    def _results(each: Instruction) -> Shape:
        """Return what an instruction writes. The pair that starts a copy also names its source."""
        parts = each.shape.parts
        target = each.attributes.get("custom_call_target", "")
        if target.startswith(('"__cublas$', '"__cudnn$')) and parts and len(parts) > 1:
            return Shape(parts=parts[:-1])  # the last is the library's scratch memory
        if not each.opcode.endswith("-start") or parts is None or not parts:
            return each.shape
        if each.opcode == "copy-start":  # (destination, source, context)
            return parts[0]
        if each.opcode == "all-reduce-start":  # results only
            return each.shape
        return parts[1] if len(parts) > 1 else parts[0]  # (sources, results, context …)

    # -- tiles -----------------------------------------------------------------------------------

    def _tile_read(self, each: Instruction, where: Computation) -> int | None:
        """Return the bytes read from HBM when operands are fetched again as the tiles imply.

        A TPU computes a product of matrices window by window. `input_window_bounds` and the
        others give the windows of the left operand, the right operand and the result, dimension
        by dimension as they lie in memory, the last two in units of 8 rows and 128 columns. The
        loops run over batch, columns n, rows m and, innermost, the summed dimension k. An operand
        is fetched again whenever its window changes: the left one once for each step over n, the
        right one once for each step over m, unless one window holds all that the inner loops need.
        Known for one product of matrices in a kernel, without a spatial window.
        """
        bounds = each.config.get("window_config", {})
        products = [
            (part, inner)
            for part, inner in self._inside(each, where)
            if part.opcode in ("dot", "convolution")
        ]
        if len(products) != 1 or products[0][0].opcode != "convolution":
            return None
        part, inner = products[0]
        labels = _labels(part)
        shapes = [*(inner.by_name[o].shape for o in part.operands[:2]), part.shape]
        spatial = [label for label in labels[2] if label.isdigit()]
        for label, w in zip(
            spatial, _window(part.attributes.get("window", ""), len(spatial)), strict=True
        ):
            size = shapes[2].dims[labels[2].index(label)]
            batch = _taps(shapes[0].dims[labels[0].index(label)], size, **w) == size
            if not batch:
                return None  # a true convolution: windows overlap
        steps: dict[str, int] = {}
        names = ("input_window_bounds", "kernel_window_bounds", "output_window_bounds")
        kinds = ({"b": "m", "f": "k"}, {"i": "k", "o": "n"}, {"b": "m", "f": "n"})
        for name, shape, text, kind in zip(names, shapes, labels, kinds, strict=True):
            window = [int(n) for n in bounds.get(name, ())]
            if len(window) != len(shape.dims) or not shape.order:
                return None
            units = [1] * (len(window) - 2) + [8, 128][-len(window) :]
            for place, dim in enumerate(shape.order):
                label = kind.get(text[dim], text[dim])
                count = -(-shape.dims[dim] // (window[place] * units[place]))
                steps[label] = max(steps.get(label, 1), count)
        stated = math.prod(int(n) for n in bounds.get("iteration_bounds", ()) or (1,))
        if math.prod(steps.values()) != stated:
            return None
        order = [*spatial, "n", "m", "k"]
        again = [
            _fetches(order, steps, {*spatial, "m", "k"}),
            _fetches(order, steps, {*spatial, "n", "k"}),
        ]
        if each.opcode != "fusion":
            factors = dict(zip(each.operands, again, strict=False))
        else:
            factors = self._fed(each, part.name, again)
        need = self._need_of(each)
        total = 0
        for position, operand in enumerate(each.operands):
            for leaf in where.by_name[operand].shape.leaves:
                if self.spaces.get(leaf.space) == "hbm" and not leaf.is_scalar:
                    total += round(leaf.bytes * need[position] * factors.get(operand, 1))
        return total

    def _need_of(self, each: Instruction) -> list[float]:
        if each.opcode != "fusion":
            return [1.0] * len(each.operands)
        inner = self.module.computations[each.called("calls")[0]]
        need = self._need(inner)
        return [need[p.name] for p in inner.parameters]

    def _fed(self, each: Instruction, product: str, again: Sequence[int]) -> dict[str, int]:
        """Return how often each operand of a fusion is fetched: as the side that it feeds."""
        inner = self.module.computations[each.called("calls")[0]]
        if product not in inner.by_name:
            return {}
        factors: dict[str, int] = {}
        for side, factor in zip(inner.by_name[product].operands[:2], again, strict=True):
            todo = [side]
            while todo:
                part = inner.by_name[todo.pop()]
                todo += part.operands
                if part.opcode == "parameter":
                    outer = each.operands[inner.parameters.index(part)]
                    factors[outer] = max(factors.get(outer, 1), factor)
        return factors

    # -- collectives -----------------------------------------------------------------------------

    def _collective(self, each: Instruction, where: Computation, times: int) -> Collective | None:
        inside = list(self._inside(each, where))
        found = [
            (part, inner)
            for part, inner in inside
            if part.opcode.removesuffix("-start") in COLLECTIVES
        ]
        if not found:
            return None
        part, inner = found[0]
        kind = part.opcode.removesuffix("-start")
        into = sum(inner.by_name[o].shape.bytes for o in part.operands)
        out = self._results(part).bytes
        if kind == "all-reduce" and each.opcode == "fusion" and each.shape.bytes < out:
            kind, out = "reduce-scatter", each.shape.bytes  # summed, and each keeps its part
        groups = _groups(part)
        size = len(groups[0]) if groups else self.module.partitions
        return Collective(each.name, kind, into, out, size, groups, times)


def _library_product(
    each: Instruction, operands: Sequence[Shape]
) -> tuple[Instruction, Shape, Shape] | None:
    """Return the dot or convolution that a call of cuBLAS or cuDNN states that it does."""
    target = each.attributes.get("custom_call_target", "").strip('"')
    result = each.shape.parts[0] if each.shape.parts else each.shape
    if target.startswith("__cublas$") and len(operands) >= 2:
        stated = each.config.get("gemm_backend_config", each.config)
        inner = stated.get("dot_dimension_numbers", {}).get("lhs_contracting_dimensions")
        if inner is None:
            return None
        attributes = {"lhs_contracting_dims": ",".join(map(str, inner))}
        return Instruction(each.name, "dot", result, (), attributes), operands[0], operands[1]
    if "dim_labels" not in each.attributes or len(operands) < 2:
        return None
    first, second = operands[:2]
    roles = {  # input, kernel and result of the forward convolution, whose window and labels count
        "__cudnn$convForward": (first, second, result),
        "__cudnn$convBackwardInput": (result, second, first),
        "__cudnn$convBackwardFilter": (first, result, second),
    }
    for name, (lhs, rhs, out) in roles.items():
        if target.startswith(name):
            return Instruction(each.name, "convolution", out, (), each.attributes), lhs, rhs
    return None


def _turns(first: int, bound: int, step: int, direction: str) -> int | None:
    """Return how often a counter from `first` by `step` passes the test against `bound`."""
    if step > 0 and direction in ("LT", "LE", "NE"):
        last = bound + (direction == "LE")
        distance = last - first
        if direction == "NE" and distance % step:
            return None
        return max(0, -(-distance // step))
    if step < 0 and direction in ("GT", "GE", "NE"):
        flipped = {"GT": "LT", "GE": "LE", "NE": "NE"}[direction]
        return _turns(-first, -bound, -step, flipped)
    return None


def _fetches(order: Sequence[str], steps: Mapping[str, int], depends: set[str]) -> int:
    """Return how often an operand is fetched by nested loops, outermost first.

    It stays in place as long as no loop turns that it depends on, or that encloses one.
    """
    inner = [i for i, loop in enumerate(order) if loop in depends and steps.get(loop, 1) > 1]
    if not inner:
        return 1
    return math.prod(steps.get(loop, 1) for loop in order[: inner[-1]] if loop not in depends)


def _groups(each: Instruction) -> tuple[tuple[int, ...], ...] | None:
    """Read replica_groups: {{0,1},{2,3}}, [2,2]<=[4], [2,2]<=[2,2]T(1,0), or a mesh's axes."""
    text = each.attributes.get("replica_groups", "")
    if each.opcode.startswith("collective-permute"):
        text = each.attributes.get("source_target_pairs", "")
    if text.startswith("{{"):
        return tuple(
            tuple(int(n) for n in group.split(",")) for group in re.findall(r"\{([\d,\s]+)\}", text)
        )
    if text.startswith("["):
        found = re.match(r"\[(\d+),(\d+)\]<=(.*)", text)
        if not found:
            return None
        numbers = _iota(found.group(3))
        size = int(found.group(2))
        return tuple(tuple(numbers[i : i + size]) for i in range(0, len(numbers), size))
    if text.startswith("mesh["):
        axes = [(name, int(n)) for name, n in re.findall(r"'([^']+)'=(\d+)", text)]
        placed, _, chosen = each.attributes.get("device_ids", "").partition("{")
        if not placed.strip() and "{" in text:
            chosen = text.partition("{")[2]
        devices = _iota(placed.strip(" ()")) if placed.strip() else None
        names = re.findall(r"'([^']+)'", chosen)
        return _mesh_groups(axes, names, devices)
    return None


def _iota(text: str) -> list[int]:
    """Read [2,2]T(1,0): the numbers 0, 1, 2 … in that shape, its dimensions permuted."""
    found = re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\)?)?", text.strip())
    if not found:
        return []
    dims = [int(n) for n in found.group(1).split(",")]
    order = [int(n) for n in found.group(2).split(",")] if found.group(2) else [*range(len(dims))]
    strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
    numbers = [0]
    for axis in order:
        numbers = [n + i * strides[axis] for n in numbers for i in range(dims[axis])]
    return numbers


def _mesh_groups(
    axes: Sequence[tuple[str, int]], names: Sequence[str], devices: Sequence[int] | None
) -> tuple[tuple[int, ...], ...] | None:
    """Return the groups of devices that differ only along the named axes of a mesh."""
    total = math.prod(n for _, n in axes)
    numbers = list(devices) if devices else list(range(total))
    if len(numbers) != total or not names:
        return None
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, device in enumerate(numbers):
        rest, key = place, []
        for name, n in reversed(axes):
            rest, index = divmod(rest, n)
            key.append(-1 if name in names else index)
        groups.setdefault(tuple(key), []).append(device)
    return tuple(tuple(group) for group in groups.values())


def with_axes(row: Row, axes: Mapping[frozenset[frozenset[int]], str]) -> Row:
    """Return a row whose collective carries the name of the mesh axes that it runs along."""
    if row.collective is None or row.collective.groups is None:
        return row
    groups = frozenset(frozenset(group) for group in row.collective.groups)
    return replace(row, collective=replace(row.collective, axis=axes.get(groups)))


# --- text for people ------------------------------------------------------------------------------

_NOTES = ("metadata", "backend_config", "frontend_attributes", "sharding", "is_scheduled")


def brief(text: str) -> str:
    """Return the computations of a module without the compiler's notes to itself.

    Drops the module's header, source positions, and the attributes metadata, backend_config,
    frontend_attributes and sharding of instructions. Brief text stays as it is.
    """
    lines = []
    for line in text.splitlines():
        if line[:1] in ("%", "E", " ", "}") and not line.startswith("Entry"):
            lines.append(_without_notes(line))
    return "\n".join(lines).strip()


def _without_notes(line: str) -> str:
    for note in _NOTES:
        at = line.find(f", {note}=")
        while at >= 0:
            start = at + len(note) + 3
            if line[start : start + 1] == "{":
                end = _closing(line, start) + 1
            else:
                end = next((i for i in range(start, len(line)) if line[i] in ",)"), len(line))
            line = line[:at] + line[end:]
            at = line.find(f", {note}=")
    return line
