"""Layers that we measured on several devices, and what the models predict of them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from roofline_helpers import network, work
from roofline_helpers.hardware import chip as chip_of
from roofline_helpers.published.exchanges import between

if TYPE_CHECKING:
    import pandas

_NAME = re.compile(r"MLP (\d+)×(\d+)×(\d+), (tensor-parallel|FSDP)(, arithmetic alone)? over (\d+)")


def layers() -> pandas.DataFrame:
    """Return every measured layer over several devices with its predicted time: one row each.

    A feed-forward of two products in bf16. Split over its width, every device multiplies with its
    part and the sums are added up; with sharded weights, each is gathered before its product.
    Products and exchanges follow each other, at reached ceilings.

    Examples
    --------
    >>> sorted(set(layers()["device"]))
    ['2 × NVIDIA H200']
    """
    import pandas

    return pandas.DataFrame([row for record in between() for row in _rows(record)])


def _rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    device = record["device"]
    for sample in record["samples"]:
        named = _NAME.fullmatch(sample["name"])
        if sample["group"] != "spread" or not sample["passes"] or not named:
            continue
        tokens, d_model, d_ff = (int(named[i]) for i in (1, 2, 3))
        how, alone, count = named[4], bool(named[5]), int(named[6])
        seconds = statistics.median(each["median"] for each in sample["passes"])
        product = _products(device["chip"], tokens, d_model, d_ff, how, count)
        exchange = 0.0 if alone else _exchanges(device["chip"], tokens, d_model, d_ff, how, count)
        yield {
            "device": f"{device['count']} × {device['name']}",
            "layer": how,
            "tokens": tokens,
            "arithmetic alone": alone,
            "measured ms": seconds * 1e3,
            "products ms": product * 1e3,
            "exchanges ms": exchange * 1e3,
            "error": (product + exchange) / seconds - 1,
        }


def _products(chip: str, tokens: int, d_model: int, d_ff: int, how: str, count: int) -> float:
    """Return the seconds of both products on one device."""
    rows, width = (tokens, d_ff // count) if how != "FSDP" else (tokens // count, d_ff)
    roof = chip_of(chip).roofline("bf16", reached=True)
    up, down = work.matmul(rows, width, d_model), work.matmul(rows, d_model, width)
    return float(roof.time(up)) + float(roof.time(down))


def _exchanges(chip: str, tokens: int, d_model: int, d_ff: int, how: str, count: int) -> float:
    """Return the seconds of what is exchanged."""
    over = network.topology(chip, count, ceilings="reached").fast
    if how == "FSDP":
        return 2 * network.all_gather(2 * d_model * d_ff, over).seconds
    return network.all_reduce(2 * tokens * d_model, over).seconds
