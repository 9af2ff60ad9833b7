"""What an explanation has to say against itself: clocks that differ, roofs that were beaten."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from roofline_helpers.explain.rows import KERNEL, Row
from roofline_helpers.explain.running import APART, Turns
from roofline_helpers.show import si

BEATEN = 1.2
"""Times its roof's rate at which a kernel says more about the roof than about itself."""


def of_clocks(turns: Turns) -> tuple[str, ...]:
    """Return a note if the runs with the profiler and those without it tell two stories."""
    if not turns.apart:
        return ()
    plain, traced = (statistics.median(each) for each in (turns.plain, turns.traced))
    return (
        f"a call takes {si(plain, 's')} without the profiler and {si(traced, 's')} with it, more "
        f"than {100 * APART:.0f} % apart: rows are of typical runs with it, and don't add up to "
        "the clock's time; explain it again when the machine is quiet, or for longer",
    )


def of_ceilings(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return a note if kernels ran faster than the ceilings that the device is said to reach."""
    held = [row for row in rows if row.kind == KERNEL and row.reachable]
    fast = [row for row in held if row.seconds * BEATEN < (row.reachable or 0.0)]
    took = sum(row.seconds for row in fast)
    if took <= 0.05 * sum(row.seconds for row in held):
        return ()
    return (
        f"{len(fast)} of {len(held)} kernels, {si(took, 's')} of the call, run more than "
        f"{BEATEN} times as fast as their roof: the ceilings were measured at a worse "
        "moment than the kernels, or the counted work is more than what they do; give "
        "ceilings= from a quiet moment",
    )
