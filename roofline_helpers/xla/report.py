"""The numbers of a compiled program, and the record that keeps them."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from roofline_helpers import __version__, chips
from roofline_helpers.common import records
from roofline_helpers.common.checks import single
from roofline_helpers.evidence.verdicts import assumed_floor
from roofline_helpers.roofline import Roofline
from roofline_helpers.roofline.model import bound_of
from roofline_helpers.xla import display
from roofline_helpers.xla.changes import Changes, changes
from roofline_helpers.xla.collectives import Collective, whole
from roofline_helpers.xla.compiler import Memory
from roofline_helpers.xla.kernel import (
    CompiledKernel,
    Exchange,
    Group,
    Links,
    Timeline,
    exchanges_of,
    grouped,
    main_dtype,
    timeline_of,
)
from roofline_helpers.xla.ledger import Row
from roofline_helpers.xla.module import brief
from roofline_helpers.xla.pallas import PallasKernel
from roofline_helpers.xla.targets import NoCompiler, chip_of, clock_of

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


# --- What a compiled program does in all: FLOPs, bytes and seconds, the sums of its kernels' -----


@dataclass(frozen=True, repr=False)
class Report:
    """What XLA made of a function for one device.

    Everything is per device and per run of the program. `mesh` are the axes of the mesh that it is
    spread over, `topology` the layout of the chips, `memory` what it needs of a device,
    `requested_flops` what the function's products ask of all devices together. `xla` holds
    what `cost_analysis` said, unchanged. `origin` is "compiled" or "record"; it is not printed, so
    that a page shows the same values either way. `seconds` is how long compiling and analysing
    took, `calls` are its Pallas kernels as traced, which a record doesn't keep.

    Examples
    --------
    >>> from roofline_helpers.xla import records
    >>> report = records()["ledger-matmul", "v6e"]
    >>> report.target, report.flops, report.bound
    ('v6e', 17179869184.0, 'compute')
    """

    name: str
    target: str
    platform: str
    arguments: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    xla: Mapping[str, float]
    jax_version: str
    compiler: str
    devices: int = 1
    mesh: Mapping[str, int] = field(default_factory=dict)
    topology: str = ""
    memory: Memory | None = None
    requested_flops: float | None = None
    origin: str = field(default="compiled", compare=False)
    seconds: float = field(default=0.0, compare=False)
    text: str = field(default="", compare=False, repr=False)
    calls: tuple[PallasKernel, ...] = field(default=(), compare=False, repr=False)

    @functools.cached_property
    def chip(self) -> chips.Chip | None:
        """One device of the chip that it was compiled for; None where it is not in the table."""
        chip = chip_of(self.target)
        return None if chip is None else chip.per_device()

    @functools.cached_property
    def kernels(self) -> tuple[CompiledKernel, ...]:
        """The kernels in the order in which they run."""
        alone = None
        if len(self.rows) == 1 and self.xla_seconds is not None:
            alone = self.xla_seconds * self.rows[0].launches
        return tuple(CompiledKernel.of(row, self.chip, alone, self._links) for row in self.rows)

    @functools.cached_property
    def _links(self) -> Links | None:
        chip = chip_of(self.target)
        return None if chip is None else Links(chip.key, self.topology, self.mesh, self.devices)

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """Exchanges between devices, each once, in order."""
        return whole(row.collective for row in self.rows if row.collective is not None)

    # -- FLOPs and bytes -------------------------------------------------------------------------

    @property
    def matrix_flops(self) -> float:
        """FLOPs of matrix products, and those that custom calls declare."""
        return sum(kernel.matrix_flops for kernel in self.kernels)

    @property
    def extra(self) -> float | None:
        """How many times the FLOPs of the products that were asked for the program computes.

        More than 1 where XLA computes a product again, or where devices do the same work; None
        where it isn't known what was asked for.
        """
        if not self.requested_flops or self.unknown or any(row.loop for row in self.rows):
            return None
        return self.matrix_flops * self.devices / self.requested_flops

    @property
    def vector_flops(self) -> float:
        """FLOPs of everything else, transcendentals included."""
        return sum(kernel.vector_flops for kernel in self.kernels)

    @property
    def transcendentals(self) -> float:
        """Exponentials and their like."""
        return sum(kernel.transcendentals for kernel in self.kernels)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Kernels whose FLOPs are not known – undeclared custom calls, unknown instructions."""
        return tuple(kernel.name for kernel in self.kernels if kernel.flops is None)

    @property
    def flops(self) -> float:
        """FLOPs of all kernels; a lower bound where `unknown` names some."""
        return self.matrix_flops + self.vector_flops

    @property
    def traffic(self) -> dict[str, float]:
        """Bytes read and written, by memory level, and bytes sent to other devices."""
        total: dict[str, float] = {"hbm": 0}
        for kernel in self.kernels:
            for level, n in kernel.traffic.items():
                total[level] = total.get(level, 0) + n
        return total

    @property
    def read_bytes(self) -> int:
        """Bytes read from HBM."""
        return sum(kernel.read.get("hbm", 0) for kernel in self.kernels)

    @property
    def written_bytes(self) -> int:
        """Bytes written to HBM."""
        return sum(kernel.written.get("hbm", 0) for kernel in self.kernels)

    @property
    def hbm_bytes(self) -> int:
        """Bytes read from and written to HBM, each operand of a kernel counted once."""
        return self.read_bytes + self.written_bytes

    @property
    def most_bytes(self) -> int:
        """HBM bytes at most: more than `hbm_bytes` where data choose blocks of Pallas kernels."""
        return sum(kernel.most_bytes for kernel in self.kernels)

    @property
    def tiled_bytes(self) -> int:
        """HBM bytes with the re-reads that the tiles of matrix products imply."""
        return sum(kernel.tiled_bytes for kernel in self.kernels)

    @property
    def padding_bytes(self) -> int:
        """Bytes that the padding of tiles in HBM adds to `hbm_bytes`."""
        return sum(row.padding * row.launches for row in self.rows)

    @property
    def intensity(self) -> float:
        """Arithmetic intensity at HBM, FLOP/byte; infinite where nothing crosses HBM."""
        return self.flops / self.hbm_bytes if self.hbm_bytes else math.inf

    # -- seconds ---------------------------------------------------------------------------------

    @functools.cached_property
    def _parts(self) -> dict[str, float]:
        """Seconds by what bounds them – see `time_at_roof`."""
        parts = dict.fromkeys(("memory", "compute", "network", "latency"), 0.0)
        for kernel in self._alone:
            parts[bound_of(kernel.limit or "")] += kernel.roof_seconds or 0.0
        waited = zip(self.kernels, self.timeline.exposed, strict=True)
        parts["network"] += sum(seconds for kernel, seconds in waited if kernel.row.overlaps)
        return parts

    @property
    def _alone(self) -> list[CompiledKernel]:
        """Return the kernels that run while no other does."""
        return [each for each in self.kernels if not each.row.overlaps]

    @property
    def _streams(self) -> dict[str, float]:
        """Seconds that each shared resource needs for the whole program."""
        return {
            "memory": sum(kernel.times.get("hbm", 0.0) for kernel in self.kernels),
            "network": max(self.timeline.busy.values(), default=0.0),
        }

    @property
    def time_at_roof(self) -> float | None:
        """Least seconds – kernels one after another, each as long as its slowest part.

        Asynchronous copies and exchanges run at the same time, as far as HBM and links allow. None
        where the chip is not in the table.
        """
        if self.chip is None:
            return None
        return max(sum(self._parts.values()), *self._streams.values())

    @property
    def time_at_most(self) -> float | None:
        """`time_at_roof` with `most_bytes`, and vector work at an assumed peak where none is known.

        "Known" means published: see `targets.assumed_vector_peak`.
        """
        if self.chip is None:
            return None
        parts, streams = self._at_most
        return max(sum(parts.values()), *streams.values())

    @property
    def _at_most(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return `_parts` and `_streams` by `CompiledKernel.times_at_most`."""
        parts, streams = dict(self._parts), dict(self._streams)
        for kernel in self._alone:
            parts[bound_of(kernel.limit or "")] -= kernel.roof_seconds or 0.0
            parts[bound_of(kernel.most_limit or "")] += kernel.most_seconds or 0.0
            if kernel.roof is not None:
                streams["memory"] += (kernel.most_bytes - kernel.hbm_bytes) / kernel.roof.bandwidth
        return parts, streams

    @property
    def floor(self) -> float | None:
        """Seconds that a launch takes at least: measured, for a TPU assumed (`verdicts`)."""
        if self.chip is None:
            return None
        return self.chip.floor.value if self.chip.floor else assumed_floor(self.chip.kind)

    @property
    def time_with_floor(self) -> float | None:
        """Seconds of all kernels, each launch and each turn of a loop no less than `floor`."""
        if self.floor is None:
            return None
        return max(sum(self._with_floor.values()), *self._streams.values())

    @property
    def _with_floor(self) -> dict[str, float]:
        """Return `_parts` with the kernels that are shorter than their floors as "latency"."""
        parts = dict(self._parts)
        for kernel in self._alone:
            floor = (self.floor or 0.0) * kernel.launches
            if floor > (kernel.roof_seconds or 0.0):
                parts[bound_of(kernel.limit or "")] -= kernel.roof_seconds or 0.0
                parts["latency"] += floor
        return parts

    @property
    def bounds(self) -> tuple[str, ...]:
        """What most of the time may go to: one word, or several where it depends.

        It depends where it isn't the same for `time_at_roof`, `time_at_most` and
        `time_with_floor`. Empty where kernels whose FLOPs are unknown take more than a tenth of
        it: they may be bound by what nobody knows.
        """
        whole = self.time_at_roof
        unknown = (kernel.roof_seconds or 0.0 for kernel in self.kernels if kernel.flops is None)
        if not whole or sum(unknown) > 0.1 * whole:
            return ()
        ends = ((self._parts, self._streams), self._at_most, (self._with_floor, self._streams))
        return tuple(dict.fromkeys(_busiest(*end) for end in ends))

    @property
    def bound(self) -> str | None:
        """What most of the time goes to – "memory", "compute", "network" or "latency".

        None where nobody knows, or where it depends (`bounds`).
        """
        return self.bounds[0] if len(self.bounds) == 1 else None

    @property
    def cycle_seconds(self) -> float | None:
        """The compiler's cycles of all kernels that state them, at the chip's clock.

        A lower bound where `without_cycles` counts some.
        """
        stated = [k.cycle_seconds for k in self.kernels if k.cycle_seconds is not None]
        return sum(stated) if stated else None

    @property
    def without_cycles(self) -> int:
        """How many kernels the compiler gives no cycles for, of those that nothing overlaps."""
        alone = (kernel for kernel in self.kernels if not kernel.row.overlaps)
        return sum(kernel.row.cycles is None for kernel in alone)

    @property
    def clock(self) -> tuple[float, str] | None:
        """The clock behind `cycle_seconds` – Hz, and where it comes from."""
        return clock_of(self.chip)

    @functools.cached_property
    def timeline(self) -> Timeline:
        """When kernels and exchanges run at the earliest, by the compiled schedule."""
        return timeline_of(self.kernels)

    @functools.cached_property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Exchanges between devices, each once, with their least time and what of it shows."""
        return exchanges_of(self.kernels, self._links)

    # -- what XLA says ---------------------------------------------------------------------------

    @property
    def xla_flops(self) -> float | None:
        """What `cost_analysis` calls "flops"; None where it says nothing."""
        return self.xla.get("flops")

    @property
    def xla_bytes(self) -> float | None:
        """What `cost_analysis` calls "bytes accessed" – all memories, copies between them too."""
        return self.xla.get("bytes accessed")

    @property
    def xla_seconds(self) -> float | None:
        """What `cost_analysis` calls "optimal_seconds"; None where it is missing or negative.

        XLA subtracts a second for each call whose cost it doesn't know, so a negative sum means
        nothing.
        """
        optimal = self.xla.get("optimal_seconds")
        return optimal if optimal is not None and optimal >= 0 else None

    def groups(self, by: str = "scope") -> tuple[Group, ...]:
        """Return its kernels by what they have in common, those that take longest first.

        Parameters
        ----------
        by : {"scope", "line", "role"}
            Named scopes (else functions) and passes, lines of code, or what kernels do.

        Raises
        ------
        UnknownName
            Another way to group.
        """
        return grouped(self.kernels, by)

    def diff(self, other: Report) -> Changes:
        """Return what changed from this program to another: kernels, exchanges, tensors, time.

        Examples
        --------
        >>> print(before.diff(after))  # doctest: +SKIP
        2 changes: 1.2 ms by the roof became 1.9 ms (+58.3%)
          mlp.up (model.py:18): grew: 1 kernels → 2; HBM 134 MB → 403 MB; …
        """
        return changes(self, other)

    @property
    def program(self) -> str:
        """The compiled program as HLO text, without the compiler's notes (`hlo.brief`).

        Records keep short programs only: of a long one it is empty there.
        """
        return brief(self.text)

    # -- shown, drawn, kept ----------------------------------------------------------------------

    def roofline(self, dtype: Any = None) -> Roofline:
        """Return the roofline of the device, for its main data type unless one is given.

        Raises
        ------
        NoCompiler
            The device is not in the chip table.
        """
        if self.chip is None:
            raise NoCompiler(f"{self.target} is not in the chip table: it has no roofline here")
        return self.chip.roofline(self._main_dtype(self.chip) if dtype is None else dtype)

    def _main_dtype(self, chip: chips.Chip) -> str:
        """Return the type of the largest products, as far as the chip has a peak for it."""
        busiest = max(self.kernels, key=lambda kernel: kernel.matrix_flops, default=None)
        types = busiest.row.matrix_types if busiest is not None else ()
        dtype = main_dtype(types) or "bf16"
        known = {**chip.vector, **chip.matrix}
        default_passes = dtype == "fp32" and chip.kind == "tpu"
        if dtype not in known or (default_passes and "highest" not in types[0]):
            return "bf16" if "bf16" in known else next(iter(chip.matrix))
        return dtype

    def table(self, by: str | None = None) -> pandas.DataFrame:
        """Return one row a kernel, in the order in which they run; units in the column names.

        Parameters
        ----------
        by : {"scope", "line", "role"}, optional
            One row a group instead, as `groups` makes them.
        """
        return display.table(self) if by is None else display.group_table(self.groups(by))

    def plot(self, ax: Axes | None = None, labels: int = 5) -> Axes:
        """Draw every kernel on the chip's roofline, sized by its share of the time.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.
        labels : int
            How many kernels get a name: those that take longest.

        Raises
        ------
        NoCompiler
            The device is not in the chip table.
        BadValue
            No kernel has both FLOPs and HBM bytes.
        """
        return display.plot(self, ax, labels)

    def __str__(self) -> str:
        return display.text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return display.html(self)

    def to_json(self, *, brief: bool = False) -> str:
        """Return the report as the text of a record. `Report.from_json` reads it.

        Parameters
        ----------
        brief : bool
            Only what `diff` needs, one line a kernel: a baseline that people can read.
        """
        return dumps_report(self, brief=brief)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the report that a record holds; its `origin` is "record".

        Raises
        ------
        BadRecord
            Not a record, or one of another version: the message says what is wrong.
        """
        return cls(**loads_report(text))


def _busiest(parts: Mapping[str, float], streams: Mapping[str, float]) -> str:
    """Return what most time goes to: a shared resource, or what bounds the kernels."""
    busiest = max(streams, key=lambda name: streams[name])
    if streams[busiest] > sum(parts.values()):
        return busiest
    return max(parts, key=lambda name: parts[name])


# --- A report as the text of a record, and back --------------------------------------------------

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


def dumps_report(report: Report, *, brief: bool = False) -> str:
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


def loads_report(text: str) -> dict[str, Any]:
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


def load_report(path: Any) -> dict[str, Any]:
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


# --- A compiled program at the ceilings that were reached, in the place of published ones --------


@dataclass(frozen=True)
class AtReached:
    """Seconds of a program, one kernel after another, by what bounds each.

    `compute` are kernels that FLOPs bound, `fed` products that bytes bound, `memory` other kernels
    that bytes bound. `attention` are Pallas kernels, `network` what the program waits for exchanges
    by its own schedule.

    Examples
    --------
    >>> AtReached(compute=2e-3, attention=1e-3, memory=1e-3, network=0.0).seconds
    0.004
    """

    compute: float
    attention: float
    memory: float
    network: float
    fed: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of all."""
        return sum(self.waterfall().values())

    def waterfall(self) -> Mapping[str, float]:
        """Return what `seconds` is made of, in order."""
        return {
            "products": self.compute,
            "products that wait for memory": self.fed,
            "Pallas kernels": self.attention,
            "passes over memory": self.memory,
            "exchanges that wait": self.network,
        }


def at_reached(report: Report, *, filled: float = 1.0) -> AtReached:
    """Return the time of a program for a TPU at reached ceilings, exchanges by its schedule.

    Parameters
    ----------
    report : Report
        Of one device.
    filled : float
        Share of the matrix unit that products of Pallas kernels fill, which the program doesn't
        say.

    Raises
    ------
    BadType, BadValue
        Not a positive number.
    """
    share = single("filled", filled)
    links = Links(report.target, report.topology, report.mesh, report.devices)
    kernels = [_reached(kernel, links) for kernel in report.kernels]
    parts = dict.fromkeys(("compute", "fed", "memory", "network", "attention"), 0.0)
    slowed = []
    for kernel in kernels:
        if kernel.row.opcode == "custom-call" and kernel.bound == "compute" and kernel.roof:
            kernel = replace(kernel, roof=replace(kernel.roof, peak=kernel.roof.peak * share))
        slowed.append(kernel)
        if not kernel.row.overlaps and kernel.limit is not None:
            parts[_part(kernel)] += kernel.roof_seconds or 0.0
    exposed = timeline_of(slowed).exposed
    waited = zip(slowed, exposed, strict=True)
    parts["network"] += sum(seconds for kernel, seconds in waited if kernel.row.overlaps)
    return AtReached(**parts)


def _part(kernel: CompiledKernel) -> str:
    """Return the part of `AtReached` that a kernel's time belongs to."""
    if kernel.row.opcode == "custom-call":
        return "attention"
    bound = kernel.bound or "memory"
    return "fed" if bound == "memory" and kernel.row.matrix_flops else bound


def _reached(kernel: CompiledKernel, links: Links) -> CompiledKernel:
    """Return a kernel under reached ceilings, its exchange on links as they reach."""
    exchange = kernel.row.collective
    seconds = None if exchange is None else links.seconds(exchange, reached=True)
    return replace(kernel, roof=kernel.ceilings(reached=True), link_seconds=seconds)
