"""Llama-3-8B: its shapes, random weights, a cache, and one decode step in plain JAX.

`step` with the default `Plain` is the step as a person first writes it. What the ladder in `steps`
changes about it one by one is a field of `Plain`; the kernels come after that.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

Array: TypeAlias = jax.Array
Weights: TypeAlias = dict[str, Any]
Cache: TypeAlias = Any
"""One pair of keys and values a layer, or the layers' pairs stacked."""


@dataclass(frozen=True)
class Llama:
    """A decoder in the manner of Llama 3 (arXiv:2407.21783); the defaults are the 8B model's."""

    layers: int = 32
    width: int = 4096
    hidden: int = 14336
    heads: int = 32
    groups: int = 8  # heads of keys and values
    head: int = 128
    vocabulary: int = 128256
    theta: float = 5e5
    epsilon: float = 1e-5


@dataclass(frozen=True)
class Plain:
    """How the step in plain JAX is written.

    Parameters
    ----------
    scan : bool
        The layers are one `lax.scan` over stacked weights and caches.
    float32 : bool
        Attention is computed on float32 copies of keys and values.
    by_head : bool
        The cache is [B, G, T, 128] instead of [B, T, G, 128].
    fused : bool
        One product makes q, k and v, and one gate and up.
    attention : {"einsum", "xla", "cudnn"}
        Two contractions, or `jax.nn.dot_product_attention`.
    """

    scan: bool = True
    float32: bool = True
    by_head: bool = False
    fused: bool = False
    attention: str = "einsum"


def random_weights(shape: Llama, seed: int = 0) -> Weights:
    """Return weights in bfloat16: matrices [inputs, outputs] of variance 1 / inputs, gains ≈ 1."""
    s, wide = shape, (shape.heads * shape.head, shape.groups * shape.head)
    of_layer = {
        "q": (s.width, wide[0]),
        "k": (s.width, wide[1]),
        "v": (s.width, wide[1]),
        "o": (wide[0], s.width),
        "gate": (s.width, s.hidden),
        "up": (s.width, s.hidden),
        "down": (s.hidden, s.width),
        "norm1": (s.width,),
        "norm2": (s.width,),
    }
    normal = jax.jit(jax.random.normal, static_argnums=(1, 2))
    keys = iter(jax.random.split(jax.random.key(seed), s.layers * len(of_layer) + 3))

    def draw(*size: int) -> Array:
        x = normal(next(keys), size, jnp.bfloat16)
        return 1 + x * 0.1 if len(size) == 1 else x * size[0] ** -0.5

    layers = [{name: draw(*size) for name, size in of_layer.items()} for _ in range(s.layers)]
    return {
        "embedding": draw(s.vocabulary, s.width) * s.vocabulary**0.5,
        "layers": layers,
        "norm": draw(s.width),
        "head": draw(s.width, s.vocabulary),
    }


def random_cache(shape: Llama, batch: int, tokens: int, plain: Plain, seed: int = 1) -> Cache:
    """Return a cache in bfloat16 with room for `tokens` of each sequence, filled at random."""
    size = (batch, tokens, shape.groups, shape.head)
    keys = jax.random.split(jax.random.key(seed), 2 * shape.layers)
    normal = jax.jit(jax.random.normal, static_argnums=(1, 2))
    each = [normal(key, size, jnp.bfloat16) for key in keys]
    if plain.by_head:
        each = [x.swapaxes(1, 2) for x in each]
    pairs = list(zip(each[::2], each[1::2], strict=True))
    return jax.tree.map(lambda *x: jnp.stack(x), *pairs) if plain.scan else pairs


def prepare(weights: Weights, plain: Plain) -> Weights:
    """Return the weights as `step` with `plain` takes them."""
    layers = weights["layers"]
    if plain.fused:
        layers = [
            {name: w for name, w in layer.items() if name not in ("q", "k", "v", "gate", "up")}
            | {"qkv": jnp.concatenate([layer[x] for x in "qkv"], axis=1)}
            | {"gate_up": jnp.concatenate([layer["gate"], layer["up"]], axis=1)}
            for layer in layers
        ]
    if plain.scan:
        layers = jax.tree.map(lambda *x: jnp.stack(x), *layers)
    return {**weights, "layers": layers}


