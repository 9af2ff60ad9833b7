"""LayerNorm's kernels: their bodies, and how they cut an array into rows.

A program owns `tile.block` rows and walks through them `tile.step` at a time, so that its working
set stays small. The arrays that tile.walk() passes to a step are fp32, and zero outside the array.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl

from roofline.kernels.launch import (
    LANES,
    LOG2E,
    SUBLANES,
    Index,
    Options,
    Ref,
    round_up,
    sum_along,
    triton_backend,
)

_VMEM = 8 * 2**20  # bytes of blocks that a TPU program requests if it has the choice
_LEAST = float(jnp.finfo(jnp.float32).min)


def forward_kernel(*refs: Ref, tile: Rows) -> None:
    """Write g = gelu(γ · x̂ + β), x̂ the normalised row, or residual + g · mask / (1 − rate)."""
    x, gamma, beta, *ends, y = refs

    def step(i: Index, loaded: Any, carry: Any) -> Any:
        values, *others = loaded
        normal, _ = tile.standardise(values, i)
        result, _ = gelu_and_slope(normal * tile.vector(gamma) + tile.vector(beta))
        if others:
            mask, skip = others
            result = skip + result * (mask * tile.keep)
        tile.store(y, i, result)
        return carry

    tile.walk([x, *ends], step, 0)


def backward_kernel(*refs: Ref, tile: Rows) -> None:
    """Write dx, and this program's share of dγ and dβ.

    With x̂ the normalised row, u = γx̂ + β and d = dy · mask/(1 − p) · gelu'(u):
    dγ = Σ d·x̂ and dβ = Σ d over all rows, and with g = d·γ, over each row,
    dx = (g − mean(g) − x̂ · mean(g·x̂)) / σ.
    """
    x, gamma, beta, *mask, dy, dx, dgamma, dbeta = refs

    def step(i: Index, loaded: Any, sums: Any) -> Any:
        values, d, *kept = loaded
        normal, inverse = tile.standardise(values, i)
        scale = tile.vector(gamma)
        _, slope = gelu_and_slope(normal * scale + tile.vector(beta))
        d = d * slope
        if kept:
            d = d * (kept[0] * tile.keep)
        sums = sums[0] + sum_along(d * normal, axis=0), sums[1] + sum_along(d, axis=0)
        g = d * scale
        along = tile.mean(g * normal)
        tile.store(dx, i, (g - tile.mean(g) - normal * along) * inverse)
        return sums

    nothing = jnp.zeros((1, tile.width), jnp.float32)
    total_gamma, total_beta = tile.walk([x, dy, *mask], step, (nothing, nothing))
    tile.store_vector(dgamma, total_gamma)
    tile.store_vector(dbeta, total_beta)


def gelu_and_slope(u: Array) -> tuple[Array, Array]:
    """Return GELU's tanh form and its slope.

    u/2 · (1 + tanh v) = u · s with s = 1 / (1 + e^(−2v)) and v = √(2/π) · (u + 0.044715 u³): the
    same function, without the cancellation in 1 + tanh v, and quicker than tanh on a GPU. Its
    unit for exponentials works in powers of two, so log₂ e goes into the constants.
    """
    k, cubic = 2 * math.sqrt(2 / math.pi), 0.044715
    square = u * u
    s = 1.0 / (1.0 + jnp.exp2(u * (square * (-LOG2E * k * cubic) - LOG2E * k)))
    gelu = u * s
    return gelu, s + gelu * (1.0 - s) * (square * (3 * cubic * k) + k)


@dataclass(frozen=True)
class Rows:
    """The tiles of the LayerNorm kernels: `programs` blocks of `block` rows, `step` at a time."""

    rows: int
    columns: int
    block: int
    step: int
    width: int  # columns, or the power of two above
    eps: float
    keep: float  # 1 / (1 − rate)
    triton: bool  # compiled by Triton: loads and stores take the mask
    first: Index = 0  # this program's first row, known inside a kernel only

    @property
    def programs(self) -> int:
        """Programs that share the rows."""
        return -(-self.rows // self.block)

    @property
    def ragged_rows(self) -> bool:
        """Whether the last program has rows outside the array."""
        return self.rows % self.block != 0

    @property
    def ragged_columns(self) -> bool:
        """Whether a row is wider here than in the array."""
        return self.width != self.columns

    def walk(self, refs: Sequence[Ref], body: Callable[..., Any], start: Any) -> Any:
        """Do ``body(i, arrays, carry)`` for each step of this program's rows.

        All loads of a step are issued before the first is used, so that they overlap and a
        program waits once per step.
        """

        def step(i: Index, carry: Any) -> Any:
            loaded = [_load(self.at(ref, i), self.inside(i), self.triton) for ref in refs]
            return body(i, loaded, carry)

        steps = self.block // self.step
        return step(0, start) if steps == 1 else lax.fori_loop(0, steps, step, start)

    def lanes(self) -> Array:
        """Tell which lanes of a row lie in the array."""
        return lax.broadcasted_iota(jnp.int32, (1, self.width), 1) < self.columns

    def inside(self, i: Index) -> Array | None:
        """Tell which elements of step i lie in the array; None if all do, whatever i is."""
        first = self.first + i * self.step
        row = first + lax.broadcasted_iota(jnp.int32, (self.step, 1), 0)
        masks = [row < self.rows] * self.ragged_rows + [self.lanes()] * self.ragged_columns
        if not masks:
            return None
        return jnp.broadcast_to(functools.reduce(jnp.logical_and, masks), (self.step, self.width))

    def at(self, ref: Ref, i: Index) -> Ref:
        """Return the view of step i's rows."""
        if self.step == self.block:
            return ref.at[:, :]
        return ref.at[pl.ds(pl.multiple_of(i * self.step, self.step), self.step), :]

    def store(self, ref: Ref, i: Index, value: Array) -> None:
        """Store step i's rows, in the type of the array."""
        _store(self.at(ref, i), value, self.inside(i), self.triton)

    def vector(self, ref: Ref) -> Array:
        """Load a [1, columns] array as fp32, zero outside.

        It is loaded where it is used. Loaded at the start, it would occupy registers all the time,
        and fewer programs would run at once: 40 registers per thread instead of 32 with 16 warps,
        as measured on an H100.
        """
        return _load(ref.at[:, :], self.lanes() if self.ragged_columns else None, self.triton)

    def store_vector(self, ref: Ref, value: Array) -> None:
        """Store a [1, columns] array."""
        inside = self.lanes() if self.ragged_columns else None
        _store(ref.at[:, :], value, inside, self.triton)

    def mean(self, x: Array) -> Array:
        """Return each row's mean: lanes outside must hold zero, and don't count."""
        return sum_along(x, axis=1) * (1 / self.columns)

    def standardise(self, x: Array, i: Index) -> tuple[Array, Array]:
        """Return (x − mean) / √(variance + ε), and 1 / √(variance + ε).

        The variance is that of the centred values, never mean(x²) − mean². The mean of a row
        near 10⁴ is itself rounded, to about 0.001 in fp32; the mean of the centred values is that
        error, and corrects both. Lanes outside would hold −mean, so they are zeroed.

        The maximum changes no value. It keeps sum · (1/n) and x − mean apart, which a compiler
        could contract to one fused multiply-add, whose mean is not rounded, in one place and not
        in another: near 10⁴ the two differ by as much as the error to be corrected.
        """
        shift = jnp.maximum(self.mean(x), _LEAST)
        centred = x - shift
        inside = self.inside(i)
        if inside is not None:
            centred = jnp.where(inside, centred, 0.0)
        slip = self.mean(centred)
        variance = jnp.maximum(self.mean(centred * centred) - slip * slip, 0.0)
        inverse = lax.rsqrt(variance + self.eps)
        normal = centred * inverse - slip * inverse
        return (normal if inside is None else jnp.where(inside, normal, 0.0)), inverse


