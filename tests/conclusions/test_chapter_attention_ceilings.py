"""Conclusions of the chapter attention-ceilings: each test would refute one."""

import pytest

import roofline_helpers as rh

ATTENTION = {"batch": 4, "heads": 32, "head_dim": 128}


def test_a_clock_is_held_against_ceilings_that_were_reached():
    """Of attention the ratio by those is the clock's within a tenth; by published ones it isn't."""
    record = rh.measured.device_records()["h100"]
    naive, flash = (
        record.sample(f"{kind} attention 2×16×8192×128 bf16", source).seconds
        for kind, source in (("naive", "jax"), ("flash", "torch"))
    )

    def by_roof(reached):
        roof = rh.chip("h100").roofline("bf16", reached=reached)
        size = ATTENTION | {"q_len": 8192}
        fused = rh.work.flash_attention(**size)
        return float(roof.time(*rh.work.naive_attention(**size)) / roof.time(fused))

    assert abs(naive / flash / by_roof(reached="copy") - 1) < 0.1
    assert by_roof(reached=False) > 1.3 * naive / flash


@pytest.mark.parametrize("keys", [2048, 8192, 32768])
def test_splitting_a_short_cache_gains_nothing_over_an_einsum(keys):
    record = rh.measured.device_records("timed")["h200"]
    shape = f"decode attention 1×32×{keys}×128 bf16, 8 KV heads, "
    plain = record.sample(shape + "one kernel a step of einsum", "jax").seconds
    splits = [s.seconds for s in record.samples if s.name.startswith(shape + "Pallas, ")]
    assert (plain < min(splits)) == (keys <= 8192)
