"""Questions and instruments on the book's pages.

A question is data, one file per chapter in `data/questions`; its cell passes the numbers.
`questions` builds it, `judge` has the margin of a right number and the texts for wrong ones; the
page's script, `assets/core.js`, judges by them. `instruments` are figures with fields: a chip, a
kernel's shape. Both are an `element`, the output of a cell, which runs the scripts in `assets`.
"""

from __future__ import annotations

from roofline_helpers.pages.instruments import chain, matmul, point, ridges
from roofline_helpers.pages.questions import answer, exercises, question

__all__ = ["answer", "chain", "exercises", "matmul", "point", "question", "ridges"]
