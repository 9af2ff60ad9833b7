"""The timeline of a compiled program, drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes

from roofline_helpers.common.checks import BadValue
from roofline_helpers.plot.charts import BAR, amount_axis, draw_bar, swatch
from roofline_helpers.plot.rooflines import legend_below, name_bars
from roofline_helpers.plot.style import PALETTE, axes_for, tint

WIDE = 0.1
"""Share of the whole time from which on a bar gets a name."""


def timeline(spans: Sequence[Any], *, ax: Axes | None = None) -> Axes:
    """Draw the times of kernels and exchanges, with hidden and exposed parts of the exchanges.

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
    >>> from roofline.xla.kernel import TimelineSpan
    >>> timeline([TimelineSpan("matmul", "matmul", "kernels", 0.0, 2e-6, 1)]).get_xlabel()
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
    hidden, exposed = tint(PALETTE["network"], 0.3), tint(PALETTE["network"], 0.75)
    for span in kernels:
        draw_bar(ax, 0, span.start, span.end, color, "", f"kernel:{span.role}")
        named.append((0, span.start, span.end, _short(span.role)))
    for span in (span for span in spans if span.lane != "compute"):
        for start, end, alone in _parts(span, busy):
            if alone:
                draw_bar(ax, 1, start, end, exposed, "////", f"exposed:{span.role}")
            else:
                draw_bar(ax, 1, start, end, hidden, "", f"hidden:{span.role}")
        named.append((1, span.start, span.end, _short(span.role)))
    ax.set_yticks([0, 1], ["kernels", "network"])
    ax.set_ylim(1.55, -0.55)
    ax.set_xlim(0, length)
    amount_axis(ax, length, "least time", "s", ticks=6)
    wide = [piece for piece in named if piece[2] - piece[1] > WIDE * length]
    name_bars(ax, list({piece[:3]: piece for piece in wide}.values()), BAR)
    handles = [swatch(color, "kernel"), swatch(hidden, "exchange, hidden")]
    legend_below(ax, [*handles, swatch(exposed, "exposed", "////")])
    return ax


def _parts(span: Any, busy: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float, bool]]:
    # start and end of each part of an exchange, and whether no kernel runs meanwhile
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
    return role.partition(" of ")[0].partition(", with")[0]
