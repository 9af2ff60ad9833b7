"""What a program's arrays say about its memory: donations that would save some, the largest one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from roofline.xla.flops import results
from roofline.xla.hlo import Module, Shape
from roofline.xla.ledger import Row
from roofline_helpers.common.show import si

FEWEST = 3
"""Arguments that the results replace, as weights and moments are; fewer may be a coincidence."""

LARGE = 2**27
"""Bytes from which on an array is called large."""


def donated(text: str) -> dict[int, str]:
    """Return the arguments whose memory a result takes over, by number, with the result's place."""
    head = text[: text.find("\n")]
    pairs = re.findall(r"\{([\d, ]*)\}: \((\d+), \{[\d, ]*\}, (?:may|must)-alias\)", head)
    return {int(number): place for place, number in pairs}


def memory_notes(module: Module, text: str, rows: Sequence[Row]) -> list[str]:
    """Return notes on arguments that could be donated, and on an array that outgrows them all."""
    arguments = {int(each.literal or 0): each for each in module.entry.parameters}
    taken = donated(text)
    left = Counter(map(_kind, module.entry.root.shape.leaves))
    for number in taken:
        left[_kind(arguments[number].shape)] -= 1
    free = []
    for number, each in arguments.items():
        if number not in taken and not each.shape.is_scalar and left[_kind(each.shape)] > 0:
            left[_kind(each.shape)] -= 1
            free.append(each)
    size, whole = (sum(each.shape.bytes for each in some) for some in (free, arguments.values()))
    largest = max((each.shape.bytes for each in arguments.values()), default=0)
    notes = _largest(module, rows, largest)
    if len(free) >= FEWEST and 10 * size > whole and size >= LARGE:
        first = free[0].op_name.replace("\\'", "'") or f"argument {free[0].literal}"
        notes.append(
            f"{si(size, 'B')} of memory could be saved: results have the shapes and types of "
            f"{len(free)} arguments ({first} and others; all arguments have {si(whole, 'B')}) that "
            "aren't donated. If the results replace them, as new weights the old, donate them: "
            "jax.jit(f, donate_argnums=…)"
        )
    return notes


def _kind(shape: Shape) -> tuple[str, tuple[int, ...]]:
    return shape.dtype, tuple(shape.dims)


def _largest(module: Module, rows: Sequence[Row], argument: int) -> list[str]:
    """Return a note on the largest array that a kernel writes, if no argument is half as large."""
    by_name = {each.name: each for one in module.computations.values() for each in one.instructions}
    made = [(leaf, row) for row in rows for leaf in results(by_name[row.name]).leaves]
    if not made:
        return []
    shape, row = max(made, key=lambda pair: pair[0].bytes)
    if shape.bytes < max(LARGE, 2 * argument):
        return []
    times = sum(leaf.dims == shape.dims for leaf, _ in made)
    more = f", and {times - 1} more of its sizes" if times > 1 else ""
    wide = " or hold it in bfloat16" if shape.dtype == "f32" else ""
    where = f"at {row.source} " if row.source else ""
    return [
        f"the largest array is {shape}, {si(shape.bytes, 'B')}, larger than any argument, written "
        f"{where}by {row.role}{more}. Compute in parts what needs it (a loss over chunks of tokens)"
        f"{wide}"
    ]
