"""Products of two arrays that are sharded over a mesh.

A sharding is written as scaling-book writes it: ``"I_x J"`` is an array of I × J whose first
dimension is split over the mesh axis x, and ``"I_fsdp J"`` over an axis of that name; ``"I_xy J"``
splits it over both x and y.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadType, BadValue, UnknownName, shown, text
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.dtypes import width
from roofline_helpers.common.show import Facts, si
from roofline_helpers.network.axes import Axis
from roofline_helpers.network.collectives import (
    Collective,
    all_gather,
    all_reduce,
    all_to_all,
    reduce_scatter,
)

Mesh = Mapping[str, tuple[Axis, ...]]
Spec = dict[str, tuple[str, ...]]


@dataclass(frozen=True, repr=False)
class Plan(Facts):
    """One way to multiply two sharded matrices.

    `flops` and `hbm_bytes` are those of one device, `steps` says what is exchanged, in order.

    Examples
    --------
    >>> from roofline_helpers.network import topology
    >>> mesh = topology("v5p", "4x4x4").mesh({"x": ("x",)})
    >>> plan = matmul("B D, D F_x -> B F_x", {"B": 512, "D": 8192, "F": 8192}, mesh, "v5p")[0]
    >>> plan.bound, plan.comms
    ('compute', 0)
    """

    steps: tuple[str, ...]
    collectives: tuple[Collective, ...]
    flops: float
    hbm_bytes: float
    math: float
    memory: float

    def _title(self) -> str:
        return "matmul"

    def _facts(self) -> dict[str, str]:
        return {
            "exchanges": "; ".join(self.steps) or "no exchange",
            "FLOPs": f"{si(self.flops, 'FLOP')} a device, {si(self.math, 's')}",
            "memory": f"memory {si(self.memory, 's')}",
            "network": f"network {si(self.comms, 's')}",
        }

    @property
    def comms(self) -> float:
        """Seconds of all exchanges, one after the other."""
        return sum(each.seconds for each in self.collectives)

    @property
    def seconds(self) -> float:
        """Seconds where exchanges hide behind products: the longest of the three."""
        return max(self.math, self.memory, self.comms)

    @property
    def bound(self) -> str:
        """What takes longest: "compute", "memory" or "network"."""
        times = {"compute": self.math, "memory": self.memory, "network": self.comms}
        return max(times, key=lambda name: times[name])


def matmul(
    spec: str,
    sizes: Mapping[str, int],
    mesh: Mesh,
    chip: Any,
    *,
    dtype: Any = "bf16",
) -> tuple[Plan, ...]:
    """Return the ways to multiply two sharded matrices, the fastest first.

    Where only one of them is split along the dimension that is summed, it can be gathered, or the
    other one be sliced and the products added up; where both are split along one axis otherwise,
    one of them is gathered. What is asked of the result decides between adding up everywhere and
    scattering.

    Parameters
    ----------
    spec : str
        "A, B -> C": "I J_x, J_x K -> I K".
    sizes : mapping of str to int
        Of each dimension, in all.
    mesh : mapping of str to axes
        `Topology.mesh(...)`.
    chip : str, Chip or jax.Device
        What computes, at its published ceilings.
    dtype : str or data type
        Of all three.

    Raises
    ------
    BadType, BadValue, UnknownName
        A dimension without a size, a mesh axis that isn't there or is used twice, no such type; a
        result with a dimension that neither matrix has.

    Examples
    --------
    >>> from roofline_helpers.network import topology
    >>> place = topology("v5p", "4x4x4")
    >>> mesh = place.mesh({"x": ("x",), "y": ("y",), "z": ("z",)})
    >>> best, other = matmul("B D, D_x F -> B F", {"B": 512, "D": 8192, "F": 8192}, mesh, "v5p")
    >>> best.steps, other.steps
    (('all-reduce C over x',), ('all-gather B over x',))
    """
    if not isinstance(mesh, Mapping):
        raise BadType(f"mesh must be a mapping of names to axes, got {shown(mesh)}")
    counts = {name: math.prod(each.size for each in axes) for name, axes in mesh.items()}
    left, _, wanted = text("spec", spec).partition("->")
    parts = left.split(",")
    if len(parts) != 2 or not wanted:
        raise BadValue(f"spec must be 'A, B -> C', got {shown(spec)}")
    a, b, c = (_parsed(each, sizes, counts) for each in (*parts, wanted))
    missing = [dim for dim in c if dim not in a and dim not in b]
    if missing:
        raise BadValue(f"the result's {', '.join(missing)} is in neither matrix: {shown(spec)}")
    of = _Product(a, b, c, sizes, mesh, counts, dtype_of(dtype), chip_of(chip))
    return tuple(sorted(of.plans(), key=lambda plan: (plan.seconds, plan.comms)))


def _parsed(spec: str, sizes: Mapping[str, int], counts: Mapping[str, int]) -> Spec:
    """Return the mesh axes of each dimension."""
    parsed: Spec = {}
    for word in text("spec", spec).split():
        dim, _, names = word.partition("_")
        if dim not in sizes:
            raise UnknownName(f"dimension {dim!r} has no size. Allowed: {', '.join(sizes)}")
        split = [names] if names in counts else list(names)
        for name in split:
            if name not in counts:
                raise UnknownName(f"no mesh axis {name!r}. Allowed: {', '.join(counts)}")
        parsed[dim] = tuple(split)
    used = [name for names in parsed.values() for name in names]
    if len(set(used)) < len(used):
        raise BadValue(f"a mesh axis can split one dimension of an array, got {shown(spec)}")
    return parsed


@dataclass(frozen=True)
class _Product:
    """A product of two matrices, and every way to make it."""

    a: Spec
    b: Spec
    c: Spec
    sizes: Mapping[str, int]
    mesh: Mesh
    counts: Mapping[str, int]
    dtype: str
    chip: Chip

    def plans(self) -> Iterator[Plan]:
        """Yield each way."""
        summed = [dim for dim in self.a if dim in self.b and dim not in self.c]
        in_a = {name for dim in summed for name in self.a[dim]}
        in_b = {name for dim in summed for name in self.b[dim]}
        choices = []
        for name in sorted(in_a ^ in_b):
            other = self.b if name in in_a else self.a
            elsewhere = any(name in names for names in other.values())
            choices.append([(name, "gather")] + ([] if elsewhere else [(name, "slice")]))
        kept_a = {n for dim, names in self.a.items() if dim not in summed for n in names}
        kept_b = {n for dim, names in self.b.items() if dim not in summed for n in names}
        choices += [[(name, "gather A"), (name, "gather B")] for name in sorted(kept_a & kept_b)]
        for chosen in product(*choices):
            yield self._plan(summed, in_a, dict(chosen))

    def _plan(self, summed: list[str], in_a: set[str], how: Mapping[str, str]) -> Plan:
        gathers: dict[str, set[str]] = {"A": set(), "B": set()}
        for name, what in how.items():
            if what == "gather":
                gathers["A" if name in in_a else "B"].add(name)
            elif what.startswith("gather "):
                gathers[what[-1]].add(name)
        a, b = (_without(s, gathers[n]) for s, n in ((self.a, "A"), (self.b, "B")))
        steps, collectives = [], []
        for array, letter in ((a, "A"), (b, "B")):
            if gathers[letter]:
                steps.append(f"all-gather {letter} over {_names(gathers[letter])}")
                over = self._axes(gathers[letter])
                collectives.append(all_gather(self._bytes(array), over))
        unreduced = {n for dim in summed for n in (*a[dim], *b[dim])}
        sliced = {dim: tuple(dict.fromkeys((*a[dim], *b[dim]))) for dim in summed}
        result = {dim: (a if dim in a else b)[dim] for dim in self.c}
        ends, more = self._finish(result, unreduced)
        flops = 2 * math.prod(
            self._length(dim, sliced.get(dim) or (a if dim in a else b)[dim]) for dim in {**a, **b}
        )
        local = [{**s, **{d: sliced[d] for d in summed}} for s in (a, b)]
        hbm = sum(self._bytes(array) for array in (*local, result))
        return Plan(
            (*steps, *ends),
            (*collectives, *more),
            flops,
            hbm,
            flops / self.chip.peak(self.dtype).value,
            hbm / self.chip.roofline(self.dtype).bandwidth,
        )

    def _finish(self, result: Spec, unreduced: set[str]) -> tuple[list[str], list[Collective]]:
        """Return the exchanges that make the result as it is asked for."""
        steps: list[str] = []
        done: list[Collective] = []
        wanted = {name: dim for dim, names in self.c.items() for name in names}
        scattered = {name for name in unreduced if name in wanted}
        now = dict(result)
        for kind, names in (("reduce-scatter", scattered), ("all-reduce", unreduced - scattered)):
            if names:
                function = reduce_scatter if kind == "reduce-scatter" else all_reduce
                done.append(function(self._bytes(now), self._axes(names)))
                steps.append(f"{kind} C over {_names(names)}")
            if kind == "reduce-scatter":
                for name in names:
                    now[wanted[name]] = (*now[wanted[name]], name)
        placed = {name: dim for dim, names in now.items() for name in names}
        moved = {n for n, dim in placed.items() if wanted.get(n, dim) != dim}
        gathered = {n for n in placed if n not in wanted}
        if moved:
            split = math.prod(self.counts[name] for name in moved)
            done.append(all_to_all(self._bytes(now) * split, self._axes(moved)))
            steps.append(f"all-to-all C over {_names(moved)}")
        if gathered:
            now = _without(now, gathered)
            done.append(all_gather(self._bytes(now), self._axes(gathered)))
            steps.append(f"all-gather C over {_names(gathered)}")
        return steps, done

    def _axes(self, names: set[str]) -> list[Axis]:
        return [axis for name in sorted(names) for axis in self.mesh[name]]

    def _length(self, dim: str, names: tuple[str, ...]) -> float:
        return self.sizes[dim] / math.prod(self.counts[name] for name in names)

    def _bytes(self, array: Spec) -> float:
        elements = math.prod(self._length(dim, names) for dim, names in array.items())
        return elements * width(self.dtype)


def _without(array: Spec, names: set[str]) -> Spec:
    return {dim: tuple(n for n in kept if n not in names) for dim, kept in array.items()}


def _names(names: set[str]) -> str:
    return ", ".join(sorted(names))
