"""Results as JSON files: written whole or not at all, and checked when they are read.

Each family of records has a `msgspec.Struct` or a dataclass for its fields; `load` checks a file
against its types.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from roofline_helpers.common.checks import BadValue, shown
from roofline_helpers.common.records import BadRecord

T = TypeVar("T")
"""The type that a record is read into."""

MOST_IN_A_LINE = 12
"""Members of a mapping that a record writes in one line; with more, each has a line of its own."""


def dumps(data: Mapping[str, Any]) -> str:
    """Return a record as text that can be reviewed: a line for each member, item and entry.

    A mapping is a table of entries if it has many, or if each is a mapping itself.

    Examples
    --------
    >>> print(dumps({"schema": "copies/1", "seconds": [1.5], "by": {"a": {"n": 2}}}), end="")
    {
    "schema": "copies/1",
    "seconds": [
     1.5
    ],
    "by": {
     "a": {"n": 2}
    }
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
    if isinstance(value, Mapping) and _is_table(value):
        entries = [f" {_line(name)}: {_line(entry)}" for name, entry in value.items()]
        return "{\n" + ",\n".join(entries) + "\n}"
    return _line(value)


def _is_table(value: Mapping[str, Any]) -> bool:
    nested = bool(value) and all(isinstance(entry, Mapping) for entry in value.values())
    return nested or len(value) > MOST_IN_A_LINE


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


# --- Reading ------------------------------------------------------------------------------------


def load(path: Any, schema: str, kind: type[T]) -> T:
    """Return a record after checking that it is one, of this schema, with the fields of `kind`.

    Parameters
    ----------
    path : path or resource
        The file.
    schema : str
        ``family/version`` that the reader understands.
    kind : type
        The type of the result: a `msgspec.Struct`, dataclass, TypedDict or dict. Members without a
        field in a struct or dataclass are an error, except for the schema.

    Raises
    ------
    BadRecord
        No such file; damaged (not JSON, or a field is wrong); foreign (another family); older or
        newer (another version). The message names the file, and the field.
    """
    file = path if hasattr(path, "read_bytes") else Path(path)
    try:
        return loads(file.read_bytes(), schema, kind)
    except OSError as error:
        raise BadRecord(f"{path}: can't be read: {error.strerror or error}") from None
    except BadRecord as error:
        raise BadRecord(f"{path}: {error}") from None


def loads(text: str | bytes, schema: str, kind: type[T]) -> T:
    """Return the record that a text holds; see `load`.

    Examples
    --------
    >>> class Copy(msgspec.Struct):
    ...     schema: str
    ...     seconds: float
    >>> loads('{"schema": "copies/1", "seconds": "one"}', "copies/1", Copy)
    Traceback (most recent call last):
    ...
    roofline_helpers.common.records.BadRecord: seconds: expected `float`, got `str`
    """
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRecord(f"damaged or no record: it is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise BadRecord(f"no record: it must be a JSON object with a schema, got {shown(data)}")
    _same_family(data.get("schema"), schema)
    return _converted(data, kind)  # type: ignore[no-any-return]


def _converted(data: dict[str, Any], kind: Any) -> Any:
    if kind is dict:
        return data
    try:
        value = msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise BadRecord(_explained(error)) from None
    known = {"schema": None, **msgspec.to_builtins(value)}
    for unknown in _dropped(data, known, ""):
        raise BadRecord(unknown)
    return value


def _explained(error: msgspec.ValidationError) -> str:
    reason, _, path = str(error).partition(" - at `$")
    return f"{path.strip('.`') or 'the record'}: {reason[:1].lower()}{reason[1:]}"


def _dropped(data: Any, known: Any, path: str) -> Iterator[str]:
    """Yield a message for each member of the data that its type doesn't have."""
    if isinstance(data, dict):
        for name, member in data.items():
            if name not in known:
                yield f"{path.removeprefix('.') or 'the record'} has an unknown member {name!r}"
            else:
                yield from _dropped(member, known[name], f"{path}.{name}")
    elif isinstance(data, list):
        for at, pair in enumerate(zip(data, known, strict=True)):
            yield from _dropped(*pair, f"{path}[{at}]")


def _same_family(schema: Any, wanted: str) -> None:
    family, version = family_of(schema, "the file")
    needed, known = family_of(wanted, "the schema")
    if family != needed:
        raise BadRecord(
            f"a record of another kind: {family!r} ({schema!r}), where {needed!r} is needed"
        )
    if version != known:
        age = "an older" if version < known else "a newer"
        raise BadRecord(
            f"{age} record: version {version} of {family}, this package reads version {known}. "
            f"{'Measure again, or compile again' if version < known else 'Update the package'}"
        )


def family_of(schema: Any, where: str) -> tuple[str, int]:
    """Return the family and the version that a schema names; raise BadRecord if it isn't one."""
    parts = re.fullmatch(r"([\w.]+)/(\d{1,6})", schema) if isinstance(schema, str) else None
    if parts is None:
        raise BadRecord(f"no record: {where} has no schema 'family/version', got {shown(schema)}")
    return parts[1], int(parts[2])
