"""Fixtures of several test files."""

from __future__ import annotations

import fcntl
import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from asking import show  # noqa: F401  (fixtures)
from browser import chromium, serve, visit  # noqa: F401

from roofline_helpers import compiled
from tools import books
from tools.notebooks import run as notebooks

mpl.use("agg")  # no window in the tests' own process; kernels draw into the notebook


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share executed notebooks in one process."""
    for item in items:
        if "fresh" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("executed"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop where tests that share something expensive would be spread over processes all the same.

    Some pairs of versions of pytest and pytest-xdist do so without a word.
    """
    if session.config.getoption("loadgroup", False):
        grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
        lost = [item.nodeid for item in grouped if "@" not in item.nodeid]
        if lost:
            raise pytest.UsageError(f"groups are not kept together: {len(lost)} tests, {lost[0]}")


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


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site; one process builds it where it isn't of what is here."""
    with (tmp_path_factory.getbasetemp().parent / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "tools.site.build"]
        done = subprocess.run(command, cwd=books.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return books.ROOT / "_build/html"
