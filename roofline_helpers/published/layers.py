"""Layers that we measured on several devices, and what the models predict of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from roofline_helpers import network, work
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.device.multi_device import FSDP, TENSOR, Layer, exchanged, parse_name, ways
from roofline_helpers.published.exchanges import LARGE, between

if TYPE_CHECKING:
    import pandas

_CALL = 130e-6
"""Seconds that a call over four devices takes from Python, by `data/between`: an all-reduce of
4 MiB takes 46 µs as one of several in a program, and 125 as the only one."""


def layers() -> pandas.DataFrame:
    """Return every measured layer over several devices with its predicted time: one row each.

    A feed-forward of two products, and a decoder's layer, in bf16. Where widths are cut, every
    device multiplies with its part and the sums are added up; sharded weights are gathered before
    their product. Columns: "device", "devices", "layer", "tokens", "way", "variant" (empty, or
    "arithmetic alone", "exchanges alone", "latency hiding"), "measured ms", "arithmetic ms",
    "exchanges ms", "predicted ms", "error" (predicted over measured, less
    one) and "reason".

    At reached ceilings: products, attention and what is read and written between them follow each
    other, then exchanges one by one, for nothing is hidden; XLA's option for that changes little.
    A row has a "reason" where the error is large and one is known.

    Examples
    --------
    >>> sorted(set(layers()["devices"]))
    [2, 4]
    """
    import pandas

    return pandas.DataFrame([row for record in between() for row in _rows(record)])


def _rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    device = record["device"]
    for sample in record["samples"]:
        named = parse_name(sample["name"]) if sample["group"] == "spread" else None
        if not named or not sample["passes"]:
            continue
        layer, way, variant, count = named
        cut = ways(count)[way]
        seconds = statistics.median(each["median"] for each in sample["passes"])
        own = arithmetic(device["chip"], layer, cut)
        between_them = exchanges(device["chip"], layer, cut)
        predicted = (variant != "exchanges alone") * own
        predicted += (variant != "arithmetic alone") * between_them
        yield {
            "device": device["name"],
            "devices": count,
            "layer": "MLP" if layer.name.startswith("MLP") else layer.name.rpartition(" ")[0],
            "tokens": layer.tokens,
            "way": way,
            "variant": variant,
            "measured ms": seconds * 1e3,
            "arithmetic ms": own * 1e3,
            "exchanges ms": between_them * 1e3,
            "predicted ms": predicted * 1e3,
            "error": predicted / seconds - 1,
            "reason": _reason(predicted, seconds, variant),
        }


def _reason(predicted: float, seconds: float, variant: str) -> str:
    """Return why a prediction is far off; empty where it isn't, or nobody knows."""
    if abs(predicted / seconds - 1) > LARGE and variant and seconds < _CALL:
        return "so short that calling a program over several devices takes longer"
    return ""


def arithmetic(chip: str, layer: Layer, cut: Mapping[str, int]) -> float:
    """Return the seconds of what one device does of a layer, at reached ceilings."""
    roof = chip_of(chip).roofline("bf16", reached=True)
    rows, tensor = layer.tokens // cut[FSDP], cut[TENSOR]
    parts = [layer.part(name, {TENSOR: tensor}) for name in layer.matrices]
    seconds = sum(float(roof.time(work.matmul(rows, wide, deep))) for deep, wide in parts)
    if layer.heads:
        sequences, length, _ = layer.inputs
        heads, kv_heads, head_dim = layer.heads
        seconds += float(
            roof.time(
                work.flash_attention(
                    sequences // cut[FSDP],
                    length,
                    heads=heads // tensor,
                    kv_heads=kv_heads // tensor,
                    head_dim=head_dim,
                    causal=True,
                )
            )
        )
    whole, split = layer.between
    return seconds + 2 * rows * (whole + split / tensor) / float(roof.bandwidth)


def exchanges(chip: str, layer: Layer, cut: Mapping[str, int]) -> float:
    """Return the seconds of a layer's gathers and sums, at reached ceilings."""
    place = network.topology(chip, cut[FSDP] * cut[TENSOR], ceilings="reached")
    axes = place.mesh({name: size for name, size in cut.items() if size > 1})
    of = {"all-gather": FSDP, "all-reduce": TENSOR}
    return sum(
        network.collective(kind, nbytes, axes[of[kind]]).seconds
        for kind, _, nbytes in exchanged(layer, cut)
    )
