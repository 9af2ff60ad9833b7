"""Fixtures of the package's tests."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from tools import programs

programs.install()


@pytest.fixture
def own_style() -> Iterator[None]:
    """Leave Matplotlib's defaults and figures behind as they were."""
    with mpl.rc_context():
        yield
    plt.close("all")
