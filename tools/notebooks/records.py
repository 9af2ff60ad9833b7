"""Compile again what the notebooks compile, and keep it as records in the package.

    python -m tools.notebooks.records          write roofline/data/compiled
    python -m tools.notebooks.records check    say which differ from those in _build/records, where
                                               `make thorough` puts what it compiles
    python -m tools.notebooks.records whole    compile whole models again, which takes minutes each

A record takes the compiler's place where it isn't available: macOS, Colab, other processors. Needs
the TPU compiler, so Linux on x86-64. Records are replaced only after every notebook has run. Those
of whole models, whose names begin with "whole-", stay as they are unless asked for.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from roofline import xla
from roofline.xla import analysis
from tools import books
from tools.notebooks import run as notebooks

COMPILED = books.ROOT / "roofline/data/compiled"
MADE = books.ROOT / "_build/records"

WHOLE = "whole-"
"""How the name of a record begins that no check makes again: it takes minutes."""
PATIENCE = 7200  # seconds for a cell that compiles whole models


def made_each_time(folder: Path = COMPILED) -> list[Path]:
    """Return the records of a folder that are compared with a live compilation."""
    return sorted(path for path in folder.glob("*.json") if not path.name.startswith(WHOLE))


def recorded_by(path: Path) -> bool:
    """Return whether a notebook names records."""
    return "record=" in path.read_text("utf-8")


def differing(fresh: Path, kept: Path = COMPILED) -> list[str]:
    """Return the records that are missing, extra, or differ between two directories."""
    new, old = (
        {path.name: path.read_text("utf-8") for path in made_each_time(folder)}
        for folder in (fresh, kept)
    )
    return sorted(name for name in {*new, *old} if new.get(name) != old.get(name))


def make_whole() -> None:
    """Compile what notebooks call with `use="record"`, and replace those records."""
    for path in books.notebooks():
        if 'use="record"' in path.read_text("utf-8"):
            with tempfile.TemporaryDirectory() as directory:
                environment = {analysis.RECORD_TO: directory, analysis.USE: "whole"}
                notebooks.execute(path, environment=environment, seconds=PATIENCE)
                for made in Path(directory).glob(f"{WHOLE}*.json"):
                    shutil.copy(made, COMPILED)


def main() -> int:
    """Make the records anew, then keep or compare them."""
    missing = xla.can_compile("v6e")
    if missing:
        print(f"records can't be made here: {missing}", file=sys.stderr)
        return 1
    if sys.argv[1:] == ["whole"]:
        make_whole()
        return 0
    if sys.argv[1:] == ["check"]:
        stale = differing(MADE)
        print("\n".join(stale) or "all records as before")
        return 1 if stale else 0
    with tempfile.TemporaryDirectory() as directory:
        environment = {analysis.RECORD_TO: directory, analysis.USE: "compiler"}
        for path in filter(recorded_by, books.notebooks()):
            print(f"{path.stem} …", flush=True)
            notebooks.execute(path, environment=environment)
        print("\n".join(differing(Path(directory))) or "all records as before")
        for path in COMPILED.glob(f"{WHOLE}*.json"):
            shutil.copy(path, directory)
        fresh = COMPILED.with_name("compiled.new")
        shutil.rmtree(fresh, ignore_errors=True)  # left by a run that was cut off
        shutil.copytree(directory, fresh)
        shutil.rmtree(COMPILED, ignore_errors=True)
        fresh.rename(COMPILED)
    return 0


if __name__ == "__main__":
    sys.exit(main())
