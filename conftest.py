"""What every pytest run of this repository needs, the comparison of the notebooks included."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

# Kernels inherit these; set before anything imports JAX
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("PYTHONHASHSEED", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
os.environ.pop("MPLBACKEND", None)  # kernels draw into the notebook

gc.disable()  # until all tests are collected: what is imported until then stays


def pytest_configure(config: pytest.Config) -> None:
    """Let a process that runs tests for another one end without freeing all it holds, one by one.

    What is to be done at its end is done: what is registered later comes first.
    """
    if hasattr(config, "workerinput"):
        atexit.register(end)


def end() -> None:
    """End this process as it is."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Look for garbage among what the tests make, not among a million objects that stay."""
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    gc.enable()


def pytest_collectstart(collector: Any) -> None:
    """Let nbval pass over what other tests compare.

    That is stderr, which no committed notebook has; in interactive outputs the script and its hash,
    and pictures. Each has a test of its own in tests/notebooks.
    """
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("stderr",)
        collector.sanitize_patterns |= {
            r"(?s)<script type=\"module\" data-roofline>.*?</script>": "SCRIPT",
            r"\broofline-(ask|lab)-[0-9a-f]{8}\b": "ELEMENT",
            r"data:image/png;base64,[A-Za-z0-9+/=]+": "PICTURE",
        }


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the tests that failed for `tools.checks`, which says them last of all."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # whoever started it names all of them
    kept = os.environ.get("ROOFLINE_FAILED_TO")
    stats = terminalreporter.stats
    bad = dict.fromkeys(one.nodeid for kind in ("failed", "error") for one in stats.get(kind, ()))
    if kept and bad:
        with Path(kept).open("a", encoding="utf-8") as file:
            file.writelines(f"  {name.rpartition('@')[0] or name}\n" for name in bad)
