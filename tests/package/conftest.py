"""Fixtures of the package's tests."""

import functools
import gzip
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

import roofline
from roofline.diagnosis import ladder
from tools import programs

programs.install()


@pytest.fixture
def own_style():
    """Leave Matplotlib's defaults and figures behind as they were."""
    with mpl.rc_context():
        yield
    plt.close("all")


@pytest.fixture(scope="session")
def traces(tmp_path_factory):
    """Return the folder of traces that GPUs recorded: see data/traces/README.md."""
    folder = tmp_path_factory.mktemp("traces")
    for file in (Path(__file__).parent / "data" / "traces").glob("*.gz"):
        (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    return folder


@pytest.fixture(scope="session")
def decode_step():
    """Return a committed explanation: a decode step of an H200, as first written."""
    why = ladder.committed()["decode"].steps[0].why
    assert why is not None
    return why


@pytest.fixture(scope="session")
def recorded(traces):
    """Return what explains a recorded trace by its name, once."""
    return functools.cache(
        lambda name, queue=1: roofline.explain(traces / f"{name}.xplane.pb", queue=queue)
    )
