"""Bytes that one launch of a kernel moves, and what its tiles fetch again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roofline_helpers.common.checks import ceil_div
from roofline_helpers.xla.collectives import aliased
from roofline_helpers.xla.flops import (
    combines,
    dim_labels,
    elements_updated,
    in_place,
    operand_shares,
    results,
    slides,
)
from roofline_helpers.xla.module import PRODUCTS, SLICES, UPDATES, Instruction, Shape, Site
from roofline_helpers.xla.pallas import PallasKernel

# --- Bytes that one launch of a kernel moves, by memory level ------------------------------------


@dataclass
class Traffic:
    """Bytes read and written by memory level, and what the padding of tiles in HBM adds."""

    spaces: Mapping[int, str]
    read: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    padding: float = 0.0

    @property
    def bytes(self) -> int:
        """Bytes across all memories."""
        return sum(self.read.values()) + sum(self.written.values())

    def add(self, book: dict[str, int], leaf: Shape, share: float) -> None:
        """Add a share of an array to `read` or `written`."""
        if leaf.is_scalar:
            return
        amount = round(leaf.bytes * share)
        level = self.spaces.get(leaf.space, f"S({leaf.space})")
        if amount:
            book[level] = book.get(level, 0) + amount
        if level == "hbm":
            self.padding += (leaf.padded_bytes - leaf.bytes) * share


def traffic_of(site: Site, spaces: Mapping[int, str], part: str | None = None) -> Traffic:
    """Return the bytes that one launch reads and writes.

    Parameters
    ----------
    site : Site
        The kernel.
    spaces : mapping of int to str
        What the memory spaces of its platform mean (`module.SPACES`).
    part : {"start", "between", "done"}, optional
        Its part in a chain around an exchange (`collectives.chain_part`): what it only hands on
        counts where the exchange starts.
    """
    written = results(site.instruction).leaves
    reads, writes = _shares(site, written)
    if part is not None:
        outs, ins = aliased(site.instruction)
        writes = [0.0 if place in outs else share for place, share in enumerate(writes)]
        if part != "start":
            reads = [0.0 if place in ins else share for place, share in enumerate(reads)]
    traffic = Traffic(spaces)
    seen: dict[str, float] = {}
    names = site.instruction.operands
    for name, shape, share in zip(names, site.operands, reads, strict=True):
        more = max(share - seen.get(name, 0.0), 0.0)  # the same buffer twice counts once
        seen[name] = max(share, seen.get(name, 0.0))
        for leaf in shape.leaves:
            traffic.add(traffic.read, leaf, more)
    for leaf, share in zip(written, writes, strict=True):
        traffic.add(traffic.written, leaf, share)
    return traffic


def moved_by(site: Site, spaces: Mapping[int, str], known: PallasKernel) -> Traffic:
    """Return the bytes that a Pallas kernel moves, as counted from its blocks."""
    traffic = Traffic(spaces)
    operands = [shape for shape in site.operands if shape.dims]
    inputs = [one for one in known.operands if not one.result]
    reads = [n for n, one in zip(known.reads, inputs, strict=True) if one.shape]
    for book, shapes, moved in (
        (traffic.read, operands, reads),
        (traffic.written, results(site.instruction).leaves, known.writes),
    ):
        for shape, amount in zip(shapes, moved, strict=False):
            for leaf in shape.leaves:
                traffic.add(book, leaf, amount / max(leaf.bytes, 1))
    return traffic


def _shares(site: Site, written: tuple[Shape, ...]) -> tuple[list[float], list[float]]:
    """Return which share of each operand is read, and of each result written."""
    each, operands = site.instruction, site.operands
    reads, writes = operand_shares(site), [1.0] * len(written)
    if site.fused is not None:
        updates = in_place(site.program, site.fused)
        names = site.fused.results
        if len(names) == len(writes):
            writes = [updates[name].share if name in updates else 1.0 for name in names]
    elif each.base in SLICES:
        reads[0] = min(1.0, written[0].elements / max(operands[0].elements, 1))
    elif each.base in UPDATES:
        share = min(1.0, elements_updated(each, site.where) / max(operands[0].elements, 1))
        reads[0] = share if combines(site.program, each) else 0.0
        writes = [share] * len(written)
    return reads, writes


# --- How often operands are fetched again, as the tiles of a TPU's kernel imply ------------------

WINDOWS = (
    "input_window_bounds",
    "kernel_window_bounds",
    "output_window_bounds",
    "iteration_bounds",
)
"""What the compiler notes of a kernel's tiles: the window of each side, and the loops over them."""


NEVER = 2**62
"""Cycles from which on a note means that the compiler doesn't know: a century and more."""


