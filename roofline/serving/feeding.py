"""The feed-forwards of a layer on one device: dense ones, and mixtures of experts."""

from __future__ import annotations

from dataclasses import replace

from roofline.serving.layer import COSTS, Layer, scales
from roofline.serving.setting import split
from roofline_helpers import work
from roofline_helpers.common.checks import Number
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
    # what every token uses beside the experts that it chooses
    width = experts.shared * (experts.shared_d_ff or experts.d_ff) + sum(f.d_ff for f in dense)
    if width:
        _dense(layer, x, width, experts.gated, "shared ")
    _mixture(layer, x, experts, shared=width > 0)


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
    names = (name, "W router", "r")
    layer.ops["router"] = work.matmul(
        s.tokens, experts.count, d, read, b=half, out=half, names=names
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
    routed = "f, routed" if shared else "f"
    back = "z, back" if experts.inner else routed
    if s.grouped:
        layer.ops["experts"] = _grouped(layer, experts, layer.handed(x)[0], back)
    else:
        _parted(layer, x, experts, chosen, back)
    if experts.inner:
        layer.project("way back", back, "from experts", (s.tokens, inner), {routed: d}, s.weights)
    if shared:
        layer.add("sum of experts", routed, "shared f", to="f")


def _parted(layer: Layer, x: str, experts: Experts, chosen: Number, y: str) -> None:
    """Add the experts as single kernels, from "chosen" to `y`."""
    s, half = layer.sizes, layer.sizes.half
    inner = experts.inner or s.model.d_model
    name, read = layer.handed(x)
    pairs = max(1, round(s.routed * experts.active / s.expert_groups))
    rows, copies = nbytes(s.tokens * inner, read), nbytes(pairs * inner, read)
    moved = f"{x}, permuted"
    if x in layer.narrowed:
        layer.narrowed.add(moved)
    layer.ops["permute"] = Work(
        "permute",
        {name: rows, "chosen": chosen},
        {layer.handed(moved)[0]: copies},
        vector_flops=pairs,  # its place: how many came before
        dtype=half,
    )
    _three(layer, experts, moved, pairs)
    layer.ops["unpermute"] = Work(
        "unpermute",
        {"fp": nbytes(pairs * inner, half), "chosen": chosen},
        {y: nbytes(s.tokens * inner, half)},
        vector_flops=2 * pairs * inner,
        dtype=half,
    )


def _read(layer: Layer, experts: Experts, k: int, n: int) -> int:
    """Return the bytes of one matrix of all experts on this device that any token uses."""
    s = layer.sizes
    count = experts.count * experts.chosen_by(s.routed) / s.expert_groups
    matrix = float(nbytes(k * n, s.experts)) + scales((k, n), s.experts, s.group)
    return round(matrix * count)


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
        reads = {name: size for name, size in job.reads.items() if name[0] != "W"}
        reads[matrix] = weights
        layer.ops[op] = replace(job, reads=reads, kind="", dims={})


def _grouped(layer: Layer, experts: Experts, x: str, y: str) -> Work:
    """Return the experts as the one kernel that was measured, which sorts rows and adds them up."""
    s, inner = layer.sizes, experts.inner or layer.sizes.model.d_model
    job = s.grouped_kernel(experts)
    matrices = 3 if experts.gated else 2
    weights = matrices * _read(layer, experts, inner, split(experts.d_ff, s.expert_widths))
    return replace(
        job,
        reads={x: job.reads["x"], "W experts": weights},
        writes={y: job.writes["y"]},
        matrix_flops=job.matrix_flops * matrices // 3,
    )
