"""What every pytest run of this repository needs, and how nbval compares the notebooks."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import nbval.kernel
import pytest
from nbval.plugin import NbCellError

from tools import books
from tools.notebooks import run

# Kernels inherit these; set before anything imports JAX
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("PYTHONHASHSEED", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
os.environ.pop("MPLBACKEND", None)  # kernels draw into the notebook

# Two workers' kernels can be promised the same TCP port: jupyter_client asks for a free one, and
# the kernel binds it a second later. Sockets in a folder of the worker's own can't clash.
SOCKETS = tempfile.TemporaryDirectory(prefix="nbval-")
nbval.kernel.KernelManager = functools.partial(
    nbval.kernel.KernelManager,
    transport="ipc",
    connection_file=str(Path(SOCKETS.name) / "kernel.json"),
)


def pytest_collectstart(collector: Any) -> None:
    """Let nbval pass over scripts of questions, which no committed notebook has, and pictures."""
    if hasattr(collector, "sanitize_patterns"):
        collector.sanitize_patterns |= {
            run.SCRIPT.pattern: "",
            r"data:image/png;base64,[A-Za-z0-9+/=]+": "PICTURE",
            # the last digits of sums depend on the versions of NumPy and Python
            r"(\d\.\d{1,9}?)0{5,}\d+": r"\1",
            r"(\d\.\d{10})\d+": r"\1",
        }


VERSION = importlib.metadata.version("matplotlib")
DRAWS_ALIKE = f"\nmatplotlib=={VERSION} " in (books.ROOT / "requirements.txt").read_text("utf-8")
"""Whether Matplotlib is the locked version: another one draws each letter a little differently."""

OTHER = {"RecordUsed", "RecordDiffers"}
"""The warnings by which a cell says that the compiler here isn't the one of the text."""
WARNING = re.compile(r"^\S.*:\d+: (\w+): (.*)", re.MULTILINE)
SAID = pytest.StashKey[list[str]]()


def said_by(cell: Any) -> str:
    """Return what this cell, or one before it, said of the compiler here; nothing if none did.

    Nor if something else is on this cell's stderr.
    """
    errors = "".join(each.text for each in cell.test_outputs if each.get("name") == "stderr")
    warned = WARNING.findall(errors)
    if bool(errors) != bool(warned) or not {kind for kind, _ in warned} <= OTHER:
        return ""
    said: list[str] = cell.parent.stash.setdefault(SAID, [])
    said += [text for _, text in warned]
    return said[-1] if said else ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a notebook's cell that draws another picture than the committed one.

    nbval compares no PNG. Where a cell depends on the machine, or Matplotlib isn't the locked
    version, only the number of pictures is compared.

    With another compiler than the book's, as in `make colab`, cells show other numbers. That is
    expected of them, and listed with the reason, once the notebook has said so.
    """
    cell: Any = item
    try:
        result = yield
    except NbCellError as error:
        if error.args[0] == "Cell outputs differ" and (said := said_by(cell)):
            pytest.xfail(said)
        raise
    outputs = getattr(item, "test_outputs", None)
    if outputs is not None:
        from tools.notebooks import pictures

        compare = cell.options["check"] and DRAWS_ALIKE
        if wrong := pictures.changed(cell.cell.outputs, outputs, compare):
            cell.raise_cell_error("Another picture than the committed one", "\n".join(wrong))
    return result
