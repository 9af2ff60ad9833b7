"""Conclusions of the chapter low-precision: each test would refute one."""

import re
from functools import cache
from typing import Any

import pytest
from conclusions import outputs

import roofline_helpers as rh


@cache
def by_type(chip: str) -> Any:
    """Seconds of a GPU's matmuls whose weights came from memory, one column per type."""
    gemms = rh.measured.table("matmul").query("chip == @chip")
    copies = gemms["library"].map({"sglang": 6, "trtllm": 1, "vllm": 1}).astype(float)
    bits = gemms["dtype"].map({**rh.BITS, "fp8 in blocks": 8}).astype(float)
    held = copies * gemms["n"] * gemms["k"] * bits / 8
    cold = held >= 2 * rh.chip(chip).memory["l2"].capacity.value
    return gemms[cold].pivot_table("seconds", ["n", "k", "m"], "dtype", observed=True)


@pytest.mark.parametrize(
    ("chip", "dtype", "short", "long"),
    [
        ("h100", "fp8", (1.3, 1.35), (1.7, 1.8)),
        ("b200", "fp8", (1.2, 1.25), (1.6, 1.85)),
        ("b200", "nvfp4", (1.75, 1.85), (2.65, 3.05)),
    ],
)
def test_cold_matmuls_gain_by_narrow_types_the_more_the_longer_they_are_and_less_than_the_peak(
    chip: str, dtype: str, short: tuple[float, float], long: tuple[float, float]
) -> None:
    times = by_type(chip)
    gain = (times["bf16"] / times[dtype]).dropna()
    wide = times["bf16"][gain.index]
    assert wide.min() > 1e-5  # below that nothing was timed cold in both types
    assert short[0] < gain[wide < 3e-5].median() < short[1]
    for low, high in [(3e-4, 1e-3), (1e-3, 1)]:
        assert long[0] < gain[wide.between(low, high)].median() < long[1]


def test_narrow_types_start_later_and_one_matrix_gains_less_than_its_peak() -> None:
    starts = {(law.chip, law.dtype): law.start for law in rh.measured.laws_of("matmul")}
    for chip, dtype in (("h100", "fp8"), ("b200", "fp8"), ("b200", "nvfp4")):
        assert starts[chip, dtype] > 2 * starts[chip, "bf16"]
    one = by_type("b200").loc[12288, 51200].loc[[1, 64, 256, 1024, 4096, 16384]]
    gains = one["bf16"] / one["nvfp4"]
    assert 2.4 < gains[1] < 2.45 < 2.9 < gains.max() < 3


def test_a_timed_fp8_layer_takes_longer_than_casting_its_activations() -> None:
    """So the cast may be in it; that it is, the benchmark's code says, and short layers show."""
    casts = rh.measured.table("quantise").query("chip == 'h100'")
    casts = casts.pivot_table("seconds", ["k", "m"], "op", observed=True)
    layers = by_type("h100").join(casts, on=["k", "m"]).reset_index()
    share = layers["scale_matrix"] / layers["fp8"]
    assert share.max() < 1
    long = layers["fp8"] > 1e-4
    assert 0.22 < share[long & (layers["n"] == 1536)].median() < 0.25
    assert 0.05 < share[long & (layers["n"] == 8192)].median() < 0.06
    short = layers[layers["bf16"] < 3e-5].dropna(subset=["fp8", *casts])
    gains = [
        (short["bf16"] / (short["fp8"] - cast)).median()
        for cast in (0, short["scale_matrix"], short["scale_matrix"] + short["compute_scale"])
    ]
    assert gains == pytest.approx([1.33, 1.46, 1.55], abs=0.005)
    large = casts.loc[65536, 4352]
    assert large["compute_scale"] / large.sum() == pytest.approx(2 / 5, abs=0.01)


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
    grouped = rh.measured.table("grouped_matmul").query(
        "chip == 'h100' and dtype == 'int4 weights' and local_experts == 384 and tokens == 48"
        " and inter == 2048"
    )
    least = 2 * 384 * 3 * 7168 * 2048 / rh.chip("h100").roofline().bandwidth
    assert 0.3 < grouped["seconds"].item() / least < 1 / 3


