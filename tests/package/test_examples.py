"""The reference: every name on its pages has an example, which `make test` runs as a doctest."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tools import books

PAGES = sorted((books.ROOT / "book/api").glob("*.md"))
DIRECTIVE = re.compile(r"^\.\. (automodule|autoclass|autofunction):: (\S+)$((?:\n +:.*)*)", re.M)


def option(options: str, name: str) -> list[str]:
    match = re.search(rf":{name}: *(.*)", options)
    return [each.strip() for each in match[1].split(",")] if match and match[1] else []


def public(module: ModuleType, options: str) -> list[str]:
    """Return the names that a page shows of a module."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    names: list[str] = option(options, "members") or list(getattr(module, "__all__", own))
    return [name for name in names if name not in option(options, "exclude-members")]


def documented() -> Iterator[tuple[str, Any]]:
    """Yield the functions and classes of the reference, by their names."""
    for page in PAGES:
        for kind, path, options in DIRECTIVE.findall(page.read_text("utf-8")):
            if kind == "automodule":
                module = importlib.import_module(path)
                members = {name: getattr(module, name) for name in public(module, options)}
            else:
                place, _, name = path.rpartition(".")
                members = {name: getattr(importlib.import_module(place), name)}
            for name, value in members.items():
                if inspect.isclass(value) or inspect.isroutine(value):
                    yield f"{path}: {name}", value


def without_example(names: Iterator[tuple[str, Any]]) -> list[str]:
    return [name for name, value in names if ">>> " not in (value.__doc__ or "")]


def test_every_name_of_the_reference_has_an_example() -> None:
    names = dict(documented())
    assert len(names) > 100, "the pages are read"
    assert without_example(iter(names.items())) == []
