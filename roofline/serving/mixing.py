"""What mixes the tokens of a layer, on one device: attention over a cache, or a state."""

from __future__ import annotations

from dataclasses import replace

from roofline.serving.layer import COSTS, Layer
from roofline.serving.setting import split
from roofline_helpers import work
from roofline_helpers.common.dtypes import nbytes
from roofline_helpers.models.layers import Mixer
from roofline_helpers.work import Work


def mix_tokens(layer: Layer, mixer: Mixer) -> None:
    """Add the operations from the normed tokens "n1" to "a", which a residual takes."""
    s = layer.sizes
    if mixer.latent:
        width = _latent(layer, mixer)
    elif mixer.cache_width:
        width = _grouped_queries(layer, mixer)
    else:
        width = _state(layer, mixer)
    mixed, projected = "o", layer.ops.get("QKV projection")
    if projected and "gate" in projected.writes:
        mixed, passed = "o, gated", nbytes(s.tokens * width, s.half)
        reads = {"o": passed, "gate": projected.writes["gate"]}
        job = Work("gate", reads, {mixed: passed}, vector_flops=4 * s.tokens * width, dtype=s.half)
        layer.ops["output gate"] = job
    layer.quantise(f"quantise {mixed}", mixed, s.tokens, width, s.projections)
    shape = (s.tokens, width)
    layer.project("output projection", mixed, "o", shape, {"a": s.model.d_model}, s.projections)


def _grouped_queries(layer: Layer, mixer: Mixer) -> int:
    """Add attention with grouped queries; return the columns of its result."""
    s, d = layer.sizes, layer.sizes.model.d_model
    kv_heads = split(mixer.kv_heads, s.heads)  # with more devices than heads each has a copy
    heads = kv_heads * split(split(mixer.heads, s.heads), kv_heads)
    value_dim = mixer.output // (d * mixer.heads)
    head_dim = mixer.scores // mixer.heads - value_dim
    # the cache's positions or sequences may be split too, and then each matrix over those devices
    further = split(s.widths, s.heads)
    outs = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * value_dim}
    outs = {name: split(width, further) for name, width in outs.items()}
    queries, keys, values = outs.values()
    columns = (mixer.weights - mixer.output) // d
    others = columns - mixer.heads * head_dim - mixer.cache_width  # negative: V is K
    if others < 0:
        del outs["v"]
        others += mixer.kv_heads * value_dim
    if others:
        outs["gate"] = split(others, s.widths)
    layer.project("QKV projection", "n1", "qkv", (s.tokens, d), outs, s.projections)
    layer.ops |= _turned(layer, queries, keys, values, head_dim, "v" if "v" in outs else "k")
    layer.ops |= _attention(layer, mixer, heads, kv_heads, (head_dim, value_dim))
    return split(heads * value_dim, further)


def _turned(
    layer: Layer, queries: int, keys: int, values: int, head_dim: int, made: str
) -> dict[str, Work]:
    """Return the rotary embedding, and the append to the cache."""
    s, rows = layer.sizes, layer.sizes.tokens
    q, k, v = (nbytes(rows * width, s.half) for width in (queries, keys, values))
    turned = Work(
        "RoPE",
        {"q": q, "k": k, "cos, sin": nbytes(rows * head_dim, s.half)},
        {"q, turned": q, "k, turned": k},
        vector_flops=rows * (queries + keys) * COSTS["RoPE"],
        dtype=s.half,
    )
    stored = {
        f"{name} cache, new": nbytes(rows * n, s.cache) for name, n in (("K", keys), ("V", values))
    }
    quantised = 0 if s.cache == s.half else COSTS["quantise"]
    appended = Work(
        "KV append",
        {"k, turned": k, made: v},
        stored,
        vector_flops=rows * (keys + values) * quantised,
        dtype=s.half,
    )
    return {"RoPE": turned, "KV append": appended}


