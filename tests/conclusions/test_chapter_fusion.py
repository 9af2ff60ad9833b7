"""Conclusions of the chapter fusion: each test would refute one."""

import pytest

import roofline_helpers as rh


def test_implied_tensors_are_an_upper_limit_and_softmax_s_did_not_move() -> None:
    record = rh.measured.device_records()["h100"]
    bandwidth = rh.chip("h100").roofline("bf16").bandwidth

    def tensors(name: str, library: str, count: int) -> tuple[float, float]:
        sample = record.sample(f"{name} bf16", library)
        one = sample.bytes / count
        assert sample.counters
        moved = sample.counters["dram_read"] + sample.counters["dram_written"]
        return sample.seconds * bandwidth / one, moved / one

    implied, moved = tensors("softmax 8192×8192", "torch", 2)
    assert implied > 6 > 2.1 > moved
    implied, moved = tensors("chain op by op 65536×4096", "torch", 10)
    assert implied > moved > 12
    implied, moved = tensors("chain Triton 65536×4096", "triton", 4)
    assert 4.4 > implied > moved > 3.9


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


def test_at_256_tokens_fusing_a_gelu_or_a_second_matmul_saves_little() -> None:
    """Chapter 5: most of what the two matmuls move is weights, which cross in any case."""
    up = rh.work.matmul(256, 16_384, 4096, names=("x", "W", "u"))
    gelu = rh.work.gelu(256 * 16_384, x="u", y="h")
    down = rh.work.matmul(256, 4096, 16_384, names=("h", "V", "y"))
    chip = rh.chip("h100")
    roof = chip.roofline("bf16")
    _, room = chip.on_chip
    assert gelu.writes["h"] < room
    apart, epilogue, whole = [up, gelu, down], [rh.fuse(up, gelu), down], [rh.fuse(up, gelu, down)]
    assert roof.time(*epilogue) / roof.time(*whole) == pytest.approx(1.06, abs=0.005)
    assert roof.bound(whole[0]) == "memory"
    assert all(roof.time(kernel) > 10 * chip.floor.value for kernel in epilogue)
    l2 = chip.memory["l2"].bandwidth.value
    inside = 2 * gelu.writes["h"] / rh.total(*whole).bytes * roof.bandwidth / l2
    assert 1 + inside == pytest.approx(1.04, abs=0.005)
    assert roof.time(*apart) / roof.time(*epilogue) == pytest.approx(1.06, abs=0.005)
    assert (1 + 2 * inside) / (1 + inside) == pytest.approx(1.04, abs=0.005)
