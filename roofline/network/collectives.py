"""Collectives: the bytes and steps of each on its axes, and their time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeAlias

from roofline.network.axes import OUTER, Axis, Load, Over, Protocol, axes_of
from roofline_helpers.common.checks import BadValue, name_of, single, whole
from roofline_helpers.common.show import Facts, si

LoadOf: TypeAlias = Callable[[float, tuple[Axis, ...]], Load]
"""A function from bytes and one network's axes to a collective's load."""


@dataclass(frozen=True)
class Phase:
    """The part of a collective that one network carries.

    `latency` and `transfer` are seconds, `link_bytes` the bytes over the busiest link one way, and
    `steps` the number of sequential steps.

    Examples
    --------
    >>> from roofline.network import topology
    >>> all_gather(2**20, topology("v5e", "4x4")["x"]).phases[0].network
    'ici'
    """

    network: str
    axes: tuple[Axis, ...]
    algorithm: str
    link_bytes: float
    steps: int
    latency: float
    transfer: float


@dataclass(frozen=True, repr=False)
class Collective(Facts):
    """A collective on axes: its bytes and its time.

    Networks work as a pipeline, so the transfer is that of the slowest; their latencies add up.
    `phases` are the parts of single networks: `network`, `axes`, `algorithm`, `link_bytes`,
    `steps`, and the seconds of `latency` and `transfer`.

    Examples
    --------
    >>> from roofline.network import topology
    >>> all_reduce(2**20, topology("v5e", "4x4")["x", "y"]).bound
    'bandwidth'
    """

    kind: str
    nbytes: float
    axes: tuple[Axis, ...]
    phases: tuple[Phase, ...]

    def _title(self) -> str:
        return self.kind

    def _facts(self) -> dict[str, str]:
        over = " × ".join(f"{axis.name} ({axis.kind} of {axis.size})" for axis in self.axes)
        return {
            "bytes": si(self.nbytes, "B"),
            "over": f"over {over or 'one device'}",
            "link": f"{si(self.link_bytes, 'B')} on the busiest link",
            "time": f"{si(self.seconds, 's')} ({self.bound}-bound)",
        }

    @property
    def devices(self) -> int:
        """Devices that take part."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def latency(self) -> float:
        """Seconds of its steps, for any size."""
        return sum(phase.latency for phase in self.phases)

    @property
    def transfer(self) -> float:
        """Seconds of its bytes."""
        return max((phase.transfer for phase in self.phases), default=0.0)

    @property
    def seconds(self) -> float:
        """Seconds in all – latency + transfer."""
        return self.latency + self.transfer

    @property
    def bound(self) -> str:
        """The larger part of the time – "latency" or "bandwidth"."""
        return "latency" if self.latency > self.transfer else "bandwidth"

    @property
    def link_bytes(self) -> float:
        """Bytes that cross the busiest link of the slowest network, one way."""
        slowest = max(self.phases, key=lambda phase: phase.transfer, default=None)
        return slowest.link_bytes if slowest else 0.0


@dataclass(frozen=True)
class Transfer:
    """A collective of a step: its role, its purpose, its count, and whether compute can hide it.

    It can if the next operation can start without it: weights are gathered ahead and gradients
    reduced later, but activations are needed at once. `least` are the collectives that must be sent
    in any case, if the plan sends more: only they count in a bound. `forward` is the share of them
    in the forward pass.

    Examples
    --------
    >>> from roofline import network, training
    >>> cube = network.topology("v7x", "4x4x4")
    >>> step = training.step("llama-3-70b", cube, {"fsdp": 64}, batch=256, seq=8192)
    >>> step.exchanges[0].role, step.exchanges[0].hidden
    ('fsdp', True)
    """

    role: str
    purpose: str
    count: float
    collective: Collective
    hidden: bool = False
    least: tuple[Collective, ...] = ()
    forward: float = 0.5

    @property
    def seconds(self) -> float:
        """Seconds of all `count` of them, one after the other."""
        return self.count * self.collective.seconds


def all_gather(nbytes: float, over: Over) -> Collective:
    """Return the time of an all-gather: every device ends with the whole of a sharded array.

    A ring of n sends each shard both ways round, in ⌊n/2⌋ steps and V (n−1)/2n bytes per link one
    way; on a line, n−1 shards cross the last link. Several axes of a torus share the bytes: a
    device receives V (1−1/N) over all its links at once, as it does at a switch.

    Parameters
    ----------
    nbytes : float
        Bytes V of the whole array, as each device has it in the end.
    over : Axis or axes
        Of `topology(...)["x", "y"]` or `topology(...).mesh(...)["data"]`.

    Raises
    ------
    BadType, BadValue
        Not a positive number of bytes; not axes.

    Source: jax-ml/scaling-book, "Sharded matrices"; R. Thakur et al., IJHPCA 19(1), 2005.

    Examples
    --------
    >>> from roofline.network import topology
    >>> f"{all_gather(2**26, topology('v5e', '4x4')['x', 'y']).seconds * 1e6:.0f} µs"
    '635 µs'
    """
    return _timed("all-gather", nbytes, over, _passed_on)


