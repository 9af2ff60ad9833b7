"""Conclusions of the chapter low-precision: each test would refute one."""

import pytest

import roofline_helpers as rh


def test_narrow_weights_gain_up_to_the_roof_s_rows_and_then_cost() -> None:
    """TensorRT-LLM's kernels on an A100, with weights that its L2 can't hold even in 4 bits."""
    chip = rh.chip("a100-80gb")
    gemms = rh.measured.table("matmul").query("chip == 'a100-80gb'")
    gemms = gemms[gemms["n"] * gemms["k"] / 2 > chip.memory["l2"].capacity.value]
    times = gemms.pivot_table("seconds", ["n", "k", "m"], "dtype", observed=True).dropna()
    ridge = chip.roofline("bf16").ridge  # rows in bf16
    for narrow, bits, last, after in (("int8", 8, 64, 80), ("int4", 4, 32, 48)):
        gain = (times["bf16"] / times[f"{narrow} weights"]).groupby("m").median()
        corner = ridge * bits / 16
        assert last < corner < after
        assert 16 / bits * 0.68 < gain.loc[:last].min()
        assert gain.loc[:last].max() < 16 / bits
        assert gain[after] < 0.7 * gain[last]
        assert 0.9 < gain.loc[256:1024].min() < gain.loc[256:1024].max() < 1
        seconds = times[f"{narrow} weights"].unstack("m")
        filled = {48: 64, 80: 128}[after]  # rows come in tiles
        assert 0.95 < (seconds[after] / seconds[filled]).median() < 1.01


def test_tpus_double_int8_or_fp8_and_not_both() -> None:
    for chip in ("v5e", "v5p", "v6e"):
        bf16, int8 = (rh.chip(chip).roofline(dtype).peak for dtype in ("bf16", "int8"))
        assert int8 / bf16 == pytest.approx(2, rel=0.01)
    for chip, times in {"v5p": 1, "v6e": 1, "v7x": 2}.items():
        bf16, fp8 = (rh.chip(chip).roofline(dtype).peak for dtype in ("bf16", "fp8"))
        assert fp8 / bf16 == pytest.approx(times, rel=0.01)
    with pytest.raises(rh.UnknownName):
        rh.chip("v7x").roofline("int8")


def test_short_kernels_gain_little_and_long_ones_more_on_every_data_centre_gpu() -> None:
    sizes = {(1e-5, 3e-5): ((1.15, 1.35), (1.75, 1.9)), (3e-4, 1): ((1.55, 1.9), (2.7, 3.5))}
    for chip in ("h100", "h200", "b200", "b300", "gb200"):
        gemms = rh.measured.table("matmul").query("chip == @chip")
        bits = gemms["dtype"].map({"bf16": 16, "fp8": 8, "nvfp4": 4.5}).astype(float)
        copies = gemms["library"].map({"sglang": 6, "trtllm": 1, "vllm": 1}).astype(float)
        cold = gemms["n"] * gemms["k"] * bits * copies / 16
        cold = gemms[cold > rh.chip(chip).memory["l2"].capacity.value]
        times = cold.pivot_table("seconds", ["n", "k", "m"], "dtype", observed=True)
        for (low, high), bounds in sizes.items():
            for dtype, (least, most) in zip(("fp8", "nvfp4"), bounds, strict=True):
                if dtype in times:
                    rows = times[times["bf16"].between(low, high)]
                    assert least < (rows["bf16"] / rows[dtype]).median() < most


def test_scales_in_blocks_cost_long_matmuls_on_hopper_ada_and_the_rtx() -> None:
    """Cold matmuls beyond 1 ms: fp8's gain with a scale for the tensor, and in blocks."""
    gains = {"h100": (1.76, 1.63), "h200": (1.81, 1.63), "b200": (1.81, 1.83)}
    gains |= {"l40s": (1.85, 1.11), "rtx-pro-6000": (1.85, 1.49)}
    for chip, known in gains.items():
        gemms = rh.measured.table("matmul").query("chip == @chip")
        size = gemms["dtype"].map({"bf16": 2, "fp8": 1, "fp8 in blocks": 1}).astype(float)
        size *= gemms["n"] * gemms["k"]
        size *= gemms["library"].map({"sglang": 6, "trtllm": 1, "vllm": 1}).astype(float)
        cold = gemms[size >= 2 * rh.chip(chip).memory["l2"].capacity.value]
        times = cold.pivot_table("seconds", ["n", "k", "m"], "dtype", observed=True)
        times = times[times["bf16"] > 1e-3]
        for dtype, gain in zip(("fp8", "fp8 in blocks"), known, strict=True):
            assert (times["bf16"] / times[dtype]).median() == pytest.approx(gain, abs=0.01)
