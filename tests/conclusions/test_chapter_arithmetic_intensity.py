"""Conclusions of the chapter arithmetic-intensity: each test would refute one."""

import pytest

import roofline_helpers as rh


def test_fp8_halves_the_crossing_only_where_it_is_not_faster() -> None:
    for chip, ratio in {"v5p": 0.5, "v6e": 0.5, "v7x": 1, "h100": 1}.items():
        ridges = {dtype: rh.chip(chip).roofline(dtype).ridge for dtype in ("bf16", "fp8")}
        # N/3 and 2N/3 FLOP/byte
        assert 1.5 * ridges["fp8"] / (3 * ridges["bf16"]) == pytest.approx(ratio, rel=2e-3)


def test_attention_in_decode_has_4_flop_per_byte_at_every_batch() -> None:
    for batch in (1, 64, 512):
        job = rh.work.flash_attention(batch, 1, 2048, 32, 128, kv_heads=8)
        assert float(job.matrix_flops / job.bytes) == pytest.approx(4, rel=0.01)
