"""An explanation as HTML: a piece of a notebook, or one page that needs no network.

The answer in words comes first, as in `display`. The table holds every group of rows, so that it
adds up to the call; the longest are open. The page sorts it by any column.
"""

from __future__ import annotations

import importlib.util
import re
from io import StringIO
from itertools import accumulate
from typing import TYPE_CHECKING

from roofline.diagnosis import display, pictures
from roofline.diagnosis.answer import answer
from roofline_helpers.common.show import cell, si, template

if TYPE_CHECKING:
    from roofline.diagnosis.explanation import Explanation

SHOWN = 12
"""Rows that a table shows at once; the others are folded."""

ORDER = ("ms", "lost ms", "share", "roof ms", "limit", "launches", "GB/s", "GFLOP/s")
"""Columns of the page's table, most important first; line and kernel stand below what it is."""


def html(why: Explanation, whole: bool) -> str:
    """Return an explanation as one page, or as a piece of HTML that brings its style along."""
    rows = [display.cells(why, row) for row in why.groups]
    rest = [display.cells(why, row) for row in display.residue(why)]
    page = template("diagnosis/page.html", "roofline").render(
        why=why,
        whole=whole,
        display=display,
        answer=answer(why),
        cell=cell,
        si=si,
        rows=[*rows[:SHOWN], *rest],
        devices=[display.device_cells(device) for device in why.devices if len(why.devices) > 1],
        functions=display.functions(why) if len(why.groups) > display.MANY else [],
        more=rows[SHOWN:],
        columns=[name for name in ORDER if any(row[name] not in (None, "") for row in rows)],
        steps=[] if why.withheld else _steps(why),
        roofline=_roofline(why) if whole and not why.withheld else "",
    )
    return str(page)


def _steps(why: Explanation) -> list[tuple[str, float, str, float, float]]:
    """Return the waterfall's bars: name, seconds, kind, and where it is drawn, 0 to 100."""
    steps = [(bar.name, bar.seconds) for bar in why.waterfall]
    ends = [0.0, *accumulate(seconds for _, seconds in steps)]
    unit = max(ends) / 100
    drawn = []
    for (name, seconds), begun in zip(steps, ends, strict=False):
        kind = pictures.KINDS.get(name, "lost" if seconds > 0 else "gained")
        left = max(begun + min(seconds, 0.0), 0.0)
        drawn.append((name, seconds, kind, left / unit, abs(seconds) / unit))
    return [*drawn, ("the call", why.wall, "call", 0.0, why.wall / unit)]


def _roofline(why: Explanation) -> str:
    """Return the kernels under the roofline as SVG; empty if there are none, or no matplotlib."""
    kernels = pictures.under_roofline(why)
    if importlib.util.find_spec("matplotlib") is None or not kernels:
        return ""
    from markupsafe import Markup
    from matplotlib import pyplot, rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "roofline"}):
        figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
        why.plot(axes, "roofline")
        for text in axes.texts:  # a halo would be drawn as the outline of every letter
            text.set_path_effects([])
        written, nothing = StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", metadata=nothing, bbox_inches="tight")
        pyplot.close(figure)
    svg = re.sub(r'<g id="[^"]*"', "<g", written.getvalue())  # some names are there twice
    label = f"{len(kernels)} kernels where they were measured, under the roofline"
    named = f'<svg class="roofline" role="img" aria-label="{label}" '
    return Markup(svg[svg.index("<svg ") :].replace("<svg ", named, 1))
