"""What an explanation says against itself: roofs beaten."""

from __future__ import annotations

from roofline_helpers.device.explain import consistency_notes
from roofline_helpers.device.rows import GAP, KERNEL, TimedRow


def test_a_beaten_roof_is_noted() -> None:
    slow = TimedRow("slow", KERNEL, 1.0, reachable=0.9)
    fast = TimedRow("fast", KERNEL, 0.5, reachable=1.0)
    gap = TimedRow("gap", GAP, 9.0)
    assert consistency_notes([slow, gap]) == ()
    (note,) = consistency_notes([slow, fast, gap])
    assert note.startswith("1 of 2 kernels, 500 ms of the call, run more than 1.2 times as fast")
