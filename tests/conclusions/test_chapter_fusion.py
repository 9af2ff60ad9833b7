"""Conclusions of the chapter fusion: each test would refute one."""

import pytest

import roofline_helpers as rh


def test_fusing_what_fits_gains_by_launches_on_a_gpu_and_hardly_by_bytes_on_a_v5e() -> None:
    def chain(n: int) -> list[rh.Work]:
        double = rh.work.elementwise(n, {"x": "fp32"}, {"t1": "fp32"})
        add = rh.work.add(n, "fp32", x="t1", other="bias", y="t2")
        return [double, add, rh.work.relu(n, "fp32", x="t2", y="y")]

    large, small = chain(10**8), chain(10**6)
    assert rh.gain(large, rh.fuse(*large), "h100").word == "gains"
    outside = rh.fuse(*small).bytes
    between = rh.total(*small).bytes - outside
    for name, most in (("v5e", 1.06), ("v5p", 1.09), ("h100", 1.81), ("mi300x", 1.42)):
        chip = rh.chip(name)
        level, room = chip.on_chip
        roof = chip.roofline("fp32", levels=("hbm", level)).without_floor()
        rule = 1 + between / outside * roof.bandwidth / roof.levels[level]
        assert rule == pytest.approx(most, rel=5e-3)
        stays = rh.work.resident(*small, capacity=room, level=level)
        one = roof.time(rh.fuse(*small))
        assert roof.time(*stays) / one < rule
        parts = [roof.times(kernel) for kernel in stays]
        memories = sum(part["hbm"] + part[level] for part in parts)
        assert memories / (outside / roof.bandwidth) == pytest.approx(rule)
    with_launches = {
        chip: min(times for case, times in rh.gain(small, rh.fuse(*small), chip).found.items()
                  if case.floor == "with")
        for chip in ("h100", "v6e")
    }  # fmt: skip
    assert with_launches["h100"] > 2.5
    assert with_launches["v6e"] == pytest.approx(1)
    measured = rh.measured.device_records()["h100"]
    tiny, short, long = (
        measured.sample(f"scale in place, looped {size} fp32").seconds
        for size in ("64 KiB", "4 MiB", "64 MiB")
    )
    assert 0.7 < tiny / short < 1
    assert tiny / long < 0.1
