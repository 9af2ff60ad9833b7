"""Pallas kernels of GPUs, counted without one: what programs ask for, by hand and by counters."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from compiled_reports import spec

import roofline_helpers as rh
from roofline_helpers import xla
from roofline_helpers.xla import pallas_kernels
from roofline_helpers.xla.pallas import PallasKernel

BF16 = 2
OPS = "jax.experimental.pallas.ops.gpu"

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")


@pytest.fixture(autouse=True)
def triton() -> None:
    pytest.importorskip("jax.experimental.pallas.triton", reason="no Triton in this jaxlib")


def ours(q_len: int, kv_len: int, heads: int, *, causal: bool = False) -> PallasKernel:
    q, k = spec(2, heads, q_len, 128), spec(2, heads, kv_len, 128)
    (kernel,) = pallas_kernels(
        lambda q, k, v: rh.kernels.attention(q, k, v, causal=causal), q, k, k, platform="gpu"
    )
    return kernel


def chain() -> PallasKernel:
    x, row = spec(65536, 4096), spec(4096)
    (kernel,) = pallas_kernels(
        lambda *a: rh.kernels.layernorm_gelu_dropout_residual(*a, rate=0.1),
        *(x, row, row, x, x),
        platform="gpu",
    )
    return kernel


def test_each_program_of_our_attention_asks_for_all_keys_again() -> None:
    length, heads, queries = 2048, 16, 128
    kernel = ours(length, length, heads)
    once = BF16 * 2 * heads * length * 128
    assert kernel.machine == "triton"
    assert kernel.matrix_flops == 4 * 2 * heads * length**2 * 128
    assert [one.moved for one in kernel.operands] == [
        once,
        length // queries * once,
        length // queries * once,
        once,
    ]
    assert kernel.bytes == 4 * once
    assert kernel.reads == (once, once, once)
    assert kernel.asked == (2 + 2 * length // queries) * once
    assert "570 MB asked of the caches" in repr(kernel)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_that_ships_with_jax(causal: bool) -> None:
    attention = pytest.importorskip(f"{OPS}.attention")
    length, block, heads = 1024, 128, 8
    (kernel,) = pallas_kernels(
        lambda *qkv: attention.mha(*qkv, None, causal=causal),
        *[spec(2, length, heads, 64)] * 3,
        platform="gpu",
    )
    blocks = length // block
    steps = blocks * (blocks + 1) // 2 if causal else blocks**2
    assert kernel.matrix_flops == 2 * heads * steps * 4 * block**2 * 64
    q, k, v, o = kernel.operands
    assert (q.moved, o.moved) == (q.size, o.size)
    assert k.moved == v.moved == steps / blocks * k.size
    assert [one.name for one in kernel.operands] == ["q_ref", "k_ref", "v_ref", "o_ref"]


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> Any:
    matmul = pytest.importorskip(f"{OPS}.hopper_matmul_mgpu")
    if not hasattr(matmul, "TuningConfig") or not hasattr(matmul, "get_num_sms"):
        pytest.skip("NOT TESTED: this JAX's Hopper matmul has another form")
    monkeypatch.setattr(matmul, "get_num_sms", lambda *_: 132)
    return matmul


@pytest.mark.parametrize("cluster", [False, True])
def test_the_hopper_matmul_that_ships_with_jax(hopper: Any, cluster: bool) -> None:
    n, tile = 4096, 128
    config = hopper.TuningConfig(
        tile_m=tile,
        tile_n=tile,
        tile_k=64,
        max_concurrent_steps=4,
        cluster_dimension=hopper.MatmulDimension.M if cluster else None,
    )
    added = [None] if "c" in inspect.signature(hopper.matmul).parameters else []
    (kernel,) = pallas_kernels(
        lambda a, b: hopper.matmul(a, b, *added, config),
        *[spec(n, n, dtype="float16")] * 2,
        platform="gpu",
    )
    assert kernel.machine == "mosaic_gpu"
    assert kernel.matrix_flops == 2 * n**3
    assert kernel.types == ("f16",)
    a, b, out = kernel.operands
    # two warpgroups share a tile of A, each with its own columns: 256 a block; and two blocks of
    # a cluster share what one of them fetches of B
    assert a.moved / a.size == n / (2 * tile)
    assert b.moved / b.size == n / tile / (2 if cluster else 1)
    assert out.moved == out.size
    assert kernel.bytes == 3 * a.size


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_counters_are_where_the_counts_say(gpu: str) -> None:
    record = rh.device.measured()[gpu]
    counted = record.sample("chain pallas 65536×4096 bf16", "pallas").dram_bytes
    assert chain().bytes == pytest.approx(counted, rel=0.002)
    assert chain().asked > 1.4 * counted  # γ and β, which the caches have
    attention = ours(2048, 2048, 16)
    counted = record.sample("flash attention 2×16×2048×128 bf16", "pallas").dram_bytes
    assert attention.bytes < counted < 0.2 * attention.asked


def test_a_program_of_a_gpu_has_its_kernels_counted() -> None:
    kernel = ours(2048, 2048, 16)
    array = "bf16[2,16,2048,128]{3,2,1,0}"
    target = "__gpu$xla.gpu.triton"
    text = f"""HloModule gpu
ENTRY %main (q: {array}, k: {array}, v: {array}) -> {array} {{
  %q = {array} parameter(0)
  %k = {array} parameter(1)
  %v = {array} parameter(2)
  ROOT %attention_kernel = {array} custom-call(%q, %k, %v), custom_call_target="{target}"
}}"""
    ledger = xla.kernels(text, "gpu", calls=[kernel])
    (row,) = ledger.rows
    assert row.flops.matrix == kernel.matrix_flops
    assert sum(row.read.values()) + sum(row.written.values()) == kernel.bytes
    assert "ask the caches for 570,425,344 bytes" in " ".join(ledger.notes)
