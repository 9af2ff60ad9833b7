"""What a program's arrays say about its memory: donations that would save some, the largest one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from roofline.xla.flops import results
from roofline.xla.hlo import Instruction, Module, Shape
from roofline.xla.ledger import Row
from roofline_helpers.common.show import si

FEWEST = 3
"""Arguments that the results replace, as weights and moments are; fewer may be a coincidence."""

LARGE = 2**27
"""Bytes from which on an array is called large."""


def memory_notes(module: Module, rows: Sequence[Row]) -> list[str]:
    """Return notes on arguments that could be donated, and on an array that outgrows them all."""
    arguments = {int(argument.literal or 0): argument for argument in module.entry.parameters}
    left = Counter(map(_kind, module.entry.root.shape.leaves))
    for number in module.donated:
        left[_kind(arguments[number].shape)] -= 1
    free = []
    for number, argument in arguments.items():
        kind = _kind(argument.shape)
        if number not in module.donated and not argument.shape.is_scalar and left[kind] > 0:
            left[kind] -= 1
            free.append(argument)
    size, whole = (sum(a.shape.bytes for a in group) for group in (free, arguments.values()))
    largest = max((argument.shape.bytes for argument in arguments.values()), default=0)
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
    by_name: dict[str, Instruction] = {}
    for computation in module.computations.values():
        by_name |= computation.by_name
    written = [(leaf, row) for row in rows for leaf in results(by_name[row.name]).leaves]
    if not written:
        return []
    shape, row = max(written, key=lambda pair: pair[0].bytes)
    if shape.bytes < max(LARGE, 2 * argument):
        return []
    times = sum(leaf.dims == shape.dims for leaf, _ in written)
    more = f", and {times - 1} more of its sizes" if times > 1 else ""
    wide = " or hold it in bfloat16" if shape.dtype == "f32" else ""
    where = f"at {row.source} " if row.source else ""
    return [
        f"the largest array is {shape}, {si(shape.bytes, 'B')}, larger than any argument, written "
        f"{where}by {row.role}{more}. Compute in parts what needs it (a loss over chunks of tokens)"
        f"{wide}"
    ]
