"""Records: results kept as JSON files, checked when they are read.

A record is one JSON object. Its ``"schema"`` is ``family/version``, for instance
``roofline_helpers.measured/1``. Each family has a `msgspec.Struct` or a dataclass for its fields;
`load` checks the file against its types. `roofline.storage` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from roofline_helpers.common.checks import RooflineError, shown

T = TypeVar("T")
"""The type that a record is read into."""

Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
"""A positive finite number."""

Natural: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
"""Zero or a positive finite number."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
"""A whole number from 1."""


class BadRecord(RooflineError, ValueError):
    """A file that is not a record, or one that this version of the package can't read.

    Examples
    --------
    >>> try:
    ...     loads("{", "copies/1", dict)
    ... except BadRecord as error:
    ...     print(str(error)[:30])
    damaged or no record: it is no
    """


def files(folder: Any) -> dict[str, Any]:
    """Return the JSON files of a folder or resource by name without suffix, sorted; {} if none."""
    there = sorted(folder.iterdir(), key=lambda file: file.name) if folder.is_dir() else []
    return {file.name.removesuffix(".json"): file for file in there if file.name.endswith(".json")}


def committed(package: str, *parts: str) -> Any:
    """Return a file or folder of a package's own data, as a resource."""
    return resources.files(package).joinpath("data", *parts)


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
    ...     seconds: Positive
    >>> loads('{"schema": "copies/1", "seconds": -1}', "copies/1", Copy)
    Traceback (most recent call last):
    ...
    roofline_helpers.common.records.BadRecord: seconds: expected `float` > 0.0
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
