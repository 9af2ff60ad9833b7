"""Conclusions of the chapter what-is-a-roofline: each test would refute one."""

import re

import pytest
from conclusions import prose

import roofline_helpers as rh
from roofline import network


def test_chapter_1_calculates_by_hand_as_the_chip_s_figures_say():
    chip = rh.chip("h100")
    text = prose("what-is-a-roofline")
    matrix = chip.roofline("bf16")
    vector = chip.roofline("fp32", unit="vector")
    times = [
        2 * 2**30 / vector.peak,  # a multiply-add is two, as on the data sheet
        3 * 4 * 2**30 / vector.bandwidth,
        2 * 8192**3 / matrix.peak,
        3 * 2 * 8192**2 / matrix.bandwidth,
    ]
    said = re.findall(r"= ([\d.]+)\\ \\text\{(µs|ms)\}", text)
    assert [" ".join(one) for one in said] == [rh.si(time, "s") for time in times]
    rates = re.findall(r"\}\{([\d.]+)\\ \\text\{(.*?)\}\}", text)
    figures = [vector.peak, vector.bandwidth, matrix.peak, matrix.bandwidth]
    units = ["FLOP/s", "B/s"] * 2
    assert [" ".join(one) for one in rates] == list(map(rh.si, figures, units))


def test_chapter_1_s_rule_holds_on_the_chip():
    """Nearly flat up to the ridge, and then not; the ridges are those that it says."""
    record = rh.measured.device_records()["h100"]
    roof = rh.chip("h100").roofline("bf16")
    times = [record.sample(f"matmul {b}×8192×8192 bf16", "jax").seconds for b in (1, 256, 512)]
    assert times[1] < 1.25 * times[0]
    assert times[2] > 1.5 * times[1]
    assert [roof.bound(rh.work.matmul(b, 8192, 8192)) for b in (318, 319)] == ["memory", "compute"]
    assert rh.chip("v5e").roofline("bf16").ridge == pytest.approx(240, rel=0.01)
    least = roof.times(rh.work.matmul(256, 8192, 8192))
    measured = times[1]
    assert max(least.values()) < measured < sum(least.values())


def test_between_two_chips_the_link_may_decide_whatever_the_batch():
    """By the bytes of an all-reduce: v6e's link does, for 1,024 tokens and for 65,536."""
    for chip, shape, waits in (("v6e", "2x1", True), ("h100", 2, False)):
        pair = network.topology(chip, shape)
        (link,) = pair.axes[0].protocols
        for tokens in (1024, 65536):
            half = rh.work.matmul(tokens, 8192, 8192 // 2)
            sums = network.all_reduce(2 * tokens * 8192, pair.axes[:1])
            took = half.flops / pair.chip.peak("bf16").value
            assert (sums.link_bytes / link.rate > took) == waits


def test_four_milliseconds_are_three_times_what_such_a_matmul_takes():
    job = rh.work.matmul(8192, 8192, 8192)
    record = rh.measured.device_records()["h100"]
    like = rh.measured.seconds_like(job, "h100")
    judged = rh.judge(job, "h100", 4e-3)
    assert (judged.verdict, judged.step) == ("far off", 6)
    assert 2.7 < 4e-3 / judged.expected < 3
    assert len(like) == 22
    assert judged.least < like.min() < like.max() < 4e-3
    names = ("bf16", "tf32")
    bf16, tf32 = (record.sample(f"matmul 8192×8192×8192 {n}").seconds for n in names)
    assert 1.8 < tf32 / bf16 < 2.2
    assert judged.high < bf16 < 1.1 * judged.high  # as the figure's caption says, of a long run
