"""An explanation drawn: the waterfall, and its kernels on the roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofline.diagnosis.rows import PROFILER, REST, TimedRow
from roofline_helpers.common.checks import BadValue
from roofline_helpers.common.show import shortened, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from roofline.diagnosis.explanation import Explanation

_LABELLED = 5

KINDS = {
    "counted by hand": "least",
    "the compiled program": "least",
    REST: "rest",
    PROFILER: "rest",
}
"""The kinds of bars that are neither lost nor gained."""

_SEEN = 0.002
"""Share of the call from which on a kernel is a point under the roofline."""


def waterfall(why: Explanation, ax: Axes | None = None) -> Axes:
    """Draw the steps from the least time to the clock's, top to bottom, names above their bars.

    What is taken away is hatched.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    from roofline_helpers import plot

    axes = plot.style.axes_for(ax)
    if ax is None:
        plot.style.figure_of(axes).set_size_inches(9, 1.6 + 0.4 * len(why.waterfall))
    ideal, _, _, gained, *_ = plot.PALETTE["series"]
    known = {"least": ideal, "rest": "#8c8c8c", "call": "#404040"}
    bars = [(bar.name, bar.seconds, KINDS.get(bar.name, "")) for bar in why.waterfall]
    bars.append(("the call", why.wall, "call"))
    begun, where = 0.0, axes.get_yaxis_transform()  # names from the left edge, whatever the times
    about: dict[str, Any] = {"textcoords": "offset points", "fontsize": plot.style.SMALL}
    for number, (name, seconds, kind) in enumerate(bars):
        left = 0.0 if kind == "call" else begun
        hatch = "//" if seconds < 0 else ""
        colour = known.get(kind, plot.PALETTE["lost"] if seconds > 0 else gained)
        axes.barh(number, seconds, 0.45, left=left, color=colour, hatch=hatch)
        label, end = si(seconds, "s") if abs(seconds) > 1e-12 else "0", max(left, left + seconds)
        axes.annotate(label, (end, number), (4, 0), va="center", **about)
        axes.annotate(shortened(name, 44), (0, number - 0.26), (2, 0), where, va="bottom", **about)
        begun += seconds
    axes.set_yticks([])
    axes.set_ylim(len(bars) - 0.5, -0.85)
    axes.margins(x=0.18)
    axes.set_xlabel("time of one call")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: si(x, "s") if x else "0"))
    return axes


def under_roofline(why: Explanation) -> list[TimedRow]:
    """Return the kernels that can be drawn under a roofline: those that take long, if any do."""
    if "hbm" not in (why.roofs.best):
        return []
    known = [row for row in why.kernels if row.flops and row.bytes and row.busy]
    return [row for row in known if row.seconds >= _SEEN * why.wall] or known


def roofline(why: Explanation, ax: Axes | None = None) -> Axes:
    """Draw the kernels that take longest where they were measured, under the roofline."""
    from roofline_helpers import plot

    longest: dict[str, TimedRow] = {}
    for row in under_roofline(why):
        longest.setdefault(shortened(row.title, 28), row)
    if not longest:
        raise BadValue("no kernel has both FLOPs and bytes of memory to be drawn")
    drawn = list(longest.items())[:_LABELLED]
    labels = [f"{name}, {si(row.seconds, 's')}" for name, row in drawn]
    intensities = [(row.flops or 0) / row.bytes for _, row in drawn]
    rates = [(row.flops or 0) / row.seconds for _, row in drawn]  # as the text has it
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
