"""The least time of a program's exchanges on the links between its devices."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from roofline_helpers import network
from roofline_helpers._checks import RooflineError
from roofline_helpers.compiled.targets import sliced
from roofline_helpers.hlo import Collective

_ALIKE = {"ragged-all-to-all": "all-to-all", "collective-broadcast": "all-gather"}


@dataclass(frozen=True)
class Links:
    """What joins the devices of a program: the chip, the layout of the slice, and its mesh.

    Examples
    --------
    >>> from roofline_helpers.compiled import records
    >>> gather = records()["shard-fsdp-8192", "v5e"].collectives[0]
    >>> Links("v5e", "4x4", {"data": 16}, 16).latency_bound(gather)
    False
    """

    chip: str
    topology: str
    mesh: Mapping[str, int]
    devices: int

    def _axes(self, ceilings: str) -> dict[str, tuple[network.Axis, ...]]:
        """Return the axes of the network that each axis of the mesh runs along; {} if unknown."""
        slices, layout = sliced(self.topology)
        shapes = [layout or None, *([self.devices] if slices == 1 else [])]
        for shape in shapes if self.mesh and self.devices > 1 else ():
            for cores in (True, False):
                with contextlib.suppress(RooflineError):
                    slice_ = network.topology(
                        self.chip, shape, slices=slices, cores=cores, ceilings=ceilings
                    )
                    laid = slice_.mesh(dict(self.mesh))
                    split = any(axis.whole for axes in laid.values() for axis in axes)
                    return _in_order(slice_, self.mesh) if split else laid
        return {}

    @cached_property
    def _published(self) -> dict[str, tuple[network.Axis, ...]]:
        return self._axes("published")

    @cached_property
    def _reached(self) -> dict[str, tuple[network.Axis, ...]]:
        return self._axes("reached")

    def seconds(self, exchange: Collective, *, reached: bool = False) -> float | None:
        """Return the least seconds of one launch, by published or reached rates, where known."""
        timed = _timed(exchange, self._reached if reached else self._published)
        return None if timed is None else timed.seconds

    def latency_bound(self, exchange: Collective) -> bool:
        """Return whether steps take longer than bytes, by what links really reach."""
        timed = _timed(exchange, self._reached)
        return timed is not None and timed.latency > timed.transfer


def _in_order(
    slice_: network.Topology, mesh: Mapping[str, int]
) -> dict[str, tuple[network.Axis, ...]]:
    """Return the axes of a mesh that JAX can't keep on whole axes of the torus.

    Its devices are in the layout's own order (`targets.placed`): hosts of 2 × 2 chips, along the
    first axis, then along the next.
    """
    cores = [axis for axis in slice_.axes if axis.network == "core"]
    torus = [axis for axis in slice_.fast if axis.kind in ("ring", "line")]
    plane = [axis for axis in torus[:2] if axis.size % 2 == 0]
    runs = [axis.outer(axis.size // 2) if axis in plane else axis for axis in slice_.axes]
    hosts = [axis.inner(2) for axis in plane]
    runs = [*cores, *hosts, *(axis for axis in runs if axis not in cores)]
    laid: dict[str, tuple[network.Axis, ...]] = {}
    for name, size in reversed(list(mesh.items())):
        laid[name] = ()
        for at, run in enumerate(runs):
            part = math.gcd(size, run.size)
            laid[name] += (run.inner(part),) if part > 1 else ()
            runs[at] = run.outer(run.size // part)
            size //= part
    return laid


def _timed(
    exchange: Collective, axes: Mapping[str, tuple[network.Axis, ...]]
) -> network.Collective | None:
    names = exchange.axis.split(", ") if exchange.axis else []
    over = tuple(axis for name in names for axis in axes.get(name, ()))
    if not over or any(name not in axes for name in names):
        return None
    if exchange.kind == "collective-permute":
        if len(over) > 1 or abs(exchange.hops) >= over[0].size:  # a ring that bends: one link each
            return network.send(exchange.bytes_in, over[0])
        return network.permute(exchange.bytes_in, over[0], hops=abs(exchange.hops) or 1)
    whole = {
        "all-gather": exchange.bytes_out,
        "all-to-all": exchange.bytes_in * exchange.group_size,
    }
    kind = _ALIKE.get(exchange.kind, exchange.kind)
    return network.collective(kind, whole.get(kind, exchange.bytes_in), over)
