"""Questions on the book's pages.

A question is data, one file per chapter in `data/questions`; its cell passes the numbers.
`questions` builds it, `element` is the output of a cell, `judge` checks a number. What runs on the
page itself is in the scripts in `assets`.
"""

from __future__ import annotations

from roofline_helpers.pages.questions import answer, exercises, question

__all__ = ["answer", "exercises", "question"]
