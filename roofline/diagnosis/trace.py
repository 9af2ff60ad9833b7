"""The profiler's trace: events, runs, transfers, and the compiled programs in it."""

from __future__ import annotations

import bisect
import contextlib
import functools
import math
import operator
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from roofline.diagnosis.foreign import JAX, contents, instead
from roofline.diagnosis.program import Program
from roofline.xla.hlo import COLLECTIVES
from roofline.xla.lower import reason_of
from roofline.xla.pallas import PallasKernel
from roofline_helpers.common.checks import RooflineError

if TYPE_CHECKING:
    from jax.profiler import ProfileData, ProfileEvent, ProfilePlane

# --- Events of kernels, runs and transfers, read with JAX's own reader ---------------------------

RUN = "roofline_helpers.explain"
"""The annotation of a run that `explain` makes: its events in the host's plane are the windows."""


class CannotProfile(RooflineError, RuntimeError):
    """The profiler's trace has no kernels to read.

    Examples
    --------
    >>> issubclass(CannotProfile, RooflineError)
    True
    """


@dataclass(frozen=True, slots=True)
class Event:
    """One kernel, copy or thunk that ran, in seconds since the trace began.

    `op` is the instruction of the compiled program (empty if the trace doesn't name it), `label`
    the device's name of the kernel, `line` its stream or thread, `details` further facts.
    """

    op: str
    program: str
    start: float
    end: float
    line: str
    label: str = ""
    number: int | None = None
    details: str = ""

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Span:
    """A named span on the host, in seconds since the trace began."""

    name: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start


@dataclass(frozen=True)
class Trace:
    """The contents of one trace.

    Parameters
    ----------
    platform : {"cpu", "gpu", "tpu"}
        The kind of device that ran.
    devices : mapping of str to list of Event
        Events by plane, in the order in which they began.
    runs : list of Span
        Windows that the tracer marked as steps.
    host : list of Span
        Spans in which the host compiled.
    file : Path
        Where it comes from.
    data : bytes
        The file's bytes.
    facts : mapping of str to str
        Facts about its device: its name, its multiprocessors.
    chosen : str
        The plane to explain; by default the one that is busy for longest.
    """

    platform: str
    devices: Mapping[str, list[Event]]
    runs: list[Span]
    host: list[Span]
    file: Path
    data: bytes = field(default=b"", repr=False)
    facts: Mapping[str, str] = field(default_factory=dict)
    chosen: str = ""

    @functools.cached_property
    def device(self) -> str:
        """The plane that is explained: `chosen`, or the first of those that are busy longest."""
        busy = {name: union(events) for name, events in self.devices.items()}
        longest = (name for name, seconds in busy.items() if seconds > 0.98 * max(busy.values()))
        return self.chosen or next(longest)

    @property
    def events(self) -> list[Event]:
        """The events of `device`."""
        return self.devices[self.device]


