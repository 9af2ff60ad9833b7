"""Layers of language models that keep a state: Mamba, the delta rule, short convolutions."""

from __future__ import annotations

from typing import Any

from roofline_helpers.models.layers import Mixer


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
    return Mixer(kind, weights, inner * d_model, heads, heads, recent=recent, **of)


def mamba_2(
    d_model: int,
    heads: int,
    head_dim: int,
    groups: int,
    state: int,
    kernel: int,
    dtype: str = "fp32",
) -> Mixer:
    """Return a layer of Mamba-2 (Dao and Gu, arXiv:2405.21060)."""
    inner, mixed = heads * head_dim, 2 * groups * state
    sizes = (2 * inner + mixed + heads, inner, heads, inner + mixed, kernel)
    size = inner * state  # each takes a decay, an input, their sum, and a product with C
    return _recurrent("Mamba-2", d_model, *sizes, state=size, flops=5 * size, dtype=dtype)


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
    """Return a layer of linear attention by the gated delta rule (arXiv:2412.06464)."""
    keys, values = key_heads * key_dim, value_heads * value_dim
    sizes = (2 * (keys + values + value_heads), values, value_heads, 2 * keys + values, kernel)
    size = values * key_dim  # each takes a decay, and three products: read, correct, query
    kind = "the gated delta rule"
    return _recurrent(kind, d_model, *sizes, state=size, flops=7 * size, dtype=dtype)


def short_convolution(d_model: int, kernel: int) -> Mixer:
    """Return a gated convolution of three projections (LFM2)."""
    sizes = (3 * d_model, d_model, d_model, d_model, kernel)
    return _recurrent("a short convolution", d_model, *sizes)
