"""What every pytest run of this repository needs, and how nbval compares the notebooks."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import nbval.kernel
import pytest

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
        }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a notebook's cell that draws another picture than the committed one.

    nbval compares no PNG. Of a cell that depends on the machine only the number is compared.
    """
    result = yield
    outputs = getattr(item, "test_outputs", None)
    if outputs is not None:
        from tools.notebooks import pictures

        cell: Any = item
        if wrong := pictures.changed(cell.cell.outputs, outputs, cell.options["check"]):
            cell.raise_cell_error("Another picture than the committed one", "\n".join(wrong))
    return result
