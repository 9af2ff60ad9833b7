"""Conclusions of the chapter limitations: each test would refute one."""

import math

import numpy as np
import pandas as pd
import pytest

import roofline_helpers as rh
from roofline_helpers.measured.kernels import measured_kernels


@pytest.fixture(scope="module")
def kernels():
    rows = pd.DataFrame(measured_kernels())
    for name in ("bytes", "flops", "cold_s"):
        rows[name] = pd.to_numeric(rows[name])
    roofs = [
        rh.chip(chip).roofline(dtype or "bf16")
        for chip, dtype in zip(rows.chip, rows.dtype, strict=True)
    ]
    bandwidth, peak = np.array([(roof.bandwidth, roof.peak) for roof in roofs]).T
    return rows.assign(least=np.maximum(rows.bytes / bandwidth, rows.flops / peak))


def test_sizes_that_are_no_multiple_of_four_run_at_one_rate_of_elements(kernels):
    chains = kernels[(kernels.family == "elementwise") & (kernels.kind == "stream")]
    size = chains.sizes.map(lambda sizes: math.prod(map(int, sizes.split("×"))))
    rate = (size / chains.cold_s)[chains.bytes > 3e7]
    odd = rate[size % 4 > 0]
    at_the_cap = odd[odd.between(195e9, 215e9)]
    assert len(at_the_cap) >= len(odd) / 2 >= 3
    per_byte = (chains.bytes / chains.cold_s)[at_the_cap.index]
    assert per_byte.max() > 1.8 * per_byte.min()  # it is elements that count, not bytes
    assert rate[size % 4 == 0].max() > 300e9


def test_regular_work_is_near_its_roof_and_steps_are_not(kernels):
    large = kernels[kernels.least > 30e-6]
    ratio = (large.cold_s / large.least).groupby(large.kind).median()
    assert ratio["stream"] < ratio["matmul"] < 1.5 < ratio["convolution"]
    steps = kernels[kernels.kind.isin(["sort", "Cholesky", "LU", "triangular solve"])]
    assert (steps.cold_s / steps.least).quantile(0.9) > 100


def test_a_call_takes_the_longer_of_start_and_work_and_not_their_sum():
    record = rh.measured.device_records()["h100"]
    smallest, middle, largest = (
        record.sample(f"matmul {n}×{n}×{n} bf16") for n in (64, 2048, 8192)
    )
    start = smallest.seconds
    assert (middle.counters or {})["seconds"] > 0.6 * start
    assert middle.seconds < 1.1 * start
    assert largest.seconds == pytest.approx((largest.counters or {})["seconds"], rel=0.15)


def test_cold_adds_lie_at_the_upper_end_and_warm_ones_at_the_lower():
    timed = rh.measured.device_records("timed")["h200"]
    for rows in (122, 407, 1221):  # 3 to 30 MB
        cold, warm = (
            rh.judge(rh.work.add(rows * 4096), "h200", timed.sample(name, "jax").seconds)
            for name in (f"add {rows}×4096 bf16, cold", f"add {rows}×4096 bf16, warm")
        )
        assert (cold.verdict, warm.verdict) == ("slow for its kind", "normal")
        assert cold.seconds < 1.15 * cold.high
        assert warm.seconds - warm.low < warm.high - warm.seconds
