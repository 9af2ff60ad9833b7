"""How many chips can share a model by tensor parallelism."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from roofline.configurations import model as model_of
from roofline.network import Topology, topology
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
            counts.append(host(decoder, device, count).chips)
    return counts


def host(decoder: Decoder, device: Chip, chips: int, ceilings: str = "published") -> Topology:
    """Return a chip, or several of one host, that can share a model; raise as `step`."""
    count = whole("chips", chips)
    if count == 1:  # also of a chip without links
        return Topology(device, (1,), (), ceilings)
    split = {
        "KV heads": decoder.kv_heads,
        "columns of d_ff": decoder.experts.d_ff if decoder.experts else decoder.d_ff,
        "tokens in its vocabulary": decoder.vocabulary,
    }
    for parts, size in split.items():
        if size % count:
            raise BadValue(f"{decoder.name} has {size} {parts}: {count} chips can't split them")
    chips_of_host = topology(device, count, ceilings=ceilings)
    if chips_of_host.fast != chips_of_host.axes:
        most = count // chips_of_host.axes[-1].size
        raise BadValue(f"a host has {most} {device.name}, got {count} chips: give their topology")
    return chips_of_host
