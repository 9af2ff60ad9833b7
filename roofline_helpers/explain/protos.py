"""The compiled programs that a trace carries along, or that lie in a folder of XLA's dumps.

A trace's plane ``/host:metadata`` has the HLO of every program that was alive, as a serialised
`HloProto` a program, named ``jit_f(8)``. JAX's reader doesn't hand it out, so the few fields that
lead there are read here from the file itself (protocol buffers: tag, length, content), and XLA
turns them into text.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roofline_helpers.explain.program import Program
from roofline_helpers.explain.trace import CannotProfile, Trace
from roofline_helpers.hlo.blocks import PallasKernel

# Numbers of fields: XSpace.planes, XPlane.name and .event_metadata, XEventMetadata.name and .stats,
# a map entry's value, XStat.bytes_value, HloProto.hlo_module
_PLANES, _PLANE_NAME, _METADATA, _VALUE = 1, 2, 4, 2
_NAME, _STATS, _BYTES, _MODULE = 2, 5, 6, 1
# HloModuleProto.computations; of a computation its instructions and id; of an instruction its name,
# opcode and called computations
_COMPUTATIONS, _INSTRUCTIONS, _ID = 3, 2, 5
_INSTRUCTION, _OPCODE, _CALLED = 1, 2, 38


def carried(trace: Trace) -> dict[str, Program]:
    """Return the programs that a trace carries, by name: "jit_f(8)" and, of the last, "jit_f"."""
    programs: dict[str, Program] = {}
    for name, proto in _protos(trace.data):
        module = _first(proto, _MODULE)
        text = _text(module) if module else None
        if text is not None:
            program = Program(text, trace.platform, wrapped(module))
            programs[name] = programs[name.partition("(")[0]] = program
    return programs


@dataclass(frozen=True)
class Shown:
    """What an executable of JAX's shows of itself: its text, and its module serialised."""

    text: str
    module: bytes
    calls: tuple[PallasKernel, ...]
    turns: Mapping[str, int]

    def program(self, platform: str) -> Program:
        """Return it as a program."""
        return Program(self.text, platform, wrapped(self.module), self.calls, self.turns)


def shown(compiled: Any, calls: tuple[PallasKernel, ...], turns: Mapping[str, int]) -> Shown | None:
    """Return what an executable shows of itself; None where there is no executable."""
    if compiled is None:
        return None
    module = b""
    with contextlib.suppress(Exception):  # an executable that doesn't show its modules
        module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    return Shown(compiled.as_text(), module, calls, turns)


def wrapped(module: bytes) -> dict[str, str]:
    """Return which asynchronous instruction runs each instruction that its text doesn't show.

    XLA prints an asynchronous fusion as ``%fusion-start = … fusion-start(…)``, and the profiler
    names the fusion inside.
    """
    names: dict[int, list[str]] = {}
    starts: list[tuple[str, list[int]]] = []
    for field, content in _fields(module):
        if field != _COMPUTATIONS or not isinstance(content, bytes):
            continue
        number, inside = 0, []
        for part, value in _fields(content):
            if part == _ID and isinstance(value, int):
                number = value
            elif part == _INSTRUCTIONS and isinstance(value, bytes):
                name = _first(value, _INSTRUCTION).decode("utf-8", "replace")
                inside.append(name)
                if _first(value, _OPCODE) == b"async-start":
                    starts.append((name, _numbers(value, _CALLED)))
        names[number] = inside
    return {
        name: start
        for start, called in starts
        for number in called
        for name in names.get(number, ())
    }


def _protos(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the serialised HloProto of each program."""
    for plane in _all(data, _PLANES):
        if _first(plane, _PLANE_NAME) != b"/host:metadata":
            continue
        for entry in _all(plane, _METADATA):
            event = _first(entry, _VALUE)
            name = _first(event, _NAME).decode("utf-8", "replace")
            for stat in _all(event, _STATS):
                proto = _first(stat, _BYTES)
                if proto:
                    yield name, proto


def _all(data: bytes, field: int) -> list[bytes]:
    return [value for n, value in _fields(data) if n == field and isinstance(value, bytes)]


def _first(data: bytes, field: int) -> bytes:
    return next(iter(_all(data, field)), b"")


def _numbers(data: bytes, field: int) -> list[int]:
    """Return a repeated number, packed or not."""
    numbers: list[int] = []
    for n, value in _fields(data):
        if n != field:
            continue
        if isinstance(value, int):
            numbers.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _number(value, at)
            numbers.append(number)
    return numbers


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and content of each field of a message."""
    at = 0
    try:
        while at < len(data):
            tag, at = _number(data, at)
            kind = tag & 7
            if kind == 0:
                number, at = _number(data, at)
                yield tag >> 3, number
            elif kind == 2:
                size, at = _number(data, at)
                yield tag >> 3, data[at : at + size]
                at += size
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
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
    try:
        return str(_kind().from_serialized_hlo_module_proto(module).to_string())
    except Exception:
        return None


@functools.cache
def _kind() -> Any:
    """Return JAX's class of compiled modules, which nothing public names: that of one it made."""
    import jax

    compiled = jax.jit(lambda: 0).lower().compile()
    return type(compiled.runtime_executable().hlo_modules()[0])


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