_DEVICE = re.compile(r"/device:(GPU|TPU):\d+")  # without sparse cores and custom planes
# Lines that repeat the streams' events in another form
_DERIVED = re.compile(r"XLA|Steps|Framework|TensorFlow|Source|Launch Stats")
WAITS_FOR = "waiting for device "
"""The label of the part of an exchange in which another device hasn't arrived, with its number."""
_TRANSFER = re.compile(r"^(MemcpyH2D|MemcpyD2H|MemcpyP2P)")
_EXCHANGE = re.compile("|".join([*COLLECTIVES, "async-collective", "nccl", "rccl"]), re.IGNORECASE)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Return the trace in a file, or in a folder.

    Raises
    ------
    CannotProfile
        No trace there, one that can't be read, or one without any event of a device.
    """
    file = find_trace(path)
    data = _opened(file)
    devices: dict[str, list[Event]] = {}
    facts: dict[str, dict[str, str]] = {}
    thunks = _Thunks()
    runs: list[Span] = []
    host: list[Span] = []
    for plane in data.planes:
        if _DEVICE.fullmatch(plane.name):
            events = list(_of_device(plane))
            if events:
                devices[plane.name] = events
                facts[plane.name] = {name: str(value) for name, value in _stats(plane).items()}
        elif plane.name == "/host:CPU":
            for line in plane.lines:
                _of_host(line, thunks, runs, host)
    platform = "cpu"
    if devices:
        platform = "tpu" if any("TPU" in name for name in devices) else "gpu"
    else:
        for event in thunks.ended():  # several devices share the host's plane
            devices.setdefault(f"/device:CPU:{event.line.partition('|')[0]}", []).append(event)
    if not devices:
        why = instead(file) or (
            "the trace has no event of a device. Trace a program that runs, on a device that JAX's "
            "profiler knows (CPU, NVIDIA or AMD GPU, TPU)"
        )
        raise CannotProfile(f"{file}: {why}")
    for events in devices.values():
        events.sort(key=lambda event: (event.start, -event.end))
    runs.sort(key=lambda run: run.start)
    own = [run for run in runs if run.name == RUN]
    trace = Trace(platform, devices, own or runs, host, file, file.read_bytes())
    return replace(trace, facts=facts.get(trace.device, {}))


def union(events: Iterable[Event], start: float = -math.inf, end: float = math.inf) -> float:
    """Return the seconds of a window in which an event runs; events are in order of their start."""
    seconds, last = 0.0, start
    for event in events:
        seconds += max(min(event.end, end) - max(event.start, last), 0.0)
        last = max(last, event.end)
    return seconds


def concatenated(traces: Sequence[Trace]) -> Trace:
    """Return several traces of one program as one, each starting at the end of the one before."""
    first, *others = traces
    devices = {name: list(events) for name, events in first.devices.items()}
    runs, host = list(first.runs), list(first.host)
    for trace in others:
        ends = [event.end for events in devices.values() for event in events]
        last = max([*ends, *(span.end for span in (*runs, *host))])
        for name, events in trace.devices.items():
            devices.setdefault(name, []).extend(_later(event, last) for event in events)
        runs += (_later(run, last) for run in trace.runs)
        host += (_later(span, last) for span in trace.host)
    return replace(first, devices=devices, runs=runs, host=host)


_Timed = TypeVar("_Timed", Event, Span)


def _later(timed: _Timed, seconds: float) -> _Timed:
    return replace(timed, start=timed.start + seconds, end=timed.end + seconds)


def typical_runs(seconds: Sequence[float], goal: float) -> list[int]:
    """Return the positions of half of the runs: neighbours in length, their mean nearest a goal.

    The single run that is nearest comes first.
    """
    order = sorted(range(len(seconds)), key=lambda n: seconds[n])
    size = max(len(order) // 2, 1)
    halves = [order[n : n + size] for n in range(len(order) - size + 1)]
    nearest = min(halves, key=lambda half: abs(math.fsum(seconds[n] for n in half) / size - goal))
    return sorted(nearest, key=lambda n: abs(seconds[n] - goal))


def find_trace(path: str | os.PathLike[str]) -> Path:
    """Return the newest trace in a folder, or the file itself.

    Raises
    ------
    CannotProfile
        There is none.
    """
    where = Path(path)
    if where.is_file():
        return where
    files = sorted(where.rglob("*.xplane.pb"), key=lambda file: file.stat().st_mtime)
    if not files:
        missing = contents(where) if where.exists() else f"no such file or folder. {JAX}"
        raise CannotProfile(f"{where}: {missing}")
    return files[-1]


def _opened(file: Path) -> ProfileData:
    from jax.profiler import ProfileData

    try:
        return ProfileData.from_file(str(file))
    except Exception as error:
        why = instead(file) or f"no trace, or damaged ({reason_of(error)}). {JAX}"
        raise CannotProfile(f"{file}: {why}") from None


def _stats(event: ProfileEvent | ProfilePlane) -> dict[str, Any]:
    return {str(name): value for name, value in event.stats if name is not None}


def _of_device(plane: ProfilePlane) -> Iterable[Event]:
    """Yield the events of a GPU or a TPU, each once."""
    tpu = "TPU" in plane.name
    modules = [line.events for line in plane.lines if tpu and line.name == "XLA Modules"]
    runs = sorted((e.start_ns, e.end_ns, e.name) for module in modules for e in module)
    runs = [run for run in runs if re.search(r"\(\d+\)$", run[2])]
    for line in plane.lines:
        if "XLA Ops" not in line.name if tpu else _DERIVED.match(line.name):
            continue
        for event in line.events:
            stats = _stats(event)
            at = bisect.bisect_right(runs, event.start_ns, key=operator.itemgetter(0)) - 1
            if at >= 0 and event.start_ns < runs[at][1]:  # a TPU's programs have their own line
                name, _, number = runs[at][2].rstrip(")").rpartition("(")
                stats = {"hlo_module": name, "program_id": int(number), **stats}
            yield _event(event, stats, line.name, tpu)


def _event(event: ProfileEvent, stats: Mapping[str, Any], line: str, tpu: bool = False) -> Event:
    op, label = str(stats.get("hlo_op", "")), str(event.name)
    if not op and tpu:  # the name is the instruction's text: %fusion.3 = bf16[…] fusion(…)
        named = re.match(r"%?([\w.\-]+)(?: =|$)", label)
        op, label = (named.group(1), "") if named else ("", label)
        label = line if line.startswith("Async") else label  # from its start to its end
    number = stats.get("program_id")
    details = str(stats.get("kernel_details") or stats.get("memcpy_details") or "")
    return Event(
        op,
        str(stats.get("hlo_module", "")),
        event.start_ns * 1e-9,
        (event.start_ns + event.duration_ns) * 1e-9,
        line,
        label if label != op else "",
        int(number) if isinstance(number, int) else None,
        details,
    )


@dataclass
class _Thunks:
    """A CPU's events with their numbers, and the end of the work of each number."""

    begun: list[tuple[Event, Any]] = field(default_factory=list)
    ends: dict[Any, float] = field(default_factory=dict)

    def ended(self) -> list[Event]:
        """Return the events, each until its work ended, or until the next one began.

        The mark of the end may come late, from a thread that waits for a processor. Then the time
        belongs to the event that has begun since.
        """
        begun = sorted(self.begun, key=lambda pair: pair[0].start)
        starts = [event.start for event, _ in begun]
        events = []
        for event, number in begun:
            after = bisect.bisect_left(starts, event.end)
            latest = starts[after] if after < len(starts) else math.inf
            end = min(self.ends.get(number, event.end), latest)
            events.append(replace(event, end=max(event.end, end)))
        return events


