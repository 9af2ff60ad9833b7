"""Traces from elsewhere: their steps, their kernels' names, and idle time and exchanges."""

from __future__ import annotations

import bisect
import math
import operator
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from roofline.diagnosis.program import Program
from roofline.diagnosis.trace import RUN, Event, Span, Trace, is_exchange, typical_runs, union
from roofline_helpers.common.show import many, si


def prepared(trace: Trace, programs: Mapping[str, Program]) -> tuple[Trace, list[str]]:
    """Return a trace whose runs are complete steps of its device, and notes about them.

    If no steps are marked, or if the marks only show when the host queued them (the usual training
    loop), a step is the time from one start of the device's main program to the next.
    """
    trace = named(trace, programs)
    device = trace.device
    steps, how = _steps(trace.devices[device], trace.runs, programs)
    seconds = [step.seconds for step in steps]
    typical = _typical(steps)
    which = (
        f"{many(len(steps), 'complete step')} on {device}, {how}, of {si(min(seconds), 's')} to "
        f"{si(max(seconds), 's')}: rows are of the {len(typical)} nearest the median"
    )
    idle = {}
    for name, events in trace.devices.items():
        own_steps = _typical(_steps(events, trace.runs, programs)[0])
        leaves = _leaves(events)
        busy = math.fsum(union(_inside(leaves, step), step.start, step.end) for step in own_steps)
        idle[name] = 1 - busy / math.fsum(step.seconds for step in own_steps)
    text = f"{device} is idle for {idle[device]:.1%} of these steps, by the union of its timelines"
    if len(idle) > 1:
        low, high = min(idle.values()), max(idle.values())
        text += f"; all {len(idle)} devices for {low:.1%} to {high:.1%}"
    notes = [which, text]
    if trace.platform != "cpu":
        notes += _exchanges(_leaves(trace.devices[device]), typical)
    return replace(trace, runs=steps), notes


def _typical(steps: Sequence[Span]) -> list[Span]:
    """Return the typical half of some steps, from which rows are made."""
    seconds = [step.seconds for step in steps]
    chosen = typical_runs(seconds, statistics.median(seconds))
    return sorted((steps[n] for n in chosen), key=lambda step: step.start)


def named(trace: Trace, programs: Mapping[str, Program]) -> Trace:
    """Return a trace whose kernels have the instructions that their own names imply.

    Inside a CUDA graph the profiler doesn't know the instruction, but XLA names a kernel after it,
    with _ for characters that CUDA doesn't allow: ``loop_add_fusion_3`` is ``loop_add_fusion.3``.
    """
    if trace.platform != "gpu":
        return trace
    events = [event for plane in trace.devices.values() for event in plane]
    ran = {(event.program, event.number) for event in events if event.op}
    known: dict[str, set[tuple[str, int | None, str]]] = {}
    for program, number in ran:
        compiled = programs.get(f"{program}({number})") or programs.get(program)
        for op in (*compiled.sites, *compiled.wrapped) if compiled is not None else ():
            spelt = re.sub(r"\W", "_", op)
            known.setdefault(spelt, set()).add((program, number, op))

    def with_instruction(event: Event) -> Event:
        if event.op and "command_buffer" not in event.op:
            return event
        found = known.get(event.label.removesuffix(".kd"), set())
        found = {candidate for candidate in found if event.program in ("", candidate[0])}
        if len(found) != 1:
            return replace(event, op="")
        ((program, number, op),) = found
        return replace(event, op=op, program=program, number=number)

    devices = {
        plane: list(map(with_instruction, events)) for plane, events in trace.devices.items()
    }
    return replace(trace, devices=devices)


