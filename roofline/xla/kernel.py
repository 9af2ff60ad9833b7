"""Kernels of a compiled program: the roofline over each, groups of them, when they run."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from roofline import network
from roofline.xla.collectives import CollectiveOp, whole
from roofline.xla.ledger import Row
from roofline.xla.roofs import DeviceRoofs
from roofline.xla.targets import assumed_vector_peak, clock_of, split_layout
from roofline.xla.traffic import HOST
from roofline_helpers import chips
from roofline_helpers.common.checks import RooflineError, name_of
from roofline_helpers.common.show import Fields, si
from roofline_helpers.roofline import NETWORK, Kernel, bound_of

# --- The least time of a program's exchanges on the links between its devices --------------------

_ALIKE = {"ragged-all-to-all": "all-to-all", "collective-broadcast": "all-gather"}


@dataclass(frozen=True)
class Links:
    """The network of a program's devices: the chip, the layout of the slice, and its mesh.

    Examples
    --------
    >>> from roofline.xla import records
    >>> gather = records()["shard-fsdp-8192", "v5e"].exchanges[0].collective
    >>> Links(chips.chip("v5e"), "4x4", {"x": 4, "y": 4}, 16).seconds(gather) > 0
    True
    """

    chip: chips.Chip
    topology: str
    mesh: Mapping[str, int]
    devices: int

    def _axes(self, ceilings: str) -> dict[str, tuple[network.Axis, ...]]:
        """Return the network's axes for each axis of the mesh; {} if unknown."""
        slices, layout = split_layout(self.topology)
        shapes = [layout or None, *([self.devices] if slices == 1 else [])]
        for shape in shapes if self.mesh and self.devices > 1 else ():
            for cores in (True, False):
                with contextlib.suppress(RooflineError):
                    slice_ = network.topology(
                        self.chip, shape, slices=slices, cores=cores, ceilings=ceilings
                    )
                    by_name = slice_.mesh(dict(self.mesh))
                    split = any(axis.whole for axes in by_name.values() for axis in axes)
                    return _in_order(slice_, self.mesh) if split else by_name
        return {}

    @cached_property
    def _by_ceilings(self) -> dict[bool, dict[str, tuple[network.Axis, ...]]]:
        """The axes by published and by reached rates."""
        return {False: self._axes("published"), True: self._axes("reached")}

    def seconds(self, exchange: CollectiveOp, *, reached: bool = False) -> float | None:
        """Return the least seconds of one launch, by published or reached rates, where known."""
        if not self.mesh and exchange.group_size == self.devices > 1:  # all of them, on one axis
            placed = replace(self, mesh={"all": self.devices})
            return placed.seconds(replace(exchange, axis="all"), reached=reached)
        axes = self._by_ceilings[reached]
        names = exchange.axis.split(", ") if exchange.axis else []
        over = tuple(axis for name in names for axis in axes.get(name, ()))
        if not over or any(name not in axes for name in names):
            return None
        if exchange.kind == "collective-permute":
            # a ring over several axes: neighbours share one link each
            if len(over) > 1 or abs(exchange.hops) >= over[0].size:
                return network.collectives.send(exchange.bytes_in, over[0]).seconds
            return network.permute(exchange.bytes_in, over[0], hops=abs(exchange.hops) or 1).seconds
        whole = {
            "all-gather": exchange.bytes_out,
            "all-to-all": exchange.bytes_in * exchange.group_size,
        }
        kind = _ALIKE.get(exchange.kind, exchange.kind)
        return network.collective(kind, whole.get(kind, exchange.bytes_in), over).seconds


