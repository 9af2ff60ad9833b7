"""Axes: chips in a row, a ring or around a switch, and the cost of moving bytes along them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from roofline_helpers.common.checks import BadType, BadValue, shown, whole
from roofline_helpers.common.show import si

Kind = Literal["ring", "line", "switch", "mesh"]
Over: TypeAlias = "Axis | Iterable[Axis]"
"""One axis, or several that a collective runs over."""

Mesh: TypeAlias = "dict[str, tuple[Axis, ...]]"
"""The axes of each logical axis, or role, of a mesh."""

OUTER = ("dcn", "nic")
"""Networks between slices or hosts."""


@dataclass(frozen=True)
class Protocol:
    """One way to move bytes.

    Parameters
    ----------
    rate : float
        Byte/s over a link, one way.
    step, startup : float
        Seconds per step, and once to start.
    exchange : float
        Further seconds to start an all-to-all.
    own_rate : float, optional
        Byte/s at which a device copies, or adds, its own share of the result, which crosses no
        link; not given if that costs nothing.
    peer_rate, peer_limit : float, optional
        Byte/s to a single peer, for messages of fewer bytes than the limit.

    Examples
    --------
    >>> from roofline.network import topology
    >>> [protocol.rate for protocol in topology("v5e", "4x4").axes[0].protocols]
    [50000000000.0]
    """

    rate: float
    step: float = 0.0
    startup: float = 0.0
    exchange: float = 0.0
    own_rate: float | None = None
    peer_rate: float | None = None
    peer_limit: float = math.inf

    def times(self, load: Load) -> tuple[float, float]:
        """Return the seconds of a load's steps, and of its bytes."""
        rate, latency = self.rate, self.startup + load.steps * self.step
        if load.to == "peer" and self.peer_rate and load.link_bytes < self.peer_limit:
            rate = min(rate, self.peer_rate)
        if load.to == "peers":
            latency += self.exchange
        own_share = load.own_share / self.own_rate if self.own_rate else 0.0
        return latency, load.link_bytes / rate + own_share


class Load(NamedTuple):
    """The load of a collective on one network.

    `link_bytes` cross the busiest link one way, in `steps` that follow each other. `own_share` are
    the bytes of its own share that a device copies or adds. `to` says how a device sends: the same
    to "all", different data to its "peers", or to a single "peer".

    Examples
    --------
    >>> Load("ring", link_bytes=3 * 2**18, steps=3).to
    'all'
    """

    algorithm: str
    link_bytes: float
    steps: int
    own_share: float = 0.0
    to: Literal["all", "peers", "peer"] = "all"


