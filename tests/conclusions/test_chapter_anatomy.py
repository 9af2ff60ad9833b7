"""Conclusions of the chapter anatomy: each test would refute one."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import roofline
import roofline_helpers as rh


def test_chapter_2_s_kernels_lie_between_the_ridges() -> None:
    record = rh.measured.device_records()["h100"]
    h100 = rh.chip("h100").roofline("bf16")
    chain = rh.work.elementwise(2**24, 1, 1, flops=512, dtype="fp32")
    assert h100.ridge_at("hbm", "vector") < chain.intensity < h100.ridge
    assert h100.limit(chain) == "vector"
    # a multiplication and an addition, which the ceiling counts as one
    half = chain.flops / record.sample("256 multiply-adds on 16777216 fp32").seconds / h100.vector
    assert 0.9 / 2 < half < 1 / 2
    up = rh.work.matmul(256, 16384, 4096)
    roofs = [rh.chip("v7x").roofline("bf16", reached=reached) for reached in (False, True)]
    assert [roof.bound(up) for roof in roofs] == ["memory", "memory"]
    assert 0.7 < up.intensity / roofs[0].ridge < 0.8


def test_only_on_v4_is_a_fused_layernorm_with_gelu_limited_by_the_vector_unit() -> None:
    rows, width = 65536, 4096
    fused = rh.fuse(
        rh.work.layernorm(rows, width, y="a"),
        rh.work.gelu(rows * width, x="a"),
    )
    limits = {c: rh.chip(c).roofline("bf16").limit(fused) for c in ("v4", "v5p", "v5e", "h100")}
    assert limits == {"v4": "vector", "v5p": "hbm", "v5e": "hbm", "h100": "hbm"}


def test_a_loop_reads_its_weights_from_hbm_in_every_turn() -> None:
    def turns(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=100)[0]

    shapes = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((64, 4096), (4096, 4096))]
    report = roofline.analyze(turns, *shapes, chip="v5e")
    weights = 2 * 4096**2
    assert 100 * weights <= report.hbm_bytes < 101 * weights


def test_kept_in_vmem_a_thin_matmul_waits_for_its_arithmetic() -> None:
    """Chapter 2: 42.3 µs from HBM, 10.9 with the weights in VMEM, of which they take a quarter."""
    v5e = rh.chip("v5e")
    roof = v5e.roofline("bf16", levels=("hbm", "vmem"))
    thin = rh.work.matmul(64, 4096, 4096, "bf16")
    rows = 64 * 4096 * 2
    kept = rh.Work("kept", {"x": rows}, {"y": rows}, thin.flops).with_traffic(vmem=thin.bytes)
    assert (roof.limit(thin), roof.limit(kept)) == ("hbm", "matrix")
    assert 3.8 < roof.time(thin) / roof.time(kept) < 4
    assert thin.reads["b"] / v5e.memory["vmem"].capacity.value == pytest.approx(0.25, rel=0.01)


def test_the_dashboard_s_gelu_is_normal() -> None:
    job = rh.work.gelu(2**28, "bf16")
    judged = rh.judge(job, "h100", 386e-6)
    assert (judged.verdict, judged.step) == ("normal", 7)
    assert 1.5 * judged.least > 386e-6  # no room for a third tensor
    assert rh.chip("h100").roofline("bf16").mfu(job.flops / 386e-6) < 0.01
