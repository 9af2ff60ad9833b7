"""Conclusions of the chapter anatomy: each test would refute one."""

import jax
import jax.numpy as jnp

import roofline
import roofline_helpers as rh


def test_chapter_2_s_kernels_lie_between_the_ridges():
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


def test_only_on_v4_is_a_fused_layernorm_with_gelu_limited_by_the_vector_unit():
    rows, width = 65536, 4096
    fused = rh.fuse(
        rh.work.layernorm(rows, width, y="a"),
        rh.work.gelu(rows * width, x="a"),
    )
    limits = {c: rh.chip(c).roofline("bf16").limit(fused) for c in ("v4", "v5p", "v5e", "h100")}
    assert limits == {"v4": "vector", "v5p": "hbm", "v5e": "hbm", "h100": "hbm"}


def test_a_loop_reads_its_weights_from_hbm_in_every_turn():
    def turns(x, w):
        return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=100)[0]

    shapes = [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((64, 4096), (4096, 4096))]
    report = roofline.analyze(turns, *shapes, chip="v5e")
    weights = 2 * 4096**2
    assert 100 * weights <= report.hbm_bytes < 101 * weights
