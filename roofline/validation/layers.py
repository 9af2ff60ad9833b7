"""Layers that we measured on several devices, and the models' predictions.

The programs that were timed are in the repository's history, `device/multi_device.py` of 30b8283.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roofline import network
from roofline.configurations import model
from roofline.validation.networks import own_records
from roofline_helpers import work
from roofline_helpers.chips import chip as chip_of

if TYPE_CHECKING:
    import pandas

FSDP, TENSOR = "fsdp", "tensor"
"""Axes of the mesh: over the first go the batch and a share of every weight, over the other the
heads and the width of the MLP."""

_NAMED = re.compile(
    r"(?:MLP (?P<mlp>\d+×\d+×\d+)|(?P<model>.+) layer (?P<read>\d+×\d+)), (?P<way>[^,]+?)"
    r"(?:, (?P<variant>arithmetic alone|exchanges alone|latency hiding))? over (?P<count>\d+)"
)


@dataclass(frozen=True)
class _Layer:
    """A layer of given sizes.

    `inputs` is the shape of its input and of its result, the width last; `matrices` are its
    weights. Tensor parallelism splits those in `closing` along their first axis, and the others
    along their last: so results of matmuls in `closing` are partial sums. `heads` are the numbers
    of query heads and KV heads, and the width of one. `between` are the elements per token that are
    read and written between the matmuls: of its whole width, and of split widths.
    """

    name: str
    inputs: tuple[int, ...]
    matrices: Mapping[str, tuple[int, int]]
    closing: tuple[str, ...] = ("down",)
    heads: tuple[int, ...] = ()
    between: tuple[int, int] = (0, 0)


def _layer(named: re.Match[str]) -> _Layer:
    """Return the layer of a sample, from its name."""
    if named["mlp"]:
        tokens, width, hidden = map(int, named["mlp"].split("×"))
        matrices = {"up": (width, hidden), "down": (hidden, width)}
        return _Layer("MLP", (tokens, width), matrices)
    decoder = model(named["model"])
    sequences, length = map(int, named["read"].split("×"))
    d, wide = decoder.d_model, decoder.d_ff
    q, kv = decoder.heads * decoder.head_dim, decoder.kv_heads * decoder.head_dim
    matrices = {"q": (d, q), "k": (d, kv), "v": (d, kv), "o": (q, d)}
    matrices |= {"gate": (d, wide), "up": (d, wide), "down": (wide, d)}
    return _Layer(
        decoder.name,
        (sequences, length, d),
        matrices,
        closing=("o", "down"),
        heads=(decoder.heads, decoder.kv_heads, decoder.head_dim),
        # norms and sums of the residual stream; queries and keys turned; gate times up
        between=(2 * 2 * d + 2 * 3 * d, 2 * (q + kv) + 3 * wide),
    )


def _parts(split: str, count: int) -> dict[str, int]:
    """Return the number of parts along each axis for a number of devices."""
    inner = max(n for n in range(1, math.isqrt(count) + 1) if count % n == 0)
    tensor = {"tensor-parallel": count, "FSDP": 1, "both": inner}[split]
    return {FSDP: count // tensor, TENSOR: tensor}


def layers() -> pandas.DataFrame:
    """Return every measured layer over several devices with its predicted time: one row each.

    A feed-forward of two matmuls, and a decoder's layer, in bf16. If widths are split, an
    all-reduce adds the results; sharded weights are gathered before their matmul. "variant" is
    empty, or "arithmetic alone", "exchanges alone", "latency hiding"; "error" is predicted over
    measured, minus 1.

    Predictions are at reached ceilings, without overlap: XLA's latency hiding changes little. The
    error is large for parts alone under about 130 µs, since calling a program over several devices
    takes longer.

    Examples
    --------
    >>> sorted(set(layers()["devices"]))
    [2, 4]
    """
    import pandas

    return pandas.DataFrame([row for record in own_records() for row in _rows(record)])


def _rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    device = record["device"]
    for sample in record["samples"]:
        named = _NAMED.fullmatch(sample["name"]) if sample["group"] == "spread" else None
        if not named or not sample["passes"]:
            continue
        layer, variant, count = _layer(named), named["variant"] or "", int(named["count"])
        parts = _parts(named["way"], count)
        seconds = statistics.median(run["median"] for run in sample["passes"])
        computing = arithmetic(device["chip"], layer, parts)
        exchanging = exchanges(device["chip"], layer, parts)
        predicted = (variant != "exchanges alone") * computing
        predicted += (variant != "arithmetic alone") * exchanging
        yield {
            "device": device["name"],
            "devices": count,
            "layer": f"{layer.name} layer" if layer.heads else layer.name,
            "tokens": math.prod(layer.inputs[:-1]),
            "way": named["way"],
            "variant": variant,
            "measured ms": seconds * 1e3,
            "arithmetic ms": computing * 1e3,
            "exchanges ms": exchanging * 1e3,
            "predicted ms": predicted * 1e3,
            "error": predicted / seconds - 1,
        }


def arithmetic(chip: str, layer: _Layer, parts: Mapping[str, int]) -> float:
    """Return the seconds of one device's part of a layer, at reached ceilings."""
    roof = chip_of(chip).roofline("bf16", reached=True)
    rows, tensor = math.prod(layer.inputs[:-1]) // parts[FSDP], parts[TENSOR]
    seconds = 0.0
    for name, (deep, wide) in layer.matrices.items():
        k, n = (deep // tensor, wide) if name in layer.closing else (deep, wide // tensor)
        seconds += float(roof.time(work.matmul(rows, n, k)))
    if layer.heads:
        sequences, length, _ = layer.inputs
        heads, kv_heads, head_dim = layer.heads
        attention = work.flash_attention(
            sequences // parts[FSDP],
            length,
            heads=heads // tensor,
            kv_heads=kv_heads // tensor,
            head_dim=head_dim,
            causal=True,
        )
        seconds += float(roof.time(attention))
    whole, split = layer.between
    return seconds + 2 * rows * (whole + split / tensor) / float(roof.bandwidth)


def exchanges(chip: str, layer: _Layer, parts: Mapping[str, int]) -> float:
    """Return the seconds of a layer's all-gathers and all-reduces, at reached ceilings."""
    topology = network.topology(chip, parts[FSDP] * parts[TENSOR], ceilings="reached")
    axes = topology.mesh({name: size for name, size in parts.items() if size > 1})
    gathered = [math.prod(shape) / parts[TENSOR] for shape in layer.matrices.values()]
    summed = [math.prod(layer.inputs) / parts[FSDP] for _ in layer.closing]
    seconds = 0.0
    if parts[FSDP] > 1:
        seconds += sum(network.all_gather(2 * size, axes[FSDP]).seconds for size in gathered)
    if parts[TENSOR] > 1:
        seconds += sum(network.all_reduce(2 * size, axes[TENSOR]).seconds for size in summed)
    return seconds
