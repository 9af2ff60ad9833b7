"""Conclusions of the chapter hardware-comparison: each test would refute one."""

import roofline_helpers as rh


def test_256_tokens_change_sides():
    up = rh.work.matmul(256, 16384, 4096)
    bounds = {
        chip.key: chip.roofline().bound(up) for chip in rh.all_chips() if "bf16" in chip.matrix
    }
    assert {bounds[chip] for chip in ("v5p", "a100-80gb", "h200", "h20")} == {"compute"}
    assert {bounds[chip] for chip in ("v5e", "v6e", "v7x", "h100", "b200")} == {"memory"}


def test_fp8_moves_a_matmul_with_the_ridge_on_v7x_and_across_it_on_v6e():
    bounds = {
        chip: [
            rh.chip(chip).roofline(dtype).bound(rh.work.matmul(1024, 1024, 1024, dtype))
            for dtype in ("bf16", "fp8")
        ]
        for chip in ("v7x", "v6e")
    }
    assert bounds == {"v7x": ["compute", "compute"], "v6e": ["memory", "compute"]}
    ridge = {c: rh.chip(c).roofline("bf16").ridge for c in ("v6e", "v7x", "h100", "h200")}
    assert ridge["v7x"] < ridge["v6e"]
    assert ridge["h200"] < ridge["h100"]
