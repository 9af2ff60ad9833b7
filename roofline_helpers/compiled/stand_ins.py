"""Records that stand in for the compiler: those that the package brings along, and new ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roofline_helpers._checks import BadValue, shown
from roofline_helpers.compiled.compiling import DoesNotFit
from roofline_helpers.compiled.quiet import environment
from roofline_helpers.compiled.record import dumps_refusal, load, load_refusal
from roofline_helpers.compiled.report import Report
from roofline_helpers.records import committed, files, write

RECORD_TO = "ROOFLINE_RECORD_TO"
"""Environment variable: a directory that every `analyze(..., record=name)` writes its record to."""

USE = "ROOFLINE_USE"
"""Environment variable: "compiler" or "record" for what calls that name a record mean by "auto".

"whole" compiles for calls with "record", too: programs that take minutes, and nothing else does.
"""

REFUSED = "-refused"
"""How the name of a record ends whose program doesn't fit."""


@contextlib.contextmanager
def recording(directory: str | Path) -> Iterator[Path]:
    """Write a record of every `analyze(..., record=name)` inside the block (`RECORD_TO`).

    Parameters
    ----------
    directory : path
        Where ``NAME.CHIP.json`` goes; made if it is not there.

    Examples
    --------
    >>> with recording("/tmp/records") as where:  # doctest: +SKIP
    ...     analyze(f, x, chip="v6e", record="softmax")
    """
    where = Path(directory)
    where.mkdir(parents=True, exist_ok=True)
    with environment({RECORD_TO: str(where)}):
        yield where


def folder_to_write() -> Path | None:
    """Return the directory that records are written to; None where none is named.

    Raises
    ------
    BadValue
        `RECORD_TO` names something that is no directory.
    """
    folder = os.environ.get(RECORD_TO)
    if folder and not Path(folder).is_dir():
        raise BadValue(f"{RECORD_TO} must name a folder that is there, got {shown(folder)}")
    return Path(folder) if folder else None


def keep(report: Report, name: str, folder: Path) -> None:
    """Write the record of a report, whole or not at all."""
    write(folder / f"{name}.{report.target}.json", report.to_json())


def keep_refusal(error: DoesNotFit, name: str, chip: str, folder: Path) -> None:
    """Write the record of a program that doesn't fit."""
    write(folder / f"{name}.{chip}{REFUSED}.json", dumps_refusal(str(error)))


def records() -> dict[tuple[str, str], Report]:
    """Return the committed records by name and chip, those of refused programs left out.

    Examples
    --------
    >>> records()["ledger-matmul", "v6e"].name
    'matmul'
    """
    return {key: Report(**load(file)) for key, file in _files().items()}


def find(name: str, chip: str) -> Report | None:
    """Return the committed record of this name for a chip; None if there is none.

    Raises
    ------
    DoesNotFit
        The record is of a program that the compiler refused.
    """
    refused = files(folder()).get(f"{name}.{chip}{REFUSED}")
    if refused is not None:
        raise DoesNotFit(load_refusal(refused))
    file = _files().get((name, chip))
    return None if file is None else Report(**load(file))


def names_for(chip: str) -> list[str]:
    """Return the names of the committed records for a chip."""
    return [name for name, target in _files() if target == chip]


def _files() -> dict[tuple[str, str], Any]:
    """Return the files of the committed records by name and chip."""
    by_key = {}
    for stem, file in files(folder()).items():
        if not stem.endswith(REFUSED):
            name, chip = stem.rsplit(".", 1)
            by_key[name, chip] = file
    return by_key


def folder() -> Any:
    """Return the folder of the committed records."""
    return committed("compiled")
