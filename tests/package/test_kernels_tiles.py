"""How kernels cut arrays, what they ask of a compiler, and the work that they declare."""

import functools
import inspect
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roofline import kernels
from roofline.kernels.flash import attention_work
from roofline.kernels.launch import Options, call_options, options_of
from roofline.kernels.layernorm import backward_work
from roofline.kernels.rows import cut_rows, vmem_of_rows, warps_of_rows
from roofline.kernels.tiles import Tiles, cut_tiles, vmem_of_tiles

OPTIONS = Options(eps=1e-4, rate=0.2, scale=0.3, causal=True)


def spec(*shape, dtype="bfloat16"):
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


ATTENTIONS = [
    # layout, kernel, type, head_dim, queries, keys: q, kv, head_dim, queries and keys in blocks
    (("tpu", "forward", "bfloat16", 64, 300, 900), (256, 512, 64, 512, 1024)),
    (("tpu", "dq", "bfloat16", 64, 300, 900), (256, 256, 64, 512, 1024)),
    (("tpu", "dkv", "float32", 80, 1000, 50), (256, 128, 80, 1024, 128)),
    (("tpu", "forward", "bfloat16", 256, 100, 5), (128, 128, 256, 128, 128)),
    (("gpu", "forward", "bfloat16", 80, 300, 450), (128, 64, 128, 384, 512)),
    (("gpu", "dq", "bfloat16", 80, 300, 450), (128, 32, 128, 384, 480)),
    (("gpu", "dkv", "float16", 128, 300, 450), (64, 64, 128, 320, 512)),
    (("gpu", "forward", "bfloat16", 129, 3, 450), (16, 32, 256, 16, 480)),
    (("gpu", "forward", "float32", 5, 300, 20), (32, 32, 16, 320, 32)),
]


@pytest.mark.parametrize(("given", "cut"), ATTENTIONS)
def test_tiles_of_attention(given, cut):
    layout, kind, dtype, head_dim, queries, keys = given
    q, k = (spec(2, 6, length, head_dim, dtype=dtype) for length in (queries, keys))
    tile = cut_tiles(OPTIONS, layout, q, k, kind)
    assert tile == Tiles(*cut[:2], queries, keys, cut[2], 0.3, causal=True)
    assert (tile.q_padded, tile.kv_padded, tile.ahead) == (*cut[3:], keys - queries)


def test_vmem_of_attention():
    q, k = spec(2, 6, 300, 64), spec(2, 3, 900, 64)
    tile = cut_tiles(OPTIONS, "tpu", q, k, "forward")
    row, block = 128 * 2, 128 * 4  # of one key in bf16, and of one row in fp32
    whole = 2 * 2 * 1024 * row + 4 * 1024 * 8 * 4
    assert vmem_of_tiles(tile, q) == whole + 8 * 512 * block + 6 * 256 * 512 * 4
    wide = replace(tile, q=512, kv=256, q_len=1030, head_dim=130)  # queries are longer, two rows
    whole = 2 * 2 * 1536 * 2 * row + 4 * 1536 * 8 * 4
    assert vmem_of_tiles(wide, q) == whole + 8 * 512 * 2 * block + 6 * 512 * 256 * 4


ROWS = [
    # layout, shape, types, backward: rows of a block and of a step, columns, programs, warps
    (("gpu", (3, 3000), "bfloat16 bfloat16", False), (1, 1, 4096, 3, 8)),
    (("gpu", (3, 16000), "bfloat16 bfloat16", False), (1, 1, 16384, 3, 16)),
    (("gpu", (530, 257), "float32 float32", True), (2, 1, 512, 265, 1)),
    (("gpu", (1000, 100), "float32 float32", True), (4, 4, 128, 250, 1)),
    (("gpu", (70000, 100), "float32 float32", True), (64, 4, 128, 1094, 1)),
    (("tpu", (700, 40), "float32 float32", False), (512, 8, 40, 2, 1)),
    (("tpu", (20, 40), "float32 float32", False), (24, 8, 40, 1, 1)),
    (("tpu", (16384, 4096), "bfloat16 int8 bfloat16 bfloat16", False), (128, 32, 4096, 128, 32)),
    (("tpu", (4000, 40000), "bfloat16 bfloat16", False), (24, 8, 40000, 167, 32)),
    (("tpu", (4000, 300), "bfloat16 bfloat16", True), (512, 16, 300, 8, 8)),
    (("tpu", (100, 40000), "bfloat16 int8", False), (32, 32, 40000, 4, 32)),
]


@pytest.mark.parametrize(("given", "cut"), ROWS)
def test_rows_of_the_chain(given, cut):
    layout, shape, types, backward = given
    arrays = [spec(*shape, dtype=dtype) for dtype in types.split()]
    tile = cut_rows(OPTIONS, layout, False, arrays, backward)
    assert (tile.block, tile.step, tile.width, tile.programs, warps_of_rows(tile)) == cut
    assert (tile.rows, tile.columns, tile.eps, tile.keep) == (*shape, 1e-4, 1.25)
    assert tile.triton == (layout == "gpu")
    assert (tile.ragged_rows, tile.ragged_columns) == (shape[0] % cut[0] > 0, shape[1] != cut[2])
    assert not cut_rows(OPTIONS, layout, True, arrays, backward).triton


