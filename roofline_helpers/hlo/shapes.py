"""Shapes of values, as HLO writes them, and the memories that they are in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from roofline_helpers._checks import ceil_div
from roofline_helpers.hlo.text import UnreadableProgram

SPACES: Mapping[str, Mapping[int, str]] = {
    "tpu": {0: "hbm", 1: "vmem", 3: "cmem", 5: "host", 6: "smem"},  # cmem: TPU v4 only
    "gpu": {0: "hbm", 1: "hbm", 2: "hbm", 5: "host"},  # 1 and 2 mark buffers of collectives
    "cpu": {0: "hbm"},
}
"""The memory that `S(n)` means on each platform. "hbm" is the main memory, whatever it is."""

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
        digits = _DIGITS.match(self.dtype)
        return BITS.get(self.dtype, max(int(digits.group(1)), 8) if digits else 0)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays in it, without the padding of tiles."""
        return sum(ceil_div(math.prod(leaf.dims) * leaf.bits, 8) for leaf in self.leaves)

    @property
    def padded_bytes(self) -> int:
        """Bytes that it takes in memory – dimensions rounded up to whole tiles."""
        total = 0
        for leaf in self.leaves:
            dims = [leaf.dims[d] for d in leaf.order] if leaf.order else list(leaf.dims)
            for back, tile in enumerate(reversed(leaf.tile[-len(dims) :] if dims else ()), 1):
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


def is_tiled(text: str) -> bool | None:
    """Return whether the layouts of a program are tiled, as those of TPUs alone are.

    None where no layout says: a program without arrays.

    Examples
    --------
    >>> is_tiled("bf16[8,128]{1,0:T(8,128)(2,1)}")
    True
    """
    layouts = re.search(r"\[[\d,]*\]\{[\d,]*(:T\()?", text)
    return None if layouts is None else ":T(" in text


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
