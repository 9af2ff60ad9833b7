"""Topologies: slices of TPUs, hosts of GPUs, and several of them."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import count, product
from numbers import Real
from typing import Any, TypeAlias

from roofline.network.axes import OUTER, Axis, Kind, Mesh, Over, Protocol, axes_of
from roofline.network.measured import SAME_LINKS
from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    UnknownName,
    flag,
    name_of,
    shown,
    whole,
)
from roofline_helpers.common.show import Facts, si

CEILINGS = ("published", "reached")
Shape: TypeAlias = str | int | Iterable[int] | None
Asked: TypeAlias = "Mapping[str, int | str | Over | Iterable[str]]"
"""A mesh as it is asked for: sizes, or the network's axes, or their names."""

_AXIS_NAMES = "xyz"
_SLICE = re.compile(r"(?:tpu[ -]?)?(v4|v5e|v5litepod|v5p|v6e|v7x|tpu7x)-(\d+)", re.IGNORECASE)
_CORES = {"v4": 2, "v5p": 2, "v7x": 2}


@dataclass(frozen=True, repr=False)
class Topology(Facts):
    """Chips and the axes that join them.

    `shape` is that of one slice (TPUs) or the number of GPUs of one host. `axes` are those of the
    fast network, followed by the slow one between slices, hosts or NVLink domains: 256 GB200 are
    four domains of 64. ``topology["x", "y"]`` gives axes by name, as collectives take them.

    Examples
    --------
    >>> topology("v5p", "4x4x4").chips
    64
    """

    chip: Chip
    shape: tuple[int, ...]
    axes: tuple[Axis, ...]
    ceilings: str

    def _title(self) -> str:
        shape = "x".join(str(n) for n in self.shape)
        return f"{f'{self.slices} × ' if self.slices > 1 else ''}{self.chip.name} {shape}"

    def _facts(self) -> dict[str, str]:
        return {axis.name: repr(axis).strip("<>") for axis in self.axes} | {
            "memory": si(self.memory, "B"),
            "peak": si(self.flops(self.chip.half), "FLOP/s"),
        }

    def __getitem__(self, names: str | tuple[str, ...]) -> tuple[Axis, ...]:
        named = {axis.name: axis for axis in self.axes}
        asked = (names,) if isinstance(names, str) else names
        return tuple(named[name_of(f"axis of {self._title()}", name, named)] for name in asked)

    @property
    def fast(self) -> tuple[Axis, ...]:
        """The axes within a slice or a host."""
        return tuple(axis for axis in self.axes if axis.network == self.axes[0].network)

    @property
    def members(self) -> int:
        """Members of all axes together – chips, or JAX devices if the topology counts devices."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def chips(self) -> int:
        """The number of chips."""
        return math.prod(axis.size for axis in self.axes if axis.network != "core")

    @property
    def slices(self) -> int:
        """The number of slices, or hosts, of that shape."""
        return self.chips // math.prod(self.shape)

    @property
    def memory(self) -> float:
        """Bytes of all chips' main memory."""
        return self.members * self.chip.memory["hbm"].capacity.value

    def flops(self, dtype: Any = "bf16") -> float:
        """Return the peak of all chips, FLOP/s; raise as `Chip.peak`."""
        return self.members * self.chip.peak(dtype).value

    def mesh(self, axes: Asked) -> Mesh:
        """Lay the axes of a logical mesh, as JAX has them, onto those of the network.

        Parameters
        ----------
        axes : mapping of str to int or to names
            Size of each logical axis, outermost first, laid out from the last, so that it has the
            fastest links: on whole axes where sizes allow it, else on the tile with the most links.
            Or the network's axes that each runs over (names, or an `Axis` and its parts).

        Raises
        ------
        BadType, BadValue, UnknownName
            Sizes whose product isn't the number of chips; no such axis; an axis twice.

        Examples
        --------
        >>> pod = topology("v5e", "16x16")
        >>> pod.mesh({"data": 64, "tensor": 4})["tensor"]
        (<axis x[:2]: line of 2 over ici, 50 GB/s>, <axis y[:2]: line of 2 over ici, 50 GB/s>)

        Four in a row instead, with parts of axes:

        >>> x, y = pod.axes
        >>> pod.mesh({"data": (x, y.outer(4)), "tensor": y.inner(4)})["tensor"]
        (<axis y[:4]: line of 4 over ici, 50 GB/s>,)
        """
        if not isinstance(axes, Mapping) or not axes:
            raise BadType(f"a mesh must be a mapping of axes to sizes or names, got {shown(axes)}")
        if all(isinstance(size, Real) for size in axes.values()):
            sizes = {name: whole(f"size of {name}", size) for name, size in axes.items()}
            return _lay_out(sizes, self)
        mesh: Mesh = {}
        for name, over in axes.items():
            names = (over,) if isinstance(over, (str, Axis)) else over
            if not isinstance(names, Iterable):
                raise BadType(f"a mesh has sizes alone or axes alone, got {shown(over)} of {name}")
            mesh[name] = tuple(axis if isinstance(axis, Axis) else self[axis][0] for axis in names)
        axes_of(axis for group in mesh.values() for axis in group)
        return mesh

    def mesh_of_roles(
        self, mesh: Asked, roles: Sequence[str], most: Mapping[str, tuple[int, str]], model: str
    ) -> Mesh:
        """Return the axes of each role of a mesh that uses every member.

        `mesh` is as `Topology.mesh` takes it, with roles as names; `roles` are all of them, from
        the slowest links to the fastest. `most` has the most parts into which each can split the
        `model`, and the name of the parts.

        Raises
        ------
        BadType, BadValue, UnknownName
            As `mesh`; no such role; members left out; more devices than there is to split.
        """
        if not isinstance(mesh, Mapping):
            raise BadType(f"mesh must be a mapping of roles to sizes or axes, got {shown(mesh)}")
        asked = {name_of("role of a mesh axis", role, roles): size for role, size in mesh.items()}
        axes = self.mesh({role: asked[role] for role in roles if role in asked})
        size = {role: math.prod(axis.size for axis in over) for role, over in axes.items()}
        if math.prod(size.values()) != self.members:
            raise BadValue(f"the mesh must use all {self.members} members of {self!r}")
        for role, (largest, parts) in most.items():
            if size.get(role, 1) > largest:
                raise BadValue(
                    f"{role} parallelism over {size[role]} devices: {model} has {largest} {parts}"
                )
        return axes


