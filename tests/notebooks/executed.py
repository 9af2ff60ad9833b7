"""Tests of executed notebooks share one process: it starts what their kernels are forked from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def grouped(paths: Sequence[Path]) -> list[Any]:
    """Return notebooks as parameters of a test, with their names."""
    together = pytest.mark.xdist_group("notebooks")
    return [pytest.param(path, id=path.stem, marks=together) for path in paths]
