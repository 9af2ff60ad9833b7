"""A ladder for the prefill: Llama-3-8B reads a whole prompt, from plain JAX to fused attention.

from llama_decode import model, prefill

shape, rung = model.Llama(), prefill.RUNGS[-1]
weights = rung.prepare(model.random_weights(shape))
logits, cache = jax.jit(rung.step(shape))(weights, jnp.zeros((1, 2048), jnp.int32))
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from . import model
from .model import Array, Llama, Plain, Weights


@dataclass(frozen=True)
class Way:
    """How the prefill is written.

    Parameters
    ----------
    plain : Plain
        As for the decode step: `scan`, `float32`, `fused` and `attention` count here.
    all_logits : bool
        Logits of every token, where only the last one's are wanted.
    """

    plain: Plain = field(default_factory=Plain)
    all_logits: bool = True


def rotated(shape: Llama, x: Array) -> Array:
    """Return x [B, T, H, head] after the rotary embedding at positions 0 to T − 1."""
    cos, sin = (y[:, None] for y in model.angles(shape, jnp.arange(x.shape[1])[:, None]))
    return model.rotate(x, cos, sin)


def attend(q: Array, keys: Array, values: Array, plain: Plain) -> Array:
    """Return causal attention of q [B, T, H, head] over keys and values [B, T, G, head]."""
    if plain.attention != "einsum":
        how: Any = plain.attention
        return jax.nn.dot_product_attention(q, keys, values, is_causal=True, implementation=how)
    batch, tokens, heads, width = q.shape
    q = q.reshape(batch, tokens, keys.shape[2], -1, width)
    if plain.float32:
        q, keys, values = (x.astype(jnp.float32) for x in (q, keys, values))
    scores = jnp.einsum("btghd,bsgd->bghts", q, keys, preferred_element_type=jnp.float32)
    seen = jnp.tril(jnp.ones((tokens, tokens), bool))
    weights = jax.nn.softmax(jnp.where(seen, scores * width**-0.5, -jnp.inf), axis=-1)
    out = jnp.einsum("bghts,bsgd->btghd", weights.astype(values.dtype), values)
    return out.reshape(batch, tokens, heads, width).astype(jnp.bfloat16)


def layer(
    shape: Llama,
    way: Way,
    x: Array,
    w: Weights,
) -> tuple[Array, tuple[Array, Array]]:
    """Return one layer's x [B, T, D], and its keys and values [B, T, G, head]."""
    batch, tokens = x.shape[:2]
    y = model.rms_norm(x, w["norm1"], shape.epsilon)
    if way.plain.fused:
        wide = shape.heads * shape.head
        q, k, v = jnp.split(y @ w["qkv"], [wide, wide + shape.groups * shape.head], axis=-1)
    else:
        q, k, v = y @ w["q"], y @ w["k"], y @ w["v"]
    q, k, v = (each.reshape(batch, tokens, -1, shape.head) for each in (q, k, v))
    q, k = rotated(shape, q), rotated(shape, k)
    x = x + attend(q, k, v, way.plain).reshape(batch, tokens, -1) @ w["o"]
    y = model.rms_norm(x, w["norm2"], shape.epsilon)
    if way.plain.fused:
        gate, up = jnp.split(y @ w["gate_up"], 2, axis=-1)
    else:
        gate, up = y @ w["gate"], y @ w["up"]
    return x + (jax.nn.silu(gate) * up) @ w["down"], (k, v)


def prefill(shape: Llama, way: Way, weights: Weights, tokens: Array) -> Any:
    """Return logits [B, V] after the tokens [B, T], or all [B, T, V]; keys and values by layer."""
    x = weights["embedding"][tokens]
    one = functools.partial(layer, shape, way)
    if way.plain.scan:
        x, cache = lax.scan(one, x, weights["layers"])
    else:
        cache = []
        for w in weights["layers"]:
            x, pair = one(x, w)
            cache.append(pair)
    last = x if way.all_logits else x[:, -1]
    return model.rms_norm(last, weights["norm"], shape.epsilon) @ weights["head"], cache


@dataclass(frozen=True)
class Rung:
    """One way to write the prefill, and what it changes about the rung before."""

    name: str
    change: str
    way: Way

    def prepare(self, weights: Weights) -> Weights:
        """Return the weights as `step` takes them."""
        return model.prepare(weights, self.way.plain)

    def step(self, shape: Llama) -> Callable[..., Any]:
        """Return the function of weights and tokens [B, T], not compiled."""
        return functools.partial(prefill, shape, self.way)


FIRST = Way()
NARROW = replace(FIRST, plain=replace(FIRST.plain, float32=False))
LAST = replace(NARROW, all_logits=False)
FUSED = replace(LAST, plain=replace(LAST.plain, attention="cudnn"))
UNROLLED = replace(FUSED, plain=replace(FUSED.plain, scan=False, fused=True))
RUNGS = (
    Rung("as first written", "one scan over stacked layers, attention in float32", FIRST),
    Rung("in bfloat16", "queries, keys and values enter attention as they are", NARROW),
    Rung("last token", "logits of the last token only", LAST),
    Rung("cuDNN", "attention is one kernel: no scores in memory", FUSED),
    Rung("side by side", "a loop over the layers; q, k and v, gate and up in one matmul", UNROLLED),
)
