"""Conclusions of the chapter misconceptions: each test would refute one."""

import pytest

import roofline_helpers as rh


def test_a_step_between_two_ridges_is_not_given_one_verdict() -> None:
    step = rh.work.matmul(256, 8192, 8192)
    published = [rh.chip(chip).roofline("bf16") for chip in ("h100", "h200")]
    records = [rh.measured.device_records()[chip] for chip in ("h100", "h200")]
    assert [roof.bound(step) for roof in published] == ["memory", "compute"]
    assert [one.roofline("bf16").bound(step) for one in records] == ["compute", "compute"]
    before, after = (one.sample("matmul 256×8192×8192 bf16").seconds for one in records)
    assert after > 1.1 * before
    longer = [one.sample("matmul 512×8192×8192 bf16").seconds for one in records]
    ceilings = [one.roofline("bf16").time(step) for one in records]
    assert longer[1] / longer[0] == pytest.approx(ceilings[1] / ceilings[0], rel=0.02)
