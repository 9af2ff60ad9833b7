"""Conclusions of the chapter what-is-a-roofline: each test would refute one."""

import itertools
import re

import pytest
from conclusions import prose

import roofline_helpers as rh
from roofline import network


def test_chapter_1_calculates_by_hand_as_the_chip_s_figures_say() -> None:
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


def test_chapter_1_s_rule_holds_on_the_chip() -> None:
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


def test_between_two_chips_the_split_dimension_decides_and_not_the_batch() -> None:
    """Chapter 1's third limit, by the bytes of an all-reduce instead of the chapter's formula."""
    limits = {}
    for chip, shape in (("v5e", "2x1"), ("v6e", "2x1"), ("h100", 2), ("b200", 2)):
        pair = network.topology(chip, shape)
        (link,) = pair.axes[0].protocols
        for tokens, width in itertools.product((1024, 65536), (4096, 8192, 32768)):
            half = rh.work.matmul(tokens, 8192, width // 2)
            sums = network.all_reduce(2 * tokens * 8192, pair.axes[:1])
            waits = sums.link_bytes / link.rate > half.flops / pair.chip.peak("bf16").value
            limits.setdefault((chip, width), set()).add(waits)
    assert all(len(one) == 1 for one in limits.values())  # the same for both batches
    enough = {chip for (chip, width), one in limits.items() if width == 8192 and one == {False}}
    assert enough == {"v5e", "h100", "b200"}
    assert {one for one in limits if limits[one] == {True}} == {
        *((chip, 4096) for chip in ("v5e", "v6e", "h100", "b200")),
        ("v6e", 8192),
    }


def test_the_first_slow_kernel_is_slow_beside_measured_ones() -> None:
    """Chapter 1's last exercise: an add at 0.60 ms, and what an H100's add reached."""
    roof = rh.chip("h100").roofline("bf16")
    record = rh.measured.device_records()["h100"]
    small, large = (rh.work.elementwise(n, 2, 1, flops=1) for n in (2**27, 2**30))
    assert roof.bound(small) == "memory"
    assert roof.time(small) / 600e-6 < 0.5
    assert roof.time(large) / record.sample("add 2 GiB bf16").seconds > 0.8


def test_four_milliseconds_are_three_times_what_such_a_matmul_takes() -> None:
    job = rh.work.matmul(8192, 8192, 8192)
    record = rh.measured.device_records()["h100"]
    normal = rh.measured.expected(job, "h100").seconds
    least = rh.chip("h100").roofline("bf16").time(job)
    assert 2.7 < 4e-3 / normal < 3
    assert least / 4e-3 < 0.3 < 0.8 < least / normal
    names = ("bf16", "tf32")
    bf16, tf32 = (record.sample(f"matmul 8192×8192×8192 {n}").seconds for n in names)
    assert 1.8 < tf32 / bf16 < 2.2
