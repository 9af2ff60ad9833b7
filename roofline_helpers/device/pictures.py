"""An explanation drawn: the waterfall, the timeline of one call, its kernels on the roofline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline_helpers.common.checks import BadValue, name_of
from roofline_helpers.common.show import si
from roofline_helpers.device.rows import KERNEL, TimedRow, kin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from roofline_helpers.device.explanation import Explanation

_LABELLED = 5

_SEEN = 0.002
"""Share of the call from which on a kernel is a point under the roofline."""


def draw(why: Explanation, kind: str, ax: Axes | None = None) -> Axes:
    """Draw an explanation; see `Explanation.plot`."""
    drawing = _KINDS[name_of("picture", kind, _KINDS)]
    return drawing(why, ax)


def _axes(ax: Axes | None, height: float) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(9, height), layout="constrained")[1]


def waterfall(why: Explanation, ax: Axes | None = None) -> Axes:
    """Draw the steps from the least time to the clock's, top to bottom, names above their bars."""
    from roofline_helpers.plot import PALETTE

    bars = why.waterfall
    axes = _axes(ax, 1.2 + 0.4 * (len(bars) + 1))
    begun = 0.0
    series = PALETTE["series"]
    ideal, lost, gained, rest = series[0], series[1], series[3], "#8c8c8c"
    base = ("counted by hand", "the compiled program")

    def bar_of(place: int, name: str, seconds: float, left: float, **looks: Any) -> None:
        axes.barh(place, seconds, 0.5, left=left, gid=f"bar:{name}", **looks)
        label = si(seconds, "s") if abs(seconds) > 1e-12 else "0"
        about: dict[str, Any] = {"textcoords": "offset points", "fontsize": "small"}
        axes.annotate(label, (max(left, left + seconds), place), (4, 0), va="center", **about)
        where = axes.get_yaxis_transform()  # from the left edge, whatever the times
        axes.annotate(_short(name), (0, place - 0.27), (2, 0), where, va="bottom", **about)

    for place, bar in enumerate(bars):
        colour = lost if bar.seconds > 0 else gained
        colour = ideal if bar.name in base else rest if place == len(bars) - 1 else colour
        hatch = "//" if bar.seconds < 0 else ""
        bar_of(place, bar.name, bar.seconds, begun, color=colour, hatch=hatch)
        begun += bar.seconds
    bar_of(len(bars), "the call", why.wall, 0.0, color="#404040")
    axes.set_yticks([])
    axes.set_ylim(len(bars) + 0.5, -0.8)
    axes.margins(x=0.16)
    axes.set_xlabel("time of one call")
    _scaled(axes)
    return axes


def _short(text: str, most: int = 44) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _scaled(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: si(x, "s") if x else "0"))


def timeline(why: Explanation, ax: Axes | None = None) -> Axes:
    """Draw when each kernel of one call ran, a line a stream or thread."""
    from roofline_helpers.plot import PALETTE

    if not why.timeline:
        raise BadValue("there is no timeline: nothing ran")
    axes = _axes(ax, 1.4 + 0.5 * max(len(why.lines), 1))
    kernels = why.kernels
    colours = {kin(row): PALETTE["series"][n] for n, row in enumerate(kernels[:_LABELLED])}
    by_row: dict[tuple[str, ...], list[tuple[float, float, int]]] = {}
    for start, took, line, number in why.timeline:
        row = why.rows[number]
        if row.kind == KERNEL:
            by_row.setdefault(kin(row), []).append((start, took, line))
    labels = {kin(row): _short(row.what) for row in kernels[:_LABELLED]}
    for name, events in by_row.items():
        for line in sorted({line for _, _, line in events}):
            spans = [(start, took) for start, took, at in events if at == line]
            axes.broken_barh(
                spans,
                (line - 0.4, 0.8),
                color=colours.get(name, "#b0b0b0"),
                label=labels.pop(name, None),
                gid=f"kernel:{name[-1]}",
            )
    axes.set_yticks(range(len(why.lines)), [f"line {n + 1}" for n in range(len(why.lines))])
    axes.set_xlabel("time since the call began")
    _scaled(axes)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.35), ncols=2, fontsize="small")
    return axes


def placed(why: Explanation) -> list[TimedRow]:
    """Return the kernels that have a place under a roofline: those that take long, if any do."""
    if "hbm" not in (why.roofs.reached or why.roofs.published):
        return []
    known = [row for row in why.kernels if row.flops and row.bytes and row.busy]
    return [row for row in known if row.seconds >= _SEEN * why.wall] or known


def roofline(why: Explanation, ax: Axes | None = None) -> Axes:
    """Draw the kernels where they were measured, sized by their time, under the roofline."""
    from roofline_helpers import plot

    drawn = placed(why)
    if not drawn:
        raise BadValue("no kernel has both FLOPs and bytes of memory to be drawn")
    roof = why.roofline()
    span = np.array([(row.flops or 0) / row.bytes for row in drawn])
    low, high = min(span.min(), roof.ridge) / 4, max(span.max(), roof.ridge) * 4
    axes = plot.roofline(roof, {}, intensity=(float(low), float(high)), regions=False, ax=ax)
    rates = [row.rate or 0.0 for row in drawn]
    sizes = [30 + 900 * row.seconds / why.wall for row in drawn]
    axes.scatter(
        span,
        rates,
        s=sizes,
        alpha=0.6,
        color=plot.PALETTE["series"][1],
        edgecolors="w",
        gid="measured",
    )
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, min(rates) / 2), max(high, 3 * max(rates)))
    named: dict[str, tuple[float, float, str]] = {}
    for row, x, y in zip(drawn, span, rates, strict=True):
        named.setdefault(row.what, (float(x), y, f"{_short(row.what, 32)}, {si(row.seconds, 's')}"))
    first = list(named.values())[:_LABELLED]
    # Kernels of a kind lie on each other, so a point has a number, and a list the names
    plot.place_labels(axes, [(x, y, str(n)) for n, (x, y, _) in enumerate(first, 1)])
    names = "\n".join(f"{n}  {name}" for n, (_, _, name) in enumerate(first, 1))
    box = {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 2}
    place: dict[str, Any] = {
        "transform": axes.transAxes,
        "ha": "right",
        "va": "bottom",
        "ma": "left",
    }
    axes.text(0.98, 0.03, names, fontsize=9, bbox=box, **place)
    return axes


_KINDS: Mapping[str, Callable[[Explanation, Axes | None], Axes]] = {
    "waterfall": waterfall,
    "timeline": timeline,
    "roofline": roofline,
}
