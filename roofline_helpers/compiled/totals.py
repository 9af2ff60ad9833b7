"""What a compiled program does in all: FLOPs, bytes and seconds, the sums of its kernels'."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from roofline_helpers import hardware, hlo
from roofline_helpers.compiled import timeline as schedule
from roofline_helpers.compiled.kernel import CompiledKernel
from roofline_helpers.compiled.links import Links
from roofline_helpers.compiled.program import Memory
from roofline_helpers.compiled.targets import chip_of, clock
from roofline_helpers.hlo import Collective
from roofline_helpers.hlo.blocks import PallasKernel
from roofline_helpers.roofline.model import bound_of
from roofline_helpers.verdicts import assumed_floor


@dataclass(frozen=True, repr=False)
class Totals:
    """The kernels of a `Report`, which says what each field is, and their sums.

    Examples
    --------
    >>> from roofline_helpers.compiled import records
    >>> totals = records()["ledger-softmax", "v5e"]
    >>> totals.matrix_flops, totals.hbm_bytes
    (0.0, 536870912)
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
    mesh: Mapping[str, int] = field(default_factory=dict)
    topology: str = ""
    memory: Memory | None = None
    requested_flops: float | None = None
    origin: str = field(default="compiled", compare=False)
    seconds: float = field(default=0.0, compare=False)
    text: str = field(default="", compare=False, repr=False)
    calls: tuple[PallasKernel, ...] = field(default=(), compare=False, repr=False)

    @functools.cached_property
    def chip(self) -> hardware.Chip | None:
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
        return hlo.whole(row.collective for row in self.rows if row.collective is not None)

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
        return clock(self.chip)

    @functools.cached_property
    def timeline(self) -> schedule.Timeline:
        """When kernels and exchanges run at the earliest, by the compiled schedule."""
        return schedule.timeline(self.kernels)

    @functools.cached_property
    def exchanges(self) -> tuple[schedule.Exchange, ...]:
        """Exchanges between devices, each once, with their least time and what of it shows."""
        return schedule.exchanges(self.kernels, self._links)

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


def _busiest(parts: Mapping[str, float], streams: Mapping[str, float]) -> str:
    """Return what most time goes to: a shared resource, or what bounds the kernels."""
    busiest = max(streams, key=lambda name: streams[name])
    if streams[busiest] > sum(parts.values()):
        return busiest
    return max(parts, key=lambda name: parts[name])
