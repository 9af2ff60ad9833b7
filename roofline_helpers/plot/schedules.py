"""A compiled program in time: kernels in one row, exchanges between devices in the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from roofline_helpers._checks import BadValue
from roofline_helpers.plot.canvas import axes_for
from roofline_helpers.plot.names import legend_below, name_bars
from roofline_helpers.plot.style import PALETTE, short_number, tint
from roofline_helpers.show import PREFIXES, si

BAR = 0.62
"""Height of a bar, in rows."""

WIDE = 0.1
"""Share of the whole time from which on a bar gets a name."""


class Span(Protocol):
    """A kernel or an exchange from `start` to `end`, in seconds."""

    @property
    def role(self) -> str:
        """What it does."""

    @property
    def lane(self) -> str:
        """ "compute" or "network"."""

    @property
    def start(self) -> float:
        """Seconds since the program began."""

    @property
    def end(self) -> float:
        """Seconds since the program began."""


def timeline(spans: Sequence[Span], *, ax: Axes | None = None) -> Axes:
    """Draw when kernels and exchanges run: what of the network hides behind kernels, what shows.

    Parameters
    ----------
    spans : sequence of spans
        `Report.timeline.spans`.

    Raises
    ------
    BadValue
        Nothing that takes time.

    Examples
    --------
    >>> from roofline_helpers.compiled import Span
    >>> timeline([Span("matmul", "matmul", "kernels", 0.0, 2e-6, 1)]).get_xlabel()
    'least time (µs)'
    """
    length = max((span.end for span in spans), default=0.0)
    if not length > 0:
        raise BadValue("a timeline needs spans that take time, got none")
    ax = axes_for(ax)
    named = []
    kernels = [span for span in spans if span.lane == "compute"]
    busy = sorted((span.start, span.end) for span in kernels)
    color = tint(PALETTE["compute"], 0.55)
    for span in kernels:
        _bar(ax, 0, span.start, span.end, color, "", f"kernel:{span.role}")
        named.append((0, span.start, span.end, _short(span.role)))
    for span in spans:
        if span.lane == "compute":
            continue
        for start, end, exposed in _parts(span, busy):
            shade = tint(PALETTE["network"], 0.75 if exposed else 0.3)
            part = "exposed" if exposed else "hidden"
            _bar(ax, 1, start, end, shade, "////" if exposed else "", f"{part}:{span.role}")
        named.append((1, span.start, span.end, _short(span.role)))
    ax.set_yticks([0, 1], ["kernels", "network"])
    ax.set_ylim(1.55, -0.55)
    ax.set_xlim(0, length)
    prefix = si(length, "").split(" ")[-1]
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: short_number(n / PREFIXES[prefix])))
    ax.xaxis.set_major_locator(MaxNLocator(6))
    ax.set_xlabel(f"least time ({prefix}s)")
    ax.grid(axis="x", color=PALETTE["grid"], lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(axis="y", length=0)
    wide = [piece for piece in named if piece[2] - piece[1] > WIDE * length]
    name_bars(ax, list({piece[:3]: piece for piece in wide}.values()), BAR)
    edge: dict[str, Any] = {"ec": PALETTE["muted"], "lw": 0.6}
    legend_below(
        ax,
        [
            Patch(fc=color, label="kernel", **edge),
            Patch(fc=tint(PALETTE["network"], 0.3), label="exchange, hidden", **edge),
            Patch(fc=tint(PALETTE["network"], 0.75), hatch="////", label="exposed", **edge),
        ],
    )
    return ax


def _bar(ax: Axes, row: int, start: float, end: float, color: Any, hatch: str, gid: str) -> None:
    ax.barh(row, end - start, left=start, height=BAR, facecolor=color, hatch=hatch, lw=0.6,
            edgecolor=PALETTE["muted"], gid=gid)  # fmt: skip


def _parts(span: Span, busy: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float, bool]]:
    """Yield the parts of an exchange: start, end, and whether no kernel runs meanwhile."""
    now = span.start
    for start, end in busy:
        if end <= now or start >= span.end:
            continue
        if start > now:
            yield now, start, True
        yield max(start, now), min(end, span.end), False
        now = min(end, span.end)
    if now < span.end:
        yield now, span.end, True


def _short(role: str) -> str:
    """Return the first words of a role: what fits into a bar."""
    return role.partition(" of ")[0].partition(", with")[0]
