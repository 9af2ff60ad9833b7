"""Conclusions of the chapter arithmetic-intensity: each test would refute one."""

import pytest

import roofline_helpers as rh


def test_fp8_halves_the_crossing_only_where_it_is_not_faster() -> None:
    for chip, ratio in {"v5p": 0.5, "v6e": 0.5, "v7x": 1, "h100": 1}.items():
        ridges = {dtype: rh.chip(chip).roofline(dtype).ridge for dtype in ("bf16", "fp8")}
        # N/3 and 2N/3 FLOP/byte
        assert 1.5 * ridges["fp8"] / (3 * ridges["bf16"]) == pytest.approx(ratio, rel=2e-3)


def test_twice_the_users_wait_one_and_a_half_times_as_long() -> None:
    """Chapter 4's opening: Llama-3-8B on an H100, with 2048 tokens each."""
    model, bandwidth = rh.models.LLAMA_3_8B, rh.chip("h100").roofline("bf16").bandwidth
    cache = 2048 * 2 * 32 * 8 * 128 * 2
    steps = [(2 * model.parameters + users * cache) / bandwidth for users in (64, 128)]
    assert steps[0] == pytest.approx(9.9e-3, rel=0.01)
    assert 1.4 < steps[1] / steps[0] < 1.6
    assert 64 * cache > 2 * model.parameters


def test_without_a_cache_a_tile_s_intensity_is_below_half_of_its_side() -> None:
    roofs = {chip: rh.chip(chip).roofline("bf16") for chip in ("v5e", "v6e")}
    tiled = {
        t: rh.work.matmul(4096, 4096, 4096, tile=(t, t)).intensity for t in (128, 512, 1024, 2048)
    }
    assert all(0.39 < one / side < 0.5 for side, one in tiled.items())
    assert tiled[512] == pytest.approx(roofs["v5e"].ridge, rel=0.01)
    assert tiled[1024] < roofs["v6e"].ridge < tiled[2048]
