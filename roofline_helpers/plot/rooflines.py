"""Rooflines, and the names of their lines and regions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from roofline_helpers.common.checks import BadType, BadValue, mapping, name_of, single
from roofline_helpers.common.show import si, significant
from roofline_helpers.plot.labels import (
    Pixels,
    corners_of,
    meet,
    name_at_margin,
    place_labels,
    spread,
)
from roofline_helpers.plot.style import (
    LINES,
    MARKERS,
    PALETTE,
    SMALL,
    AtDraw,
    Jobs,
    Kernels,
    as_list,
    axes_for,
    ceiling,
    checked_jobs,
    dot,
    figure_of,
    halo,
    has_marker,
    intensity_range,
    labelled_work,
    log_axes,
    look_of,
    loose_line,
    note,
    percent_text,
    point_of,
    position,
    rate_text,
    request_relayout,
    require,
    short_names,
    short_number,
    size_of,
)
from roofline_helpers.roofline import NETWORK, Roofline
from roofline_helpers.work import Work

# --- Labels in fixed places: ceilings, slopes, regions, guides ------------------------------------


def flat_ceiling(ax: Axes, name: str, left: float, right: float, rate: float, gid: str) -> Line2D:
    """Draw a ceiling of a compute unit, named above its right end."""
    line = ceiling(ax, [left, right], [rate, rate], "compute", gid)
    look = {"ha": "right", "va": "bottom", "color": PALETTE["compute"]}
    text = f"{name} {rate_text(rate)}"
    note(ax, text, (right, rate), (-6, 4), "ceiling", path_effects=halo(), **look)
    return line


def name_slope(ax: Axes, text: str, bandwidth: float, color: str, *, below: bool = False) -> None:
    """Write along the visible part of the line ``bandwidth · I``; nothing if it's too short."""
    look = {"ha": "center", "va": "center", "color": color}
    made = note(ax, text, (1, 1), (0, 0), "slope", path_effects=halo(), **look)
    made.set_in_layout(False)
    peak = max(float(np.max(np.asarray(line.get_ydata(), dtype=float))) for line in ax.lines)

    def turn_along(renderer: Any) -> None:
        (x0, x1), (y0, _) = ax.get_xlim(), ax.get_ylim()
        left, right = max(x0, y0 / bandwidth), min(x1, peak / bandwidth)
        a, b = ax.transData.transform([(left, left * bandwidth), (right, right * bandwidth)])
        length = float(np.hypot(*(b - a)))
        made.set(rotation=0, visible=True)  # a hidden text has no size
        width, height = size_of(made, renderer)
        made.set_visible(left < right and width < 0.9 * length)
        if not made.get_visible():
            return
        point = point_of(ax)
        along = (b - a) / length
        above = np.array([-along[1], along[0]])
        spots, worth = _spots(ax)
        near = spots - a
        texts = [text for text in ax.texts if text.get_gid() in ("ceiling", "slope")]
        boxes = [corners_of(text, renderer) for text in texts if text is not made]
        made.set_rotation(math.degrees(math.atan2(along[1], along[0])))
        least, most = width / 2 / length, 1 - width / 2 / length
        tries = [t for t in (0.5, 0.6, 0.4, 0.7, 0.3, 0.8, 0.2) if least < t < most] or [0.5]

        def move(up: Pixels, t: float) -> None:
            x = left ** (1 - t) * right**t
            made.xy = (x, bandwidth * x)
            made.set_position(tuple(up * (height / 2 / point + 4)))

        def covered(up: Pixels, t: float) -> int:
            move(up, t)
            mine = corners_of(made, renderer)
            hidden = (near @ up > -6 * point) & (near @ up < height + 12 * point)
            hidden &= np.abs(near @ along - t * length) < width / 2 + 5 * point
            return int(np.sum(hidden * worth)) + 100 * sum(meet(mine, box) for box in boxes)

        for up, limit in ((-above if below else above, 49), (above if below else -above, 0)):
            made.set_visible(True)
            costs = [covered(up, t) for t in tries]
            move(up, tries[int(np.argmin(costs))])
            made.set_visible(min(costs) <= limit)
            if made.get_visible():
                break

    AtDraw(ax, turn_along, -5)


