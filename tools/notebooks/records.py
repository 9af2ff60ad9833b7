"""Compile again what the notebooks compile, and keep it as records in the package.

    python -m tools.notebooks.records          write roofline_helpers/data/compiled
    python -m tools.notebooks.records check    say which records differ from a live compilation

A record stands in where the compiler isn't available: macOS, Colab, other processors. Needs the TPU
compiler, so Linux on x86-64. Records are replaced only after every notebook has run.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from roofline_helpers import compiled
from tools import books
from tools.notebooks import run as notebooks

KEPT = books.ROOT / "roofline_helpers/data/compiled"


def recorded_by(path: Path) -> bool:
    """Return whether a notebook names records."""
    return "record=" in path.read_text("utf-8")


def stale(fresh: Mapping[str, str], kept: Path = KEPT) -> list[str]:
    """Return the records, text by file name, that are kept otherwise or not at all."""
    old = {path.name: path.read_text("utf-8") for path in kept.glob("*.json")}
    return sorted(name for name, text in fresh.items() if old.get(name) != text)


def differing(fresh: Path, kept: Path = KEPT) -> list[str]:
    """Return the records that are missing, extra, or differ between two directories."""
    new = {path.name: path.read_text("utf-8") for path in fresh.glob("*.json")}
    left = {path.name for path in kept.glob("*.json")} - set(new)
    return sorted([*stale(new, kept), *left])


def main() -> int:
    """Make the records anew, then keep or compare them."""
    missing = compiled.can_compile("v6e")
    if missing:
        print(f"records can't be made here: {missing}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as directory:
        environment = {compiled.RECORD_TO: directory, compiled.USE: "compiler"}
        for path in filter(recorded_by, books.notebooks()):
            print(f"{path.stem} …", flush=True)
            notebooks.execute(path, show=True, environment=environment)
        stale = differing(Path(directory))
        print("\n".join(stale) or "all records as before")
        if sys.argv[1:] == ["check"]:
            return 1 if stale else 0
        beside = KEPT.with_name("compiled.new")
        shutil.rmtree(beside, ignore_errors=True)  # left by a run that was cut off
        shutil.copytree(directory, beside)
        shutil.rmtree(KEPT, ignore_errors=True)
        beside.rename(KEPT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
