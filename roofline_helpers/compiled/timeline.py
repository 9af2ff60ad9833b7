"""When kernels and exchanges run, by the compiled schedule: what of the network hides, what shows.

Kernels run one after another, each as long as its roof says. An asynchronous exchange runs from
where the program starts it, and the program waits where it needs the result; what it waits is
exposed, the rest is hidden. Exchanges along the same axis and direction wait for one another.
Everything is a least time, so a real run shows at least as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from roofline_helpers.compiled.kernel import CompiledKernel
from roofline_helpers.compiled.links import Links
from roofline_helpers.hlo import Collective, whole
from roofline_helpers.roofline import NETWORK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMPUTE = "compute"


@dataclass(frozen=True)
class Span:
    """A kernel or an exchange from `start` to `end`, in seconds since the program began.

    `lane` is "compute" or "network"; of a kernel in a loop all turns are drawn as one span.

    Examples
    --------
    >>> Span("fusion.1", "matmul", "kernels", 0.0, 2e-6, 1).end
    2e-06
    """

    name: str
    role: str
    lane: str
    start: float
    end: float
    launches: int = 1


@dataclass(frozen=True)
class Exchange:
    """One exchange of a program, over all its launches: its time, and how much of it shows.

    `seconds` is its least time on the links, `exposed` what the program waits for it at least;
    `latency_bound` says that its steps take longer than its bytes, by what links really reach.

    Examples
    --------
    >>> from roofline_helpers.compiled import records
    >>> exchange = records()["shard-fsdp-8192", "v5e"].exchanges[0]
    >>> exchange.collective.kind, exchange.hidden >= 0
    ('all-gather', True)
    """

    collective: Collective
    role: str
    source: str
    seconds: float
    exposed: float
    latency_bound: bool = False

    @property
    def hidden(self) -> float:
        """Seconds that pass while other work is done."""
        return max(self.seconds - self.exposed, 0.0)


@dataclass(frozen=True)
class Timeline:
    """Spans in the order in which they start, and what each row of the program waits for.

    `busy` are the seconds for which links are used, by axis and direction.

    Examples
    --------
    >>> from roofline_helpers.compiled import records
    >>> timeline = records()["shard-fsdp-8192", "v5e"].timeline
    >>> timeline.spans[0].start
    0.0
    """

    spans: tuple[Span, ...]
    exposed: tuple[float, ...]
    busy: Mapping[str, float]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw kernels and exchanges in time, what is exposed apart from what is hidden.

        Raises
        ------
        BadValue
            Nothing takes time: the device is not in the chip table.
        """
        from roofline_helpers import plot

        return plot.timeline(self.spans, ax=ax)

    @property
    def seconds(self) -> float:
        """When the last one ends."""
        return max((span.end for span in self.spans), default=0.0)


@dataclass
class _Clock:
    """The time of the program, and until when each lane of the network is busy."""

    now: float = 0.0
    free: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    def exchange(self, kernel: CompiledKernel) -> float:
        """Start an exchange as soon as its links are free; return when it ends."""
        collective = kernel.row.collective
        lanes = _lanes(collective) if collective is not None else []
        start = max([self.now, *(self.free.get(lane, 0.0) for lane in lanes)])
        end = start + kernel.times.get(NETWORK, 0.0)
        for lane in lanes:
            self.free[lane] = end
            self.busy[lane] = self.busy.get(lane, 0.0) + end - start
        row = kernel.row
        self.spans.append(Span(row.name, row.role, NETWORK, start, end, row.launches))
        return end

    def kernel(self, kernel: CompiledKernel) -> None:
        """Run a kernel."""
        row, end = kernel.row, self.now + (kernel.roof_seconds or 0.0)
        if end > self.now:
            self.spans.append(Span(row.name, row.role, COMPUTE, self.now, end, row.launches))
        self.now = end


def _lanes(collective: Collective) -> list[str]:
    """Return the directions of links that an exchange uses: a permute one of its axis."""
    axis = collective.axis or ""
    if collective.kind == "collective-permute":
        return [f"{axis}{'+' if collective.hops > 0 else '-'}"]
    return [f"{axis}+", f"{axis}-"]


def timeline(kernels: Sequence[CompiledKernel]) -> Timeline:
    """Lay the kernels of a program out in time."""
    clock, exposed = _Clock(), [0.0] * len(kernels)
    awaited: dict[int, list[tuple[int, float]]] = {}
    for place, kernel in enumerate([*kernels, None]):
        for started, end in awaited.pop(place, []):
            exposed[started] += max(end - clock.now, 0.0)
            clock.now = max(clock.now, end)
        if kernel is None:
            break
        row = kernel.row
        if row.collective is None:
            if not row.overlaps:
                clock.kernel(kernel)
            continue
        end = clock.exchange(kernel)
        if row.overlaps:
            awaited.setdefault(place + row.behind + 1, []).append((place, end))
        else:
            exposed[place] = end - clock.now
            clock.now = end
    return Timeline(tuple(clock.spans), tuple(exposed), clock.busy)


def exchanges(
    kernels: Sequence[CompiledKernel], links: Links | None = None
) -> tuple[Exchange, ...]:
    """Return the exchanges of a program, each once: steps of a windowed one together."""
    exposed = timeline(kernels).exposed
    kept: dict[object, list[int]] = {}
    for place, kernel in enumerate(kernels):
        each = kernel.row.collective
        if each is not None:
            kept.setdefault(each.key or place, []).append(place)
    return tuple(
        _joined([(kernels[i], exposed[i]) for i in places], links) for places in kept.values()
    )


def _joined(parts: Iterable[tuple[CompiledKernel, float]], links: Links | None) -> Exchange:
    """Return the exchange that some rows make together."""
    rows = list(parts)
    first = rows[0][0].row
    busy: dict[str, float] = {}  # steps in both directions run at the same time
    for kernel, _ in rows:
        for lane in _lanes(kernel.row.collective) if kernel.row.collective is not None else ():
            busy[lane] = busy.get(lane, 0.0) + kernel.times.get(NETWORK, 0.0)
    (collective,) = whole(k.row.collective for k, _ in rows if k.row.collective is not None)
    return Exchange(
        collective,
        first.role,
        str(first.source or ""),
        max(busy.values(), default=0.0),
        sum(seconds for _, seconds in rows),
        links is not None and links.latency_bound(collective),
    )
