"""An explanation as HTML."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roofline_helpers.explain.explanation import Explanation


def fragment(why: Explanation) -> str:
    return f"<pre>{html.escape(str(why))}</pre>"


def whole(why: Explanation) -> str:
    return f"<!doctype html><meta charset=utf-8>{fragment(why)}"
