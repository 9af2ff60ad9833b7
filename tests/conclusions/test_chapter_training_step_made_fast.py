"""Conclusions of the chapter training-step-made-fast: each test would refute one."""

from dataclasses import replace
from functools import cache

import pytest
from conclusions import kept

import roofline
import roofline_helpers as rh
from roofline.diagnosis import ladder


@cache
def steps():
    return {step.rung: step for step in ladder.committed()["train-step"].steps}


def clock(name):
    why = steps()[name].why
    return 1e3 * why.wall


def memory(name):
    return float(str(steps()[name].setting["memory"])) / 1e9


def test_hiding_the_exchange_gains_little_on_four_gpus_with_nvlink():
    whys = [steps()[name].why for name in ("cuDNN", "unrolled")]
    shown = [
        1e3 * sum(device.moving for device in why.devices) / len(why.devices) for why in whys if why
    ]
    assert shown[0] - shown[1] > 7
    assert 0 < clock("cuDNN") - clock("unrolled") < 0.02 * clock("cuDNN")
    best = min(clock(name) for name in ("unrolled", "gathered", "scan, gathered"))
    assert clock("cuDNN") - best < 4 < 45 < clock("as first written") - clock("cuDNN")
    assert clock("chunked loss") - clock("matmuls kept") > 45


def test_the_ladder_s_chunked_loss_saved_no_memory_and_a_mapped_one_would():
    """The loop's faults aren't the idea's: compiled for a v5e, a map of chunks needs least."""
    assert memory("chunked loss") > memory("gathered") + 5.5
    held = {}
    for name in ("whole", "fp32", "bf16", "map"):
        stats = kept()[f"whole-loss-{name}", "v5e"].memory
        held[name] = stats.total / 1e9
    assert held["map"] < held["bf16"] < held["fp32"] < held["whole"]
    assert held["map"] < held["whole"] / 2
    assert held["fp32"] - held["bf16"] == pytest.approx(4 * 4096 * 128256 / 1e9, rel=0.02)
    # the steps that follow on the ladder build on that loop; with all kept it hardly matters
    assert abs(clock("all kept") - clock("all kept, whole loss")) < 1
    assert 0 < memory("all kept, whole loss") - memory("all kept") < 1


def test_a_late_device_shows_as_waiting_on_all_others():
    why = steps()["straggler"].why
    late, *others = why.devices
    assert late.waiting < 0.001
    assert min(device.waiting for device in others) > 0.02
    assert late.kernels > 1.1 * max(device.kernels for device in others)


def test_matmuls_beside_an_exchange_run_slower():
    """Not the same kernels: the three programs launch different numbers of them."""
    rates, launches = [], []
    for name in ("cuDNN", "unrolled", "gathered"):
        why = steps()[name].why
        rows = [row for row in why.kernels if "cuBLAS" in row.title]
        rates.append(sum(row.matrix_flops for row in rows) / sum(row.seconds for row in rows))
        launches.append(sum(row.launches for row in why.kernels))
    assert [rate / rates[0] for rate in rates] == pytest.approx([1, 0.95, 0.97], abs=0.01)
    assert len(set(launches)) == 3


def test_a_layer_s_input_crosses_to_the_host_in_its_time_and_its_results_do_not():
    """By the step's own count of a layer's forward pass, and PCIe 5 with 16 lanes."""
    model = rh.models.LLAMA_3_8B
    host = roofline.network.topology("h200", 4, ceilings="reached")
    few, many = (
        roofline.training.step(
            replace(model, layers=layers), host, {"fsdp": 4}, batch=16, seq=2048, recompute="none"
        )
        for layers in (8, 16)
    )
    forward = (many.least_seconds - few.least_seconds) / 8 / 3  # the backward pass takes two
    crosses = 8192 * 2 / (16 * 32e9 * 128 / 130 / 8)  # seconds of one number for each token
    assert 4.5 < forward / (crosses * model.d_model) < 5.5
    wide = 3 * model.d_model + 2 * model.kv_heads * model.head_dim + 2 * model.d_ff
    assert 1.9 < crosses * wide / forward < 2.3
