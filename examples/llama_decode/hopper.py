"""Kernels of a decode step for Hopper GPUs, in Pallas' Mosaic GPU backend: products and norms.

Each kernel asks for its weights before it waits for the kernel before it (programmatic dependent
launch, `chain`), so that memory keeps streaming across the boundary of two kernels. Needs
JAX ≥ 0.11 and a GPU of compute capability 9.0; `interpret` runs them on a CPU, without `chain`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as gpu

from .model import Array
from .plan import Cut

SWIZZLE = (gpu.TilingTransform((8, 64)), gpu.SwizzleTransform(128))
"""How the matrix unit wants a tile of 16-bit numbers in shared memory."""
M = 64
"""Rows that one instruction of the matrix unit takes: smaller batches are filled up with zeros."""
SHARED = 226_000
"""Bytes of shared memory for the buffers of one program."""
BUFFERS_OF_X = 4
CHUNK = 512
"""Numbers of a row that one program of `add` takes."""
FAST = gpu.CompilerParams(approx_math=True)


def let_next_start(chain: bool) -> None:
    """Let the next kernel's programs start where there is room: they wait by themselves."""
    if chain:
        gpu.griddepcontrol_launch_dependents()


def wait_for_previous(chain: bool) -> None:
    """Wait until the kernel before this one is done and what it wrote can be read."""
    if chain:
        gpu.griddepcontrol_wait()


@dataclass(frozen=True)
class Stream:
    """Blocks of an array on their way through a ring of buffers.

    Parameters
    ----------
    block : callable
        The reference to block i in global memory.
    buffers, ready : references
        [stages, …] in shared memory, and as many barriers.
    blocks : int or scalar
        How many there are.
    stages : int
        How many buffers.
    rows : int, optional
        A block fills only the first rows of its buffer.
    base : int or scalar
        The ring begins at this buffer and barrier.
    """

    block: Callable[[Any], Any]
    buffers: Any
    ready: Any
    blocks: Any
    stages: int
    rows: int | None = None
    base: Any = 0

    def slot(self, i: Any) -> Any:
        """Return the number of the buffer that block i passes through."""
        return self.base + lax.rem(jnp.int32(i), self.stages)

    def ask(self, i: Any) -> None:
        """Have block i copied, whose buffer must be free."""
        slot = self.slot(i)
        rows = () if self.rows is None else (pl.ds(0, self.rows),)
        target = self.buffers.at[(slot, *rows)]
        gpu.copy_gmem_to_smem(self.block(i), target, self.ready.at[slot])

    def wait(self, i: Any) -> None:
        """Wait for block i."""
        gpu.barrier_wait(self.ready.at[self.slot(i)])

    def buffer(self, i: Any) -> Any:
        """Return where block i is."""
        return self.buffers.at[self.slot(i)]

    def refill(self, used: Any) -> None:
        """Ask for the block that takes the place of block `used`."""
        i = used + self.stages
        pl.when((used >= 0) & (i < self.blocks))(lambda: self.ask(i))


def pack(w: Array, cut: Cut) -> Array:
    """Return [N, K] as [N / tile, K / depth, tile, depth]: what one copy brings is contiguous."""
    n, k = w.shape
    return w.reshape(n // cut.tile, cut.tile, k // cut.depth, cut.depth).swapaxes(1, 2)


def linear(
    x: Array,
    packed: Array,
    cut: Cut,
    squares: Array | None = None,
    *,
    epsilon: float = 1e-5,
    swiglu: bool = False,
    narrow: bool = False,
    chain: bool = True,
    interpret: Any = None,
    name: str = "linear",
) -> Array:
    """Return x · wᵀ as partial sums over K, or SwiGLU of it.

    Parameters
    ----------
    x : Array
        [B, K] in bfloat16, B a multiple of 8, at most 64.
    packed : Array
        What `pack` makes of w in bfloat16. With `swiglu` the first half of each tile's rows is of
        the gate, the other half of the projection up, and there is one split.
    squares : Array, optional
        [C, 64] in float32: sums of squares over C parts of each row. The product is then one with
        each row divided by its root mean square (plus epsilon, under the root).

    narrow : bool
        The partial sums are rounded to bfloat16: half the bytes for whoever adds them up.

    Returns
    -------
    Array
        [splits, B, N] in float32, or bfloat16; [B, N / 2] in bfloat16 with `swiglu`.
    """
    rows = len(x)
    tiles, blocks, tile, depth = packed.shape
    wide = tile // 2 if swiglu else tile
    dtype = jnp.bfloat16 if swiglu or narrow else jnp.float32
    steps = blocks // cut.splits
    of_x = min(BUFFERS_OF_X, steps)
    room = (SHARED - of_x * M * depth * 2) // (tile * depth * 2)
    stages, ahead = cut.ring.within(min(room, steps))

    def body(x_ref: Any, w_ref: Any, *rest: Any) -> None:
        *norm, out_ref, shared, w_ready, x_ready = rest
        (x_smem, w_smem), (out_smem,) = shared
        program = lax.axis_index("program")
        column, split = program // cut.splits, lax.rem(program, cut.splits)

        def place(i: Any) -> Any:  # each program begins elsewhere in K: not all at one channel
            return split * steps + lax.rem(i + program, steps)

        def of_activations(i: Any) -> Any:
            return x_ref.at[:, pl.ds(place(i) * depth, depth)]

        def of_weights(i: Any) -> Any:
            return w_ref.at[column, place(i)]

        w = Stream(of_weights, w_smem, w_ready, steps, stages)
        activations = Stream(of_activations, x_smem, x_ready, steps, of_x, rows)
        sums = _multiply(activations, w, (M, tile), ahead, chain)
        if norm:
            sums *= _inverse(norm[0], x_ref.shape[1], epsilon, sums.shape)
        if swiglu:
            gate, up = sums[:, :wide], sums[:, wide:]
            sums = gate / (1.0 + jnp.exp(-gate)) * up
        out_smem[...] = sums.astype(dtype)
        gpu.commit_smem()
        columns = pl.ds(column * wide, wide)
        out = out_ref.at[:, columns] if swiglu else out_ref.at[split, :, columns]
        gpu.copy_smem_to_gmem(out_smem.at[pl.ds(0, rows)], out)
        gpu.wait_smem_to_gmem(0)

    ring = tuple(
        gpu.SMEM((many, side, depth), jnp.bfloat16, transforms=SWIZZLE)
        for many, side in ((of_x, M), (stages, tile))
    )
    shape = (rows, tiles * wide) if swiglu else (cut.splits, rows, tiles * wide)
    return gpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(shape, dtype),
        grid=(tiles * cut.splits,),
        grid_names=("program",),
        scratch_types=(
            gpu.RefUnion(ring, (gpu.SMEM((M, wide), dtype),)),  # the sums take the ring's place
            *(gpu.Barrier(num_barriers=many) for many in (stages, of_x)),
        ),
        compiler_params=FAST,
        interpret=interpret,
        kernel_name=name,
    )(x, packed, *([] if squares is None else [squares]))