def reduce_scatter(nbytes: float, over: Over) -> Collective:
    """Return the time of a reduce-scatter: arrays of all devices are added, each gets a shard.

    The reverse of an all-gather: the same bytes and steps.

    Parameters
    ----------
    nbytes : float
        Bytes of the array on each device.
    over
        As in `all_gather`; the same errors and sources.

    Examples
    --------
    >>> from roofline.network import topology
    >>> f"{reduce_scatter(2**26, topology('v5e', '4x4')['x', 'y']).seconds * 1e6:.0f} µs"
    '635 µs'
    """
    return _timed("reduce-scatter", nbytes, over, _passed_on)


def all_reduce(nbytes: float, over: Over, *, algorithm: str | None = None) -> Collective:
    """Return the time of an all-reduce: arrays of all devices are added, each gets the sum.

    "ring" is a reduce-scatter and an all-gather. "tree" sends twice the array up and down a binary
    tree in 2 ⌈log₂ n⌉ steps: for costly steps, between hosts. "one-shot" sends the whole array to
    every device in one step, (n−1) V bytes: for small arrays. "two-shot" sends each device its
    shard of every array, then the sums to all: the ring's bytes in two steps. With "nvls" (NVLink
    SHARP) the switch adds and copies, so that every device sends and receives at least V once;
    NCCL's moves V (1+1/n). "custom" is the fastest measured kernel of a serving library, if one was
    measured and is faster than the usual algorithm.

    Parameters
    ----------
    nbytes : float
        Bytes of the array on each device.
    over
        As in `all_gather`; the same errors and sources.
    algorithm : {"ring", "tree", "one-shot", "two-shot", "nvls", "custom"}, optional
        By default the fastest of those that libraries choose among: "ring", between hosts "tree",
        and "nvls" where the axis has multicast.

    Examples
    --------
    >>> from roofline.network import topology
    >>> f"{all_reduce(2**26, topology('v5e', '4x4')['x', 'y']).seconds * 1e6:.0f} µs"
    '1270 µs'
    """
    if algorithm is not None:
        algorithm = name_of("algorithm of all-reduce", algorithm, (*REDUCTIONS, "custom"))
    usual = _timed("all-reduce", nbytes, over, REDUCTIONS.get(algorithm or ""))
    times = [(kernel.startup, usual.nbytes / kernel.rate) for kernel in _custom(usual.axes)]
    latency, transfer = min(times, key=sum, default=(math.inf, math.inf))
    if algorithm != "custom" or latency + transfer >= usual.seconds:
        return usual
    [phase] = usual.phases
    phase = replace(phase, algorithm="custom", steps=1, latency=latency, transfer=transfer)
    return replace(usual, phases=(phase,))


def _custom(axes: tuple[Axis, ...]) -> tuple[Protocol, ...]:
    if len(axes) != 1:
        return ()
    return axes[0].custom.get(axes[0].size, ())


def all_to_all(nbytes: float, over: Over) -> Collective:
    """Return the time of an all-to-all: each device sends every other one a part of its array.

    On a torus messages take the shortest way, axis after axis: a ring's links carry V n / 8N bytes
    (n even), a line's middle link V n / 4N. At a switch a device sends (1−1/N) of what it has.

    Parameters
    ----------
    nbytes : float
        Bytes V of the whole array, of which each device holds a 1/N share.
    over
        As in `all_gather`; the same errors and sources.

    Examples
    --------
    >>> from roofline.network import topology
    >>> f"{all_to_all(2**26, topology('v5e', '4x4')['x', 'y']).seconds * 1e6:.0f} µs"
    '90 µs'
    """

    def load(v: float, axes: tuple[Axis, ...]) -> Load:
        n = _size(axes)
        link_bytes = max(_crossing(v, axis, n) for axis in axes)
        return Load("ring", link_bytes, _steps(axes), own_share=v / n**2, to="peers")

    return _timed("all-to-all", nbytes, over, load)


