"""Several devices of one call: how long each waits for the slowest, and which one is last."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from roofline.diagnosis.ceilings import Ceilings
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import GAP, HOST, KERNEL, WAIT, TimedRow, exchanges, join
from roofline.diagnosis.trace import WAITS_FOR, Event, Trace
from roofline.xla.collectives import CollectiveOp
from roofline_helpers.common.show import Fields

Occurrences: TypeAlias = dict[tuple[str, str], dict[str, list[Event]]]
"""The events of each exchange, by program and instruction, then by plane."""


@dataclass(frozen=True, repr=False)
class DeviceTime(Fields):
    """One device's time in one call, in seconds: the four parts add up to the traced call.

    Parameters
    ----------
    device : str
        Its name in the trace.
    kernels : float
        In kernels, transfers and loops.
    moving : float
        In exchanges that nothing hides, from when all devices have arrived.
    waiting : float
        In exchanges that nothing hides, before the last device arrives.
    idle : float
        In gaps, and while only the host works.
    last : float
        Exchanges at which it arrives last.

    Examples
    --------
    >>> DeviceTime("/device:GPU:0", 1e-3, 2e-4, 0.0, 1e-5, 1.0).number
    0
    """

    device: str
    kernels: float
    moving: float
    waiting: float
    idle: float
    last: float = 0.0

    @property
    def number(self) -> int:
        """Its number among the devices of its host."""
        return number_of(self.device)


def number_of(plane: str) -> int:
    """Return the number of a device from the name of its plane."""
    return int(plane.rpartition(":")[2])


def with_waits(trace: Trace, programs: Mapping[str, Program]) -> Trace:
    """Return a trace in which waiting for another device is an event of its own.

    An exchange only moves bytes once all of its devices have arrived, so on each device its event
    is waiting until the last one begins. A permute, in which only neighbours meet, stays whole.
    """
    if len(trace.devices) < 2:
        return trace
    found: Occurrences = {}
    for plane, events in trace.devices.items():
        for event in events:
            if exchanges(event, programs.get(event.program)):
                by_plane = found.setdefault((event.program, event.op or event.label), {})
                by_plane.setdefault(plane, []).append(event)
    waits: dict[int, tuple[float, int]] = {}
    for (program, op), by_plane in found.items():
        exchange = _exchange(programs.get(program), op)
        if exchange is not None and exchange.kind == "collective-permute":
            continue
        groups = (exchange.groups if exchange is not None else None) or ()
        ends = {plane: sorted(events, key=_end) for plane, events in by_plane.items()}
        for plane, events in by_plane.items():
            group = next((g for g in groups if number_of(plane) in g), None)
            others = {name: found for name, found in ends.items() if name != plane}
            if group is not None:
                others = {name: others[name] for name in others if number_of(name) in group}
            for event in events:
                last = _last(event, plane, others)
                if last is not None:
                    waits[id(event)] = last
    devices = {
        plane: [part for event in events for part in _parts(event, waits.get(id(event)))]
        for plane, events in trace.devices.items()
    }
    return replace(trace, devices=devices)


def _end(event: Event) -> float:
    return event.end


def _exchange(program: Program | None, op: str) -> CollectiveOp | None:
    row = None if program is None else program.rows.get(program.wrapped.get(op, op))
    return None if row is None else row.collective


def _last(
    event: Event, plane: str, others: Mapping[str, Sequence[Event]]
) -> tuple[float, int] | None:
    """Return when the last device of an exchange arrives, and its number; None if unknown."""
    arrivals = [(event.start, number_of(plane))]
    for name, events in others.items():
        at = bisect.bisect_left(events, event.end, key=_end)
        near = min(events[max(at - 1, 0) : at + 1], key=lambda other: abs(other.end - event.end))
        if near.start < event.end and event.start < near.end:  # they meet
            arrivals.append((near.start, number_of(name)))
    return max(arrivals) if len(arrivals) > 1 else None


def _parts(event: Event, last: tuple[float, int] | None) -> list[Event]:
    """Return an exchange as waiting and moving; itself if it doesn't wait."""
    if last is None or last[0] <= event.start:
        return [event]
    arrival, number = last
    waiting = replace(event, op="", end=arrival, label=f"{WAITS_FOR}{number}")
    return [waiting, replace(event, start=arrival)]


# --- The rows of each device, and the device that is explained ------------------------------------


@dataclass(frozen=True)
class DeviceRows:
    """The rows of the device that is explained, and of all by plane, which have no roofs."""

    rows: tuple[TimedRow, ...]
    notes: tuple[str, ...]
    by_device: Mapping[str, tuple[TimedRow, ...]]
    times: tuple[DeviceTime, ...]


def rows_of_devices(
    trace: Trace,
    programs: Mapping[str, Program],
    ceilings: Ceilings,
    calls: int,
    typical: float | None = None,
) -> DeviceRows:
    """Return the rows of all devices of a trace; parameters as of `rows.join`.

    The device that is explained is the one that waits longest for others, if that is more than a
    hundredth of the call; otherwise `Trace.device`.
    """
    trace = with_waits(trace, programs)
    by_device = {
        plane: join(replace(trace, chosen=plane), programs, Ceilings(), calls, typical)[0]
        for plane in sorted(trace.devices, key=number_of)
    }
    last: dict[str, float] = {}  # exchanges at which a device arrives last, by its number
    for row in (row for rows in by_device.values() for row in rows if row.kind == WAIT):
        number = row.name.removeprefix(WAITS_FOR)
        last[number] = last.get(number, 0.0) + row.launches / (len(by_device) - 1)
    times = tuple(
        _time(plane, rows, last.get(str(number_of(plane)), 0.0))
        for plane, rows in by_device.items()
    )
    longest = max(times, key=lambda time: time.waiting)
    call = math.fsum(row.seconds for row in by_device[longest.device])
    device = longest.device if longest.waiting > 0.01 * call else trace.device
    rows, notes = join(replace(trace, chosen=device), programs, ceilings, calls, typical)
    if len(times) > 1:
        why = "which waits longest for others" if device == longest.device else "one of the busiest"
        notes = (f"rows are those of {device}, {why}", *notes)
    return DeviceRows(rows, notes, by_device, times)


def _time(plane: str, rows: Sequence[TimedRow], last: float) -> DeviceTime:
    sums = dict.fromkeys(("kernels", "moving", "waiting", "idle"), 0.0)
    for row in rows:
        kind = {WAIT: "waiting", GAP: "idle", HOST: "idle"}.get(row.kind, "kernels")
        sums["moving" if row.kind == KERNEL and row.exchanges else kind] += row.seconds
    return DeviceTime(plane, **sums, last=last)
