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
