"""The compiled programs that a trace carries along, or that lie in a folder of XLA's dumps.

A trace's plane ``/host:metadata`` has the HLO of every program that was alive, as a serialised
`HloProto` a program, named ``jit_f(8)``. JAX's reader doesn't hand it out, so the few fields that
lead there are read here from the file itself (protocol buffers: tag, length, content), and XLA
turns them into text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roofline_helpers.explain.program import Program
from roofline_helpers.explain.trace import CannotProfile, Trace

# Numbers of fields: XSpace.planes, XPlane.name and .event_metadata, XEventMetadata.name and .stats,
# a map entry's value, XStat.bytes_value, HloProto.hlo_module
_PLANES, _PLANE_NAME, _METADATA, _VALUE = 1, 2, 4, 2
_NAME, _STATS, _BYTES, _MODULE = 2, 5, 6, 1


def carried(trace: Trace) -> dict[str, Program]:
    """Return the programs that a trace carries, by name: "jit_f(8)" and, of the last, "jit_f"."""
    programs: dict[str, Program] = {}
    for name, proto in _protos(trace.file.read_bytes()):
        modules = [content for number, content in _fields(proto) if number == _MODULE]
        text = _text(modules[0]) if modules else None
        if text is not None:
            programs[name] = programs[name.partition("(")[0]] = Program(text, trace.platform)
    return programs


def _protos(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the serialised HloProto of each program."""
    for number, plane in _fields(data):
        if number != _PLANES:
            continue
        parts = list(_fields(plane))
        if (_PLANE_NAME, b"/host:metadata") not in parts:
            continue
        for entry in (content for field, content in parts if field == _METADATA):
            values = dict(_fields(entry))
            event = list(_fields(values.get(_VALUE, b"")))
            name = next((c for f, c in event if f == _NAME), b"").decode("utf-8", "replace")
            for stat in (content for field, content in event if field == _STATS):
                proto = dict(_fields(stat)).get(_BYTES)
                if proto:
                    yield name, proto


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and content of each field of a message; numbers' content is empty."""
    at = 0
    try:
        while at < len(data):
            tag, at = _number(data, at)
            kind = tag & 7
            if kind == 0:
                _, at = _number(data, at)
                yield tag >> 3, b""
            elif kind == 2:
                size, at = _number(data, at)
                yield tag >> 3, data[at : at + size]
                at += size
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
                yield tag >> 3, b""
            else:
                return
    except IndexError:  # cut short
        return


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _text(module: bytes) -> str | None:
    """Return a serialised HloModuleProto as text; None where this JAX can't."""
    import jax

    try:
        compiled = jax.jit(lambda: 0).lower().compile()
        kind: Any = type(compiled.runtime_executable().hlo_modules()[0])
        return str(kind.from_serialized_hlo_module_proto(module).to_string())
    except Exception:
        return None


_OPTIMIZED = re.compile(r"\.(?:sm_[\w.]+_gpu|cpu|gpu|tpu)?_?after_optimizations\.txt$")


def dumped(folder: str | os.PathLike[str], platform: str) -> dict[str, Program]:
    """Return the programs that XLA dumped into a folder, or one file, by the name of their module.

    Raises
    ------
    CannotProfile
        No such folder, or no optimised program in it.
    """
    where = Path(folder)
    if where.is_file():
        files = [where]
    else:
        texts = sorted(where.rglob("*.txt"))
        files = [each for each in texts if _OPTIMIZED.search(each.name)] or [
            each for each in texts if each.read_text("utf-8", "replace").startswith("HloModule")
        ]
    programs = {}
    for file in files:
        text = file.read_text("utf-8", "replace")
        if text.startswith("HloModule"):
            program = Program(text, platform)
            programs[program.module.name] = program
    if not programs:
        raise CannotProfile(
            f"{where}: no compiled program there. XLA_FLAGS='--xla_dump_to=FOLDER "
            "--xla_dump_hlo_as_text' writes *after_optimizations.txt, or save compiled.as_text()"
        )
    return programs
