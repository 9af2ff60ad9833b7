"""Fixtures of several test files."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tools import books

FIXTURES = ("browser", "asking", "labs")  # modules of tests/browser
# Groups of tests, in this order before the others. Notebooks take longest. Pages are looked at when
# there is a site, and `explain` measures when neither a site nor types are made beside it
FIRST = (
    "notebooks",
    "for v6e",
    "test_plot_readable",
    "test_kernels_layernorm",
    "test_kernels_flash",
    "pages",
    "explain",
)


def pytest_configure(config: pytest.Config) -> None:
    """Load what tests need; the process that only hands them to others needs none of it."""
    if config.getoption("numprocesses", None):
        return
    import matplotlib as mpl

    mpl.use("agg")  # no window in the tests' own process; kernels draw into the notebook
    for name in FIXTURES:
        config.pluginmanager.import_plugin(name)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[Any], list[Any]]:
    """Look for doctests in the package only: tests have none, and to look walks all they import."""
    collectors = yield
    return [each for each in collectors if type(each) is pytest.Module]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, and end with what needs what others have made.

    A file of the package's tests stays in one process, with what its tests share; so do all of
    `explain`, which measures the ceilings of a CPU once a process.
    """
    for item in items:
        name = item.path.stem
        if "tests/package" in item.path.as_posix() and not group_of(item):
            group = "explain" if name.startswith("test_explain") else name
            item.add_marker(pytest.mark.xdist_group(group))
    sizes = Counter(group for group in map(group_of, items) if group)
    ranks = {group: rank for rank, group in enumerate(FIRST)} | {"last": len(FIRST) + 1}

    def place(item: pytest.Item) -> tuple[int, int]:
        group = group_of(item)
        return ranks.get(group, len(FIRST)), -sizes[group]

    items.sort(key=place)


def group_of(item: pytest.Item) -> str:
    """Return the name of the tests that one process runs together with this one, or nothing."""
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else ""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop where tests that share something expensive would be spread over processes all the same.

    Some pairs of versions of pytest and pytest-xdist do so without a word.
    """
    if session.config.getoption("loadgroup", False):
        grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
        lost = [item.nodeid for item in grouped if "@" not in item.nodeid]
        if lost:
            raise pytest.UsageError(f"groups are not kept together: {len(lost)} tests, {lost[0]}")


@pytest.fixture
def hasty() -> Iterator[None]:
    """Compile quickly for this machine's processor: where results count, and not times."""
    import jax

    from tools.programs import HASTY

    before = jax.config.read(HASTY)
    jax.config.update(HASTY, True)
    yield
    jax.config.update(HASTY, before)


@pytest.fixture(scope="session")
def site() -> Path:
    """Return the folder of the built site: built here where it isn't of what is here."""
    command = [sys.executable, "-m", "tools.site.build"]
    done = subprocess.run(command, cwd=books.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return books.ROOT / "_build/html"
