"""Records: results kept as JSON files, checked when they are read and never half written.

A record is one JSON object. Its ``"schema"`` is ``family/version``, for instance
``roofline_helpers.measured/1``. Whoever defines a family says which fields it has (`check`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from roofline_helpers._checks import RooflineError, shown

Fields: TypeAlias = "type | Callable[[Any], str | None] | Mapping[str, Any] | list[Any]"
"""What a value must be: a type; a function that returns what is wrong; a mapping of names to
fields, where "name?" may be missing or null; or ``[fields]``, a list of such values."""


class BadRecord(RooflineError, ValueError):
    """A file that is no record, or one that this version of the package can't read."""


def positive(value: Any) -> str | None:
    """Return what is wrong with a value that must be a positive finite number, else None."""
    wrong = not _number(value) or value <= 0
    return "must be a positive finite number" if wrong else None


def natural(value: Any) -> str | None:
    """Return what is wrong with a value that must be zero or a positive finite number."""
    wrong = not _number(value) or value < 0
    return "must be zero or a positive finite number" if wrong else None


def count(value: Any) -> str | None:
    """Return what is wrong with a value that must be a whole number from 1, else None."""
    return None if type(value) is int and value >= 1 else "must be a whole number from 1"


def table_of(fields: Fields) -> Callable[[Any], str | None]:
    """Return a check of a mapping from any names to values that fit `fields`."""

    def fits(value: Any) -> str | None:
        if not isinstance(value, Mapping):
            return "must be an object"
        for name, each in value.items():
            try:
                check(each, fields, name)
            except BadRecord as error:
                return f"has a wrong member: {error}"
        return None

    return fits


def check(value: Any, fields: Fields, where: str = "the record") -> None:
    """Raise BadRecord unless a value read from JSON has these fields.

    Parameters
    ----------
    value : object
        As `json.loads` returns it.
    fields : Fields
        What it must be. ``float`` takes whole numbers too, and no NaN; ``int`` no booleans.
        Members that `fields` does not name are allowed.
    where : str
        Its name, for the error.

    Raises
    ------
    BadRecord
        The message says where, what is allowed and what was found.

    Examples
    --------
    >>> check({"name": "copy", "seconds": 1}, {"name": str, "seconds": positive, "note?": str})
    >>> check({"name": "copy", "seconds": -1}, {"name": str, "seconds": positive})
    Traceback (most recent call last):
    ...
    roofline_helpers.records.BadRecord: seconds of the record must be a positive finite number, \
got -1 (int)
    """
    if isinstance(fields, Mapping):
        if not isinstance(value, Mapping):
            _refuse(where, "must be an object", value)
        for name, inner in fields.items():
            key, optional = name.removesuffix("?"), name.endswith("?")
            if value.get(key) is None:
                if not optional:
                    raise BadRecord(
                        f"{where} lacks {key!r}; it has {', '.join(value) or 'nothing'}"
                    )
                continue
            check(value[key], inner, f"{key} of {where}")
    elif isinstance(fields, list):
        if not isinstance(value, list):
            _refuse(where, "must be a list", value)
        for index, each in enumerate(value):
            check(each, fields[0], f"item {index} of {where}")
    elif isinstance(fields, type):
        right = _number(value) if fields is float else isinstance(value, fields)
        if not right or (isinstance(value, bool) and fields is not bool):
            _refuse(where, f"must be of type {fields.__name__}", value)
    else:
        wrong = fields(value)
        if wrong:
            _refuse(where, wrong, value)


def dumps(data: Mapping[str, Any]) -> str:
    """Return a record as text: one line a member, and one line an item of a list.

    Raises
    ------
    BadRecord
        Something that JSON can't hold, NaN and infinity included.
    """
    try:
        members = [f"{_line(name)}: {_member(value)}" for name, value in data.items()]
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRecord(f"this can't be recorded: {error}") from None
    return "{\n" + ",\n".join(members) + "\n}\n"


