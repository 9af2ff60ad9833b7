"""An explanation drawn: the waterfall, and its kernels on the roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofline_helpers.common.checks import BadValue
from roofline_helpers.common.show import si
from roofline_helpers.device.display import shortened
from roofline_helpers.device.rows import TimedRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from roofline_helpers.device.explanation import Explanation

_LABELLED = 5

_SEEN = 0.002
"""Share of the call from which on a kernel is a point under the roofline."""


def waterfall(why: Explanation, ax: Axes | None = None) -> Axes:
    """Draw the steps from the least time to the clock's, top to bottom, names above their bars."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    from roofline_helpers import plot

    bars = why.waterfall
    axes = plot.style.axes_for(ax)
    if ax is None:
        plot.style.figure_of(axes).set_size_inches(9, 1.2 + 0.4 * (len(bars) + 1))
    ideal, lost, _, gained, *_ = plot.PALETTE["series"]
    begun = 0.0

    def bar_of(place: int, name: str, seconds: float, left: float, **looks: Any) -> None:
        axes.barh(place, seconds, 0.5, left=left, gid=f"bar:{name}", **looks)
        label = si(seconds, "s") if abs(seconds) > 1e-12 else "0"
        about: dict[str, Any] = {"textcoords": "offset points", "fontsize": plot.style.SMALL}
        axes.annotate(label, (max(left, left + seconds), place), (4, 0), va="center", **about)
        where = axes.get_yaxis_transform()  # from the left edge, whatever the times
        axes.annotate(shortened(name, 44), (0, place - 0.27), (2, 0), where, va="bottom", **about)

    for place, bar in enumerate(bars):
        colour, hatch = (lost, "") if bar.seconds > 0 else (gained, "//")
        if bar.name in ("counted by hand", "the compiled program"):
            colour = ideal
        elif place == len(bars) - 1:
            colour = "#8c8c8c"
        bar_of(place, bar.name, bar.seconds, begun, color=colour, hatch=hatch)
        begun += bar.seconds
    bar_of(len(bars), "the call", why.wall, 0.0, color="#404040")
    axes.set_yticks([])
    axes.set_ylim(len(bars) + 0.5, -0.8)
    axes.margins(x=0.18)
    axes.set_xlabel("time of one call")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: si(x, "s") if x else "0"))
    return axes


def placed(why: Explanation) -> list[TimedRow]:
    """Return the kernels that have a place under a roofline: those that take long, if any do."""
    if "hbm" not in (why.roofs.reached or why.roofs.published):
        return []
    known = [row for row in why.kernels if row.flops and row.bytes and row.busy]
    return [row for row in known if row.seconds >= _SEEN * why.wall] or known


def roofline(why: Explanation, ax: Axes | None = None) -> Axes:
    """Draw the kernels that take longest where they were measured, under the roofline."""
    from roofline_helpers import plot

    longest: dict[str, TimedRow] = {}
    for row in placed(why):
        longest.setdefault(shortened(row.what, 28), row)
    if not longest:
        raise BadValue("no kernel has both FLOPs and bytes of memory to be drawn")
    drawn = list(longest.items())[:_LABELLED]
    labels = [f"{name}, {si(row.seconds, 's')}" for name, row in drawn]
    intensities = [(row.flops or 0) / row.bytes for _, row in drawn]
    rates = [row.rate or 0.0 for _, row in drawn]
    roof = why.roofline()
    reach = [roof.ridge, *intensities]
    return plot.roofline(
        roof,
        dict(zip(labels, intensities, strict=True)),
        achieved=dict(zip(labels, rates, strict=True)),
        regions=False,
        intensity=(min(reach) / 4, 200 * max(reach)),  # labels have room on the right
        ax=ax,
    )
