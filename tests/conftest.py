"""Fixtures of several test files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from browser import chromium, serve, visit  # noqa: F401  (fixtures)

from roofline_helpers import compiled
from tools.notebooks import run as notebooks

mpl.use("agg")  # no window in the tests' own process; kernels draw into the notebook


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share executed notebooks in one process."""
    for item in items:
        if "fresh" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("executed"))


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that executed notebooks write records of what they compile to."""
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="session")
def fresh(recorded: Path) -> Callable[[Path], Any]:
    """Return a function that executes a notebook, once a session, and leaves its file alone.

    It compiles where it can, and keeps what it compiled in `recorded`.
    """
    environment = {compiled.USE: "auto", compiled.RECORD_TO: str(recorded)}

    @functools.cache
    def run(path: Path) -> Any:
        return notebooks.execute(path, environment=environment)

    return run
