"""The feed-forwards of a layer on one device: dense ones, and mixtures of experts."""

from __future__ import annotations

from dataclasses import replace

from roofline.serving.layer import COSTS, Layer, scales, weight
from roofline.serving.setting import split
from roofline_helpers import work
from roofline_helpers.common.checks import Number
from roofline_helpers.common.dtypes import nbytes
from roofline_helpers.models.layers import Experts, FeedForward
from roofline_helpers.work import Work

EXPERTS = "experts' "
"""Begins the names of what has the weights of experts."""


def feed_forward(layer: Layer, x: str) -> None:
    """Add the operations from the normed tokens `x` to "f", which a residual takes."""
    s, experts = layer.sizes, layer.block.experts
    dense = [feed for feed in layer.block.feeds if isinstance(feed, FeedForward)]
    # what every token uses, with a mixture beside the experts that it chooses
    width, gated = sum(feed.d_ff for feed in dense), all(feed.gated for feed in dense)
    if experts:
        width += experts.shared * (experts.shared_d_ff or experts.d_ff)
        gated = experts.gated
    if width:
        kind, sizes = "shared " if experts else "", (s.model.d_model, split(width, s.widths))
        _up_and_down(layer, x, f"{kind}f", kind, sizes, gated, s.weights)
    if experts:
        _mixture(layer, x, experts, shared=width > 0)


def _up_and_down(
    layer: Layer,
    x: str,
    y: str,
    kind: str,
    sizes: tuple[int, int],
    gated: bool,
    dtype: str,
    rows: int = 0,
) -> None:
    """Add the matmuls of a feed-forward from `x` to `y`, and what is between them.

    `sizes` are the columns of `x` and `y`, and those between.
    """
    s, (outer, width) = layer.sizes, sizes
    rows, after = rows or s.tokens, "" if kind == EXPERTS else " projection"
    up, g, u, h = "gate+up" if gated else "up", f"{kind}g", f"{kind}u", f"{kind}h"
    outs = {g: width, u: width} if gated else {u: width}
    layer.project(f"{kind}{up}{after}", x, f"{kind}{up}", outer, outs, dtype, rows)
    if gated:
        layer.ops[f"{kind}SwiGLU"] = work.swiglu(rows * width, s.half, gate=g, up=u, y=h)
    else:
        layer.ops[f"{kind}activation"] = work.relu(rows * width, s.half, x=u, y=h)
    layer.quantise(f"{kind}quantise h", h, rows, width, dtype)
    layer.project(f"{kind}down{after}", h, f"{kind}down", width, {y: outer}, dtype, rows)


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
        layer.project("way to experts", x, "to experts", d, {"z": inner}, s.weights)
        x = "z"
        layer.quantise("quantise z", x, s.tokens, inner, s.experts)
    routed = "f, routed" if shared else "f"
    back = "z, back" if experts.inner else routed
    if s.grouped:
        layer.ops["experts"] = _grouped(layer, experts, layer.handed(x)[0], back)
    else:
        _parted(layer, x, experts, chosen, back)
    if experts.inner:
        layer.project("way back", back, "from experts", inner, {routed: d}, s.weights)
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
    sizes = (inner, split(experts.d_ff, s.expert_widths))
    _up_and_down(layer, moved, "fp", EXPERTS, sizes, experts.gated, s.experts, pairs)
    for op, job in layer.ops.items():
        if op.startswith(EXPERTS):  # of each matrix, those that any token uses
            used = {t: round(float(n) * _used(layer, experts)) for t, n in job.reads.items()}
            reads = {t: used[t] if weight(t) else n for t, n in job.reads.items()}
            layer.ops[op] = replace(job, reads=reads, kind="", dims={})
    layer.ops["unpermute"] = Work(
        "unpermute",
        {"fp": nbytes(pairs * inner, half), "chosen": chosen},
        {y: nbytes(s.tokens * inner, half)},
        vector_flops=2 * pairs * inner,
        dtype=half,
    )


def _used(layer: Layer, experts: Experts) -> float:
    """Return how many of the experts on this device any token uses."""
    s = layer.sizes
    return experts.count * experts.chosen_by(s.routed) / s.expert_groups


def _grouped(layer: Layer, experts: Experts, x: str, y: str) -> Work:
    """Return the experts as the one kernel that was measured, which sorts rows and adds them up."""
    s, inner = layer.sizes, experts.inner or layer.sizes.model.d_model
    job, matrices = s.grouped_kernel(experts), 3 if experts.gated else 2
    shape = (inner, split(experts.d_ff, s.expert_widths))
    matrix = float(nbytes(shape[0] * shape[1], s.experts)) + scales(shape, s.experts, s.group)
    return replace(
        job,
        reads={
            x: job.reads["x"],
            "W experts": round(matrices * matrix * _used(layer, experts)),
        },
        writes={y: job.writes["y"]},
        matrix_flops=job.matrix_flops * matrices // 3,
    )
