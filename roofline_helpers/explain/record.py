"""An explanation as the text of a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from roofline_helpers import records
from roofline_helpers.explain.rows import Row

if TYPE_CHECKING:
    from roofline_helpers.explain.explanation import Explanation

SCHEMA = "roofline_helpers.explained/1"
"""What a record says of itself."""


def dumps(why: Explanation) -> str:
    """Return an explanation as the text of a record."""
    return records.dumps({"schema": SCHEMA, **fields(why)})


def fields(why: Explanation) -> dict[str, Any]:
    """Return an explanation as a record holds it, without its schema."""
    kept = asdict(why)
    kept["rows"] = [_unusual(row, asdict(Row(""))) for row in kept["rows"]]
    return kept


def _unusual(each: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what has its usual value: most of a record is rows."""
    return {k: v for k, v in each.items() if k == "name" or k not in usual or v != usual[k]}
