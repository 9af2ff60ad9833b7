"""Attention's kernels: their bodies, and how they cut queries and keys into blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.experimental import pallas as pl

from roofline.kernels.launch import (
    LANES,
    LOG2E,
    SUBLANES,
    Index,
    Options,
    Ref,
    quotient,
    round_up,
    sum_along,
)

_GPU_TILES = {"forward": (128, 64), "dq": (128, 32), "dkv": (64, 64)}  # fastest on an H100


def attention_kernel(q: Ref, k: Ref, v: Ref, o: Ref, *lse: Ref, tile: Tiles) -> None:
    """Walk over the keys of one block of queries; write O, and log-sum-exp if needed."""
    queries = q[...]
    first = tile.first_query

    def step(j: Index, carry: Any, hide: bool) -> Any:
        highest, total, sums = carry
        keys = tile.slice(k, j, tile.kv)
        scores = tile.scores(queries, keys, first, j * tile.kv, hide)
        higher = jnp.maximum(highest, jnp.max(scores, axis=1, keepdims=True))
        # before the first key both are −∞, and −∞ − −∞ is NaN
        origin = jnp.where(higher == -jnp.inf, 0.0, higher)
        weights = jnp.exp2(scores - origin)
        shrink = jnp.exp2(highest - origin)
        values = tile.slice(v, j, tile.kv)
        sums = sums * shrink + _dot(weights.astype(values.dtype), values)
        return higher, total * shrink + sum_along(weights, axis=1), sums

    nothing = jnp.full((tile.q, 1), -jnp.inf, jnp.float32)
    start = (nothing, jnp.zeros_like(nothing), jnp.zeros((tile.q, tile.head_dim), jnp.float32))
    highest, total, sums = tile.each_keys(first, step, start)
    seen = total > 0.0
    total = jnp.where(seen, total, 1.0)
    o[...] = (sums / total).astype(o.dtype)
    if lse:
        lse[0][...] = jnp.where(seen, highest + LOG2E * jnp.log(total), 0.0).T


def dq_kernel(
    q: Ref, k: Ref, v: Ref, do: Ref, lse: Ref, delta: Ref, dq: Ref, *, tile: Tiles
) -> None:
    """Write dQ of one block of queries: P = 2^(S − lse), dS = P ∘ (dO·Vᵀ − δ), dQ = dS·K."""
    queries, d_out = q[...], do[...]
    log_sum, offset = lse[...].T, delta[...].T
    first = tile.first_query

    def step(j: Index, sums: Any, hide: bool) -> Any:
        keys, values = tile.slice(k, j, tile.kv), tile.slice(v, j, tile.kv)
        scores = tile.scores(queries, keys, first, j * tile.kv, hide)
        weights = jnp.exp2(scores - log_sum)
        d_scores = weights * (_dot(d_out, values, (1, 1)) - offset)
        return sums + _dot(d_scores.astype(keys.dtype), keys)

    start = jnp.zeros((tile.q, tile.head_dim), jnp.float32)
    sums = tile.each_keys(first, step, start)
    dq[...] = (sums * tile.scale).astype(dq.dtype)


def dkv_kernel(
    q: Ref, k: Ref, v: Ref, do: Ref, lse: Ref, delta: Ref, dk: Ref, dv: Ref, *, tile: Tiles
) -> None:
    """Write dK and dV of one block of keys, with the scores transposed: dV = Pᵀ·dO, dK = dSᵀ·Q."""
    keys, values = k[...], v[...]
    first = tile.first_key

    def step(i: Index, carry: Any, hide: bool) -> Any:
        sums_k, sums_v = carry
        queries, d_out = tile.slice(q, i, tile.q), tile.slice(do, i, tile.q)
        at = (slice(None), pl.ds(pl.multiple_of(i * tile.q, tile.q), tile.q))
        scores = tile.scores(keys, queries, i * tile.q, first, hide, q_axis=1)
        weights = jnp.exp2(scores - lse[at])
        sums_v += _dot(weights.astype(d_out.dtype), d_out)
        d_scores = weights * (_dot(values, d_out, (1, 1)) - delta[at])
        return sums_k + _dot(d_scores.astype(queries.dtype), queries), sums_v

    start = jnp.zeros((tile.kv, tile.head_dim), jnp.float32)
    sums_k, sums_v = tile.each_queries(first, step, (start, start))
    dk[...] = (sums_k * tile.scale).astype(dk.dtype)
    dv[...] = sums_v.astype(dv.dtype)


def _loops(
    bounds: Sequence[Index], hides: Sequence[bool], body: Callable[..., Any], carry: Any
) -> Any:
    """Loop from each bound to the next; loops that are known to be empty are left out."""
    for low, high, hide in zip(bounds, bounds[1:], hides, strict=False):
        if not (isinstance(low, int) and isinstance(high, int) and low >= high):
            carry = lax.fori_loop(low, high, functools.partial(body, hide=hide), carry)
    return carry


def _dot(a: Array, b: Array, contract: tuple[int, int] = (1, 0)) -> Array:
    """Return A·B, summed over these axes of A and B, in fp32: (1, 1) is A·Bᵀ."""
    exact = lax.Precision.HIGHEST if a.dtype == jnp.float32 else lax.Precision.DEFAULT
    return lax.dot_general(
        a,
        b,
        (((contract[0],), (contract[1],)), ((), ())),
        precision=(exact, exact),
        preferred_element_type=jnp.float32,
    )


@dataclass(frozen=True)
class Tiles:
    """The tiles of attention: blocks of `q` queries and `kv` keys, over padded lengths."""

    q: int
    kv: int
    q_len: int
    kv_len: int
    head_dim: int  # padded
    scale: float
    causal: bool

    @property
    def q_padded(self) -> int:
        """Queries in whole blocks."""
        return round_up(self.q_len, self.q)

    @property
    def kv_padded(self) -> int:
        """Keys in whole blocks."""
        return round_up(self.kv_len, self.kv)

    @property
    def ahead(self) -> int:
        """Keys before those that the first query is aligned with – the last query sees all."""
        return self.kv_len - self.q_len

    @property
    def first_query(self) -> Index:
        """First query of this program, known inside a kernel only."""
        return pl.program_id(2) * self.q

    @property
    def first_key(self) -> Index:
        """First key of this program, known inside a kernel only."""
        return pl.program_id(2) * self.kv

    def each_keys(self, first_query: Index, body: Callable[..., Any], start: Any) -> Any:
        """Do ``body(j, carry, hide)`` for each block of keys that a block of queries attends to.

        Scores need hiding only in blocks that the diagonal cuts, or that end past the last key.
        Those come last, in a loop of their own; blocks beyond the diagonal are skipped.
        """
        last, whole = self.kv_padded // self.kv, self.kv_len // self.kv
        if self.causal:
            seen = first_query + self.ahead + 1  # keys that its first query sees
            whole = jnp.minimum(quotient(seen, self.kv), whole)
            last = jnp.minimum(quotient(seen + self.q - 1 + self.kv - 1, self.kv), last)
        return _loops((0, whole, last), (False, True), body, start)

    def each_queries(self, first_key: Index, body: Callable[..., Any], start: Any) -> Any:
        """Do ``body(i, carry, hide)`` for each block of queries that sees a block of keys.

        Keys past the last one aren't hidden: their results are cut off.
        """
        first, whole, last = 0, 0, self.q_padded // self.q
        if self.causal:
            behind = first_key - self.ahead  # the first query that sees its first key
            first = jnp.minimum(quotient(behind, self.q), last)
            whole = jnp.minimum(quotient(behind + self.kv - 1 + self.q - 1, self.q), last)
        return _loops((first, whole, last), (True, False), body, start)

    def slice(self, ref: Ref, index: Index, length: int) -> Array:
        """Load block `index` of rows."""
        return ref[pl.ds(pl.multiple_of(index * length, length), length), :]

    def scores(
        self,
        a: Array,
        b: Array,
        q_first: Index,
        kv_first: Index,
        hide: bool,
        q_axis: int = 0,
    ) -> Array:
        """Return scale · log₂ e · A·Bᵀ: −∞, if `hide`, for a key hidden or past the end.

        A is Q and B is K, or with q_axis=1 the other way round.
        """
        scores = _dot(a, b, (1, 1)) * (self.scale * LOG2E)
        if not hide:
            return scores
        key = lax.broadcasted_iota(jnp.int32, scores.shape, 1 - q_axis) + kv_first
        if self.kv_padded != self.kv_len:
            scores = jnp.where(key < self.kv_len, scores, -jnp.inf)
        if self.causal:
            query = lax.broadcasted_iota(jnp.int32, scores.shape, q_axis) + q_first
            scores = jnp.where(key <= query + self.ahead, scores, -jnp.inf)
        return scores


def cut_tiles(options: Options, layout: str, q: Array, k: Array, kind: str) -> Tiles:
    """Choose how to cut attention, for the "forward", "dq" or "dkv" kernel."""
    if layout == "gpu":
        head_dim, least = max(16, pl.next_power_of_2(q.shape[3])), 16
        large = q.dtype == jnp.float32 or head_dim > 128
        most_q, most_kv = (32, 32) if large else _GPU_TILES[kind]
    else:
        head_dim, least = q.shape[3], LANES
        most_q, most_kv = 256, 512 if kind == "forward" else 256
    return Tiles(
        q=max(least, min(most_q, pl.next_power_of_2(q.shape[2]))),
        kv=max(least, min(most_kv, pl.next_power_of_2(k.shape[2]))),
        q_len=q.shape[2],
        kv_len=k.shape[2],
        head_dim=head_dim,
        scale=options.scale,
        causal=options.causal,
    )


def vmem_of_tiles(tile: Tiles, q: Array) -> int:
    """Return the bytes of VMEM: K and V whole, twice, a row of mask, and blocks of scores."""
    lanes, longest = round_up(tile.head_dim, LANES), max(tile.q_padded, tile.kv_padded)
    itemsize: int = q.dtype.itemsize
    whole = 2 * 2 * longest * lanes * itemsize + 4 * longest * SUBLANES * 4
    blocks = 8 * max(tile.q, tile.kv) * lanes * 4 + 6 * tile.q * tile.kv * 4
    return whole + blocks
