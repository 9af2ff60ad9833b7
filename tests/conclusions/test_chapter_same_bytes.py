"""Conclusions of the chapter same-bytes: each test would refute one."""

from typing import Any

import pytest

import roofline_helpers as rh

RECORDS = rh.measured.device_records()
FUSED = {
    "one jit": "jax", "pallas": "pallas", "compiled": "torch.compile", "Triton": "triton"
}  # fmt: skip


def chain(chip: str, how: str, source: str, kind: str = "chain", more: str = "") -> Any:
    return RECORDS[chip].sample(f"{kind} {how} 65536×4096 bf16{more}", source)


@pytest.mark.parametrize("chip", ["h100", "h200"])
def test_counted_bytes_are_those_by_hand_but_for_programs_op_by_op(chip: str) -> None:
    tensor = 2 * 65536 * 4096
    ways = {"op by op": 10, "four kernels": 10, "two kernels": 6, "one jit": 4}
    found = {how: chain(chip, how, "jax").dram_bytes / tensor / n for how, n in ways.items()}
    assert found.pop("op by op") > 5
    assert all(abs(one - 1) < 0.01 for one in found.values())
    for how, source in FUSED.items():
        assert chain(chip, how, source).dram_bytes / tensor == pytest.approx(4, rel=0.01)
    ways = [way for way in FUSED.items() if way[0] != "Triton" or chip == "h200"]
    least = {way: chain(chip, *way, kind="chain backward").seconds for way in ways}
    ours = least.pop(("pallas", "pallas"))
    assert min(least.values()) > 1.3 * ours


def test_only_torch_compile_s_instructions_take_longer_than_its_bytes() -> None:
    record, late = RECORDS["h200"], {}
    for how, source in FUSED.items():
        clock = chain("h200", how, source, more=", clock counted").state["clock"]
        seen = chain("h200", how, source, more=", under ncu").counters
        issue, copied = (
            seen["instructions"] / (4 * 132 * clock),
            seen["dram"] / record.streams["copy"],
        )
        late[source] = issue > copied
        if source == "torch.compile":  # on an H100 they hide behind a copy of the same bytes
            assert issue < seen["dram"] / RECORDS["h100"].streams["copy"]
    assert [source for source, one in late.items() if one] == ["torch.compile"]


def test_a_read_needs_three_megabytes_in_flight_and_more_than_eight_warps() -> None:
    reads = RECORDS["h200"].group("concurrency")
    best = max(one.bandwidth for one in reads)
    good = [one.state["in flight"] / 1e6 for one in reads if one.bandwidth > 0.9 * best]
    assert 3 < min(good) < 4
    assert all(
        one.bandwidth > 0.9 * best or one.state["warps"] == 8
        for one in reads
        if one.state["in flight"] > 4e6
    )


def test_instructions_limit_the_block_that_torch_compile_chose_and_not_its_kernel() -> None:
    kernel = "chain 65536×4096 bf16, its kernel, 512 × 2 warps"
    faster = RECORDS["h200"].sample(kernel, "torch.compile").seconds
    chosen = chain("h200", "compiled", "torch.compile").seconds
    assert faster == pytest.approx(0.55e-3, abs=5e-6)
    assert faster < 0.64e-3 < chosen


def test_one_kernel_gains_less_than_its_bytes_at_16384_rows() -> None:
    record = rh.measured.device_records("timed")["h100"]
    one, four = (
        record.sample(f"chain 16384×4096 bf16, {kernels}, graphs", "jax")
        for kernels in ("one kernel", "four kernels")
    )
    assert four.seconds / one.seconds == pytest.approx(1.95, abs=0.01)
    assert four.bytes / one.bytes == pytest.approx(2.5, abs=0.01)
    copy = RECORDS["h100"].streams["copy"]
    rates = [kernel.bytes / kernel.seconds / copy for kernel in (four, one)]
    assert rates == pytest.approx([0.96, 0.75], abs=0.01)
