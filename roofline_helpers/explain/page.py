"""An explanation as HTML: a piece of a notebook, or one page that needs no network.

The table sorts by any column and folds what is short; the waterfall, the timeline and the roofline
are drawn as SVG. Without JavaScript all of it is there, in the order of the seconds.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from roofline_helpers.explain import display, drawing
from roofline_helpers.explain.rows import Row
from roofline_helpers.show import cell, si

if TYPE_CHECKING:
    from roofline_helpers.explain.explanation import Explanation

SHOWN = 12
"""Rows that a table shows at once; the others are folded."""


def fragment(why: Explanation) -> str:
    """Return an explanation as a piece of HTML, for notebooks: it brings its style along."""
    return (
        f'<div class="explained"><style>{_asset("explained.css")}</style>{_body(why, False)}</div>'
    )


def whole(why: Explanation) -> str:
    """Return an explanation as one page that needs no network."""
    title = html.escape(display.title(why))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_asset('explained.css')}</style></head>"
        f'<body><main class="explained whole">{_body(why, True)}</main>'
        f"<script>{_asset('explained.js')}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("roofline_helpers").joinpath("assets", name).read_text("utf-8")


def _body(why: Explanation, page: bool) -> str:
    heading = "h1" if page else "p"
    steps = drawing.waterfall(why) + drawing.waterfall(why, slim=True)
    parts = [
        f'<{heading} class="title">{html.escape(display.title(why))}</{heading}>',
        f'<p class="headline">{html.escape(display.headline(why))}</p>',
        f'<p class="headline">{html.escape(display.lead(why))}</p>',
        _facts(why),
        _part("From the roof to the clock", steps, page),
        _findings(why, page),
        _part("Where the time goes", _table(why), page),
    ]
    if page and why.timeline:
        parts.append(_part("One call", drawing.timeline(why), page))
    if page:
        drawn = drawing.roofline(why)
        parts.append(_part("Kernels under the roofline", drawn, page) if drawn else "")
    parts.append(_notes(why))
    return "".join(parts)


def _part(title: str, content: str, page: bool) -> str:
    heading = "h2" if page else "p"
    named = f'<{heading} class="part">{title}</{heading}>'
    return f"<section>{named}{content}</section>"


def _facts(why: Explanation) -> str:
    known = display.facts(why)
    if not known:
        return ""
    items = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in known
    )
    return f"<dl>{items}</dl>"


# --- findings -------------------------------------------------------------------------------------


def _findings(why: Explanation, page: bool) -> str:
    if not why.findings:
        none = "<p>No cause on the list costs as much as 1 % of the call.</p>"
        return _part("Causes", none, page)
    items = []
    for each in why.findings:
        where = f" <code>{html.escape(each.source)}</code>" if each.source else ""
        evidence = "; ".join(filter(None, (each.evidence, display.cost(each))))
        items.append(
            f"<li><strong>{html.escape(each.title)}</strong>{where}"
            f'<p class="evidence">{html.escape(evidence)}</p>'
            f'<p class="advice">Try: {html.escape(each.advice)}</p></li>'
        )
    title = "Causes, the largest loss first"
    return _part(title, f'<ol class="causes">{"".join(items)}</ol>', page)


# --- the table ------------------------------------------------------------------------------------


def _table(why: Explanation) -> str:
    rows = display.ordered(why)
    columns = _columns(why, rows)
    head = "".join(
        f'<th scope="col" class="{_kind(name)}">{html.escape(name)}</th>' for name in columns
    )
    shown = [*rows[:SHOWN], *display.residue(why)]
    first = "".join(_row(why, row, columns) for row in shown)
    tables = f'<table class="rows"><thead><tr>{head}</tr></thead><tbody>{first}</tbody>'
    if rows[SHOWN:]:
        rest = "".join(_row(why, row, columns) for row in rows[SHOWN:])
        seconds = si(sum(row.seconds for row in rows[SHOWN:]), "s")
        folded = f"<summary>{len(rows) - SHOWN} more rows, {seconds} together</summary>"
        more = f'<table class="rows"><thead><tr>{head}</tr></thead><tbody>{rest}</tbody></table>'
        return f'<div class="scrolls">{tables}</table></div><details>{folded}{more}</details>'
    return f'<div class="scrolls">{tables}</table></div>'


def _columns(why: Explanation, rows: Sequence[Row]) -> list[str]:
    """Return the columns that say something."""
    cells = [display.cells(why, row) for row in rows]
    names = list(cells[0]) if cells else []
    return [name for name in names if any(each[name] not in (None, "") for each in cells)]


_WORDS = ("what", "limit", "line", "kernel")


def _kind(column: str) -> str:
    return "word" if column in _WORDS else "number"


def _row(why: Explanation, row: Row, columns: Sequence[str]) -> str:
    values = display.cells(why, row)
    tip = html.escape(_tip(row), quote=True)
    first, *rest = columns
    cells = "".join(
        f'<td class="{_kind(name)}" data-value="{_value(values[name])}">'
        f"{html.escape(_shown(values[name]))}</td>"
        for name in rest
    )
    name = html.escape(str(values[first]))
    return f'<tr class="{row.kind}" title="{tip}"><th scope="row">{name}</th>{cells}</tr>'


def _shown(value: Any) -> str:
    return "" if value is None else cell(value)


def _value(value: Any) -> str:
    text = "" if value is None else str(value)
    return html.escape(text.removesuffix(" %"), quote=True)


def _tip(row: Row) -> str:
    """Return what else is known of a row."""
    inside = ", ".join(f"{n} {op}" if n > 1 else op for op, n in row.operations.items())
    facts = [
        f"spread {si(row.low, 's')} to {si(row.high, 's')}" if row.busy else "",
        f"{si(row.read, 'B')} read, {si(row.written, 'B')} written" if row.bytes else "",
        f"inside: {inside}" if inside else "",
        f"scope {row.scope}" if row.scope else "",
        row.label,
        row.details,
    ]
    return "\n".join(fact for fact in facts if fact)


def _notes(why: Explanation) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in why.software.items())
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in why.notes)
    listed = f"<ul>{notes}</ul>" if notes else ""
    return (
        f'{listed}<p class="made">{html.escape(", ".join(filter(None, [why.date, versions])))}</p>'
    )
