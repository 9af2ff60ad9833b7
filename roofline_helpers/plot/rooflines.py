"""Rooflines: one with kernels, several, an arrow of fusion, and one slope a memory level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from roofline_helpers._checks import BadType, BadValue, mapping, name_of, single
from roofline_helpers.plot.canvas import (
    axes_for,
    ceiling,
    dot,
    figure_of,
    intensity_range,
    log_axes,
)
from roofline_helpers.plot.inputs import (
    Job,
    Jobs,
    Kernels,
    labelled_work,
    level_positions,
    named_jobs,
    need,
    on_vector_only,
    position,
    positions,
    roofs_of,
    short_names,
)
from roofline_helpers.plot.labels import place, place_labels
from roofline_helpers.plot.names import (
    name_at_margin,
    name_ceiling,
    name_guides,
    name_region,
    name_slope,
)
from roofline_helpers.plot.style import (
    LINES,
    MARKERS,
    PALETTE,
    look_of,
    percent_text,
    rate_text,
    short_number,
)
from roofline_helpers.roofline import NETWORK, Roofline
from roofline_helpers.show import si, significant
from roofline_helpers.work import Work

LIFT = 8.0
"""Points of 1/72 inch between the roof and the arrow along it."""


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

    Examples
    --------
    >>> from roofline_helpers import chip, work
    >>> axes = roofline(chip("v6e").roofline(), {"matmul": work.matmul(600, 600, 600)})
    >>> axes.get_xlabel()
    'arithmetic intensity (FLOP/byte)'
    """
    need(roof, Roofline)
    points = positions(jobs, roof)
    measured = _measured(achieved, [name for name, _, _ in points])
    if vector is None:
        vector = roof.vector is not None and any(on_vector_only(job) for _, job, _ in points)
    if vector and roof.vector is None:
        raise BadValue(f"{roof.name} has no vector ceiling: make it with vector=")
    ax = axes_for(ax)
    low, high = intensity_range([x for _, _, (x, _) in points], [roof.ridge], intensity)
    rates = [roof.attainable(low), *measured.values(), *(y for _, _, (_, y) in points)]
    log_axes(ax, (low, high), min(rates), roof.peak, max(rates))
    if measured:
        unit = ax.get_ylabel().removeprefix("attainable (").removesuffix(")")
        ax.set_ylabel(f"attainable, achieved\n({unit}, % of roof)")
    _draw_roof(ax, roof, low, high, regions)
    if vector and roof.vector is not None and roof.vector < roof.peak:
        start = max(roof.vector / roof.bandwidth, low)
        line = ceiling(ax, [start, high], [roof.vector] * 2, "compute", "roof:vector")
        line.set(linestyle="--", linewidth=1.4)
        name_ceiling(ax, f"vector unit {rate_text(roof.vector)}", high, roof.vector, "compute")
    labels = _draw_ridge(ax, roof) if ridge and low < roof.ridge < high else []
    place_labels(ax, [*labels, *_draw_kernels(ax, points, measured)])
    return ax


def _measured(achieved: Mapping[str, float] | None, labels: Sequence[str]) -> dict[str, float]:
    rates = mapping("achieved", {} if achieved is None else achieved)
    return {
        name_of("job", label, labels): single(f"achieved {label}", rate)
        for label, rate in rates.items()
    }


def _draw_roof(ax: Axes, roof: Roofline, low: float, high: float, regions: bool) -> None:
    """Draw slope and peak from the lowest to the highest intensity, with names and regions."""
    knee = min(max(roof.ridge, low), high)
    if knee > low:
        ends = [roof.attainable(low), roof.attainable(knee)]
        ceiling(ax, [low, knee], ends, "memory", "roof:memory")
    if knee < high:
        ceiling(ax, [knee, high], [roof.peak, roof.peak], "compute", "roof:compute")
        name_ceiling(ax, f"peak {rate_text(roof.peak)}", high, roof.peak, "compute")
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
    """Mark the ridge; return its label."""
    down = [ax.get_ylim()[0], roof.peak]
    ax.plot([roof.ridge] * 2, down, color=PALETTE["ridge"], lw=0.8, ls=":", gid="ridge:line")
    ax.plot([roof.ridge], [roof.peak], "o", ms=6, mec=PALETTE["ridge"], mew=1.3,
            mfc=PALETTE["paper"], zorder=4, gid="ridge")  # fmt: skip
    return [(roof.ridge, roof.peak, f"ridge {short_number(roof.ridge)}")]


