"""An explanation as the text of a record, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from roofline_helpers import records
from roofline_helpers.explain.rows import Row

if TYPE_CHECKING:
    from roofline_helpers.explain.explanation import Explanation

SCHEMA = "roofline_helpers.explained/1"
"""What a record says of itself."""


def dumps(why: Explanation) -> str:
    """Return an explanation as the text of a record."""
    fields = asdict(why)
    for name, usual in (("rows", asdict(Row(""))), ("findings", {})):
        fields[name] = [_unusual(each, usual) for each in fields[name]]
    return records.dumps({"schema": SCHEMA, **fields})


def _unusual(each: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what has its usual value: most of a record is rows."""
    return {k: v for k, v in each.items() if k == "name" or k not in usual or v != usual[k]}


def loads(text: str) -> Explanation:
    """Return the explanation that the text of a record holds.

    Raises
    ------
    BadRecord
        Not a record, or one of another version: the message says what is wrong.
    """
    from roofline_helpers.explain.explanation import Explanation

    data = records.loads(text, SCHEMA)
    data.pop("schema")
    return _explanation(data, Explanation)


def load(path: Any) -> Explanation:
    """Return the explanation that a record's file holds.

    Raises
    ------
    BadRecord
        As in `loads`; the message names the file.
    """
    from roofline_helpers.explain.explanation import Explanation

    data = records.load(path, SCHEMA)
    data.pop("schema")
    return _explanation(data, Explanation)


def _explanation(data: dict[str, Any], kind: type[Explanation]) -> Explanation:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise records.BadRecord(f"damaged record: {error}") from None


def committed() -> dict[str, Explanation]:
    """Return the explanations that the package brings along, by name."""
    files = records.files(records.committed("explained"))
    return {name: load(file) for name, file in files.items()}
