"""Conclusions of the chapter arithmetic-intensity: each test would refute one."""

import pytest

import roofline_helpers as rh


def test_fp8_halves_the_crossing_only_where_it_is_not_faster():
    for chip, ratio in {"v5p": 0.5, "v6e": 0.5, "v7x": 1, "h100": 1}.items():
        ridges = {dtype: rh.chip(chip).roofline(dtype).ridge for dtype in ("bf16", "fp8")}
        # N/3 and 2N/3 FLOP/byte
        assert 1.5 * ridges["fp8"] / (3 * ridges["bf16"]) == pytest.approx(ratio, rel=2e-3)


def test_without_a_cache_a_tile_s_intensity_is_below_half_of_its_side():
    roofs = {chip: rh.chip(chip).roofline("bf16") for chip in ("v5e", "v6e")}
    tiled = {
        t: rh.work.matmul(4096, 4096, 4096, tile=(t, t)).intensity for t in (128, 512, 1024, 2048)
    }
    assert all(0.39 < one / side < 0.5 for side, one in tiled.items())
    assert tiled[512] == pytest.approx(roofs["v5e"].ridge, rel=0.01)
    assert tiled[1024] < roofs["v6e"].ridge < tiled[2048]
