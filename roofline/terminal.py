"""The terminal: lines and tables as wide as it is, drawn by rich, and a status line."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 100
"""Columns of what is no terminal: a file, or another program."""

GAP = 2
"""Spaces between two columns."""

NAMED = 20
"""Characters of a text that stay in one line."""

OPTIONAL = (
    *("line", "lost ms", "cycles µs", "kernels", "launches", "HBM MB", "matrix MFLOP"),
    *("vector MFLOP", "read MB", "written MB", "GB/s", "GFLOP/s", "FLOP/byte"),
)
"""Columns that a narrow terminal may lack, the most important first."""


class Heading(str):
    """A line above what follows."""


class Grid(NamedTuple):
    """A table: all its columns but the first and the last hold numbers, unless not `right`."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: bool = True


def show(*parts: str | Grid, file: TextIO | None = None) -> None:
    """Print lines and tables to the terminal, or to a file."""
    from rich.console import Console

    class Printer(Console):
        def on_broken_pipe(self) -> None:  # rich's own ends the process with 1
            raise BrokenPipeError

    width = None if sys.stdout.isatty() else WIDE
    console = Printer(file=file, width=width, force_jupyter=False, highlight=False, markup=False)
    for part in parts:
        if isinstance(part, Heading):
            part = f"\n{part.upper()}"
        console.print(_drawn(part, console.width) if isinstance(part, Grid) else part)


def text_of(*parts: str | Grid) -> str:
    """Return what `show` prints as text."""
    written = io.StringIO()
    show(*parts, file=written)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def markdown(*parts: str | Grid) -> str:
    """Return what `show` prints as Markdown, for an issue or a forum: the first line is bold."""
    first, *others = parts
    lines = [f"**{_plain(str(first))}**"]
    for part in others:
        if not isinstance(part, Grid):
            head = f"\n### {part[:1].upper()}{part[1:]}\n"
            lines.append(head if isinstance(part, Heading) else _plain(part))
        elif any(part.head):
            sides = [":--", *(["--:"] if part.right else [":--"]) * (len(part.head) - 2), ":--"]
            rows = [part.head, sides, *(map(_plain, row) for row in part.rows)]
            lines += ["| " + " | ".join(row) + " |" for row in rows]
        else:
            for label, *told in part.rows:
                text = " ".join(map(_plain, told)).replace("\n", "  \n   ")
                lines.append(f"{label} {text}" if label[-1:] in ".-" else f"- {label}: {text}")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    # what Markdown would take for a sign of its own
    return re.sub(r"([\\`*_<|\[\]])", r"\\\1", text)


def _drawn(grid: Grid, room: int) -> Table:
    # columns find room in the order of what matters most
    from rich.table import Table
    from rich.text import Text

    least = [_least(column) for column in zip(grid.head, *grid.rows, strict=True)]
    columns = [at for at, name in enumerate(grid.head) if name not in OPTIONAL]
    for name in OPTIONAL:
        more = [*columns, *(at for at, head in enumerate(grid.head) if head == name)]
        if sum(least[at] + GAP for at in more) - GAP <= room:
            columns = sorted(more)
    drawn = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    drawn.show_header = any(grid.head)
    for at in columns:
        justify: Any = "right" if grid.right and 0 < at < len(grid.head) - 1 else "left"
        whole = all(len(row[at]) <= least[at] for row in grid.rows)
        drawn.add_column(grid.head[at], justify=justify, overflow="fold", no_wrap=whole)
    for row in grid.rows:
        drawn.add_row(*(Text(row[at]) for at in columns))
    return drawn


def _least(column: Sequence[str]) -> int:
    words = (word for cell in column for word in cell.split())
    longest = max(map(len, words), default=0)
    return max(min(NAMED, max(map(len, column))), longest)


@contextlib.contextmanager
def progress(shown: bool = True) -> Iterator[Callable[[str], None]]:
    """Return a function that shows a status line with the elapsed time on a terminal.

    The line is written over, and gone at the end. Files, pipes and notebooks get nothing.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    # a second way to the terminal: the compiler's C++ code is silenced on the first
    with open(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding) as terminal:
        line = Progress(
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(file=terminal, markup=False, highlight=False, force_jupyter=False),
            refresh_per_second=1,  # a thread that redraws more often would slow what is measured
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        with line:
            task = line.add_task("")
            yield lambda text: line.update(task, description=text, refresh=True)


# --- What keeps the output whole ------------------------------------------------------------------

SPELLED = dict(zip("µ×·→–−…²³≥≤≈’", "u x * -> - - ... ^2 ^3 >= <= ~ '".split(), strict=True))
"""How a terminal of ASCII gets what it can't show; "?" is the rest."""


def spell_out() -> bool:
    """Have a terminal that can't show "µ" show "u"; return whether it can't."""
    lacking = False
    for stream in (sys.stdout, sys.stderr):
        try:
            "".join(SPELLED).encode(getattr(stream, "encoding", None) or "utf-8")
        except UnicodeEncodeError:
            lacking = True
            codecs.register_error("spelled", _spelled)
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="spelled")
    return lacking


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return "".join(SPELLED.get(letter, "?") for letter in letters), error.end


@contextlib.contextmanager
def to_stderr() -> Iterator[None]:
    """Send there whatever Python, C++ or a child process prints meanwhile."""
    with contextlib.ExitStack() as stack:
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # one of the two isn't there
            saved = os.dup(1)
            stack.callback(os.close, saved)
            os.dup2(2, 1)
            stack.callback(os.dup2, saved, 1)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


PATIENCE = 60.0
"""Seconds after which a compiler that still works is spoken of, and after twice as many again."""

LIMIT: ContextVar[float | None] = ContextVar("LIMIT", default=None)
"""Seconds after which the command ends, with its compiler."""


@contextlib.contextmanager
def slow(doing: str) -> Iterator[None]:
    """Say that a step which nothing can interrupt still runs; end the process at the limit."""
    limit, done, copy = LIMIT.get(), threading.Event(), -1
    with contextlib.suppress(OSError, ValueError):
        if sys.__stderr__ and sys.stderr is sys.__stderr__:  # C++ code is silenced on that way
            copy = os.dup(sys.__stderr__.fileno())

    def say(text: str) -> None:
        if copy < 0:
            print(text, file=sys.stderr)
        else:
            os.write(copy, f"{text}\n".encode(errors="replace"))

    def watch() -> None:
        begun, next_word = monotonic(), PATIENCE
        while True:
            due = min(next_word, limit or next_word)
            if done.wait(max(begun + due - monotonic(), 0.0)):
                return
            if limit is not None and due == limit:
                say(f"{doing}: ended after {limit:g} s, the limit")
                os._exit(1)
            if not sys.stderr.isatty():  # there the status line has the time
                say(f"{doing}: {due:.0f} s so far; the command's --limit S would end it")
            next_word *= 2

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        if copy >= 0:
            os.close(copy)
