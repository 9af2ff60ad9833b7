"""Pallas kernels of GPUs, counted without one: what programs ask for, by hand and by counters."""

import pytest
from compiled_programs import spec

import roofline
import roofline_helpers as rh
from roofline import xla
from roofline.xla import pallas_kernels

BF16 = 2

pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")


@pytest.fixture(autouse=True)
def triton():
    pytest.importorskip("jax.experimental.pallas.triton", reason="no Triton in this jaxlib")


def ours(q_len, kv_len, heads, *, causal=False):
    q = spec(2, heads, q_len, 128)
    k = spec(2, heads, kv_len, 128)
    (kernel,) = pallas_kernels(
        lambda q, k, v: roofline.kernels.attention(q, k, v, causal=causal), q, k, k, platform="gpu"
    )
    return kernel


def chain():
    x, row = spec(65536, 4096), spec(4096)
    (kernel,) = pallas_kernels(
        lambda *a: roofline.kernels.layernorm_gelu_dropout_residual(*a, rate=0.1),
        *(x, row, row, x, x),
        platform="gpu",
    )
    return kernel


def test_each_program_of_our_attention_asks_for_all_keys_again():
    length, heads, queries = 2048, 16, 128
    kernel = ours(length, length, heads)
    once = BF16 * 2 * heads * length * 128
    assert kernel.machine == "triton"
    assert kernel.matrix_flops == 4 * 2 * heads * length**2 * 128
    assert [operand.moved for operand in kernel.operands] == [
        once,
        length // queries * once,
        length // queries * once,
        once,
    ]
    assert kernel.bytes == 4 * once
    assert kernel.reads == (once, once, once)
    assert kernel.asked == (2 + 2 * length // queries) * once
    assert "570 MB asked of the caches" in repr(kernel)


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_counters_are_where_the_counts_say(gpu):
    record = rh.measured.device_records()[gpu]
    counted = record.sample("chain pallas 65536×4096 bf16", "pallas").dram_bytes
    assert chain().bytes == pytest.approx(counted, rel=0.002)
    assert chain().asked > 1.4 * counted  # γ and β, which the caches have
    attention = ours(2048, 2048, 16)
    counted = record.sample("flash attention 2×16×2048×128 bf16", "pallas").dram_bytes
    assert attention.bytes < counted < 0.2 * attention.asked


def test_a_program_of_a_gpu_has_its_kernels_counted():
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
