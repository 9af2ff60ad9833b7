"""What nbval forgives, with the book's conftest: only what a notebook has said of its compiler."""

import os
import re
import subprocess
import sys

import nbformat
import pytest

from tools import books

pytestmark = pytest.mark.slow
SAYS = "import warnings\nfrom roofline.xla.analysis import {0}\nwarnings.warn('so', {0})"


def notebook(path, *sources):
    """Write a notebook whose cells are committed as if each had printed 1, or nothing at all."""
    cells = []
    for count, source in enumerate(sources, 1):
        printed = [nbformat.v4.new_output("stream", text="1\n")] if "print" in source else []
        made = nbformat.v4.new_code_cell(source, execution_count=count, outputs=printed)
        cells.append(made)
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_a_cell_may_differ_only_after_the_notebook_has_said_so(tmp_path):
    files = [
        notebook(tmp_path / "said.ipynb", "print(1)", SAYS.format("RecordDiffers"), "print(2)"),
        notebook(tmp_path / "used.ipynb", SAYS.format("RecordUsed"), "print(1)"),
        notebook(tmp_path / "silent.ipynb", "print(2)", SAYS.format("RecordUsed")),
        notebook(tmp_path / "other.ipynb", "import warnings; warnings.warn('so')", "print(2)"),
        notebook(tmp_path / "raised.ipynb", SAYS.format("RecordUsed"), "1 / 0"),
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--nbval", "-p", "conftest"]
    command += ["--rootdir", str(tmp_path), "-p", "no:cacheprovider", *map(str, files)]
    around = {**os.environ, "PYTHONPATH": str(books.ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, text=True)
    found = re.findall(r"^(PASSED|FAILED|XFAIL) (\w+)\.ipynb::Cell (\d)", done.stdout, re.M)
    outcomes = {(name, int(cell)): outcome for outcome, name, cell in found}
    assert outcomes == {
        ("said", 0): "PASSED",
        ("said", 1): "XFAIL",
        ("said", 2): "XFAIL",
        ("used", 0): "XFAIL",
        ("used", 1): "PASSED",
        ("silent", 0): "FAILED",
        ("silent", 1): "XFAIL",
        ("other", 0): "FAILED",
        ("other", 1): "FAILED",
        ("raised", 0): "XFAIL",
        ("raised", 1): "FAILED",
    }, done.stdout[-3000:]
