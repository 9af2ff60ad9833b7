"""Conclusions of the chapter misconceptions: each test would refute one."""

from typing import Any

import pytest
from conclusions import path

import roofline_helpers as rh
from tools.notebooks import run as notebooks


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


def test_steps_of_512_follow_the_reached_ceilings_and_of_256_do_not() -> None:
    """Chapter 7: H200 over H100, whose reached peaks decide both steps."""
    records = [rh.measured.device_records()[chip] for chip in ("h100", "h200")]
    for batch, near in (
        (256, False),
        (512, True),
    ):
        step = rh.work.matmul(batch, 8192, 8192)
        roofs = [record.roofline("bf16") for record in records]
        assert [roof.bound(step) for roof in roofs] == ["compute", "compute"]
        slower = roofs[1].time(step) / roofs[0].time(step)
        name = f"matmul {batch}×8192×8192 bf16"
        measured = records[1].sample(name).seconds / records[0].sample(name).seconds
        assert (measured == pytest.approx(slower, rel=0.02)) == near


def test_a_matmul_takes_3_us_and_its_least_time_over_four_fifths() -> None:
    """Chapter 7: the rule, its error, and what is above the roof, by the chapter's own cells."""
    cells = {cell.id: cell.source for cell in notebooks.load(path("misconceptions")).cells}
    names: dict[str, Any] = {"rh": rh}
    exec(cells["1e3ac7e8"], names)
    for chip, error in (
        ("h100", 0.09),
        ("h200", 0.085),
        ("b200", 0.16),
    ):
        rows = names["efficiencies"](chip)
        rule = 3e-6 + rows.least / 0.8
        assert (rule / rows.seconds - 1).abs().median() < error
        assert chip != "b200" or (rule / rows.seconds).median() < 0.95  # a lower plateau
        above = rows[rows.share > 1]
        cache = float(rh.chip(chip).memory["l2"].capacity)
        assert (above.bytes < cache).all()
        assert len(above) == {"h100": 38, "h200": 0, "b200": 13}[chip]
        assert rows.share[rows.least < 1e-6].median() < 0.1


def test_half_of_the_roof_is_normal_for_causal_attention_and_not_for_streams() -> None:
    """Chapter 7: what is normal on an H100, beside matmuls."""
    for batch, length in (
        (8, 4096),
        (4, 8192),
    ):
        prefill = rh.work.flash_attention(batch, length, heads=32, head_dim=128, causal=True)
        like = rh.typical(prefill, "h100")
        assert 0.4 < like.roof / like.quantile(0.5) < 0.6
    record = rh.measured.device_records()["h100"]
    roof = rh.chip("h100").roofline("bf16")
    for name in ("LayerNorm 65536×4096", "softmax 8192×8192", "GELU on 268435456"):
        one = record.sample(f"{name} bf16")
        assert 0.81 < one.bytes / roof.bandwidth / one.seconds < 0.91


def test_a_busy_gpu_may_be_far_from_its_roof() -> None:
    """Chapter 7: one calculation op by op and as one kernel, at the same utilisation."""
    record = rh.measured.device_records()["h100"]
    slow = record.sample("chain op by op 65536×4096 bf16")
    fast = record.sample("chain pallas 65536×4096 bf16", "pallas")
    for one in (slow, fast):
        assert one.counters
        assert 0.98 < one.counters["seconds"] / one.seconds < 1
    assert slow.seconds > 14 * fast.seconds