def _spots(ax: Axes) -> tuple[Pixels, Pixels]:
    # pixels of markers and arrows, and the cost of covering each of them
    lines = [line for line in ax.lines if line.get_gid() == "arrow" or has_marker(line)]
    spots = [line.get_transform().transform(line.get_xydata()) for line in lines]
    worth = [
        np.full(len(pixels), 1.0 if has_marker(line) else 50.0)
        for line, pixels in zip(lines, spots, strict=True)
    ]
    return np.vstack([np.empty((0, 2)), *spots]), np.hstack([np.empty(0), *worth])


def name_region(ax: Axes, text: str, left: float, right: float, part: str) -> None:
    """Name a region at its foot, on two lines if it is too narrow for one."""
    look = {"ha": "center", "va": "bottom", "color": PALETTE[part], "style": "italic"}
    at = {"xycoords": ax.get_xaxis_transform()}
    middle = math.sqrt(left * right)
    made = note(ax, text, (middle, 0), (0, 5), "region", **look, **at)
    made.set_in_layout(False)

    def fit_region(renderer: Any) -> None:
        foot, _ = ax.get_ylim()
        a, b = ax.transData.transform([(left, foot), (right, foot)])[:, 0]
        made.set(text=text, visible=True)
        if size_of(made, renderer)[0] > b - a - 6:
            made.set_text(text.replace("-", "-\n"))
        made.set_visible(bool(size_of(made, renderer)[0] <= b - a - 2))

    AtDraw(ax, fit_region, -6)


def name_guides(ax: Axes, entries: list[tuple[float, str]]) -> None:
    """Name vertical guides above the Axes, slanted, or upright if there is too little room."""
    if not entries:
        return
    top = ax.secondary_xaxis("top")
    top.spines[:].set_visible(False)
    top.tick_params(which="both", length=0, pad=12)
    names = [name for _, name in entries]
    paths = [loose_line(ax, PALETTE["muted"], lw=0.7) for _ in entries]
    probe = Text(0, 0, "Q", fontsize=SMALL, figure=figure_of(ax))
    slant = 0

    def spread_guides(renderer: Any) -> None:
        nonlocal slant
        before = slant
        point = point_of(ax)
        height = probe.get_window_extent(renderer).height * 1.1
        wanted = np.array([ax.transData.transform((x, 1))[0] for x, _ in entries])
        slant = 40 if len(entries) * height / math.sin(math.radians(40)) < ax.bbox.width else 90
        pitch = height / math.sin(math.radians(slant))
        xs = spread(wanted, pitch, ax.bbox.x0 + height / 2, ax.bbox.x1 - height / 2)
        ticks = ax.transData.inverted().transform([(x, ax.bbox.y1) for x in xs])[:, 0]
        look: dict[str, Any] = {"rotation": slant, "rotation_mode": "anchor", "fontsize": SMALL}
        top.set_ticks(
            list(ticks), names, ha="left", va="center" if slant == 90 else "bottom", **look
        )
        for path, start, end in zip(paths, wanted, xs, strict=True):
            y = ax.bbox.y1
            path.set_data([start, start, end], [y, y + 2 * point, y + 10 * point])
        if slant != before:
            request_relayout(ax)

    AtDraw(ax, spread_guides, -8)


# --- Rooflines -----------------------------------------------------------------------------------

LIFT = 8.0
"""Points of 1/72 inch between the roof and the arrow along it."""


