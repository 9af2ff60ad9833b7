"""The numbers of a compiled program, and its record."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from roofline import storage
from roofline.terminal import markdown, text_of
from roofline.xla import display
from roofline.xla.buffers import Buffer
from roofline.xla.causes import Finding
from roofline.xla.changes import Changes, changes
from roofline.xla.collectives import CollectiveOp
from roofline.xla.compiler import MemoryStats
from roofline.xla.expected import as_one_call, combined, expected_of, floor_of_launch
from roofline.xla.flops import Flops
from roofline.xla.hlo import brief
from roofline.xla.kernel import (
    CompiledKernel,
    Links,
    TimedCollective,
    Timeline,
    exchanges_of,
    grouped,
    kernel_of,
    timeline_of,
)
from roofline.xla.ledger import Row
from roofline.xla.metadata import SourceLine, scope_of
from roofline.xla.minimum import Needed
from roofline.xla.pallas import PallasKernel
from roofline.xla.roofs import DeviceRoofs
from roofline.xla.targets import chip_of, clock_of
from roofline_helpers import __version__, chips
from roofline_helpers.common.records import Count
from roofline_helpers.measured.kernels import Expected
from roofline_helpers.roofline import FLOOR, bound_of

if TYPE_CHECKING:
    import pandas


# --- Totals of a compiled program: FLOPs, bytes and seconds of its kernels -----------------------


@dataclass(frozen=True, repr=False)
class Report:
    """The program that XLA compiled from a function, for one device.

    `needed` is what the result needs at least, `expected` what the compiled program takes,
    `findings` are the causes between the two, the largest loss first: None where nobody looked, as
    in most records. Everything is per device and run, in FLOPs, bytes, seconds. `memory.total` is
    what a device needs; `requested_flops` are those of the function's matmuls, for all devices;
    `xla` is what `cost_analysis` says; `origin` is "compiled" or "record"; `calls` are its Pallas
    kernels as traced, and `buffers` what is alive in HBM when it needs most of it, the largest
    first: a record has neither.

    Examples
    --------
    >>> from roofline.xla import records
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
    devices: Count = 1
    mesh: Mapping[str, int] = field(default_factory=dict)
    topology: str = ""
    memory: MemoryStats | None = None
    requested_flops: float | None = None
    needed: Needed | None = None
    findings: tuple[Finding, ...] | None = None
    origin: str = field(default="compiled", compare=False)
    text: str = field(default="", compare=False, repr=False)
    written: str = field(default="", compare=False, repr=False)
    calls: tuple[PallasKernel, ...] = field(default=(), compare=False, repr=False)
    buffers: tuple[Buffer, ...] = field(default=(), compare=False, repr=False)
    package: str = field(default="", compare=False, repr=False)
    summary: str = field(default="", compare=False, repr=False)

    @functools.cached_property
    def chip(self) -> chips.Chip | None:
        """One device of the chip that it was compiled for; None if it is not in the table."""
        return None if self._whole_chip is None else self._whole_chip.per_device()

    @functools.cached_property
    def _whole_chip(self) -> chips.Chip | None:
        return chip_of(self.target)

    @functools.cached_property
    def kernels(self) -> tuple[CompiledKernel, ...]:
        """The kernels in the order in which they run."""
        device = DeviceRoofs(self.chip)
        return tuple(kernel_of(row, device, self.links) for row in self.rows)

    @functools.cached_property
    def links(self) -> Links | None:
        """The network between its devices; None if the chip is not in the table."""
        chip = self._whole_chip
        return None if chip is None else Links(chip, self.topology, self.mesh, self.devices)

    @functools.cached_property
    def ends(self) -> tuple[Report, ...]:
        """The program if data choose the cheapest branches of conditionals, and the dearest ones.

        Only itself if nothing depends on them.
        """
        if all(row.dearest is None for row in self.rows):
            return (self,)
        cheapest = tuple(row.running(row.launches) for row in self.rows)
        dearest = tuple(row.at_dearest for row in self.rows)
        return replace(self, rows=cheapest), replace(self, rows=dearest)

    # -- FLOPs and bytes -------------------------------------------------------------------------

    @property
    def matrix_flops(self) -> float:
        """FLOPs of matmuls, and those that custom calls declare."""
        return sum(kernel.matrix_flops for kernel in self.kernels)

    @property
    def extra(self) -> float | None:
        """The program's matmul FLOPs over those the function asks for; None if unknown."""
        if not self.requested_flops or not self.matrix_flops or self.at_least:
            return None
        return self.matrix_flops * self.devices / self.requested_flops

    @property
    def vector_flops(self) -> float:
        """FLOPs of everything else, transcendentals included."""
        return sum(kernel.vector_flops for kernel in self.kernels)

    @property
    def transcendentals(self) -> float:
        """Exponentials and their like."""
        return sum(k.work.flops.transcendentals * k.launches for k in self.kernels)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Kernels whose FLOPs are not known – undeclared custom calls, unknown instructions."""
        return tuple(kernel.name for kernel in self.kernels if kernel.flops is None)

    @property
    def flops(self) -> float:
        """FLOPs of all kernels; a lower bound if `most_flops` is more."""
        return self.matrix_flops + self.vector_flops

    @property
    def most_flops(self) -> float:
        """Most FLOPs, if data choose branches; infinite if `unknown` or `at_least` isn't empty."""
        return math.inf if self.unknown or self.at_least else max(end.flops for end in self.ends)

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
    def at_least(self) -> str:
        """Why counts are only the least, such as a loop of unknown trip count; else empty."""
        loops = dict.fromkeys(row.loop for row in self.rows if row.loop)
        reasons = [f"the trip count of {', '.join(loops)} is unknown"] if loops else []
        reasons += [f"{row.name}: {row.at_least}" for row in self.rows if row.at_least]
        return "; ".join(dict.fromkeys(reasons))

    @property
    def most_bytes(self) -> float:
        """Most HBM bytes, if data choose branches or blocks; infinite with `at_least`."""
        return max(sum(kernel.most_bytes for kernel in end.kernels) for end in self.ends)

    @property
    def host_bytes(self) -> int:
        """Bytes to and from the host, over a link of unknown rate – no time, no bound."""
        return sum(kernel.host_bytes for kernel in self.kernels)

    @property
    def intensity(self) -> float | None:
        """FLOP/byte at HBM; a lower bound with `unknown` FLOPs, None with `at_least`."""
        if self.at_least:
            return None
        return self.flops / self.hbm_bytes if self.hbm_bytes else math.inf

    # -- seconds ---------------------------------------------------------------------------------

    @property
    def _alone(self) -> list[CompiledKernel]:
        return [kernel for kernel in self.kernels if not kernel.work.overlaps]

    @functools.cached_property
    def _cases(self) -> tuple[tuple[float, str], ...]:
        """Least seconds and their largest part: by the roof, by `times_at_most`, with `floor`."""
        if self.chip is None:
            return ((0.0, ""),) * 3
        alone = self._alone
        roof = [(kernel.roof_seconds or 0.0, kernel.limit or "") for kernel in alone]
        most = [(kernel.most_seconds or 0.0, kernel.most_limit or "") for kernel in alone]
        floors = [((self.floor or 0.0) * kernel.launches, FLOOR) for kernel in alone]
        longer = [max(first, second) for first, second in zip(floors, roof, strict=True)]
        return self._total(roof), self._total(most, more=True), self._total(longer)

    def _total(self, ends: Sequence[tuple[float, str]], more: bool = False) -> tuple[float, str]:
        """Return the seconds of all kernels, and their largest part.

        Kernels run one after another; asynchronous copies and exchanges overlap with them, as far
        as HBM and links allow.
        """
        parts = dict.fromkeys(("memory", "compute", "network", "latency"), 0.0)
        for seconds, limit in ends:
            parts[bound_of(limit)] += seconds
        waited = zip(self.kernels, self.timeline.exposed, strict=True)
        parts["network"] += sum(seconds for kernel, seconds in waited if kernel.work.overlaps)
        times = [kernel.times_at_most if more else kernel.times for kernel in self.kernels]
        memory = sum(time.get("hbm", 0.0) for time in times)
        shared = {"memory": memory, "network": max(self.timeline.busy.values(), default=0.0)}
        whole = sum(parts.values())
        busiest = max(shared, key=lambda name: shared[name])
        if shared[busiest] > whole:
            return shared[busiest], busiest
        return whole, max(parts, key=lambda name: parts[name])

    @property
    def time_at_roof(self) -> float | None:
        """Least seconds of the program as compiled, by the roofs of its kernels one after another.

        What the result needs may take less. None if the chip is not in the table. Asynchronous
        copies and exchanges overlap as far as HBM and links allow.
        """
        return None if self.chip is None else min(end._cases[0][0] for end in self.ends)

    @property
    def time_at_most(self) -> float | None:
        """`time_at_roof` with `most_bytes` and assumed vector peaks, infinite without a bound."""
        if self.chip is None:
            return None
        unbounded = any(end.host_bytes for end in self.ends)
        return math.inf if unbounded else max(end._cases[1][0] for end in self.ends)

    @functools.cached_property
    def expected(self) -> Expected | None:
        """The time to expect – `seconds`, from `low` to `high`, its `source`, and `why`.

        A GPU's kernels take what measured ones like them took, a TPU's the compiler's cycles or the
        reached roof. Without `seconds`, kernels that nobody measured may take any time above `low`.
        None if the chip is not in the table.
        """
        if self.chip is None:
            return None
        alone = [
            (likely, kernel)
            for likely, kernel in zip(self.likely, self.kernels, strict=True)
            if not kernel.work.overlaps and kernel.launches
        ]
        counted = [(likely.known, kernel.limit or "") for likely, kernel in alone]
        whole, _ = self._total(counted)
        found = combined([likely for likely, _ in alone], whole, self.chip)
        launches = [kernel.launches for _, kernel in alone]
        found = as_one_call(found, launches, self.chip)
        most = self.time_at_most or 0.0
        if len(self.ends) > 1:
            most = max(end.expected.high for end in self.ends if end.expected is not None)
        cached = self.chip.kind == "gpu" and found.seconds is not None  # small operands may be
        low = found.low if cached else max(found.low, self.time_at_roof or 0.0)
        return replace(found, low=low, high=max(found.high, most))

    @functools.cached_property
    def likely(self) -> tuple[Expected, ...]:
        """The time to expect of each kernel, over all its launches."""
        return tuple(expected_of(kernel) for kernel in self.kernels)

    @functools.cached_property
    def floor(self) -> float | None:
        """Least seconds of a launch among others, measured or assumed."""
        return None if self.chip is None else floor_of_launch(self.chip)

    @property
    def time_with_floor(self) -> float | None:
        """Least seconds if no launch and no iteration of a loop takes less than `floor`."""
        return None if self.chip is None else self._cases[2][0]

    @property
    def bounds(self) -> tuple[str, ...]:
        """The largest parts of `time_at_roof`, `time_at_most` and `time_with_floor`, each once.

        Empty with `at_least` or `host_bytes`, or if kernels of unknown FLOPs take more than a tenth
        of the time: at least what HBM would take for all their bytes, even those in VMEM.
        """
        if self.at_least or any(end.host_bytes for end in self.ends):
            return ()
        found: dict[str, None] = {}
        for end in self.ends:
            unknown = [kernel for kernel in end.kernels if kernel.flops is None and kernel.roof]
            moved = (sum(k.traffic.values()) / k.roof.bandwidth for k in unknown if k.roof)
            whole = end.time_at_roof or 0.0
            if sum(moved) > 0.1 * whole:
                return ()
            found |= dict.fromkeys(bound for _, bound in end._cases if whole)
        return tuple(found)

    @property
    def bound(self) -> str | None:
        """The only one of `bounds`, else None – "memory", "compute", "network" or "latency"."""
        return self.bounds[0] if len(self.bounds) == 1 else None

    @property
    def cycle_seconds(self) -> float | None:
        """The compiler's cycles at the chip's clock; a lower bound if `without_cycles` isn't 0."""
        stated = [k.cycle_seconds for k in self.kernels if k.cycle_seconds is not None]
        return sum(stated) if stated else None

    @property
    def without_cycles(self) -> int:
        """Number of kernels without cycles from the compiler, asynchronous ones left out."""
        return sum(kernel.work.cycles is None for kernel in self._alone)

    @property
    def clock(self) -> tuple[float, str] | None:
        """The clock behind `cycle_seconds` – Hz, and its source."""
        return clock_of(self.chip)

    @functools.cached_property
    def timeline(self) -> Timeline:
        """The seconds that rows wait (`exposed`) and links are `busy`, by the compiled schedule."""
        return timeline_of(self.kernels)

    @functools.cached_property
    def exchanges(self) -> tuple[TimedCollective, ...]:
        """Exchanges between devices, over all launches `seconds` on the links, of them `exposed`.

        Each has a `collective` (`kind`, `axis`, `bytes_in`, `bytes_out`, `group_size`, and
        `link_bytes`, which one device sends), a `role` and a `source` line.
        """
        return exchanges_of(self.kernels)

    # -- XLA's own numbers -----------------------------------------------------------------------

    def _by_xla(self, name: str) -> float | None:
        """Return a total of `cost_analysis`, which writes −1 or −2 for what it doesn't know."""
        total = self.xla.get(name)
        return total if total is not None and total >= 0 else None

    @property
    def xla_flops(self) -> float | None:
        """The "flops" of `cost_analysis`; None if missing, or unknown to it."""
        return self._by_xla("flops")

    @property
    def xla_bytes(self) -> float | None:
        """The "bytes accessed" of `cost_analysis`, in all memories; None as of `xla_flops`."""
        return self._by_xla("bytes accessed")

    @property
    def xla_seconds(self) -> float | None:
        """The "optimal_seconds" of `cost_analysis`; None as of `xla_flops`."""
        return self._by_xla("optimal_seconds")

    def groups(self, by: str = "scope") -> dict[str, list[CompiledKernel]]:
        """Return its kernels in groups, the longest first.

        Parameters
        ----------
        by : {"scope", "function", "line", "role"}
            Scopes have passes and layers' numbers, functions haven't.

        Raises
        ------
        UnknownName
            Another way to group.
        """
        return grouped(self.kernels, by)

    def diff(self, other: Report) -> Changes:
        """Return the changes from this program to another; false if there are none.

        `describe()` is all of them as text; `changes`, the most expensive first, have a `kind`, a
        `location`, a `line`, a `text`, and the increase of `seconds`, `hbm_bytes` and `flops`.

        Examples
        --------
        >>> print(before.diff(after).describe())  # doctest: +SKIP
        2 changes: 1.2 ms expected became 1.9 ms (+58.3%); its result needs 1 ms
          mlp.up (model.py:18): grew: 1 kernels → 2; HBM 134 MB → 403 MB; …
        """
        return changes(self, other) or changes(self.ends[-1], other.ends[-1])

    @property
    def program(self) -> str:
        """Its HLO text without the compiler's notes; empty in the record of a long program."""
        return brief(self.text)

    # -- display and records ---------------------------------------------------------------------

    def table(self) -> pandas.DataFrame:
        """Return one row per kernel, in the order in which they run; units in the column names."""
        return display.table(self)

    def describe(self) -> str:
        """Return it as text as wide as the terminal: what to do, the numbers, kernels, notes."""
        return text_of(*display.parts(self))

    def __repr__(self) -> str:
        return f"<{display.headline(self)}>"

    def _repr_html_(self) -> str:
        return display.html(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file by its ending, as `Explanation.save` does: .html, .md or .json.

        Raises
        ------
        BadValue
            Another ending.
        OSError
            The folder is not there or can't be written.
        """
        ways = {
            ".html": lambda: display.html(self, whole=True),
            ".md": lambda: markdown(*display.parts(self)),
            ".json": self.to_json,
        }
        return storage.written(path, ways)

    def to_json(self, *, brief: bool = False) -> str:
        """Return the report as the text of a record. `Report.from_json` reads it.

        Parameters
        ----------
        brief : bool
            Only what `diff` compares, one line for all kernels that are alike: a readable baseline.
        """
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        record = {key: record[key] for key in record if key not in _LEFT_OUT}
        record = {"schema": SCHEMA, "summary": display.headline(self), **record}
        record["rows"] = _compared(self.rows) if brief else [_unusual(row) for row in self.rows]
        record["text"] = self.program if len(self.program) <= LONGEST_PROGRAM else ""
        if brief:
            empty: dict[str, Any] = {
                "xla": {},
                "notes": [],
                "text": "",
                "needed": None,
                "findings": None,
            }
            record |= {**empty, "package": __version__}
        unknown = [name for name in ("needed", "findings") if record[name] is None]
        record = {name: record[name] for name in record if name not in unknown}
        return storage.dumps(msgspec.to_builtins(record))

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the report in a record's text; its `origin` is "record".

        Raises
        ------
        BadRecord
            Not a record, or one of another version: the message says what is wrong.
        """
        return _read(storage.loads(text, SCHEMA, cls))


# --- A report as the text of a record, and back --------------------------------------------------

SCHEMA = "roofline.compiled/3"
"""The header of a record."""

REFUSED = "roofline.refused/1"
"""The header of the record of a program that the compiler refused."""

LARGEST_GROUPS = 64
"""Most devices for which a record lists the groups of an exchange; larger meshes have only its
axis."""

LONGEST_PROGRAM = 8000
"""Most characters of a program in a record; a longer program is left out."""

_LEFT_OUT = {"origin", "written", "calls", "buffers", "package", "summary"}
"""Fields of a report that a whole record leaves out."""


_WAYS = {"backward": "transpose()", "recomputed": "rematted_computation"}
"""The part of JAX's name that says a kernel's pass."""


def _compared(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return what `diff` compares of rows: those that are alike once, unless exchanges need order.

    Names and lines of code are left out: any edit above them changes them.
    """
    brief = [_brief(row) for row in rows]
    if any(row.collective for row in rows):
        return brief
    distinct = []
    for row in brief:
        if row not in distinct:
            distinct.append(row)
    counts = [brief.count(row) for row in distinct]
    for row, count in zip(distinct, counts, strict=True):
        if count > 1:
            row["alike"] = count
    return distinct


def _brief(row: Row) -> dict[str, Any]:
    scope = scope_of(row.op_name)
    collective, source = row.collective, row.source
    names = _WAYS.get(scope.step), *scope.path, scope.primitive
    bare = replace(
        row,
        name="",
        opcode="",
        op_name="/".join(name for name in names if name),
        source=None if scope.path or source is None else replace(source, line=0),
        operations={},
        flops=replace(row.flops, transcendentals=0),
        cycles=None,
        padding=0,
        matmul=(),
        form=None,
        behind=row.behind if collective else 0,
    )
    brief = storage.unusual(bare, Row())
    if collective is not None:
        groups = collective.groups if collective.windowed else None
        brief["collective"] = replace(collective, name="", channel="", groups=groups)
    usual = {"flops": Flops(), "source": SourceLine(""), "collective": CollectiveOp()}
    inside = {key: storage.unusual(brief[key], usual[key]) for key in usual if key in brief}
    return {**brief, **inside}


def _unusual(row: Row) -> dict[str, Any]:
    """Return the fields of a row that don't have their usual value, and its name and opcode."""
    exchange = row.collective
    if exchange and exchange.axis and sum(map(len, exchange.groups or ())) > LARGEST_GROUPS:
        row = replace(row, collective=replace(exchange, groups=None))
    return storage.unusual(row, Row())


def load_report(path: Any) -> Report:
    """Return the report in a record's file; its `origin` is "record".

    Raises
    ------
    BadRecord
        Not a record, or one of another version: the message says what is wrong, and names the file.
    """
    return _read(storage.load(path, SCHEMA, Report))


def _read(report: Report) -> Report:
    rows = (replace(row, alike=1) for row in report.rows for _ in range(row.alike))
    return replace(report, rows=tuple(rows), origin="record")


def load_refusal(path: Any) -> str:
    """Return the compiler's message about a program that doesn't fit; raise as `load_report`."""
    return str(storage.load(path, REFUSED, dict)["message"])
