"""Names in fixed places: of ceilings, slopes, regions, guides, bars, and of lines at the margin.

Most are set when the figure is drawn: only then is it known what has room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation

from roofline_helpers.plot.canvas import (
    AtDraw,
    again,
    figure_of,
    has_marker,
    lay_out,
    loose_line,
)
from roofline_helpers.plot.geometry import Pixels, corners_of, meet, spread
from roofline_helpers.plot.style import PALETTE, SMALL, halo


def name_ceiling(ax: Axes, text: str, x: float, y: float, part: str) -> None:
    """Write above the right end of a ceiling."""
    ax.annotate(text, (x, y), (-3, 4), textcoords="offset points", ha="right", va="bottom",
                fontsize=SMALL, color=PALETTE[part], path_effects=halo(),
                gid="ceiling")  # fmt: skip


def name_slope(ax: Axes, text: str, bandwidth: float, color: str, *, below: bool = False) -> None:
    """Write along the line ``bandwidth · I`` where it can be seen; not at all if it's too short."""
    made = ax.annotate(text, (1, 1), (0, 0), textcoords="offset points", ha="center", va="center",
                       fontsize=SMALL, color=color, path_effects=halo(), gid="slope")  # fmt: skip
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
        point = figure_of(ax).dpi / 72
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

    AtDraw(place, -5).join(ax)


def _spots(ax: Axes) -> tuple[Pixels, Pixels]:
    """Return where markers and arrows are, in pixels, and what covering each of them costs."""
    lines = [line for line in ax.lines if line.get_gid() == "arrow" or has_marker(line)]
    spots = [line.get_transform().transform(line.get_xydata()) for line in lines]
    worth = [
        np.full(len(each), 1.0 if has_marker(line) else 50.0)
        for line, each in zip(lines, spots, strict=True)
    ]
    return np.vstack([np.empty((0, 2)), *spots]), np.hstack([np.empty(0), *worth])


def name_region(ax: Axes, text: str, left: float, right: float, part: str) -> None:
    """Name a region at its foot; over two lines where it is too narrow for one."""
    made = ax.annotate(text, (math.sqrt(left * right), 0), (0, 5), fontsize=SMALL,
                       xycoords=ax.get_xaxis_transform(), textcoords="offset points", ha="center",
                       va="bottom", color=PALETTE[part], style="italic", gid="region")  # fmt: skip
    made.set_in_layout(False)

    def place(renderer: Any) -> None:
        a, b = ax.transData.transform([(left, ax.get_ylim()[0]), (right, ax.get_ylim()[0])])[:, 0]
        made.set(text=text, visible=True)
        if Text.get_window_extent(made, renderer).width > b - a - 6:
            made.set_text(text.replace("-", "-\n"))
        made.set_visible(Text.get_window_extent(made, renderer).width <= b - a - 2)

    AtDraw(place, -6).join(ax)


def name_guides(ax: Axes, entries: list[tuple[float, str]]) -> None:
    """Name vertical guides above the Axes, slanted, or upright where that is too narrow."""
    if not entries:
        return
    top = ax.secondary_xaxis("top")
    top.spines[:].set_visible(False)
    top.tick_params(which="both", length=0)
    top.tick_params(pad=12)
    names = [name for _, name in entries]
    paths = [loose_line(ax, PALETTE["muted"], lw=0.7) for _ in entries]
    probe = Text(0, 0, "Q", fontsize=SMALL, figure=figure_of(ax))
    slants = [0]

    def place(renderer: Any) -> None:
        point = figure_of(ax).dpi / 72
        height = probe.get_window_extent(renderer).height * 1.1
        wanted = np.array([ax.transData.transform((x, 1))[0] for x, _ in entries])
        slant = 40 if len(entries) * height / math.sin(math.radians(40)) < ax.bbox.width else 90
        pitch = height / math.sin(math.radians(slant))
        xs = spread(wanted, pitch, ax.bbox.x0 + height / 2, ax.bbox.x1 - height / 2)
        ticks = ax.transData.inverted().transform([(x, ax.bbox.y1) for x in xs])[:, 0]
        top.set_ticks(
            list(ticks),
            names,
            rotation=slant,
            ha="left",
            va="center" if slant == 90 else "bottom",
            rotation_mode="anchor",
            fontsize=SMALL,
        )
        for path, start, end in zip(paths, wanted, xs, strict=True):
            y = ax.bbox.y1
            path.set_data([start, start, end], [y, y + 2 * point, y + 10 * point])
        if slants[0] != slant:
            slants[0] = slant
            again(ax)

    AtDraw(place, -8).join(ax)