def rms_norm(x: Array, gain: Array, epsilon: float) -> Array:
    """Return x / √(mean(x²) + ε) · gain, worked out in float32."""
    wide = x.astype(jnp.float32)
    scale = lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + epsilon)
    return (wide * scale * gain.astype(jnp.float32)).astype(gain.dtype)


def angles(shape: Llama, position: Array) -> tuple[Array, Array]:
    """Return cosines and sines [head / 2] of the rotary embedding at a position."""
    pair = jnp.arange(shape.head // 2, dtype=jnp.float32)
    angle = position.astype(jnp.float32) * shape.theta ** (-2 * pair / shape.head)
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Return x [..., head] after the rotary embedding, which turns the two halves' pairs."""
    low, high = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    both = [low * cos - high * sin, high * cos + low * sin]
    return jnp.concatenate(both, axis=-1).astype(x.dtype)


def attend(q: Array, keys: Array, values: Array, position: Array, plain: Plain) -> Array:
    """Return attention of queries [B, H, head] over a cache up to and with `position`."""
    batch, heads, width = q.shape
    if plain.attention != "einsum":
        lengths = jnp.full((batch,), position + 1, jnp.int32)
        out = jax.nn.dot_product_attention(
            q[:, None],
            keys,
            values,
            key_value_seq_lengths=lengths,
            implementation=plain.attention,
        )
        return out[:, 0]
    axes = "bgtd" if plain.by_head else "btgd"
    groups, tokens = (keys.shape[axes.index(axis)] for axis in "gt")
    q = q.reshape(batch, groups, heads // groups, width)
    if plain.float32:
        q, keys, values = (x.astype(jnp.float32) for x in (q, keys, values))
    wide = jnp.float32
    scores = jnp.einsum(f"bghd,{axes}->bght", q, keys, preferred_element_type=wide)
    seen = jnp.arange(tokens) <= position
    weights = jax.nn.softmax(jnp.where(seen, scores * width**-0.5, -jnp.inf), axis=-1)
    out = jnp.einsum(f"bght,{axes}->bghd", weights.astype(values.dtype), values)
    return out.reshape(batch, heads, width).astype(jnp.bfloat16)


def layer(
    shape: Llama, plain: Plain, x: Array, w: Weights, keys: Array, values: Array, position: Array
) -> tuple[Array, Array, Array]:
    """Return one layer's x [B, D] and its cache with the new token's keys and values."""
    batch = len(x)
    y = rms_norm(x, w["norm1"], shape.epsilon)
    if plain.fused:
        wide = shape.heads * shape.head
        q, k, v = jnp.split(y @ w["qkv"], [wide, wide + shape.groups * shape.head], axis=1)
    else:
        q, k, v = y @ w["q"], y @ w["k"], y @ w["v"]
    q, k, v = (each.reshape(batch, -1, shape.head) for each in (q, k, v))
    cos, sin = angles(shape, position)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    axis = 2 if plain.by_head else 1
    keys = lax.dynamic_update_slice_in_dim(keys, jnp.expand_dims(k, axis), position, axis)
    values = lax.dynamic_update_slice_in_dim(values, jnp.expand_dims(v, axis), position, axis)
    x = x + attend(q, keys, values, position, plain).reshape(batch, -1) @ w["o"]
    y = rms_norm(x, w["norm2"], shape.epsilon)
    if plain.fused:
        gate, up = jnp.split(y @ w["gate_up"], 2, axis=1)
    else:
        gate, up = y @ w["gate"], y @ w["up"]
    return x + (jax.nn.silu(gate) * up) @ w["down"], keys, values


def step(
    shape: Llama, plain: Plain, weights: Weights, cache: Cache, tokens: Array, position: Array
) -> tuple[Array, Cache]:
    """Return the logits [B, V] that follow `tokens` [B] at `position`, and the cache with them."""
    x = weights["embedding"][tokens]
    if plain.scan:

        def body(x: Array, one: Any) -> Any:
            w, (keys, values) = one
            x, keys, values = layer(shape, plain, x, w, keys, values, position)
            return x, (keys, values)

        x, cache = lax.scan(body, x, (weights["layers"], cache))
    else:
        pairs = []
        one = jax.jit(functools.partial(layer, shape, plain))  # traced once for all layers
        for w, (keys, values) in zip(weights["layers"], cache, strict=True):
            x, keys, values = one(x, w, keys, values, position)
            pairs.append((keys, values))
        cache = pairs
    return rms_norm(x, weights["norm"], shape.epsilon) @ weights["head"], cache
