"""Rows of an explanation: the trace merged with the compiled program."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np

from roofline import xla
from roofline.diagnosis.ceilings import Ceilings
from roofline.diagnosis.program import Program
from roofline.diagnosis.trace import (
    WAITS_FOR,
    Event,
    Span,
    Trace,
    is_exchange,
    is_transfer,
    typical_runs,
)
from roofline_helpers.common.show import Fields, many

# --- Attribute each instant of a run to a kernel, a gap or the host ------------------------------


@dataclass
class Shares:
    """The parts of a window of time, in seconds.

    Parameters
    ----------
    busy : dict
        Seconds by key; an instant with n events counts 1/n to each.
    before, after : float
        Seconds before the first event, and after the last.
    gaps : list of float
        Seconds of each gap between two events.
    """

    busy: dict[str, float] = field(default_factory=dict)
    before: float = 0.0
    after: float = 0.0
    gaps: list[float] = field(default_factory=list)


class _Piece(NamedTuple):
    start: float
    end: float
    key: str
    rank: int  # counts only while no event of a lower rank runs


def shares(
    events: Sequence[Event],
    start: float,
    end: float,
    key: Callable[[Event], str],
    rank: Callable[[Event], int],
) -> Shares:
    """Attribute each instant between `start` and `end` to the events that run then.

    Events, in the order in which they began, count towards their `key`. Their `rank` is 0 for a
    kernel, 1 for an asynchronous event that kernels can hide, such as an exchange between devices,
    and 2 for a container: a loop, a call, a branch.
    """
    lines: dict[str, list[Event]] = {}
    for event in events:
        if event.end > start and event.start < end:
            lines.setdefault(event.line, []).append(event)
    pieces = []
    for event, low, high in itertools.chain(*map(_innermost, lines.values())):
        low, high = max(low, start), min(high, end)
        if high > low:
            pieces.append(_Piece(low, high, key(event), rank(event)))
    return _swept(sorted(pieces, key=lambda piece: piece.start), start, end)


def _innermost(line: Sequence[Event]) -> Iterator[tuple[Event, float, float]]:
    """Yield the spans of a line in which each event is the innermost.

    Events of one line nest, as a loop and its kernels do: a stack holds the open ones, so that each
    instant belongs to one event only.
    """
    stack: list[Event] = []
    at = 0.0  # everything before this time has been yielded
    for event in [*line, None]:
        until = math.inf if event is None else event.start
        while stack and stack[-1].end <= until:
            yield stack[-1], at, stack[-1].end
            at = max(at, stack.pop().end)
        if event is not None:
            if stack:
                yield stack[-1], at, event.start
            stack.append(event)
            at = event.start


def _swept(pieces: Sequence[_Piece], start: float, end: float) -> Shares:
    result, idle = Shares(), 0.0
    active: list[_Piece] = []
    waiting = deque(pieces)
    ends = {at for piece in pieces for at in (piece.start, piece.end)}
    for low, high in pairwise(sorted({start, end, *ends})):
        active = [piece for piece in active if piece.end > low]
        while waiting and waiting[0].start <= low:
            active.append(waiting.popleft())
        if not active:
            idle += high - low
            continue
        if idle and result.busy:
            result.gaps.append(idle)
        elif idle:
            result.before = idle
        idle, lowest = 0.0, min(piece.rank for piece in active)
        leaves = [piece for piece in active if piece.rank == lowest]
        share = (high - low) / len(leaves)
        for piece in leaves:
            result.busy[piece.key] = result.busy.get(piece.key, 0.0) + share
    result.before, result.after = (result.before, idle) if result.busy else (idle, 0.0)
    return result


KERNEL, LOOP, TRANSFER, WAIT, GAP, HOST = "kernel", "loop", "transfer", "wait", "gap", "host"
"""Kinds of rows: kernels, a loop's own time, copies between host and device, exchanges that wait
for another device, idle time between kernels, and time in which only the host works."""

BETWEEN, WAITING = "between kernels", "waiting for the host"
BEFORE, AFTER = "before the first kernel", "after the last kernel"
BETWEEN_TURNS = "between iterations"
"""Names of the rows without a kernel."""

LONG_GAP = 20e-6
"""Seconds from which on a gap between two kernels is the host's: a launch takes a few µs."""


NOTHING = xla.Row("", "")
"""The kernel of a row that isn't in the compiled program."""


