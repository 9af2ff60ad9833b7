"""Attention counted by hand: naive, fused, and from a latent cache."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from roofline_helpers.common.checks import BadValue, Number, ceil_div, flag, shown, sizes
from roofline_helpers.common.dtypes import BITS, nbytes
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.work.fusion import fuse
from roofline_helpers.work.operations import softmax
from roofline_helpers.work.work import Work

# --- Attention: three kernels with the scores in memory, or one without --------------------------


def attention_sizes(
    batch: Any, q_len: Any, kv_len: Any, heads: Any, head_dim: Any, kv_heads: Any
) -> dict[str, Number]:
    """Return the sizes of attention by name, checked and complete."""
    s = sizes(
        batch=batch,
        q_len=q_len,
        kv_len=q_len if kv_len is None else kv_len,
        heads=heads,
        head_dim=head_dim,
        kv_heads=heads if kv_heads is None else kv_heads,
    )
    if np.any(np.remainder(s["heads"], s["kv_heads"])):
        raise BadValue(f"heads ({heads}) must be a multiple of kv_heads ({kv_heads})")
    return s


def attention_scores(
    batch: Any,
    q_len: Any,
    kv_len: Any = None,
    heads: Any = 1,
    head_dim: Any = 128,
    kv_heads: Any = None,
    dtype: Any = "bf16",
) -> Work:
    """Count S = Q·Kᵀ: 2 · batch · heads · q_len · kv_len · head_dim FLOPs.

    Parameters
    ----------
    batch, q_len, kv_len, heads, head_dim, kv_heads : int or array
        Q is [batch, heads, q_len, head_dim], K is [batch, kv_heads, kv_len, head_dim], S is
        [batch, heads, q_len, kv_len]. `kv_len` is q_len and `kv_heads` is heads if not given;
        fewer KV heads (grouped-query attention) mean fewer bytes and the same FLOPs.

    Raises
    ------
    BadValue
        heads is not a multiple of kv_heads.

    Examples
    --------
    >>> attention_scores(4, 2048, heads=32).intensity
    113.77777777777777
    """
    s = attention_sizes(batch, q_len, kv_len, heads, head_dim, kv_heads)
    pairs = s["batch"] * s["heads"] * s["q_len"] * s["kv_len"]
    return Work(
        name="Q·Kᵀ",
        reads={
            "q": nbytes(s["batch"] * s["heads"] * s["q_len"] * s["head_dim"], dtype),
            "k": nbytes(s["batch"] * s["kv_heads"] * s["kv_len"] * s["head_dim"], dtype),
        },
        writes={"scores": nbytes(pairs, dtype)},
        matrix_flops=2 * pairs * s["head_dim"],
        dtype=dtype,
    )


def naive_attention(
    batch: Any,
    q_len: Any,
    kv_len: Any = None,
    heads: Any = 1,
    head_dim: Any = 128,
    kv_heads: Any = None,
    dtype: Any = "bf16",
) -> tuple[Work, Work, Work]:
    """Return the three kernels of attention with its scores in memory.

    Q·Kᵀ, then scale and softmax (6 FLOPs per score), then P·V. The scores are written and read,
    and the probabilities too: 4 · batch · heads · q_len · kv_len elements of traffic. A causal
    mask changes nothing: these kernels compute and store all scores.

    Shapes and errors as in `attention_scores`.

    Examples
    --------
    >>> [round(job.intensity) for job in naive_attention(4, 2048, heads=32)]
    [114, 2, 114]
    """
    s = attention_sizes(batch, q_len, kv_len, heads, head_dim, kv_heads)
    scores = attention_scores(batch, q_len, kv_len, heads, head_dim, kv_heads, dtype)
    rows = s["batch"] * s["heads"] * s["q_len"]
    normalise = softmax(rows, s["kv_len"], dtype, x="scores", y="p")
    scaled = normalise.vector_flops + rows * s["kv_len"]
    output = Work(
        name="P·V",
        reads={
            "p": scores.writes["scores"],
            "v": nbytes(s["batch"] * s["kv_heads"] * s["kv_len"] * s["head_dim"], dtype),
        },
        writes={"o": scores.reads["q"]},
        matrix_flops=scores.matrix_flops,
        dtype=dtype,
    )
    return scores, replace(normalise, vector_flops=scaled, name="scale+softmax"), output


def flash_attention(
    batch: Any,
    q_len: Any,
    kv_len: Any = None,
    heads: Any = 1,
    head_dim: Any = 128,
    kv_heads: Any = None,
    dtype: Any = "bf16",
    *,
    kv_dtype: Any = None,
    causal: bool = False,
    block_q: Any = None,
) -> Work:
    """Count attention in one kernel: `naive_attention` fused, so no scores in memory.

    Parameters
    ----------
    kv_dtype : str or data type, optional
        Type of K and V in memory (a cache in fp8, say), where it isn't `dtype`.
    causal : bool
        Count the FLOPs of unmasked pairs only (the last query sees every key). Real kernels skip
        whole blocks, so this is a lower bound.
    block_q : int or array, optional
        Rows of Q in one program: K and V are read once for each such block. By default they are
        read once, the lower bound.

    Shapes and errors as in `attention_scores`; also BadValue if causal and q_len > kv_len. The
    online softmax's rescaling, less than one FLOP per score, isn't counted.

    Source: T. Dao et al., arXiv:2205.14135.

    Examples
    --------
    >>> job = flash_attention(4, 2048, heads=32)
    >>> job.intensity
    1036.0
    """
    s = attention_sizes(batch, q_len, kv_len, heads, head_dim, kv_heads)
    kernels = naive_attention(batch, q_len, kv_len, heads, head_dim, kv_heads, dtype)
    job = fuse(*kernels, name="flash attention")
    if kv_dtype is not None:
        elements = s["batch"] * s["kv_heads"] * s["kv_len"] * s["head_dim"]
        stored = nbytes(elements, kv_dtype)
        job = replace(job, reads={**job.reads, "k": stored, "v": stored})
    if flag("causal", causal):
        if np.any(np.greater(s["q_len"], s["kv_len"])):
            raise BadValue(f"causal attention needs q_len ≤ kv_len, got {q_len} and {kv_len}")
        seen = 2 * s["kv_len"] - s["q_len"] + 1  # twice the mean number of keys a query sees
        job = replace(
            job,
            matrix_flops=job.matrix_flops * seen // (2 * s["kv_len"]),
            vector_flops=job.vector_flops * seen // (2 * s["kv_len"]),
            transcendentals=job.transcendentals * seen // (2 * s["kv_len"]),
        )
    if block_q is not None:
        blocks = ceil_div(s["q_len"], sizes(**s, block_q=block_q)["block_q"])
        job = job.reading(k=blocks, v=blocks)
    bits = BITS[dtype_of(dtype if kv_dtype is None else kv_dtype)]
    return replace(job, kind=_kind(s, causal), dims={**s, "kv_bits": bits})


def _kind(s: dict[str, Number], causal: bool) -> str:
    if np.all(np.equal(s["q_len"], 1)):
        return "decode_attention"
    whole = causal and np.all(np.equal(s["q_len"], s["kv_len"]))
    return "prefill_attention" if whole else ""


# --- Multi-head latent attention, which keeps one compressed vector per token in its cache -------

LATENT, ROPE, HEAD = 512, 64, 128
"""Elements of DeepSeek's compressed vector, of its part with positions, and of a head."""


