"""A report as the text of a record, and back."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from roofline_helpers import __version__, records
from roofline_helpers.compiled.program import Memory
from roofline_helpers.hlo import Row

if TYPE_CHECKING:
    from roofline_helpers.compiled.report import Report

SCHEMA = "roofline_helpers.compiled/2"
"""What a record says of itself."""

REFUSED = "roofline_helpers.refused/1"
"""What the record of a program says of itself that the compiler refused."""

LARGEST_GROUPS = 64
"""Devices up to which a record lists the groups of an exchange; those of larger meshes are known
by their axis."""

LONGEST_PROGRAM = 8000
"""Characters of a program that a record keeps; of a longer one it keeps none."""


class Stored(msgspec.Struct):
    """What a record holds: the fields of a `Report`, and the program without notes."""

    schema: str
    name: str
    target: str
    platform: str
    devices: records.Count
    arguments: tuple[str, ...]
    jax_version: str
    compiler: str
    xla: dict[str, float]
    notes: tuple[str, ...]
    program: str
    rows: tuple[Row, ...]
    mesh: dict[str, int] = {}
    topology: str = ""
    memory: Memory | None = None
    requested_flops: float | None = None
    totals: dict[str, float] = {}  # for people who read it
    package: str = ""  # the version of this package that counted, in brief records


class Refusal(msgspec.Struct):
    """What a record holds of a program that doesn't fit."""

    schema: str
    message: str


def dumps(report: Report, *, brief: bool = False) -> str:
    """Return a report as the text of a record; briefly, what `changes` needs, a kernel a line."""
    kept: dict[str, Any] = {
        "schema": SCHEMA,
        "name": report.name,
        "target": report.target,
        "platform": report.platform,
        "devices": report.devices,
        "arguments": list(report.arguments),
        "jax_version": report.jax_version,
        "compiler": report.compiler,
        "xla": {} if brief else dict(sorted(report.xla.items())),
        "notes": [] if brief else list(report.notes),
        "program": "" if brief or len(report.program) > LONGEST_PROGRAM else report.program,
        "mesh": dict(report.mesh),
        "topology": report.topology,
        "memory": None if report.memory is None else asdict(report.memory),
        "requested_flops": report.requested_flops,
    }
    if brief:
        totals = {"hbm_bytes": report.hbm_bytes, "flops": report.flops}
        kept["package"] = __version__
        kept["totals"] = totals | {"seconds": float(f"{report.time_at_roof or 0:.4g}")}
        kept["rows"] = [_brief(row) for row in report.rows]
        return records.dumps(kept)
    kept["rows"] = [_unusual(row) for row in report.rows]
    return json.dumps(kept, indent=1, ensure_ascii=False) + "\n"


_UNREAD: dict[str, Any] = {
    "operations": {},
    "cycles": None,
    "windows": {},
    "tile_read": None,
    "padding": 0,
    "declared_bytes": None,
    "declared_flops": None,
}
"""Fields of a row that a brief record does without."""


_USUAL = Row("", "")


def _brief(row: Row) -> dict[str, Any]:
    told = _unusual(replace(row, **_UNREAD))
    if "flops" in told:
        told["flops"] = {name: n for name, n in told["flops"].items() if n}
    return told


def _unusual(row: Row) -> dict[str, Any]:
    """Return the fields of a row that don't have their usual value, and its name and opcode."""
    each = row.collective
    if each is not None and each.axis and sum(map(len, each.groups or ())) > LARGEST_GROUPS:
        row = replace(row, collective=replace(each, groups=None))
    held = {field.name: getattr(row, field.name) for field in fields(row)}
    return {
        name: asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in held.items()
        if value != getattr(_USUAL, name)
    }


def dumps_refusal(message: str) -> str:
    """Return what the compiler said of a program that doesn't fit as the text of a record."""
    return records.dumps({"schema": REFUSED, "message": message})


def load_refusal(path: Any) -> str:
    """Return what the compiler said; raise as `load`."""
    return records.load(path, REFUSED, Refusal).message


def loads(text: str) -> dict[str, Any]:
    """Return the fields of the report that the text of a record holds.

    Raises
    ------
    BadRecord
        Not a record, or one of another version: the message says what is wrong.
    """
    return _fields(records.loads(text, SCHEMA, Stored))


def counted_by(text: str) -> str:
    """Return the version of this package that made a brief record; "" where it doesn't say."""
    return str(records.loads(text, SCHEMA).get("package", ""))


def load(path: Any) -> dict[str, Any]:
    """Return the fields of the report that a record's file holds.

    Raises
    ------
    BadRecord
        As in `loads`; the message names the file.
    """
    return _fields(records.load(path, SCHEMA, Stored))


def _fields(stored: Stored) -> dict[str, Any]:
    fields = msgspec.structs.asdict(stored)
    del fields["schema"], fields["totals"], fields["package"]
    fields["text"] = fields.pop("program")
    return {**fields, "origin": "record"}