@dataclass(frozen=True, repr=False)
class TimedRow(Fields):
    """One kernel of one call, or a gap without any: measured, and as compiled.

    Parameters
    ----------
    name : str
        Its instruction in the compiled program.
    kind : {"kernel", "loop", "transfer", "wait", "gap", "host"}
        What runs meanwhile.
    seconds : float
        Its share of the call; where kernels overlap, each has its part of an instant.
    busy, low, high : float
        Seconds of all its launches by their own clocks: the median over runs, and the quartiles.
    launches : float
        How often it ran.
    program : str
        The program that it belongs to.
    kernel : xla.Row
        One launch as compiled: work, role, line of code, pass. Its name is empty if it is unknown.
    inside : float
        Launches of the kernels inside a loop that runs as one kernel.
    least, reachable : float or None
        Least seconds by published and by reached ceilings, if there are any. Unknown FLOPs count
        nothing: still a lower bound.
    limit : str
        The ceiling that it meets first.
    label, details : str
        The device's name for it, and further facts from the profiler.
    kernels : int
        How many kernels of the program are in this row: several if layers are grouped.

    Examples
    --------
    >>> kernel = xla.Row("fusion", "fusion", read={"hbm": 4_000_000}, written={"hbm": 2_000_000})
    >>> row = TimedRow("fusion", seconds=2e-6, busy=2e-6, low=2e-6, high=2e-6, kernel=kernel)
    >>> row.bytes, row.bandwidth
    (6000000.0, 3000000000000.0)
    """

    name: str
    kind: str = KERNEL
    seconds: float = 0.0
    busy: float = 0.0
    low: float = 0.0
    high: float = 0.0
    launches: float = 1.0
    program: str = ""
    kernel: xla.Row = NOTHING
    inside: float = 0.0
    least: float | None = None
    reachable: float | None = None
    limit: str = ""
    label: str = ""
    details: str = ""
    kernels: int = 1

    @property
    def matrix_flops(self) -> float:
        """FLOPs of matmuls."""
        return self.kernel.matrix_flops * self.launches

    @property
    def flops(self) -> float | None:
        """All FLOPs; None if some are unknown."""
        if self.kernel.flops.unknown:
            return None
        return self.matrix_flops + self.kernel.vector_flops * self.launches

    @property
    def bytes(self) -> float:
        """Bytes of the main memory, read and written."""
        return self.kernel.bytes * self.launches

    @property
    def bandwidth(self) -> float | None:
        """Byte/s that it reached; None if it moves nothing, or that isn't what takes its time."""
        known = self.bytes and self.busy and not self.kernel.untimed
        return self.bytes / self.busy if known else None

    @property
    def rate(self) -> float | None:
        """FLOP/s that it reached; None if it has none."""
        return self.flops / self.busy if self.flops and self.busy else None

    @property
    def exchanges(self) -> bool:
        """Whether it exchanges data between devices."""
        return self.kernel.collective is not None or is_exchange(self.name, self.label)

    @property
    def lost(self) -> float:
        """Seconds above its roof; all of them if it has no roof."""
        return self.seconds - (self.reachable or 0.0)

    @property
    def title(self) -> str:
        """The role if it is known, else the name."""
        loop = f"{BETWEEN_TURNS} of {self.name}" if self.kind == LOOP else self.name
        return self.kernel.role or loop

    @property
    def source(self) -> str:
        """The line of code that it comes from; empty if unknown."""
        return str(self.kernel.source or "")


def family_of(row: TimedRow) -> tuple[str, ...]:
    """Return the key that the same kernel has in every layer: line, role, scope, work."""
    kernel = row.kernel
    if row.kind != KERNEL or not kernel.role:
        return (row.program, row.name)
    layerless = (re.sub(r"\d+", "#", text) for text in (kernel.role, kernel.scope))
    flops = kernel.matrix_flops + kernel.vector_flops
    work = (f"{n:.4g}" for n in (flops, kernel.read_bytes, kernel.written_bytes))
    return (row.program, row.source, kernel.step, *layerless, *work, *kernel.operations)


def grouped(rows: Sequence[TimedRow]) -> tuple[TimedRow, ...]:
    """Return rows in which the same kernel of all layers is one row."""
    families: dict[tuple[str, ...], list[TimedRow]] = {}
    for row in rows:
        families.setdefault(family_of(row), []).append(row)
    return tuple(_sum(family) if len(family) > 1 else family[0] for family in families.values())


_SUMMED = ("seconds", "busy", "low", "high", "launches", "inside", "least", "reachable")


def _sum(rows: Sequence[TimedRow]) -> TimedRow:
    """Return one row with the sums of several."""
    sums: dict[str, Any] = {}
    for name in _SUMMED:
        values = [getattr(row, name) for row in rows]
        sums[name] = None if None in values else math.fsum(values)
    return replace(rows[0], **sums, kernels=len(rows))


