"""An explanation as HTML: a piece of a notebook, or one page that needs no network.

The answer in words comes first, as in `display`. The table holds every group of rows, so that it
adds up to the call; the longest are open. The page sorts it by any column.
"""

from __future__ import annotations

import importlib.util
import re
from io import StringIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from roofline.diagnosis import display, pictures
from roofline.diagnosis.answer import answer
from roofline.xla.display import FIRST, FURTHER, LONGEST, numbered, sentence
from roofline.xla.page import Section, page
from roofline_helpers.common.show import many, render, si

if TYPE_CHECKING:
    from markupsafe import Markup

    from roofline.diagnosis.explanation import Explanation

SHOWN = 12
"""Rows that a table shows at once; the others are folded."""

ORDER = ("ms", "lost ms", "share", "roof ms", "limit", "launches", "GB/s", "GFLOP/s")
"""Columns of the page's table, most important first; line and kernel stand below what it is."""


NO_PICTURE = (
    "Without a picture of the roofline: it needs matplotlib (pip install matplotlib), and kernels "
    "with FLOPs and bytes."
)


def html(why: Explanation, whole: bool) -> str:
    """Return an explanation as one page, or as a piece of HTML that brings its style along."""
    rows = [display.cells(why, row) for row in why.groups]
    rest = [display.cells(why, row) for row in display.residue(why)]
    columns = [name for name in ORDER if any(row[name] not in (None, "") for row in rows)]
    roofline = _roofline(why) if whole and not why.withheld else ""
    causes, others = (
        [(f, display.cost(why, f)) for _, f in some] for some in numbered(why.findings)
    )
    sections: list[Section] = [
        (sentence(display.heading(why))[:-1], "causes", causes[:FIRST]),
        ("From the roof to the clock", "markup", "" if why.withheld else _steps(why)),
        ("What was measured", "facts", display.facts(why)),
        ("Caveats", "notes", display.caveats(why)),
        ("By function", "rows", _rows(display.functions(why), "function")),
        ("By device", "rows", _rows(display.devices(why), "device")),
        (
            "By kernel",
            "rows",
            {
                "rows": [*rows[:SHOWN], *rest],
                "more": rows[SHOWN:],
                "columns": columns,
                "name": "what",
            },
        ),
        (sentence(FURTHER)[:-1], "further", causes[FIRST:]),
        (sentence(LONGEST)[:-1], "causes", others),
        ("Kernels under the roofline", "markup", roofline),
    ]
    versions = (f"{name} {number}" for name, number in why.software.items())
    made = ", ".join(filter(None, (why.date, *versions)))
    if whole and not roofline and not why.withheld:
        made = f"{NO_PICTURE} {made}"
    return page(display.title(why), answer(why), sections, made, whole)


def _rows(listed: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """Return what the page shows of rows: their columns that aren't empty; the line has no own."""
    if not listed:
        return None
    columns = [column for column in listed[0] if column not in (name, "line")]
    columns = [column for column in columns if any(row[column] is not None for row in listed)]
    return {"rows": listed, "columns": columns, "name": name}


STEPS = """<table class="steps"><tbody>
{%- for name, seconds, kind, left, wide in steps %}<tr><th scope="row">{{ name }}</th><td><svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true"><rect class="{{ kind }}" x="{{ "%.2f" | format(left) }}" width="{{ "%.2f" | format([wide, 0.3] | max) }}" height="1"/></svg></td><td class="number">{{ si(seconds, "s") }}</td></tr>{% endfor -%}
</tbody></table>"""  # noqa: E501
"""The waterfall: names, bars and seconds."""


def _steps(why: Explanation) -> Markup:
    """Return the waterfall as a table whose bars are drawn, 0 to 100."""
    steps = [(bar.name, bar.seconds) for bar in why.waterfall]
    ends = [0.0, *accumulate(seconds for _, seconds in steps)]
    unit = max(ends) / 100
    drawn = []
    for (name, seconds), begun in zip(steps, ends, strict=False):
        kind = pictures.KINDS.get(name, "lost" if seconds > 0 else "gained")
        left = max(begun + min(seconds, 0.0), 0.0)
        drawn.append((name, seconds, kind, left / unit, abs(seconds) / unit))
    drawn.append(("the call", why.wall, "call", 0.0, why.wall / unit))
    return render(STEPS, steps=drawn, si=si)


def _roofline(why: Explanation) -> str:
    """Return the kernels under the roofline as SVG; empty if there are none, or no matplotlib."""
    kernels = pictures.under_roofline(why)
    if importlib.util.find_spec("matplotlib") is None or not kernels:
        return ""
    from markupsafe import Markup
    from matplotlib import pyplot, rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "roofline"}):
        figure, axes = pyplot.subplots(figsize=(5.6, 4.4), layout="constrained")
        why.plot(axes, "roofline")
        for text in axes.texts:  # a halo would be drawn as the outline of every letter
            text.set_path_effects([])
        written, nothing = StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", metadata=nothing, bbox_inches="tight")
        pyplot.close(figure)
    svg = re.sub(r'<g id="[^"]*"', "<g", written.getvalue())  # some names are there twice
    label = f"{many(len(kernels), 'kernel')} under the roofline, as measured"
    named = f'<svg class="roofline" role="img" aria-label="{label}" '
    return Markup(svg[svg.index("<svg ") :].replace("<svg ", named, 1))
