"""Questions on the page, which check an answer and hide nothing but their own.

A question is an object that shows itself in a notebook and on the published page, with its answer
folded and what it asks about open below it. Only the check needs JavaScript. The book's own are
data: `question` and `exercises` read them from ``data/questions``; `choice`, `number` and `sheet`
are what they become.

>>> q = choice("Which is larger?", {"2": "Right.", "1": "It is smaller."}, right="2", key="larger")
>>> print(q)
Which is larger?
  - 2
  - 1
The answer: rh.ask.answer("larger")
>>> answer("larger")
2. Right.
"""

from __future__ import annotations

from roofline_helpers.ask.bank import exercises, question
from roofline_helpers.ask.element import BUNDLES, Element, script, widest
from roofline_helpers.ask.questions import (
    LARGEST_ANSWER,
    answer,
    choice,
    key_of,
    ledger,
    number,
    sheet,
)
from roofline_helpers.ask.render import filled

__all__ = [
    "BUNDLES",
    "LARGEST_ANSWER",
    "Element",
    "answer",
    "choice",
    "exercises",
    "filled",
    "key_of",
    "ledger",
    "number",
    "question",
    "script",
    "sheet",
    "widest",
]