def join(
    trace: Trace,
    programs: Mapping[str, Program],
    ceilings: Ceilings,
    calls: int,
    typical: float | None = None,
) -> tuple[tuple[TimedRow, ...], tuple[str, ...]]:
    """Return the rows of a trace from its typical half of runs, and notes.

    Each run has so many `calls`. Typical runs are those nearest to the `typical` seconds of a call,
    without the profiler; by default nearest to the median.
    """
    return _Merger(trace, programs, ceilings, calls).merged(typical)


@dataclass(frozen=True)
class _Merger:
    trace: Trace
    programs: Mapping[str, Program]
    ceilings: Ceilings
    calls: int

    def name_of(self, event: Event) -> str:
        """Return the name under which an event's program is known, if it is."""
        numbered = f"{event.program}({event.number})"
        return numbered if numbered in self.programs else event.program

    def program_of(self, event: Event) -> Program | None:
        """Return the program that an event belongs to."""
        return self.programs.get(self.name_of(event))

    def key(self, event: Event) -> str:
        """Return the row that an event counts to."""
        if is_transfer(event):
            return f"\t{event.label}"
        return f"{self.name_of(event)}\t{self.op_of(event)}"

    def op_of(self, event: Event) -> str:
        """Return the instruction that an event belongs to, as the program's text names it."""
        program = self.program_of(event)
        op = event.op or event.label
        return op if program is None else program.wrapped.get(op, op)

    def is_container(self, event: Event) -> bool:
        """Return whether an event contains others."""
        return (self.name_of(event), event.op) in self._containers

    def rank(self, event: Event) -> int:
        """Return 2 for a container, 1 for an exchange or an asynchronous copy, else 0."""
        if self.is_container(event):
            return 2
        hidden = _waits(event) or exchanges(event, self.program_of(event))
        return int(hidden or event.line.startswith("Async"))

    @cached_property
    def _containers(self) -> frozenset[tuple[str, str]]:
        """Loops and calls by program and name; of a CPU or TPU only those with events inside.

        A CPU runs a loop of small kernels as one, which counts as a kernel. A GPU doesn't: what it
        names after a loop only copies the loop's condition.
        """
        found, events = set(), self.trace.events
        for event, following in zip_longest(events, events[1:]):
            program = self.program_of(event)
            if program is not None and program.is_container(event.op):
                holds = following is not None and following.start < event.end
                if holds or self.trace.platform == "gpu":
                    found.add((self.name_of(event), event.op))
        return frozenset(found)

    def merged(self, typical: float | None) -> tuple[tuple[TimedRow, ...], tuple[str, ...]]:
        runs = self.trace.runs

        def begun_in(run: Span) -> list[Event]:
            return [e for e in self.trace.events if run.start <= e.start < run.end]

        by_run = [begun_in(run) for run in runs]
        lengths = [run.seconds for run in runs]
        goal = statistics.median(lengths) if typical is None else typical * self.calls
        chosen = [
            shares(by_run[n], runs[n].start, runs[n].end, self.key, self.rank)
            for n in typical_runs(lengths, goal)
        ]
        by_key: dict[str, list[list[Event]]] = {}  # run by run, in the order in which rows begin
        for number, events in enumerate(by_run):
            for event in events:
                by_key.setdefault(self.key(event), [[] for _ in runs])[number].append(event)
        rows = []
        for key, kernel_by_run in by_key.items():
            seconds = sum(part.busy.get(key, 0.0) for part in chosen) / len(chosen) / self.calls
            rows.append(self._row(seconds, kernel_by_run))
        return (*rows, *self._idle(chosen)), self._notes(rows)

    def _row(self, seconds: float, by_run: Sequence[Sequence[Event]]) -> TimedRow:
        """Return the row of a kernel from its events, run by run."""
        first = next(event for events in by_run for event in events)
        busy = [sum(event.seconds for event in events) / self.calls for events in by_run]
        labels = Counter(event.label for events in by_run for event in events)
        launches = min(labels.values()) / (len(self.trace.runs) * self.calls)
        kinds = {LOOP: self.is_container(first), TRANSFER: is_transfer(first), WAIT: _waits(first)}
        row = TimedRow(
            self.op_of(first),
            next((kind for kind, applies in kinds.items() if applies), KERNEL),
            seconds,
            *_quartiles(busy),
            launches=launches,
            program=self.name_of(first),
            label=", ".join(sorted(label for label in labels if label)),
            details=first.details,
        )
        program = self.program_of(first)
        if program is not None:
            row = with_program(row, program, self.ceilings)
        if not row.exchanges or not row.busy or row.least is None or row.reachable is None:
            return row
        shown = min(row.seconds / row.busy, 1.0)  # kernels hide the rest, and its roof with it
        return replace(row, least=shown * row.least, reachable=shown * row.reachable)

    def _idle(self, chosen: Sequence[Shares]) -> list[TimedRow]:
        """Return the rows in which no kernel runs."""
        rows = []
        for name, kind, by_run in (
            (BEFORE, HOST, [[part.before] for part in chosen]),
            (BETWEEN, GAP, [[gap for gap in part.gaps if gap < LONG_GAP] for part in chosen]),
            (WAITING, HOST, [[gap for gap in part.gaps if gap >= LONG_GAP] for part in chosen]),
            (AFTER, HOST, [[part.after] for part in chosen]),
        ):
            sums = [sum(gaps) / self.calls for gaps in by_run]
            number = statistics.fmean(len(gaps) for gaps in by_run) / self.calls
            times = statistics.fmean(sums), *_quartiles(sums)
            rows.append(TimedRow(name, kind, *times, launches=number))
        return [row for row in rows if row.seconds > 0]

    def _notes(self, rows: Sequence[TimedRow]) -> tuple[str, ...]:
        unnamed = [row for row in rows if row.kind == KERNEL and not row.kernel.name]
        share = sum(row.seconds for row in unnamed) / (sum(row.seconds for row in rows) or 1)
        if not self.programs or share <= 0.05:
            return ()
        note = (
            f"no compiled program that is known here has {many(len(unnamed), 'kernel')} with "
            f"{share:.0%} of the kernels' time: no FLOPs, bytes or roof of them are told"
        )
        if self.trace.platform == "gpu":
            note += "; xla_gpu_enable_command_buffer='' shows what CUDA graphs hide"
        return (note,)


