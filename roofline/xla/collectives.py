"""Exchanges between devices: their bytes, their groups, their start and end."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from roofline.xla.flops import aliased, results
from roofline.xla.hlo import (
    COLLECTIVES,
    PRODUCTS,
    Computation,
    Instruction,
    Module,
    Shape,
    Site,
)
from roofline_helpers.common.checks import ceil_div
from roofline_helpers.common.show import Fields

# --- Bytes and groups ----------------------------------------------------------------------------

Groups: TypeAlias = "tuple[tuple[int, ...], ...]"
"""Devices that exchange with one another, group by group."""


@dataclass(frozen=True, repr=False)
class CollectiveOp(Fields):
    """One exchange between devices, as one device sees it.

    `link_bytes` are the bytes that a device sends in a ring: 2(n−1)/n of the operand for an
    all-reduce, (n−1)/n of the larger side for gathers and scatters, all for a permute. `hops` is
    the distance of a permute along its group. A permute that overlaps with a matmul, `step_of`, is
    one step of a larger exchange, of the kind `windowed`: XLA turns an all-gather or a
    reduce-scatter into a loop of them, to hide it behind the matmul (a "windowed einsum").

    Examples
    --------
    >>> one = CollectiveOp("gather", "all-gather", 1024, 4096, 4, None)
    >>> one.link_bytes
    3072.0
    """

    name: str = ""
    kind: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    group_size: int = 1
    groups: tuple[tuple[int, ...], ...] | None = None
    launches: int = 1
    axis: str | None = None
    channel: str = ""
    hops: int = 1
    windowed: str = ""
    step_of: str = ""

    @property
    def key(self) -> tuple[Any, ...] | None:
        """The key that steps of one windowed exchange share; None for others."""
        if not self.windowed:
            return None
        return self.windowed, self.bytes_in, self.groups, self.step_of

    @property
    def link_bytes(self) -> float:
        """Bytes that one device sends, once."""
        n = max(self.group_size, 1)
        share = (n - 1) / n
        if self.kind == "all-reduce":
            return 2 * share * self.bytes_in
        if self.kind in ("collective-permute", "collective-broadcast"):
            return float(self.bytes_in) if n > 1 else 0.0
        return share * max(self.bytes_in, self.bytes_out)


_MEGASCALE = {
    "ALL_REDUCE": "all-reduce",
    "ALL_GATHER": "all-gather",
    "REDUCE_SCATTER": "reduce-scatter",
    "ALL_TO_ALL": "all-to-all",
    "ONE_TO_ONE": "collective-permute",
}
"""The work of a TPU's hosts between slices, with an array that a program sends them."""


def rendezvous(instruction: Instruction) -> str | None:
    """Return the key that a send to the hosts shares with its recv; None for other instructions."""
    if instruction.opcode not in ("send", "recv"):
        return None
    notes = instruction.attributes.get("frontend_attributes", "")
    found = re.search(r'_xla_host_transfer_rendezvous="([^"]*)"', notes)
    return found[1] if found and "_xla_megascale_transfer_type" in notes else None