def _of_host(line: Any, thunks: _Thunks, runs: list[Span], host: list[Span]) -> None:
    """Sort the events of a thread: thunks, marked runs, and what the host compiled."""
    for event in line.events:
        name = str(event.name)
        stats = _stats(event)
        if name.startswith("end: "):
            thunks.ends[stats.get("_c")] = event.start_ns * 1e-9
            continue
        if "hlo_op" in stats:
            device_line = f"{stats.get('device_ordinal', 0)}|{line.name}"
            thunks.begun.append((_event(event, stats, device_line), stats.get("_p", object())))
            continue
        start = event.start_ns * 1e-9
        span = Span(name, start, start + event.duration_ns * 1e-9)
        if "step_num" in stats or name == RUN:
            runs.append(span)
        elif "backend_compile" in name:
            host.append(span)


def is_transfer(event: Event) -> bool:
    """Return whether an event moves data between the host and the device."""
    return not event.op and _TRANSFER.match(event.label) is not None


def is_exchange(op: str, label: str) -> bool:
    """Return whether a kernel exchanges data between devices, by its names."""
    return _EXCHANGE.search(f"{op} {label}") is not None


# --- The compiled programs in a trace -------------------------------------------------------------

# Numbers of fields: XSpace.planes, XPlane.name and .event_metadata, XEventMetadata.name and .stats,
# a map entry's value, XStat.bytes_value, HloProto.hlo_module
_PLANES, _PLANE_NAME, _METADATA, _VALUE = 1, 2, 4, 2
_NAME, _STATS, _BYTES, _MODULE = 2, 5, 6, 1
# HloModuleProto.computations; of a computation its instructions and id; of an instruction its name,
# opcode and called computations
_COMPUTATIONS, _INSTRUCTIONS, _ID = 3, 2, 5
_INSTRUCTION, _OPCODE, _CALLED = 1, 2, 38


