"""What mixes the tokens of a layer, on one device: attention over a cache, or a state."""

from __future__ import annotations

from dataclasses import astuple, replace

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
    layer.project("output projection", mixed, "o", width, {"a": s.model.d_model})


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
    if mixer.choosing:
        others -= mixer.choosing
        outs |= {"index q": mixer.choosing, "index k": mixer.choosing_width}
    if others:
        outs["gate"] = split(others, s.widths)
    layer.project("QKV projection", "n1", "qkv", d, outs)
    layer.ops |= _turned(layer, queries, keys, values, head_dim, "v" if "v" in outs else "k")
    if mixer.choosing:
        layer.ops |= _chosen(layer, mixer)
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
    kept = {
        "K cache, new": nbytes(rows * keys, s.cache),
        "V cache, new": nbytes(rows * values, s.cache),
    }
    quantised = 0 if s.cache == s.half else COSTS["quantise"]
    appended = Work(
        "KV append",
        {"k, turned": k, made: v},
        kept,
        vector_flops=rows * (keys + values) * quantised,
        dtype=s.half,
    )
    return {"RoPE": turned, "KV append": appended}


def _seen(layer: Layer, mixer: Mixer) -> int:
    """Return the keys of each sequence that this device's attention reads."""
    s = layer.sizes
    if s.prefill:
        return s.context
    return max(s.new, split(mixer.seen(s.context), s.positions))


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
    if s.prefill and (mixer.window or mixer.top):
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
    heads, further = split(mixer.heads, s.heads), split(s.widths, s.heads)
    kv_rank, rope, nope, value_dim = astuple(latent)[1:]
    outs = {"c": latent.q_rank + kv_rank + rope}
    asked = {"q": split(heads * (nope + rope), further)}
    if mixer.choosing:
        outs["index k"] = mixer.choosing_width + mixer.choosing // mixer.choosing_width
        asked["index q"] = mixer.choosing
    layer.project("latent down projection", "n1", "down to latents", d, outs)
    ranks = latent.q_rank + kv_rank
    normed = work.rmsnorm(s.tokens, ranks, s.half, x="c", y="c, normed", tag=" latent")
    layer.ops["latent norms"] = normed
    x, rank = ("c, normed", latent.q_rank) if latent.q_rank else ("n1", d)
    layer.project("query projection", x, "q", rank, asked)
    turned = split(heads * rope, further)
    layer.ops |= _turned(layer, turned, rope, kv_rank, rope, "c, normed")
    if mixer.choosing:
        layer.ops |= _chosen(layer, mixer)
    rows, seen, new = s.sequences * s.new, _seen(layer, mixer), 1

    def absorb(op: str, x: str, y: str, n: int, k: int) -> None:
        names, matrix = (x, f"W {op}", y), s.projections
        job = work.matmul(rows, n, k, s.half, b=matrix, out=s.half, batch=heads, names=names)
        layer.ops[op] = job

    q, o, q_width, o_width, pairs = "q, absorbed", "o, latent", kv_rank + rope, kv_rank, rows * seen
    read = {"K cache": nbytes(s.sequences * seen * q_width, s.cache)}
    if s.prefill:
        up = {"k, v": split(heads * (nope + value_dim), further)}
        layer.project("key and value projection", "c, normed", "up from latents", kv_rank, up)
        q, o, q_width, o_width, new = "q, turned", "o", nope + rope, value_dim, s.new
        pairs = s.sequences * mixer.pairs(seen)
        read = {"k, v": nbytes(rows * heads * (q_width + o_width), s.half)}
    else:
        absorb("absorb keys", "q, turned", q, kv_rank, nope)
    cached = s.half if s.prefill else s.cache
    held = heads * s.new // new  # drafts share what is read
    job = work.latent_attention(s.sequences, new, seen, held, s.half, kv_dtype=cached)
    layer.ops["latent attention"] = replace(
        job,
        reads={q: nbytes(rows * heads * q_width, s.half), **read},
        writes={o: nbytes(rows * heads * o_width, s.half)},
        matrix_flops=2 * pairs * heads * (q_width + o_width),
        vector_flops=6 * pairs * heads,
        transcendentals=pairs * heads,
    )
    if not s.prefill:
        absorb("absorb values", o, "o", value_dim, kv_rank)
    return split(heads * value_dim, further)


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
    """Add a layer with a state, which each token reads and writes; return its result's columns.

    Prompts are read in chunks: between them states go to the memory and back.
    """
    s, d = layer.sizes, layer.sizes.model.d_model
    inner, columns = (split(n // d, s.widths) for n in (mixer.output, mixer.weights - mixer.output))
    layer.project("in projection", "n1", "in", d, {"u": columns})
    recent = 2 * mixer.recent
    held = {"convolution": recent, "state update": mixer.state_bytes - recent}
    flops = {"convolution": columns, "state update": mixer.flops // s.heads}
    kernels = [op for op, size in held.items() if size]
    x = "u"
    for op in kernels:
        y, width = ("o", inner) if op == kernels[-1] else ("u, convolved", columns)
        size = split(s.sequences * held[op], s.heads)
        job = Work(
            op,
            {x: nbytes(s.tokens * columns, s.half), f"S {op}": size},
            {y: nbytes(s.tokens * width, s.half), f"S {op}, new": size},
            vector_flops=s.tokens * flops[op],
            dtype=s.half,
        )
        if s.prefill and op == "state update" and mixer.chunk:
            pieces = s.sequences * split(s.new, mixer.chunk) * split(mixer.state, s.heads)
            between = {"chunks' states": nbytes(pieces, s.half)}
            job = replace(
                job,
                reads={**job.reads, **between},
                writes={**job.writes, **between},
                matrix_flops=2 * s.tokens * split(mixer.scan, s.heads),
                vector_flops=0,
            )
        layer.ops[op] = job
        x = y
    return inner
