"""A transformer block counted by hand, dense or a mixture of experts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from roofline_helpers.common.checks import BadValue, Number, flag, plain, shown, size, sizes
from roofline_helpers.common.dtypes import nbytes
from roofline_helpers.work.attention import attention_sizes, flash_attention, naive_attention
from roofline_helpers.work.operations import add, dropout, gelu, layernorm, matmul, rmsnorm, swiglu
from roofline_helpers.work.work import Work

# --- The feed-forward part of a mixture of experts, as one grouped matmul ------------------------


def grouped_matmul(
    tokens: Any,
    hidden: Any,
    inter: Any,
    experts: Any,
    top_k: Any,
    dtype: Any = "bf16",
    *,
    local_experts: Any = None,
    weights: Any = None,
) -> Work:
    """Count the gated feed-forward of a mixture: three matmuls per token and chosen expert.

    2 · 3 · hidden · inter FLOPs for each of tokens · top_k pairs, spread evenly over the experts.
    The weights of an expert with a token are read once, a token's row is read and written for each
    pair.

    Parameters
    ----------
    tokens, hidden, inter, experts, top_k : int or array
        Tokens, their width, the inner width of an expert, experts, and how many each token uses.
    local_experts : int or array, optional
        Experts on this device, which computes that share of the pairs; by default all.
    weights : str or data type, optional
        Type of the experts' weights, where it isn't `dtype`.

    Raises
    ------
    BadValue
        More chosen or local experts than there are.

    Examples
    --------
    >>> job = grouped_matmul(1024, 4096, 1536, 128, 8)
    >>> job.matrix_flops == 2 * 3 * 4096 * 1536 * 1024 * 8
    True
    """
    local = experts if local_experts is None else local_experts
    named = {"tokens": tokens, "hidden": hidden, "inter": inter, "experts": experts}
    s = sizes(**named, top_k=top_k, local_experts=local)
    for name in ("top_k", "local_experts"):
        if np.any(np.greater(s[name], s["experts"])):
            raise BadValue(
                f"{name} must be at most experts ({shown(experts)}), got {shown(s[name])}"
            )
    share = s["tokens"] * s["top_k"] * s["local_experts"] / s["experts"]
    pairs = size("pairs", np.maximum(1, np.rint(share)))
    busy = plain(np.minimum(s["local_experts"], pairs))
    matrix = s["hidden"] * s["inter"]
    return Work(
        name="grouped matmul",
        reads={
            "x": nbytes(pairs * s["hidden"], dtype),
            "weights": nbytes(3 * busy * matrix, dtype if weights is None else weights),
        },
        writes={"y": nbytes(pairs * s["hidden"], dtype)},
        matrix_flops=6 * pairs * matrix,
        vector_flops=2 * pairs * s["inter"],
        dtype=dtype,
        kind="grouped_matmul",
        dims=s,
    )


# --- Chains of kernels: this book's example, and a transformer block -----------------------------


def fusion_chain(
    rows: Any, columns: Any, dtype: Any = "bf16", *, mask: Any = None
) -> tuple[Work, ...]:
    """Count this book's chain, x → LayerNorm → GELU → dropout → + residual, as four kernels.

    Parameters
    ----------
    rows, columns : int or array
        Shape of x.
    dtype, mask : str or data type
        Type of x, residual and y; type of the mask, that of x if not given.

    Examples
    --------
    >>> from roofline_helpers.work import fuse, total
    >>> four = fusion_chain(65536, 4096)
    >>> round(total(*four).bytes / fuse(*four).bytes, 3)
    2.5
    """
    rows, columns = sizes(rows=rows, columns=columns).values()
    return (
        layernorm(rows, columns, dtype, y="a"),
        gelu(rows * columns, dtype, x="a", y="b"),
        dropout(rows * columns, dtype, mask=mask, x="b", y="c"),
        add(rows * columns, dtype, x="c", other="residual"),
    )


def transformer_block(
    batch: Any,
    seq: Any,
    d_model: Any,
    heads: Any,
    d_ff: Any,
    *,
    kv_heads: Any = None,
    head_dim: Any = None,
    kv_len: Any = None,
    gated: bool = False,
    flash: bool = True,
    dtype: Any = "bf16",
) -> tuple[Work, ...]:
    """Return the kernels of one pre-norm transformer block, in order.

    LayerNorm → QKV projection → attention → output projection → residual → norm → up projection →
    GELU → down projection → residual; if gated with RMSNorm and SwiGLU. Biases, rotary embedding
    and dropout are not counted.

    Parameters
    ----------
    batch, seq : int or array
        Sequences, and new tokens in each: seq=1 is a decode step.
    d_model, heads, d_ff, kv_heads, head_dim : int
        Widths. `kv_heads` is heads, and `head_dim` is d_model / heads if not given.
    kv_len : int or array, optional
        Keys that each query may see, the new ones included; seq if not given.
    gated : bool
        As in Llama.
    flash : bool
        One attention kernel rather than three.

    Raises
    ------
    BadValue
        kv_len < seq, heads not a multiple of kv_heads, or d_model of heads where head_dim isn't
        given.

    Source: A. Vaswani et al., arXiv:1706.03762; H. Touvron et al., arXiv:2302.13971 (gated).

    Examples
    --------
    >>> [job.name for job in transformer_block(1, 2048, 4096, 32, 16384)][:3]
    ['layernorm', 'QKV projection', 'flash attention']
    """
    batch, seq, d_model, heads, d_ff = sizes(
        batch=batch, seq=seq, d_model=d_model, heads=heads, d_ff=d_ff
    ).values()
    if head_dim is None:
        if np.any(np.remainder(d_model, heads)):
            raise BadValue(f"d_model ({d_model}) must be a multiple of heads ({heads})")
        head_dim = d_model // heads
    s = attention_sizes(batch, seq, kv_len, heads, head_dim, kv_heads)
    if np.any(np.less(s["kv_len"], s["q_len"])):
        raise BadValue(f"kv_len ({kv_len}) must be at least seq ({seq})")
    norm = rmsnorm if flag("gated", gated) else layernorm
    rows = batch * seq

    def project(label: str, x: str, y: str, n: Number, k: Number) -> Work:
        job = matmul(rows, n, k, dtype, names=(x, f"W {label}", y))
        return replace(job, name=label)

    q_width, kv_width = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    qkv = project("QKV projection", "n1", "qkv", q_width + 2 * kv_width, d_model)
    new_kv = nbytes(rows * kv_width, dtype)
    qkv_out = {"q": nbytes(rows * q_width, dtype), "k, new": new_kv, "v, new": new_kv}
    dims = (batch, seq, kv_len, heads, head_dim, kv_heads, dtype)
    attention = [flash_attention(*dims)] if flag("flash", flash) else [*naive_attention(*dims)]
    hidden = rows * d_ff
    if gated:
        up = [
            project("gate projection", "n2", "g", d_ff, d_model),
            project("up projection", "n2", "u", d_ff, d_model),
            swiglu(hidden, dtype, gate="g", up="u", y="h"),
        ]
    else:
        up = [
            project("up projection", "n2", "u", d_ff, d_model),
            gelu(hidden, dtype, x="u", y="h"),
        ]
    return (
        norm(rows, d_model, dtype, x="x", y="n1", tag="1"),
        replace(qkv, writes=qkv_out),
        *attention,
        project("output projection", "o", "a", d_model, q_width),
        add(rows * d_model, dtype, x="x", other="a", y="x'"),
        norm(rows, d_model, dtype, x="x'", y="n2", tag="2"),
        *up,
        project("down projection", "h", "f", d_model, d_ff),
        add(rows * d_model, dtype, x="x'", other="f", y="x''"),
    )
