"""What an explanation says against itself: clocks apart, roofs beaten."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofline_helpers.device.explain import doubt_ceilings, doubt_clocks
from roofline_helpers.device.rows import GAP, KERNEL, TimedRow
from roofline_helpers.device.runner import Turns
from roofline_helpers.device.trace import Trace

NO_TRACE = Trace("cpu", {}, [], [], Path("none"))


@pytest.mark.parametrize("traced", [0.5, 2.0])
def test_clocks_that_contradict_each_other_are_noted_and_choose_nothing(traced: float) -> None:
    turns = Turns((53.9e-3,) * 3, (traced * 53.9e-3,) * 3, NO_TRACE)
    assert turns.goal is None
    (note,) = doubt_clocks(turns)
    assert "53.9 ms without the profiler" in note
    assert "25% apart" in note


def test_a_beaten_roof_is_noted() -> None:
    slow = TimedRow("slow", KERNEL, 1.0, reachable=0.9)
    fast = TimedRow("fast", KERNEL, 0.5, reachable=1.0)
    gap = TimedRow("gap", GAP, 9.0)
    assert doubt_ceilings([slow, gap]) == ()
    (note,) = doubt_ceilings([slow, fast, gap])
    assert note.startswith("1 of 2 kernels, 500 ms of the call, run more than 1.2 times as fast")
