"""Conclusions of the chapter where-the-time-goes: each test would refute one."""

from itertools import pairwise

import pytest
from conclusions import path

import roofline_helpers as rh
from roofline.diagnosis import ladder
from roofline.diagnosis.ladder import Step
from roofline.xla.causes import KEPT, KINDS, MOVED, WIDE
from tools.notebooks import run as notebooks


def kinds() -> dict[str, str]:
    """Return the chapter's kind of each change, from its cell."""
    cells = notebooks.load(path("where-the-time-goes")).cells
    (source,) = (cell.source for cell in cells if cell.id == "by-kind")
    names = {"ladder": ladder, "pairwise": pairwise}
    exec(source.partition("def versions")[0], names)
    return names["KINDS"]


def gone(steps: tuple[Step, ...]) -> dict[str, float]:
    """Return the share of the lost time by kind of what was taken away."""
    lost = dict.fromkeys(KINDS, 0.0)
    for one, other in pairwise(steps):
        lost[kinds()[other.rung]] += one.why.wall - other.why.wall
    return {kind: seconds / sum(lost.values()) for kind, seconds in lost.items()}


@pytest.mark.parametrize(("batch", "least"), [(1, 0.8), (16, 0.9), (64, 0.9)])
def test_decode_lost_most_to_what_is_moved_and_not_changed(batch: int, least: float) -> None:
    assert gone(ladder.committed()["decode-rungs"].select(batch=batch))[MOVED] > least


def test_training_lost_most_to_types_then_scores_then_recomputation() -> None:
    shares = gone(ladder.committed()["training"].steps[:4])
    assert sorted(shares, key=lambda kind: -shares[kind])[:3] == [WIDE, KEPT, "again"]


def test_the_first_finding_before_a_large_change_is_of_its_kind() -> None:
    """But for recomputation that the author asked for, which is no finding."""
    for name in ("decode-rungs", "training"):
        for one, other in pairwise(
            ladder.committed()[name].select(
                **{"tokens": 2048} if name == "training" else {"batch": 16}
            )
        ):
            if one.why.wall - other.why.wall > 0.2 * one.why.wall:
                assert one.why.findings[0].kind == kinds()[other.rung]


def test_what_is_named_at_first_is_half_in_decode_and_four_fifths_in_training() -> None:
    for name, last, low, high in (("decode-rungs", -1, 0.5, 0.6), ("training", 3, 0.75, 0.85)):
        sizes = {"batch": 16} if name == "decode-rungs" else {"batch": 4}
        steps = ladder.committed()[name].select(**sizes)
        first, end = steps[0].why, steps[last].why
        named = sum(finding.seconds for finding in first.findings if finding.kind)
        assert low < named / (first.wall - end.wall) < high


def test_no_matmul_beats_the_pipe_at_the_clock_that_power_allowed() -> None:
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


def test_most_of_what_is_found_in_the_unrolled_decode_step_has_no_line() -> None:
    """Copies into another layout, which the compiler added."""
    steps = ladder.committed()["decode-rungs"].select(batch=16)
    [why] = [step.why for step in steps if step.rung == "unrolled"]
    bare = [found for found in why.findings if found.cause != "host" and not found.source]
    assert {found.cause for found in bare} == {"layout-copy"}
    assert 1e3 * sum(found.seconds for found in bare) == pytest.approx(4.43, abs=0.01)
    assert sum(one.seconds for one in bare) > 0.5 * sum(
        found.seconds for found in why.findings if found.cause != "host"
    )
