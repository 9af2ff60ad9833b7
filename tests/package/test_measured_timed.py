"""What the records of small kernels say on an H100 and an H200, and the H200's of four others."""

from __future__ import annotations

import json
import re
import statistics
from functools import cache
from typing import Any

import pytest

from roofline import evidence
from roofline_helpers.common import records
from roofline_helpers.measured import record


@cache
def timed(chip: str = "h200") -> record.Record:
    return record.device_records("timed")[chip]


def took(name: str, source: str, chip: str = "h200") -> float:
    """Return a sample's seconds."""
    return timed(chip).sample(name, source).seconds


def large(chip: str) -> dict[tuple[str, str, str], list[record.Sample]]:
    """Return the cold small kernels that move a gigabyte or more, by source, kind and type."""
    kernels: dict[tuple[str, str, str], list[record.Sample]] = {}
    for sample in timed(chip).group("small kernels, cold"):
        kind, _, dtype = sample.name.removesuffix(", cold").rsplit(" ", 2)
        if sample.bytes > 0.9e9:
            kernels.setdefault((sample.source, kind, dtype), []).append(sample)
    return kernels


@pytest.mark.parametrize(("chip", "copy"), [("h100", 2.97e12), ("h200", 4.2e12)])
def test_xla_s_loops_reach_a_number_of_elements_per_second_and_not_the_memory_s_rate(
    chip: str, copy: float
) -> None:
    """Narrow types are slow for it; PyTorch copies at the memory's rate in any type."""
    kernels = large(chip)
    slow = [("add one", "int8"), ("add one", "fp8"), ("add", "int8")]
    slow += [("add one", "bf16")] if chip == "h200" else []  # an H100's memory is slower than that
    for kind, dtype in slow:
        for sample in kernels["jax", kind, dtype]:
            rows = int(sample.name.rsplit(" ", 3)[1].partition("×")[0])
            assert rows * 4096 / sample.seconds == pytest.approx(8.3e11, rel=0.06), (kind, dtype)
            assert sample.bandwidth < 0.9 * copy
    for source, kind, dtype in (
        ("jax", "add one", "fp32"),
        ("jax", "add", "bf16"),
        ("torch", "add one", "bf16"),
        ("torch", "copy", "int8"),
        ("triton", "copy, blocks of 4096", "int8"),
    ):
        assert all(s.bandwidth > copy for s in kernels[source, kind, dtype]), (source, kind, dtype)


def test_a_gpu_begins_so_many_blocks_a_second_and_xla_s_loops_run_into_that() -> None:
    """Blocks a second are the same with 32 and 128 threads, and with 1, 2 and 4 bytes in each."""
    blocks = {}
    for sample in timed("h100").group("copies by block"):
        _, dtype, warps, elements = re.findall(r"[a-z]+\d+|\d+", sample.name)
        size = {"int8": 1, "bf16": 2, "fp32": 4}[dtype]
        count = 2**29 / size / (32 * int(warps) * int(elements))
        blocks[int(warps), size * int(elements)] = count / sample.seconds
    limit = 1.66e9
    for warps, most in ((1, 16), (4, 4)):
        for width in (1, 2, 4, 8, 16):
            if width <= most:
                assert blocks[warps, width] == pytest.approx(limit, rel=0.01), (warps, width)
    assert blocks[4, 16] < 0.5 * limit  # here the memory is what limits
    loop = next(s for s in timed("h100").group("counted") if s.name.startswith("add one 256 MiB i"))
    assert loop.counters is not None
    assert loop.counters["threads"] == 128
    assert loop.bytes / 2 / loop.counters["threads"] / loop.counters["blocks"] == 4  # elements
    assert loop.counters["blocks"] / loop.seconds == pytest.approx(limit, rel=0.02)
    assert loop.counters["dram"] < 0.5
    assert loop.counters["warps"] < 0.5  # half of the places for warps stand empty


