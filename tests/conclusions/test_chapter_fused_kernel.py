"""Conclusions of the chapter fused-kernel: each test would refute one."""

from typing import Any

import jax
import pytest

import roofline_helpers as rh
from roofline import xla


def test_jax_s_flash_attention_declares_scores_that_it_skips() -> None:
    """And each array once, where its specs fetch keys and values again."""
    flash = pytest.importorskip("jax.experimental.pallas.ops.tpu.flash_attention").flash_attention
    shapes = [jax.ShapeDtypeStruct((4, 16, 2048, 128), "bfloat16")] * 3
    whole, causal = (
        xla.pallas_kernels(lambda *qkv, c=c: flash(*qkv, causal=c), *shapes, platform="tpu")[0]
        for c in (False, True)
    )
    assert whole.declared
    assert causal.declared
    assert whole.declared["flops"] == pytest.approx(whole.flops, rel=0.05)
    assert 1.7 < causal.declared["flops"] / causal.flops < 2
    assert causal.declared["bytes_accessed"] < causal.bytes / 4 < whole.bytes / 4


@pytest.mark.parametrize(("stays", "fetches"), [(False, 64), (True, 36)])
def test_a_step_that_does_nothing_fetches_its_block_unless_the_index_stays(
    stays: bool, fetches: int
) -> None:
    from jax.experimental import pallas as pl

    def lower(x: Any) -> Any:
        at = (lambda i, k: (i, jax.numpy.minimum(i, k))) if stays else (lambda i, k: (i, k))

        def body(x_ref: Any, y_ref: Any) -> None:
            @pl.when(pl.program_id(1) <= pl.program_id(0))
            def _() -> None:
                y_ref[...] = x_ref[...]

        row = pl.BlockSpec((128, 128), lambda i, k: (i, 0))
        out = jax.ShapeDtypeStruct((1024, 128), "float32")
        block = pl.BlockSpec((128, 128), at)
        return pl.pallas_call(body, grid=(8, 8), in_specs=[block], out_specs=row, out_shape=out)(x)

    (one,) = xla.pallas_kernels(lower, jax.ShapeDtypeStruct((1024, 1024), "float32"))
    assert one.operands[0].fetches == fetches


def test_torch_compile_s_chain_issues_too_much_and_the_single_jit_has_few_warps() -> None:
    records = rh.measured.device_records()
    h200 = records["h200"]
    name = "chain {} 65536×4096 bf16"
    ways = {"one jit": "jax", "pallas": "pallas", "compiled": "torch.compile", "Triton": "triton"}
    issue, copy, warps, gain = {}, {}, {}, {}
    for how, source in ways.items():
        slow, fast = (records[gpu].sample(name.format(how), source) for gpu in ("h100", "h200"))
        gain[how] = slow.seconds / fast.seconds
        clock = h200.sample(f"{name.format(how)}, clock counted", source).state["clock"]
        seen = h200.sample(f"{name.format(how)}, under ncu", source).counters
        assert seen
        issue[how] = seen["instructions"] / (4 * 132 * clock)
        copy[how] = seen["dram"] / h200.streams["copy"]
        warps[how] = 64 * seen["warps"]
    assert gain["compiled"] < 1.05 < gain["one jit"] < gain["Triton"]
    assert {how for how in issue if issue[how] > copy[how]} == {"compiled"}
    assert issue["compiled"] < 4 * 65536 * 4096 * 2 / records["h100"].streams["copy"]
    assert 15 < warps["one jit"] < 16
    reads = {
        (s.state["warps"], s.state["loads"]): s.bandwidth
        for s in h200.group("concurrency")
        if s.state["width"] == 16
    }
    one_jit = h200.sample(name.format("one jit"))
    assert reads[16, 1] < one_jit.bandwidth < reads[16, 2]
    assert max(issue["one jit"], copy["one jit"]) < 0.8 * one_jit.seconds
    counted = h200.sample(f"{name.format('one jit')}, under ncu", "jax").counters
    assert one_jit.xla_bytes
    assert counted
    assert counted["issued"] < 0.5
    assert counted["dram"] == pytest.approx(one_jit.xla_bytes, rel=0.01)
    few = h200.sample("chain 65536×4096 bf16, its kernel, 512 × 2 warps", "torch.compile")
    assert few.seconds < 0.8 * h200.sample(name.format("compiled"), "torch.compile").seconds


def test_a_read_needs_3_to_4_mb_in_flight_on_an_h200() -> None:
    h200 = rh.measured.device_records()["h200"]
    idle = h200.sample("load after load over 4 GiB", "cuda").seconds
    published = rh.chip("h200").memory["hbm"].bandwidth.value
    reads = h200.group("concurrency")
    assert all(s.bandwidth < s.state["in flight"] / idle * 1.01 for s in reads)
    near = [s.bandwidth for s in reads if 3.2e6 < s.state["in flight"] < 3.3e6]
    assert 3.9e12 < min(near) < max(near) < 4.35e12
    assert max(s.bandwidth for s in reads if s.state["in flight"] < 2e6) < 0.75 * published