def name_bars(ax: Axes, pieces: list[tuple[int, float, float, str]], height: float) -> None:
    """Write (row, start, end, name) into the bars that have room, upright where across has none."""
    back = {"boxstyle": "round,pad=0.15", "fc": PALETTE["paper"], "ec": "none", "alpha": 0.85}
    made = []
    for row, start, end, name in pieces:
        x = (start + end) / 2
        text = ax.text(x, row, name, ha="center", va="center", fontsize=9, bbox=back, gid="piece")
        made.append(text)

    def place(renderer: Any) -> None:
        fits = []
        for text, (_, start, end, _) in zip(made, pieces, strict=True):
            ends = ax.transData.transform([(start, 0), (end, height)])
            room = abs(ends[1] - ends[0]) - 2 * figure_of(ax).dpi / 72
            text.set_visible(True)
            for angle in (0, 90):
                text.set_rotation(angle)
                fit = bool((Text.get_window_extent(text, renderer).size < room).all())
                if fit:
                    break
            fits.append(fit)
        for text, fit in zip(made, fits, strict=True):
            text.set_visible(fit and sum(fits) > len(fits) / 2)

    AtDraw(place, -5).join(ax)


def name_at_margin(ax: Axes, entries: Sequence[tuple[float, str, Mapping[str, Any]]]) -> None:
    """Name lines at the right of the Axes: (y where the line ends, name, look).

    A thin leader goes from a line's end to its name. It has no marker: that would look like one
    more point, past the last.
    """
    made = []
    for _, name, look in entries:
        text = ax.annotate(name, (1, 0.5), (18, 0), xycoords="axes fraction", fontsize=SMALL,
                           textcoords="offset points", va="center", annotation_clip=False,
                           gid="margin")  # fmt: skip
        path = loose_line(ax, look["color"], lw=1)
        made.append((text, path))

    def place(renderer: Any) -> None:
        point = figure_of(ax).dpi / 72
        ends = np.array([ax.transData.transform((1, y))[1] for y, _, _ in entries])
        height = max(text.get_window_extent(renderer).height for text, _ in made)
        ys = spread(ends, height * 1.02, ax.bbox.y0 + height / 2, ax.bbox.y1 - height / 2)
        right = ax.bbox.x1
        for (text, path), end, y in zip(made, ends, ys, strict=True):
            text.set_position((18, (y - (ax.bbox.y0 + ax.bbox.y1) / 2) / point))
            path.set_data([right, right + 3 * point, right + 14 * point], [end, end, y])

    AtDraw(place, -5).join(ax)


def legend_below(ax: Axes, handles: list[Patch]) -> None:
    """Put a legend below the axis label, with as many columns as the figure is wide."""
    figure = figure_of(ax)
    below = ax.transAxes + ScaledTranslation(0, -36 / 72, figure.dpi_scale_trans)
    for columns in range(min(len(handles), 6), 0, -1):
        legend = ax.legend(handles=handles, ncols=columns, loc="upper center", frameon=False,
                           bbox_to_anchor=(0.5, 0), bbox_transform=below, borderaxespad=0,
                           handlelength=1.4, columnspacing=1.2)  # fmt: skip
        legend.set_in_layout(False)
        lay_out(ax)
        width = legend.get_window_extent().width
        if width <= ax.bbox.x1 or columns == 1:
            break
    if width > ax.bbox.width:  # let it reach to the left, below the tick labels
        legend.set_loc("upper right")
        legend.set_bbox_to_anchor((1, 0), below)
    legend.set_in_layout(True)
