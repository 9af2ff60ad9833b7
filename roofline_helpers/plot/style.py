"""The book's style, the arguments of pictures, and their axes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import IdentityTransform
from numpy.typing import NDArray

from roofline_helpers.common.checks import BadType, BadValue, mapping, shown, single
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.common.show import PREFIXES, si, significant, use_tables
from roofline_helpers.roofline import Roofline
from roofline_helpers.work import Work, total

# --- Style: colours, markers, fonts, and short numbers -------------------------------------------

PALETTE: Mapping[str, Any] = {
    "paper": "#ffffff",
    "ink": "#1f1f1f",
    "muted": "#595959",
    "grid": "#e3e3e3",
    "memory": "#0072b2",
    "compute": "#b8480b",
    "network": "#8a3f7c",
    "lost": "#ff4918",
    "ridge": "#1f1f1f",
    "levels": ("#0072b2", "#204f3f", "#652910"),
    "series": ("#0062af", "#ff4918", "#1f1f1f", "#62a328", "#b8568f", "#4f9bd6", "#088b5d"),
}
"""Colours by role; "series" is for lines that have no role: any two stay apart (CIELAB distance
18 or more) for readers with normal, deuteranopic and protanopic sight."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
"""Marker of each series, so that no two differ by colour only."""

SIZE = (5.8, 4.2)
"""Inches of a figure that `use_style` sets."""

LINES = ("-", "--", "-.", ":")
"""Line style of each further round of series."""

SMALL = 9.5
"""Points of ticks, legends and names in a picture."""


def use_style() -> None:
    """Give figures and tables the book's look: fonts, colours, size, repeatable PNGs.

    In IPython, inline pictures become sharp ("retina") and carry no version in their metadata, and
    tables of pandas are shown as `show.readable` formats them.
    Importing this module changes nothing; only this call does.

    Examples
    --------
    >>> import matplotlib
    >>> with matplotlib.rc_context():
    ...     use_style()
    """
    mpl.rcParams.update(
        {
            "figure.figsize": SIZE,
            "figure.constrained_layout.use": True,
            "figure.facecolor": PALETTE["paper"],
            "savefig.facecolor": PALETTE["paper"],
            "axes.facecolor": PALETTE["paper"],
            "axes.edgecolor": PALETTE["muted"],
            "axes.labelcolor": PALETTE["ink"],
            "axes.prop_cycle": cycler(color=PALETTE["series"]),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "text.color": PALETTE["ink"],
            "xtick.color": PALETTE["ink"],
            "ytick.color": PALETTE["ink"],
            "grid.color": PALETTE["grid"],
            "font.size": 10,
            "axes.titlesize": 11,
            "xtick.labelsize": SMALL,
            "ytick.labelsize": SMALL,
            "legend.fontsize": SMALL,
            "legend.frameon": False,
            "svg.hashsalt": "roofline_helpers",
        }
    )
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("retina", metadata={"Software": None})  # type: ignore
        use_tables()


