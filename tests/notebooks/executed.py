"""Tests of executed notebooks: those of one notebook stay in one process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def grouped(paths: Sequence[Path]) -> list[Any]:
    """Return notebooks as parameters of a test, with their names."""
    return [
        pytest.param(path, id=path.stem, marks=pytest.mark.xdist_group(path.stem)) for path in paths
    ]