def _member(value: Any) -> str:
    if isinstance(value, list | tuple) and value:
        return "[\n" + ",\n".join(f" {_line(each)}" for each in value) + "\n]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def save(path: str | os.PathLike[str], data: Mapping[str, Any]) -> Path:
    """Write a record: the file is the whole new one, or stays as it was.

    It is written beside the target first and then moved over it, so that neither an interruption
    nor a full disk damages an earlier record.

    Raises
    ------
    BadRecord
        The data has no schema, or something that JSON can't hold.
    OSError
        The folder is not there or can't be written.
    """
    check(data, {}, "the record to save")
    _family(data.get("schema"), "the record to save")
    return write(path, dumps(data))


def write(path: str | os.PathLike[str], text: str) -> Path:
    """Write the text of a record, as `save` does; a link, and the mode of a file, stay.

    Raises
    ------
    OSError
        The folder is not there or can't be written.
    """
    target = Path(os.path.realpath(path))  # a link stays one
    mask = os.umask(0)
    os.umask(mask)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~mask
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)  # mkstemp makes it private
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    return Path(path)


def files(folder: Any) -> dict[str, Any]:
    """Return the JSON files of a folder or resource by name without suffix, sorted; {} if none."""
    found = {file.name: file for file in folder.iterdir()} if folder.is_dir() else {}
    return {
        name.removesuffix(".json"): found[name] for name in sorted(found) if name.endswith(".json")
    }


def committed(*parts: str) -> Any:
    """Return a file or folder of the records that the package brings along, as a resource."""
    return resources.files("roofline_helpers").joinpath("data", *parts)


def load(path: Any, schema: str, fields: Fields | None = None) -> dict[str, Any]:
    """Return a record after checking that it is one, of this schema, with these fields.

    Parameters
    ----------
    path : path or resource
        The file: anything with `read_text`, or a path.
    schema : str
        ``family/version`` that the reader understands.
    fields : Fields, optional
        See `check`.

    Raises
    ------
    BadRecord
        No such file; damaged (not JSON, or a field is wrong); foreign (another family); older or
        newer (another version). The message names the file.
    """
    file = path if hasattr(path, "read_text") else Path(path)
    try:
        return loads(file.read_text(encoding="utf-8"), schema, fields)
    except OSError as error:
        raise BadRecord(f"{path}: can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadRecord(f"{path}: damaged or no record: it is not UTF-8 text") from None
    except BadRecord as error:
        raise BadRecord(f"{path}: {error}") from None


def loads(text: str, schema: str, fields: Fields | None = None) -> dict[str, Any]:
    """Return the record that a text holds; see `load`.

    Raises
    ------
    BadRecord
        As in `load`.
    """
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise BadRecord(f"damaged or no record: it is not JSON ({error})") from None
    except RecursionError:
        raise BadRecord("damaged or no record: it is nested too deeply") from None
    if not isinstance(data, dict):
        raise BadRecord(f"no record: it must be a JSON object with a schema, got {shown(data)}")
    family, version = _family(data.get("schema"), "the file")
    wanted, known = _family(schema, "the schema")
    if family != wanted:
        raise BadRecord(
            f"a record of another kind: {family!r} ({data['schema']!r}), where {wanted!r} is needed"
        )
    if version != known:
        age = "an older" if version < known else "a newer"
        raise BadRecord(
            f"{age} record: version {version} of {family}, this package reads version {known}. "
            f"{'Measure again, or compile again' if version < known else 'Update the package'}"
        )
    if fields is not None:
        check(data, fields)
    return data


def _family(schema: Any, where: str) -> tuple[str, int]:
    found = re.fullmatch(r"([\w.]+)/(\d{1,6})", schema) if isinstance(schema, str) else None
    if found is None:
        raise BadRecord(f"no record: {where} has no schema 'family/version', got {shown(schema)}")
    return found[1], int(found[2])


def _number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return isinstance(value, int) or math.isfinite(value)


def _refuse(where: str, what: str, value: Any) -> NoReturn:
    raise BadRecord(f"{where} {what}, got {shown(value)}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
