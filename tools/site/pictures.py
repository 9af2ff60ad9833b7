"""Committed pictures: which differ from what they should show, and writing them anew."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tools import books


def differing(due: Mapping[str, bytes], root: Path = books.ROOT) -> list[str]:
    """Return the files that are missing or hold something else than they should, by `due`."""
    return [
        name
        for name, content in due.items()
        if not (root / name).is_file() or (root / name).read_bytes() != content
    ]


def main(due: Mapping[str, bytes], remedy: str) -> int:
    """Write what differs; with "check" on the command line say what does, and the remedy."""
    stale = differing(due)
    if sys.argv[1:] == ["check"]:
        for name in stale:
            print(f"{name} differs: run {remedy}")
        return 1 if stale else 0
    for name in stale:
        (books.ROOT / name).write_bytes(due[name])
    return 0
