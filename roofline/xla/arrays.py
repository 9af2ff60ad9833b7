"""What a program's arrays say about its memory: donations that would save some, the largest one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from roofline.xla.buffers import Buffer
from roofline.xla.hlo import Module, Shape
from roofline_helpers.common.show import si

FEWEST = 3
"""Arguments that the results replace, as weights and moments are; fewer may be a coincidence."""

LARGE = 2**27
"""Bytes from which on an array is called large."""


def memory_notes(module: Module, buffers: Sequence[Buffer]) -> list[str]:
    """Return notes on arguments that could be donated, and on an array that outgrows them all.

    `buffers` are those that are alive when it needs most memory.
    """
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
    notes = _largest(buffers, largest)
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


def _largest(buffers: Sequence[Buffer], argument: int) -> list[str]:
    """Return a note on the largest array that a reader can do without, if it outgrows arguments.

    Results are what was asked for, and a gathered array is whole for a while on purpose.
    """
    own = [
        buffer
        for buffer in buffers
        if buffer.kind == "temporary" and not buffer.role.startswith(_GATHERED)
    ]
    if not own:
        return []
    largest = max(own, key=lambda buffer: buffer.bytes / buffer.count)
    size = largest.bytes // largest.count
    if size < max(LARGE, 2 * argument):
        return []
    more = f", and {largest.count - 1} more like it" if largest.count > 1 else ""
    wide = " or hold it in bfloat16" if largest.shape.startswith("f32") else ""
    where = f"at {largest.source} " if largest.source else ""
    return [
        f"the largest array that isn't returned is {largest.shape}, {si(size, 'B')}, larger than "
        f"any argument, written {where}by {largest.role}{more}. Compute in parts what needs it (a "
        f"loss over chunks of tokens){wide}"
    ]


_GATHERED = ("all-gather", "all-to-all", "all-reduce", "collective-permute")
