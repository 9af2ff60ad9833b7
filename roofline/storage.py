"""Results as JSON files: written whole or not at all, as `roofline_helpers` reads them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from roofline_helpers.common.checks import BadValue, shown
from roofline_helpers.common.records import BadRecord, family_of


def dumps(data: Mapping[str, Any]) -> str:
    """Return a record as text: one line per member, and one line per item of a list.

    Examples
    --------
    >>> print(dumps({"schema": "copies/1", "seconds": [1.5, 2]}), end="")
    {
    "schema": "copies/1",
    "seconds": [
     1.5,
     2
    ]
    }
    """
    try:
        members = [f"{_line(name)}: {_member(value)}" for name, value in data.items()]
    except (TypeError, ValueError) as error:
        raise BadRecord(f"this can't be recorded: {error}") from None
    return "{\n" + ",\n".join(members) + "\n}\n"


def _member(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        return "[\n" + ",\n".join(f" {_line(item)}" for item in value) + "\n]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def save(path: str | os.PathLike[str], data: Mapping[str, Any]) -> Path:
    """Write a record atomically: the file is replaced as a whole, or stays as it was.

    It is written to a new file in the same folder, which is then moved over the old one, so that
    neither an interruption nor a full disk damages an earlier record.
    """
    family_of(data.get("schema"), "the record to save")
    return write(path, dumps(data))


def write(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text, as `save` does; a link, and the mode of a file, stay."""
    target = Path(os.path.realpath(path))  # a link stays one
    if not target.parent.is_dir():
        raise FileNotFoundError(2, "there is no folder", str(target.parent))
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, new)
        os.replace(new, target)
    finally:
        new.unlink(missing_ok=True)
    return Path(path)


def written(path: str | os.PathLike[str], ways: Mapping[str, Callable[[], str]]) -> Path:
    """Write a text, by the ending of the file's name.

    Raises
    ------
    BadValue
        There is no way to write such a file.
    """
    ending = Path(path).suffix
    if ending not in ways:
        *others, last = ways
        listed = f"{', '.join(others)} or {last}"
        raise BadValue(f"save to a file that ends in {listed}, got {shown(str(path))}")
    return write(path, ways[ending]())


def unusual(value: Any, usual: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that have another value than the usual one."""
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: member for name, member in values.items() if member != getattr(usual, name)}
