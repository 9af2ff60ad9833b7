"""Instruments and labs without a browser: starting values, errors, texts, what needs no script."""

import functools

import pytest

import roofline
import roofline_helpers as rh
from roofline import evidence as files
from roofline import labs, serving
from roofline.labs.briefs import BRIEFS, COUNTED, MARGIN, judge
from roofline.labs.labs import (
    EDGE,
    ROWS,
    TIMED,
    TODAY,
    goal_cost,
    groups_of,
)
from roofline_helpers import models, pages
from roofline_helpers.common.show import significant

INSTRUMENTS = {
    "point": pages.point,
    "ridges": pages.ridges,
    "matmul": pages.matmul,
    "chain": pages.chain,
    "sharding": labs.sharding,
}
LABS = {"memory-wall": labs.memory_wall, "design": labs.design_challenge}
ALL = {**INSTRUMENTS, **LABS}


@functools.cache
def made(kind):
    """An element, made once for all tests: a lab takes seconds."""
    element = ALL[kind]()
    return element


def test_the_design_challenge_asks_what_is_so():
    data = made("design").data
    today = serving.step(models.LLAMA_3_8B, "h100", **TODAY)
    right = [option["right"] for option in data["predict"]["options"]]
    assert right == [True, True, False, False]
    groups = groups_of(today)
    for name, group in groups.items():
        waiting = sum(k.total for k in group if k.bound == "memory") / sum(k.total for k in group)
        assert (waiting > 0.5) == (name != "rest"), name
    assert {kernel.bound for kernel in groups["rest"]} == {"latency"}
    assert sum(len(group) for group in groups.values()) == len(today.kernels)
    last = {option["text"]: option["right"] for option in data["reflect"]["options"]}
    assert last["Batch 64 in place of 8"]
    assert sum(last.values()) == 1
    assert serving.step(models.LLAMA_3_8B, "h100", **{**TODAY, "batch": 64}).fits


def test_at_the_edge_one_person_s_batch_does_not_pay():
    edge = made("design").data["edge"]
    today = serving.step(models.LLAMA_3_8B, "orin-nx", **EDGE)
    assert significant(today.tokens_per_second) in edge["story"][1]
    assert rh.si(-today.but(weights="bf16").memory.room, "B") in edge["story"][0]
    assert today.fits
    waiting = sum(kernel.total for kernel in today.kernels if kernel.bound == "memory")
    assert waiting > 0.9 * today.seconds  # "far left of its ridge"
    changes = {
        "Batch 8": {"batch": 8},
        "Fuse": {"fusion": "epilogue", "attention": "flash"},
        "Weights": {"weights": "int4"},
        "A KV": {"cache": "int8"},
    }
    times = {name: today.but(**change).seconds for name, change in changes.items()}
    right = [option["text"] for option in edge["predict"]["options"] if option["right"]]
    assert right[0].startswith(min(times, key=lambda name: times[name]))
    assert len(times) == len(edge["predict"]["options"])
    assert times["Batch 8"] > today.seconds
    wide = today.but(batch=8)
    asked = {task["key"]: task["solution"] for task in edge["tasks"]}
    assert asked["lab-edge-batch"] == pytest.approx(8 * today.seconds / wide.seconds)
    assert wide.fits
    narrow = today.but(weights="int4")
    assert narrow.but(batch=asked["lab-edge-room"]).fits
    assert not narrow.but(batch=asked["lab-edge-room"] + 1).fits
    there = serving.step(models.LLAMA_3_8B, "l4", **EDGE)
    assert asked["lab-edge-l4"] == pytest.approx(today.seconds / there.seconds)


def test_the_wall_s_goal_is_not_won_by_the_largest_chip_or_batch():
    data = made("memory-wall").data
    times, goal = data["measured"]["times"], data["goal"]
    costs = {(c, t, m): goal_cost(times, c, t, m) for c in TIMED for t in TIMED[c] for m in ROWS}
    best = min(costs, key=lambda kernel: costs[kernel])
    assert best == ("h100", "fp8", 512)
    assert goal["best_cost"] == costs[best]
    job = rh.work.matmul(512, 8192, 8192, "fp8", out="bf16")
    seconds = (
        rh.measured.table("matmul")
        .query("chip == 'h100' and dtype == 'fp8' and m == 512 and n == 8192 and k == 8192")
        .seconds
    )
    assert costs[best] == pytest.approx(3 / 3600 * seconds.item() / 512 * 1e9, rel=0.005)
    assert rh.chip("h100").roofline("fp8").bound(job) == "compute"


def test_the_design_s_tasks_have_one_answer_each():
    data = made("design").data
    assert [step["batch"] for step in data["measured"]["steps"]] == [1, 16, 64]
    tasks = {task["key"]: task for task in data["tasks"]}
    right = {
        key: [option["text"] for option in task["options"] if option["right"]]
        for key, task in tasks.items()
        if "options" in task
    }
    assert right["lab-design-norms"] == ["it depends on the floor"]
    assert right["lab-design-why"] == ["less memory traffic"]
    assert right["lab-design-clock"] == ["measured rates, with a launch's floor"]
    assert tasks["lab-design-70b"]["solution"] == 4
    today = serving.step(models.LLAMA_3_8B, "h100", **TODAY)
    free = groups_of(today.but(**COUNTED["published"]))
    bounds = [{kernel.bound for kernel in groups["rest"]} for groups in (groups_of(today), free)]
    assert bounds == [{"latency"}, {"memory"}]  # on the floor it depends
    prompt = today.but(phase="prefill", batch=1)
    fused = prompt.but(fusion="epilogue")
    assert fused.flops == prompt.flops
    assert fused.bytes < 0.9 * prompt.bytes


def test_every_measured_decode_step_is_within_the_margin():
    record = files.decode()
    took = []
    for row in record["steps"]:
        way = {"batch": row["batch"], "context": record["context"]}
        times = [seconds for name, seconds in row.items() if name != "batch"]
        took += [("llama-3-8b", record["device"]["chip"], way, seconds) for seconds in times]
    for batch in (64, 128):
        way = {"batch": batch, "context": 1500, "chips": 8}
        real = roofline.validation.published_step(f"v6e-8-llama-3.3-70b-decode-{batch}")
        took.append(("llama-3-70b", "v6e", way, real.seconds))
    for name, counted in COUNTED.items():
        ratios = [
            seconds / serving.step(model, chip, **way, **counted).seconds
            for model, chip, way, seconds in took
        ]
        assert min(ratios) > 1
        assert MARGIN[name] - 0.1 < max(ratios) < MARGIN[name]


@pytest.mark.parametrize("key", BRIEFS)
def test_a_plain_server_on_a_brief_s_first_chip_misses_it(key):
    brief = BRIEFS[key]
    plain = {"chips": 1, "batch": 8, "fusion": "none", "attention": "naive"}
    types = {"weights": "bf16", "activations": "bf16", "cache": "bf16"}
    assert not judge(brief, {"chip": brief.chips[0], **plain, **types}).met


def test_a_sharding_is_told_of_the_mesh_that_was_asked_for():
    """Of 256 tokens a chip: weights come by two axes of 100 GB/s a ring, sums by one."""
    d, f, peak = 8192, 28672, 197e12
    seconds = 4 * 256 * d * f / peak
    gathers = 4 * d * f * 255 / 256 / 200e9
    sums = 4 * 16 * 256 * d * 15 / 16 / 100e9
    assert f"by weights, at most {seconds / gathers:.0%} of" in labs.sharding("v5e", 1).plain
    assert f"by sums, at most {seconds / sums:.0%} of" in labs.sharding("v5e", 16).plain
