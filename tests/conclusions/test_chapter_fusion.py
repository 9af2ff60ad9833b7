"""Conclusions of the chapter fusion: each test would refute one."""

import pytest

import roofline_helpers as rh


def test_what_fits_on_the_chip_leaves_little_to_gain_by_bytes() -> None:
    """Chapter 5's formula is what two memories take in turn, and less if they overlap."""
    double = rh.work.elementwise(10**6, {"x": "fp32"}, {"t1": "fp32"})
    add = rh.work.add(10**6, "fp32", x="t1", other="bias", y="t2")
    small = [double, add, rh.work.relu(10**6, "fp32", x="t2", y="y")]
    fused = rh.fuse(*small)
    between = rh.total(*small).bytes - fused.bytes
    for name, most in (("v5e", 1.06), ("h100", 1.81)):
        chip = rh.chip(name)
        level, room = chip.on_chip
        roof = chip.roofline("fp32", levels=("hbm", level)).without_floor()
        rule = 1 + between / fused.bytes * roof.bandwidth / roof.levels[level]
        assert rule == pytest.approx(most, rel=5e-3)
        stays = rh.work.resident(*small, capacity=room, level=level)
        assert roof.time(*stays) / roof.time(fused) < rule


def test_four_lines_of_pytorch_moved_three_times_what_must_move() -> None:
    """Chapter 5's story, and the chart beside it: 14 implied, 12 moved, 4 needed."""
    record, roof = rh.measured.device_records()["h100"], rh.chip("h100").roofline("bf16")
    tensor, tail = 2 * 65_536 * 4096, rh.fuse(*rh.work.fusion_chain(65_536, 4096))
    sample = record.sample("chain op by op 65536×4096 bf16", "torch")
    moved = sum(sample.counters[f"dram_{way}"] for way in ("read", "written")) / tensor
    counts = [sample.seconds * roof.bandwidth / tensor, moved, tail.bytes / tensor]
    assert [round(count) for count in counts] == [14, 12, 4]
    assert roof.time(tail) == pytest.approx(641e-6, rel=1e-3)
    judged = rh.judge(tail, "h200", 1673e-6)
    assert (judged.verdict, judged.step) == ("far off", 6)


def test_the_next_matmul_adds_little_where_the_bytes_are_weights() -> None:
    up = rh.work.matmul(256, 16_384, 4096, names=("x", "W", "u"))
    act = rh.fuse(up, rh.work.gelu(256 * 16_384, x="u", y="h"))
    down = rh.work.matmul(256, 4096, 16_384, names=("h", "V", "y"))
    roof = rh.chip("h100").roofline("bf16")
    assert roof.time(act, down) / roof.time(rh.fuse(act, down)) < 1.07


def test_three_short_kernels_take_three_floors() -> None:
    """With 4 MB a tensor none of the three reaches an H100's floor, in L2 or in memory."""
    chip = rh.chip("h100")
    bandwidth, cache = chip.roofline("bf16").bandwidth, chip.memory["l2"].bandwidth.value
    longest = 4e6 / bandwidth + 2 * 4e6 / cache
    assert longest < chip.floor.value < 3 * 4e6 / bandwidth
    assert 3 * chip.floor.value / (12e6 / bandwidth) == pytest.approx(2.65, abs=0.01)
