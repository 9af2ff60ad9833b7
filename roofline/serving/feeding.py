"""The feed-forwards of a layer on one device: dense ones, and mixtures of experts."""

from __future__ import annotations

from dataclasses import replace

from roofline.serving.layer import COSTS, Layer
from roofline.serving.setting import split
from roofline_helpers import work
from roofline_helpers.common.dtypes import nbytes
from roofline_helpers.models.layers import Experts, FeedForward
from roofline_helpers.work import Work


def feed_forward(layer: Layer, x: str) -> None:
    """Add the operations from the normed tokens `x` to "f", which a residual takes."""
    experts = layer.block.experts
    dense = [feed for feed in layer.block.feeds if isinstance(feed, FeedForward)]
    if not experts:
        _dense(layer, x, dense[0].d_ff, dense[0].gated, "")
        return
    if experts.shared:
        width = experts.shared * (experts.shared_d_ff or experts.d_ff)
        dense = [FeedForward(width, experts.gated)]
    for feed in dense:  # what every token uses beside the experts that it chooses
        _dense(layer, x, feed.d_ff, feed.gated, "shared ")
    _mixture(layer, x, experts, shared=bool(dense))


def _dense(layer: Layer, x: str, d_ff: int, gated: bool, kind: str) -> None:
    s, d, width = layer.sizes, layer.sizes.model.d_model, split(d_ff, layer.sizes.widths)
    names = {name: f"{kind}{name}" for name in ("g", "u", "h", "f", "down", "quantise h")}
    up = "gate+up" if gated else "up"
    outs = {names["g"]: width, names["u"]: width} if gated else {names["u"]: width}
    layer.project(f"{kind}{up} projection", x, f"{kind}{up}", (s.tokens, d), outs, s.weights)
    layer.ops[f"{kind}{'SwiGLU' if gated else 'activation'}"] = _activated(
        layer, s.tokens * width, outs, names["h"]
    )
    layer.quantise(names["quantise h"], names["h"], s.tokens, width, s.weights)
    shape = (s.tokens, width)
    layer.project(
        f"{kind}down projection", names["h"], names["down"], shape, {names["f"]: d}, s.weights
    )


def _activated(layer: Layer, elements: int, reads: dict[str, int], y: str) -> Work:
    """Return the elementwise part: SwiGLU, or without a gate a ReLU."""
    half = layer.sizes.half
    if len(reads) == 2:
        gate, up = reads
        return work.swiglu(elements, half, gate=gate, up=up, y=y)
    return work.relu(elements, half, x=next(iter(reads)), y=y)


def _mixture(layer: Layer, x: str, experts: Experts, shared: bool) -> None:
    """Add the router, the experts that this device has, and the way to them and back.

    Pairs of a token and an expert are spread evenly over the devices that share the experts; of a
    device's experts those are read that any token uses (`Experts.chosen_by`).
    """
    s, d, half = layer.sizes, layer.sizes.model.d_model, layer.sizes.half
    inner = experts.inner or d
    name, read = layer.handed(x)
    routed = (name, "W router", "r")
    layer.ops["router"] = work.matmul(
        s.tokens, experts.count, d, read, b=half, out=half, names=routed
    )
    chosen = nbytes(2 * s.tokens * experts.active, "fp32")
    layer.ops["top-k"] = Work(
        "top-k",
        {"r": nbytes(s.tokens * experts.count, half)},
        {"chosen": chosen},
        vector_flops=s.tokens * experts.count * COSTS["top-k"],
        dtype=half,
    )
    if experts.inner:
        layer.project("way to experts", x, "to experts", (s.tokens, d), {"z": inner}, s.weights)
        x = "z"
        layer.quantise("quantise z", x, s.tokens, inner, s.experts)
    name, read = layer.handed(x)
    pairs = max(1, round(s.routed * experts.active / s.expert_groups))
    rows, copies = nbytes(s.tokens * inner, read), nbytes(pairs * inner, read)
    moved = f"{x}, permuted"
    if x in layer.narrowed:
        layer.narrowed.add(moved)
    put = layer.handed(moved)[0]
    layer.ops["permute"] = Work(
        "permute",
        {name: rows, "chosen": chosen},
        {put: copies},
        vector_flops=pairs,  # its place: how many came before
        dtype=half,
    )
    if s.grouped:
        layer.ops["experts"] = _grouped(layer, experts, put, pairs)
    else:
        _three(layer, experts, moved, pairs)
    reads = {"fp": nbytes(pairs * inner, half), "chosen": chosen}
    flops, back = 2 * pairs * inner, "z, back" if experts.inner else "f"
    if shared:
        reads["shared f"] = nbytes(s.tokens * d, half)
        flops += s.tokens * d
    written = {back: nbytes(s.tokens * inner, half)}
    layer.ops["unpermute"] = Work("unpermute", reads, written, vector_flops=flops, dtype=half)
    if experts.inner:
        layer.project("way back", back, "from experts", (s.tokens, inner), {"f": d}, s.weights)


def _read(layer: Layer, experts: Experts, k: int, n: int) -> int:
    """Return the bytes of one matrix of all experts on this device that any token uses."""
    s = layer.sizes
    count = experts.count * experts.chosen_by(s.routed) / s.expert_groups
    return round(float(nbytes(k * n, s.experts)) * count)


def _three(layer: Layer, experts: Experts, x: str, pairs: int) -> None:
    """Add the matmuls of a gated expert, and what is between them."""
    s, inner = layer.sizes, experts.inner or layer.sizes.model.d_model
    width = split(experts.d_ff, s.expert_widths)
    up = "gate+up" if experts.gated else "up"
    outs = {"g": width, "u": width} if experts.gated else {"u": width}
    for op, read, weight, k, made in (
        (f"experts' {up}", x, up, inner, outs),
        ("experts' down", "h", "down", width, {"fp": inner}),
    ):
        if weight == "down":
            layer.ops["experts' SwiGLU" if experts.gated else "experts' activation"] = _activated(
                layer, pairs * width, outs, "h"
            )
            layer.quantise("experts' quantise h", "h", pairs, width, s.experts)
        layer.project(op, read, f"experts, {weight}", (pairs, k), made, s.experts)
        job = layer.ops[op]
        matrix = f"W experts, {weight}"
        weights = _read(layer, experts, k, sum(made.values()))
        reads = {name: weights if name == matrix else size for name, size in job.reads.items()}
        layer.ops[op] = replace(job, reads=reads, kind="", dims={})


def _grouped(layer: Layer, experts: Experts, x: str, pairs: int) -> Work:
    """Return the experts as the one kernel that was measured."""
    s, inner = layer.sizes, experts.inner or layer.sizes.model.d_model
    width = split(experts.d_ff, s.expert_widths)
    job = s.grouped_kernel(experts)
    matrices = 3 if experts.gated else 2
    return replace(
        job,
        reads={x: job.reads["x"], "W experts": matrices * _read(layer, experts, inner, width)},
        writes={"fp": job.writes["y"]},
        matrix_flops=2 * matrices * pairs * inner * width,
    )
