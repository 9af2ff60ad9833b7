"""Pictures: rooflines, kernels on them, fusion arrows, memory levels, heatmaps, traffic.

Every function takes ``ax=None``, draws in SI units (FLOP/s against FLOP/byte; only the tick labels
are scaled), returns the Axes and never calls ``show``. Points that have a label are placed by
`place_labels`, each time that the figure is drawn, so that no two texts meet at any size.
Artists carry a gid ("roof:memory", "roof:compute", "ridge", "job:NAME", …) for checks to find.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import IdentityTransform, ScaledTranslation
from numpy.typing import NDArray

from roofline_helpers._checks import BadType, BadValue, mapping, name_of, quantity, single
from roofline_helpers.dtypes import BITS
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.hardware import Chip
from roofline_helpers.hardware import chip as chip_of
from roofline_helpers.roofline import NETWORK, Roofline
from roofline_helpers.show import PREFIXES, si, significant, use_tables
from roofline_helpers.work import Work, total

Job: TypeAlias = "Work | float"
Kernels: TypeAlias = "Work | Sequence[Work]"
Jobs: TypeAlias = "Job | Mapping[str, Job] | Iterable[Work | tuple[str, Job]]"
Pixels: TypeAlias = NDArray[np.float64]

PALETTE: Mapping[str, Any] = {
    "paper": "#ffffff",
    "ink": "#1f1f1f",
    "muted": "#595959",
    "grid": "#e3e3e3",
    "memory": "#0072b2",
    "compute": "#b8480b",
    "network": "#8a3f7c",
    "ridge": "#1f1f1f",
    "levels": ("#0072b2", "#204f3f", "#652910"),
    "series": ("#0062af", "#ff4918", "#1f1f1f", "#62a328", "#b8568f", "#4f9bd6", "#088b5d"),
}
"""Colours by role; "series" is for lines that have no role: any two stay apart (CIELAB distance
18 or more) for readers with normal, deuteranopic and protanopic sight."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
"""Marker of each series: colour alone never tells two apart."""

SIZE = (5.8, 4.2)
"""Inches of a figure that `use_style` sets."""

_LINES = ("-", "--", "-.", ":")
_SMALL = 9.5
_LIFT = 8.0  # points between the roof and the arrow along it
_INTENSITY = "arithmetic intensity (FLOP/byte)"


def use_style() -> None:
    """Give figures and tables the book's look: fonts, colours, size, repeatable PNGs.

    In IPython, inline pictures become sharp ("retina") and carry no version in their metadata, and
    tables of pandas are shown as `show.reading` formats them.
    Importing this module changes nothing; only this call does.
    """
    mpl.rcParams.update(
        {
            "figure.figsize": SIZE,
            "figure.dpi": 100,
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
            "axes.labelsize": 10,
            "axes.titlesize": 11,
            "xtick.labelsize": _SMALL,
            "ytick.labelsize": _SMALL,
            "legend.fontsize": _SMALL,
            "legend.frameon": False,
            "svg.hashsalt": "roofline_helpers",
        }
    )
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_formats: Any = set_matplotlib_formats
        set_formats("retina", metadata={"Software": None})
        use_tables()


# --- pictures ------------------------------------------------------------------------------------


