"""A report as HTML: a piece of a notebook, or one page that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from roofline_helpers.common.show import cell, template

Section: TypeAlias = tuple[str, str, Any]
"""A heading, the kind of what stands below it, and that; empty sections are left out.

"causes" are findings with their cost, "further" those from the fourth on, "facts" labels and texts,
"notes" texts, "grid" a head, rows of text and a line below, "rows" a dictionary of dictionaries in
`rows` and folded in `more`, with `columns` and the `name` of the first; "markup" is HTML.
"""


def page(
    title: str, answer: Sequence[str], sections: Sequence[Section], made: str, whole: bool
) -> str:
    """Return a report as a page of its own, or as a piece of HTML that brings its style along."""
    words = {"title": title, "answer": answer, "sections": sections, "made": made}
    return str(template("xla/page.html", "roofline").render(words, whole=whole, cell=cell))