def _seen(layer: Layer, mixer: Mixer) -> int:
    """Return the keys of each sequence that this device's attention reads."""
    s = layer.sizes
    if s.prefill:
        return s.context
    return max(s.new, split(max(s.new, mixer.seen(s.context)), s.positions))


def _attention(
    layer: Layer, mixer: Mixer, heads: int, kv_heads: int, widths: tuple[int, int]
) -> dict[str, Work]:
    """Return the kernels of attention, which read K and V from the cache in its type."""
    s, seen = layer.sizes, _seen(layer, mixer)
    both = sum(widths)
    dims = (s.sequences, s.new, seen, heads, both // 2, kv_heads, s.half)
    keys, values = (nbytes(s.sequences * seen * kv_heads * width, s.cache) for width in widths)
    if s.attention == "naive":
        scores, softmax, output = work.naive_attention(*dims)
        q, p = scores.reads["q"], output.reads["p"]
        return {
            "Q·Kᵀ": replace(scores, reads={"q, turned": q, "K cache": keys}),
            "softmax": softmax,
            "P·V": replace(output, reads={"p": p, "V cache": values}),
        }
    flash = work.flash_attention(*dims, kv_dtype=s.cache, causal=True)
    reads = {"q, turned": flash.reads["q"], "K cache": keys, "V cache": values}
    if s.prefill and mixer.window:
        flash = _masked(flash, mixer, s.context)
    return {"flash attention": replace(flash, reads=reads, passes={})}


def _masked(job: Work, mixer: Mixer, context: int) -> Work:
    """Return causal attention on whole sequences with the pairs that a layer's mask leaves."""
    pairs, causal = mixer.pairs(context), context * (context + 1) // 2
    counts = ("matrix_flops", "vector_flops", "transcendentals")
    return replace(job, **{name: getattr(job, name) * pairs // causal for name in counts})


def _latent(layer: Layer, mixer: Mixer) -> int:
    """Add latent attention; return the columns of its result.

    In decode the matrices of keys and values are absorbed into queries and results. What leads down
    to the latents is whole on each device.
    """
    s, latent, d = layer.sizes, mixer.latent, layer.sizes.model.d_model
    assert latent
    heads = split(mixer.heads, s.heads)
    further = split(s.widths, s.heads)
    index = mixer.choosing // mixer.choosing_width if mixer.top else 0
    kept = latent.kv_rank + latent.rope_dim
    outs = {"c": latent.q_rank + kept}
    if index:
        outs["index k"] = mixer.choosing_width + index
    layer.project(
        "latent down projection", "n1", "down to latents", (s.tokens, d), outs, s.projections
    )
    ranks = latent.q_rank + latent.kv_rank
    layer.ops["latent norms"] = work.rmsnorm(
        s.tokens, ranks, s.half, x="c", y="c, normed", tag=" latent"
    )
    x, rank = ("c, normed", latent.q_rank) if latent.q_rank else ("n1", d)
    outs = {"q": split(heads * (latent.nope_dim + latent.rope_dim), further)}
    if index:
        outs["index q"] = mixer.choosing
    layer.project("query projection", x, "q", (s.tokens, rank), outs, s.projections)
    turned = split(heads * latent.rope_dim, further)
    layer.ops |= _turned(
        layer, turned, latent.rope_dim, latent.kv_rank, latent.rope_dim, "c, normed"
    )
    if index:
        layer.ops |= _chosen(layer, mixer)
    up = split(heads * (latent.nope_dim + latent.value_dim), further)
    if s.prefill:
        shape, outs = (s.tokens, latent.kv_rank), {"k, v": up}
        layer.project(
            "key and value projection", "c, normed", "up from latents", shape, outs, s.projections
        )
        layer.ops["latent attention"] = _latent_prefill(layer, mixer, heads)
        return split(heads * latent.value_dim, further)
    rows, seen = s.sequences * s.new, _seen(layer, mixer)

    def absorbed(op: str, x: str, y: str, n: int, k: int) -> None:
        names = (x, f"W {op}", y)
        layer.ops[op] = work.matmul(
            rows, n, k, s.half, b=s.projections, out=s.half, batch=heads, names=names
        )

    absorbed("absorb keys", "q, turned", "q, absorbed", latent.kv_rank, latent.nope_dim)
    job = work.latent_attention(s.sequences, 1, seen, heads * s.new, s.half, kv_dtype=s.cache)
    pairs, queries = rows * heads * seen, nbytes(rows * heads * kept, s.half)
    layer.ops["latent attention"] = replace(
        job,
        reads={"q, absorbed": queries, "K cache": nbytes(s.sequences * seen * kept, s.cache)},
        writes={"o, latent": nbytes(rows * heads * latent.kv_rank, s.half)},
        matrix_flops=2 * pairs * (kept + latent.kv_rank),
    )
    absorbed("absorb values", "o, latent", "o", latent.value_dim, latent.kv_rank)
    return split(heads * latent.value_dim, further)


def _latent_prefill(layer: Layer, mixer: Mixer, heads: int) -> Work:
    s, latent = layer.sizes, mixer.latent
    assert latent
    job = work.latent_attention(s.sequences, s.context, None, heads, s.half)
    rows, width = s.tokens * heads, latent.nope_dim + latent.rope_dim
    job = replace(
        job,
        reads={
            "q, turned": nbytes(rows * width, s.half),
            "k, v": nbytes(rows * (width + latent.value_dim), s.half),
        },
        writes={"o": nbytes(rows * latent.value_dim, s.half)},
        matrix_flops=s.sequences * s.context * (s.context + 1) * heads * (width + latent.value_dim),
    )
    return _masked(job, mixer, s.context) if mixer.top else job


def _chosen(layer: Layer, mixer: Mixer) -> dict[str, Work]:
    """Return the indexer, which scores all keys, and the choice of the best."""
    s = layer.sizes
    rows, keys = s.sequences * s.new, split(s.context, s.positions)
    pairs = rows * (keys + 1) // 2 if s.prefill else rows * keys
    scores = nbytes(pairs, "fp32")
    cached = nbytes(s.sequences * keys * mixer.choosing_width, s.cache)
    queries = nbytes(rows * mixer.choosing, s.half)
    scored = Work(
        "index scores",
        {"index q": queries, "index k": queries // mixer.choosing_width, "K index": cached},
        {"index scores": scores},
        matrix_flops=2 * pairs * mixer.choosing,
        vector_flops=2 * pairs * mixer.choosing // mixer.choosing_width,
        dtype=s.half,
    )
    chosen = {"chosen keys": nbytes(rows * min(mixer.top, keys), "int32")}
    top = Work("top keys", {"index scores": scores}, chosen, vector_flops=pairs, dtype=s.half)
    return {"index scores": scored, "top keys": top}


def _state(layer: Layer, mixer: Mixer) -> int:
    """Add a layer with a state, which each token reads and writes; return its result's columns."""
    s, d = layer.sizes, layer.sizes.model.d_model
    inner = split(mixer.output // d, s.widths)
    columns = split((mixer.weights - mixer.output) // d, s.widths)
    layer.project("in projection", "n1", "in", (s.tokens, d), {"u": columns}, s.projections)
    passed, made = nbytes(s.tokens * columns, s.half), nbytes(s.tokens * inner, s.half)
    x, held = (
        "u",
        {"recent inputs": 2 * mixer.recent, "state": mixer.state_bytes - 2 * mixer.recent},
    )
    for name, op in (("recent inputs", "convolution"), ("state", "state update")):
        if held[name]:
            nbytes_held = split(s.sequences * held[name], s.heads)
            last = name == "state" or not held["state"]
            y, size = ("o", made) if last else ("u, convolved", passed)
            flops = s.tokens * mixer.flops // s.heads if name == "state" else s.tokens * columns
            layer.ops[op] = Work(
                op,
                {x: passed, f"S {name}": nbytes_held},
                {y: size, f"S {name}, new": nbytes_held},
                vector_flops=flops,
                dtype=s.half,
            )
            x = y
    return inner
