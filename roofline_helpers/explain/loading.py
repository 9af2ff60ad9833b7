"""Explanations from records: texts, files, and those that the package brings along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

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
    return of_fields(records.loads(text, SCHEMA))


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
    return of_fields(records.load(path, SCHEMA))


def of_fields(data: Mapping[str, Any]) -> Explanation:
    """Return the explanation that these fields of a record describe.

    Raises
    ------
    BadRecord
        A field is missing or wrong.
    """
    kept = {name: value for name, value in data.items() if name != "schema"}
    try:
        return msgspec.convert(kept, Explanation)
    except msgspec.ValidationError as error:
        raise records.BadRecord(f"damaged record: {error}") from None


def committed() -> dict[str, Explanation]:
    """Return the explanations that the package brings along, by name.

    Examples
    --------
    >>> [name for name in committed() if "training" in name]
    []
    """
    files = records.files(records.committed("explained"))
    return {name: load(file) for name, file in files.items()}
