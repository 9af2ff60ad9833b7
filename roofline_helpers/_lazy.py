"""Packages that are loaded when something of them is first used.

NumPy takes longer to load than everything that prints a chip's figures: a command line, or a test
run with the pytest plugin, that meets no array doesn't load it.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class _Lazy(ModuleType):
    """A module in name only: its first attribute loads the real one."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)  # found at once from now on
        return value


def lazy(name: str) -> Any:
    """Return what can be used like the module of this name, which isn't loaded yet.

    Examples
    --------
    >>> lazy("math").gcd(12, 18)
    6
    """
    return _Lazy(name)
