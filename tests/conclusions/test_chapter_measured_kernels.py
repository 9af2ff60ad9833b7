"""Conclusions of the chapter measured-kernels: each test would refute one."""

from functools import cache
from typing import Any

import numpy as np

import roofline_helpers as rh


@cache
def under_the_roof(dtype: str = "bf16") -> Any:
    """Every measured matmul in a type, with its least time and its bytes."""
    import pandas as pd

    gemms = rh.measured.table("matmul").query("dtype == @dtype")
    parts = []
    for chip, rows in gemms.groupby("chip", observed=True):
        job = rh.work.matmul(*(rows[side].to_numpy() for side in "mnk"), dtype, out="bf16")
        roof = rh.chip(str(chip)).roofline(dtype)
        least = np.maximum(job.flops / roof.peak, job.bytes / roof.bandwidth)
        parts.append(rows.assign(least=least, share=least / rows["seconds"], bytes=job.bytes))
    return pd.concat(parts)


def shape(chip: str, m: int, n: int, k: int, dtype: str = "bf16") -> float:
    """Return the seconds of one measured matmul."""
    rows = rh.measured.table("matmul")
    found = rows.query("chip == @chip and m == @m and n == @n and k == @k and dtype == @dtype")
    return float(found["seconds"].iloc[0])


def test_large_matmuls_reach_a_share_of_the_roof_that_small_ones_cannot() -> None:
    rows = under_the_roof().query("chip == 'h100'")
    large = rows[rows.least > 100e-6]["share"].median()
    small = rows[rows.least.between(1e-6, 3e-6)]["share"].median()
    assert 0.76 < large < 0.8
    assert 0.3 < small < 0.37
    plateaus = {"bf16": (0.66, 0.7), "fp8": (0.5, 0.6), "nvfp4": (0.46, 0.5)}
    for dtype, (low, high) in plateaus.items():
        b200 = under_the_roof(dtype).query("chip == 'b200' and least > 1e-4")
        assert low < b200["share"].median() < high


def test_what_measured_rows_are_said_to_gain() -> None:
    odd, even = (shape("h100", m, 10240, 8192) for m in (1025, 1024))
    assert odd > even + shape("h100", 1, 10240, 8192) > 1.2 * even
    thin = (16384, 256, 51200)
    assert shape("h100", *thin, "fp8") > 2.5 * shape("h100", *thin)
    casts = rh.measured.table("quantise").query("chip == 'h100' and op == 'scale_matrix'")
    [cast] = casts.query("m == 16384 and k == 51200")["seconds"]
    assert shape("h100", *thin, "fp8") - cast > 1.3 * shape("h100", *thin)
    for sides, dtype, verdict in (
        ((1025, 10240, 8192), "bf16", "far off"),
        (thin, "fp8", "far off"),
        ((8192, 32, 2048), "bf16", "impossible"),
        ((64, 4096, 4096), "bf16", "normal"),
    ):
        job = rh.work.matmul(*sides, dtype, out="bf16")
        assert rh.judge(job, "h100", shape("h100", *sides, dtype)).verdict == verdict
    assert shape("h100", 64, 12288, 4096) < 0.85 * 3 * shape("h100", 64, 4096, 4096)
    law = rh.measured.law("matmul", "h100", "bf16")
    assert 0.4 < law.start / law.seconds(rh.work.matmul(1024, 1024, 1024)) < 0.5


def test_rows_are_nearly_free_up_to_half_the_ridge_only() -> None:
    """Rows at a tile, over one row, in the median; at the ridge they cost a sixth or more."""
    gemms = rh.measured.table("matmul")
    ROWS = {"a100-80gb": (64, 128), "h100": (128, 256), "h200": (96, 192)}
    ROWS |= dict.fromkeys(("b200", "b300", "gb200"), (128, 256))
    at = []
    for chip, sides in ROWS.items():
        for dtype in ("bf16", "fp8")[: 1 if chip == "a100-80gb" else 2]:
            rows = gemms.query("chip == @chip and dtype == @dtype")
            times = rows.pivot(index=["n", "k"], columns="m", values="seconds")
            times = times[times[1] > 20e-6]
            half, ridge = ((times[m] / times[1]).median() for m in sides)
            assert half < 1.21, (chip, dtype)
            at.append(ridge)
    assert 1.15 < min(at) < 1.18
    assert 1.6 < max(at) < 1.7


def test_a_large_cache_turns_the_order_of_sizes_round() -> None:
    rows = under_the_roof().query("chip == 'l40s'")
    shares = [
        rows[rows.least.between(*edges)]["share"].median() for edges in ((1e-5, 3e-5), (3e-4, 1))
    ]
    assert shares[0] > 1 > 0.7 > shares[1]
