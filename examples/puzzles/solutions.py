"""One solution of each puzzle of notebooks/puzzles.ipynb: yours may be another one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

FP32 = functools.partial(jnp.dot, preferred_element_type=jnp.float32)


def scale_and_bias(x, scale, bias):
    """1: both steps on one block."""

    def kernel(x_ref, scale_ref, bias_ref, y_ref):
        y_ref[...] = x_ref[...] * scale_ref[...] + bias_ref[...]

    rows = pl.BlockSpec((256, x.shape[1]), lambda i: (i, 0))
    line = pl.BlockSpec((1, x.shape[1]), lambda i: (0, 0))
    grid = (pl.cdiv(len(x), 256),)
    specs = {"in_specs": [rows, line, line], "out_specs": rows}
    return pl.pallas_call(kernel, grid=grid, **specs, out_shape=x)(x, scale, bias)


def quantise(x):
    """2: norm, scale and rounding of a row while it is on the chip."""

    def kernel(x_ref, q_ref, step_ref):
        x = x_ref[...]
        normal = x * lax.rsqrt(jnp.mean(x * x, 1, keepdims=True) + 1e-6)
        step = jnp.max(jnp.abs(normal), 1, keepdims=True) / 127
        shares = normal / jnp.where(step > 0, step, 1)
        q_ref[...] = jnp.round(shares).astype(jnp.int8)
        step_ref[...] = step

    rows = pl.BlockSpec((256, x.shape[1]), lambda i: (i, 0))
    column = pl.BlockSpec((256, 1), lambda i: (i, 0))
    out = [jax.ShapeDtypeStruct(x.shape, jnp.int8), jax.ShapeDtypeStruct((len(x), 1), x.dtype)]
    specs = {"in_specs": [rows], "out_specs": [rows, column], "out_shape": out}
    return pl.pallas_call(kernel, grid=(pl.cdiv(len(x), 256),), **specs)(x)


def add_transposed(x, y):
    """3: block (j, i) of y, transposed on the chip, belongs to block (i, j) of x."""

    def kernel(x_ref, y_ref, z_ref):
        z_ref[...] = x_ref[...] + y_ref[...].T

    here = pl.BlockSpec((512, 512), lambda i, j: (i, j))
    there = pl.BlockSpec((512, 512), lambda i, j: (j, i))
    grid = (pl.cdiv(x.shape[0], 512), pl.cdiv(x.shape[1], 512))
    specs = {"in_specs": [here, there], "out_specs": here}
    return pl.pallas_call(kernel, grid=grid, **specs, out_shape=x)(x, y)


def tall_matmul(x, w):
    """4: all of w is one block, whose index never changes; a block of x has its whole depth."""

    def kernel(x_ref, w_ref, z_ref):
        z_ref[...] = FP32(x_ref[...], w_ref[...]).astype(z_ref.dtype)

    rows = pl.BlockSpec((512, x.shape[1]), lambda i: (i, 0))
    whole = pl.BlockSpec(w.shape, lambda i: (0, 0))
    result = pl.BlockSpec((512, w.shape[1]), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct((len(x), w.shape[1]), x.dtype)
    specs = {"in_specs": [rows, whole], "out_specs": result, "out_shape": out}
    return pl.pallas_call(kernel, grid=(pl.cdiv(len(x), 512),), **specs)(x, w)


def running_sum(x):
    """5: the sum of all blocks so far waits in scratch memory for the next step."""

    def kernel(x_ref, y_ref, sum_ref):
        @pl.when(pl.program_id(0) == 0)
        def start():
            sum_ref[...] = jnp.zeros_like(sum_ref)

        lower = jnp.tril(jnp.ones((128, 128), x.dtype))
        y_ref[...] = sum_ref[...] + FP32(lower, x_ref[...], precision="highest")
        sum_ref[...] = y_ref[127:, :]

    rows = pl.BlockSpec((128, x.shape[1]), lambda i: (i, 0))
    scratch = [pltpu.VMEM((1, x.shape[1]), jnp.float32)]
    specs = {"in_specs": [rows], "out_specs": rows, "scratch_shapes": scratch}
    return pl.pallas_call(kernel, grid=(len(x) // 128,), **specs, out_shape=x)(x)


def int4_matmul(x, packed, scale):
    """6: a block of packed weights becomes two blocks of bf16 on the chip only."""
    (rows, depth), n = x.shape, packed.shape[1]

    def kernel(x_ref, packed_ref, scale_ref, z_ref):
        both = packed_ref[...].astype(jnp.int32)
        low, high = ((both << 28) >> 28), both >> 4
        z = FP32(x_ref[:, : depth // 2], low.astype(x.dtype))
        z += FP32(x_ref[:, depth // 2 :], high.astype(x.dtype))
        z_ref[...] = (z * scale_ref[...]).astype(z_ref.dtype)

    def columns(rows):
        return pl.BlockSpec((rows, 256), lambda j: (0, j))

    inputs = [pl.BlockSpec(x.shape, lambda j: (0, 0)), columns(depth // 2), columns(1)]
    out = jax.ShapeDtypeStruct((rows, n), x.dtype)
    specs = {"in_specs": inputs, "out_specs": columns(rows), "out_shape": out}
    return pl.pallas_call(kernel, grid=(pl.cdiv(n, 256),), **specs)(x, packed, scale)


def grouped_matmul(x, w, expert=(4, 0, 2, 0, 5, 2, 1, 2, 0, 4, 2, 5, 4, 2, 4, 0)):
    """7: blocks of one expert are visited one after the other, wherever they lie."""
    block, order = len(x) // len(expert), np.argsort(expert)

    def kernel(order_ref, expert_ref, x_ref, w_ref, z_ref):
        z_ref[...] = FP32(x_ref[...], w_ref[...]).astype(z_ref.dtype)

    grid = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(len(expert),),
        in_specs=[
            pl.BlockSpec((block, x.shape[1]), lambda i, order, _: (order[i], 0)),
            pl.BlockSpec((None, *w.shape[1:]), lambda i, _, expert: (expert[i], 0, 0)),
        ],
        out_specs=pl.BlockSpec((block, w.shape[2]), lambda i, order, _: (order[i], 0)),
    )
    out = jax.ShapeDtypeStruct((len(x), w.shape[2]), x.dtype)
    prefetched = jnp.asarray(order, jnp.int32), jnp.asarray(np.take(expert, order), jnp.int32)
    return pl.pallas_call(kernel, grid_spec=grid, out_shape=out)(*prefetched, x, w)


def causal_attention(q, k, v):
    """8: many queries share a block of keys; a skipped step keeps the block that is there."""
    heads, length, width = q.shape
    rows, keys = 512, 128

    def last(i):  # the last block of keys that any row sees
        return jnp.minimum((i + 1) * (rows // keys), length // keys) - 1

    def kernel(q_ref, k_ref, v_ref, o_ref, high_ref, total_ref, sums_ref):
        i, j = pl.program_id(1), pl.program_id(2)

        @pl.when(j == 0)
        def start():
            high_ref[...] = jnp.full_like(high_ref, -jnp.inf)
            total_ref[...] = jnp.zeros_like(total_ref)
            sums_ref[...] = jnp.zeros_like(sums_ref)

        @pl.when(j <= last(i))
        def update():
            s = FP32(q_ref[...], k_ref[...].T) / width**0.5
            row, column = (lax.broadcasted_iota(jnp.int32, s.shape, axis) for axis in (0, 1))
            s = jnp.where(i * rows + row >= j * keys + column, s, -jnp.inf)
            high = jnp.maximum(high_ref[...], s.max(1, keepdims=True))
            p, shrink = jnp.exp(s - high), jnp.exp(high_ref[...] - high)
            total_ref[...] = total_ref[...] * shrink + p.sum(1, keepdims=True)
            sums_ref[...] = sums_ref[...] * shrink + FP32(p.astype(v.dtype), v_ref[...])
            high_ref[...] = high

        @pl.when(j == last(i))
        def finish():
            o_ref[...] = (sums_ref[...] / total_ref[...]).astype(o_ref.dtype)

    mine = pl.BlockSpec((None, rows, width), lambda h, i, j: (h, i, 0))
    seen = pl.BlockSpec((None, keys, width), lambda h, i, j: (h, jnp.minimum(j, last(i)), 0))
    grid = (heads, pl.cdiv(length, rows), length // keys)
    scratch = [pltpu.VMEM((rows, n), jnp.float32) for n in (1, 1, width)]
    specs = {"in_specs": [mine, seen, seen], "out_specs": mine, "scratch_shapes": scratch}
    return pl.pallas_call(kernel, grid=grid, **specs, out_shape=q)(q, k, v)
