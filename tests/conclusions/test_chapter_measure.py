"""Conclusions of the chapter measure: each test would refute one."""

from typing import Any

import pytest
from conclusions import prose

import roofline
import roofline_helpers as rh
from tools import books


def eight_bit(label: str, dtype: str = "fp8") -> Any:
    return rh.measured.device_records()["h100"].sample(f"matmul 8192×8192×8192 {dtype}, {label}")


def test_fp8_is_a_fast_kernel_behind_a_slow_transpose() -> None:
    """On an H100 8-bit matmuls aren't at half rate: they gain about two over bf16."""
    record = rh.measured.device_records()["h100"]
    for dtype in ("fp8", "int8"):
        first = eight_bit("compiler's choice", dtype)
        stored = eight_bit("B transposed, compiler's choice", dtype)
        assert first.seconds > 1.45 * stored.seconds
        assert first.state["clock"] > 1.2 * stored.state["clock"]  # power doesn't hold it
        bf16 = eight_bit("B transposed, cuBLASLt", "bf16")
        assert 1.8 < stored.rate / record.peaks["bf16"] < stored.rate / bf16.rate < 2.2
        assert record.peaks[dtype] == stored.rate
    # nothing of the H200's two points is a ceiling: both have the transpose in them
    assert not {"fp8", "int8"} & {*rh.measured.device_records()["h200"].peaks}
    assert not {"fp8", "int8"} & {*rh.chip("h200").reached.matrix}


def test_energy_is_time_at_the_power_limit_by_type_and_by_size() -> None:
    record = rh.measured.device_records()["h200"]

    def read(name: str) -> tuple[float, float, float]:
        """Joules per FLOP, watts, and the clock that the SMs counted."""
        one = record.sample(f"matmul {name}, clock counted", "jax")
        power = one.state["power"]
        return power * one.seconds / one.flops, power, one.state["clock"]

    large = read("8192×8192×8192 bf16")
    for dtype in ("fp8", "int8"):
        assert 0.45 < read(f"8192×8192×8192 {dtype}, B transposed")[0] / large[0] < 0.55
    assert read("4096×4096×4096 fp32")[0] > 10 * large[0]
    rows = {m: read(f"{m}×8192×8192 bf16") for m in (64, 128, 192, 256, 384, 512, 1024)}
    assert all(watts > 0.97 * 700 for _, watts, _ in rows.values())
    assert min(rows, key=lambda m: rows[m][2]) == 192
    chip = rh.chip("h200")
    assert chip.clock
    assert chip.peak("bf16").value == pytest.approx(132 * 4096 * chip.clock.value, rel=1e-3)


def test_80_per_cent_of_a_peak_is_random_numbers_at_first_or_zeros_for_long() -> None:
    timed = rh.measured.device_records("timed")["h200"]
    peak = rh.chip("h200").peak("bf16").value

    def product(numbers: str, when: str) -> tuple[float, float, float]:
        """Share of the peak, watts, and joules."""
        one = timed.sample(f"matmul 8192×8192×8192 bf16, {numbers}, {when}", "torch")
        return one.rate / peak, one.state["power"], one.state["power"] * one.seconds

    first, later = "tenth to 50th", "after a second"
    assert product("normal", first)[0] == pytest.approx(product("zeros", later)[0], abs=0.01)
    assert product("normal", later)[0] < 0.68 < 0.9 < product("zeros", first)[0]
    assert 0.45 < product("zeros", later)[2] / product("normal", later)[2] < 0.55
    assert product("zeros", later)[1] < 0.7 * 700 < 0.97 * 700 < product("normal", later)[1]
    fillings = {one.name.split(", ")[1] for one in timed.group("operands")}
    assert all(product(numbers, first)[0] > product(numbers, later)[0] for numbers in fillings)


def test_quoted_fp8_programs_are_the_compilers() -> None:
    compiled_text = (books.ROOT / "roofline_helpers/data/measured/fp8.hlo.txt").read_text("utf-8")
    for part in (
        "%wrapped_transpose = f8e4m3fn[8192,8192]{0,1} fusion(%bitcast.7.0), kind=kLoop",
        "custom-call(%args_0_.1, %wrapped_transpose, %constant, %constant)",
        'custom_call_target="__cublas$lt$matmul$f8"',
    ):
        assert part in compiled_text
        assert part in prose("measure")


def test_a_second_of_square_matmuls_is_slower_than_others_short_runs() -> None:
    public = rh.measured.table("matmul").set_index(["chip", "dtype", "m", "n", "k"])["seconds"]
    ratios = [
        record.sample(f"matmul {n}×{n}×{n} bf16", "torch").seconds / public[key, "bf16", n, n, n]
        for key, record in rh.measured.device_records().items()
        for n in (4096, 8192)
    ]
    assert [round(ratio, 2) for ratio in (min(ratios), max(ratios))] == [1.13, 1.25]


def test_nvml_overstates_the_clock_of_matmuls_at_the_power_limit() -> None:
    record = rh.measured.device_records()["h200"]
    chip = rh.chip("h200")
    assert chip.clock
    over = {}
    for one in record.group("clocks", "jax"):
        over[one.name.split(",")[0]] = one.state["clock, NVML"] / one.state["clock"] - 1
    square = {n: over[f"matmul {n}×{n}×{n} bf16"] for n in (8192, 16384)}
    assert all(0.09 < each < 0.1 for each in square.values())
    assert abs(over["copy 4 GiB fp32"]) < 0.002
    busy = []
    for n in square:
        one = record.sample(f"matmul {n}×{n}×{n} bf16, clock counted")
        busy.append(one.rate / chip.peak("bf16").value * chip.clock.value / one.state["clock"])
    assert [f"{share:.0%}" for share in busy] == ["94%", "95%"]
    seen = record.sample("matmul 8192×8192×8192 bf16, under ncu", "torch").counters
    assert seen
    assert f"{seen['tensor']:.0%}" == "94%"
    assert f"{2 * 8192**3 / (132 * 4096) / seen['cycles']:.0%}" == "92%"


def test_matrix_units_are_paid_in_tiles_and_memory_in_sectors_and_bytes_under_way() -> None:
    cycles = {
        (row["chip"], int(row["program"].split("×")[1])): row["cycles"]
        for row in roofline.evidence.load("cycles")["rows"]
        if row["kind"] == "columns"
    }
    assert cycles["v6e", 384] == cycles["v6e", 512]
    assert cycles["v6e", 640] == cycles["v6e", 768] > 1.4 * cycles["v6e", 512]
    steps = [cycles["v5e", n] - cycles["v5e", n - 128] for n in range(256, 769, 128)]
    assert [round(step / (4096 * 128 * 4096 / (4 * 128**2)), 2) for step in steps[2:]] == [1.03] * 3
    h100, h200 = rh.measured.device_records().values()
    for record in (h100, h200):
        gather = record.sample("gather 33554432 elements of 268435456 fp32")
        assert 60 < (gather.counters or {})["dram_read"] / 2**25 - 4 < 68
        assert 0.16 < gather.bytes / gather.dram_bytes < 0.18
    name = "decode attention 1×32×131072×128 bf16, 8 KV heads, Pallas, 1 splits"
    split = rh.measured.device_records("timed")["h200"].sample(name, "pallas")
    assert 1 < split.bandwidth / 8 / (4.8e12 / 132) < 1.1
    reads = {s.state["in flight"] / 132: s.bandwidth for s in h200.group("concurrency")}
    assert 24e3 < min(x for x in reads if reads[x] > 0.9 * max(reads.values())) < 25e3
