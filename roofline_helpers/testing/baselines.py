"""Baselines: what a program was when someone looked at it, in small files next to the tests."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from roofline_helpers.compiled import record
from roofline_helpers.compiled.changes import Changes
from roofline_helpers.compiled.report import Report
from roofline_helpers.records import BadRecord, write

FOLDER = ".roofline"
"""Beside a test file: its baselines, in a folder of the file's name."""


def place_of(test_file: Path, test: str, name: str | None = None) -> Path:
    """Return where the baseline of a call lies.

    Parameters
    ----------
    test_file : Path
        The file of the test.
    test : str
        What pytest calls the test within it: "test_block[v6e]", "TestModel::test_block".
    name : str, optional
        What the call is named, where a test has several.

    Examples
    --------
    >>> place_of(Path("tests/test_model.py"), "test_block[v6e]").as_posix()
    'tests/.roofline/test_model/test_block[v6e].json'
    """
    full = test if name is None else f"{test}.{name}"
    plain = re.sub(r"[^\w\-.\[\]=,]+", "_", full.replace("::", "."))
    if plain != full.replace("::", ".") or len(plain) > 100:  # two names must not share a file
        plain = f"{plain[:100]}-{hashlib.sha256(full.encode()).hexdigest()[:8]}"
    return test_file.parent / FOLDER / test_file.stem / f"{plain}.json"


class Baseline(NamedTuple):
    """What a file holds: the report, and the version of this package that counted it, or ""."""

    report: Report
    package: str


def load(path: Path) -> Baseline | None:
    """Return the baseline of a file; None where there is none.

    Raises
    ------
    BadRecord
        The file is damaged, or of another version of this package.
    """
    if not path.is_file():
        return None
    try:
        text = path.read_text("utf-8")
        return Baseline(Report.from_json(text), record.counted_by(text))
    except (BadRecord, UnicodeDecodeError) as error:
        raise BadRecord(f"{path}: {error}") from None


def save(path: Path, report: Report) -> None:
    """Write a baseline: the whole new file, or the old one stays as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, report.to_json(brief=True))


def changes(before: Report, after: Report) -> Changes:
    """Return what changed since a baseline, which knows no more than `after` does there."""
    return before.diff(Report.from_json(after.to_json(brief=True)))