def _between_slices(site: Site, launches: int) -> CollectiveOp:
    """Return the exchange between slices through hosts, with its groups if they are stated."""
    instruction = site.instruction
    notes = instruction.attributes["frontend_attributes"]
    named = re.search(r'_xla_megascale_transfer_type="(\w+)"', notes)
    target = re.search(r'_xla_megascale_target="\{([\d,]+)\}x\{0:(\d+)\}"', notes)
    kind = _MEGASCALE.get(named[1] if named else "", "collective-permute")
    into, inside = site.operands[0].bytes, site.program.partitions
    slices = None
    if target and int(target[2]) + 1 == inside:
        slices = len(target[1].split(","))
    groups = slices and tuple(tuple(range(i, slices * inside, inside)) for i in range(inside))
    n = slices or 1
    out = {"all-gather": n * into, "reduce-scatter": into // n}.get(kind, into)
    return CollectiveOp(instruction.name, kind, into, out, n, groups or None, launches)


def collective_of(site: Site, launches: int) -> CollectiveOp | None:
    """Return the first exchange that a kernel starts or contains; None without one."""
    if site.instruction.opcode == "send" and rendezvous(site.instruction):
        return _between_slices(site, launches)
    exchanges = (part for part in site.parts() if part.instruction.base in COLLECTIVES)
    part = next(exchanges, None)
    if part is None:
        return None
    kernel, exchange = site.instruction, part.instruction
    kind = exchange.base
    into, out = _sides(exchange, part.operands)
    if kind == "all-reduce" and kernel.opcode == "fusion" and kernel.shape.bytes < out:
        kind, out = "reduce-scatter", kernel.shape.bytes  # each device gets a part of the sum
    groups, hops = groups_of(exchange), 1
    if kind == "collective-permute" and groups:
        groups, hops = rings(groups)
    size = len(groups[0]) if groups else site.program.partitions
    channel = exchange.attributes.get("channel_id", "")
    return CollectiveOp(kernel.name, kind, into, out, size, groups, launches, None, channel, hops)


def _sides(exchange: Instruction, operands: Sequence[Shape]) -> tuple[int, int]:
    """Return the bytes that an exchange takes and leaves, in the type that travels.

    A sum of bf16 arrays whose result is fp32 is one of fp32: its parts travel, too. What is only
    moved is converted where it is narrower.
    """
    before = [leaf for shape in operands for leaf in shape.leaves]
    after = results(exchange).leaves
    if len(before) != len(after):
        return sum(leaf.bytes for leaf in before), sum(leaf.bytes for leaf in after)
    sums = exchange.base in ("all-reduce", "reduce-scatter")
    widths = [(max if sums else min)(a.bits, b.bits) for a, b in zip(before, after, strict=True)]
    sides = (zip(side, widths, strict=True) for side in (before, after))
    into, out = (sum(ceil_div(leaf.elements * bits, 8) for leaf, bits in side) for side in sides)
    return into, out


def rings(pairs: Groups) -> tuple[Groups, int]:
    """Return the groups of devices of a permute's (source, target) pairs, and its distance.

    The distance is along the sorted devices of a group, the shorter way round; backwards is
    negative.
    """
    following: dict[int, set[int]] = {}
    pairs = tuple(pair for pair in pairs if len(set(pair)) > 1) or pairs  # who keeps sends nothing
    for source, target in pairs:
        joined = following.get(source, {source}) | following.get(target, {target})
        for device in joined:
            following[device] = joined
    groups = {min(group): tuple(sorted(group)) for group in following.values()}
    first = min(groups)
    position = {device: i for i, device in enumerate(groups[first])}
    n = len(position)
    far = [(position[t] - position[s]) % n for s, t in pairs if s in position]
    shortest = (hop if hop <= n - hop else hop - n for hop in far)
    hops = max(shortest, key=abs, default=1)
    return tuple(groups[device] for device in sorted(groups)), hops


def whole(steps: Sequence[CollectiveOp]) -> CollectiveOp:
    """Return the whole of a windowed exchange from its steps; any other one as it is.

    Its bytes are its own, not those of its permutes, since XLA often makes one or two more than
    needed.

    Examples
    --------
    >>> one = CollectiveOp("gather", "all-gather", 1024, 4096, 4, None)
    >>> whole([one]) == one
    True
    """
    first = steps[0]
    if not first.windowed:
        return first
    shard, n = first.bytes_in, first.group_size
    into, out = (shard, n * shard) if first.windowed == "all-gather" else (n * shard, shard)
    times = max(1, round(sum(step.launches for step in steps) / n))
    kind = first.windowed
    return replace(first, kind=kind, bytes_in=into, bytes_out=out, launches=times, hops=1)


def feeds_product(site: Site, operand: str) -> bool:
    """Return whether an operand enters a kernel's matmul, and isn't only added."""
    if site.fused is None:
        return operand in site.instruction.operands[:2]
    depends = {
        inner.name
        for inner, name in zip(site.fused.parameters, site.instruction.operands, strict=True)
        if name == operand
    }
    for instruction in site.fused.instructions:
        if instruction.opcode in PRODUCTS and depends & set(instruction.operands[:2]):
            return True
        if depends & set(instruction.operands):
            depends.add(instruction.name)
    return False


def groups_of(instruction: Instruction) -> Groups | None:
    """Read replica_groups: {{0,1},{2,3}}, [2,2]<=[4], [2,2]<=[2,2]T(1,0), or a mesh's axes.

    None if there are none, or if they can't be read.
    """
    text = instruction.attributes.get("replica_groups", "")
    if instruction.opcode.startswith("collective-permute"):
        text = instruction.attributes.get("source_target_pairs", "")
    if text.startswith("{{"):
        return tuple(
            tuple(int(n) for n in group.split(",")) for group in re.findall(r"\{([\d,\s]+)\}", text)
        )
    if text.startswith("["):
        stated = re.match(r"\[(\d+),(\d+)\]<=(.*)", text)
        if not stated:
            return None
        numbers, size = _iota(stated.group(3)), int(stated.group(2))
        starts = range(0, len(numbers), size)
        return tuple(tuple(numbers[i : i + size]) for i in starts)
    if text.startswith("mesh["):
        return _groups_of_named_axes(text, instruction.attributes.get("device_ids", ""))
    return None


def _groups_of_named_axes(text: str, placement: str) -> Groups | None:
    """Read mesh['a'=2,'b'=2] {'b'}, or the same with device_ids=([2,2]T(1,0)) {'b'}."""
    axes = {name: int(n) for name, n in re.findall(r"'([^']+)'=(\d+)", text)}
    placed, _, chosen = placement.partition("{")
    if not placed.strip() and "{" in text:
        chosen = text.partition("{")[2]
    devices = _iota(placed.strip(" ()")) if placed.strip() else None
    return mesh_groups(axes, re.findall(r"'([^']+)'", chosen), devices)


def _iota(text: str) -> list[int]:
    """Read [2,2]T(1,0): the numbers 0, 1, 2 … in that shape, its dimensions permuted."""
    shape = re.match(r"\[([\d,]+)\](?:T\(([\d,]+)\)?)?", text.strip())
    if not shape:
        return []
    dims = [int(n) for n in shape.group(1).split(",")]
    order = list(range(len(dims)))
    if shape.group(2):
        order = [int(n) for n in shape.group(2).split(",")]
    numbers: Any = np.arange(math.prod(dims)).reshape(dims)
    return list(map(int, numbers.transpose(order).ravel()))


def mesh_groups(
    axes: Mapping[str, int], names: Sequence[str], devices: Sequence[int] | None = None
) -> Groups | None:
    """Return the groups of devices that differ only along the named axes of a mesh.

    Parameters
    ----------
    axes : mapping of str to int
        The mesh: the size of each axis.
    names : sequence of str
        The axes along which devices exchange.
    devices : sequence of int, optional
        The device at each place of the mesh; 0, 1, 2 … if not given.

    Returns
    -------
    tuple of tuples of int, or None
        None without an axis, or if the number of devices is wrong.
    """
    total = math.prod(axes.values())
    numbers = list(devices) if devices else list(range(total))
    if len(numbers) != total or not names:
        return None
    placed: Any = np.array(numbers).reshape(list(axes.values()))
    order = sorted(range(len(axes)), key=lambda at: list(axes)[at] in names)
    size = math.prod(n for name, n in axes.items() if name in names)
    return tuple(map(tuple, placed.transpose(order).reshape(-1, size).tolist()))


Axes: TypeAlias = "Mapping[frozenset[frozenset[int]], str]"
"""The names of mesh axes by their groups of devices."""


def axes_of_mesh(mesh: Mapping[str, int]) -> Axes:
    """Return the groups of devices of each axis, each pair of axes, and so on.

    Parameters
    ----------
    mesh : mapping of str to int
        The size of each axis. If two sets of axes have the same groups, the smaller set counts.

    Examples
    --------
    >>> for groups, name in axes_of_mesh({"x": 2, "y": 2}).items():
    ...     print(name, sorted(sorted(group) for group in groups))
    x, y [[0, 1, 2, 3]]
    y [[0, 1], [2, 3]]
    x [[0, 2], [1, 3]]
    """
    names, by_groups = list(mesh), {}
    for chosen in range(2 ** len(names) - 1, 0, -1):
        axes = [name for i, name in enumerate(names) if chosen >> i & 1]
        groups = mesh_groups(mesh, axes)
        if groups is not None and len(groups[0]) > 1:
            by_groups[_unordered(groups)] = ", ".join(axes)
    return by_groups


def axis_of(collective: CollectiveOp, axes: Axes) -> str | None:
    """Return the name of the mesh axes that an exchange runs along; None if it has none.

    The program of one of several slices numbers only its own devices: other slices have the same
    groups.
    """
    groups = collective.groups
    if groups is None:
        return None
    own = sum(map(len, groups))
    total = max((len(group) for key in axes for group in key), default=own)
    devices = {device for group in groups for device in group}
    if total > own and total % own == 0 and devices == set(range(own)):
        groups = tuple(
            tuple(d + i for d in group) for i in range(0, total, own) for group in groups
        )
    return axes.get(_unordered(groups))


def _unordered(groups: Groups) -> frozenset[frozenset[int]]:
    return frozenset(frozenset(group) for group in groups)


# --- Asynchronous exchanges, and steps of windowed ones ------------------------------------------

STARTS, DONE = "AsyncCollectiveStart", "AsyncCollectiveDone"
"""Calls by which a TPU's fusion starts an exchange, or waits for it. Fusions in between pass it on
while they do their own work."""


def chain_part(site: Site) -> str | None:
    """Return a kernel's part in a chain of fusions around one exchange.

    "start", "between" or "done"; None for other kernels.
    """
    if site.fused is None:
        return None
    targets = {part.target for part in site.fused.instructions if part.opcode == "custom-call"}
    if STARTS in targets:
        return "start"
    if DONE in targets:
        return "done"
    exchange = collective_of(site, 1)
    return None if exchange is None or not aliased(site.instruction)[0] else "between"


def trace_key(instruction: Instruction) -> str:
    """Return the key of an operation of the traced function: its name and its frame."""
    frame = re.search(r"stack_frame_id=\d+|source_line=\d+", instruction.metadata)
    return f"{instruction.op_name} {frame.group()}" if frame else instruction.op_name


def windowed_products(program: Module) -> dict[str, str]:
    """Return the matmuls that XLA splits into steps, with the exchange that they hide.

    Keys are `trace_key`, which XLA also gives to the permutes that overlap with the steps. The
    exchange is an all-gather if received data are multiplied, a reduce-scatter if they are added.
    """
    kinds: dict[str, str] = {}
    for where in program.computations.values():
        named: dict[str, list[Instruction]] = {}
        for instruction in where.instructions:
            if instruction.base == "collective-permute" and instruction.op_name:
                named.setdefault(trace_key(instruction), []).append(instruction)
        for instruction in where.instructions if named else ():
            site = Site(program, where, instruction)
            parts = site.parts() if instruction.opcode in ("fusion", *PRODUCTS) else ()
            products = (part.instruction for part in parts if part.instruction.opcode in PRODUCTS)
            for name in set(map(trace_key, products)) & named.keys():
                passed = {value for sent in named[name] for value in _value_names(where, sent)}
                multiplied = any(feeds_product(site, value) for value in passed)
                kinds[name] = "all-gather" if multiplied else kinds.get(name, "reduce-scatter")
    return kinds


def _value_names(where: Computation, permute: Instruction) -> list[str]:
    """Return the names of a permute's operand and result, and of their views."""
    names, todo = list(permute.operands), [permute.name]
    while todo:
        name = todo.pop()
        names.append(name)
        for user in where.users.get(name, []):
            if user.opcode in ("collective-permute-done", "bitcast", "copy", "reshape"):
                todo.append(user.name)
    return names