def permute(nbytes: float, over: Over, *, hops: int = 1) -> Collective:
    """Return the time of a cyclic permute: each device sends to the one `hops` further along.

    A ring takes the shorter way round, min(hops, n−hops) messages on each link; on a line the last
    devices send back to the first. At a switch it is one step.

    Parameters
    ----------
    nbytes : float
        Bytes that each device sends.
    over : Axis
        One axis.
    hops : int
        How far, from 1 to n − 1.

    Raises
    ------
    BadType, BadValue
        As `all_gather`; several axes; as many hops as devices, or more.

    Examples
    --------
    >>> from roofline.network import topology
    >>> f"{permute(2**26, topology('v5e', '4x4')['x']).seconds * 1e6:.0f} µs"
    '1345 µs'
    """
    far = whole("hops", hops)
    axes = axes_of(over)
    if len(axes) > 1:
        raise BadValue(f"permute runs along one axis, got {', '.join(a.name for a in axes)}")
    if axes and far >= axes[0].size:
        raise BadValue(f"hops must be under the axis's {axes[0].size}, got {far}")

    def load(v: float, group: tuple[Axis, ...]) -> Load:
        [axis] = group
        near = min(far, axis.size - far)
        if axis.kind in ("switch", "mesh"):
            return Load("ring", v, 1, to="peer")
        steps = near if axis.kind == "ring" else max(far, axis.size - far)
        return Load("ring", near * v * axis.stride, steps * axis.stride, to="peer")

    return _timed("permute", nbytes, axes, load)


def send(nbytes: float, over: Axis) -> Collective:
    """Return the time to send an array to the next device of an axis, without other traffic.

    Examples
    --------
    >>> from roofline.network import topology
    >>> sent = send(2 * 8 * 128 * 8192, topology("v5e", "4x4")["x"][0])
    >>> f"{sent.latency * 1e6:.0f} µs, then {sent.transfer * 1e6:.0f} µs"
    '1 µs, then 336 µs'
    """
    steps = 1 if over.kind in ("switch", "mesh") else over.stride

    return _timed("send", nbytes, over, lambda v, axes: Load("ring", v, steps, to="peer"))


def lines(over: Over) -> list[tuple[float, float]]:
    """Return lines in the size: the lowest at each size is the time of an all-reduce.

    Each line is an algorithm and protocol, a serving library's own kernels among them, as seconds
    at size 0 and seconds per byte; those that are never lowest are left out where another beats
    them at every size.

    Parameters
    ----------
    over : Axis or axes
        As in `all_gather`, of one network.

    Raises
    ------
    BadValue
        Axes of several networks.

    Examples
    --------
    >>> from roofline.network import topology
    >>> small, large = lines(topology("h100", 8, ceilings="reached").fast)
    >>> [f"{start * 1e6:.1f} µs + V / {1e-9 / slope:.0f} GB/s" for start, slope in (small, large)]
    ['3.2 µs + V / 44 GB/s', '8.1 µs + V / 194 GB/s']
    """
    axes = axes_of(over)
    networks = {axis.network for axis in axes}
    if len(networks) > 1:
        raise BadValue(f"lines are those of one network, got {', '.join(sorted(networks))}")
    costs = {(kernel.startup, 1 / kernel.rate) for kernel in _custom(axes)}
    for protocol in axes[0].protocols if axes else ():
        alone = [replace(axis, protocols=(protocol,), whole=None) for axis in axes]
        for load in _usual(axes[0].network, axes):
            byte = _timed("all-reduce", 1, alone, load)
            costs.add((byte.latency, byte.transfer))

    def beaten(cost: tuple[float, float]) -> bool:
        others = costs - {cost}
        return any(start <= cost[0] and transfer <= cost[1] for start, transfer in others)

    return sorted(cost for cost in costs if not beaten(cost))


