"""Axes and figures: what every picture is drawn on, and what runs when all sizes are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import IdentityTransform

from roofline_helpers._checks import BadType, BadValue, single
from roofline_helpers.plot.inputs import need
from roofline_helpers.plot.style import PALETTE, short_number
from roofline_helpers.show import PREFIXES

INTENSITY = "arithmetic intensity (FLOP/byte)"
"""What the x axis of a roofline shows."""


def axes_for(ax: Axes | None) -> Axes:
    """Return the Axes to draw in: those given, or new ones in a figure of their own."""
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    need(ax, Axes)
    figure = ax.figure
    if figure.get_layout_engine() is None and ax.get_subplotspec() is not None:
        figure.set_layout_engine("constrained")  # type: ignore[union-attr]
    return ax


def figure_of(ax: Axes) -> Figure:
    """Return the figure of an Axes, also where that is part of a subfigure."""
    figure: Any = ax.figure
    return figure if isinstance(figure, Figure) else figure.figure


def lay_out(ax: Axes) -> None:
    """Lay the figure out again, after a change of what surrounds the Axes."""
    figure = figure_of(ax)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    again(ax)


def again(ax: Axes) -> None:
    """Let the figure be laid out, and all that runs before it is drawn run, once more."""
    for artist in figure_of(ax).artists:
        if isinstance(artist, Places):
            artist.moved = True


class AtDraw(Artist):
    """Runs a function before its figure is drawn, when all sizes are known; see `Places`."""

    def __init__(self, function: Callable[[Any], None], zorder: float) -> None:
        super().__init__()
        self.set_in_layout(False)
        self.set_zorder(zorder)
        self.function = function

    def join(self, ax: Axes) -> None:
        """Become a part of an Axes: it runs each time that the figure is drawn."""
        ax.add_artist(self)
        figure = figure_of(ax)
        if not any(isinstance(artist, Places) for artist in figure.artists):
            figure.add_artist(Places())


class Places(Artist):
    """Runs all of a figure's `AtDraw`, the lowest `zorder` first, before any Axes is drawn.

    Where one of them has changed the layout, what the others found no longer holds: the figure is
    laid out once more and all run again. So each picture is right when it is drawn for the first
    time, and nothing has to be drawn before that only to find the places.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_in_layout(False)
        self.set_zorder(-1000)
        self.moved = False

    def draw(self, renderer: Any) -> None:
        """Run the functions; nothing is drawn."""
        figure: Any = self.figure
        for _ in range(3):
            self.moved = False
            for ax in figure.axes:
                locate = ax.get_axes_locator()
                ax.apply_aspect(locate(ax, renderer) if locate else None)
                ax.viewLim.frozen()  # asking for it brings the limits up to date
                waiting = [child for child in ax.get_children() if isinstance(child, AtDraw)]
                for child in sorted(waiting, key=Artist.get_zorder):
                    child.function(renderer)
            if not self.moved:
                break
            engine = figure.get_layout_engine()
            if engine is not None:
                engine.execute(figure)


def intensity_range(
    xs: Sequence[float], ridges: Sequence[float], wanted: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Return the ends of the x axis: those wanted, or with room around all points and ridges.

    Raises
    ------
    BadType, BadValue
        Something wanted that isn't (low, high).
    """
    if wanted is not None:
        if not isinstance(wanted, (tuple, list)) or len(wanted) != 2:
            raise BadType(f"intensity must be (low, high), got {wanted!r}")
        low, high = (single("intensity", end) for end in wanted)
        if low >= high:
            raise BadValue(f"intensity must be (low, high) with low < high, got {wanted!r}")
        return low, high
    low, high = min([*xs, min(ridges) / 20]) / 2.5, max([*xs, max(ridges) * 6]) * 2.5
    left, right = math.log(min(ridges) / low), math.log(high / max(ridges))
    return min(ridges) / math.exp(max(left, 0.5 * right)), max(ridges) * math.exp(
        max(right, 0.5 * left)
    )


def log_axes(
    ax: Axes, across: tuple[float, float], lowest: float, peak: float, highest: float = 0
) -> None:
    """Set log axes with room above the peak and below the lowest point; label them."""
    scale = "T" if peak >= 1e12 else "G"
    highest = max(peak, highest)
    tall = math.log(highest / lowest)
    log_scale(ax.xaxis)
    log_scale(ax.yaxis, PREFIXES[scale])
    ax.set_xlim(*across)
    ax.set_ylim(lowest / math.exp(max(0.1 * tall, 0.5)), highest * math.exp(max(0.17 * tall, 0.8)))
    ax.set_xlabel(INTENSITY)
    ax.set_ylabel(f"attainable ({scale}FLOP/s)")
    ax.grid(color=PALETTE["grid"], lw=0.6)
    ax.set_axisbelow(True)


def log_scale(axis: Axis, unit: float = 1.0) -> None:
    """Make an axis logarithmic, its ticks in this unit."""
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")  # type: ignore[attr-defined]
    axis.set_major_locator(LogLocator())
    axis.set_minor_locator(LogLocator(subs=(2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value / unit)))
    axis.set_minor_formatter(NullFormatter())


def ceiling(ax: Axes, x: list[float], y: list[float], part: str, gid: str) -> Line2D:
    """Draw one line of a roof, in the colour of "memory" or "compute"."""
    (line,) = ax.plot(x, y, color=PALETTE[part], lw=2.2, solid_capstyle="round", gid=gid)
    return line


def dot(
    ax: Axes, x: float, y: float, gid: str, *, hollow: bool = False, color: str = PALETTE["ink"]
) -> Line2D:
    """Draw the marker of one kernel."""
    face = PALETTE["paper"] if hollow else color
    (made,) = ax.plot([x], [y], "o", ms=6.5, mfc=face, mec=color, mew=1.2, zorder=5, gid=gid)
    return made


def loose_line(ax: Axes, color: str, **look: Any) -> Line2D:
    """Return a line in pixels that may leave the Axes and takes no part in the layout."""
    line = Line2D([], [], color=color, **look)
    line.set_in_layout(False)
    ax.add_artist(line)
    line.set(clip_on=False, gid="leader", transform=IdentityTransform())
    return line


def has_marker(line: Line2D) -> bool:
    """Tell whether a line shows markers. Leaders of names don't count."""
    return str(line.get_marker()) not in ("None", "", " ") and line.get_gid() != "leader"