def test_with_its_l1_left_alone_the_fused_chain_takes_triton_s_time() -> None:
    """XLA asks for shared memory before it launches a kernel that has any; the rest is cache."""

    def chain(way: str, source: str = "pallas") -> float:
        return took(f"chain 65536×4096 bf16, {way}", source, "h100")

    triton = chain("Triton, 8 warps, carve-out -1", "triton")
    assert chain("package") / triton == pytest.approx(1.052, abs=0.005)
    assert chain("package, L1 left to the driver") / triton == pytest.approx(1.0, abs=0.003)
    assert chain("Triton, 8 warps, carve-out 100", "triton") > 1.15 * triton
    loss = chain("XLA", "jax") / chain("XLA, L1 left to the driver", "jax")
    assert loss == pytest.approx(1.23, abs=0.01)
    ways = [s for s in timed("h100").group("chain and L1") if "left to" not in s.name]
    mosaic = min(s.seconds for s in ways if s.source == "mosaic")
    assert mosaic / triton == pytest.approx(1.03, abs=0.005)
    counted = {s.name.split(", ")[1]: s.counters for s in timed("h100").group("counted")}
    assert counted["package"]["shared"] == 233472  # of the 256 KiB that L1 and shared memory share
    plain = timed("h100").sample("chain 65536×4096 bf16, Triton, carve-out -1, under ncu", "triton")
    assert plain.counters is not None
    assert plain.counters["shared"] == 16384


def test_a_kernel_of_a_few_kilobytes_takes_a_microsecond_warm_and_more_cold() -> None:
    for kind in ("add one", "add", "RMSNorm", "softmax"):
        small = [
            next(s for s in timed().samples if s.group.endswith(how) and s.source == "jax"
                 and s.name.startswith(f"{kind} ") and "fp32" in s.name)
            for how in ("warm", "cold")
        ]  # fmt: skip
        assert small[0].bytes < 1.2e5
        assert 0.8e-6 < small[0].seconds < small[1].seconds < 3e-6


def test_short_streaming_kernels_take_one_and_a_half_us_and_the_least_time_over_0_8() -> None:
    """Chapter 8: its yardstick, what exceeds it, and that a warm L2 undercuts it."""
    took: dict[tuple[str, str, int], float] = {}
    over: dict[str, list[float]] = {}
    for sample in timed().samples:
        for kind in ("add", "cast to fp32", "gelu", "RMSNorm", "softmax"):
            named = re.fullmatch(rf"{kind} \d+×4096 bf16, (cold|warm)", sample.name)
            if named and sample.source == "jax" and sample.bytes < 2e8:
                took[kind, named[1], round(sample.bytes / 1e5)] = sample.seconds
                if named[1] == "cold":
                    rule = 1.5e-6 + sample.bytes / 4.8e12 / 0.8
                    over.setdefault(kind, []).append(sample.seconds / rule)
    errors = [abs(1 / ratio - 1) for ratios in over.values() for ratio in ratios]
    assert statistics.median(errors) < 0.11
    assert 1.5 < max(over["softmax"]) < 1.7
    assert max(ratio for kind in ("add", "cast to fp32") for ratio in over[kind]) < 1.12
    for kind in over:
        assert 0.9e-6 < took[kind, "warm", 1] < took[kind, "cold", 1] < 2.1e-6
        assert took[kind, "warm", 100] < took[kind, "cold", 100]  # 10 MB fit into the L2
        beyond = took[kind, "warm", 1000] / took[kind, "cold", 1000]  # 100 MB don't
        assert beyond == pytest.approx(1, abs=0.1)
    assert took["add", "cold", 100] == pytest.approx(4.5e-6, rel=0.02)


@pytest.mark.parametrize("matrix", [(28672, 4096), (4096, 14336)])
def test_narrow_weights_save_less_time_than_bytes(matrix: tuple[int, int]) -> None:
    n, k = matrix
    ways = ("bf16, cuBLAS", "int8, XLA", "int4 by channel, XLA", "int4 by group, XLA")
    for m in (4, 16):
        whole, half, quarter, grouped = (took(f"{m}×{n}×{k}, {way}", "jax") for way in ways)
        assert 1.05 < whole / half < 1.35  # half the bytes
        assert 0.9 < whole / quarter < 1.3  # a quarter of them
        assert grouped > 2.5 * whole
    whole, half = (took(f"64×{n}×{k}, {way}", "jax") for way in ways[:2])
    assert half > 0.9 * whole


def test_narrow_weights_take_the_same_time_with_either_memory() -> None:
    """An H100 reads at 0.7 of an H200's rate, and only bf16's kernel feels it."""
    for m in (1, 4, 16, 64):
        for way, low, high in (("bf16, cuBLAS", 1.37, 1.43), ("int8, XLA", 0.98, 1.04),
                               ("int4 by channel, XLA", 0.95, 1.0)):  # fmt: skip
            slow, fast = (took(f"{m}×28672×4096, {way}", "jax", chip) for chip in ("h100", "h200"))
            assert low < slow / fast < high
    whole, half = (took(f"4×28672×4096, {w}", "jax", "h100") for w in ("bf16, cuBLAS", "int8, XLA"))
    assert 1 - half / whole == pytest.approx(0.37, abs=0.01)


