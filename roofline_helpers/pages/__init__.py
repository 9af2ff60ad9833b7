"""Code for the book's pages alone: questions, instruments, labs. No other room imports it.

A question is data, one file per chapter in `data/questions`; its cell passes the numbers.
`questions` builds it, `element` is the output of a cell, `judge` checks a number. Instruments and
labs run on the page itself, by the scripts in `assets`.
"""

from __future__ import annotations

from roofline_helpers.pages.instruments import chain, matmul, point, ridges, sharding
from roofline_helpers.pages.labs import design_challenge, memory_wall
from roofline_helpers.pages.questions import answer, exercises, question

__all__ = [
    "chain",
    "matmul",
    "point",
    "ridges",
    "sharding",
    "design_challenge",
    "memory_wall",
    "answer",
    "exercises",
    "question",
]