def _draw_kernels(
    ax: Axes, points: Sequence[tuple[str, Job, tuple[float, float]]], measured: dict[str, float]
) -> list[tuple[float, float, str]]:
    """Draw each kernel on the roof, and below it what was measured; return their labels."""
    labels = []
    for label, _, (x, y) in points:
        rate = measured.get(label)
        if rate is not None:
            ax.plot([x, x], [rate, y], color=PALETTE["muted"], lw=1, gid=f"gap:{label}")
            ax.plot(
                [x], [rate], "D", color=PALETTE["ink"], ms=5.5, zorder=5, gid=f"achieved:{label}"
            )
        dot(ax, x, y, f"job:{label}", hollow=rate is not None)
        if rate is None:
            labels.append((x, y, label))
        else:
            labels.append((x, rate, f"{label}, {percent_text(rate / y)} %"))
    return labels


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

    Examples
    --------
    >>> from roofline_helpers import chip
    >>> compare([chip("v5e").roofline(), chip("v6e").roofline()]).get_xscale()
    'log'
    """
    roofs = roofs_of(rooflines)
    named = named_jobs(jobs)
    points = [[position(label, job, roof) for roof in roofs] for label, job in named]
    ax = axes_for(ax)
    ridges = [roof.ridge for roof in roofs]
    low, high = intensity_range([row[0][0] for row in points], ridges)
    rates = [roof.attainable(low) for roof in roofs] + [y for row in points for _, y in row]
    top = max(roof.peak for roof in roofs)
    log_axes(ax, (low, high), min(rates), top)
    names, shared = short_names([roof.name for roof in roofs])
    if shared:
        ax.set_ylabel(ax.get_ylabel().replace("attainable", f"attainable, {shared}"))
    for (label, _), row in zip(named, points, strict=True):
        ax.axvline(row[0][0], color=PALETTE["muted"], lw=0.8, ls=":", zorder=1.5,
                   gid=f"guide:{label}")  # fmt: skip
    margin = []
    for i, (roof, name) in enumerate(zip(roofs, names, strict=True)):
        look = look_of(i)
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
    name_at_margin(ax, margin)
    name_guides(ax, [(row[0][0], label) for (label, _), row in zip(named, points, strict=True)])
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

    Examples
    --------
    >>> from roofline_helpers import chip, work
    >>> four = work.fusion_chain(65536, 4096)
    >>> fusion(chip("h100").roofline(), four, work.fuse(*four)).get_yscale()
    'log'
    """
    need(roof, Roofline)
    (name0, first), (name1, last) = labelled_work(before, "before"), labelled_work(after, "after")
    (x0, y0), (x1, y1) = (
        position(name, job, roof) for name, job in ((name0, first), (name1, last))
    )
    points = [(name0, first), *named_jobs(steps), (name1, last)]
    xs = [x for _, _, (x, _) in positions(points, roof)]
    low, high = intensity_range(xs, [roof.ridge])
    ax = roofline(roof, points, intensity=(min(low, min(xs) / 8), high), ax=ax)
    bend = y1 / roof.bandwidth  # where the slope reaches the height of the last point
    bent = min(x0, x1) * 1.001 < bend < max(x0, x1) * 0.999
    path = [(x0, y0), *([(bend, y1)] if bent else []), (x1, y1)]
    lift = ScaledTranslation(-LIFT / 72, LIFT / 72, figure_of(ax).dpi_scale_trans)
    lifted = ax.transData + lift
    color = PALETTE["ink"]
    ax.plot(*zip(*path, strict=True), color=color, lw=1.6, transform=lifted, gid="arrow")
    head = {"arrowstyle": "-|>", "color": color, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", path[-1], path[-2], xycoords=lifted, textcoords=lifted, arrowprops=head)
    (xa, ya), (xb, yb) = path[:2]
    ratio = float(first.bytes) / float(last.bytes)
    text = f"traffic {'÷' if ratio >= 1 else '×'} {significant(max(ratio, 1 / ratio), 2)}"
    place(ax, [(math.sqrt(xa * xb), math.sqrt(ya * yb), text)], shift=(-LIFT, LIFT))
    return ax


def hierarchical(roof: Roofline, jobs: Jobs, *, ax: Axes | None = None) -> Axes:
    """Draw one slope a memory level, and each kernel once a level at its intensity there.

    A kernel has one rate, what the lowest of its ceilings allows, and so its points are side by
    side, one at its intensity at each level that it has traffic for; a thin line joins them, and
    the legend says which marker is which level's. The filled one is on its level's slope, which
    stops the kernel; all are, where a compute ceiling does. If the roofline has a network, that is
    one more slope, at FLOPs per byte sent.

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
    need(roof, Roofline)
    named = named_jobs(jobs)
    for label, job in named:
        if not isinstance(job, Work):
            raise BadType(f"{label}: a hierarchical roofline needs a Work, got {job!r}")
    slopes = dict(roof.levels) | ({NETWORK: roof.network} if roof.network else {})
    rows = [(label, level_positions(label, job, roof, slopes)) for label, job in named]
    ax = axes_for(ax)
    xs = [x for _, (across, _, _) in rows for x in across.values()]
    ridges = [roof.peak / bandwidth for bandwidth in slopes.values()]
    low, high = intensity_range(xs, ridges)
    rates = [min(slopes.values()) * max(low, min(ridges) / 30)]
    rates += [y for _, (_, y, _) in rows]
    log_axes(ax, (low, high), min(rates), roof.peak)
    ceiling(ax, [min(ridges), high], [roof.peak, roof.peak], "compute", "roof:compute")
    name_ceiling(ax, f"peak {rate_text(roof.peak)}", high, roof.peak, "compute")
    looks = {
        level: (PALETTE[NETWORK], "D")
        if level == NETWORK
        else (PALETTE["levels"][min(i, 2)], MARKERS[i % 3])
        for i, level in enumerate(slopes)
    }
    _draw_slopes(ax, roof.peak, low, slopes, {level: color for level, (color, _) in looks.items()})
    labels, order = [], list(slopes)
    for label, (across, y, stopping) in rows:
        ends = [min(across.values()), max(across.values())]
        ax.plot(ends, [y, y], color=PALETTE["muted"], lw=0.9, zorder=3, gid=f"levels:{label}")
        for level in sorted(across, key=lambda at: (at in stopping, -order.index(at))):
            x, (color, marker) = across[level], looks[level]
            gid = f"job:{label}:{level}"
            made = dot(ax, x, y, gid, hollow=level not in stopping, color=color)
            made.set(marker=marker, markersize=5.5 + 2.5 * order.index(level))
        labels.append((min(across[level] for level in stopping), y, label))
    handles = [
        Line2D([], [], color=color, marker=marker, ls="", label=_level_name(level))
        for level, (color, marker) in looks.items()
        if any(level in across for _, (across, _, _) in rows)
    ]
    ax.legend(handles=handles, title="intensity at", loc="lower right")
    place_labels(ax, labels)
    return ax


def _level_name(level: str) -> str:
    """Return the name of a level as plots write it."""
    return level if level == NETWORK else level.upper()


def _draw_slopes(
    ax: Axes, peak: float, low: float, slopes: Mapping[str, float], colors: Mapping[str, str]
) -> None:
    """Draw and name one slope a level, its name on the side that has more room."""
    ordered = sorted(slopes, key=lambda level: -slopes[level])
    for i, level in enumerate(ordered):
        bandwidth = slopes[level]
        ends = [low, peak / bandwidth]
        line = ceiling(ax, ends, [bandwidth * x for x in ends], "memory", f"roof:{level}")
        line.set(color=colors[level], linestyle=LINES[list(slopes).index(level) % 4])
        faster = slopes[ordered[i - 1]] / bandwidth if i else math.inf
        slower = bandwidth / slopes[ordered[i + 1]] if i + 1 < len(ordered) else math.inf
        below = slower >= faster if i else False
        text = f"{_level_name(level)} {si(bandwidth, 'B/s', digits=4)}"
        name_slope(ax, text, bandwidth, colors[level], below=below)
