"""From the least time to the clock's, step by step: bars that add up exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from roofline_helpers.explain.rows import GAP, HOST, KERNEL, LOOP, TRANSFER, Row

REST = "nothing explains it"
"""Name of the last bar, and of the last row."""

SHOWN = 5
"""Kernels that have a bar of their own; the others share one."""


@dataclass(frozen=True)
class Bar:
    """One step of the waterfall.

    Parameters
    ----------
    name : str
        What it is.
    seconds : float
        How much it adds; what makes the call faster than the step before is negative.
    meaning : str
        How it is worked out.
    row : str
        The kernel that it is about; empty where it is about several.

    Examples
    --------
    >>> Bar("gaps", 1e-5, "nothing ran").seconds
    1e-05
    """

    name: str
    seconds: float
    meaning: str
    row: str = ""


def waterfall(rows: Sequence[Row], wall: float, hand: float | None = None) -> tuple[Bar, ...]:
    """Return the bars from the least time to the wall time: their sum is `wall`, exactly.

    - *counted by hand*: least time of the work that was given, by the same ceilings.
    - *the compiled program*: least time of its kernels, by published ceilings; after a hand count
      only what it needs more than that.
    - *tiles read again*: operands that matrix products fetch more than once.
    - *ceilings as reached*: the same by what the device was seen to reach.
    - a bar for each kernel that takes longest above that, and one for the others.
    - *faster than the roof*: kernels that beat it, because caches serve them or kernels overlap.
    - *kernels without a roof*: those whose place in the program, or whose ceilings, aren't known.
    - *loops*, *transfers*, *gaps between kernels*, *the host*: where no kernel runs.
    - *nothing explains it*: the wall time without the profiler minus all rows, which were measured
      with it.

    Parameters
    ----------
    rows : sequence of Row
        Of one call.
    wall : float
        Seconds of a call, by the clock and without the profiler.
    hand : float, optional
        Least seconds of the work counted by hand.
    """
    kernels = [row for row in rows if row.kind == KERNEL]
    roofed = [row for row in kernels if row.reachable is not None]
    bars = [*_ideal(roofed, hand), *_short(roofed)]
    bars.append(
        Bar(
            "kernels without a roof",
            math.fsum(row.seconds for row in kernels if row.reachable is None),
            "their place in the compiled program, or the device's ceilings, isn't known",
        )
    )
    for name, kind, meaning in (
        ("loops", LOOP, "loops and calls outside of the kernels inside them"),
        ("transfers", TRANSFER, "copies between the host and the device"),
        ("gaps between kernels", GAP, "no kernel runs: the next one isn't there yet"),
        (
            "the host",
            HOST,
            "before the first kernel, after the last, and where a kernel waits for it",
        ),
    ):
        bars.append(Bar(name, math.fsum(r.seconds for r in rows if r.kind == kind), meaning))
    seen = [bar for bar in bars if bar.seconds]
    rest = wall - math.fsum(bar.seconds for bar in seen)
    rest = 0.0 if abs(rest) < 1e-12 * wall else rest  # what is left of rounding explains nothing
    meaning = "the wall time without the profiler minus all of the above, measured with it"
    return (*seen, Bar(REST, rest, meaning))


def _ideal(rows: Sequence[Row], hand: float | None) -> list[Bar]:
    """Return the bars up to what the kernels could take."""
    published = all(row.least is not None for row in rows)
    reachable = math.fsum(row.reachable or 0.0 for row in rows)
    least = math.fsum(row.least or 0.0 for row in rows) if published else reachable
    bars = []
    if hand is not None:
        bars.append(Bar("counted by hand", hand, "least time of the work that was given"))
    name = "the compiled program" + (" needs more" if hand is not None else "")
    meaning = "FLOPs and bytes of its kernels under the roofline, one after another"
    bars.append(Bar(name, least - (hand or 0.0), meaning))
    if published:
        tiled = math.fsum(row.tiled or 0.0 for row in rows)
        meaning = "operands that the tiles of matrix products fetch more than once"
        bars.append(Bar("tiles read again", tiled - least, meaning))
        meaning = "what the device was seen to reach, in place of published figures"
        bars.append(Bar("ceilings as reached", reachable - tiled, meaning))
    return bars


def _short(rows: Sequence[Row]) -> list[Bar]:
    """Return the bars of what kernels take above their roof, and below it."""
    slow = sorted((row for row in rows if row.lost > 0), key=lambda row: -row.lost)
    meaning = "its measured time minus its roof by reached ceilings"
    bars = [Bar(row.what, row.lost, meaning, row.name) for row in slow[:SHOWN]]
    if slow[SHOWN:]:
        name = f"{len(slow) - SHOWN} other kernels"
        rest = math.fsum(row.lost for row in slow[SHOWN:])
        bars.append(Bar(name, rest, "their measured times minus their roofs"))
    fast = math.fsum(row.lost for row in rows if row.lost < 0)
    meaning = "kernels that beat their roof: served by caches, or overlapping"
    bars.append(Bar("faster than the roof", fast, meaning))
    return bars
