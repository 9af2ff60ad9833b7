"""A Pallas kernel as its block specs tell it: operand by operand, what is fetched and how often."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofline_helpers.show import Facts, si, table

if TYPE_CHECKING:
    import pandas

MACHINES = {
    "tpu": "TPU: a block is fetched when its index changes",
    "triton": "GPU by Triton: each program loads what its body reads",
    "mosaic_gpu": "GPU by Mosaic: each program copies its blocks, or what its body copies",
}
"""Who moves the blocks, by the backend that Pallas compiles with."""


@dataclass(frozen=True)
class Operand:
    """One operand or result of a Pallas kernel, and what its block spec makes of it.

    Parameters
    ----------
    name : str
        Of its reference, as the kernel's author calls it.
    shape, dtype : tuple of int, str
        Of the whole array; the type as JAX calls it.
    size : float
        Bytes of the whole array.
    block : tuple of int, optional
        Shape of a block; None where the array stays in the main memory, and the kernel's body
        copies from it or to it.
    fetches : int
        How often a block is fetched, or written back; 0 without one.
    moved : float
        Bytes of all fetches and copies: across the main memory's boundary on a TPU, asked of the
        caches on a GPU.
    result : bool
        Whether it is written rather than read.
    most : float, optional
        Bytes of all fetches where data choose the blocks, and every step may fetch another one;
        `moved` is then the array once. None where the blocks are known. Of a kernel whose grid
        depends on data, the array once, and `moved` one of those that it stacks.

    Examples
    --------
    >>> size = 2.0 * 4096**2
    >>> x = Operand("x", (4096, 4096), "bfloat16", size, (512, 512), 512, 512 * 2.0 * 512**2, False)
    >>> x.moved / x.size
    8.0
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: float
    block: tuple[int, ...] | None
    fetches: int
    moved: float
    result: bool
    most: float | None = None


@dataclass(frozen=True, repr=False)
class PallasKernel(Facts):
    """A Pallas kernel as counted from what JAX traced of it, all steps of its grid together.

    It can be held against a roofline as any count: ``rh.chip("v6e").roofline("bf16").bound(it)``.

    Parameters
    ----------
    name : str
        As its author called it.
    machine : str
        Who moves its blocks: one of `MACHINES`.
    grid : tuple of int
        Steps along each axis, the last one fastest.
    operands : tuple of Operand
        Operands, then results.
    matrix_flops, vector_flops, transcendentals : float
        Of all steps. `vector_flops` includes the transcendentals.
    types : tuple of str
        Data types of its products.
    unsure : tuple of str
        What wasn't known, so that the count is of the dearest branch, or of one turn.
    vmem : float
        Bytes on the chip that its blocks take, two buffers each unless the spec says otherwise,
        and its scratch: before padding to registers, and before the compiler saves a buffer. 0 for
        a GPU.
    declared : mapping of str to float, optional
        Its author's `CostEstimate`: "flops", "bytes_accessed", "transcendentals".

    Examples
    --------
    >>> x = Operand("x", (64, 128), "float32", 32768.0, (8, 128), 8, 32768.0, False)
    >>> y = Operand("y", (64, 128), "float32", 32768.0, (8, 128), 8, 32768.0, True)
    >>> kernel = PallasKernel("double", "tpu", (8,), (x, y), 0.0, 8192.0, 0.0)
    >>> kernel
    <double, grid 8: 8.19 kFLOP, 65.5 kB, no cost declared>
    >>> kernel.bytes, kernel.intensity
    (65536.0, 0.125)
    """

    name: str
    machine: str
    grid: tuple[int, ...]
    operands: tuple[Operand, ...]
    matrix_flops: float
    vector_flops: float
    transcendentals: float
    types: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    vmem: float = 0.0
    declared: Mapping[str, float] | None = None

    @property
    def flops(self) -> float:
        """All FLOPs."""
        return self.matrix_flops + self.vector_flops

    def _crossing(self, results: bool) -> tuple[float, ...]:
        each = [one for one in self.operands if one.result == results]
        if self.machine == "tpu":
            return tuple(one.moved for one in each)
        return tuple(min(one.moved, one.size) for one in each)

    @property
    def reads(self) -> tuple[float, ...]:
        """Bytes read of each operand from the main memory: on a GPU each at most once."""
        return self._crossing(results=False)

    @property
    def writes(self) -> tuple[float, ...]:
        """Bytes written of each result to the main memory: on a GPU each at most once."""
        return self._crossing(results=True)

    @property
    def bytes(self) -> float:
        """Bytes across the main memory's boundary: exact on a TPU, the least on a GPU.

        A GPU's caches keep what programs share, if they can: the truth is between `bytes` and
        `asked`.
        """
        return sum(self.reads) + sum(self.writes)

    @property
    def most(self) -> float | None:
        """Bytes at most where data choose its blocks: what its author declares, else every step's.

        None where the blocks are known, so that `bytes` is all there is to say.
        """
        if all(one.most is None for one in self.operands):
            return None
        stated = (self.declared or {}).get("bytes_accessed", 0.0)
        each = sum(one.moved if one.most is None else one.most for one in self.operands)
        return stated if stated > self.bytes else max(each, self.bytes)

    @property
    def asked(self) -> float:
        """Bytes that the steps ask for, whoever has them: what a GPU without caches would move."""
        return sum(one.moved for one in self.operands)

    @property
    def intensity(self) -> float:
        """FLOP/byte at the main memory."""
        return self.flops / self.bytes if self.bytes else math.inf

    @property
    def traffic(self) -> dict[str, float]:
        """Bytes by memory level, as a roofline wants them."""
        return {"hbm": self.bytes}

    def table(self) -> pandas.DataFrame:
        """Return a table: what each operand's block spec makes of it."""
        return table(
            {
                "operand": f"{one.name}, written" if one.result else one.name,
                "array": _times(one.shape),
                "block": "–" if one.block is None else _times(one.block),
                "fetches": one.fetches or None,
                "MB": one.moved / 1e6,
                "× its size": one.moved / one.size if one.size else None,
            }
            for one in self.operands
        )

    def _title(self) -> str:
        return f"{self.name or 'Pallas kernel'}, grid {_times(self.grid)}"

    def _facts(self) -> dict[str, str]:
        stated = self.declared
        facts = {"FLOPs": si(self.flops, "FLOP"), "bytes": si(self.bytes, "B")}
        if self.machine != "tpu":
            facts["asked"] = f"{si(self.asked, 'B')} asked of the caches"
        if self.vmem:
            facts["VMEM"] = f"{si(self.vmem, 'B')} of VMEM"
        facts["declared"] = "no cost declared"
        if stated is not None:
            both = si(stated["flops"], "FLOP"), si(stated["bytes_accessed"], "B")
            facts["declared"] = f"{' and '.join(both)} declared"
        return facts | ({"unsure": ", ".join(self.unsure)} if self.unsure else {})


def _times(sizes: tuple[int, ...]) -> str:
    return " × ".join(f"{size:,}" for size in sizes) or "1"