@pytest.mark.parametrize("tokens", [32768, 65536, 131072])
def test_eight_programs_leave_the_memory_idle_and_splits_fill_it(tokens: int) -> None:
    name = f"decode attention 1×32×{tokens}×128 bf16, 8 KV heads, "
    whole, split = (took(f"{name}Pallas, {n} splits", "pallas") for n in (1, 32))
    assert whole > 10 * split
    assert split < took(f"{name}cuDNN", "cudnn")
    traffic = 2 * 2 * 8 * tokens * 128
    assert traffic / whole < 0.35e12
    assert traffic / split > 3.3e12
    if tokens == 131072:  # what the chapter on attention says
        assert round(whole / split) == 13


def test_power_and_not_the_clock_s_limit_holds_a_long_matmul_of_random_numbers_back() -> None:
    rates, state = {}, {}
    for sample in timed().group("operands"):
        _, operands, when = sample.name.split(", ")
        rates[operands, when], state[operands, when] = sample.rate, sample.state
    early, late = "tenth to 50th", "after a second"
    assert state["normal", early]["clock"] == 1.98e9
    assert state["normal", late]["power"] > 0.98 * 700
    assert state["normal", late]["clock"] < 1.5e9
    assert rates["normal", late] == pytest.approx(rates["normal again", late], rel=0.01)
    assert rates["normal", early] / rates["normal", late] == pytest.approx(1.18, abs=0.03)
    assert rates["zeros", late] / rates["normal", late] == pytest.approx(1.18, abs=0.03)
    assert state["zeros", late]["power"] < 0.65 * 700


# --- one decode step of Llama-3-8B in 40 orders ---------------------------------------------------


@cache
def orders() -> list[dict[str, Any]]:
    text = records.committed("roofline", "explained", "decode-orders.json").read_text(
        encoding="utf-8"
    )
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


def decoded(**how: Any) -> float:
    """Return the milliseconds of the one order that is written so; the rest as at first."""
    first = {"scan": True, "float32": True, "by_head": False, "fused": False}
    wanted = {**first, "attention": "einsum", "donate": False, **how}
    (row,) = (r for r in orders() if all(r.get(key) == wanted[key] for key in wanted))
    return 1e3 * float(row["seconds"])


def test_donation_gains_nothing_then_costs_and_gains_once_the_loop_is_gone() -> None:
    pairs = {
        "at first": {},
        "by head": {"by_head": True},
        "and unrolled": {"by_head": True, "scan": False},
    }
    gains = {name: decoded(**how) - decoded(**how, donate=True) for name, how in pairs.items()}
    assert abs(gains["at first"]) < 0.2
    assert gains["by head"] == pytest.approx(-8.1, abs=0.2)
    assert gains["and unrolled"] == pytest.approx(8.1, abs=0.2)


def test_the_order_of_the_cache_is_worth_24_ms_the_loop_30_and_the_casts_nothing() -> None:
    first = decoded()
    assert first == pytest.approx(69.8, abs=0.2)
    assert first - decoded(by_head=True) == pytest.approx(23.8, abs=0.3)
    assert first - decoded(scan=False) == pytest.approx(30.4, abs=0.3)
    assert abs(first - decoded(float32=False)) < 0.2
    cudnn = {"float32": False, "attention": "cudnn"}
    assert decoded(**cudnn, donate=True) - decoded(**cudnn) == pytest.approx(8.0, abs=0.2)


def test_the_best_order_of_plain_jax_is_five_per_cent_behind_pytorch_and_our_kernels_lead() -> None:
    assert len([r for r in orders() if "scan" in r]) == 40
    took = {row["rung"]: 1e3 * row["seconds"] for row in orders()}
    theirs, ours = took.pop("PyTorch"), took.pop("narrow sums")
    best = min(took[r["rung"]] for r in orders() if "scan" in r)
    assert best == decoded(scan=False, float32=False, fused=True, attention="cudnn", donate=True)
    assert best / theirs == pytest.approx(1.05, abs=0.01)
    assert ours / theirs == pytest.approx(0.95, abs=0.01)


def test_each_order_s_waterfall_ends_at_its_clock() -> None:
    for row in orders():
        if "scan" in row:
            total = sum(seconds for _, seconds in row["waterfall"])
            assert total == pytest.approx(statistics.median(row["without graphs"]), rel=2e-3)
            assert row["findings"][0]["seconds"] < 0.5 * total


# --- layers of the decode step's last rung --------------------------------------------------------

LAYERS = {"h100": "decode-layers", "h200": "decode-layers-h200"}