def look_of(i: int) -> dict[str, Any]:
    """Return colour, marker and line style of series i."""
    series = PALETTE["series"]
    return {
        "color": series[i % len(series)],
        "marker": MARKERS[i % len(MARKERS)],
        "ls": LINES[i // len(series) % len(LINES)],
    }


def halo() -> list[Any]:
    """Return a path effect that makes text readable on lines."""
    return [withStroke(linewidth=2.5, foreground=PALETTE["paper"])]


def short_number(value: float) -> str:
    """Return a number for a tick: 0.01, 1, 1000, 10k, 1M."""
    if 0 < abs(value) < 1e-4:
        return f"{value:.0e}"
    for letter in ("G", "M", "k"):
        if abs(value) >= max(PREFIXES[letter], 1e4) * 0.9999:
            return f"{significant(value / PREFIXES[letter])}{letter}"
    return significant(value).replace(",", "")


def rate_text(value: float) -> str:
    """Return FLOP/s in the unit of the axes: TFLOP/s, or GFLOP/s below 1 TFLOP/s."""
    prefix = "T" if value >= 1e12 else "G"
    return si(value, "FLOP/s", prefix, 4)


def percent_text(share: float) -> str:
    """Return a share in percent without its sign: "42", "4.2", "<0.1"."""
    percent = 100 * share
    return f"{percent:.0f}" if percent >= 9.95 else f"{percent:.1f}" if percent >= 0.05 else "<0.1"


def tint(color: str, strength: float) -> tuple[float, ...]:
    """Return a colour mixed with paper."""
    ink, paper = np.array(to_rgb(color)), np.array(to_rgb(PALETTE["paper"]))
    mix = ink * strength + paper * (1 - strength)
    return tuple(float(c) for c in mix)


# --- Arguments of pictures: kernels and intensities by name --------------------------------------

T = TypeVar("T")
Job: TypeAlias = "Work | float"
Kernels: TypeAlias = "Work | Sequence[Work]"
Jobs: TypeAlias = "Mapping[str, Job]"


def require(value: Any, kind: type) -> None:
    """Raise BadType unless a value is of this type."""
    if not isinstance(value, kind):
        raise BadType(f"a {kind.__name__} is needed here, got {shown(value)}")


def checked_jobs(jobs: Jobs) -> dict[str, Job]:
    """Return jobs with their intensities checked."""
    return {
        label: job if isinstance(job, Work) else single(f"intensity of {label}", job)
        for label, job in mapping("jobs", jobs).items()
    }


def position(label: str, job: Job, roof: Roofline) -> tuple[float, float]:
    """Return a job's point: (intensity at the outermost level, attainable)."""
    if not isinstance(job, Work):
        return job, float(roof.attainable(job))
    x = job.intensity_at(next(iter(roof.levels)))
    if np.ndim(x):
        raise BadType(f"{label}: a point needs one size, got arrays of {np.size(x)}")
    if not x > 0:
        raise BadValue(f"{label} has no FLOPs: intensity 0 has no place on a logarithmic axis")
    return float(x), float(roof.attainable(job))


def as_list(given: Any, kind: type[T]) -> list[T]:
    """Return one value of a type, or a sequence of them, as a list; raise for none."""
    members = list(given) if isinstance(given, Iterable) else [given]
    for member in members:
        require(member, kind)
    if not members:
        raise BadValue(f"at least one {kind.__name__} is needed, got none")
    return members


def labelled_work(end: Any, label: str) -> tuple[str, Work]:
    """Return one end of a fusion arrow as (label, work), with `label` as the default."""
    if isinstance(end, tuple) and len(end) == 2 and isinstance(end[0], str):
        label, end = end
    return label, end if isinstance(end, Work) else total(*as_list(end, Work))


def short_names(names: Sequence[str]) -> tuple[list[str], str]:
    """Return names without the vendor and without a common data type, and that type."""
    last = {name.rsplit(" ", 1)[-1] for name in names}
    shared = last.pop() if len(last) == 1 and last <= set(BITS) else ""
    cut = [name.removesuffix(f" {shared}") if shared else name for name in names]
    return [name.removeprefix("NVIDIA ").removeprefix("AMD ") for name in cut], shared


# --- Axes and figures, and functions that run when all sizes are known ---------------------------

INTENSITY = "arithmetic intensity (FLOP/byte)"
"""The quantity on the x axis of a roofline."""


def axes_for(ax: Axes | None) -> Axes:
    """Return the Axes to draw in: the given ones, or new ones in a new figure."""
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    require(ax, Axes)
    figure = ax.figure
    if figure.get_layout_engine() is None and ax.get_subplotspec() is not None:
        figure.set_layout_engine("constrained")  # type: ignore[union-attr]
    return ax


def figure_of(ax: Axes) -> Figure:
    """Return the figure of an Axes, also if it is in a subfigure."""
    figure: Any = ax.figure
    return figure if isinstance(figure, Figure) else figure.figure


def point_of(ax: Axes) -> float:
    """Return the pixels of a point, 1/72 inch."""
    return figure_of(ax).dpi / 72


def lay_out(figure: Figure) -> None:
    """Lay a figure out, if it has a layout engine."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)


def request_relayout(ax: Axes) -> None:
    """Let the functions that run before drawing run once more, after a new layout."""
    for artist in figure_of(ax).artists:
        if isinstance(artist, Layout):
            artist.moved = True


class AtDraw(Artist):
    """Runs a function before its figure is drawn, when all sizes are known; see `Layout`."""

    def __init__(self, ax: Axes, function: Callable[[Any], None], zorder: float) -> None:
        super().__init__()
        self.set_in_layout(False)
        self.set_zorder(zorder)
        self.ax, self.function = ax, function
        ax.add_artist(self)
        figure = figure_of(ax)
        if not any(isinstance(artist, Layout) for artist in figure.artists):
            figure.add_artist(Layout())


class Layout(Artist):
    """Runs all of a figure's `AtDraw`, the lowest `zorder` first, before any Axes is drawn.

    If one of them changes the layout, the others' results are invalid: the figure is laid out once
    more and all run again. So each picture is right the first time, without a trial drawing.
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
                ax.viewLim.frozen()  # reading it updates the limits
                waiting = [child for child in ax.get_children() if isinstance(child, AtDraw)]
                for child in sorted(waiting, key=Artist.get_zorder):
                    child.function(renderer)
            if not self.moved:
                break
            lay_out(figure)


def intensity_range(
    xs: Sequence[float], ridges: Sequence[float], wanted: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Return the ends of the x axis: those wanted, or with room around all points and ridges.

    Raises
    ------
    BadType, BadValue
        `wanted` isn't (low, high).
    """
    if wanted is not None:
        low, high = (single("intensity", end) for end in wanted)
        if low >= high:
            raise BadValue(f"intensity must be (low, high) with low < high, got {wanted!r}")
        return low, high
    first, last = min(ridges), max(ridges)
    low = min([*xs, first / 20]) / 2.5
    high = max([*xs, last * 6]) * 2.5
    left, right = math.log(first / low), math.log(high / last)
    before, after = max(left, 0.5 * right), max(right, 0.5 * left)
    return first / math.exp(before), last * math.exp(after)


def grid_behind(ax: Axes, axis: Any = "both") -> None:
    """Draw a grid behind everything else."""
    ax.grid(axis=axis, color=PALETTE["grid"], lw=0.6)
    ax.set_axisbelow(True)


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
    below, above = max(0.1 * tall, 0.5), max(0.17 * tall, 0.8)
    ax.set_ylim(lowest / math.exp(below), highest * math.exp(above))
    ax.set_xlabel(INTENSITY)
    ax.set_ylabel(f"attainable ({scale}FLOP/s)")
    grid_behind(ax)


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


def note(
    ax: Axes, text: str, at: Any, offset: tuple[float, float], gid: str, **look: Any
) -> Annotation:
    """Write a small text at an offset in points from a place."""
    look |= {"textcoords": "offset points", "fontsize": SMALL, "gid": gid}
    return ax.annotate(text, at, offset, **look)


def size_of(text: Text, renderer: Any) -> NDArray[np.float64]:
    """Return the width and height of a text, of an annotation without its arrow, in pixels."""
    return np.asarray(Text.get_window_extent(text, renderer).size)


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