@dataclass(frozen=True, repr=False)
class Axis:
    """Devices that a collective can run along.

    Parameters
    ----------
    name : str
        "x", "nvlink", "dcn".
    size : int
        Devices along it.
    kind : {"ring", "line", "switch", "mesh"}
        A closed row of neighbours, an open one, a switch between all of them, or one link between
        any two.
    network : str
        Which of the chip's links it uses: axes of one network work side by side, each over links of
        its own.
    protocols : tuple of Protocol
        Ways to move bytes, of which each message uses the fastest. Rates are of one link, one way,
        but at a switch of all of a device's links together.
    stride : int
        Links from one member to the next: as many such groups share the links.
    multicast : bool
        Whether the switch can copy and add.
    custom : mapping of int to tuples of Protocol
        By number of devices, the measured all-reduces of a serving library.
    whole : Axis, optional
        The axis that this is a part of.

    Examples
    --------
    >>> from roofline.network import topology
    >>> axis = topology("v5p", "4x4x4")["x"][0]
    >>> axis.size, axis.kind, axis.network
    (4, 'ring', 'ici')
    """

    name: str
    size: int
    kind: Kind
    network: str
    protocols: tuple[Protocol, ...] = field(compare=False)
    stride: int = 1
    multicast: bool = False
    custom: Mapping[int, tuple[Protocol, ...]] = field(default_factory=dict, compare=False)
    whole: Axis | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        rate = si(self.protocols[-1].rate / self.stride, "B/s", "G", 4)
        return f"<axis {self.name}: {self.kind} of {self.size} over {self.network}, {rate}>"

    @property
    def links(self) -> str:
        """Name of the axis whose links it uses – parts of one axis share them, except in a mesh."""
        return self.whole.name if self.whole and self.kind != "mesh" else self.name

    @property
    def lanes(self) -> float:
        """Links of one device that a collective over this axis fills at once, each one way."""
        full = {"ring": 2, "line": 1, "switch": 1, "mesh": self.size - 1}[self.kind]
        return full / self.stride

    @property
    def steps(self) -> int:
        """Steps until one device's data has reached all others, by the ring algorithm."""
        if self.kind == "ring":
            return self.size // 2 * self.stride
        return 1 if self.kind == "mesh" else (self.size - 1) * self.stride

    def inner(self, size: int) -> Axis:
        """Return the group of `size` neighbours: part of a ring is a line.

        Raises
        ------
        BadType, BadValue
            Not a whole number that divides the axis.
        """
        size = self._part(size)
        if size == self.size:
            return self
        kind: Kind = self.kind if self.kind in ("switch", "mesh") else "line"
        name = f"{self.name}[:{size}]"
        return replace(self, name=name, size=size, kind=kind, whole=self.whole or self)

    def outer(self, size: int) -> Axis:
        """Return the group of every (self.size / size)-th device; raise as `inner`."""
        size = self._part(size)
        if size == self.size:
            return self
        stride = 1 if self.kind in ("switch", "mesh") else self.stride * (self.size // size)
        name = f"{self.name}[::{self.size // size}]"
        return replace(self, name=name, size=size, stride=stride, whole=self.whole or self)

    def _part(self, size: int) -> int:
        size = whole("size", size)
        if self.size % size:
            raise BadValue(f"a part of axis {self.name} must divide its {self.size}, got {size}")
        return size


def axes_of(over: Over) -> tuple[Axis, ...]:
    """Return the axes that a collective runs over.

    Parts that together are a whole axis become that axis; axes of one device are left out.

    Raises
    ------
    BadType
        Not axes.
    BadValue
        One axis twice, or parts of it that overlap.
    """
    axes = (over,) if isinstance(over, Axis) else over
    if not isinstance(axes, Iterable) or isinstance(axes, str):
        raise BadType(f"over must be an axis or axes of a topology, got {shown(over)}")
    axes = tuple(axes)
    sizes: dict[Axis, int] = {}
    for axis in axes:
        if not isinstance(axis, Axis):
            raise BadType(f"over must be an axis or axes of a topology, got {shown(axis)}")
        whole_axis = axis.whole or axis
        sizes[whole_axis] = sizes.get(whole_axis, 1) * axis.size
    twice = len({axis.name for axis in axes}) < len(axes)
    if twice or any(size > axis.size for axis, size in sizes.items()):
        raise BadValue(f"give each axis once, got {', '.join(axis.name for axis in axes)}")
    return _joined([axis for axis in axes if axis.size > 1])


def share_links(first: Iterable[Axis], second: Iterable[Axis]) -> bool:
    """Return whether collectives over these axes use the same links.

    Examples
    --------
    >>> from roofline.network import topology
    >>> mesh = topology("v5e", "16x16").mesh({"fsdp": 64, "tensor": 4})
    >>> share_links(mesh["fsdp"], mesh["tensor"])
    True
    """
    return not {axis.links for axis in first}.isdisjoint(axis.links for axis in second)


def _joined(axes: list[Axis]) -> tuple[Axis, ...]:
    """Return the axes, with complete sets of parts merged into their axis."""
    joined: list[Axis] = []
    for axis in axes:
        parts = [other for other in axes if axis.whole and other.whole == axis.whole]
        if axis.whole and math.prod(part.size for part in parts) == axis.whole.size:
            if axis.whole not in joined:
                joined.append(axis.whole)
        else:
            joined.append(axis)
    return tuple(joined)
