"""Products of products, and the order in which they take the fewest multiply-adds.

`(U @ V.T) @ X` and `U @ (V.T @ X)` are the same but for rounding: a tree of products whose values
in between nobody else reads is one sum over all its arrays, and they may be multiplied in any
order.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from roofline.xla.facts import Known, moved
from roofline.xla.graph import ELEMENT, Node
from roofline.xla.parts import part

MOST_ARRAYS = 8
"""Arrays in a tree from which on orders aren't looked for."""

Labels: TypeAlias = "frozenset[int]"


_MOVES = frozenset("copy convert reduce-precision bitcast transpose reshape".split())


@dataclass(frozen=True)
class Step:
    """One product of an order: its multiply-adds, and the elements that it reads and writes.

    `sides` are the numbers of the arrays that are multiplied on both sides.
    """

    terms: float
    read: float
    written: float
    sides: tuple[frozenset[int], frozenset[int]]


@dataclass(frozen=True)
class Tree:
    """A tree of products.

    Parameters
    ----------
    products : tuple of Node
        The last one first.
    between : tuple of Node
        What lies between them: casts, transposes, factors that are one number.
    arrays : tuple of Node
        What is multiplied.
    terms : float
        Multiply-adds of all products, as they are.
    steps : tuple of Step
        The products of the cheapest order.
    """

    products: tuple[Node, ...]
    between: tuple[Node, ...]
    arrays: tuple[Node, ...]
    terms: float
    steps: tuple[Step, ...]

    @property
    def share(self) -> float:
        """The share of the multiply-adds that the cheapest order needs."""
        return sum(step.terms for step in self.steps) / self.terms


def trees(known: Known) -> Iterator[Tree]:
    """Yield the trees of more than one product."""
    inside = set[int]()
    for number in sorted(known.spaces, reverse=True):
        root = known.graph.nodes[number]
        if number not in inside and _is_plain(known, root):
            found = _Walk(known)
            found.add(root, [found.label(size) for size in root.dims])
            inside |= {node.number for node in found.products}
            if 1 < len(found.products) < MOST_ARRAYS:
                yield found.tree(len(root.dims))


def _is_plain(known: Known, node: Node) -> bool:
    """Return whether a value is a product and nothing else: no window, no bias, no function."""
    space = known.spaces.get(node.number)
    if space is None or any(len(space.sides[n]) < len(node.ops[n].dims) for n in (0, 1)):
        return False
    stated = "" if node.instruction is None else node.attribute("backend_config")
    return len(node.ops) == 2 and ("epilogue" not in stated or '"DEFAULT"' in stated)


class _Walk:
    """A tree as it is walked: each axis of its arrays has a label, which axes of one sum share."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.results = {node.number for node in known.graph.results}
        self.sizes: list[int] = []
        self.products: list[Node] = []
        self.between: list[Node] = []
        self.arrays: list[Node] = []
        self.labels: list[Labels] = []

    def label(self, size: int) -> int:
        """Return a new label of an axis of this size."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def add(self, node: Node, labels: list[int]) -> None:
        """Add a product whose result's axes have these labels, and those that it is made of."""
        space = self.known.spaces[node.number]
        self.products.append(node)
        places = [*labels, *map(self.label, space.dims[space.result :])]
        for side, operand in enumerate(node.ops[:2]):
            own = {axis: places[place] for axis, place in space.sides[side].items()}
            source, path = self._source(operand, node)
            axes = None if source is None else _axes(source, path)
            if source is None or axes is None:
                self.arrays.append(operand)
                self.labels.append(frozenset(own.values()))
            else:
                self.between += path
                self.add(source, [own[a] if a in own else self.label(1) for a in axes])

    def _source(self, node: Node, user: Node) -> tuple[Node | None, list[Node]]:
        """Return the product that a value is, moved and scaled, and the way from it."""
        path: list[Node] = []
        around = user.loops, user.branches
        while (
            len(node.users) == 1
            and node.number not in self.results
            and (node.loops, node.branches) == around
        ):
            if _is_plain(self.known, node):
                return node, path[::-1]
            path.append(node)
            scaled = [o for o in node.ops if self.known[o].varies]
            one = len(scaled) == 1 and scaled[0].dims == node.dims
            if node.op in ("multiply", "divide", "negate", ELEMENT) and one:
                node = scaled[0]
            elif node.op in _MOVES:
                node = node.ops[0]
            else:
                break
        return None, []

    def tree(self, axes: int) -> Tree:
        """Return the tree, whose result has so many axes, with its cheapest order."""
        spaces = [self.known.spaces[node.number] for node in self.products]
        used = [{*space.sides[0].values(), *space.sides[1].values()} for space in spaces]
        terms = sum(
            math.prod(space.dims[place] for place in places)
            for space, places in zip(spaces, used, strict=True)
        )
        result = frozenset(range(axes))

        @functools.cache
        def kept(some: frozenset[int]) -> Labels:
            others = (labels for n, labels in enumerate(self.labels) if n not in some)
            return result.union(*others) & frozenset().union(*(self.labels[n] for n in some))

        def size(labels: Labels) -> float:
            return math.prod(self.sizes[label] for label in labels)

        @functools.cache
        def best(some: frozenset[int]) -> tuple[float, tuple[Step, ...]]:
            first, *others = sorted(some)
            orders: list[tuple[float, tuple[Step, ...]]] = [(0.0, ())] if not others else []
            for count in range(len(others)):
                for more in itertools.combinations(others, count):
                    sides = frozenset({first, *more}), some - {first, *more}
                    read, written = sum(size(kept(side)) for side in sides), size(kept(some))
                    each = size(kept(sides[0]) | kept(sides[1]))
                    parts = [best(side) for side in sides]
                    steps = (*parts[0][1], *parts[1][1], Step(each, read, written, sides))
                    orders.append((each + sum(cost for cost, _ in parts), steps))
            return min(orders, key=lambda order: order[0])

        _, steps = best(frozenset(range(len(self.arrays))))
        return Tree(tuple(self.products), tuple(self.between), tuple(self.arrays), terms, steps)


def _axes(source: Node, path: list[Node]) -> list[int | None] | None:
    """Return where each axis of a value is at the end of a way; None if a long one is lost.

    Axes of one place may be anywhere.
    """
    axes: list[int | None] = []
    for axis, size in enumerate(source.dims):
        at = part(source.dims, {frozenset({axis}): {-1: size - 0.5}}) if size > 1 else None
        for node in path:
            after = moved(node, at) if at is not None and node.op in _MOVES else at
            if after is None and at is not None:
                return None
            at = after
        groups = [] if at is None else [min(group) for group in at.along if len(group) == 1]
        if at is not None and (len(groups) != 1 or at.dims[groups[0]] != size):
            return None
        axes.append(groups[0] if groups else None)
    long = [axis for axis in axes if axis is not None]
    return axes if len(long) == len(set(long)) else None
