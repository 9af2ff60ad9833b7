"""Numbers and tables for people: this is where SI base units become TFLOP/s and GB.

>>> si(2307e12, "FLOP/s"), si(7380e9, "B/s"), si(1.3e-5, "s")
('2.31 PFLOP/s', '7.38 TB/s', '13 µs')
"""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline_helpers.common.checks import BadType, name_of, real, shown

if TYPE_CHECKING:
    import pandas
    from markupsafe import Markup

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

LEAST = 0.0001
"""What is nearer to zero is said to be less than this in a table, or nothing if it is negative."""

LONGEST = 199
"""Characters of what an object shows of itself in a terminal: two lines of a hundred."""


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
        Significant digits.

    Raises
    ------
    BadType
        Not a real number.
    UnknownName
        No such prefix.

    Examples
    --------
    >>> si(2307e12, "FLOP/s", "T", 4)
    '2,307 TFLOP/s'
    """
    number = _rounded(real("value", value), digits)
    if prefix is not None:
        prefix = name_of("SI prefix", prefix, PREFIXES, {"u": "µ"})
    elif number == 0 or not math.isfinite(number):
        prefix = ""
    else:
        most = 1.0 if unit == "s" else math.inf  # nobody says kiloseconds
        fitting = [p for p, factor in PREFIXES.items() if factor <= min(abs(number), most)]
        prefix = max(fitting, key=lambda p: PREFIXES[p], default="n")
    return f"{significant(number / PREFIXES[prefix], digits)} {prefix}{unit}"


def many(count: float, noun: str) -> str:
    """Return a number of things, which are one or several.

    Examples
    --------
    >>> many(1, "array"), many(2, "array"), many(2, "copy"), many(1536, "launch")
    ('1 array', '2 arrays', '2 copies', '1,536 launches')
    """
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeou":
        return f"{count:,.0f} {noun[:-1]}ies"
    return f"{count:,.0f} {noun}{'es' if noun.endswith(('ch', 'sh', 's', 'x')) else 's'}"


def significant(value: Any, digits: int = 3) -> str:
    """Return a number rounded to significant digits, with thousands separators.

    Examples
    --------
    >>> significant(0.012345), significant(1234.5), significant(2.5, 2)
    ('0.0123', '1,230', '2.5')
    """
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


def table(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return rows as a table for reading: the first column names the rows.

    Parameters
    ----------
    rows : iterable of mappings
        One mapping a row, column name to value. Put the unit into the column name. Floats have
        three significant digits, and never fewer than their whole part: 0.0123, 12.3, 1,235, but
        <0.0001 for what is less. Whole numbers are shown whole, None and NaN as "–".

    Raises
    ------
    BadType
        No row, or a row that is not a mapping.

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
    return readable(pandas.DataFrame(rows, dtype=object))


def readable(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return a table's copy for reading, every cell a text as `table` says.

    Where its index only counts the rows, and has no name, its first column names them instead.

    Examples
    --------
    >>> import pandas
    >>> readable(pandas.DataFrame({"N": [64, 2048], "FLOP/byte": [64 / 3, 2048 / 3]}))
    N     FLOP/byte
    64         21.3
    2,048       683
    """
    import pandas

    shown: pandas.DataFrame = frame.apply(lambda column: column.astype(object).map(cell))
    names: Any = frame.index
    corner = names.name or frame.columns.name
    if isinstance(names, pandas.RangeIndex) and names.name is None and frame.shape[1] > 1:
        names, corner = frame.iloc[:, 0], frame.columns[0]
        shown = shown.iloc[:, 1:]
    index = pandas.Index(list(map(cell, names)), dtype=object)
    columns = pandas.Index(shown.columns, name=corner, dtype=object)
    return shown.set_axis(index, axis="index").set_axis(columns, axis="columns")


def table_html(frame: pandas.DataFrame) -> str:
    """Return a table as HTML: formatted as `readable` does, without any style of its own."""
    import pandas

    with pandas.option_context("display.max_colwidth", None):  # or it cuts texts at 50
        text = readable(frame).to_html(border=0).replace(' style="text-align: right;"', "")
    return f"<div>{text}</div>"


