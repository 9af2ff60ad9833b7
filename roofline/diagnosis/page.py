"""An explanation as HTML: a piece of a notebook, or one page that needs no network.

The table holds every group of rows, so that it adds up to the call; the longest are open. The page
sorts it by any column. The pictures are those of `pictures`, as SVG.
"""

from __future__ import annotations

import importlib.util
from io import StringIO
from typing import TYPE_CHECKING

from roofline.diagnosis import display, pictures
from roofline_helpers.common.show import cell, render, si, template

if TYPE_CHECKING:
    from roofline.diagnosis.explanation import Explanation

SHOWN = 12
"""Rows that a table shows at once; the others are folded."""

ORDER = ("ms", "lost ms", "share", "roof ms", "limit", "line", "launches", "GB/s", "GFLOP/s")
"""Columns of the page's table, most important first; the kernel's name is the last."""


def html(why: Explanation, whole: bool) -> str:
    """Return an explanation as one page, or as a piece of HTML that brings its style along."""
    from markupsafe import Markup

    rows = [display.cells(why, row) for row in why.groups]
    rest = [display.cells(why, row) for row in display.residue(why)]
    columns = (*ORDER, "kernel")
    page = template("diagnosis/page.html", "roofline").render(
        why=why,
        whole=whole,
        display=display,
        cell=cell,
        rows=[*rows[:SHOWN], *rest],
        devices=[display.device_cells(device) for device in why.devices if len(why.devices) > 1],
        functions=display.functions(why) if len(why.groups) > display.MANY else [],
        more=rows[SHOWN:],
        columns=[name for name in columns if any(row[name] not in (None, "") for row in rows)],
        pictures=[(title, Markup(svg)) for title, svg in _pictures(why, whole)],
    )
    return str(page)


def _pictures(why: Explanation, whole: bool) -> list[tuple[str, str]]:
    """Return the pictures with their titles; a notebook gets the waterfall only."""
    if importlib.util.find_spec("matplotlib") is None or why.withheld:
        return []
    bars = why.waterfall
    largest = max(bars, key=lambda bar: bar.seconds)
    label = f"Waterfall of {len(bars)} steps that add up to {si(why.wall, 's')}; the largest is "
    label += f"{largest.name}, {si(largest.seconds, 's')}"
    steps = _svg(why, "waterfall", label, (4.6, 1.0 + 0.42 * len(bars)))
    drawn = [("From the roof to the clock", steps)]
    kernels = pictures.under_roofline(why) if whole else []
    if kernels:
        label = f"{len(kernels)} kernels where they were measured, under the roofline"
        drawn.append(("Kernels under the roofline", _svg(why, "roofline", label, (9, 5))))
    return drawn


def _svg(why: Explanation, kind: str, label: str, size: tuple[float, float]) -> str:
    from matplotlib import pyplot, rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": kind}):
        figure, axes = pyplot.subplots(figsize=size, layout="constrained")
        why.plot(axes, kind)
        if kind == "waterfall":  # room for the time beside the longest bar
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xlim(right=1.15 * axes.get_xlim()[1])
        written, nothing = StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", metadata=nothing, bbox_inches="tight")
        pyplot.close(figure)
    text = written.getvalue()
    named = render(
        '<svg class="{{ kind }}" role="img" aria-label="{{ label }}" ', kind=kind, label=label
    )
    return text[text.index("<svg ") :].replace("<svg ", named, 1)