def distinct(devices: Any, copies: Any, groups: tuple[int, int] = (1, 1)) -> Any:
    """Return the expected number of distinct devices hit by k random copies: n (1 − (1 − 1/n)ᵏ).

    `groups` are into how many the devices fall in order, and in how many of them, drawn at random,
    a token's copies lie; groups that don't divide the devices, or are divided by them, don't count.
    Where they lie in all groups, arrays of devices and copies work too.

    Examples
    --------
    >>> round(distinct(4, 8), 2), round(distinct(4, 8, (8, 4)), 2)
    (3.6, 2.91)
    """
    count, top = groups
    if count == top:
        return devices * (1 - (1 - 1 / devices) ** copies)
    if count % devices == 0:  # a device has whole groups: so many of them may be drawn
        own = int(count // devices)
        missed = sum(
            math.comb(own, n) * math.comb(count - own, top - n) * math.pow(1 - n / top, copies)
            for n in range(min(own, top) + 1)
        )
        return devices * (1 - missed / math.comb(count, top))
    share = 1 / devices
    if devices % count == 0:  # or a part of one
        share, devices = count / (devices * top), devices * top / count
    return devices * (1 - math.pow(1 - share, copies))


def copies(
    nbytes: float, active: float, over: Iterable[Axis], groups: tuple[int, int] = (1, 1)
) -> tuple[Collective, ...]:
    """Return the least traffic on each axis to send every device's array to `active` random others.

    A token is sent to its experts this way: once to each other host or slice that holds any of
    them, and from there once to each position along an axis. `all_to_all` of `active` copies sends
    more. `groups` are those in which experts lie, host after host, and how many of them a token may
    choose from: with 4 of 8 it reaches fewer hosts.

    Examples
    --------
    >>> from roofline.network import topology
    >>> hosts = topology("b200", 32).axes
    >>> [round(sent.link_bytes, 2) for sent in copies(1, 8, hosts)]
    [2.7, 4.25]
    >>> [round(sent.link_bytes, 2) for sent in copies(1, 8, hosts, (8, 4))]
    [2.18, 4.07]
    """
    axes = sorted(axes_of(over), key=lambda axis: axis.links)
    hosts = math.prod(axis.size for axis in axes if axis.network in OUTER)
    gathers = []
    for _, group in groupby(axes, key=lambda axis: axis.links):
        parts = tuple(group)
        n = _size(parts)
        reached = distinct(n, active, groups)
        if parts[0].network not in OUTER:
            # A gather leaves out the 1 / n that a position has itself. Of what other hosts sent
            # nothing is there yet: it is handed on whole, so that share is divided out again.
            of_a_host = distinct(hosts * n, active, groups) / hosts
            from_others = (hosts - 1) * (of_a_host - distinct(hosts, active, groups) / hosts)
            reached = of_a_host + from_others / (1 - 1 / n)
        gathers.append(all_gather(nbytes * reached, parts))
    return tuple(gathers)


def least_busy(transfers: Iterable[Transfer]) -> float:
    """Return a lower bound on the seconds in which links carry these transfers, without latency.

    Phases share their links, and one with several axes may leave some of them to others. That is a
    linear program; the bound is from its dual, with each phase's links as weights in turn.

    Examples
    --------
    >>> from roofline.network import topology
    >>> x, y = topology("v5e", "16x16").axes
    >>> gathers = [Transfer("", "", 1, all_gather(1e9, axes)) for axes in ([x], [x, y])]
    >>> [f"{1e3 * gather.collective.transfer:.1f} ms" for gather in gathers]
    ['9.4 ms', '5.0 ms']
    >>> f"{1e3 * least_busy(gathers):.1f} ms"
    '9.7 ms'
    """
    loads = []
    for transfer in transfers:
        for collective in transfer.least or (transfer.collective,):
            for phase in collective.phases:
                loads.append((lanes_of(phase.axes), transfer.count * phase.transfer))

    def beside(lanes: dict[str, float], links: dict[str, float]) -> float:
        share = min(links.get(name, 0.0) / lane for name, lane in lanes.items())
        return share * sum(lanes.values()) / sum(links.values())

    bounds = [sum(t * beside(lanes, links) for lanes, t in loads) for links, _ in loads]
    return max(bounds, default=0.0)


COLLECTIVES: dict[str, Callable[..., Collective]] = {
    "all-gather": all_gather,
    "reduce-scatter": reduce_scatter,
    "all-reduce": all_reduce,
    "all-to-all": all_to_all,
    "permute": permute,
}


def collective(kind: str, nbytes: float, over: Over, **options: Any) -> Collective:
    """Return a collective by its name, one of `COLLECTIVES`; raise as its own function.

    Raises
    ------
    UnknownName
        No such collective.

    Examples
    --------
    >>> from roofline.network import topology
    >>> collective("all-gather", 2**26, topology("v5e", "4x4")["x"]).kind
    'all-gather'
    """
    return COLLECTIVES[name_of("collective", kind, COLLECTIVES)](nbytes, over, **options)


# --- bytes and steps --------------------------------------------------------------------------


def _size(axes: Iterable[Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def _switched(axes: Iterable[Axis]) -> bool:
    return any(axis.kind == "switch" for axis in axes)


def _only_switch(algorithm: str, axes: Iterable[Axis]) -> None:
    if not _switched(axes):
        raise BadValue(f"{algorithm} needs a switch, got {', '.join(map(repr, axes))}")


def _gathered(v: float, axes: tuple[Axis, ...]) -> float:
    """Return the bytes on each link when every device receives all of V but its own share."""
    lanes = 1.0 if _switched(axes) else sum(lanes_of(axes).values())
    return v * (1 - 1 / _size(axes)) / lanes


def lanes_of(axes: Iterable[Axis]) -> dict[str, float]:
    """Return the lanes by axis: parts of one axis share its links."""
    lanes: dict[str, float] = {}
    for axis in axes:
        lanes[axis.links] = max(axis.lanes, lanes.get(axis.links, 0.0))
    return lanes


def _passed_on(v: float, axes: tuple[Axis, ...]) -> Load:
    """Return the load of shards passed around until all devices have them, the own one copied."""
    return Load("ring", _gathered(v, axes), _steps(axes), own_share=v / _size(axes))


def _steps(axes: tuple[Axis, ...]) -> int:
    return _size(axes) - 1 if _switched(axes) else sum(axis.steps for axis in axes)


def _ring(v: float, axes: tuple[Axis, ...]) -> Load:
    n = _size(axes)
    return Load("ring", 2 * _gathered(v, axes), 2 * _steps(axes), 2 * v / n)


def _tree(v: float, axes: tuple[Axis, ...]) -> Load:
    _only_switch("tree", axes)
    return Load("tree", 2 * v, 2 * math.ceil(math.log2(_size(axes))))


def _one_shot(v: float, axes: tuple[Axis, ...]) -> Load:
    n = _size(axes)
    steps = 1 if _switched(axes) else _steps(axes)
    return Load("one-shot", _gathered(n * v, axes), steps, own_share=n * v)


def _two_shot(v: float, axes: tuple[Axis, ...]) -> Load:
    steps = 2 if _switched(axes) else 2 * _steps(axes)
    return Load("two-shot", 2 * _gathered(v, axes), steps, own_share=v + v / _size(axes))


def _nvls(v: float, axes: tuple[Axis, ...]) -> Load:
    if not all(axis.multicast for axis in axes):
        raise BadValue("NVLS needs a switch with multicast: topology(..., multicast=True)")
    return Load("nvls", v, 2)


REDUCTIONS: dict[str, LoadOf] = {
    "ring": _ring,
    "tree": _tree,
    "one-shot": _one_shot,
    "two-shot": _two_shot,
    "nvls": _nvls,
}
"""The load of each all-reduce algorithm on the links."""


def _crossing(v: float, axis: Axis, devices: int) -> float:
    """Return the bytes on the busiest link of an axis in an all-to-all among `devices`."""
    n = axis.size
    if axis.kind == "switch":
        return v / devices * (1 - 1 / devices)
    if axis.kind == "mesh":
        return v / devices / n
    if axis.kind == "ring":
        return v * (n**2 // 4) / n / (2 * devices) * axis.stride
    return v * (n // 2) * (-(-n // 2)) / n / devices * axis.stride


# --- time -------------------------------------------------------------------------------------


def _timed(kind: str, nbytes: float, over: Over, load: LoadOf | None) -> Collective:
    """Return a collective with the time of each network's part of it.

    Without a load it is an all-reduce by the fastest of the usual algorithms.
    """
    v, axes = single("nbytes", nbytes), axes_of(over)
    phases = []
    inside = 1
    for network, group in groupby(_inside_out(axes), key=lambda axis: axis.network):
        members = tuple(group)
        part = v / inside
        if kind == "all-to-all":  # each group exchanges the whole share of its devices
            part = v * _size(members) / _size(axes)
        loads = [load] if load else _usual(network, members)
        candidates = [_phase(network, members, load_of(part, members)) for load_of in loads]
        phases.append(min(candidates, key=lambda phase: phase.latency + phase.transfer))
        inside *= _size(members)
    return Collective(kind, v, axes, tuple(phases))


def _inside_out(axes: tuple[Axis, ...]) -> list[Axis]:
    """Return axes by network, the fast ones inside first."""
    return sorted(axes, key=lambda axis: (axis.network in OUTER, axis.network != "core"))


def _usual(network: str, axes: tuple[Axis, ...]) -> list[LoadOf]:
    """Return the usual algorithms of an all-reduce: those that libraries choose among."""
    names = ["ring"]
    names += ["nvls"] if all(axis.multicast for axis in axes) else []
    names += ["tree"] if network in OUTER else []
    return [REDUCTIONS[name] for name in names]


def _phase(network: str, axes: tuple[Axis, ...], load: Load) -> Phase:
    """Return one network's part with the protocol that is fastest for it."""
    times = [protocol.times(load) for protocol in axes[0].protocols]
    return Phase(network, axes, load.algorithm, load.link_bytes, load.steps, *min(times, key=sum))
