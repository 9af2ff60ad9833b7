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


def test_the_fastest_attention_has_the_lowest_utilisation() -> None:
    record = rh.measured.device_records()["h100"]
    ways = (("naive", "jax"), ("flash", "pallas"), ("flash", "cudnn"))
    runs = [record.sample(f"{way} attention 2×16×2048×128 bf16", by) for way, by in ways]
    took = [run.seconds for run in runs]
    busy = [run.counters["seconds"] / run.seconds for run in runs]
    assert took == sorted(took, reverse=True)
    assert busy == sorted(busy, reverse=True)


def test_what_is_normal_differs_by_kind() -> None:
    """Chapter 7's dots: large streams above four fifths of the roof, causal attention at half."""
    record, roof = rh.measured.device_records()["h100"], rh.chip("h100").roofline("bf16")
    names = ["copy 2 GiB", "GELU on 268435456", "LayerNorm 65536×4096", "softmax 8192×8192"]
    for name in [*names, "matmul 1×28672×8192"]:
        sample = record.sample(f"{name} bf16")
        assert 0.81 < sample.bytes / roof.bandwidth / sample.seconds < 0.92
    for tokens in (4096, 8192):
        job = rh.work.flash_attention(8, tokens, heads=32, head_dim=128, causal=True)
        assert 0.45 < roof.time(job) / rh.measured.expected(job, "h100").seconds < 0.6


def test_what_is_faster_than_an_h100_s_roof_fits_into_its_cache() -> None:
    rows = rh.measured.table("matmul").query("chip == 'h100' and dtype == 'bf16'")
    job = rh.work.matmul(*(rows[side].to_numpy() for side in "mnk"))
    h100 = rh.chip("h100")
    faster = h100.roofline("bf16").without_floor().time(job) > rows["seconds"]
    assert faster.sum() == 38
    assert job.bytes[faster].max() < h100.memory["l2"].capacity.value
