"""Tables and lines on the terminal, drawn by rich."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

WIDE = 200
"""Columns of what is no terminal: a file, or another program."""


def console(*, stderr: bool = False) -> Console:
    """Return where to print: as wide as the terminal."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=None if terminal else WIDE, highlight=False, markup=False)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: bool = True) -> Table:
    """Return a table; all columns but the first and the last hold numbers, unless not `right`."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(head):
        inner = right and 0 < number < len(head) - 1
        longest = max(map(len, name.split()), default=0)
        justify: JustifyMethod = "right" if inner else "left"
        drawn.add_column(name, justify=justify, overflow="fold", min_width=longest)
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn


def pairs(rows: Sequence[tuple[str, str]]) -> Table:
    """Return a list of names, each with its text."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, text in rows:
        drawn.add_row(Text(name), Text(text))
    return drawn


def as_json(data: Any) -> None:
    """Print a result for programs."""
    print(json.dumps(data, indent=1, ensure_ascii=False))
