# mypy: ignore-errors
"""LayerNorm → GELU → dropout → residual on Hopper's copy engine: an experiment in Mosaic GPU.

    python -m tools.gpu.hopper_chain --out h200-tma.json

On a GPU, XLA sets nearly all of the L1 cache aside as shared memory, which Pallas' Triton kernels
don't use. Pallas' other GPU backend, Mosaic GPU, does: here the tensor memory accelerator (TMA)
copies rows to it and back, past the L1, which is left to γ and β. Needs JAX ≥ 0.10 and a GPU of
compute capability 9.0; our Triton kernel is timed as well where there are Triton and PyTorch.

One program a row, in shared memory; arithmetic in fp32, exponentials and roots approximate.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import math
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import mosaic_gpu as gpu

from roofline_helpers import measure, records
from roofline_helpers._checks import BadValue
from tools.gpu.chain import EPS, RATE, chain_mask, pallas_chain
from tools.gpu.pytorch import Torch

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


def by_hand(rows, columns):
    """Return the seconds of the kernel written in Triton; None where there is none."""
    try:
        import torch

        from tools.gpu import triton_chain
    except ImportError:
        return None
    sizes = ((rows, columns), (columns,), (columns,), (rows, columns), (rows, columns))
    tensors = [torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in sizes]
    call = triton_chain.start(*tensors, EPS, RATE, torch.empty_like)
    return measure.clock(Torch(call)).median


def main():
    """Time our kernel by both backends, in turn, and Triton's; write them down."""
    parser = argparse.ArgumentParser(description="The chain by Pallas' two GPU backends.")
    parser.add_argument("--out", metavar="FILE.json")
    out = parser.parse_args().out
    made = arrays(*SHAPE)
    ways = {"Pallas": pallas_chain, "Pallas, Mosaic GPU": chain}
    ours, theirs = (jax.jit(way)(*made).astype(jnp.float32) for way in ways.values())
    error = float(jnp.max(jnp.abs(ours - theirs)))
    del ours, theirs
    seconds = {name: [] for name in ways}
    for name in [*ways, *reversed(ways)]:
        seconds[name].append(measure.time(ways[name], *made).median)
        print(f"{name}: {1e6 * seconds[name][-1]:.1f} µs", flush=True)
    if (alone := by_hand(*SHAPE)) is not None:
        seconds["Triton by hand"] = [alone]
        print(f"Triton by hand: {1e6 * alone:.1f} µs", flush=True)
    if out:
        about = measure.device()
        trial = {
            "schema": measure.TRIAL,
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command": f"python -m tools.gpu.hopper_chain --out {Path(out).name}",
            "device": {"kind": about["kind"], "chip": about["chip"]},
            "software": measure.software(),
            "shape": list(SHAPE),
            "error": error,
            "notes": list(measure.busy()),
            "seconds": seconds,
        }
        records.save(out, trial)


if __name__ == "__main__":
    main()
