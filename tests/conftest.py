"""Fixtures of several test files."""

from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pytest
from hypothesis import settings

from tools import books

mpl.use("agg")  # no window in the tests' own process; kernels draw into the notebook
settings.register_profile("book", max_examples=60, deadline=None)  # a busy machine is no error
settings.load_profile("book")
pytest_plugins = ("browser", "asking", "labs")  # modules of tests/browser


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
    """Return the folder of the built site, which `make test` builds before the tests."""
    folder = books.ROOT / "_build/html"
    assert (folder / "index.html").is_file(), "there is no site: `make book`"
    return folder