def topology(
    chip: Any,
    shape: Shape = None,
    *,
    slices: int = 1,
    ceilings: str = "published",
    multicast: bool | None = None,
    cores: bool = False,
) -> Topology:
    """Return the topology of a slice, of a host of GPUs, or of several.

    Parameters
    ----------
    chip : str, Chip or jax.Device
        As `roofline_helpers.chip` takes it, or the cloud's name of a slice: "v5p-64" is a 2x4x4.
    shape : str, int or sequence of int, optional
        A TPU slice as "4x4x4", or as a number of chips in the vendor's usual shape. For GPUs their
        number, spread evenly over several hosts if one has fewer. By default a whole pod or host.
    slices : int
        Slices, or hosts, of that shape, joined by the data-centre network.
    ceilings : {"published", "reached"}
        The vendor's rates, or those of measured curves. Unmeasured networks keep the published
        rates.
    multicast : bool, optional
        Whether a switch that can copy and add does so. By default yes for "published", as a bound
        must assume, and no for "reached".
    cores : bool
        Whether members are JAX devices, of which a v7x chip is two: adds an axis "core" of the two,
        which takes no time since its rate isn't published, and halves their shares of links.

    Raises
    ------
    UnknownName
        No such chip or ceilings; a chip without known links.
    BadType, BadValue
        A shape that no pod holds.

    Examples
    --------
    >>> topology("v6e", 8).shape, topology("h100", 256).slices, topology("v5p-64").chips
    ((2, 4), 32, 32)
    """
    device, shape = slice_of(chip) if shape is None else (chip_of(chip), shape)
    if device.key not in _wiring() and shape == 1 == slices:
        return Topology(device, (1,), (), name_of("ceilings", ceilings, CEILINGS))
    if device.key not in _wiring():
        allowed = ", ".join(_wiring())
        raise UnknownName(f"{device.name} has no links that are known. Allowed: {allowed}")
    ceilings = name_of("ceilings", ceilings, CEILINGS)
    switched = ceilings == "published" if multicast is None else flag("multicast", multicast)
    wiring = _wiring()[device.key]
    outer = whole("slices", slices)
    pod = tuple(wiring["pod"])
    if wiring["kind"] == "torus":
        sizes = _torus_shape(shape, pod, device)
        kinds = _torus_kinds(sizes, wiring["wrap"])
        names = list(_AXIS_NAMES)
    else:
        chips = math.prod(pod) if shape is None else whole("shape", shape)
        domains = _domains(chips, pod[0])
        if outer * domains > 1 and "outer" not in wiring:
            raise BadValue(
                f"at most {pod[0]} chips of {device.name}: no byte/s of the network between its "
                f"hosts is published (links.nic.rate of chips.toml)"
            )
        outer *= domains
        sizes, kinds = (chips // domains,), [wiring["kind"]]
        names = [wiring["link"]]
    inside = device.devices if flag("cores", cores) else 1
    device = device.per_device() if inside > 1 else device
    protocols = _protocols(device, wiring["link"], ceilings, wiring["kind"])
    cast = wiring.get("multicast", False) and switched
    custom = _custom(device) if ceilings == "reached" else {}
    axes = [
        Axis(name, size, kind, wiring["link"], protocols, multicast=cast, custom=custom)
        for name, size, kind in zip(names, sizes, kinds, strict=False)
    ]
    if outer > 1:
        link = wiring["outer"]
        between = _protocols(device, link, ceilings, "switch")
        axes.append(Axis(link, outer, "switch", link, between))
    if inside > 1:
        axes.append(Axis("core", inside, "switch", "core", (Protocol(math.inf),)))
    return Topology(device, sizes, tuple(axes), ceilings)


def slice_of(name: Any) -> tuple[Chip, str | None]:
    """Return the chip and layout of a cloud's name of a slice: v6e-8 is a 2x4 of v6e.

    The number counts chips of v5e and v6e, but TensorCores (two per chip) of v4, v5p and v7x: a
    power of two of chips, or a whole pod. Any other name of a chip has no layout.

    Raises
    ------
    UnknownName, BadType
        No such chip.
    BadValue
        No slice has so many chips.
    """
    parts = _named_slice(name)
    if parts is None:
        return chip_of(name), None
    family = parts.group(1).lower()
    key = {"v5litepod": "v5e", "tpu7x": "v7x"}.get(family, family)
    cores = _CORES.get(key, 1)
    chips, rest = divmod(int(parts.group(2)), cores)
    pod = tuple(_wiring()[key]["pod"])
    sizes = None if rest or chips < 1 else _usual_shape(chips, pod)
    if sizes is None:
        near = ", ".join(f"{family}-{n * cores}" for n in _near(chips, pod))
        raise BadValue(f"no slice {name!r} is known. Nearest: {near}. For others give a topology")
    return chip_of(key), "x".join(map(str, sizes))


def usual_layout(chip: Chip, chips: int) -> str:
    """Return the usual layout of a number of TPU chips, as "2x4"; raise BadValue if none has it."""
    shape = _torus_shape(chips, tuple(_wiring()[chip.key]["pod"]), chip)
    return "x".join(str(n) for n in shape)


def topology_of(hardware: Any) -> Topology | None:
    """Return a topology, given as it is or by a cloud's name of a slice; None for all else."""
    if isinstance(hardware, Topology):
        return hardware
    return None if _named_slice(hardware) is None else topology(hardware)


def _named_slice(name: Any) -> re.Match[str] | None:
    return _SLICE.fullmatch(name.strip()) if isinstance(name, str) else None


@cache
def _data() -> dict[str, Any]:
    text = resources.files("roofline").joinpath("data", "network.toml").read_text("utf-8")
    return tomllib.loads(text)


def _wiring() -> dict[str, Any]:
    return dict(_data()["wiring"])


def _domains(chips: int, most: int) -> int:
    """Return the fewest hosts, or NVLink domains, that have the same number of chips each."""
    domains = -(-chips // most)
    if chips % domains == 0:
        return domains

    def even(step: int) -> int:
        return next(n for n in count(chips, step) if n % -(-n // most) == 0)

    raise BadValue(
        f"{chips} chips can't be spread evenly over {domains} hosts of at most {most}. "
        f"Nearest: {even(-1)}, {even(1)}"
    )


def _protocols(chip: Chip, link: str, ceilings: str, kind: str) -> tuple[Protocol, ...]:
    """Return the protocols of a link of a chip."""
    wire = chip.links[link]
    rate = float(wire) if kind == "switch" else wire.rate.value
    hop = wire.latency.value if wire.latency else 0.0
    reached = _data()["reached"].get(link) if ceilings == "reached" else None
    if reached is None:
        return (Protocol(rate, hop),)
    startup = _data()["reached"]["startup"]
    if "small_rate" not in reached:
        return (Protocol(rate * reached["efficiency"], hop, startup),)
    library = _data()["published"][link]
    known = {"startup": startup, **reached, **library, **library.get(chip.key, {})}
    exchange, later = (reached[f"{load}_startup"] - startup for load in ("exchange", "bulk"))
    large, begin = rate * known["efficiency"], known["startup"]
    own_rate = chip.roofline(chip.half).bandwidth * known["own_share"]
    small = Protocol(min(large, known["small_rate"]), known["step"], begin, exchange)
    bulk = Protocol(large, known["bulk_step"], begin + later, exchange, own_rate=own_rate)
    # the share of channels that go to one peer
    few = known["small_rate"] / (float(chip_of("h100").links[link]) * library["efficiency"])
    return tuple(
        replace(protocol, peer_rate=few * protocol.rate, peer_limit=known["peer_limit"])
        for protocol in (small, bulk)
    )


def _custom(chip: Chip) -> dict[int, tuple[Protocol, ...]]:
    """Return the measured all-reduces of serving libraries, by number of GPUs."""
    measured = _data()["custom"].get(SAME_LINKS.get(chip.key, chip.key), {})
    return {
        int(gpus): tuple(Protocol(rate, startup=startup) for startup, rate in lines)
        for gpus, lines in measured.items()
    }


def _torus_shape(shape: Shape, pod: tuple[int, ...], chip: Chip) -> tuple[int, ...]:
    """Return the sizes of a slice's axes."""
    if shape is None:
        return pod
    if isinstance(shape, str):
        if not re.fullmatch(r"\d+(x\d+)*", shape.strip().lower()):
            raise BadValue(f"a shape must be sizes joined by x, as 4x4x4, got {shown(shape)}")
        sizes = [int(n) for n in shape.lower().split("x")]
    elif isinstance(shape, Real) and not isinstance(shape, bool):
        chips = whole("shape", shape)
        usual = _usual_shape(chips, pod)
        if usual is None:
            nearest = ", ".join(map(str, _near(chips, pod)))
            raise BadValue(
                f"{chips} chips of {chip.name} have no usual shape: give one, as '4x4x4'. "
                f"Nearest: {nearest}"
            )
        sizes = usual
    elif isinstance(shape, Iterable):
        sizes = [whole("shape", n) for n in shape]
    else:
        raise BadType(f"shape must be like '4x4x4', or a number of chips, got {shown(shape)}")
    sizes += [1] * (len(pod) - len(sizes))
    if not _held(sizes, pod):
        largest = "x".join(str(n) for n in pod)
        raise BadValue(
            f"a slice of {chip.name} is at most {largest}, {len(pod)} axes, got {shown(shape)}"
        )
    return tuple(sizes)


def _held(sizes: Sequence[int], pod: Sequence[int]) -> bool:
    """Return whether a pod holds a slice of these sizes."""
    pairs = zip(sorted(sizes), sorted(pod), strict=False)
    return len(sizes) == len(pod) and all(1 <= size <= most for size, most in pairs)


def _usual_shape(chips: int, pod: Sequence[int]) -> list[int] | None:
    """Return the vendor's shape of a number of chips; None if the pod holds none.

    It is as near to a cube as powers of two allow, or the whole pod.
    """
    if chips == math.prod(pod):
        return [*pod]
    power, dimensions = chips.bit_length() - 1, len(pod)
    exponents = ((power + i) // dimensions for i in range(dimensions))
    sizes = sorted((2**e for e in exponents), key=lambda n: (n == 1, n))
    return sizes if chips == 2**power and _held(sizes, pod) else None


def _near(chips: int, pod: Sequence[int]) -> list[int]:
    """Return the nearest numbers of chips that have a usual shape: at most one fewer, one more."""
    known = {2**e for e in range(math.prod(pod).bit_length())} | {math.prod(pod)}
    usual = sorted(n for n in known if _usual_shape(n, pod))
    return [*[n for n in usual if n <= chips][-1:], *[n for n in usual if n > chips][:1]]


def _torus_kinds(sizes: tuple[int, ...], wrap: str) -> list[Kind]:
    """Return for each axis whether it is a ring or a line."""
    if wrap == "cube":
        return ["ring" if all(n % 4 == 0 for n in sizes) else "line"] * len(sizes)
    return ["ring" if n == int(wrap) else "line" for n in sizes]


def _lay_out(sizes: dict[str, int], on: Topology) -> Mesh:
    """Return the network's axes, or parts of them, for each logical axis."""
    total = math.prod(sizes.values())
    if total != on.members:
        raise BadValue(f"the mesh {sizes} has {total} members, the topology has {on.members}")
    free = sorted(on.axes, key=lambda axis: axis.network != "core")
    axes = {name: _allocate(size, free) for name, size in reversed(sizes.items())}
    return {name: axes[name] for name in sizes}


def _allocate(size: int, free: list[Axis]) -> tuple[Axis, ...]:
    """Take `size` devices out of `free`: as many as possible inside a slice or a host."""
    fast = [axis for axis in free if axis.network not in OUTER]
    inside = math.gcd(size, math.prod(axis.size for axis in fast))
    tiles = product(*(_divisors(axis.size) for axis in fast))
    widest = max(
        (tile for tile in tiles if math.prod(tile) == inside), key=lambda tile: _width(fast, tile)
    )
    sizes = dict(zip(fast, widest, strict=True))
    taken: list[Axis] = []
    for at, axis in reversed(list(enumerate(free))):
        part = sizes.get(axis, size // inside)
        if part > 1:
            taken.insert(0, axis.inner(part))
            free[at : at + 1] = [] if part == axis.size else [axis.outer(axis.size // part)]
    return tuple(taken)


def _width(axes: Iterable[Axis], tile: tuple[int, ...]) -> tuple[bool, float, int, tuple[int, ...]]:
    """Return a group's sort key: whole axes, then many links, then few steps."""
    parts = [axis.inner(size) for axis, size in zip(axes, tile, strict=True) if size > 1]
    whole_axes = all(size in (1, axis.size) for axis, size in zip(axes, tile, strict=True))
    lanes = sum(math.inf if part.network == "core" else part.lanes for part in parts)
    return whole_axes, lanes, -sum(part.steps for part in parts), tile


def _divisors(size: int) -> list[int]:
    return [n for n in range(1, size + 1) if size % n == 0]
