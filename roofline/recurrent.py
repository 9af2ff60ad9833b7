"""Layers of language models that keep a state: Mamba, the delta rule, short convolutions."""

from __future__ import annotations

from typing import Any

from roofline_helpers.models.layers import Mixer

CHUNK = 64
"""Tokens of a chunk of the delta rule: fla-org/flash-linear-attention, `chunk_gated_delta_rule`."""


def _recurrent(
    kind: str,
    d_model: int,
    columns: int,
    inner: int,
    heads: int,
    convolved: int,
    kernel: int,
    **of: Any,
) -> Mixer:
    """Return a layer with a state: matrices of so many columns and rows, and a convolution."""
    weights = (columns + inner) * d_model + convolved * kernel + of.pop("beside", 0)
    recent = convolved * (kernel - 1)
    return Mixer(kind, weights, inner * d_model, heads, heads, made=columns, recent=recent, **of)


def mamba_2(
    d_model: int,
    heads: int,
    head_dim: int,
    groups: int,
    state: int,
    kernel: int,
    dtype: str = "fp32",
    chunk: int = 256,
) -> Mixer:
    """Return a layer of Mamba-2 (Dao and Gu, arXiv:2405.21060).

    Chunks take C Bᵀ of a group, its product with a head's inputs, and the states in and out (its
    section 6).
    """
    inner, mixed = heads * head_dim, 2 * groups * state
    sizes = (2 * inner + mixed + heads, inner, heads, inner + mixed, kernel)
    size = inner * state  # each takes a decay, an input, their sum, and a product with C
    scan = chunk * (groups * state + inner) + 2 * size
    of: dict[str, Any] = {
        "state": size,
        "flops": 5 * size,
        "scan": scan,
        "chunk": chunk,
        "dtype": dtype,
    }
    return _recurrent("Mamba-2", d_model, *sizes, **of)


def mamba_1(d_model: int, inner: int, state: int, rank: int, kernel: int) -> Mixer:
    """Return a layer of Mamba (Gu and Dao, arXiv:2312.00752)."""
    size, beside = inner * state, inner * (2 * rank + 3 * state)
    sizes = (2 * inner, inner, inner, inner, kernel)
    return _recurrent("Mamba", d_model, *sizes, state=size, flops=7 * size, beside=beside)


def delta_rule(
    d_model: int,
    key_heads: int,
    value_heads: int,
    key_dim: int,
    value_dim: int,
    kernel: int,
    dtype: str = "fp32",
) -> Mixer:
    """Return a layer of linear attention by the gated delta rule (arXiv:2412.06464).

    Chunks take keys by keys and queries, the inverse of a triangle, its products with keys and
    values, those of the pairs with values, and the state three times (its section 3.3).
    """
    keys, values = key_heads * key_dim, value_heads * value_dim
    sizes = (2 * (keys + values + value_heads), values, value_heads, 2 * keys + values, kernel)
    size = values * key_dim  # each takes a decay, and three products: read, correct, query
    scan = value_heads * CHUNK * (3 * key_dim + 2 * value_dim + CHUNK // 3) + 3 * size
    of: dict[str, Any] = {
        "state": size,
        "flops": 7 * size,
        "scan": scan,
        "chunk": CHUNK,
        "dtype": dtype,
    }
    return _recurrent("the gated delta rule", d_model, *sizes, **of)


def short_convolution(d_model: int, kernel: int) -> Mixer:
    """Return a gated convolution of three projections (LFM2)."""
    sizes = (3 * d_model, d_model, d_model, d_model, kernel)
    return _recurrent("a short convolution", d_model, *sizes)