def roofline(
    roof: Roofline,
    jobs: Jobs | None = None,
    *,
    achieved: Mapping[str, float] | None = None,
    regions: bool = True,
    vector: bool | None = None,
    intensity: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw one roofline, and kernels at (intensity, attainable).

    Parameters
    ----------
    roof : Roofline
        Its outermost level, its peak and, see `vector`, its vector ceiling are drawn.
    jobs : mapping of str to Work or number
        Kernels, or intensities (FLOP/byte), by label.
    achieved : mapping of str to float, optional
        Measured FLOP/s of jobs: diamonds, joined to the hollow point on the roof, and labelled with
        the roofline efficiency (achieved / attainable, in %).
    regions : bool
        Whether to shade and name the two regions.
    vector : bool, optional
        Whether to draw the vector unit's ceiling. By default: if a kernel runs on it alone.
    intensity : (low, high), optional
        Range of the x axis. By default it holds the ridge and all jobs.

    Raises
    ------
    BadType, BadValue, UnknownName
        Not a roofline or a job; an intensity of zero, which has no place on a logarithmic axis; an
        achieved label that no job has; a vector ceiling that is not known.

    Examples
    --------
    >>> from roofline_helpers import chip, work
    >>> axes = roofline(chip("v6e").roofline(), {"matmul": work.matmul(600, 600, 600)})
    >>> axes.get_xlabel()
    'arithmetic intensity (FLOP/byte)'
    """
    require(roof, Roofline)
    named = checked_jobs(jobs or {})
    points = {label: position(label, job, roof) for label, job in named.items()}
    measured = {
        name_of("job", label, points): single(f"achieved {label}", rate)
        for label, rate in mapping("achieved", achieved or {}).items()
    }
    if vector and roof.vector is None:
        raise BadValue(f"{roof.name} has no vector ceiling: make it with vector=")
    if vector is None:
        vector = any(isinstance(job, Work) and not job.matrix_flops > 0 for job in named.values())
    ax = axes_for(ax)
    low, high = intensity_range([x for x, _ in points.values()], [roof.ridge], intensity)
    rates = [roof.attainable(low), *measured.values(), *(y for _, y in points.values())]
    log_axes(ax, (low, high), min(rates), roof.peak, max(rates))
    if measured:
        ax.set_ylabel(ax.get_ylabel().replace("attainable", "attainable, achieved"))
    _draw_roof(ax, roof, low, high, regions)
    if vector and roof.vector is not None and roof.vector < roof.peak:
        start = max(roof.vector / roof.bandwidth, low)
        line = flat_ceiling(ax, "vector unit", start, high, roof.vector, "roof:vector")
        line.set(linestyle="--", linewidth=1.4)
    labels = _draw_ridge(ax, roof) if low < roof.ridge < high else []
    place_labels(ax, [*labels, *_draw_kernels(ax, points, measured)])
    return ax


def _draw_roof(ax: Axes, roof: Roofline, low: float, high: float, regions: bool) -> None:
    knee = min(max(roof.ridge, low), high)
    if knee > low:
        ends = [roof.attainable(low), roof.attainable(knee)]
        ceiling(ax, [low, knee], ends, "memory", "roof:memory")
    if knee < high:
        flat_ceiling(ax, "peak", knee, high, roof.peak, "roof:compute")
    if regions:
        floor = ax.get_ylim()[0]
        spans = [(low, knee, "memory"), (knee, high, "compute")]
        for left, right, part in (span for span in spans if span[1] > span[0]):
            roofs = [roof.attainable(left), roof.attainable(right)]
            shade = ax.fill_between([left, right], floor, roofs, alpha=0.09, lw=0)
            shade.set(facecolor=PALETTE[part], gid=f"region:{part}")
            name_region(ax, f"{part}-bound", left, right, part)
    if knee > low:
        text = f"memory {si(roof.bandwidth, 'B/s', digits=4)}"
        name_slope(ax, text, roof.bandwidth, PALETTE["memory"])


def _draw_ridge(ax: Axes, roof: Roofline) -> list[tuple[float, float, str]]:
    down = [ax.get_ylim()[0], roof.peak]
    ax.plot([roof.ridge] * 2, down, color=PALETTE["ridge"], lw=0.8, ls=":", gid="ridge:line")
    look = {"ms": 6, "mec": PALETTE["ridge"], "mew": 1.3, "mfc": PALETTE["paper"], "zorder": 4}
    ax.plot([roof.ridge], [roof.peak], "o", gid="ridge", **look)
    return [(roof.ridge, roof.peak, f"ridge {short_number(roof.ridge)}")]


def _draw_kernels(
    ax: Axes, points: Mapping[str, tuple[float, float]], measured: Mapping[str, float]
) -> list[tuple[float, float, str]]:
    # each on the roof, with its measured rate below; returns their labels
    labels = []
    for label, (x, y) in points.items():
        rate = measured.get(label)
        if rate is not None:
            ax.plot([x, x], [rate, y], color=PALETTE["muted"], lw=1, gid=f"gap:{label}")
            look = {"color": PALETTE["ink"], "ms": 5.5, "zorder": 6}
            ax.plot([x], [rate], "D", gid=f"achieved:{label}", **look)
        dot(ax, x, y, f"job:{label}", hollow=rate is not None)
        name = label if rate is None else f"{label}, {percent_text(rate / y)}%"
        labels.append((x, y if rate is None else rate, name))
    return labels


def compare(
    rooflines: Sequence[Roofline], jobs: Jobs | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw several rooflines over each other, named at the right, with kernels as guides.

    Each roofline has its own colour and line style; its ridge is where the line bends. A kernel is
    a vertical guide with one small marker per roofline, at its attainable FLOP/s.

    Raises
    ------
    BadType, BadValue
        No roofline, or something that is not one; a job without a place on the axes.

    Examples
    --------
    >>> from roofline_helpers import chip
    >>> compare([chip("v5e").roofline(), chip("v6e").roofline()]).get_xscale()
    'log'
    """
    roofs = as_list(rooflines, Roofline)
    named = checked_jobs(jobs or {})
    points = {label: [position(label, job, roof) for roof in roofs] for label, job in named.items()}
    ax = axes_for(ax)
    ridges = [roof.ridge for roof in roofs]
    low, high = intensity_range([row[0][0] for row in points.values()], ridges)
    rates = [roof.attainable(low) for roof in roofs]
    rates += [y for row in points.values() for _, y in row]
    log_axes(ax, (low, high), min(rates), max(roof.peak for roof in roofs))
    names, shared = short_names([roof.name for roof in roofs])
    if shared:
        ax.set_ylabel(ax.get_ylabel().replace("attainable", f"attainable, {shared}"))
    for label, row in points.items():
        guide = {"color": PALETTE["muted"], "lw": 0.8, "ls": ":", "zorder": 1.5}
        ax.axvline(row[0][0], gid=f"guide:{label}", **guide)
    margin = []
    for i, (roof, name) in enumerate(zip(roofs, names, strict=True)):
        look = look_of(i + 2)  # blue and orange stand for the bounds
        xs, ys = [low, roof.ridge, high], [roof.attainable(low), roof.peak, roof.peak]
        ax.plot(xs, ys, color=look["color"], ls=look["ls"], lw=1.6, gid=f"roof:{roof.name}")
        limits = {roof.limit(job) for job in named.values() if isinstance(job, Work)}
        if roof.vector and "vector" in limits:
            span = [roof.vector / roof.bandwidth, high]
            ax.plot(span, [roof.vector] * 2, color=look["color"], ls=(0, (1, 2)), lw=1)
        for label, row in points.items():
            (x, y), spot = row[i], {"color": look["color"], "ms": 4.5, "zorder": 5}
            ax.plot([x], [y], look["marker"], gid=f"job:{label}:{roof.name}", **spot)
        margin.append((roof.peak, name, look["color"]))
    name_at_margin(ax, margin)
    name_guides(ax, [(row[0][0], label) for label, row in points.items()])
    return ax


def fusion(
    roof: Roofline,
    before: Kernels | tuple[str, Kernels],
    after: Kernels | tuple[str, Kernels],
    *,
    steps: Jobs | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the effect of fusion: an arrow along the roof, labelled with the ratio of the traffic.

    Parameters
    ----------
    roof : Roofline
        The device.
    before, after : Work, sequence of Work, or (label, either)
        The same operations unfused and fused. FLOPs and bytes of a sequence are added up. The
        default labels are "before" and "after".
    steps : jobs
        Versions in between, drawn as markers.

    Raises
    ------
    BadType, BadValue
        Not kernels; nothing before or after.

    Examples
    --------
    >>> from roofline_helpers import chip, work
    >>> four = work.fusion_chain(65536, 4096)
    >>> fusion(chip("h100").roofline(), four, work.fuse(*four)).get_yscale()
    'log'
    """
    require(roof, Roofline)
    (name0, first), (name1, last) = labelled_work(before, "before"), labelled_work(after, "after")
    points = {name0: first, **checked_jobs(steps or {}), name1: last}
    spots = [position(label, job, roof) for label, job in points.items()]
    (x0, y0), (x1, y1) = spots[0], spots[-1]
    xs = [x for x, _ in spots]
    ends = min(xs) / 24, 20 * max(roof.ridge, *xs)  # at the left, room for the arrow's name
    ax = roofline(roof, points, intensity=ends, ax=ax)
    bend = y1 / roof.bandwidth  # where the slope reaches the height of the last point
    bent = min(x0, x1) * 1.001 < bend < max(x0, x1) * 0.999
    path = [(x0, y0), *([(bend, y1)] if bent else []), (x1, y1)]
    lifted = ax.transData + ScaledTranslation(-LIFT / 72, LIFT / 72, figure_of(ax).dpi_scale_trans)
    color = PALETTE["ink"]
    ax.plot(*zip(*path, strict=True), color=color, lw=1.6, transform=lifted, gid="arrow")
    head = {"arrowstyle": "-|>", "color": color, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", path[-1], path[-2], xycoords=lifted, textcoords=lifted, arrowprops=head)
    (xa, ya), (xb, yb) = path[:2]
    ratio = float(first.bytes) / float(last.bytes)
    text = f"bytes {'÷' if ratio >= 1 else '×'} {significant(max(ratio, 1 / ratio), 2)}"
    place_labels(ax, [(math.sqrt(xa * xb), math.sqrt(ya * yb), text)], shift=(-LIFT, LIFT))
    return ax


def hierarchical(roof: Roofline, jobs: Jobs, *, ax: Axes | None = None) -> Axes:
    """Draw one slope per memory level, and each kernel at its intensity at each level.

    A kernel has one rate, that of its lowest ceiling: its points are side by side, joined by a thin
    line. The filled one is on the slope that bounds the kernel; all are open if a compute unit
    does. A network is one more slope, at FLOPs per byte sent.

    Raises
    ------
    BadType, BadValue
        A job that is not a `Work` (a plain intensity belongs to one level only).

    Examples
    --------
    >>> from roofline_helpers import chip, work
    >>> roof = chip("v5e").roofline(levels=("hbm", "vmem"))
    >>> hierarchical(roof, {"matmul": work.matmul(512, 512, 512)}).get_xscale()
    'log'
    """
    require(roof, Roofline)
    named = checked_jobs(jobs)
    slopes, roof = roof.slopes, roof.without_floor()
    rows = []
    for label, job in named.items():
        if not isinstance(job, Work):
            raise BadType(f"{label}: a hierarchical roofline needs a Work, got {job!r}")
        _, y = position(label, job, roof)
        shared = [level for level in slopes if level in roof.times(job)]
        across = {level: float(job.intensity_at(level)) for level in shared}
        rows.append((label, across, y, roof.limit(job)))
    ax = axes_for(ax)
    xs = [x for _, across, _, _ in rows for x in across.values()]
    ridges = [roof.peak / bandwidth for bandwidth in slopes.values()]
    low, high = intensity_range(xs, ridges)
    rates = [min(slopes.values()) * max(low, min(ridges) / 30)]
    rates += [y for _, _, y, _ in rows]
    log_axes(ax, (low, high), min(rates), roof.peak)
    flat_ceiling(ax, "peak", min(ridges), high, roof.peak, "roof:compute")
    looks = {
        level: (PALETTE["levels"][min(i, 2)], MARKERS[i % 3]) for i, level in enumerate(roof.levels)
    }
    looks[NETWORK] = (PALETTE[NETWORK], "D")
    _draw_slopes(ax, roof.peak, low, slopes, looks)
    labels, order = [], list(slopes)
    for label, across, y, limit in rows:
        ends = [min(across.values()), max(across.values())]
        ax.plot(ends, [y, y], color=PALETTE["muted"], lw=0.9, zorder=3, gid=f"levels:{label}")
        for level in sorted(across, key=lambda at: (at == limit, -order.index(at))):
            x, (color, marker) = across[level], looks[level]
            made = dot(ax, x, y, f"job:{label}:{level}", hollow=level != limit, color=color)
            made.set(marker=marker, markersize=5.5 + 2.5 * order.index(level))
        labels.append((across.get(limit, ends[1]), y, label))
    handles = [
        Line2D([], [], color=color, marker=marker, ls="", label=_level_name(level))
        for level, (color, marker) in looks.items()
        if any(level in across for _, across, _, _ in rows)
    ]
    ax.legend(handles=handles, title="intensity at", loc="lower right")
    place_labels(ax, labels)
    return ax


def _level_name(level: str) -> str:
    return level if level == NETWORK else level.upper()


def _draw_slopes(
    ax: Axes, peak: float, low: float, slopes: Mapping[str, float], looks: Mapping[str, Any]
) -> None:
    fastest_first = sorted(slopes, key=lambda level: -slopes[level])
    rates = [slopes[level] for level in fastest_first]
    gaps = [*(fast / slow for fast, slow in itertools.pairwise(rates)), math.inf]
    for i, (level, bandwidth) in enumerate(zip(fastest_first, rates, strict=True)):
        color, _ = looks[level]
        ends = [low, peak / bandwidth]
        line = ceiling(ax, ends, [bandwidth * x for x in ends], "memory", f"roof:{level}")
        line.set(color=color, linestyle=LINES[list(slopes).index(level) % 4])
        below = i > 0 and gaps[i] >= gaps[i - 1]  # more room there
        text = f"{_level_name(level)} {si(bandwidth, 'B/s', digits=4)}"
        name_slope(ax, text, bandwidth, color, below=below)
