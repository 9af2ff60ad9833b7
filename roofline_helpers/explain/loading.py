"""Explanations from records: texts, files, and those that the package brings along."""

from __future__ import annotations

from typing import Any

from roofline_helpers import records
from roofline_helpers.explain.explanation import Explanation
from roofline_helpers.explain.record import SCHEMA


def loads(text: str) -> Explanation:
    """Return the explanation that the text of a record holds.

    Raises
    ------
    BadRecord
        Not a record, or one of another version: the message says what is wrong.

    Examples
    --------
    >>> from roofline_helpers.explain import ladder
    >>> why = ladder.committed()["decode"].steps[0].why
    >>> loads(why.to_json()).wall == why.wall
    True
    """
    return records.loads(text, SCHEMA, Explanation)


def load(path: Any) -> Explanation:
    """Return the explanation that a record's file holds.

    Raises
    ------
    BadRecord
        As in `loads`; the message names the file.

    Examples
    --------
    >>> load("why.json")
    Traceback (most recent call last):
    ...
    roofline_helpers.records.BadRecord: why.json: can't be read: No such file or directory
    """
    return records.load(path, SCHEMA, Explanation)


def committed() -> dict[str, Explanation]:
    """Return the explanations that the package brings along, by name.

    Examples
    --------
    >>> [name for name in committed() if "training" in name]
    []
    """
    files = records.files(records.committed("explained"))
    return {name: load(file) for name, file in files.items()}
