"""The result of `explain`, and the records that keep it."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from roofline import storage
from roofline.diagnosis import display, page
from roofline.diagnosis.ceilings import Roofs
from roofline.diagnosis.devices import DeviceTime
from roofline.diagnosis.findings import Finding
from roofline.diagnosis.rows import KERNEL, NOTHING, Bar, TimedRow, grouped, waterfall
from roofline.terminal import markdown, text_of
from roofline.xla.minimum import Needed
from roofline.xla.roofs import main_dtype
from roofline_helpers import chips
from roofline_helpers.common.checks import UnknownName, name_of
from roofline_helpers.measured.kernels import Expected
from roofline_helpers.roofline import Roofline

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class Explanation:
    """Where the time of one call goes: rows, waterfall, findings.

    Parameters
    ----------
    name, arguments : str, tuple of str
        The function's name, and its arguments as text.
    platform, device : str
        "cpu", "gpu" or "tpu", and what the device is called.
    origin : {"measured", "trace"}
        Whether it ran here, or is read from a trace.
    runs, traced : tuple of float
        Seconds of a call, run by run: without the profiler, and with it.
    rows : tuple of TimedRow
        Kernels in the order in which they first run, and the gaps between them.
    findings : tuple of Finding
        Causes, largest loss first; none if they are `withheld`.
    ungraphed : tuple of float
        `runs` without CUDA graphs, as the profiler needs it, where JAX uses them by default.
    graphs : tuple of float
        Of the book's records, whose `runs` are without CUDA graphs: runs in them.
    queue : int
        Calls that were queued before one was awaited.
    withheld : str
        Why shares of the call say nothing: a busy CPU, a profiler that slows the call. The findings
        are then those of the compiled program.
    compiling : float
        Seconds that tracing and compiling took.
    hand : float or None
        Least seconds of the work counted by hand.
    needed : Needed or None
        What the function's result needs at least: no repair that keeps the algorithm takes less.
    expected : Expected or None
        `seconds` of the call if each kernel does as well as good ones of its size, from `low` to
        `high`, and `why`.
    roofs : Roofs
        Its ceilings: `published` and `reached`, FLOP/s by data type and byte/s as "hbm", and the
        `origin` of the second.
    devices : tuple of DeviceTime
        The time of each device, if several ran. The rows are those of the one that waits longest.
    energy : mapping of str to float, optional
        Of the book's records on an H200: `joules` and `seconds` of a call in a `loop` of so many
        seconds, Hz of the `clock`, and the watts when `idle`.
    notes : tuple of str
        What limits these numbers.

    Examples
    --------
    >>> from roofline.diagnosis import ladder
    >>> why = ladder.committed()["decode"].steps[0].why
    >>> why.platform, why.rows[0].kind, why.wall > 0
    ('gpu', 'kernel', True)
    """

    name: str
    arguments: tuple[str, ...]
    platform: str
    device: str
    origin: str
    runs: tuple[float, ...]
    rows: tuple[TimedRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    traced: tuple[float, ...] = ()
    ungraphed: tuple[float, ...] = ()
    graphs: tuple[float, ...] = ()
    queue: int = 1
    withheld: str = ""
    compiling: float = 0.0
    hand: float | None = None
    needed: Needed | None = None
    expected: Expected | None = None
    roofs: Roofs = field(default_factory=Roofs)
    devices: tuple[DeviceTime, ...] = ()
    energy: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()
    software: Mapping[str, str] = field(default_factory=dict)
    date: str = ""

    @property
    def wall(self) -> float:
        """Seconds of one call by the clock, without the profiler – the median."""
        return statistics.median(self.runs)

    @property
    def covered(self) -> float:
        """Seconds of all rows together."""
        return sum(row.seconds for row in self.rows)

    @property
    def unexplained(self) -> float:
        """Seconds of the wall time in no row; negative if the profiler slowed the call down."""
        return self.wall - self.covered

    @cached_property
    def groups(self) -> tuple[TimedRow, ...]:
        """The rows, longest first; the same kernel of all layers is one row."""
        return tuple(sorted(grouped(self.rows), key=lambda row: -row.seconds))

    @property
    def kernels(self) -> tuple[TimedRow, ...]:
        """The groups that are kernels, the longest first."""
        return tuple(row for row in self.groups if row.kind == KERNEL)

    @property
    def roofless(self) -> float:
        """Seconds of kernels without a roof, if they are more than a twentieth of the call."""
        bare = math.fsum(row.seconds for row in self.kernels if row.reachable is None)
        return bare if bare > 0.05 * self.wall else 0.0

    @cached_property
    def chip(self) -> chips.Chip | None:
        """One device of its chip; None if that is not in the table."""
        with contextlib.suppress(UnknownName):
            return None if self.platform == "cpu" else chips.chip(self.device).per_device()
        return None

    @property
    def least(self) -> float | None:
        """The roof of the compiled program, in seconds by published ceilings: its own least time.

        What the result needs may take less. None without published ceilings.
        """
        roofed = [row.least for row in self.rows if row.reachable is not None]
        least = [seconds for seconds in roofed if seconds is not None]
        return math.fsum(least) if roofed and len(least) == len(roofed) else None

    @cached_property
    def waterfall(self) -> tuple[Bar, ...]:
        """The steps from the least time to the clock's, whose `seconds` add up to `wall`."""
        return waterfall(self.groups, self.wall, self.hand)

    def row(self, name: str) -> TimedRow:
        """Return a row by its name.

        Raises
        ------
        UnknownName
            No such row; the message gives the nearest.
        """
        by_name = {row.name: row for row in self.rows}
        return by_name[name_of("row", name, by_name)]

    @property
    def dtype(self) -> str:
        """The data type of the matmuls that take longest; empty without matmuls."""
        products = (row for row in self.kernels if row.kernel.matrix_types)
        return next((main_dtype(row.kernel.matrix_types) or "" for row in products), "")

    def roofline(self, dtype: str | None = None) -> Roofline:
        """Return the reached roofline of the device, else the published one.

        Raises
        ------
        BadValue
            Nothing is known of the device.
        """
        return self.roofs.roofline(dtype or self.dtype, self.device)

    def table(self, by: str = "kernel") -> pandas.DataFrame:
        """Return rows, the longest first, with units in the column names; the last is the rest.

        Parameters
        ----------
        by : {"kernel", "function", "device"}
            A row a kernel or gap, where the same kernel of all layers is one; a row a named scope
            or function, with all its layers and passes; or a row a device.

        Raises
        ------
        UnknownName
            Another way to group.

        Examples
        --------
        >>> from roofline.diagnosis import ladder
        >>> why = ladder.committed()["decode"].steps[0].why
        >>> why.table().index[0] == why.groups[0].title
        True
        """
        ways = {
            "kernel": display.table,
            "function": display.function_table,
            "device": display.device_table,
        }
        return ways[name_of("way to group rows", by, ways)](self)

    def plot(self, ax: Axes | None = None, kind: str = "waterfall") -> Axes:
        """Draw the "waterfall" of one call, or its kernels under the "roofline"."""
        from roofline.diagnosis import pictures

        kinds = {"waterfall": pictures.waterfall, "roofline": pictures.roofline}
        return kinds[name_of("picture", kind, kinds)](self, ax)

    def describe(self) -> str:
        """Return it as text as wide as the terminal: the answer in words, then the tables."""
        return text_of(*display.parts(self))

    def __repr__(self) -> str:
        end = ", shares withheld" if self.withheld else ""
        return f"<{self.name} on {self.device}: {display.headline(self)}{end}>"

    def _repr_html_(self) -> str:
        return page.html(self, whole=False)

    def to_json(self) -> str:
        """Return it as the text of a record, without the usual fields of rows and kernels."""
        rows = [storage.unusual(row, TimedRow("")) for row in self.rows]
        for row in rows:
            if "kernel" in row:
                row["kernel"] = storage.unusual(row["kernel"], NOTHING)
        members = {member.name: getattr(self, member.name) for member in fields(self)}
        return storage.dumps({"schema": SCHEMA, **msgspec.to_builtins(members | {"rows": rows})})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file by its ending.

        ``why.html`` is one page that needs no network, ``why.md`` a text for an issue or a forum,
        ``why.json`` a record.

        Raises
        ------
        BadValue
            Another ending.
        OSError
            The folder is not there or can't be written.
        """
        ways = {
            ".html": lambda: page.html(self, whole=True),
            ".md": lambda: markdown(*display.parts(self)),
            ".json": self.to_json,
        }
        return storage.written(path, ways)


# --- Explanations from records -------------------------------------------------------------------

SCHEMA = "roofline.explained/2"
"""The header of a record."""


def load_explanation(path: str | os.PathLike[str]) -> Explanation:
    """Return the explanation that a record's file holds.

    Raises
    ------
    BadRecord
        No such file, not a record, or one of another version: the message says what is wrong.

    Examples
    --------
    >>> load_explanation("why.json")
    Traceback (most recent call last):
    ...
    roofline_helpers.common.records.BadRecord: why.json: can't be read: No such file or directory
    """
    return storage.load(path, SCHEMA, Explanation)
