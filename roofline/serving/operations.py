"""The operations of a step, and their kernels by fusion strategy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from roofline.serving.setting import ServingSetting, Sizes
from roofline.serving.strategies import SPLIT, STRATEGIES
from roofline_helpers import work
from roofline_helpers.common.dtypes import nbytes
from roofline_helpers.work import Work

COSTS = {
    "RoPE": 3,  # × cos, other half × sin, add
    "quantise": 2,  # × 1/scale, round
}
"""FLOPs per element of operations missing from `work.COSTS`. Quantisation scales are static."""


STORED = "WγKV"
"""First letters of the tensors that stay in memory from step to step: weights and the cache."""

HANDED_ON = ("x''", "next n1", "next n1, narrow")
"""The output of a layer, which the next one reads."""


class Job(NamedTuple):
    """A kernel without a chip: the operations fused into it, how often it runs, its work."""

    ops: tuple[str, ...]
    launches: int
    work: Work


def jobs(setting: ServingSetting) -> list[Job]:
    """Return the kernels of a step, each once, in the order of their first run."""
    chosen = list(_fused(setting.sizes))
    return _staying(chosen, setting) if setting.resident else chosen


@lru_cache(maxsize=1024)
def _fused(sizes: Sizes) -> tuple[Job, ...]:
    """Return the kernels; many steps share them, with any chip, ceilings and memory."""
    ops = operations(sizes)
    layers = sizes.share.layers
    counts = {"once": 1, "layers": layers, "between": layers - 1}
    chosen = []
    for kernel in (SPLIT if sizes.chips > 1 else STRATEGIES)[sizes.fusion]:
        present = tuple(op for op in kernel.ops if op in ops)
        if kernel.ops[0] in ops and counts[kernel.count]:
            job = ops[present[0]]
            if len(present) > 1:
                job = work.fuse(*(ops[op] for op in present), keep=kernel.keep)
            chosen.append(Job(present, counts[kernel.count], job))
    return tuple(chosen)


def _staying(chosen: list[Job], setting: ServingSetting) -> list[Job]:
    """Return the kernels with activations on the chip between them, if they fit.

    Weights and cache never stay: each layer has its own. A layer's output stays for the next one.
    """
    made = {tensor for job in chosen for tensor in job.work.writes}
    level, capacity = setting.chip.on_chip
    works = work.resident(
        *(job.work for job in chosen),
        capacity=capacity,
        level=level,
        onward=[tensor for tensor in HANDED_ON if tensor in made],
        travels=[t for job in chosen for t in (*job.work.reads, *job.work.writes) if stored(t)],
    )
    return [job._replace(work=stays) for job, stays in zip(chosen, works, strict=True)]


def stored(tensor: str) -> bool:
    """Return whether a tensor stays in the main memory between steps: weights and cache."""
    return tensor[0] in STORED


def operations(sizes: Sizes) -> dict[str, Work]:
    """Return every operation as a kernel of its own.

    Tensors that stay in memory begin with a letter of `STORED`: W and γ weights, K and V the cache.
    """
    layer = _Layer(sizes)
    model, half, rows = sizes.share, sizes.half, sizes.tokens
    d = model.d_model
    taken = nbytes(rows * d, half)
    looked_up = nbytes(rows * d, sizes.vocabulary)
    gathered = {"ids": nbytes(rows, "int32"), "W embedding, rows": looked_up}
    layer.ops["embedding"] = Work("embedding", gathered, {"x": taken}, dtype=half)
    layer.mix_tokens()
    layer.feed_forward()
    layer.norm("next RMSNorm 1", "x''", "next n1", "1")
    layer.quantise("next quantise 1", "next n1", d)
    layer.norm("final RMSNorm", "x''", "n", "")
    names = ("n", "W head", "logits")  # of n, only the rows whose logits are needed
    rows, narrow = sizes.ends, sizes.vocabulary
    layer.ops["LM head"] = work.matmul(rows, model.vocabulary, d, half, b=narrow, names=names)
    return layer.ops


@dataclass
class _Layer:
    """Collects the operations of one layer in order, and those before and after it."""

    sizes: Sizes
    ops: dict[str, Work] = field(default_factory=dict)

    @property
    def _narrow(self) -> bool:
        return self.sizes.activations != self.sizes.half

    def norm(self, op: str, x: str, y: str, tag: str) -> None:
        """Add a norm of the tokens."""
        s = self.sizes
        self.ops[op] = work.rmsnorm(s.tokens, s.share.d_model, s.half, x=x, y=y, tag=tag)

    def quantise(self, op: str, tensor: str, width: int) -> None:
        """Add the quantisation of a tensor, if activations are narrow."""
        s = self.sizes
        if self._narrow:
            reads, writes = {tensor: s.half}, {f"{tensor}, narrow": s.activations}
            flops = COSTS["quantise"]
            self.ops[op] = work.elementwise(s.tokens * width, reads, writes, flops, s.half)

    def project(self, op: str, x: str, weight: str, k: int, outs: Mapping[str, int]) -> None:
        """Add a matmul with a weight matrix whose columns are several tensors."""
        s, n = self.sizes, sum(outs.values())
        names = (f"{x}, narrow" if self._narrow else x, f"W {weight}", "out")
        job = work.matmul(s.tokens, n, k, s.activations, b=s.weights, out=s.half, names=names)
        writes = {y: nbytes(s.tokens * width, s.half) for y, width in outs.items()}
        reads: dict[str, Any] = dict(job.reads)
        if weight in ("gate+up", "down") and s.share.experts:
            used = s.share.experts.count * s.share.experts.chosen_by(s.tokens)
            reads[f"W {weight}"] = round(reads[f"W {weight}"] * used / s.share.experts.active)
        self.ops[op] = replace(job, reads=reads, writes=writes)

    def mix_tokens(self) -> None:
        """Add the first half: attention, up to the first residual."""
        s = self.sizes
        model, half, rows = s.share, s.half, s.tokens
        d, q_width, kv_width = model.d_model, model.q_width, model.kv_width
        self.norm("RMSNorm 1", "x", "n1", "1")
        self.quantise("quantise 1", "n1", d)
        outs = {"q": q_width, "k": kv_width, "v": kv_width}
        self.project("QKV projection", "n1", "qkv", d, outs)
        queries, keys = nbytes(rows * q_width, half), nbytes(rows * kv_width, half)
        self.ops["RoPE"] = Work(
            "RoPE",
            {"q": queries, "k": keys, "cos, sin": nbytes(rows * model.head_dim, half)},
            {"q, turned": queries, "k, turned": keys},
            vector_flops=rows * (q_width + kv_width) * COSTS["RoPE"],
            dtype=half,
        )
        stored = nbytes(rows * kv_width, s.cache)
        quantised = 0 if s.cache == half else COSTS["quantise"]
        self.ops["KV append"] = Work(
            "KV append",
            {"k, turned": keys, "v": keys},
            {"K cache, new": stored, "V cache, new": stored},
            vector_flops=2 * rows * kv_width * quantised,
            dtype=half,
        )
        self.ops |= _attention(s)
        self.quantise("quantise o", "o", q_width)
        self.project("output projection", "o", "o", q_width, {"a": d})
        self.ops["residual 1"] = work.add(rows * d, half, x="x", other="a", y="x'")

    def feed_forward(self) -> None:
        """Add the second half, up to the second residual."""
        model, half, rows = self.sizes.share, self.sizes.half, self.sizes.tokens
        d, d_ff = model.d_model, model.d_ff
        self.norm("RMSNorm 2", "x'", "n2", "2")
        self.quantise("quantise 2", "n2", d)
        if model.experts:  # a token's feed-forward is as wide as its experts together
            d_ff = model.experts.active * model.experts.d_ff
            self.project("router", "n2", "router", d, {"r": model.experts.count})
        self.project("gate+up projection", "n2", "gate+up", d, {"g": d_ff, "u": d_ff})
        self.ops["SwiGLU"] = work.swiglu(rows * d_ff, half, gate="g", up="u", y="h")
        self.quantise("quantise h", "h", d_ff)
        self.project("down projection", "h", "down", d_ff, {"f": d})
        self.ops["residual 2"] = work.add(rows * d, half, x="x'", other="f", y="x''")


def _attention(s: Sizes) -> dict[str, Work]:
    """Return the kernels of attention, which read K and V from the cache in its type."""
    model = s.share
    new = s.tokens // s.batch
    dims = (s.batch, new, s.context, model.heads, model.head_dim, model.kv_heads, s.half)
    cached = nbytes(s.batch * s.context * model.kv_width, s.cache)
    if s.attention == "naive":
        scores, softmax, output = work.naive_attention(*dims)
        q, p = scores.reads["q"], output.reads["p"]
        return {
            "Q·Kᵀ": replace(scores, reads={"q, turned": q, "K cache": cached}),
            "softmax": softmax,
            "P·V": replace(output, reads={"p": p, "V cache": cached}),
        }
    flash = work.flash_attention(*dims, causal=True)
    reads = {"q, turned": flash.reads["q"], "K cache": cached, "V cache": cached}
    return {"flash attention": replace(flash, reads=reads, passes={})}