def facts_html(title: str, facts: Mapping[str, str]) -> str:
    """Return an object's title and facts as HTML, for notebooks."""
    import pandas

    return table_html(pandas.DataFrame({title: list(facts.values())}, index=list(facts)))


@functools.cache
def template(source: str, package: str = "roofline_helpers") -> Any:
    """Return a template: a file of a package that ends in ".html", or the text itself.

    Values are escaped unless they are markup.
    """
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup

    def escaped(value: Any) -> Any:
        return value if hasattr(value, "__html__") else Markup(html.escape(str(value)))

    loader = PackageLoader(package, ".")
    made = Environment(loader=loader, autoescape=True, finalize=escaped)
    return made.get_template(source) if source.endswith(".html") else made.from_string(source)


def render(source: str, **values: Any) -> Markup:
    """Return what a template makes of values."""
    from markupsafe import Markup

    return Markup(template(source).render(values))


class Facts:
    """Base class of objects with a title and a few facts, shown in terminals and notebooks.

    Examples
    --------
    >>> class Bus(Facts):
    ...     def _title(self): return "bus"
    ...     def _facts(self): return {"rate": "64 GB/s"}
    >>> Bus()
    <bus: 64 GB/s>
    """

    _named = False  # whether a line has the names of facts too

    def _title(self) -> str:
        return str(getattr(self, "name", type(self).__name__))

    def _facts(self) -> dict[str, str]:
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = [f"{k} {fact}" if self._named else fact for k, fact in self._facts().items()]
        return shortened(f"<{self._title()}: {', '.join(facts)}>", LONGEST)

    def _repr_html_(self) -> str:
        return facts_html(self._title(), self._facts())


class Fields(Facts):
    """Base of dataclasses whose facts are their fields: those that aren't empty, in two lines.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(repr=False)
    ... class Round(Fields):
    ...     tokens: float
    ...     notes: tuple[str, ...] = ()
    >>> Round(tokens=2 / 3)
    <Round: tokens 0.667>
    """

    _named = True

    def _facts(self) -> dict[str, str]:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))  # type: ignore
        shown = {name: _briefly(value) for name, value in values if name != "name"}
        return {name: text for name, text in shown.items() if text}


def _briefly(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if value is None or (hasattr(value, "__len__") and not len(value)):
        return ""
    many = isinstance(value, Mapping) or (isinstance(value, tuple | list) and len(value) > 3)
    return f"{len(value)} entries" if many else shortened(" ".join(str(value).split()), 40)


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
    """Show every table of pandas as `readable` formats it, in notebooks from now on."""
    import pandas
    from IPython import get_ipython

    formatters = get_ipython().display_formatter.formatters
    formatters["text/html"].for_type(pandas.DataFrame, table_html)
    formatters["text/plain"].for_type(
        pandas.DataFrame, lambda frame, printer, cycle: printer.text(readable(frame).to_string())
    )


def cell(value: Any) -> str:
    """Return one value as `table` shows it.

    Examples
    --------
    >>> cell(2306765432.1), cell(2e-9), cell(None), cell(True)
    ('2,306,765,432', '<0.0001', '–', 'yes')
    """
    value = value.item() if getattr(value, "ndim", None) == 0 else value  # of NumPy or JAX
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if 0 < abs(value) < LEAST:
            return f"<{LEAST}" if value > 0 else "0"
        whole_part = len(f"{abs(value):.0f}") if math.isfinite(value) else 1
        return significant(value, max(3, min(whole_part, 17)))
    return str(value)


def shortened(text: str, most: int = 48) -> str:
    """Return a text of so many characters at most."""
    return text if len(text) <= most else text[: most - 1] + "…"


class Text(str):
    """A text that shows itself as it reads, without quotes.

    Examples
    --------
    >>> Text("64 GB/s")
    64 GB/s
    """

    def __repr__(self) -> str:
        return str(self)
