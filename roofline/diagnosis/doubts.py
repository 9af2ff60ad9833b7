"""What an explanation says against itself: roofs beaten, a profiler that slows, a busy machine."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import KERNEL, LOOP, TimedRow
from roofline.diagnosis.trace import Trace
from roofline.measure.machine import busy
from roofline.xla.arrays import memory_notes
from roofline.xla.buffers import buffers_at_peak
from roofline_helpers.common.show import si

BEATEN = 1.2
"""A kernel that is faster than its roof by this factor means that the roof is wrong."""


def consistency_notes(rows: Sequence[TimedRow]) -> tuple[str, ...]:
    """Return a note if kernels ran faster than the device's reached ceilings."""
    held = [row for row in rows if row.kind == KERNEL and row.reachable]
    fast = [row for row in held if row.seconds * BEATEN < (row.reachable or 0.0)]
    took = sum(row.seconds for row in fast)
    if took <= 0.05 * sum(row.seconds for row in held):
        return ()
    return (
        f"{len(fast)} of {len(held)} kernels, {si(took, 's')} of the call, run more than "
        f"{BEATEN} times as fast as their roof: the ceilings were measured at a worse "
        "moment than the kernels, or more work was counted than they do; give ceilings= from a "
        "quiet moment",
    )


SLOWED = 2.0
"""A profiler that makes a call longer than this many times shows its own time, not the call's."""

SPREAD = 1.2
"""Calls on a CPU whose median is this many times the fastest share it with other work."""


def slowed(trace: Trace, plain: Sequence[float], traced: Sequence[float], queue: int) -> str:
    """Return why a trace says nothing about the call, the profiler's own time; empty if it does.

    `plain` and `traced` are seconds of a call, run by run, without the profiler and with it; each
    run has `queue` calls.
    """
    alone, watched = statistics.median(plain), statistics.median(traced)
    if watched > SLOWED * alone:
        calls = max(len(trace.runs) * queue, 1)
        return (
            f"the profiler makes a call {watched / alone:.1f} times as long ({si(watched, 's')} "
            f"instead of {si(alone, 's')}), and writes down {len(trace.events) / calls:,.0f} "
            "events in each: what it shows is mostly its own time, so shares are withheld"
        )
    return ""


def unsteady(plain: Sequence[float]) -> str:
    """Return why the calls of a CPU, in seconds, don't suffice for a diagnosis; empty if they do.

    Then another run may name other causes, unless one of them dominates.
    """
    spread, others = statistics.median(plain) / min(plain), list(busy())
    if spread <= SPREAD and not others:
        return ""
    return (
        f"this machine is too busy: half of the calls take {spread:.2f} times the fastest or "
        f"more{''.join(f' ({note})' for note in others)}; explain it again when nothing else runs"
    )


def ledger_notes(programs: Mapping[str, Program], rows: Sequence[TimedRow]) -> list[str]:
    """Return the programs' notes, without those that the trace answers."""
    names = dict.fromkeys(row.program for row in rows)
    ran = [programs[name] for name in names if name in programs]
    loops = {row.name for row in rows if row.kind == LOOP}
    answered = tuple(f"loop {name}{end}" for name in loops for end in (" (", ":"))
    if any(row.kernel.dearest is not None for row in rows):  # branches ran as kernels of their own
        answered += ("conditional ",)
    notes: list[str] = []
    for program in ran:
        notes += memory_notes(program.module, buffers_at_peak(program.module, program.platform))
    for program in ran:
        notes += program.ledger.notes
    return list(dict.fromkeys(note for note in notes if not note.startswith(answered)))[:12]