def test_vmem_of_rows():
    arrays = [spec(4000, 300), spec(4000, 300, dtype="int8"), spec(300)]
    tile = replace(cut_rows(OPTIONS, "tpu", False, arrays[:2]), block=64, step=32)
    # two buffers of both blocks and one of fp32, 8 intermediates, 16 registers; 384 lanes
    assert vmem_of_rows(tile, arrays) == 384 * (2 * 64 * (2 + 1 + 4) + 8 * 4 * 32 + 16 * 8 * 4)


def test_what_a_kernel_asks_of_its_compiler():
    q, k = spec(2, 6, 300, 64), spec(2, 3, 500, 64)
    ask = functools.partial(call_options, job=attention_work(q, k, OPTIONS, "forward"), warps=7)
    cost = ask("tpu", True, vmem=5)["cost_estimate"]
    pairs = 2 * 6 * sum(range(201, 501))
    assert (cost.flops, cost.transcendentals) == (4 * 64 * pairs + 6 * pairs, pairs)
    assert cost.bytes_accessed == 2 * 64 * (2 * 2 * 6 * 300 + 2 * 2 * 3 * 500)
    assert set(ask("tpu", True, vmem=5)) == {"interpret", "cost_estimate"}
    limits = [
        ask("tpu", False, vmem=vmem * 2**20)["compiler_params"].vmem_limit_bytes / 2**20
        for vmem in (1, 12, 90)
    ]
    assert limits == [16, 18, 100]
    triton = ask("gpu", False, vmem=5)["compiler_params"]
    assert (triton.num_warps, triton.num_stages) == (7, 2)


def test_the_work_of_gradients():
    q, k = spec(2, 6, 300, 64), spec(2, 3, 500, 64)
    queries, keys = 2 * 2 * 6 * 300 * 64, 2 * 2 * 3 * 500 * 64
    reads = {"q": queries, "k": keys, "v": keys, "dO": queries, "lse, δ": 2 * 4 * 2 * 6 * 300}
    for causal, pairs in ((False, 12 * 300 * 500), (True, 12 * sum(range(201, 501)))):
        options = replace(OPTIONS, causal=causal)
        dq, dkv = (attention_work(q, k, options, kind) for kind in ("dq", "dkv"))
        assert (dq.matrix_flops, dkv.matrix_flops) == (3 * 128 * pairs, 4 * 128 * pairs)
        assert dict(dq.reads) == dict(dkv.reads) == reads
        assert (dict(dq.writes), dict(dkv.writes)) == ({"dQ": queries}, {"dK": keys, "dV": keys})
        assert dq.bytes == sum(reads.values()) + queries
    x, vector = spec(10, 48), spec(48, dtype="float32")
    job = backward_work([x, vector, vector, spec(10, 48, dtype="int8"), x], programs=3)
    assert [*job.reads.values()] == [960, 192, 192, 480, 960]
    assert dict(job.writes) == {"dx": 960, "dγ, dβ": 2 * 3 * 48 * 4}
    # LayerNorm 7 and 4 a row, GELU 9; its slope, mask and dy, dx, three sums
    assert job.flops == 480 * (7 + 9) + 10 * 4 + 480 * (11 + 2 * 2 + 8 + 3)


@pytest.mark.parametrize("lengths", [(10, 27), (27, 10), (24, 24)])
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_beyond_the_diagonal_are_skipped_and_only_cut_ones_hidden(lengths, causal):
    tile = Tiles(4, 8, *lengths, 16, 1.0, causal)
    query = np.arange(tile.q_padded)[:, None]
    key = np.arange(tile.kv_padded)
    seen = (key <= query + tile.ahead) | (not causal)
    blocks = seen.reshape(-1, 4, tile.kv_padded // 8, 8).swapaxes(1, 2)
    for axis, each, size in ((0, tile.each_keys, 4), (1, tile.each_queries, 8)):
        real = blocks & (key < tile.kv_len).reshape(-1, 1, 8) if axis == 0 else blocks
        for at in range(blocks.shape[axis]):
            needed = blocks.take(at, axis).any(axis=(1, 2))
            whole = real.take(at, axis).all(axis=(1, 2))
            wanted = [(j, not whole[j]) for j in np.flatnonzero(needed)]
            with jax.disable_jit():
                done = each(at * size, lambda j, done, hide: [*done, (int(j), hide)], [])
            assert sorted(done) == wanted, (axis, at)


def test_rows_are_standardised_with_eps_beside_their_variance():
    asked = (kernels.layernorm_gelu, kernels.layernorm_gelu_dropout_residual, options_of)
    assert [inspect.signature(fn).parameters["eps"].default for fn in asked] == [1e-5] * 3
    tile = cut_rows(OPTIONS, "gpu", False, [spec(1, 3)])  # four lanes, of which three count
    normal, inverse = jax.jit(tile.standardise)(np.float32([[0.01, 0.04, 0.07, 0.0]]), 0)
    deviation = math.sqrt(2 * 0.03**2 / 3 + 1e-4)
    assert inverse.item() == pytest.approx(1 / deviation)
    wanted = [-0.03 / deviation, 0, 0.03 / deviation, 0]
    assert np.asarray(normal)[0].tolist() == pytest.approx(wanted, abs=1e-6)