def latent_attention(
    batch: Any,
    q_len: Any,
    kv_len: Any = None,
    heads: Any = 128,
    dtype: Any = "bf16",
    *,
    kv_dtype: Any = None,
) -> Work:
    """Count the attention kernel of DeepSeek-V2 and V3, with its cache of latents.

    In decode (q_len of 1) each head works on vectors of 512 + 64 elements, 2 · batch · heads ·
    kv_len · (2 · 512 + 64) FLOPs, and the cache, 512 + 64 elements per token for all heads, is read
    once. In prefill keys and values are expanded per head, to 128 + 64 and 128, under a causal
    mask: half of the pairs.

    Parameters
    ----------
    kv_dtype : str or data type, optional
        Type of the cache, or in prefill of keys and values, where it isn't `dtype`.

    Shapes as in `attention_scores`; BadValue if a prefill has more keys than queries.

    Source: DeepSeek-AI, arXiv:2405.04434, section 2.1.

    Examples
    --------
    >>> round(latent_attention(64, 1, 4096).intensity)
    229
    """
    keys_each = q_len if kv_len is None else kv_len
    s = sizes(batch=batch, q_len=q_len, kv_len=keys_each, heads=heads)
    decode = bool(np.all(np.equal(s["q_len"], 1)))
    if not decode and np.any(np.not_equal(s["q_len"], s["kv_len"])):
        raise BadValue(f"prefill needs kv_len = q_len, got {shown(q_len)} and {shown(kv_len)}")
    stored = dtype if kv_dtype is None else kv_dtype
    rows = s["batch"] * s["heads"] * s["q_len"]
    if decode:
        q_width, v_width, pairs = LATENT + ROPE, LATENT, rows * s["kv_len"]
        keys = {"cache": nbytes(s["batch"] * s["kv_len"] * q_width, stored)}
    else:
        q_width, v_width, pairs = HEAD + ROPE, HEAD, rows * (s["kv_len"] + 1) // 2
        keys = {"k": nbytes(rows * q_width, stored), "v": nbytes(rows * v_width, stored)}
    return Work(
        name="latent attention",
        reads={"q": nbytes(rows * q_width, dtype), **keys},
        writes={"o": nbytes(rows * v_width, dtype)},
        matrix_flops=2 * pairs * (q_width + v_width),
        vector_flops=6 * pairs,
        transcendentals=pairs,
        dtype=dtype,
        kind="decode_mla" if decode else "prefill_mla",
        dims={**s, "kv_bits": BITS[dtype_of(stored)]},
    )
