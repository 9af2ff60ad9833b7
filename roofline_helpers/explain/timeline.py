"""Who has each instant of a run: kernels, the gaps between them, the host.

Events nest (a loop holds its kernels) and overlap (streams, threads). A sweep over their ends
gives each instant to what runs in it: to the innermost event of each line, split evenly where
several lines are busy. So shares add up to the time in which anything runs, and what is left of
the window are gaps. Nothing counts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from roofline_helpers.explain.trace import Event


@dataclass
class Shares:
    """How a window of seconds divides.

    Parameters
    ----------
    window : float
        Its length.
    busy : dict
        Seconds by key; an instant with n events counts 1/n to each.
    before, between, after : float
        Seconds with no event: before the first, between two, after the last.
    gaps : list of (float, key, key)
        Each gap between two events: seconds, what ran before it, what after.
    """

    window: float
    busy: dict[str, float] = field(default_factory=dict)
    before: float = 0.0
    between: float = 0.0
    after: float = 0.0
    gaps: list[tuple[float, str, str]] = field(default_factory=list)

    @property
    def total(self) -> float:
        """All of it: the window's length, but for rounding."""
        return sum(self.busy.values()) + self.before + self.between + self.after


@dataclass(frozen=True, slots=True)
class _Piece:
    start: float
    end: float
    key: str
    inside: bool  # a loop's or call's own time, which counts only where nothing else runs


def shares(
    events: Sequence[Event],
    start: float,
    end: float,
    key: Callable[[Event], str],
    container: Callable[[Event], bool],
) -> Shares:
    """Return who has each instant between `start` and `end`.

    Parameters
    ----------
    events : sequence of Event
        In the order in which they began.
    start, end : float
        The window, in seconds of the trace.
    key : callable
        What an event counts to.
    container : callable
        Whether an event contains others: a loop, a call, a branch.
    """
    pieces: list[_Piece] = []
    lines: dict[str, list[Event]] = {}
    for event in events:
        if event.end > start and event.start < end:
            lines.setdefault(event.line, []).append(event)
    for line in lines.values():
        pieces += _innermost(line, start, end, key, container)
    return _swept(sorted(pieces, key=lambda piece: piece.start), Shares(end - start), start, end)


def _innermost(
    line: Sequence[Event],
    start: float,
    end: float,
    key: Callable[[Event], str],
    container: Callable[[Event], bool],
) -> Iterable[_Piece]:
    """Yield the pieces of a line in which each event is the innermost."""
    stack: list[tuple[Event, float]] = []  # open events, and from when on they are innermost

    def piece(event: Event, begun: float, until: float) -> Iterable[_Piece]:
        low, high = max(begun, start), min(until, end)
        if high > low:
            yield _Piece(low, high, key(event), container(event))

    for event in line:
        while stack and stack[-1][0].end <= event.start:
            top, begun = stack.pop()
            yield from piece(top, begun, top.end)
            if stack:
                stack[-1] = (stack[-1][0], max(top.end, stack[-1][1]))
        if stack:
            top, begun = stack[-1]
            yield from piece(top, begun, event.start)
        stack.append((event, event.start))
    while stack:
        top, begun = stack.pop()
        yield from piece(top, begun, top.end)
        if stack:
            stack[-1] = (stack[-1][0], max(top.end, stack[-1][1]))


def _swept(pieces: Sequence[_Piece], result: Shares, start: float, end: float) -> Shares:
    edges = sorted({start, end, *(p.start for p in pieces), *(p.end for p in pieces)})
    active: list[_Piece] = []
    waiting = iter(pieces)
    coming = next(waiting, None)
    last: _Piece | None = None
    idle = 0.0
    for low, high in pairwise(edges):
        active = [piece for piece in active if piece.end > low]
        while coming is not None and coming.start <= low:
            active.append(coming)
            coming = next(waiting, None)
        if not active:
            idle += high - low
            continue
        _close(result, idle, last, active[0])
        idle, last = 0.0, max(active, key=lambda piece: piece.end)
        leaves = [piece for piece in active if not piece.inside] or active
        for piece in leaves:
            result.busy[piece.key] = result.busy.get(piece.key, 0.0) + (high - low) / len(leaves)
    if last is None:
        result.before += idle
    else:
        result.after += idle
    return result


def _close(result: Shares, idle: float, last: _Piece | None, coming: _Piece) -> None:
    """Count the idle seconds that end where `coming` begins."""
    if not idle:
        return
    if last is None:
        result.before += idle
    else:
        result.between += idle
        result.gaps.append((idle, last.key, coming.key))