def _load(view: Ref, inside: Array | None, triton: bool) -> Array:
    """Return a block as fp32; lanes that lie outside the array are zero."""
    if inside is None:
        return _wide(view[...])
    if triton:  # lanes outside must not be read: they may be another row's memory, or unmapped
        return _wide(triton_backend().load(view, mask=inside, other=0))
    return jnp.where(inside, _wide(view[...]), 0)  # padding may be anything, even NaN


def _wide(value: Array) -> Array:
    if jnp.issubdtype(value.dtype, jnp.integer):
        value = value.astype(jnp.int32)
    return value.astype(jnp.float32)


def _store(view: Ref, value: Array, inside: Array | None, triton: bool) -> None:
    value = value.astype(view.dtype)
    if inside is None or not triton:
        view[...] = value  # what lies outside the array is dropped
    else:
        triton_backend().store(view, value, mask=inside)


def located_at(kernel: Callable[..., None], tile: Rows) -> Callable[..., None]:
    """Return the kernel with its first row known: program_id can't be read inside loops."""

    @functools.wraps(kernel)
    def located(*refs: Ref) -> None:
        kernel(*refs, tile=replace(tile, first=pl.program_id(0) * tile.block))

    return located


def row_specs(tile: Rows) -> tuple[pl.BlockSpec, pl.BlockSpec]:
    """Return the specs of a block of rows, and of a [1, columns] array."""
    whole = pl.BlockSpec((tile.block, tile.width), lambda i: (i, 0))
    vector = pl.BlockSpec((1, tile.width), lambda i: (0, 0))
    return whole, vector


def cut_rows(
    options: Options,
    layout: str,
    interpret: bool,
    arrays: Sequence[Array],
    backward: bool = False,
) -> Rows:
    """Choose how to cut [rows, columns] arrays, of which `arrays` pass through a program."""
    rows, columns = arrays[0].shape
    if layout == "gpu":
        width = pl.next_power_of_2(columns)
        step = max(1, min(pl.next_power_of_2(rows), 512 // width))
        block = round_up(min(64, -(-rows // 528)), step) if backward else step
    else:
        width = columns
        narrowest = min(array.dtype.itemsize for array in arrays)
        packed = SUBLANES * 4 // narrowest  # rows of one register: int8 must be read by these
        step = SUBLANES if narrowest > 1 and width > 2**15 else packed
        each_row = round_up(columns, LANES) * sum(array.dtype.itemsize for array in arrays)
        fitting = max(1, _VMEM // (2 * each_row * step))
        block = step * min(fitting, max(1, 512 // step))
    return Rows(
        rows=rows,
        columns=columns,
        block=min(round_up(block, step), round_up(rows, step)),
        step=step,
        width=width,
        eps=options.eps,
        keep=1 / (1 - options.rate),
        triton=layout == "gpu" and not interpret,
    )


def warps_of_rows(tile: Rows) -> int:
    """Return the warps of a GPU program: up to 8, and more where a thread would hold over 32."""
    elements = tile.step * tile.width
    return max(1, min(8, elements // 512), min(32, elements // 1024))


def vmem_of_rows(tile: Rows, arrays: Sequence[Array]) -> int:
    """Return the bytes of VMEM: each array's block twice, and 8 fp32 intermediates of a step."""
    lanes = round_up(tile.width, LANES)
    per_row: int = sum(array.dtype.itemsize for array in arrays if array.ndim == 2)
    return lanes * (2 * tile.block * (per_row + 4) + 8 * 4 * tile.step + 16 * SUBLANES * 4)
