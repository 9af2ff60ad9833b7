"""Ask the compiler: FLOPs, HBM bytes and kernels of any JAX function, for TPUs you don't own.

    report = analyze(jax.nn.softmax, jax.ShapeDtypeStruct((8192, 8192), "bfloat16"), chip="v6e")

`analyze` compiles the function with XLA and reads the compiled program with `roofline_helpers.hlo`,
whose docstring says what is counted, and how. On Linux x86-64 the TPU compiler (the package
`libtpu`, which `jax[tpu]` brings) compiles for TPU v4, v5e, v5p, v6e and v7x without any TPU.
Where it can't be installed, a committed record of the same compilation takes its place.

Three times stand beside each other: the roofline's over the bytes and FLOPs counted here; the
compiler's own cycle estimate of each kernel at the chip's clock; and XLA's `optimal_seconds`, which
exists for the whole program only.

Tested with JAX 0.7.2, 0.10.2 and 0.12.0.1, each with the libtpu that it pins. JAX and Matplotlib
are imported when they are needed.
"""

from __future__ import annotations

import contextlib
import functools
import html
import importlib.metadata
import importlib.util
import inspect
import json
import math
import os
import platform as host
import re
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline_helpers import hardware, hlo
from roofline_helpers._checks import (
    BadType,
    BadValue,
    RooflineError,
    UnknownName,
    flag,
    name_of,
    shown,
    text,
    whole,
)
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.hlo import Collective
from roofline_helpers.records import BadRecord, committed, files, loads, write
from roofline_helpers.roofline import NETWORK, Roofline
from roofline_helpers.show import si, significant
from roofline_helpers.work import Work

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = [
    "CannotCompile",
    "CannotTrace",
    "Collective",
    "Kernel",
    "NoCompiler",
    "RecordUsed",
    "Report",
    "analyze",
    "can_compile",
    "recording",
    "records",
]

SCHEMA = "roofline_helpers.compiled/1"
"""What a record says of itself."""

_LONGEST_PROGRAM = 8000  # characters that a record keeps

