"""Conclusions of the chapter fused-kernel: each test would refute one."""

import jax
from jax.experimental import pallas as pl

import roofline_helpers as rh
from roofline import xla

SIZE = 4096


def matmul_bytes(bm, bn, bk):
    """Return the bytes that a tiled matmul of 4096³ in bf16 moves by its grid and blocks."""

    def tiled(x, y):
        return pl.pallas_call(
            lambda x, y, z: None,
            grid=(SIZE // bm, SIZE // bn, SIZE // bk),
            in_specs=[
                pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)),
                pl.BlockSpec((bk, bn), lambda i, j, k: (k, j)),
            ],
            out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)),
            out_shape=jax.ShapeDtypeStruct((SIZE, SIZE), x.dtype),
        )(x, y)

    square = jax.ShapeDtypeStruct((SIZE, SIZE), "bfloat16")
    (kernel,) = xla.pallas_kernels(tiled, square, square)
    return kernel.bytes


def test_depth_saves_bytes_only_where_it_is_all_of_k():
    for side in (512, 1024):
        flat = {matmul_bytes(side, side, depth) for depth in (128, 512, 1024, 2048)}
        assert len(flat) == 1
        assert matmul_bytes(side, side, SIZE) < 0.7 * flat.pop()


def test_arrays_that_a_cache_holds_cross_dram_less_than_once():
    """So what a GPU's counters must see at least holds for cold arrays alone."""
    for chip in ("h100", "h200"):
        warm = rh.measured.device_records()[chip].sample("matmul 2048×2048×2048 bf16")
        assert warm.dram_bytes is not None
        assert warm.dram_bytes < 0.8 * warm.bytes
