"""Attention that writes no scores, and its gradient in two kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from roofline.kernels.launch import (
    ArrayLike,
    Options,
    by_platform,
    call_options,
    float_argument,
    options_of,
    quotient,
)
from roofline.kernels.tiles import (
    Tiles,
    attention_kernel,
    cut_tiles,
    dkv_kernel,
    dq_kernel,
    vmem_of_tiles,
)
from roofline_helpers import work
from roofline_helpers.common.checks import BadType, BadValue, flag


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    causal: bool = False,
    layout: str | None = None,
    interpret: bool | None = None,
) -> Array:
    """Return softmax(Q·Kᵀ / √head_dim) · V in one kernel: no score reaches the memory.

    For each block of queries the kernel walks over the keys with a running maximum m and sum l of
    each row, and rescales what it has by exp(m − m') when the maximum grows to m'. The gradient
    saves m + log l of each row, and recomputes the scores in two kernels: for dQ, for dK and dV.

    Parameters
    ----------
    q : array [batch, heads, q_len, head_dim]
        fp32, bf16 or fp16. fp32 matmuls have full precision.
    k, v : array [batch, kv_heads, kv_len, head_dim]
        Of q's type. Each KV head serves heads / kv_heads query heads. A length that isn't a
        multiple of a block is padded, which costs a copy.
    causal : bool
        Hide keys after the query; the last query sees every key.
    layout, interpret
        As in `layernorm_gelu`.

    Returns
    -------
    array [batch, heads, q_len, head_dim]
        Of q's type.

    Raises
    ------
    BadType, BadValue, UnknownName
        Shapes or types that don't fit; no such layout.

    Notes
    -----
    A TPU holds K and V of one head whole in VMEM: 65536 keys of 128 bf16 compile for v5e and v7x.
    A GPU reads them block by block, again for each block of queries.

    Examples
    --------
    >>> q = jnp.ones((1, 1, 2, 4))
    >>> v = jnp.arange(8.0).reshape(1, 1, 2, 4)
    >>> attention(q, q, v, causal=True)[0, 0].tolist()
    [[0.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0]]

    Source: T. Dao et al., arXiv:2205.14135; M. Milakov, N. Gimelshein, arXiv:1805.02867.
    """
    q, k, v = _checked(q, k, v)
    scale = 1 / math.sqrt(q.shape[3])
    options = options_of(layout, interpret, scale=scale, causal=flag("causal", causal))
    return _attention(q, k, v, options)


def _checked(q: ArrayLike, k: ArrayLike, v: ArrayLike) -> tuple[Array, Array, Array]:
    q, k, v = float_argument("q", q), float_argument("k", k), float_argument("v", v)
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array.ndim != 4 or array.size == 0:
            raise BadValue(
                f"{name} must be [batch, heads, length, head_dim], none of them 0, "
                f"got shape {array.shape}"
            )
        if array.dtype != q.dtype:
            raise BadType(f"{name} must be of q's type {q.dtype}, got {array.dtype}")
    if k.shape != v.shape:
        raise BadValue(f"k and v must have one shape, got {k.shape} and {v.shape}")
    batch, heads, _, head_dim = q.shape
    kv_batch, kv_heads, _, kv_head_dim = k.shape
    if batch != kv_batch or head_dim != kv_head_dim or heads % kv_heads:
        raise BadValue(
            f"q and k must have one batch and head_dim, and heads of q must be a multiple of "
            f"those of k, got {q.shape} and {k.shape}"
        )
    return q, k, v


@functools.partial(jax.jit, static_argnums=3)
def _attention(q: Array, k: Array, v: Array, options: Options) -> Array:
    return _attention_vjp(q, k, v, options)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _attention_vjp(q: Array, k: Array, v: Array, options: Options) -> Array:
    call = functools.partial(_attention_call, options=options, save=False)
    return by_platform(call, options, q, k, v)


def _attention_forward(q: Array, k: Array, v: Array, options: Options) -> Any:
    call = functools.partial(_attention_call, options=options, save=True)
    o, lse = by_platform(call, options, q, k, v)
    return o, (q, k, v, o, lse)


def _attention_backward(options: Options, saved: Any, do: Array) -> Any:
    q, k, v, o, lse = saved
    product = do.astype(jnp.float32) * o.astype(jnp.float32)
    delta = jnp.sum(product, axis=-1)[:, :, None, :]
    arrays = q, k, v, do, lse, delta
    dq = by_platform(functools.partial(_dq_call, options=options), options, *arrays)
    dk, dv = by_platform(functools.partial(_dkv_call, options=options), options, *arrays)
    return dq, dk, dv


_attention_vjp.defvjp(_attention_forward, _attention_backward)


def _attention_call(
    q: Array,
    k: Array,
    v: Array,
    *,
    options: Options,
    save: bool,
    layout: str,
    interpret: bool,
) -> Any:
    tile = cut_tiles(options, layout, q, k, "forward")
    batch, heads, q_len, head_dim = q.shape
    block, keys = _block(tile.q, tile), _whole(tile.kv_padded, tile, q, k)
    shapes = [jax.ShapeDtypeStruct((batch, heads, tile.q_padded, tile.head_dim), q.dtype)]
    results = [block]
    if save:
        shapes.append(jax.ShapeDtypeStruct((batch, heads, 1, tile.q_padded), jnp.float32))
        results.append(_row_of(tile))
    o, *lse = pl.pallas_call(
        functools.partial(attention_kernel, tile=tile),
        grid=(batch, heads, tile.q_padded // tile.q),
        in_specs=[block, keys, keys],
        out_specs=results,
        out_shape=shapes,
        name="attention_kernel",
        **_attention_options(options, layout, interpret, tile, q, k),
    )(*_padded(tile, (q,), (k, v)))
    o = o[:, :, :q_len, :head_dim]
    return (o, lse[0][..., :q_len]) if save else o


def _dq_call(*arrays: Array, options: Options, layout: str, interpret: bool) -> Any:
    q, k, v, do, lse, delta = arrays
    tile = cut_tiles(options, layout, q, k, "dq")
    batch, heads, q_len, head_dim = q.shape
    block, row = _block(tile.q, tile), _row_of(tile)
    keys = _whole(tile.kv_padded, tile, q, k)
    queries, d_out, keys_, values = _padded(tile, (q, do), (k, v))
    dq = pl.pallas_call(
        functools.partial(dq_kernel, tile=tile),
        grid=(batch, heads, tile.q_padded // tile.q),
        in_specs=[block, keys, keys, block, row, row],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(queries.shape, q.dtype),
        name="attention_dq_kernel",
        **_attention_options(options, layout, interpret, tile, q, k, "dq"),
    )(queries, keys_, values, d_out, *_padded_rows(tile, lse, delta))
    return dq[:, :, :q_len, :head_dim]


def _dkv_call(*arrays: Array, options: Options, layout: str, interpret: bool) -> Any:
    q, k, v, do, lse, delta = arrays
    tile = cut_tiles(options, layout, q, k, "dkv")
    batch, kv_heads, kv_len, head_dim = k.shape
    heads, group = q.shape[1], q.shape[1] // kv_heads
    block = pl.BlockSpec(
        (None, None, tile.kv, tile.head_dim), lambda b, h, j: (b, quotient(h, group), j, 0)
    )
    whole = _whole(tile.q_padded, tile, q, q)
    row = pl.BlockSpec((None, None, 1, tile.q_padded), lambda b, h, j: (b, h, 0, 0))
    queries, d_out, keys, values = _padded(tile, (q, do), (k, v))
    # Each query head has its own dK and dV; those that share a KV head are added afterwards
    shape = (batch, heads, tile.kv_padded, tile.head_dim)
    shares = jax.ShapeDtypeStruct(shape, k.dtype if group == 1 else jnp.float32)
    results = pl.pallas_call(
        functools.partial(dkv_kernel, tile=tile),
        grid=(batch, heads, tile.kv_padded // tile.kv),
        in_specs=[whole, block, block, whole, row, row],
        out_specs=[_block(tile.kv, tile)] * 2,
        out_shape=[shares, shares],
        name="attention_dkv_kernel",
        **_attention_options(options, layout, interpret, tile, q, k, "dkv"),
    )(queries, keys, values, d_out, *_padded_rows(tile, lse, delta))
    if group > 1:
        grouped = (result.reshape(batch, kv_heads, group, *shape[2:]) for result in results)
        results = [jnp.sum(result, axis=2).astype(k.dtype) for result in grouped]
    return tuple(result[:, :, :kv_len, :head_dim] for result in results)


def _block(length: int, tile: Tiles) -> pl.BlockSpec:
    """Return the spec of one block of rows of [batch, heads, length, head_dim]."""
    return pl.BlockSpec((None, None, length, tile.head_dim), lambda b, h, i: (b, h, i, 0))


def _whole(length: int, tile: Tiles, q: Array, array: Array) -> pl.BlockSpec:
    """Return the spec of all rows of a head: a TPU copies them once for all its programs."""
    group = q.shape[1] // array.shape[1]
    return pl.BlockSpec(
        (None, None, length, tile.head_dim), lambda b, h, i: (b, quotient(h, group), 0, 0)
    )


def _row_of(tile: Tiles) -> pl.BlockSpec:
    """Return the spec of one number per query: [batch, heads, 1, q_len]."""
    return pl.BlockSpec((None, None, 1, tile.q), lambda b, h, i: (b, h, 0, i))


def _padded(tile: Tiles, queries: Sequence[Array], keys: Sequence[Array]) -> list[Array]:
    """Return them with whole blocks of rows and columns, zeros where there was nothing."""
    lengths = [tile.q_padded] * len(queries) + [tile.kv_padded] * len(keys)
    return [
        _grown(array, length, tile.head_dim)
        for array, length in zip((*queries, *keys), lengths, strict=True)
    ]


def _padded_rows(tile: Tiles, *rows: Array) -> list[Array]:
    return [_grown(row, 1, tile.q_padded) for row in rows]


def _grown(array: Array, rows: int, columns: int) -> Array:
    down = (0, rows - array.shape[2])
    across = (0, columns - array.shape[3])
    if not any(down + across):
        return array
    return jnp.pad(array, [(0, 0), (0, 0), down, across])


def _attention_options(
    options: Options,
    layout: str,
    interpret: bool,
    tile: Tiles,
    q: Array,
    k: Array,
    kind: str = "forward",
) -> dict[str, Any]:
    job = attention_work(q, k, options, kind)
    return call_options(layout, interpret, job, 4, vmem_of_tiles(tile, q))


def attention_work(q: Array, k: Array, options: Options, kind: str) -> work.Work:
    """Count a kernel: the forward one has 2 matmuls, that for dQ 3, that for dK and dV 4."""
    batch, heads, q_len, head_dim = q.shape
    causal = options.causal and q_len <= k.shape[2]
    job = work.flash_attention(
        batch, q_len, k.shape[2], heads, head_dim, k.shape[1], q.dtype, causal=causal
    )
    if kind == "forward":
        return job
    queries, keys = job.reads["q"], job.reads["k"]
    return replace(
        job,
        name=kind,
        reads={**job.reads, "dO": queries, "lse, δ": 2 * 4 * batch * heads * q_len},
        writes={"dQ": queries} if kind == "dq" else {"dK": keys, "dV": keys},
        matrix_flops=job.matrix_flops * (3 if kind == "dq" else 4) // 2,
        passes={},
    )
