"""Questions on the page: predict first, then see; and exercises that check a number.

A question is an object that shows itself in a notebook and on the published page. What it unlocks
is part of it, so that both are one output; any answer unlocks, a wrong one too. Without JavaScript
the question is there with its answer folded. The book's own are data: `question` and
`exercises` read them from ``data/questions``; `choice`, `number` and `sheet` are what they become.

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
    Question,
    Sheet,
    answer,
    choice,
    key_of,
    ledger,
    number,
    sheet,
)
from roofline_helpers.ask.unlock import filled

__all__ = [
    "BUNDLES",
    "LARGEST_ANSWER",
    "Element",
    "Question",
    "Sheet",
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
