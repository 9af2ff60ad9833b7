"""Numbers and tables for people: this is where SI base units become TFLOP/s and GB.

>>> si(2307e12, "FLOP/s"), si(7380e9, "B/s"), si(1.3e-5, "s")
('2.31 PFLOP/s', '7.38 TB/s', '13 µs')
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline_helpers.common.checks import BadType, name_of, real, shown, whole

if TYPE_CHECKING:
    import pandas

PREFIXES = {
    "": 1.0,
    "n": 1e-9,
    "µ": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
}

_PANDAS_STYLE = ' style="text-align: right;"'


def si(value: Any, unit: str, prefix: str | None = None, digits: int = 3) -> str:
    """Return a number with its unit and SI prefix, rounded to significant digits.

    Parameters
    ----------
    value : number
        In the base unit.
    unit : str
        "FLOP/s", "B", "B/s", "s", …
    prefix : str, optional
        One of `PREFIXES`; the one that leaves 1 to 1000 if not given.
    digits : int
        Significant digits, 1 to 17.

    Raises
    ------
    BadType, BadValue
        Not a real number; too many digits.
    UnknownName
        No such prefix.

    Examples
    --------
    >>> si(2307e12, "FLOP/s", "T", 4)
    '2,307 TFLOP/s'
    """
    digits = whole("digits", digits, 17)
    number = _rounded(real("value", value), digits)
    if prefix is not None:
        prefix = name_of("SI prefix", prefix, PREFIXES, {"u": "µ"})
    elif number == 0 or not math.isfinite(number):
        prefix = ""
    else:
        fitting = [p for p, factor in PREFIXES.items() if factor <= abs(number)]
        prefix = max(fitting, key=lambda p: PREFIXES[p], default="n")
    return f"{significant(number / PREFIXES[prefix], digits)} {prefix}{unit}"


def significant(value: Any, digits: int = 3) -> str:
    """Return a number rounded to significant digits, with thousands separators.

    Raises
    ------
    BadType, BadValue
        Not a real number; digits not 1 to 17.

    Examples
    --------
    >>> significant(0.012345), significant(1234.5), significant(2.5, 2)
    ('0.0123', '1,230', '2.5')
    """
    digits = whole("digits", digits, 17)
    rounded = _rounded(real("value", value), digits)
    if rounded == 0 or not math.isfinite(rounded):
        return f"{rounded:g}"
    text = f"{rounded:,.{max(_places(rounded, digits), 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rounded(value: float, digits: int) -> float:
    known = value != 0 and math.isfinite(value)
    return round(value, _places(value, digits)) if known else value


def _places(value: float, digits: int) -> int:
    return digits - 1 - math.floor(math.log10(abs(value)))


def table(rows: Iterable[Mapping[str, Any]], digits: int | None = None) -> pandas.DataFrame:
    """Return rows as a table for reading: the first column names the rows.

    Parameters
    ----------
    rows : iterable of mappings
        One mapping a row, column name to value. Put the unit into the column name.
    digits : int, optional
        Significant digits of floats; as in `reading` if not given.

    Raises
    ------
    BadType, BadValue
        No row, or a row that is not a mapping; digits not 1 to 17.

    Examples
    --------
    >>> print(table([{"kernel": "copy", "ms": 0.12345}, {"kernel": "matmul", "ms": 12.345}]))
    kernel     ms
    copy    0.123
    matmul   12.3
    """
    import pandas

    rows = list(rows) if isinstance(rows, Iterable) else []
    if not rows or not all(isinstance(row, Mapping) and row for row in rows):
        raise BadType(f"rows must be one or more mappings of column to value, got {shown(rows)}")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: pandas.Series([row.get(name) for row in rows], dtype=object) for name in names}
    return reading(pandas.DataFrame(columns), digits)


def reading(frame: pandas.DataFrame, digits: int | None = None) -> pandas.DataFrame:
    """Return a table's copy for reading, every cell a text; `use_tables` shows all tables so.

    Parameters
    ----------
    frame : pandas.DataFrame
        Where its index only counts the rows, its first column names them instead.
    digits : int, optional
        Significant digits of floats. If not given three, and never fewer than the whole part has:
        0.0123, 12.3, 1,235. Whole numbers are shown whole, None and NaN as "–".

    Raises
    ------
    BadType, BadValue
        Digits not 1 to 17.

    Examples
    --------
    >>> import pandas
    >>> reading(pandas.DataFrame({"N": [64, 2048], "FLOP/byte": [64 / 3, 2048 / 3]}))
    N     FLOP/byte
    64         21.3
    2,048       683
    """
    import pandas

    columns = [[cell(value, digits) for value in frame.iloc[:, at]] for at in range(frame.shape[1])]
    heads: list[Any] = list(frame.columns)
    names: list[str]
    corner: Any
    if columns[1:] and isinstance(frame.index, pandas.RangeIndex):
        names, corner = columns.pop(0), heads.pop(0)
    else:
        names = [cell(value, digits) for value in frame.index]
        corner = frame.index.name or frame.columns.name
    index = pandas.Index(names, dtype=object)
    shown_as = {at: pandas.Series(column, index, object) for at, column in enumerate(columns)}
    table = pandas.DataFrame(shown_as, index=index)
    table.columns = pandas.Index(heads, name=corner, dtype=object)
    return table


def table_html(frame: pandas.DataFrame) -> str:
    """Return a table as HTML: formatted as `reading` does, without any style of its own.

    Examples
    --------
    >>> import pandas
    >>> "<td>1,024</td>" in table_html(pandas.DataFrame({"bytes": [1024]}))
    True
    """
    import pandas

    with pandas.option_context("display.max_colwidth", None):  # or it cuts texts at 50
        html = reading(frame).to_html(border=0)
    return f"<div>{html.replace(_PANDAS_STYLE, '')}</div>"


def facts_html(title: str, facts: Mapping[str, str]) -> str:
    """Return what an object shows of itself in a notebook: its facts below each other, as HTML.

    Examples
    --------
    >>> "64 GB/s" in facts_html("bus", {"rate": "64 GB/s"})
    True
    """
    import pandas

    return table_html(pandas.DataFrame({title: list(facts.values())}, index=list(facts)))


class Facts:
    """Base of what shows itself by a title and a few facts, in a terminal and in a notebook.

    Examples
    --------
    >>> class Bus(Facts):
    ...     def _title(self): return "bus"
    ...     def _facts(self): return {"rate": "64 GB/s"}
    >>> Bus()
    <bus: 64 GB/s>
    """

    def _title(self) -> str:
        raise NotImplementedError

    def _facts(self) -> dict[str, str]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self._title()}: {', '.join(self._facts().values())}>"

    def _repr_html_(self) -> str:
        return facts_html(self._title(), self._facts())


def span(value: Any, text: Callable[[float], str]) -> str:
    """Return a number as text, or the least and the largest of several.

    Examples
    --------
    >>> span([1e-3, 2e-3], lambda seconds: si(seconds, "s"))
    '1 ms to 2 ms'
    """
    ends = [text(float(end)) for end in (np.min(value), np.max(value))]
    return " to ".join(dict.fromkeys(ends))


def use_tables() -> None:
    """Show every table of pandas as `reading` formats it, in notebooks from now on.

    Examples
    --------
    >>> use_tables()
    """
    import sys

    if "IPython" not in sys.modules:
        return
    import pandas
    from IPython import get_ipython

    shell: Any = get_ipython()
    if shell is not None:
        formatters = shell.display_formatter.formatters
        formatters["text/html"].for_type(pandas.DataFrame, table_html)
        formatters["text/plain"].for_type(
            pandas.DataFrame, lambda frame, printer, cycle: printer.text(reading(frame).to_string())
        )


def cell(value: Any, digits: int | None = None) -> str:
    """Return one value as `reading` shows it.

    Examples
    --------
    >>> cell(2307e12), cell(None), cell(True)
    ('2,307,000,000,000,000', '–', 'yes')
    """
    value = value.item() if getattr(value, "ndim", None) == 0 else value  # of NumPy or JAX
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        whole_part = len(f"{abs(value):.0f}") if math.isfinite(value) else 1
        return significant(value, max(3, min(whole_part, 17)) if digits is None else digits)
    return str(value)


class Text(str):
    """A text that shows itself as it reads, without quotes.

    Examples
    --------
    >>> Text("64 GB/s")
    64 GB/s
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@contextlib.contextmanager
def progress(shown: bool = True) -> Iterator[Callable[[str], None]]:
    """Return a function that shows on a terminal, in one line, what is being done, and since when.

    The line is written over, and gone at the end. Files, pipes and notebooks get nothing.

    Parameters
    ----------
    shown : bool
        Whether to show it at all.

    Examples
    --------
    >>> with progress() as say:
    ...     say("compiling")
    """
    if not shown:
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, markup=False, highlight=False, force_jupyter=False)
    line = Progress(
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
        disable=not sys.stderr.isatty(),  # a kernel's environment has rich believe in a terminal
        refresh_per_second=1,  # a thread that redraws more often would slow what is measured
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with line:
        task = line.add_task("")
        yield lambda text: line.update(task, description=text, refresh=True)
