"""How a table fits: which columns are numbers, and what a phone makes of a table too wide for it.

Numbers are compared along a column, so a table with a column of them stays a table: it scrolls
sideways beside its frozen first column. So do many rows of many texts. Few rows of texts, and texts
in three columns, become cards: a row's first cell is the title, and each other cell has a line
after the name of its column (``data-name``). ``book/theme/static/book.css.jinja`` draws both on
narrow pages only.
Estimated here and not measured in the browser, so that nothing moves when a page is loaded; a test
measures every table of the site.
"""

import re
from collections.abc import Sequence

PHONE = 333  # CSS pixels of a row on a page that is 375 wide
LETTER, PADDING = 8.7, 12.0  # CSS pixels there of a character, and of a cell around its text
MOST_CARDS = 5  # rows: nobody compares more of them card by card,
TEXTS = 3  # columns: and nobody reads a text of several lines sideways
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


def narrow_look(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return what a phone shows a table as: "cards", "frozen", or "" where it fits.

    Parameters
    ----------
    head : sequence of str
        Texts of the head's cells; empty for a table without.
    rows : sequence of sequences of str
        Texts of the other cells, row by row.
    """
    columns = len(head)
    if columns < 3 or any(len(row) != columns for row in rows):
        return ""
    texts = list(zip(*rows, strict=True))
    numbers = [is_numbers(cells, names=at == 0) for at, cells in enumerate(texts)]
    wide = 0.0
    for name, cells, number in zip(head, texts, numbers, strict=True):
        wide += LETTER * max(longest(name), *map(len if number else longest, cells)) + PADDING
    if wide <= PHONE:
        return ""
    few = len(rows) <= MOST_CARDS or columns <= TEXTS
    return "cards" if few and not any(numbers[1:]) else "frozen"
