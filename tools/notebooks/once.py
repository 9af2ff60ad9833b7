"""Execute a notebook once for all checks that look at what it does.

Its outputs and pictures are compared with the committed ones, what it compiles with the committed
records, and what it gives to `jax.jit` is compiled for Colab's TPUs. One execution serves all of
them, and the next run of the checks too while nothing that it depends on has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import nbformat

from roofline_helpers import compiled
from tools import books, programs
from tools.notebooks import run as notebooks
from tools.notebooks import warm

FOLDER = books.ROOT / "_build/executed"
FILES = ("requirements.txt", "tools/programs.py", "tools/notebooks/*.py", "roofline_helpers/**/*")
PATIENCE = 1200  # seconds for a cell, on a machine that does much else
BEGIN = "import tools.notebooks.inside; tools.notebooks.inside.begin({}, {}); del tools"
END = "import tools.notebooks.inside; tools.notebooks.inside.end()"


@dataclass(frozen=True)
class Run:
    """What an execution of a notebook gave.

    Attributes
    ----------
    notebook : nbformat notebook
        With its outputs.
    records : mapping
        Text of each record that it wrote, by file name.
    done, failed : list
        What was compiled for Colab's TPUs, and what could not be.
    """

    notebook: Any
    records: Mapping[str, str]
    done: list[Any]
    failed: list[Any]


@cache
def surroundings() -> str:
    """Return a hash of all that executions depend on, the notebook itself left out."""
    # Programs that are to be written are those of an execution that writes them
    ways = [os.environ.get(name) for name in (programs.SOURCE, programs.WRITE_TO)]
    digest = hashlib.sha256(f"{sys.version} {platform.platform()} {ways}".encode())
    for pattern in FILES:
        for path in sorted(books.ROOT.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(books.ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def runs_jax(notebook: Any) -> bool:
    """Return whether a notebook's code jits: its text may quote programs that it doesn't run."""
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return any("jax.jit(" in "".join(source) for source in code)  # in a file a list of lines


def measures(notebook: Any) -> bool:
    """Return whether some of a notebook's cells depend on the machine."""
    return any(notebooks.MACHINE in cell.metadata.get("tags", []) for cell in notebook.cells)


def execute(path: Path) -> Run:
    """Execute a notebook in a kernel of its own."""
    committed = notebooks.load(path)
    traced = runs_jax(committed)
    live = compiled.can_compile("v6e") is None
    with tempfile.TemporaryDirectory() as folder:
        environment = {compiled.USE: "auto", compiled.RECORD_TO: folder}
        environment["PYTHONPATH"] = str(books.ROOT)
        notebook = notebooks.execute(
            path,
            environment=environment,
            first=BEGIN.format(traced, measures(committed)),
            last=END if traced and live else "",
            seconds=PATIENCE,
            manager=warm.Manager,
        )
        records = {one.name: one.read_text("utf-8") for one in Path(folder).glob("*.json")}
    compiled_for_tpus: dict[str, list[Any]] = {"done": [], "failed": []}
    if traced and live:
        compiled_for_tpus = json.loads(notebook.cells.pop().outputs[-1].text)
    return Run(notebook, records, **compiled_for_tpus)


@cache
def run(path: Path) -> Run:
    """Return what an execution of a notebook gives: of this one, or of an earlier same one."""
    key = hashlib.sha256(surroundings().encode() + path.read_bytes()).hexdigest()
    place = FOLDER / f"{path.stem}.json"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = json.loads(place.read_text("utf-8")) if place.is_file() else {}
        if kept.pop("key", "") != key:
            fresh = execute(path)
            kept = {**vars(fresh), "notebook": notebooks.dump(fresh.notebook)}
            unfinished = place.with_suffix(".new")
            unfinished.write_text(json.dumps({"key": key, **kept}), "utf-8")
            unfinished.replace(place)
    return Run(**{**kept, "notebook": nbformat.reads(kept["notebook"], as_version=4)})