def _steps(
    events: Sequence[Event], runs: Sequence[Span], programs: Mapping[str, Program]
) -> tuple[list[Span], str]:
    """Return the complete steps of a device, and how they were found."""
    first, last = events[0].start, max(event.end for event in events)
    marked = [run for run in runs if run.end > first and run.start < last]
    if marked and (marked[0].name == RUN or _whole(events, marked)):
        return marked, "as they are marked"
    name, starts = _starts(events, programs)
    periods = [Span(name, start, end) for start, end in pairwise(starts)]
    if periods:  # an odd number, so that the median is a step; the first is often slow
        how = f"from one start of {name or 'its kernels'} to the next"
        return periods[1 - len(periods) % 2 :], how
    if marked:
        return marked, "as they are marked"
    return [Span("all", first, last)], "which is all of it: none is marked, and none repeats"


def _whole(events: Sequence[Event], marked: Sequence[Span]) -> bool:
    """Return whether each marked step holds the same kernels, each as a whole."""
    held = []
    for run in marked:
        inside = _inside(events, run)
        if any(event.end > run.end for event in inside):
            return False
        held.append(Counter(event.op or event.label for event in inside if event.op))
    return bool(held[0]) and all(kernels == held[0] for kernels in held)


def _starts(events: Sequence[Event], programs: Mapping[str, Program]) -> tuple[str, list[float]]:
    """Return the program that takes longest, and when each run of it begins.

    A step begins at a kernel that it launches least often, which no loop repeats: the one before
    which the device is idle for longest.
    """
    seconds: dict[str, float] = {}
    for event in events:
        seconds[event.program] = seconds.get(event.program, 0.0) + event.seconds
    name = max(seconds, key=lambda program: (bool(program), seconds[program]))
    starts: dict[str, list[float]] = {}
    waits: dict[str, list[float]] = {}
    busy = events[0].start
    for event in events:
        if event.program == name:
            op = event.op or event.label
            starts.setdefault(op, []).append(event.start)
            waits.setdefault(op, []).append(event.start - busy)
        busy = max(busy, event.end)
    once = list(starts)
    program = programs.get(name)
    if program is not None:
        entry = program.module.entry.by_name
        once = [op for op in starts if program.wrapped.get(op, op) in entry] or once
    counts = {op: len(starts[op]) for op in once}
    fewest = min((count for count in counts.values() if count > 1), default=0)
    seldom = [op for op in once if counts[op] == fewest]
    first = max(seldom, key=lambda op: statistics.median(waits[op]), default="")
    return name, starts.get(first, [])


def _inside(events: Sequence[Event], run: Span) -> Sequence[Event]:
    begun = operator.attrgetter("start")
    low, high = (bisect.bisect_left(events, at, key=begun) for at in (run.start, run.end))
    return events[low:high]


def _leaves(events: Sequence[Event]) -> list[Event]:
    """Return events without containers: a loop isn't busy while its kernels wait."""
    last: dict[str, Event] = {}
    containers = set()
    for event in events:
        before = last.get(event.line)
        if before is not None and event.start < before.end and event.end <= before.end:
            containers.add(id(before))
        last[event.line] = event
    return [event for event in events if id(event) not in containers]


def _exchanges(leaves: Sequence[Event], steps: Sequence[Span]) -> list[str]:
    """Return a note on how much of the exchanges between devices is hidden by other kernels."""
    events = [event for step in steps for event in _inside(leaves, step)]
    exchanges = [event for event in events if is_exchange(event.op, event.label)]
    if not exchanges:
        return []
    others = [event for event in events if not is_exchange(event.op, event.label)]
    took = union(exchanges) / len(steps)
    exposed = (union(events) - union(others)) / len(steps)
    main = statistics.mode(event.line for event in others) if others else ""
    in_line = sum(event.seconds for event in exchanges if event.line == main)
    share = in_line / sum(event.seconds for event in exchanges)
    return [
        f"exchanges take {si(took, 's')} of a step, and {si(exposed, 's')} of that nothing else "
        f"runs: rows have that part alone; {share:.0%} of their time is on the stream of the other "
        "kernels, where nothing hides it"
    ]
