"""Conclusions of the chapter training-step-made-fast: each test would refute one."""

import json
import statistics
from dataclasses import replace

import pytest

import roofline
from roofline import network
from roofline.diagnosis import ladder
from roofline_helpers.models import LLAMA_3_8B
from tools import books


def test_a_long_sequence_wants_balance_and_not_a_ring() -> None:
    """On four H200s, 131,072 tokens: the busiest GPU sets the time, and going round saves none."""
    ways = {step.rung: step.why for step in ladder.committed()["context"].steps}
    gathered, ring, zigzag = (
        ways[way] for way in ("gathered, in order", "ring, in order", "ring, zigzag")
    )
    assert gathered.wall <= ring.wall < 1.03 * gathered.wall
    assert zigzag.wall < 0.63 * gathered.wall
    assert {way.findings[0].cause for way in (gathered, ring)} == {"skew"}
    in_order = [device.kernels for device in gathered.devices]
    for i, kernels in enumerate(in_order):  # 1, 3, 5, 7 sixteenths of the pairs
        assert kernels / sum(in_order) == pytest.approx((2 * i + 1) / 16, abs=0.02)
    balanced = [device.kernels for device in zigzag.devices]
    assert max(balanced) < 1.07 * min(balanced)
    assert all(device.moving < 0.05 * zigzag.wall for device in zigzag.devices)
    host = network.topology("h200", 4)
    of_keys = 2 * 8 / 32 * host.flops("bf16") / 4 / host.axes[0].protocols[-1].rate
    assert 131072 / 4 / of_keys == pytest.approx(30, abs=0.5)


def test_what_a_training_step_takes_beyond_its_matmuls_is_mostly_its_other_kernels() -> None:
    why = next(s.why for s in ladder.committed()["train-step"].steps if s.rung == "all kept")
    gpus = network.topology("h200", 4, ceilings="reached")
    plan = roofline.training.step(replace(LLAMA_3_8B, layers=8), gpus, {"fsdp": 4}, batch=16,
                                  seq=2048, recompute="none")  # fmt: skip
    bound = plan.least_seconds
    products = sum(row.seconds for row in why.kernels if row.matrix_flops)
    others = [row for row in why.kernels if not row.matrix_flops]
    running = statistics.mean(device.kernels for device in why.devices)
    assert why.wall / bound == pytest.approx(1.29, abs=0.005)
    assert 1 < products / bound < 1.04
    assert 0.6 < (running - products) / (why.wall - bound) < 2 / 3
    assert 1.1 < 1 + sum(row.reachable or 0 for row in others) / bound < 1.12
    for chip, devices, gain in (("h100", 2, 0.025), ("h200", 2, 0.013), ("h200", 4, 0.0016)):
        text = (books.ROOT / f"examples/train_step/{chip}-flags.json").read_text("utf-8")
        rows = [row for row in json.loads(text)["rows"] if row["devices"] == devices]
        took = {(row["name"], row["rung"]): statistics.median(row["seconds"]) for row in rows}
        scans = [rung for name, rung in took if name == "none" and rung != "all kept"]
        best = max(
            1 - took[name, rung] / took["none", rung] for name, rung in took if rung in scans
        )
        assert best == pytest.approx(gain, abs=0.001)
