"""How the kernels of `hopper` and `hopper_attention` cut a decode step: plain numbers, no JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Ring:
    """Buffers in shared memory that blocks of an array pass through, one after the other.

    Parameters
    ----------
    stages : int, optional
        Buffers. As many as fit by default; more than the memory needs to be busy only queue there,
        and hold up the small reads of other kernels.
    ahead : int, optional
        Blocks asked for before the kernel waits for the one before it. All by default.
    """

    stages: int | None = None
    ahead: int | None = None

    def within(self, room: int) -> tuple[int, int]:
        """Return stages and ahead as numbers, where at most `room` stages fit."""
        stages = min(self.stages or room, room)
        return stages, min(self.ahead or stages, stages)


@dataclass(frozen=True)
class Cut:
    """How one product x · wᵀ is cut: `tile` rows of w a program, K in `splits`, `depth` a block."""

    tile: int
    splits: int = 1
    depth: int = 64
    ring: Ring = field(default_factory=Ring)


def _products() -> Mapping[str, Cut]:
    return {
        "qkv": Cut(192, splits=4, ring=Ring(5)),
        "o": Cut(128, splits=4, depth=128, ring=Ring(4)),
        "gate_up": Cut(224, ring=Ring(4, ahead=2)),
        "down": Cut(128, splits=4, depth=128, ring=Ring(4)),
    }


@dataclass(frozen=True)
class Kernels:
    """A step in kernels of our own.

    Parameters
    ----------
    chain : bool
        Each kernel starts before the one before it is done.
    products : mapping of str to Cut
        For qkv, o, gate_up and down.
    deep : int
        Up to so many sequences the products' rings take all buffers that fit.
    middle : mapping of str to Cut
        Products that are cut otherwise for 9 to 32 sequences.
    narrow : bool
        Partial sums travel in bfloat16.
    tiles : Ring
        Tiles of keys, and as many of values, in attention.
    programs : int
        The GPU's multiprocessors.
    """

    chain: bool = True
    products: Mapping[str, Cut] = field(default_factory=_products)
    deep: int = 0
    middle: Mapping[str, Cut] = field(default_factory=dict)
    narrow: bool = False
    tiles: Ring = Ring()
    programs: int = 132

    def cut(self, name: str, batch: int) -> Cut:
        """Return how a product is cut for so many sequences."""
        cut = self.middle.get(name) if 8 < batch <= 32 else None
        cut = cut or self.products[name]
        return replace(cut, ring=Ring()) if batch <= self.deep else cut

    def splits(self, batch: int, groups: int, tokens: int) -> int:
        """Return into how many parts attention is split, so that every multiprocessor has one."""
        fit = (n for n in (16, 8, 4, 2) if not tokens % (128 * n))
        return next((n for n in fit if batch * groups * n <= self.programs), 1)