def window_config(each: Instruction) -> dict[str, tuple[int, ...]]:
    """Return the tiles that the compiler notes of a kernel, by the names in `WINDOWS`."""
    noted = each.config.get("window_config", {})
    return {name: tuple(int(n) for n in noted[name]) for name in WINDOWS if noted.get(name)}


def cycles_of(each: Instruction) -> int | None:
    """Return the compiler's own time for a kernel, in cycles; None where it gives none.

    Where it has none it also notes the largest number there is.
    """
    noted = int(each.config.get("window_config", {}).get("estimated_cycles", 0) or 0)
    return noted if 0 < noted < NEVER else None


def tile_read(site: Site, spaces: Mapping[int, str]) -> int | None:
    """Return the bytes read from HBM when operands are fetched again as the tiles imply.

    A TPU computes a product of matrices window by window. `input_window_bounds` and the others
    give the windows of the left operand, the right operand and the result, dimension by dimension
    in the order of memory, the last two in units of 8 rows and 128 columns. The loops run over
    batch, columns n, rows m and, innermost, the summed dimension k. An operand is fetched again
    whenever its window changes: the left one once for each step over n, the right one once for
    each step over m, unless one window holds all that the inner loops need. None where that is not
    known: it is for one product of matrices in a kernel, without a window that slides.
    """
    products = [part for part in site.parts() if part.instruction.opcode in PRODUCTS]
    if len(products) != 1 or products[0].instruction.opcode != "convolution":
        return None
    product = products[0]
    steps = _steps(product, window_config(site.instruction))
    if steps is None:
        return None
    spatial = [label for label in dim_labels(product.instruction)[2] if label.isdigit()]
    order = [*spatial, "n", "m", "k"]
    left = times_fetched(order, steps, {*spatial, "m", "k"})
    right = times_fetched(order, steps, {*spatial, "n", "k"})
    factors = _by_operand(site, product, (left, right))
    total = 0
    operands = zip(site.instruction.operands, site.operands, operand_shares(site), strict=True)
    for name, shape, share in operands:
        for leaf in shape.leaves:
            if spaces.get(leaf.space) == "hbm" and not leaf.is_scalar:
                total += round(leaf.bytes * share * factors.get(name, 1))
    return total


_LOOPS = ({"b": "m", "f": "k"}, {"i": "k", "o": "n"}, {"b": "m", "f": "n"})  # by side and label


def _steps(product: Site, bounds: Mapping[str, tuple[int, ...]]) -> dict[str, int] | None:
    """Return the steps of each loop over tiles; None where the notes don't say or don't fit."""
    each = product.instruction
    sides = dim_labels(each)
    shapes = [*product.operands[:2], each.shape]
    if slides(each, product.operands):
        return None
    steps: dict[str, int] = {}
    for name, shape, dims, loops in zip(WINDOWS[:3], shapes, sides, _LOOPS, strict=True):
        window = bounds.get(name, ())
        if len(window) != len(shape.dims) or not shape.order:
            return None
        units = [1] * (len(window) - 2) + [8, 128][-len(window) :]
        for place, dim in enumerate(shape.order):
            loop = loops.get(dims[dim], dims[dim])
            count = ceil_div(shape.dims[dim], window[place] * units[place])
            steps[loop] = max(steps.get(loop, 1), count)
    stated = math.prod(bounds.get("iteration_bounds", (1,)))
    return steps if math.prod(steps.values()) == stated else None


def times_fetched(order: Sequence[str], steps: Mapping[str, int], depends: set[str]) -> int:
    """Return how often an operand is fetched by nested loops, outermost first.

    It stays in place as long as no loop turns that it depends on, or that encloses one.

    Parameters
    ----------
    order : sequence of str
        The loops.
    steps : mapping of str to int
        How many steps each takes; one that isn't named takes one.
    depends : set of str
        The loops that change its window.
    """
    inner = [i for i, loop in enumerate(order) if loop in depends and steps.get(loop, 1) > 1]
    if not inner:
        return 1
    return math.prod(steps.get(loop, 1) for loop in order[: inner[-1]] if loop not in depends)


def _by_operand(site: Site, product: Site, again: Sequence[int]) -> dict[str, int]:
    """Return how often each operand of a kernel is fetched: as the side that it feeds."""
    if site.fused is None:
        return dict(zip(site.instruction.operands, again, strict=False))
    inner = site.fused
    if product.where is not inner:
        return {}
    factors: dict[str, int] = {}
    for side, factor in zip(product.instruction.operands[:2], again, strict=True):
        todo = [side]
        while todo:
            part = inner.by_name[todo.pop()]
            todo += part.operands
            if part.opcode == "parameter":
                outer = site.instruction.operands[inner.parameters.index(part)]
                factors[outer] = max(factors.get(outer, 1), factor)
    return factors