def test_a_b300_s_attention_gains_by_how_long_exponentials_take_beside_matmuls() -> None:
    table = rh.measured.table("prefill_attention")
    gains: dict[float, list[float]] = {}
    for dtype, flops in (("bf16", 8192), ("fp8", 2 * 8192)):
        for width in (64, 128, 256):
            rows = table[(table.dtype == dtype) & (table.head_dim == width)]
            pairs = rows["batch"] * rows["heads"] * rows["kv_len"] ** 2
            best = (pairs / rows["seconds"]).groupby(rows["chip"], observed=True).max()
            beside = flops / (4 * width) / 16  # exponentials' time over the matmuls', on a B200
            gains.setdefault(beside, []).append(best["b300"] / best["b200"])
    assert sorted(gains) == [0.5, 1, 2, 4]
    assert gains[0.5] == pytest.approx([1.11], abs=0.01)
    assert gains[1] == pytest.approx([1.26] * 2, abs=0.01)
    assert gains[2] == pytest.approx([1.38] * 2, abs=0.02)
    assert gains[4][0] > max(gains[2])
    times = rh.measured.table("matmul").pivot_table(
        "seconds", ["dtype", "n", "k", "m"], "chip", observed=True
    )
    long = times[times["b200"] > 1e-3]
    ratio = (long["b200"] / long["b300"]).groupby("dtype", observed=True).median()
    assert [round(ratio[name], 2) for name in ("bf16", "fp8", "nvfp4")] == [1.03, 1.06, 1.19]
    b200, b300 = rh.chip("b200"), rh.chip("b300")
    assert all(b200.peak(name).value == b300.peak(name).value for name in ("bf16", "fp8"))
    assert b300.peak("fp4").value / b200.peak("fp4").value == pytest.approx(1.56, abs=0.01)
    assert (b200.peak("fp64").value, b300.peak("fp64").value) == (37e12, 1.25e12)


def test_narrow_weights_move_the_rows_at_the_ridge_and_narrow_operands_do_not() -> None:
    def rows(dtype: str, weights: str) -> float:
        roof = rh.chip("h100").roofline(dtype)
        return roof.peak / roof.bandwidth * rh.BITS[weights] / 16

    assert rows("fp8", "fp8") == pytest.approx(rows("bf16", "bf16"), rel=0.01)
    assert rows("bf16", "int4") == pytest.approx(rows("bf16", "bf16") / 4)


def test_tpus_double_int8_or_fp8_and_not_both() -> None:
    for chip in ("v5e", "v5p", "v6e"):
        bf16, int8 = (rh.chip(chip).roofline(dtype).peak for dtype in ("bf16", "int8"))
        assert int8 / bf16 == pytest.approx(2, rel=0.01)
    for chip, times in {"v5p": 1, "v6e": 1, "v7x": 2}.items():
        bf16, fp8 = (rh.chip(chip).roofline(dtype).peak for dtype in ("bf16", "fp8"))
        assert fp8 / bf16 == pytest.approx(times, rel=0.01)
    with pytest.raises(rh.UnknownName):
        rh.chip("v7x").roofline("int8")


def test_outliers_ruin_int8_per_tensor_and_not_fp8() -> None:
    shown = outputs("low-precision")
    errors = {
        name: tuple(float(word) for word in words.split())
        for name, words in re.findall(r"^(\S[\w ]*?) +([\d.]+ +[\d.]+)$", shown, re.MULTILINE)
    }
    assert errors["int8 per tensor"][0] < errors["fp8 per tensor"][0]
    assert errors["int8 per tensor"][1] > 5 * errors["int8 per tensor"][0]
    assert errors["fp8 per tensor"][1] < 1.1 * errors["fp8 per tensor"][0]
    assert errors["nvfp4"][1] < errors["mxfp4"][1]
    assert 11 < errors["nvfp4"][1] < errors["mxfp4"][1] < 18
