"""Conclusions of the chapter where-the-time-goes: each test would refute one."""

from itertools import pairwise

import pytest
from conclusions import path

import roofline_helpers as rh
from roofline.diagnosis import ladder
from tools.notebooks import run as notebooks


def kinds():
    """Return the chapter's kind of each change, from its cell."""
    cells = notebooks.load(path("where-the-time-goes")).cells
    (source,) = (cell.source for cell in cells if cell.id == "by-kind")
    names = {"ladder": ladder, "pairwise": pairwise}
    exec(source.partition("def versions")[0], names)
    return names["KINDS"]


def test_the_first_finding_before_a_large_change_is_of_its_kind():
    """But for recomputation that the author asked for, which is no finding."""
    for name in ("decode-rungs", "training"):
        for one, other in pairwise(
            ladder.committed()[name].select(
                **{"tokens": 2048} if name == "training" else {"batch": 16}
            )
        ):
            if one.why.wall - other.why.wall > 0.2 * one.why.wall:
                assert one.why.findings[0].kind == kinds()[other.rung]


def test_no_matmul_beats_the_pipe_at_the_clock_that_power_allowed():
    """The peak at the SMs' counted clock is the roof of chapter 12's training step."""
    step = next(s for s in ladder.committed()["training"].steps if s.rung == "cuDNN")
    healthy, chip = step.why, rh.chip("h200")
    assert chip.clock
    allowed = step.setting["clock"] / chip.clock.value
    products = [r for r in healthy.kernels if r.matrix_flops and "attention" not in r.title]
    rates = [row.matrix_flops / row.seconds for row in products]
    assert 0.9 < max(rates) / (allowed * healthy.roofs.published["bf16"]) < 1
    # two bars of its waterfall: the slowest kernel, and twice that, ceilings as reached
    published = healthy.roofs.published["bf16"]
    missed, lower = {}, 0.0
    for row in healthy.kernels:
        reached = row.matrix_flops / (allowed * published) or row.reachable
        if reached:
            missed[row.title] = row.seconds - reached
            lower += reached - (row.matrix_flops / published or row.least)
    assert max(missed, key=missed.__getitem__) == "cuDNN attention of attend (backward)"
    assert lower > 2 * max(missed.values())
    record = rh.measured.device_records()["h200"]
    for one in record.group("clocks"):
        if one.name.startswith("matmul") and one.dtype in ("bf16", "fp16"):
            peak = chip.peak(one.dtype).value * one.state["clock"] / chip.clock.value
            assert one.rate < peak
            assert one.state["clock"] < step.setting["clock"] or "8192×8192×8192" not in one.name
            assert one.state["clock, NVML"] >= 0.995 * one.state["clock"]


def test_most_of_what_is_found_in_the_unrolled_decode_step_has_no_line():
    """Copies into another layout, which the compiler added."""
    steps = ladder.committed()["decode-rungs"].select(batch=16)
    [why] = [step.why for step in steps if step.rung == "unrolled"]
    bare = [found for found in why.findings if found.cause != "host" and not found.source]
    assert {found.cause for found in bare} == {"layout-copy"}
    assert 1e3 * sum(found.seconds for found in bare) == pytest.approx(4.43, abs=0.01)
    assert sum(one.seconds for one in bare) > 0.5 * sum(
        found.seconds for found in why.findings if found.cause != "host"
    )