def programs_in(trace: Trace) -> dict[str, Program]:
    """Return the programs in a trace by name: "jit_f(8)", and "jit_f" for the last of them."""
    programs: dict[str, Program] = {}
    for name, proto in _protos(trace.data):
        module = b"".join(_message(proto)[_MODULE])
        text = _hlo_text(module) if module else None
        if text is not None:
            program = Program(text, trace.platform, wrapped_names(module))
            programs[name] = programs[name.partition("(")[0]] = program
    return programs


def program_of(
    compiled: Any, platform: str, calls: tuple[PallasKernel, ...], turns: Mapping[str, int]
) -> Program:
    """Return a JAX executable as a program, with the names that only its module has."""
    module = b""
    with contextlib.suppress(Exception):  # an executable that doesn't show its modules
        module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    return Program(compiled.as_text(), platform, wrapped_names(module), calls, turns)


def wrapped_names(module: bytes) -> dict[str, str]:
    """Return the asynchronous instruction that runs each instruction missing from the text.

    XLA prints an asynchronous fusion as ``%fusion-start = … fusion-start(…)``, and the profiler
    names the fusion inside.
    """
    inside: dict[int, list[str]] = {}
    starts: list[tuple[str, list[int]]] = []
    for computation in map(_message, _message(module)[_COMPUTATIONS]):
        names = inside.setdefault(sum(computation[_ID]), [])
        for instruction in map(_message, computation[_INSTRUCTIONS]):
            names.append(_text(instruction[_INSTRUCTION]))
            if instruction[_OPCODE] == [b"async-start"]:
                starts.append((names[-1], _numbers(instruction[_CALLED])))
    wrapped: dict[str, str] = {}
    for start, called in starts:
        for number in called:
            wrapped |= dict.fromkeys(inside.get(number, ()), start)
    return wrapped


def _protos(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the serialised HloProto of each program."""
    for plane in map(_message, _message(data)[_PLANES]):
        for entry in plane[_METADATA] if plane[_PLANE_NAME] == [b"/host:metadata"] else ():
            event = _message(b"".join(_message(entry)[_VALUE]))
            for stat in map(_message, event[_STATS]):
                for proto in stat[_BYTES]:
                    yield _text(event[_NAME]), proto


def _text(values: Sequence[Any]) -> str:
    return b"".join(values).decode("utf-8", "replace")


def _message(data: bytes) -> defaultdict[int, list[Any]]:
    """Return the values of each field of a serialised message: numbers, and bytes of the others."""
    values: defaultdict[int, list[Any]] = defaultdict(list)
    at = 0
    with contextlib.suppress(IndexError):  # cut short
        while at < len(data):
            tag, at = _number(data, at)
            size = {1: 8, 5: 4}.get(tag & 7, 0)  # fixed-width fields: none of them is needed here
            if tag & 7 in (0, 2):
                size, at = _number(data, at)
            if tag & 7 == 0:
                values[tag >> 3].append(size)
                continue
            values[tag >> 3].append(data[at : at + size])
            at += size
    return values


def _numbers(values: Sequence[Any]) -> list[int]:
    """Return the numbers of a repeated field, packed or not."""
    numbers = [value for value in values if isinstance(value, int)]
    for packed in values:
        at = 0
        while isinstance(packed, bytes) and at < len(packed):
            number, at = _number(packed, at)
            numbers.append(number)
    return numbers


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _hlo_text(module: bytes) -> str | None:
    """Return a serialised HloModuleProto as text; None where this JAX can't."""
    try:
        return str(_module_class().from_serialized_hlo_module_proto(module).to_string())
    except Exception:
        return None


@functools.cache
def _module_class() -> Any:
    """Return JAX's class of compiled modules, which has no public name, from an instance."""
    import jax

    compiled = jax.jit(lambda: 0).lower().compile()
    return type(compiled.runtime_executable().hlo_modules()[0])