def exchanges(event: Event, program: Program | None) -> bool:
    """Return whether an event exchanges data between devices, by its program or its names."""
    kernel = None if program is None else program.rows.get(program.wrapped.get(event.op, event.op))
    counted = kernel is not None and kernel.collective is not None
    return counted or is_exchange(event.op, event.label)


def _waits(event: Event) -> bool:
    """Return whether an event is an exchange that waits for another device."""
    return not event.op and event.label.startswith(WAITS_FOR)


def with_program(row: TimedRow, program: Program, ceilings: Ceilings) -> TimedRow:
    """Return a row with its kernel in the compiled program, and its roofs."""
    kernel = program.rows.get(row.name)
    if kernel is not None:
        return ceilings.under_roofs(row, kernel)
    if row.kind == KERNEL and program.is_container(row.name):
        return _with_kernels_inside(row, program, ceilings)
    if row.name not in program.sites:
        return row
    # the ledger leaves out work on scalars, which costs almost nothing
    opcode = program.sites[row.name].instruction.opcode
    return replace(row, kernel=xla.Row(row.name, opcode))


def _with_kernels_inside(row: TimedRow, program: Program, ceilings: Ceilings) -> TimedRow:
    """Return the row of a loop or call that runs as one kernel, with the work of those inside."""
    kernels = program.inside(row.name)
    if not kernels:
        return replace(row, kernel=xla.Row(row.name, "while"))
    rows = [
        with_program(TimedRow(kernel.name, launches=float(kernel.launches)), program, ceilings)
        for kernel in kernels
    ]
    total, largest = _sum(rows), max(rows, key=lambda row: row.reachable or 0.0)
    runs = row.launches or 1.0
    read = sum(kernel.read_bytes * kernel.launches for kernel in kernels)
    written = sum(kernel.written_bytes * kernel.launches for kernel in kernels)
    unknown = ""
    for kernel in kernels:
        if kernel.at_least or kernel.loop:
            unknown = kernel.at_least or f"nobody says how often {kernel.loop} turns"
            break
    combined = xla.Row(
        row.name,
        "while",
        role=f"loop around {largest.title}",
        source=largest.kernel.source,
        flops=sum((k.flops * (k.launches / runs) for k in kernels), xla.Flops()),
        read={"hbm": round(read / runs)},
        written={"hbm": round(written / runs)},
        at_least=unknown,
    )
    row = replace(row, kernel=combined, inside=total.launches)
    if combined.at_least:  # its work counts once, so it has no roof
        return row
    return replace(row, least=total.least, reachable=total.reachable, limit=largest.limit)


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, and the quartiles below and above it."""
    low, middle, high = (float(np.quantile(values, at)) for at in (0.25, 0.5, 0.75))
    return middle, low, high


# --- In CUDA graphs -------------------------------------------------------------------------------


def in_graphs(rows: Sequence[TimedRow], wall: float) -> tuple[TimedRow, ...]:
    """Return rows of a profile without CUDA graphs, as far as a call in graphs leaves them time.

    Its kernels take as long there. Between them a graph waits less, so what the clock leaves is
    shared by the time without kernels.
    """
    idle = math.fsum(row.seconds for row in rows if row.kind in IDLE)
    working = math.fsum(row.seconds for row in rows if row.kind not in IDLE)
    left = min(max(wall - working, 0.0) / idle, 1.0) if idle else 1.0

    def shorter(row: TimedRow) -> TimedRow:
        times = {name: left * getattr(row, name) for name in ("seconds", "busy", "low", "high")}
        return replace(row, **times)

    return tuple(shorter(row) if row.kind in IDLE else row for row in rows)


IDLE = (GAP, HOST, LOOP)
"""Kinds of rows in which no kernel runs."""


# --- The waterfall: bars from the least time to the measured time --------------------------------

REST, PROFILER = "nothing explains it", "slower when profiled"
"""Names of the last bar, and of the last row."""


def rest_of(seconds: float) -> str:
    """Return the name of what a call takes beyond its rows; they may take longer, when profiled."""
    return REST if seconds >= 0 else PROFILER


BARS = 5
"""Kernels that have a bar of their own; the others share one."""

_IDLE = (
    ("loops", LOOP),
    ("transfers", TRANSFER),
    ("waiting for the slowest device", WAIT),
    ("gaps between kernels", GAP),
    ("the host", HOST),
)
"""Bars of the kinds of rows in which no kernel runs."""


@dataclass(frozen=True)
class Bar:
    """One step of the waterfall.

    Parameters
    ----------
    name : str
        Its label.
    seconds : float
        Its contribution; negative if it makes the call faster than the step before.
    row : str
        The kernel that it is about; empty if there are several.

    Examples
    --------
    >>> Bar("gaps", 1e-5).seconds
    1e-05
    """

    name: str
    seconds: float
    row: str = ""


def waterfall(rows: Sequence[TimedRow], wall: float, hand: float | None = None) -> tuple[Bar, ...]:
    """Return the bars from the least time to the wall time: their sum is `wall`.

    First *counted by hand*, *the compiled program* by published ceilings and *ceilings as reached*,
    each without the one before. Then what kernels lose above their roofs: a bar for each of the
    largest losses, and one for the others. *faster than the roof* is negative: kernels that caches
    serve, or that overlap. Then kernels without a roof, and where no kernel runs. *nothing explains
    it* is the wall time, without the profiler, less all rows, which were measured with it; where
    that is negative, they were *slower when profiled*.

    Parameters
    ----------
    rows : sequence of TimedRow
        Of one call.
    wall : float
        Seconds of a call by the clock, without the profiler.
    hand : float, optional
        Least seconds of the work counted by hand.
    """
    kernels = [row for row in rows if row.kind == KERNEL]
    roofed = [row for row in kernels if row.reachable is not None]
    reachable = math.fsum(row.reachable or 0.0 for row in roofed)
    published = all(row.least is not None for row in roofed)
    least = math.fsum(row.least or 0.0 for row in roofed) if published else reachable
    slow = sorted((row for row in roofed if row.lost > 0), key=lambda row: -row.lost)
    others = f"{len(slow) - BARS} other kernel{'s' if len(slow) - BARS > 1 else ''}"
    program = "the compiled program" if hand is None else "the compiled program needs more"
    if hand is not None and least < hand:
        bare = len(roofed) < len(kernels)
        program = "counted in kernels without a roof" if bare else "the compiled program needs less"
    bars = [
        Bar("counted by hand", hand or 0.0),
        Bar(program, least - (hand or 0.0)),
        Bar("ceilings as reached", reachable - least),
        *(Bar(row.title, row.lost, row.name) for row in slow[:BARS]),
        Bar(others, math.fsum(row.lost for row in slow[BARS:])),
        Bar("faster than the roof", math.fsum(row.lost for row in roofed if row.lost < 0)),
        Bar(
            "kernels without a roof",
            math.fsum(row.seconds for row in kernels if row.reachable is None),
        ),
    ]
    for name, kind in _IDLE:
        bars.append(Bar(name, math.fsum(row.seconds for row in rows if row.kind == kind)))
    seen = [bar for bar in bars if abs(bar.seconds) > 1e-9 * wall]  # less is rounding
    rest = wall - math.fsum(bar.seconds for bar in seen)
    rest = 0.0 if abs(rest) < 1e-12 * wall else rest  # only rounding is left
    return (*seen, Bar(rest_of(rest), rest))
