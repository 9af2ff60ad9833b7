# mypy: ignore-errors
"""LayerNorm → GELU → dropout → residual on Hopper's copy engine: an experiment in Mosaic GPU.

On a GPU, XLA sets nearly all of the L1 cache aside as shared memory, which Pallas' Triton kernels
don't use. Pallas' other GPU backend, Mosaic GPU, does: here the tensor memory accelerator (TMA)
copies rows to it and back, past the L1, which is left to γ and β. Needs JAX ≥ 0.10 and a GPU of
compute capability 9.0. Its time, beside those of the Triton kernels, is the trial "h200-tma".

One program a row, in shared memory; arithmetic in fp32, exponentials and roots approximate.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import mosaic_gpu as gpu

from roofline_helpers.common.checks import BadValue
from tools.gpu.chain import EPS, RATE, chain_mask

WIDE = 256  # elements: the copy engine takes no longer side of a box
SHAPE = 65536, 4096
LOG2E, CUBIC = 1 / math.log(2), 0.044715
SLOPE = 2 * math.sqrt(2 / math.pi)


def gelu(u):
    """Return GELU's tanh form, u / (1 + e^(−2v)), as in `kernels`: 1/z as the square of 1/√z."""
    square = u * u
    z = 1.0 + jnp.exp2(u * (square * (-LOG2E * SLOPE * CUBIC) - LOG2E * SLOPE))
    root = lax.rsqrt(z)
    return u * (root * root)


def program(x, gamma, beta, mask, residual, y, row_of_x, row_of_mask, row_of_residual, first, rest):
    """Work out one row: arrays in global memory, three rows in shared memory, two barriers."""
    row, n = lax.axis_index("row"), x.shape[1] * x.shape[2]
    load = functools.partial(gpu.load, layout=gpu.Layout.WG_STRIDED(x.shape[1:], vec_size=8))
    gpu.copy_gmem_to_smem(x.at[row], row_of_x, first)
    gpu.copy_gmem_to_smem(mask.at[row], row_of_mask, rest)
    gpu.copy_gmem_to_smem(residual.at[row], row_of_residual, rest)
    gpu.barrier_wait(first)
    values = load(row_of_x, ()).astype(jnp.float32)
    centred = values - jnp.sum(values) * (1 / n)
    inverse = lax.rsqrt(jnp.sum(centred * centred) * (1 / n) + EPS)
    scale, shift = (load(each, (), optimized=False) for each in (gamma, beta))
    u = gelu(centred * inverse * scale.astype(jnp.float32) + shift.astype(jnp.float32))
    gpu.barrier_wait(rest)
    kept, skip = load(row_of_mask, ()), load(row_of_residual, ())
    u = skip.astype(jnp.float32) + u * (kept.astype(jnp.float32) * (1 / (1 - RATE)))
    row_of_x[...] = u.astype(x.dtype)
    gpu.commit_smem()
    gpu.copy_smem_to_gmem(row_of_x, y.at[row])
    gpu.wait_smem_to_gmem(0)


def chain(x, gamma, beta, mask, residual, **options):
    """Return residual + gelu(layernorm(x)) · mask / (1 − RATE). Columns: a multiple of 1024."""
    if x.shape[1] % 1024:  # 128 threads, 8 elements each
        raise BadValue(f"x must have a multiple of 1024 columns, got {x.shape[1]}")
    line = x.shape[1] // WIDE, WIDE
    rows = x.shape[0], *line
    run = gpu.kernel(
        program,
        out_type=jax.ShapeDtypeStruct(rows, x.dtype),
        grid=rows[:1],
        grid_names=("row",),
        scratch_types=[
            *(gpu.SMEM(line, each.dtype) for each in (x, mask, residual)),
            gpu.Barrier(num_arrivals=1),
            gpu.Barrier(num_arrivals=2),
        ],
        compiler_params=gpu.CompilerParams(approx_math=True),
        **options,
    )
    across, whole = (gamma, beta), (mask, residual)
    return run(
        x.reshape(rows),
        *(each.reshape(line) for each in across),
        *(each.reshape(rows) for each in whole),
    ).reshape(x.shape)


def arrays(rows, columns):
    """Return x, γ, β, mask and residual in bf16."""
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = (rows, columns), (columns,), (columns,), (rows, columns)
    x, gamma, beta, residual = (
        jax.random.normal(key, shape, jnp.bfloat16) for key, shape in zip(keys, shapes, strict=True)
    )
    return x, gamma, beta, chain_mask(rows, columns)(), residual
