"""How many chips can share a model by tensor parallelism."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from roofline.configurations import model as model_of
from roofline.network import topology
from roofline_helpers.chips import Chip
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadValue, UnknownName, whole
from roofline_helpers.models import Decoder

COUNTS = (1, 2, 4, 8)
"""Numbers of chips to try for a model."""


def chip_counts(model: Decoder | str, chip: Any) -> list[int]:
    """Return which of `COUNTS` can share a model by tensor parallelism.

    Raises
    ------
    BadType, UnknownName
        Not a model; no such chip.

    Examples
    --------
    >>> chip_counts("llama-3-70b", "h100"), chip_counts("llama-3-70b", "l4")
    ([1, 2, 4, 8], [1])
    """
    decoder, device = model_of(model), chip_of(chip)
    counts = []
    for count in COUNTS:
        with suppress(BadValue, UnknownName):
            counts.append(together(decoder, device, count))
    return counts


def together(decoder: Decoder, device: Chip, chips: Any) -> int:
    """Return the number of chips if they can share a model; raise as `step`."""
    count = whole("chips", chips)
    if count == 1:
        return 1
    split = {
        "KV heads": decoder.kv_heads,
        "columns of d_ff": decoder.experts.d_ff if decoder.experts else decoder.d_ff,
        "tokens in its vocabulary": decoder.vocabulary,
    }
    for what, size in split.items():
        if size % count:
            raise BadValue(f"{decoder.name} has {size} {what}: {count} chips can't split them")
    place = topology(device, count)
    if place.fast != place.axes:
        most = place.chips // place.axes[-1].size
        raise BadValue(f"a host has {most} {device.name}, got {count} chips: give their topology")
    return count