def layer(
    chip: str, batch: int, hidden: int = 14336, tokens: int = 2048, rung: str = "narrow sums"
) -> float:
    """Return the seconds of a layer: a step with 12 of them less one with 4, over 8."""
    took = {
        row["layers"]: statistics.median(row["seconds"])
        for row in evidence.load(LAYERS[chip])["rows"]
        if (row["batch"], row["hidden"], row["tokens"]) == (batch, hidden, tokens)
        and (row["rung"], row.get("head", "")) == (rung, "")
    }
    return (took[12] - took[4]) / 8


@pytest.mark.parametrize(
    ("chip", "batch", "rest"),
    [("h100", 1, 16.3e-6), ("h100", 16, 17.3e-6), ("h200", 1, 20.2e-6), ("h200", 16, 16.6e-6)],
)
def test_a_layer_streams_at_the_memory_s_rate_and_takes_2_us_a_kernel_besides(
    chip: str, batch: int, rest: float
) -> None:
    weights = 2 * 4096 * (6144 + 4096 + 3 * 14336)
    cache = 2 * 2 * batch * 2048 * 8 * 128
    rate = 2 * 3 * 4096 * 14336 / (layer(chip, batch, hidden=28672) - layer(chip, batch))
    assert rate > 0.95 * record.device_records()[chip].streams["read"]
    assert layer(chip, batch) - (weights + cache) / rate == pytest.approx(rest, rel=0.01)
    assert layer(chip, batch, rung="not overlapped") > layer(chip, batch) + 0.25 * rest
    if batch == 16:
        longer = layer(chip, 16, tokens=4096)
        assert layer(chip, 16) + cache / rate == pytest.approx(longer, rel=0.003)


def test_these_rests_are_nearly_all_that_an_h200_s_step_is_above_its_roof() -> None:
    for row in evidence.load("decode-layers-h200")["rows"]:
        if row["layers"] == 32:
            roof = evidence.decode()["roof"][str(row["batch"])]["read"]
            rest = {1: 20.2e-6, 16: 16.6e-6}[row["batch"]]
            assert 0.9 < 32 * rest / (statistics.median(row["seconds"]) - roof) < 1


def test_each_kernel_of_a_layer_reads_its_weights_once_and_no_cut_helps() -> None:
    layers = evidence.load("decode-layers")
    rows = {"qkv": 6144, "o": 4096, "gate_up": 28672, "down": 14336}
    for seen in layers["counted"]["16"]:
        if seen["kernel"] in rows:
            bytes_read = 2 * 4096 * rows[seen["kernel"]]
            assert seen["dram_read"] == pytest.approx(bytes_read, rel=0.005)
            assert 0.65 < seen["dram"] < 0.88
    took = {row["name"]: statistics.median(row["seconds"]) for row in layers["tuned"]}
    assert max(took.values()) < 1.02 * min(took.values())
    assert min(took.values()) > 0.99 * took["base"]


# --- grouped matmuls of a mixture, on an H200 -----------------------------------------------------


def product(case: dict[str, Any], way: str) -> float:
    return statistics.median(case["ways"][way]["seconds"])


@pytest.mark.parametrize("case", evidence.load("grouped")["cases"])
def test_a_mixture_s_roof_counts_the_experts_that_have_rows(case: dict[str, Any]) -> None:
    rows, k, n = case["tokens"] * case["top"], case["k"], case["n"]
    read = case["experts"] if case["mode"] == "dw" else sum(size > 0 for size in case["sizes"])
    assert sum(case["sizes"]) == rows
    assert case["flops"] == 2 * rows * k * n
    assert case["bytes"] == 2 * (read * k * n + rows * (k + n))
    times = [statistics.median(w["seconds"]) for w in case["ways"].values() if "seconds" in w]
    assert min(times) > 0.95 * case["roof"]
    assert product(case, "torch grouped_mm") < 1.9 * case["roof"]


def test_without_a_kernel_for_groups_xla_multiplies_each_row_by_every_expert() -> None:
    """Its time is that of the experts' number times the FLOPs, from 1,024 tokens on."""
    reached = evidence.load("grouped")["runs"][0]["reached"]["flops"]
    for case in evidence.load("grouped")["cases"]:
        if case["tokens"] >= 1024 and "seconds" in case["ways"]["ragged_dot"]:
            dense = case["experts"] * case["flops"] / reached
            assert 0.85 * dense < product(case, "ragged_dot") < 1.7 * dense
            assert product(case, "Pallas 128×128×64") < 0.4 * product(case, "ragged_dot")