def _inverse(squares_ref: Any, width: int, epsilon: float, shape: tuple[int, ...]) -> Any:
    """Return 1 / root mean square of each row, across the columns."""
    rows = gpu.Layout.WGMMA.reduce((1,))
    total = sum(
        gpu.load(squares_ref.at[i], layout=rows, optimized=False)
        for i in range(squares_ref.shape[0])
    )
    return lax.broadcast_in_dim(lax.rsqrt(total * (1 / width) + epsilon), shape, (0,))


def _multiply(x: Stream, w: Stream, shape: tuple[int, int], ahead: int, chain: bool) -> Any:
    """Return the sum of products of the blocks of x with those of w, in registers."""
    for i in range(ahead):
        w.ask(i)
    let_next_start(chain)
    if x.rows != M:
        for i in range(x.stages):
            zeros = jnp.zeros(x.buffers.shape[1:], jnp.bfloat16)
            x.buffers[i] = gpu.layout_cast(zeros, gpu.Layout.WGMMA)
        gpu.commit_smem()
    wait_for_previous(chain)
    for i in range(x.stages):
        x.ask(i)
    for i in range(ahead, w.stages):
        w.ask(i)

    def compute(sums: Any) -> Any:
        def block(i: Any) -> None:
            w.wait(i)
            x.wait(i)
            gpu.wgmma(sums, x.buffer(i), w.buffer(i).transpose((1, 0)))
            gpu.wgmma_wait(1)  # the product before is done: its buffers are free
            w.refill(i - 1)
            x.refill(i - 1)

        pl.loop(0, w.blocks)(block)
        return sums[...]

    return pl.run_scoped(compute, gpu.ACC(shape, jnp.float32))


def add(
    parts: Array,
    residual: Array,
    gain: Array,
    *,
    chain: bool = True,
    interpret: Any = None,
) -> tuple[Array, Array, Array]:
    """Return the new residual, and what `linear` makes the product with its RMSNorm of.

    parts: [S, B, D] in float32 or bfloat16, residual: [B, D] in float32, gain: [D], D a multiple
    of 512. A program takes 512 numbers of a row, so that none waits for a whole row.

    Returns
    -------
    (Array, Array, Array)
        residual + Σ parts in float32; that times gain in bfloat16; the sum of its squares over
        each 512 numbers, as `linear` takes it.
    """
    many, rows, width = parts.shape

    def body(
        parts_ref: Any, old_ref: Any, gain_ref: Any, new_ref: Any, out_ref: Any, squares_ref: Any
    ) -> None:
        row, chunk = lax.axis_index("row"), lax.axis_index("chunk")
        columns = pl.ds(chunk * CHUNK, CHUNK)

        def read(ref: Any) -> Any:
            layout = gpu.Layout.WG_STRIDED((CHUNK,), vec_size=4)
            return gpu.load(ref, layout=layout, optimized=False)

        let_next_start(chain)
        scale = read(gain_ref.at[columns]).astype(jnp.float32)
        wait_for_previous(chain)
        x = read(old_ref.at[row, columns])
        for i in range(many):
            x = x + read(parts_ref.at[i, row, columns]).astype(jnp.float32)
        new_ref[row, columns] = x
        out_ref[row, columns] = (x * scale).astype(jnp.bfloat16)
        squares_ref[chunk, row] = jnp.sum(x * x)

    shapes = ((rows, width), jnp.float32), ((rows, width), jnp.bfloat16)
    squares = (width // CHUNK, M), jnp.float32
    new, out, sums = gpu.kernel(
        body,
        out_type=tuple(jax.ShapeDtypeStruct(*each) for each in (*shapes, squares)),
        grid=(rows, width // CHUNK),
        grid_names=("row", "chunk"),
        compiler_params=FAST,
        interpret=interpret,
        kernel_name="add",
    )(parts, residual, gain)
    return new, out, sums


def first_squares(residual: Array) -> Array:
    """Return the sums of squares that `add` makes, where there is nothing to add."""
    rows, width = residual.shape
    chunks = residual.reshape(rows, width // CHUNK, CHUNK)
    return jnp.pad((chunks * chunks).sum(axis=2).T, ((0, 0), (0, M - rows)))
