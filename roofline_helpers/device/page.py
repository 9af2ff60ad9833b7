"""An explanation as HTML: a piece of a notebook, or one page that needs no network.

The table holds every group of rows, so that it adds up to the call; the longest are open. The page
sorts it by any column. The pictures are those of `pictures`, as SVG.
"""

from __future__ import annotations

import importlib.util
from html import escape
from importlib import resources
from io import StringIO
from typing import TYPE_CHECKING, Any

from roofline_helpers.common.checks import needed
from roofline_helpers.common.show import cell, si
from roofline_helpers.device import display, pictures
from roofline_helpers.device.rows import TimedRow

if TYPE_CHECKING:
    from roofline_helpers.device.explanation import Explanation

SHOWN = 12
"""Rows that a table shows at once; the others are folded."""

ORDER = ("ms", "lost ms", "share", "roof ms", "limit", "line", "launches", "GB/s", "GFLOP/s")
"""Columns of the page's table, what matters most first; the kernel's name is the last."""

WORDS = ("limit", "line", "kernel")


def html(why: Explanation, whole: bool) -> str:
    """Return an explanation as one page, or as a piece of HTML that brings its style along."""
    from jinja2 import Environment
    from markupsafe import Markup

    if whole:
        needed("a page with pictures", "matplotlib")
    listed = [*why.groups[:SHOWN], *display.residue(why)]
    more = why.groups[SHOWN:]
    columns = _columns(why)
    versions = [f"{name} {number}" for name, number in why.software.items()]
    drawn = [(title, Markup(svg)) for title, svg in _pictures(why, whole)]
    template = Environment(autoescape=True).from_string(_asset("explained.html"))
    page: str = template.render(
        whole=whole,
        title=display.title(why),
        headlines=[display.headline(why), display.lead(why)],
        facts=display.facts(why),
        pictures=drawn,
        causes=[
            {
                "title": each.title,
                "source": each.source,
                "evidence": "; ".join(filter(None, (each.evidence, display.cost(each)))),
                "advice": each.advice,
            }
            for each in why.findings
        ],
        columns=["what", *columns],
        kinds={name: _kind(name) for name in ("what", *columns)},
        rows=[_row(why, row, columns) for row in listed],
        more=[_row(why, row, columns) for row in more],
        folded=f"{len(more)} more rows, {si(sum(row.seconds for row in more), 's')} together",
        notes=why.notes,
        made=", ".join(filter(None, [why.date, *versions])),
        style=Markup(_asset("explained.css")),
        script=Markup(_asset("explained.js")),
    )
    return page


def _asset(name: str) -> str:
    return resources.files("roofline_helpers").joinpath("device", name).read_text("utf-8")


def _columns(why: Explanation) -> list[str]:
    """Return the columns that say something."""
    cells = [display.cells(why, row) for row in why.groups]
    return [
        name for name in (*ORDER, "kernel") if any(each[name] not in (None, "") for each in cells)
    ]


def _kind(column: str) -> str:
    return "word" if column in ("what", *WORDS) else "number"


def _row(why: Explanation, row: TimedRow, columns: list[str]) -> dict[str, Any]:
    values = display.cells(why, row)
    cells = [
        {
            "kind": _kind(name),
            "value": "" if values[name] is None else str(values[name]).removesuffix("%"),
            "text": "" if values[name] is None else cell(values[name]),
        }
        for name in columns
    ]
    return {"kind": row.kind, "what": values["what"], "cells": cells}


# --- pictures -------------------------------------------------------------------------------------


def _pictures(why: Explanation, whole: bool) -> list[tuple[str, str]]:
    """Return the pictures with their titles: of a piece for a notebook, the waterfall alone."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    bars = why.waterfall
    largest = max(bars, key=lambda bar: bar.seconds)
    label = f"Waterfall of {len(bars)} steps that add up to {si(why.wall, 's')}; the largest is "
    label += f"{largest.name}, {si(largest.seconds, 's')}"
    tall = 1.0 + 0.42 * len(bars)
    steps = "".join(
        _svg(why, "waterfall", label, kind, (width, tall))
        for kind, width in (("narrow", 7.5), ("slim", 4.2))
    )
    drawn = [("From the roof to the clock", steps)]
    if whole and pictures.placed(why):
        label = f"{len(pictures.placed(why))} kernels where they were measured, under the roofline"
        named = "Kernels under the roofline"
        drawn.append((named, _svg(why, "roofline", label, "wide", (9, 5))))
    return drawn


def _svg(why: Explanation, kind: str, label: str, sort: str, size: tuple[float, float]) -> str:
    from matplotlib import pyplot, rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": kind + sort}):
        figure, axes = pyplot.subplots(figsize=size, layout="constrained")
        pictures.draw(why, kind, axes)
        if kind == "waterfall":  # room for the time beside the longest bar
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xlim(right=1.15 * axes.get_xlim()[1])
        written, nothing = StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(written, format="svg", metadata=nothing, bbox_inches="tight")
        pyplot.close(figure)
    text = written.getvalue()
    named = f'<svg class="{sort}" role="img" aria-label="{escape(label, quote=True)}" '
    return text[text.index("<svg ") :].replace("<svg ", named, 1)