def roofline(
    roof: Roofline,
    jobs: Jobs = (),
    *,
    achieved: Mapping[str, float] | None = None,
    regions: bool = True,
    ridge: bool = True,
    vector: bool | None = None,
    intensity: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw one roofline, and kernels at (intensity, attainable).

    Parameters
    ----------
    roof : Roofline
        Its outermost level, its peak and, see `vector`, its vector ceiling are drawn.
    jobs : Work, number, mapping or sequence
        Kernels or plain intensities (FLOP/byte): ``job``, ``[job, ...]``, ``[("label", job)]``
        or ``{"label": job}``. A kernel sits at ``(job.intensity, roof.attainable(job))``.
    achieved : mapping of str to float, optional
        Measured FLOP/s of jobs, by label: drawn as diamonds, joined to the hollow point on the
        roof, and labelled with the roofline efficiency (achieved / attainable, in %).
    regions, ridge : bool
        Whether to shade and name the two regions, and to mark the ridge with its value.
    vector : bool, optional
        Whether to draw the vector unit's ceiling. By default: if a kernel runs on it alone.
    intensity : (low, high), optional
        Range of the x axis. By default it holds the ridge and all jobs.

    Raises
    ------
    BadType, BadValue, UnknownName
        Not a roofline or a job; an intensity of zero, which has no place on a logarithmic axis;
        an achieved label that no job has; a vector ceiling that is not known.
    """
    _need(roof, Roofline)
    points = _points(jobs, roof)
    measured = {
        name_of("job", label, [name for name, _, _ in points]): single(f"achieved {label}", rate)
        for label, rate in mapping("achieved", {} if achieved is None else achieved).items()
    }
    if vector is None:
        vector = roof.vector is not None and any(_on_vector(job) for _, job, _ in points)
    if vector and roof.vector is None:
        raise BadValue(f"{roof.name} has no vector ceiling: make it with vector=")
    ax = _axes(ax)
    low, high = _range([x for _, _, (x, _) in points], [roof.ridge], intensity)
    start = roof.attainable(low)
    rates = [start, *measured.values(), *(y for _, _, (_, y) in points)]
    _log_axes(ax, (low, high), min(rates), roof.peak, max(rates))
    if measured:
        unit = ax.get_ylabel().removeprefix("attainable (").removesuffix(")")
        ax.set_ylabel(f"attainable, achieved\n({unit}, % of roof)")

    knee = min(max(roof.ridge, low), high)
    if knee > low:
        _line(ax, [low, knee], [start, roof.attainable(knee)], "memory", "roof:memory")
    if knee < high:
        _line(ax, [knee, high], [roof.peak, roof.peak], "compute", "roof:compute")
        _on_ceiling(ax, f"peak {_rate(roof.peak)}", high, roof.peak, "compute")
    if regions:
        floor = ax.get_ylim()[0]
        spans = [(low, knee, "memory"), (knee, high, "compute")]
        for left, right, part in (span for span in spans if span[1] > span[0]):
            roofs = [roof.attainable(left), roof.attainable(right)]
            shade = ax.fill_between([left, right], floor, roofs, alpha=0.09, lw=0)
            shade.set(facecolor=PALETTE[part], gid=f"region:{part}")
            _region_name(ax, f"{part}-bound", left, right, part)
    if knee > low:
        _on_slope(ax, f"memory {si(roof.bandwidth, 'B/s')}", roof.bandwidth, PALETTE["memory"])
    if vector and roof.vector is not None and roof.vector < roof.peak:
        meet = max(roof.vector / roof.bandwidth, low)
        line = _line(ax, [meet, high], [roof.vector] * 2, "compute", "roof:vector")
        line.set(linestyle="--", linewidth=1.4)
        _on_ceiling(ax, f"vector unit {_rate(roof.vector)}", high, roof.vector, "compute")
    labels: list[tuple[float, float, str]] = []
    if ridge and low < roof.ridge < high:
        down = [ax.get_ylim()[0], roof.peak]
        ax.plot([roof.ridge] * 2, down, color=PALETTE["ridge"], lw=0.8, ls=":", gid="ridge:line")
        ax.plot([roof.ridge], [roof.peak], "o", ms=6, mec=PALETTE["ridge"], mew=1.3,
                mfc=PALETTE["paper"], zorder=4, gid="ridge")  # fmt: skip
        labels.append((roof.ridge, roof.peak, f"ridge {_number(roof.ridge)}"))
    for label, _, (x, y) in points:
        rate = measured.get(label)
        if rate is not None:
            ax.plot([x, x], [rate, y], color=PALETTE["muted"], lw=1, gid=f"gap:{label}")
            ax.plot(
                [x], [rate], "D", color=PALETTE["ink"], ms=5.5, zorder=5, gid=f"achieved:{label}"
            )
        _dot(ax, x, y, f"job:{label}", hollow=rate is not None)
        if rate is None:
            labels.append((x, y, label))
        else:
            labels.append((x, rate, f"{label}, {_percent(rate / y)} %"))
    place_labels(ax, labels)
    return ax


def compare(
    rooflines: Roofline | Iterable[Roofline], jobs: Jobs = (), *, ax: Axes | None = None
) -> Axes:
    """Draw several rooflines over each other, named at the right, with kernels as guides.

    Each roofline has its own colour, marker and line style; its ridge is the large hollow marker.
    A kernel is a vertical guide with one small marker a roofline, at what it can attain there.

    Raises
    ------
    BadType, BadValue
        No roofline, or something that is not one; a job without a place on the axes.
    """
    roofs = _roofs(rooflines)
    named = _pairs(jobs)
    points = [[_point(label, job, roof) for roof in roofs] for label, job in named]
    ax = _axes(ax)
    ridges = [roof.ridge for roof in roofs]
    low, high = _range([row[0][0] for row in points], ridges, None)
    rates = [roof.attainable(low) for roof in roofs] + [y for row in points for _, y in row]
    top = max(roof.peak for roof in roofs)
    _log_axes(ax, (low, high), min(rates), top)
    names, shared = _short_names([roof.name for roof in roofs])
    if shared:
        ax.set_ylabel(ax.get_ylabel().replace("attainable", f"attainable, {shared}"))
    for (label, _), row in zip(named, points, strict=True):
        ax.axvline(row[0][0], color=PALETTE["muted"], lw=0.8, ls=":", zorder=1.5,
                   gid=f"guide:{label}")  # fmt: skip
    margin = []
    for i, (roof, name) in enumerate(zip(roofs, names, strict=True)):
        look = _look(i)
        xs, ys = [low, roof.ridge, high], [roof.attainable(low), roof.peak, roof.peak]
        ax.plot(xs, ys, color=look["color"], ls=look["ls"], lw=1.6, gid=f"roof:{roof.name}")
        hollow = {"mfc": PALETTE["paper"], "mec": look["color"], "mew": 1.4}
        ax.plot([roof.ridge], [roof.peak], look["marker"], ms=7, zorder=4, **hollow,
                gid=f"ridge:{roof.name}")  # fmt: skip
        vector = [job for _, job in named if isinstance(job, Work) and roof.limit(job) == "vector"]
        if vector and roof.vector:
            span = [roof.vector / roof.bandwidth, high]
            ax.plot(span, [roof.vector] * 2, color=look["color"], ls=(0, (1, 2)), lw=1)
        for (label, _), row in zip(named, points, strict=True):
            ax.plot([row[i][0]], [row[i][1]], look["marker"], color=look["color"], ms=4.5,
                    zorder=5, gid=f"job:{label}:{roof.name}")  # fmt: skip
        margin.append((roof.peak, name, look))
    _margin_labels(ax, margin)
    _top_labels(ax, [(row[0][0], label) for (label, _), row in zip(named, points, strict=True)])
    return ax


def fusion(
    roof: Roofline,
    before: Kernels | tuple[str, Kernels],
    after: Kernels | tuple[str, Kernels],
    *,
    steps: Jobs = (),
    ax: Axes | None = None,
) -> Axes:
    """Draw what fusion does: an arrow along the roof, labelled with the ratio of the traffic.

    Parameters
    ----------
    roof : Roofline
        The device.
    before, after : Work, sequence of Work, or (label, either)
        The same operations unfused and fused. Of a sequence, FLOPs and bytes are added up. The
        labels are "before" and "after" if not given.
    steps : jobs
        Versions in between, drawn as markers.

    Raises
    ------
    BadType, BadValue
        Not kernels; nothing before or after.
    """
    _need(roof, Roofline)
    (name0, first), (name1, last) = _end(before, "before"), _end(after, "after")
    (x0, y0), (x1, y1) = (_point(name, job, roof) for name, job in ((name0, first), (name1, last)))
    points = [(name0, first), *_pairs(steps), (name1, last)]
    xs = [x for _, _, (x, _) in _points(points, roof)]
    low, high = _range(xs, [roof.ridge], None)
    ax = roofline(roof, points, intensity=(min(low, min(xs) / 8), high), ax=ax)
    bend = y1 / roof.bandwidth  # where the slope reaches the height of the last point
    bent = min(x0, x1) * 1.001 < bend < max(x0, x1) * 0.999
    path = [(x0, y0), *([(bend, y1)] if bent else []), (x1, y1)]
    beside = ScaledTranslation(-_LIFT / 72, _LIFT / 72, _figure(ax).dpi_scale_trans)
    place = ax.transData + beside
    color = PALETTE["ink"]
    ax.plot(*zip(*path, strict=True), color=color, lw=1.6, transform=place, gid="arrow")
    head = {"arrowstyle": "-|>", "color": color, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", path[-1], path[-2], xycoords=place, textcoords=place, arrowprops=head)
    (xa, ya), (xb, yb) = path[:2]
    ratio = float(first.bytes) / float(last.bytes)
    text = f"traffic {'÷' if ratio >= 1 else '×'} {significant(max(ratio, 1 / ratio), 2)}"
    _place(ax, [(math.sqrt(xa * xb), math.sqrt(ya * yb), text)], shift=(-_LIFT, _LIFT))
    return ax


def hierarchical(roof: Roofline, jobs: Jobs, *, ax: Axes | None = None) -> Axes:
    """Draw one slope a memory level, and each kernel once a level at its intensity there.

    A kernel's points lie at ``min(compute ceilings, bandwidth · intensity)`` of each level that it
    has traffic for, joined by a thin line. The lowest binds and is the filled one. If the roofline
    has a network, that is one more slope, at FLOPs per byte sent.

    Raises
    ------
    BadType, BadValue
        A job that is not a `Work` (a plain intensity belongs to one level only).
    """
    _need(roof, Roofline)
    named = _pairs(jobs)
    for label, job in named:
        if not isinstance(job, Work):
            raise BadType(f"{label}: a hierarchical roofline needs a Work, got {job!r}")
    slopes = dict(roof.levels) | ({NETWORK: roof.network} if roof.network else {})
    rows = [(label, _level_points(label, job, roof, slopes)) for label, job in named]
    ax = _axes(ax)
    xs = [x for _, points in rows for x, _ in points.values()]
    ridges = [roof.peak / bandwidth for bandwidth in slopes.values()]
    low, high = _range(xs, ridges, None)
    rates = [min(slopes.values()) * max(low, min(ridges) / 30)]
    rates += [y for _, points in rows for _, y in points.values()]
    _log_axes(ax, (low, high), min(rates), roof.peak)
    _line(ax, [min(ridges), high], [roof.peak, roof.peak], "compute", "roof:compute")
    _on_ceiling(ax, f"peak {_rate(roof.peak)}", high, roof.peak, "compute")
    ordered = sorted(slopes, key=lambda level: -slopes[level])
    looks = {
        level: (PALETTE[NETWORK], "D")
        if level == NETWORK
        else (PALETTE["levels"][min(i, 2)], MARKERS[i % 3])
        for i, level in enumerate(slopes)
    }
    for i, level in enumerate(ordered):
        bandwidth = slopes[level]
        ends = [low, roof.peak / bandwidth]
        line = _line(ax, ends, [bandwidth * x for x in ends], "memory", f"roof:{level}")
        line.set(color=looks[level][0], linestyle=_LINES[list(slopes).index(level) % 4])
        faster = slopes[ordered[i - 1]] / bandwidth if i else math.inf
        slower = bandwidth / slopes[ordered[i + 1]] if i + 1 < len(ordered) else math.inf
        below = slower >= faster if i else False
        name = level if level == NETWORK else level.upper()
        _on_slope(ax, f"{name} {si(bandwidth, 'B/s')}", bandwidth, looks[level][0], below=below)
    labels = []
    for label, points in rows:
        binding = min(y for _, y in points.values())
        x, y = zip(*points.values(), strict=True)
        ax.plot(x, y, color=PALETTE["muted"], lw=0.9, zorder=3, gid=f"levels:{label}")
        for level, (across, up) in points.items():
            color, marker = looks[level]
            dot = _dot(ax, across, up, f"job:{label}:{level}", hollow=up > binding, color=color)
            dot.set_marker(marker)
        labels.append((*min(points.values(), key=lambda point: (point[1], point[0])), label))
    place_labels(ax, labels)
    return ax


def heatmap(
    jobs: Jobs,
    chips: Iterable[Chip | Roofline | str],
    *,
    dtype: Any = "bf16",
    ax: Axes | None = None,
) -> Axes:
    """Draw the attainable share of peak, in percent, of each kernel (column) on each chip (row).

    Parameters
    ----------
    jobs : jobs
        Kernels, or plain intensities.
    chips : sequence of Chip, Roofline, or names of chips
        A chip without a peak for `dtype` gets "–".
    dtype : str or data type
        The peak that chips are held against. A Roofline brings its own.

    Raises
    ------
    BadType, BadValue, UnknownName
        No job or no chip; an unknown chip or data type; a kernel with matrix work in another data
        type than the chips' peak, whose bytes would be wrong.
    """
    kind = dtype_of(dtype)
    named = _pairs(jobs)
    many = isinstance(chips, Iterable) and not isinstance(chips, str)
    given: list[Any] = list(chips) if many else [chips]
    if not named or not given:
        raise BadValue(f"a heatmap needs kernels and chips, got {len(named)} and {len(given)}")
    known = [entry if isinstance(entry, Roofline) else chip_of(entry) for entry in given]
    shares = np.full((len(given), len(named)), np.nan)
    for i, entry in enumerate(known):
        if isinstance(entry, Chip) and kind not in {*entry.matrix, *entry.vector}:
            continue
        roof = entry.roofline(kind) if isinstance(entry, Chip) else entry
        for j, (label, job) in enumerate(named):
            matrix = isinstance(job, Work) and np.any(np.greater(job.matrix_flops, 0))
            if isinstance(entry, Chip) and isinstance(job, Work) and matrix and job.dtype != kind:
                raise BadValue(f"{label} is {job.dtype} work, held against {kind} peaks")
            shares[i, j] = _point(label, job, roof)[1] / roof.peak
    ax = _axes(ax)
    names, shared = _short_names([entry.name for entry in known])
    floor = max(float(np.nanmin(shares, initial=1.0)), 1e-4)
    norm = LogNorm(min(floor, 0.1), 1)
    colors = sns.color_palette("crest", as_cmap=True)
    sns.heatmap(
        shares,
        norm=norm,
        cmap=colors,
        cbar=False,
        linewidths=1.5,
        linecolor=PALETTE["paper"],
        xticklabels=[label for label, _ in named],
        yticklabels=names,
        ax=ax,
    )
    for (i, j), share in np.ndenumerate(shares):
        cell = PALETTE["paper"] if np.isnan(share) else colors(norm(share))
        color = "black" if _contrast("black", cell) > _contrast("white", cell) else "white"
        ax.text(j + 0.5, i + 0.5, _percent(share), ha="center", va="center", fontsize=9,
                color=color, gid=f"cell:{i}:{j}")  # fmt: skip
    ax.tick_params(length=0)
    plt.setp(ax.get_yticklabels(), rotation=0)
    plt.setp(ax.get_xticklabels(), rotation=40, ha="right", rotation_mode="anchor")
    if not shared and all(isinstance(entry, Chip) for entry in known):
        shared = kind
    ax.set_xlabel(" ".join(["attainable, % of", shared, "peak"]).replace("  ", " "))
    return ax


def lines(
    x: Any,
    series: Mapping[str, Any],
    *,
    hlines: Mapping[str, float] | None = None,
    logx: bool = True,
    logy: bool = True,
    xlabel: str = "",
    ylabel: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw lines over a common x, and horizontal lines, each named at its right end.

    Parameters
    ----------
    x : array
        Where all series are given.
    series : mapping of str to array
        One line each, as long as `x`.
    hlines : mapping of str to number, optional
        Thresholds, for instance ridges.
    logx, logy : bool
        Logarithmic axes.

    Raises
    ------
    BadType, BadValue
        Not numbers, not positive, not mappings, or a series that is not as long as `x`.
    """
    across = np.atleast_1d(np.asarray(quantity("x", x, zero=not logx), dtype=float))
    if across.size < 2 or across.ndim != 1:
        raise BadValue(f"x must be a list of two numbers or more, got {across.size}")
    curves = {}
    for label, values in mapping("series", series).items():
        curves[label] = np.asarray(quantity(label, values, zero=not logy), dtype=float)
        if curves[label].shape != across.shape:
            raise BadValue(f"{label} has shape {curves[label].shape}, x has {across.shape}")
    levels = {label: single(label, y) for label, y in mapping("hlines", hlines or {}).items()}
    if not curves:
        raise BadValue("at least one series is needed, got none")
    ax = _axes(ax)
    for axis, log in ((ax.xaxis, logx), (ax.yaxis, logy)):
        if log:
            _log(axis)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    margin = []
    for i, (label, values) in enumerate(curves.items()):
        look = _look(i)
        every = max(1, across.size // 8)
        ax.plot(across, values, color=look["color"], ls=look["ls"], lw=1.8, marker=look["marker"],
                ms=5, markevery=(i % every, every), gid=f"series:{label}")  # fmt: skip
        margin.append((float(values[np.argmax(across)]), label, look))
    for label, y in levels.items():
        ax.axhline(y, color=PALETTE["muted"], lw=1, ls=(0, (4, 2)), gid=f"hline:{label}")
        margin.append((y, label, {"color": PALETTE["muted"], "marker": "", "ls": "-"}))
    ax.set_xlim(across.min(), across.max())
    ax.grid(color=PALETTE["grid"], lw=0.6)
    ax.set_axisbelow(True)
    _margin_labels(ax, margin)
    return ax


def traffic(variants: Mapping[str, Work | Sequence[Work]], *, ax: Axes | None = None) -> Axes:
    """Draw the bytes that each variant moves, tensor by tensor, as stacked horizontal bars.

    Parameters
    ----------
    variants : mapping of str to Work or sequence of Work
        The kernels of each variant. One colour a tensor; what is written is hatched. A
        thick line parts two kernels; the total stands at the end of the bar.

    Raises
    ------
    BadType, BadValue
        No variant, or something that is not a kernel.
    """
    if not isinstance(variants, Mapping) or not variants:
        raise BadType(f"variants must be a mapping of name to kernels, got {variants!r}")
    bars: dict[str, list[tuple[str, float, str, int]]] = {}  # tensor, bytes, hatch, kernel
    for name, given in variants.items():
        works = [given] if isinstance(given, Work) else _all_works(given)
        bars[name] = [
            (tensor, single(tensor, n * passes.get(tensor, 1)), hatch, i)
            for i, job in enumerate(works)
            for group, passes, hatch in ((job.reads, job.passes, ""), (job.writes, {}, "////"))
            for tensor, n in group.items()
        ]
    largest = max(sum(n for _, n, _, _ in row) for row in bars.values())
    most: dict[str, float] = {}
    for tensor, n, _, _ in (part for row in bars.values() for part in row):
        most[tensor] = max(n, most.get(tensor, 0))
    small = [tensor for tensor, n in most.items() if n < 0.004 * largest]
    tensors = [tensor for tensor in most if tensor not in small]
    tints = {
        t: _tint(PALETTE["series"][i % 7], 0.35 + 0.3 * (i // 7)) for i, t in enumerate(tensors)
    }
    ax = _axes(ax)
    prefix = si(largest, "").split(" ")[-1]
    pieces = []
    for i, (name, row) in enumerate(bars.items()):
        end = 0.0
        for j, (tensor, n, hatch, kernel) in enumerate(row):
            color = tints.get(tensor, PALETTE["muted"])
            if j and row[j - 1][3] != kernel:
                ax.plot([end, end], [i - 0.42, i + 0.42], color=PALETTE["ink"], lw=1.6,
                        gid=f"kernel:{name}:{kernel}")  # fmt: skip
            ax.barh(i, n, left=end, height=0.62, facecolor=color, hatch=hatch, lw=0.6,
                    edgecolor=PALETTE["muted"], gid=f"bytes:{name}:{tensor}")  # fmt: skip
            if tensor in tints:
                pieces.append((i, end, end + n, tensor))
            end += n
        ax.annotate(si(end, "B"), (end, i), (5, 0), textcoords="offset points", va="center",
                    fontsize=_SMALL)  # fmt: skip
    ax.set_yticks(range(len(bars)), list(bars))
    ax.set_ylim(len(bars) - 0.45, -0.55)
    ax.set_xlim(0, largest * 1.26)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: _number(n / PREFIXES[prefix])))
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel(f"traffic ({prefix}B)")
    ax.grid(axis="x", color=PALETTE["grid"], lw=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(axis="y", length=0)
    _bar_names(ax, pieces)
    edge: dict[str, Any] = {"ec": PALETTE["muted"], "lw": 0.6}
    handles = [Patch(fc=color, label=tensor, **edge) for tensor, color in tints.items()]
    if small:
        handles += [Patch(fc=PALETTE["muted"], label=f"{', '.join(small)} (thin)", **edge)]
    handles += [Patch(fc=PALETTE["paper"], label="read", **edge)]
    handles += [Patch(fc=PALETTE["paper"], label="written", hatch="////", **edge)]
    _legend_below(ax, handles)
    return ax


# --- labels --------------------------------------------------------------------------------------


def place_labels(
    ax: Axes, labels: Iterable[tuple[float, float, str]], *, avoid: Iterable[Artist] = ()
) -> list[Annotation]:
    """Put a text beside each point so that no text covers a text, a marker or a legend.

    The places are found anew each time that the figure is drawn, so they also hold after a change
    of size or limits. Places around the point are tried first, then farther ones with a thin
    leader; where even that leaves no room, points get numbers and a key below the axes.

    Parameters
    ----------
    ax : Axes
        All texts, legends and markers in it are avoided, its lines where possible.
    labels : sequence of (x, y, text)
        Points in data coordinates. Calls on one Axes add up.
    avoid : sequence of artists
        What else to keep clear of.

    Returns
    -------
    list of Annotation
        One a label.

    Raises
    ------
    BadType
        `ax` is not an Axes, or a label is not (x, y, text).
    """
    _need(ax, Axes)
    triples = list(labels)
    for label in triples:
        if not (isinstance(label, tuple) and len(label) == 3 and isinstance(label[2], str)):
            raise BadType(f"a label is (x, y, text), got {label!r}")
    return _place(ax, triples, avoid=avoid)


def _place(
    ax: Axes,
    labels: Iterable[tuple[float, float, str]],
    *,
    avoid: Iterable[Artist] = (),
    shift: tuple[float, float] = (0, 0),
) -> list[Annotation]:
    """Do what `place_labels` says, the points moved by `shift` (in points of 1/72 inch)."""
    placer = next((child for child in ax.get_children() if isinstance(child, _Placer)), None)
    if placer is None:
        placer = _Placer()
        ax.add_artist(placer)
    made = [placer.add(ax, x, y, text, shift) for x, y, text in labels if text]
    placer.avoid.extend(avoid)
    _figure(ax).draw_without_rendering()
    return made


def text_overlaps(fig: Figure) -> list[tuple[str, str]]:
    """Return the pairs of visible texts of a figure whose boxes meet, as drawn.

    Tick labels, axis labels, titles, annotations and legends all count; a rotated text counts with
    its rotated box. An empty list is what every picture should give.
    """
    _need(fig, Figure)
    fig.draw_without_rendering()
    texts = visible_texts(fig)
    boxes = [_corners(text) for text in texts]
    return [
        (texts[i].get_text(), texts[j].get_text())
        for i in range(len(texts))
        for j in range(i + 1, len(texts))
        if _meet(boxes[i], boxes[j])
    ]


def visible_texts(fig: Figure) -> list[Text]:
    """Return the texts that a figure shows: not the empty, the hidden, nor ticks out of range."""
    unseen: set[Artist] = set()
    for axis in fig.findobj(Axis):
        low, high = sorted(axis.get_view_interval())
        slack = (high - low) * 1e-9
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if not low - slack <= tick.get_loc() <= high + slack or not axis.get_visible():
                unseen.update((tick.label1, tick.label2))
    return [
        text
        for text in fig.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in unseen
    ]


class _AtDraw(Artist):
    """Runs a function before the texts of its Axes are drawn, when all sizes are known."""

    def __init__(self, function: Callable[[Any], None], zorder: float) -> None:
        super().__init__()
        self.set_in_layout(False)
        self.set_zorder(zorder)
        self._function = function

    def draw(self, renderer: Any) -> None:
        self._function(renderer)


@dataclass(eq=False)
class _Label:
    """A point in data coordinates, how far its label's anchor lies from it, and its artists."""

    x: float
    y: float
    shift: tuple[float, float]
    text: str
    made: Annotation
    leader: Line2D


class _Placer(_AtDraw):
    """Places the labels of one Axes; see `place_labels`.

    Every label has the same candidate places around its anchor, nearest first. A place costs its
    distance, the lines that it covers, and doubt about whose label it is; places that leave the
    Axes or meet another text or a marker cost more than any that don't. Labels take their cheapest
    place in turn, in four orders, and the cheapest outcome counts.
    """

    STEPS = (7.0, 10.0, 14.0, 20.0, 28.0, 38.0, 50.0, 66.0, 86.0, 110.0, 140.0, 180.0)
    ANGLES = np.deg2rad([135, 315, 90, 45, 270, 225, 0, 180, 113, 67, 158, 293, 338, 22, 202, 247])
    LEADER = 13.0  # points between anchor and text from which a leader is drawn
    SAME = 4.0  # points within which markers count as one: their names are stacked
    HARD = 1e3
    MANY = 24  # labels above which fewer orders are tried: one takes time with their square

    def __init__(self) -> None:
        super().__init__(self._place, zorder=-1)
        self.avoid: list[Artist] = []
        self._labels: list[_Label] = []
        self._key: Annotation | None = None
        self._numbered: list[int] = []  # labels for whose names there is no room
        self._inches: tuple[float, ...] = ()  # the figure's size for which that holds
        self._posed: tuple[bytes, ...] = ()  # what was solved last, and how
        self._solved: tuple[Pixels, Pixels] = (np.empty(0), np.empty((0, 4)))

    def add(
        self, ax: Axes, x: float, y: float, text: str, shift: tuple[float, float]
    ) -> Annotation:
        made = ax.annotate(text, (x, y), (0, 0), textcoords="offset points", fontsize=_SMALL,
                           ha="left", va="bottom", zorder=7, color=PALETTE["ink"],
                           path_effects=_halo(), gid="label")  # fmt: skip
        made.set_in_layout(False)
        leader = _loose_line(ax, PALETTE["muted"], lw=0.7, zorder=3.5)
        self._inches = ()
        self._labels.append(_Label(x, y, shift, text, made, leader))
        return made

    def _place(self, renderer: Any) -> None:
        ax = self.axes
        if not self._labels or not isinstance(ax, Axes):
            return
        inches = tuple(_figure(ax).get_size_inches())
        if self._inches != inches:
            self._inches, self._numbered = inches, []
        while True:  # again when a key comes or grows, and the Axes change their size
            texts = [label.text for label in self._labels]
            for number, i in enumerate(self._numbered, 1):
                texts[i] = str(number)
            entries = [f"{texts[i]}: {self._labels[i].text}" for i in self._numbered]
            if self._show_key(ax, _wrap(ax, entries, renderer)):
                _layout(ax)
            groups = self._groups(ax)
            costs, places = self._solve(ax, renderer, groups, texts)
            stuck = [
                group[0] for group, cost in zip(groups, costs, strict=True) if cost >= self.HARD
            ]
            if not stuck or len(self._numbered) == len(self._labels):
                break
            self._number(ax, groups, stuck)
        point = _figure(ax).dpi / 72
        for group, box in zip(groups, places, strict=True):
            anchor = self._anchor(ax, group[0])
            made, leader = group[0].made, group[0].leader
            start = ax.transData.transform((group[0].x, group[0].y))
            made.set_position(tuple((box[:2] - start) / point))
            made.set_multialignment("right" if box[2] <= anchor[0] else "left")
            near = np.clip(anchor, box[:2], box[2:])
            far = bool(np.hypot(*(near - anchor)) > self.LEADER * point)
            leader.set_data(*(np.stack([anchor, near]).T if far else ([], [])))
            for label in group[1:]:
                label.leader.set_data([], [])

    def _number(self, ax: Axes, groups: list[list[_Label]], stuck: list[_Label]) -> None:
        """Give numbers to the labels that are stuck; if they have them, to their neighbours too."""
        named = [i for i in range(len(self._labels)) if i not in self._numbered]
        members = [label for group in groups if group[0] in stuck for label in group]
        more = [i for i in named if self._labels[i] in members]
        if not more:
            here = self._anchor(ax, stuck[0])
            gaps = [np.hypot(*(self._anchor(ax, self._labels[i]) - here)) for i in named]
            more = [named[int(np.argmin(gaps))]]
        self._numbered = sorted([*self._numbered, *more])

    def _show_key(self, ax: Axes, text: str) -> bool:
        """Write the key below the axis label; return whether it has changed."""
        if self._key is None:
            self._key = ax.annotate("", (0.5, 0), (0, -4), xycoords=ax.xaxis.label, fontsize=_SMALL,
                                    textcoords="offset points", ha="center", va="top",
                                    annotation_clip=False, gid="key")  # fmt: skip
        changed = text != self._key.get_text()
        self._key.set(text=text, visible=bool(text))
        return changed

    def _anchor(self, ax: Axes, label: _Label) -> Pixels:
        moved = np.array(label.shift) * _figure(ax).dpi / 72
        return np.asarray(ax.transData.transform((label.x, label.y)) + moved)

    def _groups(self, ax: Axes) -> list[list[_Label]]:
        """Return the labels, those of markers that lie on each other together."""
        groups: list[list[_Label]] = []
        for label in self._labels:
            here = self._anchor(ax, label)
            near = self.SAME * _figure(ax).dpi / 72
            for group in groups:
                if np.hypot(*(self._anchor(ax, group[0]) - here)) < near:
                    group.append(label)
                    break
            else:
                groups.append([label])
        return groups

    def _solve(
        self, ax: Axes, renderer: Any, groups: list[list[_Label]], texts: list[str]
    ) -> tuple[Pixels, Pixels]:
        """Return for each group the cost and the box (x0, y0, x1, y1) in pixels of its place."""
        shown = dict(zip(map(id, self._labels), texts, strict=True))
        sizes = []
        for group in groups:
            for label in group:
                label.made.set_visible(label is group[0])
            made = group[0].made
            names = [shown[id(label)] for label in group]
            made.set_text((", " if all(map(str.isdigit, names)) else "\n").join(names))
            sizes.append(Text.get_window_extent(made, renderer).size)
        point = _figure(ax).dpi / 72
        anchors = np.array([self._anchor(ax, group[0]) for group in groups])
        own = [label.made for label in self._labels]
        markers, writing = _blocks(ax, renderer, self.avoid, own, point)
        blocks = np.vstack([markers, writing])
        strokes = _strokes(ax)
        frame = np.array(ax.bbox.extents) + np.array([2, 2, -2, -2]) * point
        posed = (anchors, np.array(sizes), markers, writing, strokes, frame)
        key = tuple(np.round(each, 6).tobytes() for each in posed)
        if key == self._posed:  # drawn again as it was
            return self._solved
        choices, costs = [], []
        for anchor, (w, h) in zip(anchors, sizes, strict=True):
            boxes, order = self._candidates(anchor, w, h, point)
            slide = np.clip(boxes[:, 0], frame[0], max(frame[0], frame[2] - w)) - boxes[:, 0]
            boxes[:, [0, 2]] += slide[:, None]
            outside = ((boxes[:, :2] < frame[:2]) | (boxes[:, 2:] > frame[2:])).any(axis=1)
            gap = _distance(boxes, anchor)
            spots = np.vstack([anchors, (markers[:, :2] + markers[:, 2:]) / 2])
            others = spots[np.hypot(*(spots - anchor).T) > self.SAME * point]
            nearest = np.min([_distance(boxes, a) for a in others], axis=0, initial=np.inf)
            leaders = self._leaders(boxes, anchor, point)
            foreign = markers[_distance(markers, anchor) > 0] if len(markers) else markers
            pad = np.array([-1, -1, 1, 1]) * point
            cost = (
                gap / point * 0.06
                + order * 0.04
                + np.minimum(_crossings(strokes, boxes), 4) * 1.2
                + 3 * np.clip((gap - nearest) / point / 8 + 1, 0, 2)
                + 0.8 * _segments_cross(leaders, strokes).sum(axis=1)
                + self.HARD * outside
                + self.HARD * _touches(boxes + pad, blocks).sum(axis=1)
                + self.HARD * _hits(leaders, np.vstack([writing, foreign])).sum(axis=1)
            )
            choices.append((boxes, leaders))
            costs.append(cost)
        x = anchors[:, 0]
        crowd = [np.sum(np.hypot(*(anchors - a).T) < 60 * point) for a in anchors]
        orders = (np.arange(len(x)), np.argsort(x), np.argsort(-x), np.argsort(crowd)[::-1])
        tries = len(anchors) if len(anchors) <= self.MANY else 8
        found: dict[tuple[int, ...], tuple[Pixels, Pixels]] = {}
        for first in orders:
            order = tuple(map(int, first))
            for _ in range(tries):  # those that found no place go first the next time
                if order not in found:  # they come round again
                    found[order] = self._greedy(order, choices, costs, point)
                stuck = [i for i in order if found[order][0][i] >= self.HARD]
                if not stuck:
                    break
                order = (*stuck, *(i for i in order if i not in stuck))
        self._posed = key
        self._solved = min(found.values(), key=lambda outcome: float(outcome[0].sum()))
        return self._solved

    def _greedy(
        self, order: Any, choices: list[Any], costs: list[Any], point: float
    ) -> tuple[Pixels, Pixels]:
        taken = np.empty((0, 4))
        leads = np.empty((0, 4))
        places = np.zeros((len(choices), 4))
        paid = np.zeros(len(choices))
        for i in order:
            boxes, leaders = choices[i]
            pad = np.array([-2, -1, 2, 1]) * point
            cost = costs[i] + self.HARD * (
                _touches(boxes + pad, taken).sum(axis=1)
                + _hits(leaders, taken).sum(axis=1)
                + _crossings(leads, boxes)
                + _segments_cross(leaders, leads).sum(axis=1)
            )
            best = int(np.argmin(cost))
            paid[i] = cost[best]
            places[i] = boxes[best]
            taken = np.vstack([taken, boxes[best]])
            if not np.isnan(leaders[best]).any():
                leads = np.vstack([leads, leaders[best]])
        return paid, places

    def _candidates(self, anchor: Pixels, w: float, h: float, point: float) -> tuple[Pixels, Any]:
        step, angle = np.meshgrid(np.array(self.STEPS) * point, self.ANGLES, indexing="ij")
        across, up = np.cos(angle), np.sin(angle)
        x = anchor[0] + step * across + np.clip(across * 1.5, -1, 1) * w / 2 - w / 2
        y = anchor[1] + step * up + np.clip(up * 1.5, -1, 1) * h / 2 - h / 2
        boxes = np.stack([x, y, x + w, y + h], axis=-1).reshape(-1, 4)
        return boxes, np.tile(np.arange(len(self.ANGLES)), len(self.STEPS))

    def _leaders(self, boxes: Pixels, anchor: Pixels, point: float) -> Pixels:
        near = np.clip(anchor, boxes[:, :2], boxes[:, 2:])
        lines = np.hstack([np.broadcast_to(anchor, near.shape), near])
        lines[_distance(boxes, anchor) <= self.LEADER * point] = np.nan
        return lines


def _blocks(
    ax: Axes, renderer: Any, avoid: Iterable[Artist], own: list[Annotation], point: float
) -> tuple[Pixels, Pixels]:
    """Return the boxes that no label may touch: markers; and texts, legends, `avoid`."""
    markers: list[Any] = []
    for line in ax.lines:
        if line.get_visible() and _has_marker(line) and line.get_markevery() is None:
            half = (line.get_markersize() + line.get_markeredgewidth()) / 2 * point
            centres = line.get_transform().transform(line.get_xydata())
            markers.extend(np.hstack([centres - half, centres + half]))
        if line.get_gid() == "arrow":
            x, y = line.get_transform().transform(line.get_xydata()).T
            steps = np.linspace(0, len(x) - 1, 9 * len(x))
            spots = np.stack([np.interp(steps, range(len(x)), xs) for xs in (x, y)], axis=-1)
            markers.extend(np.hstack([spots - 3 * point, spots + 3 * point]))
    writing: list[Any] = []
    for text in ax.texts:
        if text.get_visible() and text.get_text().strip() and text not in own:
            writing.extend(_tiles(_corners(text, renderer)))
    legend = ax.get_legend()
    for artist in [*avoid, *([legend] if legend else [])]:
        writing.append(artist.get_window_extent(renderer).extents)
    return np.array(markers).reshape(-1, 4), np.array(writing).reshape(-1, 4)


def _has_marker(line: Line2D) -> bool:
    return str(line.get_marker()) not in ("None", "", " ") and line.get_gid() != "leader"


def _strokes(ax: Axes) -> Pixels:
    """Return the segments (x0, y0, x1, y1) of the lines in an Axes, in pixels."""
    pieces = []
    for line in ax.lines:
        if line.get_gid() != "leader" and line.get_linestyle() != "None" and line.get_visible():
            xy = line.get_transform().transform(line.get_xydata())
            pieces.append(np.hstack([xy[:-1], xy[1:]]))
    return np.vstack(pieces) if pieces else np.empty((0, 4))


def _touches(a: Pixels, b: Pixels) -> NDArray[np.bool_]:
    """Return which boxes of `a` (rows) meet which of `b` (columns)."""
    a, b = a[:, None], b[None]
    found = (a[..., :2] < b[..., 2:]) & (b[..., :2] < a[..., 2:])
    return np.asarray(found.all(axis=-1))


def _distance(boxes: Pixels, point: Pixels) -> Pixels:
    near = np.clip(point, boxes[:, :2], boxes[:, 2:])
    return np.asarray(np.hypot(*(near - point).T))


def _hits(segments: Pixels, boxes: Pixels) -> NDArray[np.bool_]:
    """Return which segments (rows) pass through which boxes (columns): the slab method."""
    start, step = segments[:, None, :2], (segments[:, 2:] - segments[:, :2])[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        one, two = (boxes[None, :, :2] - start) / step, (boxes[None, :, 2:] - start) / step
    nearer, farther = np.fmin(one, two), np.fmax(one, two)
    enter = np.fmax(nearer[..., 0], nearer[..., 1])
    leave = np.fmin(farther[..., 0], farther[..., 1])
    return np.asarray((enter < leave) & (leave > 0) & (enter < 1))


def _crossings(segments: Pixels, boxes: Pixels) -> Pixels:
    """Return how many segments pass through each box."""
    return np.asarray(_hits(segments, boxes).sum(axis=0), dtype=float)


def _segments_cross(a: Pixels, b: Pixels) -> NDArray[np.bool_]:
    """Return which segments of `a` (rows) cross which of `b` (columns)."""

    def side(line: Pixels, point: Pixels) -> Pixels:
        along, to = line[..., 2:] - line[..., :2], point - line[..., :2]
        return np.asarray(np.sign(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0]))

    a, b = a[:, None], b[None]
    return np.asarray(
        (side(a, b[..., :2]) * side(a, b[..., 2:]) < 0)
        & (side(b, a[..., :2]) * side(b, a[..., 2:]) < 0)
    )


def _corners(text: Text, renderer: Any = None) -> Pixels:
    """Return the four corners of a text's box in pixels, turned as the text is."""
    if isinstance(text, Annotation) and renderer is not None:
        text.update_positions(renderer)
    angle = text.get_rotation()
    box = Text.get_window_extent(text, renderer)
    centre = (
        np.asarray(box.min) + np.asarray(box.max)
    ) / 2  # turning a box leaves the centre of its outline in place
    if angle % 90:
        text.set_rotation(0)
        box = Text.get_window_extent(text, renderer)
        text.set_rotation(angle)
        turn = np.deg2rad(angle)
    else:
        turn = 0.0
    half = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * box.size / 2
    matrix = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    return np.asarray(centre + half @ matrix)


def _tiles(corners: Pixels) -> list[Pixels]:
    """Return upright boxes that cover a turned one."""
    (a, b, _, d) = corners
    along, up = b - a, d - a
    count = max(1, math.ceil(np.hypot(*along) / max(np.hypot(*up), 1)))
    if abs(along[0]) < 1e-6 or abs(along[1]) < 1e-6:
        count = 1
    pieces = []
    for i in range(count):
        piece = [a + along * i / count + s * along / count + t * up for s in (0, 1) for t in (0, 1)]
        pieces.append(np.hstack([np.min(piece, axis=0), np.max(piece, axis=0)]))
    return pieces


def _meet(a: Pixels, b: Pixels) -> bool:
    """Return whether two turned boxes meet: no edge direction separates them."""
    for box in (a, b):
        for edge in (box[1] - box[0], box[3] - box[0]):
            one, two = a @ edge, b @ edge
            slack = 1e-6 * float(np.hypot(*edge)) + 1e-9
            if bool(one.max() <= two.min() + slack) or bool(two.max() <= one.min() + slack):
                return False
    return True


def _wrap(ax: Axes, entries: list[str], renderer: Any) -> str:
    """Return entries in lines that are no wider than the figure."""
    probe = Text(0, 0, "", fontsize=_SMALL, figure=_figure(ax))
    rows: list[str] = []
    for entry in entries:
        longer = f"{rows[-1]}    {entry}" if rows else entry
        probe.set_text(longer)
        fits = probe.get_window_extent(renderer).width < _figure(ax).bbox.width * 0.9
        rows = [*rows[:-1], longer] if rows and fits else [*rows, entry]
    return "\n".join(rows)


def _margin_labels(ax: Axes, entries: Sequence[tuple[float, str, Mapping[str, Any]]]) -> None:
    """Name lines at the right of the Axes: (y where the line ends, name, look)."""
    made = []
    for _, name, look in entries:
        text = ax.annotate(name, (1, 0.5), (26, 0), xycoords="axes fraction", fontsize=_SMALL,
                           textcoords="offset points", va="center", annotation_clip=False,
                           gid="margin")  # fmt: skip
        path = _loose_line(ax, look["color"], lw=1)
        mark = _loose_line(ax, look["color"], marker=look["marker"], markersize=5, ls="none")
        made.append((text, path, mark))

    def place(renderer: Any) -> None:
        point = _figure(ax).dpi / 72
        ends = np.array([ax.transData.transform((1, y))[1] for y, _, _ in entries])
        height = max(text.get_window_extent(renderer).height for text, _, _ in made)
        ys = _spread(ends, height * 1.02, ax.bbox.y0 + height / 2, ax.bbox.y1 - height / 2)
        right = ax.bbox.x1
        for (text, path, mark), end, y in zip(made, ends, ys, strict=True):
            text.set_position((26, (y - (ax.bbox.y0 + ax.bbox.y1) / 2) / point))
            path.set_data([right, right + 3 * point, right + 14 * point], [end, end, y])
            mark.set_data([right + 19 * point], [y])

    ax.add_artist(_AtDraw(place, -5))
    _figure(ax).draw_without_rendering()


def _spread(wanted: Pixels, gap: float, low: float, high: float) -> Pixels:
    """Return the places nearest to those wanted, in the same order, at least `gap` apart."""
    order = np.argsort(wanted, kind="stable")
    ramp = gap * np.arange(len(wanted))
    groups: list[list[float]] = []  # isotonic regression: pool neighbours that are out of order
    for value in wanted[order] - ramp:
        groups.append([value])
        while len(groups) > 1 and np.mean(groups[-2]) > np.mean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    flat = np.concatenate([[np.mean(group)] * len(group) for group in groups])
    placed = np.empty(len(wanted))
    placed[order] = np.clip(flat, low, max(low, high - ramp[-1])) + ramp
    return placed


# --- parts of a picture --------------------------------------------------------------------------


def _need(given: Any, kind: type) -> None:
    if not isinstance(given, kind):
        name = kind.__name__
        raise BadType(f"{name} is needed, got {given!r} ({type(given).__name__})")


def _axes(ax: Axes | None) -> Axes:
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    _need(ax, Axes)
    figure = ax.figure
    if figure.get_layout_engine() is None and ax.get_subplotspec() is not None:
        figure.set_layout_engine("constrained")  # type: ignore[union-attr]
    return ax


def _pairs(jobs: Jobs) -> list[tuple[str, Job]]:
    """Return jobs in any of their forms as (label, job)."""
    if isinstance(jobs, Mapping):
        pairs: list[Any] = list(jobs.items())
    elif isinstance(jobs, Work) or not isinstance(jobs, Iterable):
        pairs = [jobs]
    else:
        pairs = list(jobs)
    named: list[tuple[str, Job]] = []
    for entry in pairs:
        if isinstance(entry, Work):
            named.append((entry.name, entry))
        elif isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
            label, job = entry
            if not isinstance(job, Work):
                job = single(f"intensity of {label}", job)
            named.append((label, job))
        else:
            value = single("an intensity", entry)
            named.append((_number(value), value))
    return named


def _point(label: str, job: Job, roof: Roofline) -> tuple[float, float]:
    """Return where a job sits: (intensity at the outermost level, attainable)."""
    if not isinstance(job, Work):
        return job, float(roof.attainable(job))
    x = job.intensity_at(next(iter(roof.levels)))
    if np.ndim(x):
        raise BadType(f"{label}: a point needs one size, got arrays of {np.size(x)}")
    if not x > 0:
        raise BadValue(f"{label} has no FLOPs: intensity 0 has no place on a logarithmic axis")
    return float(x), float(roof.attainable(job))


def _points(jobs: Jobs, roof: Roofline) -> list[tuple[str, Job, tuple[float, float]]]:
    return [(label, job, _point(label, job, roof)) for label, job in _pairs(jobs)]


def _level_points(
    label: str, job: Any, roof: Roofline, slopes: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Return {level: (intensity there, what that level and the compute ceilings allow)}."""
    _point(label, job, roof)
    seconds = roof.times(job)
    compute = max(float(seconds.get(unit, 0)) for unit in ("matrix", "vector"))
    return {
        level: (
            float(job.intensity_at(level)),
            float(job.flops) / max(float(seconds[level]), compute),
        )
        for level in slopes
        if level in seconds
    }


def _on_vector(job: Job) -> bool:
    return isinstance(job, Work) and bool(job.vector_flops > 0) and bool(job.matrix_flops == 0)


def _all_works(given: Any) -> list[Work]:
    kernels = list(given) if isinstance(given, Iterable) else [given]
    for kernel in kernels:
        _need(kernel, Work)
    if not kernels:
        raise BadValue("at least one kernel is needed, got none")
    return kernels


def _end(given: Any, label: str) -> tuple[str, Work]:
    """Return one end of a fusion arrow as (label, work)."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        label, given = given
    return label, given if isinstance(given, Work) else total(*_all_works(given))


def _roofs(given: Any) -> list[Roofline]:
    roofs = list(given) if isinstance(given, Iterable) else [given]
    for roof in roofs:
        _need(roof, Roofline)
    if not roofs:
        raise BadValue("at least one roofline is needed, got none")
    return roofs


def _range(
    xs: Sequence[float], ridges: Sequence[float], given: tuple[float, float] | None
) -> tuple[float, float]:
    if given is not None:
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise BadType(f"intensity must be (low, high), got {given!r}")
        low, high = (single("intensity", end) for end in given)
        if low >= high:
            raise BadValue(f"intensity must be (low, high) with low < high, got {given!r}")
        return low, high
    low, high = min([*xs, min(ridges) / 20]) / 2.5, max([*xs, max(ridges) * 6]) * 2.5
    left, right = math.log(min(ridges) / low), math.log(high / max(ridges))
    return min(ridges) / math.exp(max(left, 0.5 * right)), max(ridges) * math.exp(
        max(right, 0.5 * left)
    )


def _log_axes(
    ax: Axes, across: tuple[float, float], lowest: float, peak: float, highest: float = 0
) -> None:
    """Set log axes with room above the peak and below the lowest point; label them."""
    scale = "T" if peak >= 1e12 else "G"
    highest = max(peak, highest)
    tall = math.log(highest / lowest)
    _log(ax.xaxis)
    _log(ax.yaxis, PREFIXES[scale])
    ax.set_xlim(*across)
    ax.set_ylim(lowest / math.exp(max(0.1 * tall, 0.5)), highest * math.exp(max(0.17 * tall, 0.8)))
    ax.set_xlabel(_INTENSITY)
    ax.set_ylabel(f"attainable ({scale}FLOP/s)")
    ax.grid(color=PALETTE["grid"], lw=0.6)
    ax.set_axisbelow(True)


def _log(axis: Axis, unit: float = 1.0) -> None:
    getattr(axis.axes, f"set_{axis.axis_name}scale")("log")  # type: ignore[attr-defined]
    axis.set_major_locator(LogLocator())
    axis.set_minor_locator(LogLocator(subs=(2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _number(value / unit)))
    axis.set_minor_formatter(NullFormatter())


def _line(ax: Axes, x: list[float], y: list[float], part: str, gid: str) -> Line2D:
    (line,) = ax.plot(x, y, color=PALETTE[part], lw=2.2, solid_capstyle="round", gid=gid)
    return line


def _dot(
    ax: Axes, x: float, y: float, gid: str, *, hollow: bool = False, color: str = PALETTE["ink"]
) -> Line2D:
    face = PALETTE["paper"] if hollow else color
    (dot,) = ax.plot([x], [y], "o", ms=6.5, mfc=face, mec=color, mew=1.2, zorder=5, gid=gid)
    return dot


def _on_ceiling(ax: Axes, text: str, x: float, y: float, part: str) -> None:
    ax.annotate(text, (x, y), (-3, 4), textcoords="offset points", ha="right", va="bottom",
                fontsize=_SMALL, color=PALETTE[part], path_effects=_halo(),
                gid="ceiling")  # fmt: skip


def _on_slope(ax: Axes, text: str, bandwidth: float, color: str, *, below: bool = False) -> None:
    """Write along the line ``bandwidth · I`` where it can be seen; not at all if it's too short."""
    made = ax.annotate(text, (1, 1), (0, 0), textcoords="offset points", ha="center", va="center",
                       fontsize=_SMALL, color=color, path_effects=_halo(), gid="slope")  # fmt: skip
    made.set_in_layout(False)
    peak = max(float(np.max(np.asarray(line.get_ydata(), dtype=float))) for line in ax.lines)

    def place(renderer: Any) -> None:
        (x0, x1), (y0, _) = ax.get_xlim(), ax.get_ylim()
        left, right = max(x0, y0 / bandwidth), min(x1, peak / bandwidth)
        a, b = ax.transData.transform([(left, left * bandwidth), (right, right * bandwidth)])
        length = float(np.hypot(*(b - a)))
        made.set(rotation=0, visible=True)  # a hidden text has no size
        width, height = Text.get_window_extent(made, renderer).size
        made.set_visible(left < right and width < 0.9 * length)
        if not made.get_visible():
            return
        point = _figure(ax).dpi / 72
        along = (b - a) / length
        above = np.array([-along[1], along[0]])
        others = [line for line in ax.lines if line.get_gid() == "arrow" or _has_marker(line)]
        spots = [line.get_transform().transform(line.get_xydata()) for line in others]
        worth = [
            1 if _has_marker(line) else 50 for line in others for _ in np.asarray(line.get_xydata())
        ]
        near = np.vstack(spots) - a if spots else np.empty((0, 2))
        texts = [text for text in ax.texts if text.get_gid() in ("ceiling", "slope")]
        boxes = [_corners(text, renderer) for text in texts if text is not made]
        made.set_rotation(math.degrees(math.atan2(along[1], along[0])))
        least, most = width / 2 / length, 1 - width / 2 / length
        tries = [t for t in (0.5, 0.6, 0.4, 0.7, 0.3, 0.8, 0.2) if least < t < most] or [0.5]

        def move(up: Pixels, t: float) -> None:
            x = left ** (1 - t) * right**t
            made.xy = (x, bandwidth * x)
            made.set_position(tuple(up * (height / 2 / point + 4)))

        def covered(up: Pixels, t: float) -> int:
            move(up, t)
            mine = _corners(made, renderer)
            beside = (near @ up > -6 * point) & (near @ up < height + 12 * point)
            beside &= np.abs(near @ along - t * length) < width / 2 + 5 * point
            return int(np.sum(beside * worth)) + 100 * sum(_meet(mine, box) for box in boxes)

        for up, limit in ((-above if below else above, 49), (above if below else -above, 0)):
            made.set_visible(True)
            costs = [covered(up, t) for t in tries]
            move(up, tries[int(np.argmin(costs))])
            made.set_visible(min(costs) <= limit)
            if made.get_visible():
                break

    ax.add_artist(_AtDraw(place, -5))


def _region_name(ax: Axes, text: str, left: float, right: float, part: str) -> None:
    """Name a region at its foot; over two lines where it is too narrow for one."""
    made = ax.annotate(text, (math.sqrt(left * right), 0), (0, 5), fontsize=_SMALL,
                       xycoords=ax.get_xaxis_transform(), textcoords="offset points", ha="center",
                       va="bottom", color=PALETTE[part], style="italic", gid="region")  # fmt: skip
    made.set_in_layout(False)

    def place(renderer: Any) -> None:
        a, b = ax.transData.transform([(left, ax.get_ylim()[0]), (right, ax.get_ylim()[0])])[:, 0]
        made.set(text=text, visible=True)
        if Text.get_window_extent(made, renderer).width > b - a - 6:
            made.set_text(text.replace("-", "-\n"))
        made.set_visible(Text.get_window_extent(made, renderer).width <= b - a - 2)

    ax.add_artist(_AtDraw(place, -6))


def _top_labels(ax: Axes, entries: list[tuple[float, str]]) -> None:
    """Name vertical guides above the Axes, slanted, or upright where that is too narrow."""
    if not entries:
        return
    top = ax.secondary_xaxis("top")
    top.spines[:].set_visible(False)
    top.tick_params(which="both", length=0)
    top.tick_params(pad=12)
    names = [name for _, name in entries]
    paths = [_loose_line(ax, PALETTE["muted"], lw=0.7) for _ in entries]
    probe = Text(0, 0, "Q", fontsize=_SMALL, figure=_figure(ax))
    slants = [0]

    def place(renderer: Any) -> None:
        point = _figure(ax).dpi / 72
        height = probe.get_window_extent(renderer).height * 1.1
        wanted = np.array([ax.transData.transform((x, 1))[0] for x, _ in entries])
        slant = 40 if len(entries) * height / math.sin(math.radians(40)) < ax.bbox.width else 90
        pitch = height / math.sin(math.radians(slant))
        xs = _spread(wanted, pitch, ax.bbox.x0 + height / 2, ax.bbox.x1 - height / 2)
        ticks = ax.transData.inverted().transform([(x, ax.bbox.y1) for x in xs])[:, 0]
        top.set_ticks(
            list(ticks),
            names,
            rotation=slant,
            ha="left",
            va="center" if slant == 90 else "bottom",
            rotation_mode="anchor",
            fontsize=_SMALL,
        )
        for path, start, end in zip(paths, wanted, xs, strict=True):
            y = ax.bbox.y1
            path.set_data([start, start, end], [y, y + 2 * point, y + 10 * point])
        if slants[0] != slant:
            slants[0] = slant
            _layout(ax)

    ax.add_artist(_AtDraw(place, -8))
    _figure(ax).draw_without_rendering()


def _bar_names(ax: Axes, pieces: list[tuple[int, float, float, str]]) -> None:
    """Write (row, start, end, name) into the bars that are wide enough."""
    back = {"boxstyle": "round,pad=0.15", "fc": PALETTE["paper"], "ec": "none", "alpha": 0.85}
    made = []
    for row, start, end, name in pieces:
        x = (start + end) / 2
        text = ax.text(x, row, name, ha="center", va="center", fontsize=9, bbox=back, gid="piece")
        made.append(text)

    def place(renderer: Any) -> None:
        fits = []
        for text, (_, start, end, _) in zip(made, pieces, strict=True):
            left, right = ax.transData.transform([(start, 0), (end, 0)])[:, 0]
            text.set_visible(True)
            width = Text.get_window_extent(text, renderer).width
            fits.append(bool(width < right - left - 2 * _figure(ax).dpi / 72))
        for text, fit in zip(made, fits, strict=True):
            text.set_visible(fit and sum(fits) > len(fits) / 2)

    ax.add_artist(_AtDraw(place, -5))


def _loose_line(ax: Axes, color: str, **look: Any) -> Line2D:
    """Return a line in pixels that may leave the Axes and takes no part in the layout."""
    line = Line2D([], [], color=color, **look)
    line.set_in_layout(False)
    ax.add_artist(line)
    line.set(clip_on=False, gid="leader", transform=IdentityTransform())
    return line


def _halo(width: float = 2.5) -> list[Any]:
    return [withStroke(linewidth=width, foreground=PALETTE["paper"])]


def _figure(ax: Axes) -> Figure:
    figure: Any = ax.figure
    return figure if isinstance(figure, Figure) else figure.figure


def _layout(ax: Axes) -> None:
    """Lay the figure out again, after a change of what stands around the Axes."""
    engine = _figure(ax).get_layout_engine()
    if engine is not None:
        engine.execute(_figure(ax))


def _legend_below(ax: Axes, handles: list[Patch]) -> None:
    """Put a legend below the axis label, with as many columns as the figure is wide."""
    figure = _figure(ax)
    below = ax.transAxes + ScaledTranslation(0, -36 / 72, figure.dpi_scale_trans)
    for columns in range(min(len(handles), 6), 0, -1):
        legend = ax.legend(handles=handles, ncols=columns, loc="upper center", frameon=False,
                           bbox_to_anchor=(0.5, 0), bbox_transform=below, borderaxespad=0,
                           handlelength=1.4, columnspacing=1.2)  # fmt: skip
        legend.set_in_layout(False)
        figure.draw_without_rendering()
        width = legend.get_window_extent().width
        if width <= ax.bbox.x1 or columns == 1:
            break
    if width > ax.bbox.width:  # let it reach to the left, below the tick labels
        legend.set_loc("upper right")
        legend.set_bbox_to_anchor((1, 0), below)
    legend.set_in_layout(True)


def _look(i: int) -> dict[str, Any]:
    series = PALETTE["series"]
    return {
        "color": series[i % len(series)],
        "marker": MARKERS[i % len(MARKERS)],
        "ls": _LINES[i // len(series) % len(_LINES)],
    }


def _short_names(names: Sequence[str]) -> tuple[list[str], str]:
    """Return names without the vendor and without a data type that all share, and that type."""
    last = {name.rsplit(" ", 1)[-1] for name in names}
    shared = last.pop() if len(last) == 1 and last <= set(BITS) else ""
    cut = [name.removesuffix(f" {shared}") if shared else name for name in names]
    return [name.removeprefix("NVIDIA ").removeprefix("AMD ") for name in cut], shared


def _number(value: float) -> str:
    """Return a number for a tick: 0.01, 1, 1000, 10k, 1M."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (9.999e3, "k")):
        if abs(value) >= limit * 0.9999:
            return f"{significant(value / {'G': 1e9, 'M': 1e6, 'k': 1e3}[letter])}{letter}"
    return (
        significant(value).replace(",", "") if abs(value) >= 1e-4 or not value else f"{value:.0e}"
    )


def _rate(value: float) -> str:
    prefix = "T" if value >= 1e12 else "G"
    return si(value, "FLOP/s", prefix, 4).replace(",", "")


def _percent(share: float) -> str:
    if np.isnan(share):
        return "–"
    percent = 100 * share
    return f"{percent:.0f}" if percent >= 9.95 else f"{percent:.1f}" if percent >= 0.05 else "<0.1"


def _tint(color: str, strength: float) -> tuple[float, ...]:
    """Return a colour mixed with paper."""
    mix = np.array(to_rgb(color)) * strength + np.array(to_rgb(PALETTE["paper"])) * (1 - strength)
    return tuple(float(c) for c in mix)


def _contrast(a: Any, b: Any) -> float:
    """Return the contrast of two colours as WCAG 2 defines it, 1 to 21."""

    def luminance(color: Any) -> float:
        c = np.array(to_rgb(color))
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)