def _in_order(
    slice_: network.Topology, mesh: Mapping[str, int]
) -> dict[str, tuple[network.Axis, ...]]:
    """Return the axes of a mesh that JAX can't place on whole axes of the torus.

    Its devices are in the layout's own order (`targets.mesh_devices`): hosts of 2 × 2 chips, along
    the first axis, then along the next.
    """
    cores = [axis for axis in slice_.axes if axis.network == "core"]
    torus = [axis for axis in slice_.fast if axis.kind in ("ring", "line")]
    plane = [axis for axis in torus[:2] if axis.size % 2 == 0]
    runs = [axis.outer(axis.size // 2) if axis in plane else axis for axis in slice_.axes]
    hosts = [axis.inner(2) for axis in plane]
    runs = [*cores, *hosts, *(axis for axis in runs if axis not in cores)]
    axes_of: dict[str, tuple[network.Axis, ...]] = {}
    for name, size in reversed(list(mesh.items())):
        axes_of[name] = ()
        for at, run in enumerate(runs):
            part = math.gcd(size, run.size)
            axes_of[name] += (run.inner(part),) if part > 1 else ()
            runs[at] = run.outer(run.size // part)
            size //= part
    return axes_of


# --- One kernel of a compiled program, and the roofline over it ----------------------------------


@dataclass(frozen=True, repr=False)
class CompiledKernel(Kernel):
    """One kernel of a compiled program: totals over all its launches.

    `work` counts one launch, `roof` has the device's ceilings for the types of its matmuls, and
    `link_seconds` are the least of one launch's exchange (by default its bytes over all links).
    FLOPs are None if a custom call does not declare them; times then count only the bytes.

    Examples
    --------
    >>> from roofline.xla import records
    >>> kernel = records()["fuse-chain", "v6e"].kernels[0]
    >>> kernel.name, kernel.hbm_bytes, kernel.bound
    ('add_maximum_fusion', 402653184, 'memory')
    """

    work: Row
    device: DeviceRoofs = field(default=DeviceRoofs(None), compare=False)
    link_seconds: float | None = None

    @property
    def chip(self) -> chips.Chip | None:
        """One device of its chip; None if it is not in the table."""
        return self.device.chip

    @cached_property
    def times(self) -> dict[str, float]:
        """Seconds by each ceiling alone, by name; "network" by the exchange's own links."""
        times = {} if self._is_handed else dict(super().times)
        if self.link_seconds is not None and self.roof is not None:
            times[NETWORK] = self.link_seconds * self.launches
        return times

    @property
    def bound(self) -> str | None:
        """The bound – "memory", "compute" or "network".

        None if FLOPs or times are unknown, or if `times_at_most` has another bound.
        """
        unsure = self.work.flops.unknown or self.work.untimed
        if unsure or self.depends or self.limit is None:
            return None
        return bound_of(self.limit)

    def __repr__(self) -> str:
        times = f", {si(self.roof_seconds, 's')} by the roof" if self.roof_seconds else ""
        return f"<{self.name}: {self.work.role}, {self.launches} ×{times}>"

    @property
    def name(self) -> str:
        """Its name in the compiled program."""
        return self.work.name

    @property
    def matrix_flops(self) -> float:
        """FLOPs of matmuls, and those that a custom call declares without a unit."""
        return self.work.matrix_flops * self.launches

    @property
    def vector_flops(self) -> float:
        """FLOPs of everything else, transcendentals included."""
        return self.work.vector_flops * self.launches

    @property
    def flops(self) -> float | None:
        """All FLOPs; None if some are unknown."""
        return None if self.work.flops.unknown else self.matrix_flops + self.vector_flops

    @property
    def read(self) -> dict[str, int]:
        """Bytes read, by memory level."""
        return self._launched(self.work.read)

    @property
    def written(self) -> dict[str, int]:
        """Bytes written, by memory level."""
        return self._launched(self.work.written)

    @property
    def traffic(self) -> dict[str, float]:
        """Bytes read and written, by memory level, and bytes sent to other devices."""
        return self._launched(self.work.traffic)

    def _launched(self, amounts: Mapping[str, Any]) -> dict[str, Any]:
        return {level: amount * self.launches for level, amount in amounts.items()}

    @property
    def hbm_bytes(self) -> int:
        """Bytes read from and written to HBM, every operand counted once."""
        return self.work.bytes * self.launches

    @property
    def endless(self) -> bool:
        """Whether its counts have no upper end, as data decide them or the trips of its loop."""
        return bool(self.work.at_least or self.work.loop)

    @property
    def host_bytes(self) -> int:
        """Bytes to and from the host, over its link."""
        return self.work.host_bytes * self.launches

    @property
    def roof_seconds(self) -> float | None:
        """Least seconds – the longest of `times` (None without a device).

        None too if it waits for the host, whose time isn't known.
        """
        return None if self._is_handed else super().roof_seconds

    @property
    def _is_handed(self) -> bool:
        return bool(self.work.host_bytes) and not self.work.overlaps

    @property
    def busiest(self) -> CompiledKernel:
        """The same kernel with the most launches, where data choose branches."""
        launches = max(self.launches, self.work.at_dearest.launches)
        return replace(self, work=self.work.running(launches), launches=launches)

    @property
    def most_bytes(self) -> float:
        """Bytes of HBM at most, where data choose branches, or the blocks of a Pallas kernel."""
        return math.inf if self.endless else self.work.at_most.bytes * self.busiest.launches

    @cached_property
    def times_at_most(self) -> dict[str, float]:
        """`times` with `most_bytes`, and vector work at an assumed peak if none is published."""
        if self.roof is None or self.chip is None:
            return self.times
        busiest = self.busiest
        times = dict(replace(busiest, work=busiest.work.at_most).times)
        assumed = assumed_vector_peak(self.chip)
        if assumed is not None and busiest.vector_flops:
            times["vector"] = busiest.vector_flops / assumed[0]
        return times

    @property
    def most_seconds(self) -> float | None:
        """Least seconds by `times_at_most`; None where the device is not known."""
        if self.roof is None:
            return None
        unbounded = self.endless or self.host_bytes
        return math.inf if unbounded else max(self.times_at_most.values(), default=0.0)

    @property
    def most_limit(self) -> str | None:
        """The ceiling that it meets first by `times_at_most`."""
        return max(self.times_at_most, key=self.times_at_most.__getitem__, default=None)

    @property
    def depends(self) -> bool:
        """Whether `limit` and `most_limit` are bounds of two kinds, so that there is no verdict."""
        ends = {bound_of(limit) for limit in (self.limit, self.most_limit) if limit is not None}
        return len(ends) > 1

    @property
    def limits(self) -> str:
        """The ceilings that it may meet first – `limit`, and `most_limit` where it depends."""
        if self.host_bytes:
            return HOST
        return f"{self.limit} or {self.most_limit}" if self.depends else self.limit or ""

    @property
    def intensity(self) -> float | None:
        """FLOPs over HBM bytes; None where FLOPs are unknown or nothing crosses HBM."""
        return self.flops / self.hbm_bytes if self.flops is not None and self.hbm_bytes else None

    @property
    def cycle_seconds(self) -> float | None:
        """The compiler's own estimate – its cycles at the chip's clock."""
        ticks = clock_of(self.chip)
        if self.work.cycles is None or ticks is None:
            return None
        return self.work.cycles * self.launches / ticks[0]


def kernel_of(row: Row, device: DeviceRoofs, links: Links | None = None) -> CompiledKernel:
    """Return the kernel of a program's row on a device."""
    exchange = row.collective
    seconds = None if exchange is None or links is None else links.seconds(exchange)
    return CompiledKernel(row, device.over(row.matrix_types), row.launches, device, seconds)


# --- Groups of kernels: by scope, by line of code, by role ---------------------------------------

NOWHERE = "outside of any function"


def location_of(row: Row) -> str:
    """Return a kernel's place as text: its scope, else its function, and its pass."""
    where = row.scope or (row.source.function if row.source is not None else "") or NOWHERE
    return where if row.step == "forward" else f"{where} ({row.step})"


def function_of(row: Row) -> str:
    """Return a kernel's function as text: its scope without layers' numbers, else its function.

    Forward, backward and recomputed kernels of one function are together.

    Examples
    --------
    >>> function_of(Row(op_name="jit(step)/transpose(jvp(layer_3))/mlp/dot_general"))
    'layer_#.mlp'
    """
    return re.sub(r"\d+", "#", location_of(row).removesuffix(f" ({row.step})"))


_KEYS: Mapping[str, Callable[[Row], str]] = {
    "scope": location_of,
    "function": function_of,
    "line": lambda row: str(row.source or "no line"),
    "role": lambda row: row.role or row.name,
}


def grouped(kernels: Sequence[CompiledKernel], by: str) -> dict[str, list[CompiledKernel]]:
    """Return a program's kernels in groups, the longest first.

    Raises
    ------
    UnknownName
        Another way to group.
    """
    key = _KEYS[name_of("way to group kernels", by, _KEYS)]
    groups: dict[str, list[CompiledKernel]] = {}
    for kernel in kernels:
        groups.setdefault(key(kernel.work), []).append(kernel)

    def cost(name: str) -> tuple[float, int]:
        roof, cycles = seconds_of(groups[name]), cycle_seconds_of(groups[name])
        return -max(roof, cycles), -sum(kernel.hbm_bytes for kernel in groups[name])

    return {name: groups[name] for name in sorted(groups, key=cost)}


def seconds_of(kernels: Iterable[CompiledKernel]) -> float:
    """Return the least seconds of the kernels without asynchronous ones."""
    return sum(kernel.roof_seconds or 0.0 for kernel in kernels if not kernel.work.overlaps)


def cycle_seconds_of(kernels: Iterable[CompiledKernel]) -> float:
    """Return the seconds of the compiler's cycles, as far as it gives them."""
    return sum(kernel.cycle_seconds or 0.0 for kernel in kernels)


def longest_of(kernels: Iterable[CompiledKernel], label: Callable[[CompiledKernel], str]) -> str:
    """Return the label whose kernels take most of the time; "" if none has a label."""
    seconds: dict[str, float] = {}
    for kernel in kernels:
        if name := label(kernel):
            seconds[name] = seconds.get(name, 0.0) + (kernel.roof_seconds or 0.0)
    return max(seconds, key=seconds.__getitem__, default="")


def line_of(kernels: Iterable[CompiledKernel]) -> str:
    """Return the line of code that takes most of the time; "" if none is known."""
    return longest_of(kernels, lambda kernel: str(kernel.work.source or ""))


# --- When kernels and exchanges run, by the compiled schedule -------------------------------------


@dataclass(frozen=True, repr=False)
class TimedCollective(Fields):
    """One exchange of a program, over all its launches: its time, and its exposed part.

    `seconds` is its least time on the links, `exposed` the least time that the program waits for
    it.

    Examples
    --------
    >>> from roofline.xla import records
    >>> exchange = records()["shard-fsdp-8192", "v5e"].exchanges[0]
    >>> exchange.collective.kind, exchange.seconds >= exchange.exposed
    ('all-gather', True)
    """

    collective: CollectiveOp
    role: str
    source: str
    seconds: float
    exposed: float


@dataclass(frozen=True, repr=False)
class Timeline(Fields):
    """When a program waits: the exposed seconds of each row, and how long links are busy.

    `busy` is by axis and direction: "model+".

    Examples
    --------
    >>> from roofline.xla import records
    >>> timeline = records()["shard-fsdp-8192", "v5e"].timeline
    >>> sum(timeline.exposed) <= sum(timeline.busy.values())
    True
    """

    exposed: tuple[float, ...]
    busy: Mapping[str, float]


def _lanes(collective: CollectiveOp) -> list[str]:
    """Return the link directions that an exchange uses: a permute uses one of its axis."""
    axis = collective.axis or ""
    if collective.kind == "collective-permute":
        return [f"{axis}{'+' if collective.hops > 0 else '-'}"]
    return [f"{axis}+", f"{axis}-"]


def timeline_of(kernels: Sequence[CompiledKernel]) -> Timeline:
    """Schedule a program's kernels in time: an exchange starts as soon as its links are free."""
    now, exposed = 0.0, [0.0] * len(kernels)
    free: dict[str, float] = {}
    busy: dict[str, float] = {}
    awaited: dict[int, list[tuple[int, float]]] = {}
    starts: dict[int, float] = {}
    ahead: dict[int, int] = {}  # for each exchange, the previous one on its links
    last: dict[str, int] = {}

    def wait(index: int, end: float) -> None:
        while end > now:  # waiting for busy links counts as exposed time of the previous exchange
            exposed[index] += end - max(starts[index], now)
            end, index = starts[index], ahead.get(index, index)

    for index, kernel in enumerate([*kernels, None]):
        for started, end in awaited.pop(index, []):
            wait(started, end)
            now = max(now, end)
        if kernel is None:
            break
        row = kernel.work
        if row.collective is None:
            now += 0.0 if row.overlaps else kernel.roof_seconds or 0.0
            continue
        links, seconds = _lanes(row.collective), kernel.times.get(NETWORK, 0.0)
        busiest = max(links, key=lambda link: free.get(link, 0.0))
        starts[index] = max(now, free.get(busiest, 0.0))
        if starts[index] > now:
            ahead[index] = last[busiest]
        end = starts[index] + seconds
        for link in links:
            free[link], busy[link] = end, busy.get(link, 0.0) + seconds
            last[link] = index
        if row.overlaps:
            awaited.setdefault(index + row.behind + 1, []).append((index, end))
        else:
            wait(index, end)
            now = end
    return Timeline(tuple(exposed), busy)


def exchanges_of(kernels: Sequence[CompiledKernel]) -> tuple[TimedCollective, ...]:
    """Return the exchanges of a program; steps of a windowed one are one exchange."""
    kept: dict[object, list[tuple[CompiledKernel, CollectiveOp, float]]] = {}
    shown = zip(kernels, timeline_of(kernels).exposed, strict=True)
    for index, (kernel, exposed) in enumerate(shown):
        collective = kernel.work.collective
        if collective is not None and kernel.launches:
            kept.setdefault(collective.key or index, []).append((kernel, collective, exposed))
    return tuple(map(_joined_steps, kept.values()))


def _joined_steps(parts: Sequence[tuple[CompiledKernel, CollectiveOp, float]]) -> TimedCollective:
    """Return the one exchange of several kernels."""
    busy: dict[str, float] = {}  # steps in both directions run at the same time
    for kernel, collective, _ in parts:
        for lane in _lanes(collective):
            busy[lane] = busy.get(lane, 0.0) + kernel.times.get(NETWORK, 0.0)
    row = parts[0][0].work
    seconds, exposed = max(busy.values()), sum(waits for *_, waits in parts)
    together = whole([collective for _, collective, _ in parts])
    return TimedCollective(together, row.role, str(row.source or ""), seconds, exposed)
