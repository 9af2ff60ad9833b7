"""How a table fits: which columns are numbers, and whether a phone shows its rows as cards.

A card is a row with its first cell as title and a line for each other cell, after the name of the
cell's column (``data-name``). ``book/theme/static/book.css.jinja`` draws them on narrow pages only.
Estimated here and not measured in the browser, so that nothing moves when a page is loaded; a test
measures every table of the site.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PHONE = 333  # CSS pixels of a row on a page that is 375 wide
LETTER, PADDING = 8.7, 12.0  # CSS pixels there of a character, and of a cell around its text
LONG_NUMBER = 24  # characters of a number with its unit; what is longer is a text
NUMBER = re.compile(r"[-−+~≈]?\d|[–-]$|(?:nan|NaN|inf|∞)$")


def is_numbers(texts: Sequence[str], names: bool = False) -> bool:
    """Tell whether a column's cells, some of which may be empty, are numbers.

    Parameters
    ----------
    texts : sequence of str
        The cells' texts. A number may have a unit.
    names : bool
        The column names its rows: there "4 kernels" is a name.
    """
    full = [text for text in texts if text]
    if names and any(re.search(r"[^\W\d_]", one) for one in full):
        return False
    return bool(full) and all(NUMBER.match(one) and len(one) <= LONG_NUMBER for one in full)


def longest(text: str) -> int:
    """Return the characters of a text's longest part that can't break."""
    words = re.split(r"\s+|(?<=[-–])(?=\w)", text)
    return max(map(len, words))


def as_cards(head: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether a table is too wide for a phone.

    Parameters
    ----------
    head : sequence of str
        Texts of the head's cells; empty for a table without.
    rows : sequence of sequences of str
        Texts of the other cells, row by row.
    """
    columns = len(head)
    if columns < 3 or any(len(row) != columns for row in rows):
        return False
    wide = 0.0
    for name, texts in zip(head, zip(*rows, strict=True), strict=True):
        least = len if is_numbers(texts) else longest
        wide += LETTER * max(longest(name), *map(least, texts)) + PADDING
    return wide > PHONE
