"""Which elements of an array matter, at most: a product of sets of places along groups of axes.

The last of 512 tokens is one place along axis 1; a diagonal is n places along axes 0 and 1
together; a row whose number data choose is one place along axis 0, which nobody can name. Each set
has a name: a `range` of places along one axis, or a number that stands for places which are only
counted. Two sets of one name are the same set, so what two readers need of an array counts once.

Every operation returns at least what it should, never less.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Axes: TypeAlias = "frozenset[int]"
"""A group of axes. The empty group stands for the turns of a loop: a share of them."""

Sets: TypeAlias = "Mapping[Hashable, float]"
"""Named sets of places along a group of axes, with the number of places in each."""

TURNS: Axes = frozenset()
MOST_SETS = 32
"""Sets along one group from which on all of it counts."""

MOST_PLACES = 2**20
"""Places along axes that are reshaped together from which on they are only counted."""


class Places(NamedTuple):
    """The name of places that are known before the program runs, and are no `range`."""

    number: int


@dataclass(frozen=True)
class Part:
    """A part of an array of these dimensions.

    `along` has the sets of places for each group of axes along which not all matters; the groups
    have no axis in common.

    Examples
    --------
    >>> logits = whole((8, 512, 32000))
    >>> last = logits.only({1: range(511, 512)})
    >>> last.share
    0.001953125
    >>> (last | logits.only({1: range(0, 511)})).share
    1
    """

    dims: tuple[int, ...]
    along: Mapping[Axes, Sets]

    @property
    def share(self) -> float:
        """Share of the elements, between 0 and 1."""
        return math.prod(self.count(axes) / self.places(axes) for axes in self.along)

    @property
    def elements(self) -> float:
        """Number of elements."""
        return self.share * math.prod(self.dims)

    @property
    def name(self) -> int:
        """A name for its elements."""
        return _names(self.along)

    @property
    def axes(self) -> Axes:
        """The axes along which only a part matters."""
        return frozenset().union(*self.along)

    def places(self, axes: Iterable[int]) -> int:
        """Return the number of all places along some axes."""
        return math.prod(self.dims[axis] for axis in axes)

    def count(self, axes: Axes) -> float:
        """Return the number of places that matter along a group of axes."""
        sets = self.along.get(axes)
        return self.places(axes) if sets is None else sum(sets.values())

    def only(self, ranges: Mapping[int, range]) -> Part:
        """Return the part that also lies in these places."""
        return self & part(self.dims, {frozenset({a}): {r: len(r)} for a, r in ranges.items()})

    def __and__(self, other: Part) -> Part:
        along = dict(self.along)
        for axes, sets in other.along.items():
            if axes in along:
                along[axes] = _both(along[axes], sets)
                continue
            near = [group for group in along if group & axes]
            stated = math.prod(self.count(group) / self.places(group) for group in near)
            if sum(sets.values()) / self.places(axes) < stated or not near:
                along = {group: kept for group, kept in along.items() if group not in near}
                along[axes] = sets
        return part(self.dims, along)

    def __or__(self, other: Part) -> Part:
        if not self.share or self == other:
            return other
        if not other.share:
            return self
        same = {axes: s for axes, s in self.along.items() if other.along.get(axes) == s}
        pair = [{a: s for a, s in p.along.items() if a not in same} for p in (self, other)]
        if not all(pair):
            return part(self.dims, same)
        turns = TURNS in pair[0] or TURNS in pair[1]
        if turns and any(set(groups) != {TURNS} for groups in pair):
            # turns add up only if nothing else differs
            pair = [{a: s for a, s in groups.items() if a != TURNS} for groups in pair]
            return part(self.dims, {**same, **pair[0]}) | part(self.dims, {**same, **pair[1]})
        axes = frozenset().union(*pair[0], *pair[1])
        joined: dict[Hashable, float] = {}
        for groups in pair:
            sets = groups.get(axes)
            if sets is None or len(groups) > 1:
                inside = math.prod(
                    sum(kept.values()) / self.places(g) for g, kept in groups.items()
                )
                sets = {_names(groups): inside * self.places(axes)}
            for name, count in sets.items():
                joined[name] = max(joined.get(name, 0.0), count)
        return part(self.dims, {**same, axes: joined})

    # -- through operations that place, take, repeat or join axes ---------------------------------

    def onto(self, dims: tuple[int, ...], moved: Mapping[int, int], name: int) -> Part:
        """Return the part of another array whose axes are some of this one's, and new ones.

        `moved` maps an axis here to the same axis there. Where a group loses axes, what remains are
        the places with any element; new axes matter as a whole. `name` is the operation's.
        """
        along: dict[Axes, Sets] = {}
        for axes, sets in self.along.items():
            order = [moved[axis] for axis in sorted(axes) if axis in moved]
            kept = frozenset(order)
            if len(kept) == len(axes):  # in another order the same places have other names
                along[kept] = sets if order == sorted(order) else _renamed(sets, name)
            elif not sum(sets.values()):
                return nothing(dims)
            elif kept:
                along[kept] = _renamed(sets, name)
        return part(dims, along)

    def turned(self, dims: tuple[int, ...], name: int) -> Part:
        """Return the part after a reshape to other dimensions of as many elements."""
        if dims == self.dims or not self.along:
            return Part(dims, self.along)
        along: dict[Axes, Sets] = {}
        for before, after in _blocks(self.dims, dims):
            groups = {axes: sets for axes, sets in self.along.items() if axes & before}
            outside = {axes for axes in groups if not axes <= before}
            if not groups:
                continue
            if outside:  # a group over several blocks: count all of these together
                return self._merged(dims, name)
            along |= _reshaped(self, groups, sorted(before), sorted(after), dims, name)
        if TURNS in self.along:
            along[TURNS] = self.along[TURNS]
        return part(dims, along)

    def _merged(self, dims: tuple[int, ...], name: int) -> Part:
        """Return the part after a reshape, counted as one group of all axes that are touched."""
        touched = [
            (before, after)
            for before, after in _blocks(self.dims, dims)
            if any(axes & before for axes in self.along)
        ]
        before = frozenset().union(*(old for old, _ in touched))
        after = frozenset().union(*(new for _, new in touched))
        share = math.prod(self.count(g) / self.places(g) for g in self.along if g <= before and g)
        total = math.prod(dims[axis] for axis in after)
        along: dict[Axes, Sets] = {after: {hash((name, _names(self.along))): share * total}}
        if TURNS in self.along:
            along[TURNS] = self.along[TURNS]
        return part(dims, along)

    def placed(self, dims: tuple[int, ...], at: Mapping[int, Steps | int], name: int) -> Part:
        """Return the part of a larger array into which this one is placed.

        `at` has the places for each axis that is shorter here; a number names places that aren't
        known.
        """
        along: dict[Axes, Sets] = {}
        for axes, sets in self.along.items():
            moving = axes & at.keys()
            steps = at[next(iter(axes))] if len(axes) == 1 and moving else None
            if isinstance(steps, Steps):
                along[axes] = _each(sets, steps.placed, name)
            else:
                along[axes] = _renamed(sets, name) if moving else sets
        covered = frozenset().union(*self.along)
        for axis, steps in at.items():
            if axis not in covered:
                places = steps.all(self.dims[axis]) if isinstance(steps, Steps) else steps
                along[frozenset({axis})] = {places: self.dims[axis]}
        return part(dims, along)

    def taken(self, dims: tuple[int, ...], at: Mapping[int, Steps | int], name: int) -> Part:
        """Return the part of a smaller array that is taken from this one.

        `at` has the places along the axes here, as in `placed`.
        """
        along: dict[Axes, Sets] = {}
        for axes, sets in self.along.items():
            moving = axes & at.keys()
            steps = at[next(iter(axes))] if len(axes) == 1 and moving else None
            if not moving:
                along[axes] = sets
            elif isinstance(steps, Steps):
                taken = functools.partial(steps.taken, length=dims[next(iter(axes))])
                along[axes] = _each(sets, taken, name)
            else:
                along[axes] = _renamed(sets, name)
        return part(dims, along)

    def mirrored(self, axes: Iterable[int], name: int) -> Part:
        """Return the part of the array reversed along some axes."""
        turned = {a: Steps(self.dims[a] - 1, -1) for a in axes}
        return self.taken(self.dims, turned, name) if self.along else self

    def in_turns(self, turns: float, name: int) -> Part:
        """Return the part that all turns of a loop need together, if each needs this.

        Places that are known before the program runs are the same in each turn, and count once.
        """
        along: dict[Axes, Sets] = {}
        for axes, sets in self.along.items():
            if axes == TURNS:
                if not sum(sets.values()):
                    return nothing(self.dims)
                continue
            others = {k: n * turns for k, n in sets.items() if not isinstance(k, range | Places)}
            known = {key: count for key, count in sets.items() if key not in others}
            along[axes] = {**known, **_renamed(others, name)}
        return part(self.dims, along)


@dataclass(frozen=True)
class Steps:
    """Places of a shorter axis along a longer one: the first is at `start`, the next `step` on."""

    start: int = 0
    step: int = 1

    def all(self, length: int) -> range:
        """Return all places of an axis of this length."""
        return _upwards(range(self.start, self.start + self.step * length, self.step))

    def placed(self, places: range) -> range:
        """Return where places of the shorter axis lie along the longer one."""
        first = self.start + self.step * places.start
        step = self.step * places.step
        return _upwards(range(first, first + step * len(places), step))

    def taken(self, places: range, length: int) -> range | int:
        """Return which places of the shorter axis, of this length, lie in places of the longer.

        If they are no range, their number.
        """
        here = np.arange(length) * self.step + self.start
        inside = (here >= places.start) & (here <= places[-1] if places else False)
        return _as_range(inside & ((here - places.start) % places.step == 0))


def whole(dims: tuple[int, ...]) -> Part:
    """Return all of an array."""
    return Part(dims, {})


def nothing(dims: tuple[int, ...]) -> Part:
    """Return no part of an array."""
    return Part(dims, {TURNS: {}})


def part(dims: tuple[int, ...], along: Mapping[Axes, Sets]) -> Part:
    """Return a part of an array, without groups that hold all their places."""
    kept: dict[Axes, Sets] = {}
    for axes, sets in along.items():
        total = math.prod(dims[axis] for axis in axes)
        merged = _adjacent(sets) if len(sets) > 1 else sets
        count = sum(merged.values())
        if count == 0 and total:
            return nothing(dims)
        if count < total and len(merged) <= MOST_SETS:
            kept[axes] = merged
    return Part(dims, kept)


def chosen(dims: tuple[int, ...], mask: NDArray[Any]) -> Part:
    """Return the part that a known mask keeps.

    The mask has one place along axes where it doesn't vary.
    """
    axes = frozenset(axis for axis, size in enumerate(mask.shape) if size > 1)
    if not axes:
        return whole(dims) if mask.all() else nothing(dims)
    if len(axes) == 1:
        places = _as_range(mask.ravel())
        if isinstance(places, range):
            return part(dims, {axes: {places: len(places)}})
    name = Places(hash((mask.shape, mask.tobytes())))
    return part(dims, {axes: {name: float(np.count_nonzero(mask))}})


# --- sets of places -------------------------------------------------------------------------------


def _names(groups: Mapping[Axes, Sets]) -> int:
    """Return a name for what sets along several groups leave together."""
    return hash(frozenset((axes, frozenset(sets)) for axes, sets in groups.items()))


def _renamed(sets: Sets, name: int) -> Sets:
    """Return sets after an operation that makes as many other places of them, at most."""
    return {hash((key, name)): count for key, count in sets.items()}


def _each(sets: Sets, move: Callable[[range], range | int], name: int) -> Sets:
    """Return sets of which those that are ranges have moved."""
    moved: dict[Hashable, float] = {}
    for key, count in sets.items():
        place = move(key) if isinstance(key, range) else None
        if isinstance(place, range):
            moved[place] = len(place)
        else:
            moved[hash((key, name))] = count if place is None else place
    return moved


def _both(first: Sets, second: Sets) -> Sets:
    """Return the places that are in both."""
    if len(first) == len(second) == 1:
        a, b = next(iter(first)), next(iter(second))
        if isinstance(a, range) and isinstance(b, range) and a.step == b.step == 1:
            shared = range(max(a.start, b.start), max(min(a.stop, b.stop), max(a.start, b.start)))
            return {shared: len(shared)}
    return min(first, second, key=lambda sets: sum(sets.values()))


def _adjacent(sets: Sets) -> Sets:
    """Return sets in which ranges that touch or overlap are one."""
    rest: dict[Hashable, float] = {k: n for k, n in sets.items() if not isinstance(k, range)}
    ranges = sorted((k for k in sets if isinstance(k, range)), key=lambda r: (r.step, r.start))
    joined: list[range] = []
    for places in ranges:
        last = joined[-1] if joined else None
        if last is not None and last.step == places.step == 1 and places.start <= last.stop:
            joined[-1] = range(last.start, max(last.stop, places.stop))
        else:
            joined.append(places)
    return rest | {places: len(places) for places in joined}


def _upwards(places: range) -> range:
    return places if places.step > 0 else places[::-1]


def _as_range(inside: NDArray[Any]) -> range | int:
    """Return the places of a mask as a range; their number if they are none."""
    found = np.flatnonzero(inside)
    if len(found) < 2:
        return range(int(found[0]), int(found[0]) + 1) if len(found) else range(0)
    steps = np.diff(found)
    if (steps == steps[0]).all():
        return range(int(found[0]), int(found[-1]) + 1, int(steps[0]))
    return len(found)


# --- reshapes -------------------------------------------------------------------------------------


def _blocks(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[Axes, Axes]]:
    """Return the smallest groups of axes of as many elements, before and after a reshape."""
    blocks, old, new, i, j = [], set[int](), set[int](), 0, 0
    sizes = [1, 1]
    while i < len(before) or j < len(after):
        if sizes[0] <= sizes[1] and i < len(before):
            old.add(i)
            sizes[0] *= before[i]
            i += 1
        elif j < len(after):
            new.add(j)
            sizes[1] *= after[j]
            j += 1
        else:
            old.add(i)
            i += 1
        if sizes[0] == sizes[1] and old and new:
            blocks.append((frozenset(old), frozenset(new)))
            old, new, sizes = set(), set(), [1, 1]
    if (old or new) and blocks:  # axes of one place at the end
        first, second = blocks.pop()
        blocks.append((first | old, second | new))
    return blocks


def _reshaped(
    given: Part,
    groups: Mapping[Axes, Sets],
    before: list[int],
    after: list[int],
    dims: tuple[int, ...],
    name: int,
) -> dict[Axes, Sets]:
    """Return the sets along the axes of a block after a reshape."""
    long = [axis for axis in before if given.dims[axis] > 1], [a for a in after if dims[a] > 1]
    if len(long[0]) == len(long[1]) == 1:  # the same axis
        [sets] = [sets for axes, sets in groups.items() if axes & set(long[0])]
        return {frozenset(long[1]): sets}
    places = math.prod(dims[axis] for axis in after)
    ranges = all(isinstance(key, range) for sets in groups.values() for key in sets)
    if ranges and places <= MOST_PLACES and all(len(axes) == 1 for axes in groups):
        mask = np.ones([given.dims[axis] for axis in before], bool)
        for (axis,), sets in groups.items():
            along = np.zeros(given.dims[axis], bool)
            for key in sets:
                along[key.start : key.stop : key.step] = True  # type: ignore[attr-defined]
            mask &= along.reshape([-1 if other == axis else 1 for other in before])
        return _product_of(mask.reshape([dims[axis] for axis in after]), after)
    share = math.prod(given.count(axes) / given.places(axes) for axes in groups)
    return {frozenset(after): {hash((name, _names(groups))): share * places}}


def _product_of(mask: NDArray[Any], axes: list[int]) -> dict[Axes, Sets]:
    """Return a mask over axes as sets for each of them, if it is a product of such."""
    others = [tuple(o for o in range(mask.ndim) if o != n) for n in range(mask.ndim)]
    sides = [_as_range(np.asarray(mask.any(other))) for other in others]
    sizes = [len(s) if isinstance(s, range) else s for s in sides]
    if math.prod(sizes) == np.count_nonzero(mask) and all(isinstance(s, range) for s in sides):
        return {frozenset({axis}): {s: n} for axis, s, n in zip(axes, sides, sizes, strict=True)}
    return {frozenset(axes): {Places(hash(mask.tobytes())): float(np.count_nonzero(mask))}}
