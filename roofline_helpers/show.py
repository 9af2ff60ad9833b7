"""Numbers and tables for people: this is where SI base units become TFLOP/s and GB.

>>> si(2307e12, "FLOP/s"), si(7380e9, "B/s"), si(1.3e-5, "s")
('2.31 PFLOP/s', '7.38 TB/s', '13 µs')
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline_helpers._checks import (
    BadType,
    BadValue,
    finite,
    name_of,
    plain,
    quantity,
    real,
    shown,
    whole,
)

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


def table(rows: Iterable[Mapping[str, Any]], digits: int = 3) -> pandas.DataFrame:
    """Return rows as a table for reading: the first column names the rows.

    Parameters
    ----------
    rows : iterable of mappings
        One mapping a row, column name to value. Put the unit into the column name.
    digits : int
        Significant digits of floats. Whole numbers are shown whole, None and NaN as "–".

    Raises
    ------
    BadType, BadValue
        No row, or a row that is not a mapping; digits not 1 to 17.
    """
    import pandas

    rows = list(rows) if isinstance(rows, Iterable) else []
    if not rows or not all(isinstance(row, Mapping) and row for row in rows):
        raise BadType(f"rows must be one or more mappings of column to value, got {shown(rows)}")
    frame = pandas.DataFrame([{name: _cell(v, digits) for name, v in row.items()} for row in rows])
    corner = frame.columns[0]
    table = frame.set_index(corner).fillna("–").rename_axis(index=None)
    table.columns.name = corner
    return table


def table_html(frame: pandas.DataFrame) -> str:
    """Return a table as HTML without any style of its own."""
    html = frame.to_html().replace(' border="1"', "").replace(' style="text-align: right;"', "")
    return f"<div>{html}</div>"


def _cell(value: Any, digits: int) -> str:
    value = plain(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return significant(float(value), digits) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Checked:
    """What `check` found: shows itself as one line."""

    text: str

    def __repr__(self) -> str:
        return self.text


def check(
    answer: Any, solution: Any, unit: str = "", tolerance: float = 0.02, smallest: float = 0.0
) -> Checked:
    """Compare the reader's number with the solution that a cell has computed.

    Parameters
    ----------
    answer : number or None
        The reader's number; None is "not answered", and shows the solution.
    solution : number
        The computed one, in the same unit.
    unit : str
        Shown behind the numbers.
    tolerance : float
        Largest relative difference that counts as right.
    smallest : float
        Least number that an answer can be.

    Raises
    ------
    BadType, BadValue
        An answer that is not a finite number of at least `smallest`; a solution that is not finite.

    Examples
    --------
    >>> check(240, 240.5, "FLOP/byte"), check(120, 240.5, "FLOP/byte")
    (Right: 240 FLOP/byte., Not yet: yours is 0.499 times the solution.)
    >>> check(None, 240.5, "FLOP/byte")
    The solution is 240 FLOP/byte.
    """
    right, least = finite("the solution", solution), finite("smallest", smallest)
    within = real("tolerance", quantity("tolerance", tolerance))
    correct = f"{significant(right)} {unit}".rstrip()
    if answer is None:
        return Checked(f"The solution is {correct}.")
    given = finite("your answer", answer)
    if given < least:
        raise BadValue(f"your answer must be at least {least:g}, got {shown(answer)}")
    if abs(given - right) <= within * abs(right):
        return Checked(f"Right: {correct}.")
    if right == 0:
        return Checked(f"Not yet: the solution is {'smaller' if given > 0 else 'larger'}.")
    return Checked(f"Not yet: yours is {significant(given / right)} times the solution.")
