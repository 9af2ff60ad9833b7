"""Expressions in the questions' files: what they need, and what they give."""

from __future__ import annotations

import ast
import builtins
import functools
import string
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from roofline_helpers._checks import BadValue
from roofline_helpers.show import cell, si, significant

_FUNCTIONS = (
    "abs all any dict enumerate float int len list max min next range round set sorted str sum "
    "tuple zip"
).split()
_SHARED = {"si": si, "significant": significant, **{f: getattr(builtins, f) for f in _FUNCTIONS}}
OWN = frozenset({*_SHARED, "rh", "solution"})
"""Names that no cell passes."""


def fields(text: str) -> Iterator[str]:
    """Yield the expressions in a text's braces."""
    for _, expression, _, _ in string.Formatter().parse(text):
        if expression is not None:
            yield expression


def names_in(expression: str) -> set[str]:
    """Return the names that an expression takes from outside; raise BadValue if it is none."""
    nodes = list(ast.walk(_parsed(expression)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {name.id for name in names} - made


@functools.cache
def _parsed(expression: str) -> ast.Expression:
    try:
        return ast.parse(" ".join(expression.split()), mode="eval")
    except SyntaxError as error:
        raise BadValue(f"{expression!r} is no expression: {error.msg}") from None


class Fill(string.Formatter):
    """Computes expressions, and puts what they give into texts.

    Parameters
    ----------
    values : mapping
        What the cell passes, by name.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.names = {**_SHARED, "rh": sys.modules["roofline_helpers"], **values}

    def value(self, expression: Any) -> Any:
        """Return what an expression gives; anything but a string as it is."""
        if not isinstance(expression, str):
            return expression
        code = compile(_parsed(expression), "<question>", "eval")
        return eval(code, {"__builtins__": {}, **self.names})

    def text(self, words: str) -> str:
        """Return a text with its fields filled."""
        return self.vformat(words, (), {})

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        """Return a field's value, for `string.Formatter`."""
        return self.value(field_name), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value as its format has it, or as tables do."""
        return format(value, format_spec) if format_spec else cell(value)
