"""Causal attention over a sequence that is cut along several GPUs: gathered, and in a ring.

Each function runs on one device inside `jax.shard_map` over `AXIS`: q, k and v are its part of the
sequence, [B, T / n, heads, head], and so is the result. Parts lie in order, or in zigzag: the
sequence is cut into 2 n pieces, and device i holds pieces i and 2 n − 1 − i, so that every device
has as many pairs of query and key to work out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array

AXIS = "context"


def partial(q: Array, k: Array, v: Array, causal: bool = False) -> tuple[Array, Array]:
    """Return attention, and the logarithm of the sums of exponentials, [B, T, heads]."""
    if jax.default_backend() == "gpu":
        return jax.nn.dot_product_attention(
            q, k, v, is_causal=causal, implementation="cudnn", return_residual=True
        )
    repeats = q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(x, repeats, axis=2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    total = jax.nn.logsumexp(scores, axis=-1, keepdims=True)
    out = jnp.einsum("bhqk,bkhd->bqhd", jnp.exp(scores - total).astype(v.dtype), v)
    return out, total[..., 0].swapaxes(1, 2)


def merged(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return attention over the keys of both, in float32."""
    total = jnp.logaddexp(one[1], other[1])
    shares = (jnp.exp(each[1] - total)[..., None] for each in (one, other))
    parts = (each[0].astype(jnp.float32) for each in (one, other))
    return sum(share * part for share, part in zip(shares, parts, strict=True)), total


def onward(pair: Any, n: int) -> Any:
    """Send keys and values to the next device of the ring."""
    around = [(i, (i + 1) % n) for i in range(n)]
    return jax.tree.map(lambda x: lax.ppermute(x, AXIS, around), pair)


def ring(q: Array, k: Array, v: Array, *, n: int, zigzag: bool = True) -> Array:
    """Return attention while keys and values go round, one device's part a turn."""
    me = lax.axis_index(AXIS)
    half = q.shape[1] // 2
    pair = (k, v)
    result: Any = None
    for turn in range(n):
        beyond = onward(pair, n) if turn < n - 1 else pair
        k, v = pair
        if turn == 0:
            result = _first(q, k, v, half) if zigzag else partial(q, k, v, causal=True)
            result = result[0].astype(jnp.float32), result[1]
        elif zigzag:
            before = (me - turn) % n < me  # it holds earlier pieces than mine, and later ones
            result = lax.cond(before, _early, _late, q, k, v, result)
        else:
            before = (me - turn) % n < me
            result = lax.cond(before, _all, lambda q, k, v, r: r, q, k, v, result)
        pair = beyond
    return result[0].astype(q.dtype)


def _first(q: Array, k: Array, v: Array, half: int) -> tuple[Array, Array]:
    """Return a device's own two pieces: the second one's queries see all of the first's keys."""
    low = partial(q[:, :half], k[:, :half], v[:, :half], causal=True)
    high = partial(q[:, half:], k[:, half:], v[:, half:], causal=True)
    high = merged(high, partial(q[:, half:], k[:, :half], v[:, :half]))
    out = jnp.concatenate([low[0].astype(jnp.float32), high[0]], axis=1)
    return out, jnp.concatenate([low[1], high[1]], axis=1)


def _all(q: Array, k: Array, v: Array, result: Any) -> Any:
    return merged(result, partial(q, k, v))


def _early(q: Array, k: Array, v: Array, result: Any) -> Any:
    """All my queries see the first of the other's pieces, none the second."""
    half = k.shape[1] // 2
    return merged(result, partial(q, k[:, :half], v[:, :half]))


def _late(q: Array, k: Array, v: Array, result: Any) -> Any:
    """The queries of my second piece see both of the other's pieces, those of the first none."""
    half = q.shape[1] // 2
    high = merged((result[0][:, half:], result[1][:, half:]), partial(q[:, half:], k, v))
    return tuple(
        jnp.concatenate([old[:, :half], new], axis=1) for old, new in zip(result, high, strict=True)
    )


def gathered(q: Array, k: Array, v: Array, *, n: int) -> Array:
    """Return attention after every device has all keys and values; parts lie in order."""
    k, v = (lax.all_gather(x, AXIS, axis=1, tiled=True) for x in (k, v))
    size = q.shape[1]

    def at(i: int) -> Callable[..., Array]:
        def one(q: Array, k: Array, v: Array) -> Array:
            own = partial(q, k[:, i * size :][:, :size], v[:, i * size :][:, :size], causal=True)
            if not i:
                return own[0]
            past = partial(q, k[:, : i * size], v[:, : i * size])
            return merged(own, past)[0].astype(q.dtype)

        return one

    return lax.switch(lax.axis_index(AXIS), [at(i) for i in range(n)], q, k, v)


def zigzag_order(length: int, n: int) -> Any:
    """Return the tokens' places in the order in which devices hold them."""
    pieces = jnp.arange(length).reshape(2 * n, -1)
    order = [piece for i in range(n) for piece in (i, 2 * n - 1 - i)]
    return pieces[jnp.asarray(order)].reshape(-1)


WAYS: dict[str, tuple[Callable[..., Array], bool]] = {
    "gathered, in order": (gathered, False),
    "ring, in order": (functools.partial(ring, zigzag=False), False),
    "ring, zigzag": (ring, True),
}
"""Each way's function, and whether it wants the sequence in zigzag."""
