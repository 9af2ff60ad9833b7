"""Tables of prose pages, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """Return a table; its last columns, as many as `numbers`, are right-aligned."""
    texts = len(header) - numbers
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * texts + "---:|" * numbers]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