TOPOLOGIES: Mapping[str, tuple[str, Sequence[str], Mapping[str, Any]]] = {
    "v4": ("v4", ("2x2x1", "2x2x2", "2x2x4", "4x4x4"), {"chip_config_name": "megacore"}),
    "v5e": ("v5e", ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"), {}),
    "v5p": ("v5p", ("2x2x1", "2x2x2", "2x2x4", "4x4x4", "4x4x8", "8x8x8", "16x16x16"), {}),
    "v6e": ("v6e", ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16"), {}),
    "v7x": ("tpu7x", ("2x2x1", "2x2x2", "2x2x4", "4x4x4", "4x4x8", "8x8x8", "16x16x16"), {}),
}
"""Of each TPU: libtpu's name, layouts of chips from small to large, and options. Without
"megacore" a v4 chip would be two devices, which is not how JAX shows it."""

DERIVED_CLOCKS: Mapping[str, tuple[float, str]] = {
    "v6e": (918e12 / (2 * 4 * 256 * 256), "bf16 peak / (2 · 4 · 256²)"),
    "v7x": (1153.5e12 / (2 * 4 * 256 * 256), "bf16 peak of a device / (2 · 4 · 256²)"),
}
"""Hz of chips whose clock is not published. The compiler's estimates for large matmuls exceed what
two 256 × 256 units do in a cycle (2 · 2 · 256² FLOPs) and stay below what four do, so its cycle is
that of four such units at the published peak: 1.75 and 2.20 GHz."""


class NoCompiler(RooflineError, RuntimeError):
    """The compiler for this chip is not here."""


class CannotTrace(RooflineError, TypeError):
    """JAX could not trace the function with these arguments."""


class CannotCompile(RooflineError, RuntimeError):
    """The compiler refused the program."""


class RecordUsed(UserWarning):
    """A committed record stands in for the compiler."""


# --- kernels ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kernel:
    """One kernel of a compiled program: totals over all its launches.

    FLOPs are None where a custom call does not declare them. `read` and `written` are bytes by
    memory level. The three times are None where they are not known.

    Parameters
    ----------
    row : hlo.Row
        What the program says of one launch.
    chip : hardware.Chip or None
        One device, for the times.
    xla_seconds : float, optional
        XLA's `optimal_seconds`, which it gives for a program of a single kernel only.
    """

    row: hlo.Row
    chip: hardware.Chip | None = None
    xla_seconds: float | None = None

    @property
    def name(self) -> str:
        """Its name in the compiled program."""
        return self.row.name

    @property
    def launches(self) -> int:
        """How often it runs – the product of the trip counts of the loops around it."""
        return self.row.launches

    @property
    def operations(self) -> Mapping[str, int]:
        """What happens inside, opcode by opcode."""
        return self.row.operations

    @property
    def matrix_flops(self) -> float:
        """FLOPs of matrix products, and those that a custom call declares without a unit."""
        return (self.row.flops.matrix + self.row.flops.declared) * self.launches

    @property
    def vector_flops(self) -> float:
        """FLOPs of everything else, transcendentals included."""
        return self.row.flops.vector * self.launches

    @property
    def transcendentals(self) -> float:
        """Exponentials and their like."""
        return self.row.flops.transcendentals * self.launches

    @property
    def flops(self) -> float | None:
        """All FLOPs; None if some are unknown."""
        return None if self.row.flops.unknown else self.matrix_flops + self.vector_flops

    @property
    def read(self) -> dict[str, int]:
        """Bytes read, by memory level."""
        return {level: n * self.launches for level, n in self.row.read.items()}

    @property
    def written(self) -> dict[str, int]:
        """Bytes written, by memory level."""
        return {level: n * self.launches for level, n in self.row.written.items()}

    @property
    def traffic(self) -> dict[str, float]:
        """Bytes read and written, by memory level, and bytes sent to other devices."""
        levels = dict.fromkeys(["hbm", *self.row.read, *self.row.written])
        total: dict[str, float] = {
            level: self.read.get(level, 0) + self.written.get(level, 0) for level in levels
        }
        if self.row.collective is not None:
            total[NETWORK] = self.row.collective.link_bytes * self.launches
        return total

    @property
    def hbm_bytes(self) -> int:
        """Bytes read from and written to HBM, every operand counted once."""
        return self.row.bytes * self.launches

    @property
    def tiled_bytes(self) -> int:
        """HBM bytes with the re-reads that the tiles imply, where they are known."""
        again = self.row.tile_read
        read = self.row.read.get("hbm", 0) if again is None else max(again, 0)
        return (read + self.row.written.get("hbm", 0)) * self.launches

    @property
    def intensity(self) -> float | None:
        """FLOPs over HBM bytes; None where FLOPs are unknown or nothing crosses HBM."""
        return self.flops / self.hbm_bytes if self.flops is not None and self.hbm_bytes else None

    @functools.cached_property
    def times(self) -> dict[str, float]:
        """Seconds that each ceiling alone would take – "matrix", "vector", "hbm", "network"."""
        if self.chip is None:
            return {}
        found: dict[str, float] = {}
        peak = _matrix_peak(self.chip, self.row.matrix_types)
        vector = self.chip.vector.get("fp32")
        if self.matrix_flops:
            found["matrix"] = self.matrix_flops / peak
        if self.vector_flops:
            found["vector"] = self.vector_flops / (vector.value if vector else peak)
        bandwidth = self.chip.memory["hbm"].bandwidth
        if self.hbm_bytes and bandwidth is not None:
            found["hbm"] = self.hbm_bytes / bandwidth.value
        link = self.chip.links.get("ici") or self.chip.links.get("nvlink")
        if self.row.collective is not None and link is not None:
            found[NETWORK] = self.traffic[NETWORK] / link.value
        return found

    @property
    def roof_seconds(self) -> float | None:
        """Our roofline's time – the longest of `times`."""
        return max(self.times.values(), default=0.0) if self.chip is not None else None

    @property
    def limit(self) -> str | None:
        """The ceiling that it meets first; None where no chip is known or it costs nothing."""
        return max(self.times, key=lambda name: self.times[name]) if self.times else None

    @property
    def cycle_seconds(self) -> float | None:
        """The compiler's own estimate – its cycles at the chip's clock."""
        found = _clock(self.chip)
        if self.row.cycles is None or found is None:
            return None
        return self.row.cycles * self.launches / found[0]

    def as_work(self) -> Work:
        """Return the kernel as a `Work`, for plots and rooflines.

        Raises
        ------
        BadValue
            It moves no bytes of HBM.
        """
        if not self.hbm_bytes:
            raise BadValue(f"{self.name} moves no bytes of HBM: it has no place on this roofline")
        types = self.row.matrix_types
        read, written = self.read.get("hbm", 0), self.written.get("hbm", 0)
        return Work(
            self.name,
            reads={"operands": read} if read else {},
            writes={"results": written} if written else {},
            matrix_flops=self.matrix_flops,
            vector_flops=self.vector_flops,
            transcendentals=self.transcendentals,
            dtype=_hlo_dtype(types[0].split()[0].split("×")[0]) if types else "fp32",
        )


def _hlo_dtype(name: str) -> str:
    """Return this package's name of one of HLO's data types."""
    for start, meant in (("f8", "fp8"), ("f4", "fp4")):
        if name.startswith(start):
            return meant
    aliases = {"u8": "int8", "u4": "int4", "u32": "int32", "u16": "int16", "u64": "int64"}
    try:
        return dtype_of(aliases.get(name, name))
    except UnknownName:
        return "fp32"  # complex numbers and rarer types run as fp32


def _matrix_peak(chip: hardware.Chip, types: Sequence[str]) -> float:
    """Return the FLOP/s of the matrix unit for a product as HLO states it: "f32 highest"."""
    wide = "bf16" if "bf16" in chip.matrix else next(iter(chip.matrix))
    peaks = []
    for each in types:
        name, _, precision = each.partition(" ")
        names = [_hlo_dtype(part) for part in name.split("×")]
        if chip.kind == "tpu" and "fp32" in names:
            passes = {"high": 3, "highest": 6}.get(precision, 1)  # bf16 passes over the unit
            peaks.append(chip.matrix[wide].value / passes)
            continue
        if names == ["fp32"] and not precision and "tf32" in chip.matrix:
            names = ["tf32"]  # JAX's default on GPUs
        table = {**chip.vector, **chip.matrix}
        peaks.append(min(table[n].value if n in table else chip.matrix[wide].value for n in names))
    return min(peaks, default=chip.matrix[wide].value)


def _clock(chip: hardware.Chip | None) -> tuple[float, str] | None:
    """Return the clock of a chip in Hz, and where it comes from."""
    if chip is None or chip.kind != "tpu":
        return None
    if chip.clock is not None:
        how = chip.clock.note or chip.clock.source.title
        return chip.clock.value, f"{chip.clock.basis}: {how}"
    if chip.key in DERIVED_CLOCKS:
        value, how = DERIVED_CLOCKS[chip.key]
        return value, f"derived: {how}"
    return None


# --- reports ------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Report:
    """What XLA made of a function for one device.

    Everything is per device and per run of the program. `xla` holds what `cost_analysis` said,
    unchanged. `origin` is "compiled" or "record"; it is not printed, so that a page shows the same
    values either way. `seconds` is how long compiling and analysing took.
    """

    name: str
    target: str
    platform: str
    arguments: tuple[str, ...]
    rows: tuple[hlo.Row, ...]
    notes: tuple[str, ...]
    xla: Mapping[str, float]
    jax_version: str
    compiler: str
    devices: int = 1
    origin: str = field(default="compiled", compare=False)
    seconds: float = field(default=0.0, compare=False)
    text: str = field(default="", compare=False, repr=False)

    @functools.cached_property
    def chip(self) -> hardware.Chip | None:
        """One device of the chip that it was compiled for; None where it is not in the table."""
        try:
            return hardware.chip(self.target).per_device()
        except UnknownName:
            return None

    @functools.cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels in the order in which they run."""
        alone = self.xla_seconds if len(self.rows) == 1 else None
        return tuple(Kernel(row, self.chip, alone) for row in self.rows)

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """Exchanges between devices, in order."""
        return tuple(row.collective for row in self.rows if row.collective is not None)

    @property
    def matrix_flops(self) -> float:
        """FLOPs of matrix products, and those that custom calls declare."""
        return sum(kernel.matrix_flops for kernel in self.kernels)

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

    @functools.cached_property
    def _parts(self) -> dict[str, float]:
        """Seconds by what bounds them – see `time_at_roof`."""
        parts = {"memory": 0.0, "compute": 0.0, "network": 0.0}
        words = {"hbm": "memory", "matrix": "compute", "vector": "compute", NETWORK: NETWORK}
        for kernel in self.kernels:
            if not kernel.row.overlaps and kernel.limit is not None:
                parts[words[kernel.limit]] += kernel.roof_seconds or 0.0
        return parts

    @property
    def _streams(self) -> dict[str, float]:
        """Seconds that each shared resource needs for the whole program."""
        sums = {"hbm": 0.0, NETWORK: 0.0}
        for kernel in self.kernels:
            for name in sums:
                sums[name] += kernel.times.get(name, 0.0)
        return {"memory": sums["hbm"], "network": sums[NETWORK]}

    @property
    def time_at_roof(self) -> float | None:
        """Least seconds – kernels one after another, each as long as its slowest part.

        Asynchronous copies and exchanges run beside them, as far as HBM and links allow. None
        where the chip is not in the table.
        """
        if self.chip is None:
            return None
        return max(sum(self._parts.values()), *self._streams.values())

    @property
    def bound(self) -> str | None:
        """What most of `time_at_roof` goes to – "memory", "compute" or "network"."""
        time_at_roof = self.time_at_roof
        if not time_at_roof:
            return None
        streams = self._streams
        busiest = max(streams, key=lambda name: streams[name])
        if streams[busiest] > sum(self._parts.values()):
            return busiest
        return max(self._parts, key=lambda name: self._parts[name])

    @property
    def cycle_seconds(self) -> float | None:
        """The compiler's cycles of all kernels that state them, at the chip's clock."""
        found = [k.cycle_seconds for k in self.kernels if k.cycle_seconds is not None]
        return sum(found) if found else None

    @property
    def clock(self) -> tuple[float, str] | None:
        """The clock behind `cycle_seconds` – Hz, and where it comes from."""
        return _clock(self.chip)

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

        XLA subtracts a second for each call that it can't cost, so a negative sum means nothing.
        """
        found = self.xla.get("optimal_seconds")
        return found if found is not None and found >= 0 else None

    @property
    def program(self) -> str:
        """The compiled program as HLO text, without the compiler's notes (`hlo.brief`).

        Records keep short programs only: of a long one it is empty there.
        """
        return hlo.brief(self.text)

    def roofline(self, dtype: Any = None) -> Roofline:
        """Return the roofline of the device, for its main data type unless one is given.

        Raises
        ------
        NoCompiler
            The device is not in the chip table.
        """
        if self.chip is None:
            raise NoCompiler(f"{self.target} is not in the chip table: it has no roofline here")
        if dtype is None:
            busiest = max(self.kernels, key=lambda k: k.matrix_flops, default=None)
            types = busiest.row.matrix_types if busiest is not None else ()
            dtype = _hlo_dtype(types[0].split()[0].split("×")[0]) if types else "bf16"
            known = {**self.chip.vector, **self.chip.matrix}
            default_passes = dtype == "fp32" and self.chip.kind == "tpu"
            if dtype not in known or (default_passes and "highest" not in types[0]):
                dtype = "bf16" if "bf16" in known else next(iter(self.chip.matrix))
        return self.chip.roofline(dtype)

    def table(self) -> pandas.DataFrame:
        """Return one row a kernel, in the order in which they run; units in the column names."""
        import pandas

        frame = pandas.DataFrame([_cells(kernel) for kernel in self.kernels])
        return frame.set_index("kernel") if len(frame) else frame

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
        roof = self.roofline()
        from roofline_helpers import plot as pictures

        shown = [k for k in self.kernels if k.flops and k.hbm_bytes and k.roof_seconds]
        if not shown:
            raise BadValue(f"no kernel of {self.name} has both FLOPs and HBM bytes to be drawn")
        shown.sort(key=lambda kernel: -(kernel.roof_seconds or 0))
        works = {kernel.name: kernel.as_work() for kernel in shown}
        span = [work.intensity for work in works.values()]
        low, high = min([*span, roof.ridge]) / 4, max([*span, roof.ridge]) * 4
        axes = pictures.roofline(
            roof, dict(list(works.items())[:labels]), intensity=(low, high), ax=ax
        )
        whole = sum(kernel.roof_seconds or 0 for kernel in shown)
        axes.scatter(
            [work.intensity for work in works.values()],
            [(kernel.flops or 0) / (kernel.roof_seconds or 1) for kernel in shown],
            s=[30 + 600 * (kernel.roof_seconds or 0) / whole for kernel in shown],
            alpha=0.35,
            color="#595959",
            linewidths=0,
            gid="kernels",
        )
        return axes

    # -- text ------------------------------------------------------------------------------------

    def _summary(self) -> list[tuple[str, str]]:
        more = "at least " if self.unknown else ""
        lines = [
            (
                "FLOPs",
                f"{more}{si(self.flops, 'FLOP')}: matrix {si(self.matrix_flops, 'FLOP')}, vector "
                f"{si(self.vector_flops, 'FLOP')}, of which {si(self.transcendentals, '').strip()} "
                "transcendental",
            ),
            (
                "HBM",
                f"{si(self.hbm_bytes, 'B')}: {si(self.read_bytes, 'B')} read, "
                f"{si(self.written_bytes, 'B')} written",
            ),
        ]
        if self.tiled_bytes != self.hbm_bytes:
            lines.append(("with the tiles' re-reads", si(self.tiled_bytes, "B")))
        if self.padding_bytes > 0.01 * self.hbm_bytes:
            lines.append(("padding of tiles adds", si(self.padding_bytes, "B")))
        others = {k: v for k, v in self.traffic.items() if k != "hbm" and v >= 1024}
        if others:
            said = ", ".join(f"{level} {si(n, 'B')}" for level, n in sorted(others.items()))
            lines.append(("other traffic", said))
        intensity = f"{significant(self.intensity)} FLOP/byte"
        if self.chip is not None and self.bound:
            intensity += f", bound by {self.bound}"
        lines.append(("intensity", intensity))
        times = [
            ("roofline", self.time_at_roof),
            ("compiler's cycles", self.cycle_seconds),
            ("XLA's optimal_seconds", self.xla_seconds),
        ]
        said = ", ".join(f"{name} {si(t, 's')}" for name, t in times if t is not None)
        if said:
            lines.append(("time", said))
        if self.cycle_seconds is not None and self.clock is not None:
            lines.append(("clock", f"{si(self.clock[0], 'Hz')} ({self.clock[1]})"))
        said_xla = []
        if self.xla_flops is not None:
            said_xla.append(f"{si(self.xla_flops, 'FLOP')}")
        if self.xla_bytes is not None:
            said_xla.append(f"{si(self.xla_bytes, 'B')} accessed")
        lines.append(("cost_analysis", ", ".join(said_xla) or "nothing"))
        for each in self.collectives:
            axis = f" along {each.axis}" if each.axis else ""
            lines.append(
                (
                    each.kind,
                    f"{si(each.bytes_in, 'B')} in, {si(each.bytes_out, 'B')} out, "
                    f"{each.group_size} devices{axis}, {each.launches} ×",
                )
            )
        return lines

    @property
    def _title(self) -> str:
        where = self.chip.name if self.chip is not None else self.target
        many = f", one of {self.devices} devices" if self.devices > 1 else ""
        return f"{self.name}({', '.join(self.arguments)}) compiled for {where}{many}"

    @property
    def _footer(self) -> str:
        return f"JAX {self.jax_version}, {self.compiler}"

    _SHOWN = 12

    def _costliest(self) -> list[Kernel]:
        """The kernels that are shown, in order."""
        weight = {id(k): (k.roof_seconds or 0, k.hbm_bytes, k.flops or 0) for k in self.kernels}
        best = sorted(self.kernels, key=lambda k: weight[id(k)], reverse=True)[: self._SHOWN]
        kept = {id(kernel) for kernel in best}
        return [kernel for kernel in self.kernels if id(kernel) in kept]

    def _shown_cells(self) -> tuple[list[str], list[list[str]]]:
        rows = [_cells(kernel) for kernel in self._costliest()]
        said = {n: {row[n] for row in rows} - {None, ""} for n in (rows[0] if rows else {})}
        head = [n for n, values in said.items() if values and (n != "launches" or values != {1})]
        return head, [[_shown(row[name]) for name in head] for row in rows]

    def __str__(self) -> str:
        lines = [self._title]
        summary = self._summary()
        width = max(len(name) for name, _ in summary)
        lines += [f"  {name.ljust(width)}  {said}" for name, said in summary]
        head, cells = self._shown_cells()
        if cells:
            widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
            lines.append("")
            for row in [head, *cells]:
                first, *inner, last = row
                inner = [cell.rjust(w) for cell, w in zip(inner, widths[1:-1], strict=True)]
                lines.append("  " + "  ".join([first.ljust(widths[0]), *inner, last]))
            if len(self.kernels) > self._SHOWN:
                lines.append(f"  … and {len(self.kernels) - self._SHOWN} cheaper kernels")
        lines += [f"  note: {note}" for note in self.notes]
        lines.append(f"  ({self._footer})")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def cells(tag: str, values: Sequence[str]) -> str:
            return "".join(f"<{tag}>{html.escape(value)}</{tag}>" for value in values)

        parts = [f"<p><strong>{html.escape(self._title)}</strong></p>"]
        parts.append('<table class="dataframe"><tbody>')
        for name, said in self._summary():
            label = f'<th scope="row">{html.escape(name)}</th>'
            parts.append(f"<tr>{label}<td>{html.escape(said)}</td></tr>")
        parts.append("</tbody></table>")
        head, rows = self._shown_cells()
        if rows:
            columns = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
            parts.append(f'<table class="dataframe"><thead><tr>{columns}</tr></thead><tbody>')
            for first, *rest in rows:
                label = f'<th scope="row">{html.escape(first)}</th>'
                parts.append(f"<tr>{label}{cells('td', rest)}</tr>")
            parts.append("</tbody></table>")
            if len(self.kernels) > self._SHOWN:
                parts.append(f"<p>… and {len(self.kernels) - self._SHOWN} cheaper kernels</p>")
        if self.notes:
            noted = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
            parts.append(f"<ul>{noted}</ul>")
        parts.append(f"<p><small>{html.escape(self._footer)}</small></p>")
        return "".join(parts)

    # -- records ---------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the report as the text of a record. `Report.from_json` reads it."""
        data = {
            "schema": SCHEMA,
            "name": self.name,
            "target": self.target,
            "platform": self.platform,
            "devices": self.devices,
            "arguments": list(self.arguments),
            "jax_version": self.jax_version,
            "compiler": self.compiler,
            "xla": dict(sorted(self.xla.items())),
            "notes": list(self.notes),
            "program": self.program if len(self.program) <= _LONGEST_PROGRAM else "",
            "rows": [_row_to_json(row) for row in self.rows],
        }
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the report that a record holds; its `origin` is "record".

        Raises
        ------
        BadRecord
            Not a record, or one of another version: the message says what is wrong.
        """
        data = loads(text, SCHEMA)
        wanted: dict[str, type | tuple[type, ...]] = {
            "name": str,
            "target": str,
            "platform": str,
            "devices": int,
            "arguments": list,
            "jax_version": str,
            "compiler": str,
            "xla": dict,
            "notes": list,
            "program": str,
            "rows": list,
        }
        for key, kind in wanted.items():
            if key not in data:
                raise BadRecord(f"the record lacks {key!r}")
            if not isinstance(data[key], kind):
                raise BadRecord(f"{key!r} in the record must be a {kind}, got {data[key]!r:.60}")
        return cls(
            name=data["name"],
            target=data["target"],
            platform=data["platform"],
            arguments=tuple(data["arguments"]),
            rows=tuple(_row_from_json(row) for row in data["rows"]),
            notes=tuple(data["notes"]),
            xla=data["xla"],
            jax_version=data["jax_version"],
            compiler=data["compiler"],
            devices=data["devices"],
            origin="record",
            text=data["program"],
        )


def _cells(kernel: Kernel) -> dict[str, Any]:
    """Return one row of a report's table."""
    row = kernel.row

    def micro(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * 1e6

    unknown = "unknown" if kernel.flops is None else None
    again = row.tile_read is not None and kernel.tiled_bytes != kernel.hbm_bytes
    inside = ", ".join(f"{n} {op}" if n > 1 else op for op, n in row.operations.items())
    return {
        "kernel": kernel.name,
        "launches": kernel.launches,
        "limit": kernel.limit or "",
        "roof µs": micro(kernel.roof_seconds),
        "FLOP/byte": kernel.intensity,
        "read MB": kernel.read.get("hbm", 0) / 1e6,
        "written MB": kernel.written.get("hbm", 0) / 1e6,
        "with re-reads MB": kernel.tiled_bytes / 1e6 if again else None,
        "matrix MFLOP": unknown or kernel.matrix_flops / 1e6,
        "vector MFLOP": unknown or kernel.vector_flops / 1e6,
        "cycles µs": micro(kernel.cycle_seconds),
        "XLA µs": micro(kernel.xla_seconds),
        "inside": inside if row.opcode == "fusion" else row.opcode,
    }


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return significant(value)
    text = str(value)
    return text if len(text) <= 44 else text[:43] + "…"


def _row_to_json(row: hlo.Row) -> dict[str, Any]:
    """Return a row without the fields that have their usual value."""
    data = asdict(row)
    usual = asdict(hlo.Row(row.name, row.opcode, {}, hlo.Flops(), {}, {}))
    kept = {key: value for key, value in data.items() if value != usual[key]}
    return {"name": row.name, "opcode": row.opcode, **kept}


def _row_from_json(data: Any) -> hlo.Row:
    try:
        fields = dict(data)
        flops = dict(fields.pop("flops", {}))
        flops["unknown"] = tuple(flops.get("unknown", ()))
        windows = {name: tuple(n) for name, n in fields.pop("windows", {}).items()}
        types = tuple(fields.pop("matrix_types", ()))
        exchange = fields.pop("collective", None)
        if exchange is not None:
            groups = exchange.get("groups")
            exchange = Collective(
                **{
                    **exchange,
                    "groups": None if groups is None else tuple(tuple(g) for g in groups),
                }
            )
        for needed in ("operations", "read", "written"):
            fields.setdefault(needed, {})
        return hlo.Row(
            **fields,
            flops=hlo.Flops(**flops),
            windows=windows,
            matrix_types=types,
            collective=exchange,
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise BadRecord(f"a row of the record can't be read: {error}") from None


RECORD_TO = "ROOFLINE_RECORD_TO"
"""Environment variable: a directory that every `analyze(..., record=name)` writes its record to."""

USE = "ROOFLINE_USE"
"""Environment variable: what "auto" means for calls that name a record, "compiler" or "record"."""


@contextlib.contextmanager
def recording(directory: str | Path) -> Iterator[Path]:
    """Write a record of every `analyze(..., record=name)` inside the block (`RECORD_TO`).

    Parameters
    ----------
    directory : path
        Where ``NAME.CHIP.json`` goes; made if it is not there.

    Examples
    --------
    >>> with recording("/tmp/records") as where:  # doctest: +SKIP
    ...     analyze(f, x, chip="v6e", record="softmax")
    """
    where = Path(directory)
    where.mkdir(parents=True, exist_ok=True)
    before = {RECORD_TO: os.environ.get(RECORD_TO)}
    _set({RECORD_TO: str(where)})
    try:
        yield where
    finally:
        _set(before)


def records() -> dict[tuple[str, str], Report]:
    """Return the committed records by name and chip."""
    found = {}
    for stem, file in files(_records()).items():
        name, chip = stem.rsplit(".", 1)
        found[name, chip] = Report.from_json(file.read_text("utf-8"))
    return found


def _records() -> Any:
    return committed("compiled")


def _recorded_for(chip: str) -> list[str]:
    """Return the names of the committed records for a chip."""
    stems = [stem.rsplit(".", 1) for stem in files(_records())]
    return [name for name, target in stems if target == chip]


def _record(name: str, chip: str) -> Report | None:
    path = _records().joinpath(f"{name}.{chip}.json")
    return Report.from_json(path.read_text("utf-8")) if path.is_file() else None


# --- compiling ----------------------------------------------------------------------------------


def analyze(
    fn: Any,
    *args: Any,
    chip: Any = None,
    record: str | None = None,
    use: str = "auto",
    topology: str | None = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    strict: bool = False,
    unknown_trips: int = 1,
    name: str | None = None,
    **kwargs: Any,
) -> Report:
    """Compile a JAX function for a chip and return its FLOPs, bytes and kernels.

    Parameters
    ----------
    fn : callable
        A plain function, or one that `jax.jit` made.
    *args, **kwargs
        Its arguments: arrays, `jax.ShapeDtypeStruct` objects, pytrees of them. Arguments that are
        sharded over a mesh give a program for all its devices, and a report for one of them; the
        mesh may be of any devices, also an abstract one. `jax.shard_map` inside the function must
        have an abstract mesh, and the arguments be sharded over it.
    chip : str, hardware.Chip or jax.Device, optional
        "v4", "v5e", "v5p", "v6e" or "v7x", from any Linux x86-64 machine; or the device that JAX
        has here. By default the latter, be it a CPU.
    record : str, optional
        Name of the committed record that stands in where the compiler for `chip` is not here.
    use : {"auto", "compiler", "record"}
        "auto" compiles where it can, else takes the record. The environment variable
        ROOFLINE_USE overrides it where a record is named; ROOFLINE_RECORD_TO names a directory
        that records are written to.
    topology : str, optional
        Layout of the chips, for instance "4x4x4". By default the smallest that holds the mesh.
    static_argnums, static_argnames, donate_argnums : optional
        As for `jax.jit`; for a function that is jitted already, give them there.
    strict : bool
        Whether an instruction that the reader does not know is an error.
    unknown_trips : int
        How often a loop turns whose trip count can't be found, at least 1.
    name : str, optional
        What the report calls the function.

    Returns
    -------
    Report

    Raises
    ------
    UnknownName
        No such chip; the message gives the nearest.
    BadType, BadValue
        An option, such as `name`, that the function takes too: bind the function's own first. An
        option of another type, or outside what is allowed.
    NoCompiler
        The compiler for this chip is not here, and no record: the message says what to install.
    CannotTrace
        JAX can't trace the function with these arguments: wrong shapes, missing arguments.
    CannotCompile
        The compiler refused the program, for instance because it needs more memory than there is.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)
    >>> report = analyze(jnp.matmul, x, x, chip="v6e")  # doctest: +SKIP
    >>> report.flops, report.hbm_bytes, report.bound  # doctest: +SKIP
    (17179869184.0, 25165824, 'compute')
    """
    own = {key: given for key, given in locals().items() if key not in ("fn", "args", "kwargs")}
    _refuse_ambiguous(fn, args, own)
    if use == "auto" and record is not None:
        use = os.environ.get(USE, use)
    use = name_of("way to analyse", use, ["auto", "compiler", "record"])
    known = hardware.chip(chip) if chip is not None else None
    if not callable(fn):
        raise BadType(f"the function must be callable, got {fn!r} ({type(fn).__name__})")
    strict, unknown_trips = flag("strict", strict), whole("unknown_trips", unknown_trips)
    for option, value in (("name", name), ("record", record), ("topology", topology)):
        if value is not None:
            text(option, value)
    if record is not None and not re.fullmatch(r"[\w\-]+", record):
        raise BadValue(f"a record's name has letters, digits, '-' and '_', got {record!r}")
    missing = can_compile(known) if use != "record" else "the record was asked for"
    if missing is not None and use != "compiler" and record is not None and known is not None:
        found = _record(record, known.key)
        if found is not None:
            if use == "auto":
                said = f"showing the record {record!r} for {known.name}, compiled by "
                said += f"{found._footer}: {missing}"
                warnings.warn(said, RecordUsed, stacklevel=2)
            return found
    if missing is not None:
        there = f", and there is no record {record!r} of it" if record and use != "compiler" else ""
        kept = _recorded_for(known.key) if known is not None and use != "compiler" else []
        listed = f". Records for {known.name}: {', '.join(kept)}" if known and kept else ""
        raise NoCompiler(f"{missing}{there}{listed}")
    folder = os.environ.get(RECORD_TO) if record is not None else None
    if folder and not Path(folder).is_dir():
        raise BadValue(f"{RECORD_TO} must name a folder that is there, got {shown(folder)}")
    jit = {
        key: value
        for key, value in (
            ("static_argnums", static_argnums),
            ("static_argnames", static_argnames),
            ("donate_argnums", donate_argnums),
        )
        if value is not None
    }
    report = _compile(fn, args, kwargs, known, jit, topology, strict, unknown_trips, name)
    if folder:
        write(Path(folder) / f"{record}.{report.target}.json", report.to_json())
    return report


def _refuse_ambiguous(fn: Any, args: tuple[Any, ...], own: Mapping[str, Any]) -> None:
    """Raise BadType where an option of `analyze` could be meant for the function."""
    plain = inspect.unwrap(fn)
    bound = plain.keywords if isinstance(plain, functools.partial) else {}
    try:
        signature = inspect.signature(fn)
        filled = {*bound, *signature.bind_partial(*args).arguments}
    except (TypeError, ValueError):  # no signature; or too many arguments, which JAX will say
        return
    parameters, defaults = signature.parameters, inspect.signature(analyze).parameters
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for key, given in own.items():
        theirs = key in parameters and parameters[key].kind in named and key not in filled
        if theirs and given is not defaults[key].default:
            raise BadType(
                f"{key}={shown(given)} is an option of analyze, and the function takes {key!r} "
                f"too: bind the function's with functools.partial(fn, {key}=...)"
            )


def can_compile(chip: Any = None) -> str | None:
    """Return why this machine can't compile for a chip; None if it can.

    Parameters
    ----------
    chip : str, hardware.Chip, jax.Device or None
        None stands for the device that JAX has here.

    Examples
    --------
    >>> "only where there is one" in can_compile("h100")  # doctest: +SKIP
    True
    """
    known = hardware.chip(chip) if chip is not None else None
    if importlib.util.find_spec("jax") is None:
        return "JAX is not installed: install jax[tpu] (Linux x86-64) or jax"
    if known is None:
        return None
    if known.kind != "tpu" or known.key not in TOPOLOGIES:
        if _live(known) is not None:
            return None
        return f"XLA compiles for {known.name} only where there is one"
    if (sys.platform, host.machine()) != ("linux", "x86_64"):
        return f"the TPU compiler exists for Linux on x86-64 only, this is {sys.platform} on " + (
            host.machine() or "an unknown machine"
        )
    if importlib.util.find_spec("libtpu") is None:
        return "the TPU compiler is not installed: pip install 'jax[tpu]'"
    if known.key == "v7x" and _jax_version() < (0, 8):
        return f"JAX {'.'.join(map(str, _jax_version()))} can't compile for v7x; 0.10.2 can"
    return None


def _jax_version() -> tuple[int, ...]:
    import jax

    return tuple(jax.__version_info__[:3])


def _has_tpu() -> bool:
    """Whether this machine has a TPU of its own, without starting it."""
    return any(Path("/dev").glob("accel[0-9]*")) or any(Path("/dev/vfio").glob("[0-9]*"))


def _live(chip: hardware.Chip) -> Any:
    """Return JAX's first device here if it is this chip."""
    import jax

    with _quiet():
        device = jax.devices()[0]
    try:
        return device if hardware.chip(device).key == chip.key else None
    except UnknownName:
        return None


_ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",  # don't ask the cloud's metadata server
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # other processes may compile at the same time
    "TPU_ACCELERATOR_TYPE": None,  # set, it makes cost_analysis of libtpu 0.0.23 abort
}
_quiet_lock = threading.RLock()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep C++ code from writing to stderr, and put the environment back afterwards."""
    with _quiet_lock:
        before = {name: os.environ.get(name) for name in _ENVIRONMENT}
        if not _has_tpu():
            _set(_ENVIRONMENT)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        saved = None
        try:
            with tempfile.TemporaryFile() as sink:
                try:
                    saved = os.dup(2)
                    os.dup2(sink.fileno(), 2)
                except OSError:
                    saved = None  # no stderr to silence
                yield
        finally:
            if saved is not None:
                os.dup2(saved, 2)
                os.close(saved)
            if not _has_tpu():
                _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@functools.lru_cache(maxsize=32)
def _topology(key: str, layout: str) -> Any:
    """Return the devices of a layout of TPU chips that need not exist."""
    from jax.experimental import topologies

    family, _, options = TOPOLOGIES[key]
    with _quiet():
        return topologies.get_topology_desc(
            platform="tpu", topology_name=f"{family}:{layout}", **options
        )


def _devices(chip: hardware.Chip, count: int, layout: str | None) -> list[Any]:
    """Return `count` devices of a chip: of a given layout, or of the smallest that has them."""
    family, layouts, _ = TOPOLOGIES[chip.key]
    for each in [layout] if layout is not None else layouts:
        try:
            devices = list(_topology(chip.key, each).devices)
        except Exception as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise NoCompiler(
                f"this TPU compiler ({_compiler('tpu')}) has no topology {family}:{each}: {first}"
            ) from error
        if len(devices) >= count:
            return devices[:count]
    raise BadValue(f"no layout of {chip.name} with {count} devices is known here: give topology=")


def _compiler(platform: str) -> str:
    names = {"tpu": ("libtpu", "libtpu-nightly")}.get(platform, ("jaxlib",))
    for each in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"{each} {importlib.metadata.version(each)}"
    return names[0]


def _compile(
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    chip: hardware.Chip | None,
    jit: dict[str, Any],
    layout: str | None,
    strict: bool,
    unknown_trips: int,
    name: str | None,
) -> Report:
    import jax

    started = time.perf_counter()
    with _quiet():
        here = jax.devices()[0]
    ahead = chip is not None and chip.kind == "tpu" and not _is(here, chip)
    inner = fn.func if isinstance(fn, functools.partial) else fn
    called = name or getattr(inner, "__name__", None) or type(fn).__name__
    called = "function" if called == "<lambda>" else called
    mesh = _mesh_shape((args, kwargs))
    described = tuple(_described(each) for each in args)
    described += tuple(f"{key}={_described(each)}" for key, each in kwargs.items())
    if ahead:
        assert chip is not None
        args, kwargs, default = _moved(args, kwargs, chip, layout, _statics(jit), mesh)
        if not hasattr(fn, "lower") and not _arrays((args, kwargs)):
            jit = {**jit, "out_shardings": default}
    if hasattr(fn, "lower") and jit:
        raise BadType(f"{called} is jitted already: give {', '.join(jit)} to jax.jit")
    try:
        jitted = fn if hasattr(fn, "lower") else jax.jit(fn, **jit)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            lowered = jitted.lower(*args, **kwargs)
    except Exception as error:
        raise CannotTrace(
            f"JAX can't trace {called}({', '.join(described)}): {type(error).__name__}: "
            f"{_first(error)}"
        ) from error
    try:
        with _quiet():
            program = lowered.compile()
    except Exception as error:
        where = chip.name if chip is not None else str(here)
        raise CannotCompile(
            f"the compiler for {where} refused {called}: {_first(error)}"
        ) from error
    platform = chip.kind if chip is not None else _platform(here)
    target = chip.key if chip is not None else _target(here)
    text = program.as_text()
    with _quiet():
        xla = _cost_analysis(program)
    ledger = hlo.kernels(text, platform, strict=strict, unknown_trips=unknown_trips,
                         price=_price(target))  # fmt: skip
    notes = list(ledger.notes)
    axes = _axes(mesh)
    if ahead and _jax_version() < (0, 8):
        notes.append("this JAX's optimal_seconds does not depend on the chip")
    if platform == "cpu":
        notes.append("a CPU has no separate HBM: bytes are those that cross kernels, caches or not")
    return Report(
        name=called,
        target=target,
        platform=platform,
        arguments=described,
        rows=tuple(hlo.with_axes(row, axes) for row in ledger.rows),
        notes=tuple(notes),
        xla=xla,
        jax_version=jax.__version__,
        compiler=_compiler(platform),
        devices=math.prod(mesh.values()),
        seconds=time.perf_counter() - started,
        text=text,
    )


def _first(error: Exception) -> str:
    """Return the first line of an error, and what to do about the mesh of a `shard_map`."""
    text = str(error).strip()
    told = (text.splitlines() or [repr(error)])[0]
    elsewhere = "incompatible devices" in text and "shard_map" in text
    if elsewhere or "GlobalToLocalShape" in text:
        told += ". Give jax.shard_map an AbstractMesh, and arguments that are sharded over it"
    return told


def _is(device: Any, chip: hardware.Chip) -> bool:
    try:
        return hardware.chip(device).key == chip.key
    except UnknownName:
        return False


def _platform(device: Any) -> str:
    return {"cuda": "gpu", "rocm": "gpu"}.get(str(device.platform), str(device.platform))


def _target(device: Any) -> str:
    try:
        return hardware.chip(device).key
    except UnknownName:
        return str(device.device_kind)


def _price(target: str) -> Any:
    """Return what rows cost on a chip, to find the dearest branch; None without a chip."""
    try:
        chip = hardware.chip(target).per_device()
    except UnknownName:
        return None
    return lambda rows: sum(Kernel(row, chip).roof_seconds or 0.0 for row in rows)


def _cost_analysis(program: Any) -> dict[str, float]:
    """Return the totals of `cost_analysis`, whatever form it has; per-operand entries left out."""
    try:
        found = program.cost_analysis()
    except Exception:  # not offered by every backend
        return {}
    if isinstance(found, list):
        found = found[0] if found else {}
    wanted = ("flops", "transcendentals", "bytes accessed", "optimal_seconds")
    return {key: float(found[key]) for key in wanted if key in (found or {})}


def _statics(jit: Mapping[str, Any]) -> set[int]:
    given = jit.get("static_argnums", ())
    return {given} if isinstance(given, int) else set(given)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _dtype(value: Any) -> Any:
    """Return the type that JAX gives an array: without x64, float64 is float32."""
    import jax
    import numpy as np

    kind = value.dtype
    return jax.dtypes.canonicalize_dtype(kind) if isinstance(kind, np.dtype) else kind


def _arrays(tree: Any) -> list[Any]:
    import jax

    try:
        return [leaf for leaf in jax.tree.leaves(tree) if _is_array(leaf)]
    except (TypeError, ValueError) as error:  # such as a mapping whose keys have no order
        raise CannotTrace(f"JAX can't take these arguments: {_first(error)}") from error


def _mesh_shape(tree: Any) -> dict[str, int]:
    """Return the axes of the mesh that arguments are sharded over, {} where they are not."""
    from jax.sharding import NamedSharding

    shardings = (getattr(leaf, "sharding", None) for leaf in _arrays(tree))
    sizes = {tuple(s.mesh.shape.items()) for s in shardings if isinstance(s, NamedSharding)}
    if len(sizes) > 1:
        raise BadValue(f"the arguments are sharded over different meshes: {sorted(sizes)}")
    return dict(*sizes)


def _moved(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    chip: hardware.Chip,
    layout: str | None,
    static: set[int],
    shape: Mapping[str, int],
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Return the arguments as shapes on a device, or on a mesh of this shape, of the chip.

    Also the sharding of what is not sharded.
    """
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    devices = _devices(chip, math.prod(shape.values()), layout)
    mesh = None
    if shape:
        mesh = Mesh(np.array(devices).reshape(tuple(shape.values())), tuple(shape))
        default: Any = NamedSharding(mesh, PartitionSpec())
    else:
        default = SingleDeviceSharding(devices[0])

    scalars = all(isinstance(leaf, np.generic) for leaf in _arrays((args, kwargs)))

    def move(leaf: Any) -> Any:
        # a NumPy scalar may be static; it is moved only where nothing else can name the device
        if not _is_array(leaf) or (isinstance(leaf, np.generic) and not scalars):
            return leaf
        sharding = default
        if mesh is not None and isinstance(getattr(leaf, "sharding", None), NamedSharding):
            sharding = NamedSharding(mesh, leaf.sharding.spec)
        return jax.ShapeDtypeStruct(leaf.shape, _dtype(leaf), sharding=sharding)

    moved = tuple(
        each if place in static else jax.tree.map(move, each) for place, each in enumerate(args)
    )
    named = {key: jax.tree.map(move, each) for key, each in kwargs.items()}
    return moved, named, default


def _axes(shape: Mapping[str, int]) -> dict[frozenset[frozenset[int]], str]:
    """Return the groups of devices that each axis, or pair of axes …, of a mesh makes."""
    names = list(shape)
    found = {}
    for chosen in range(2 ** len(names) - 1, 0, -1):
        axes = [name for i, name in enumerate(names) if chosen >> i & 1]
        groups = hlo.collectives.mesh_groups(shape, axes)
        if groups is not None and len(groups[0]) > 1:
            found[frozenset(frozenset(group) for group in groups)] = ", ".join(axes)
    return found


def _described(value: Any) -> str:
    """Return an argument as a reader would write it: bf16[2048,2048], {wo, w1}, 3."""
    if _is_array(value):
        kind = str(_dtype(value))
        short = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u"}
        found = re.fullmatch(r"(bfloat|float|uint|int)(\d+)(.*)", kind)
        kind = f"{short[found.group(1)]}{found.group(2)}{found.group(3)}" if found else kind
        return f"{kind}[{','.join(map(str, value.shape))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(map(str, value))}}}" if len(value) <= 4 else f"{len(value)} arrays"
    if isinstance(value, (list, tuple)):
        inner = [_described(each) for each in value]
        return f"({', '.join(inner)})" if len(inner) <= 3 else f"{len(inner)} values"
    text = repr(value)
    return text if len(text) <= 30 else type(value).__name__
