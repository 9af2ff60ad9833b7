"""Multi-head latent attention, which keeps one compressed vector per token in its cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from roofline_helpers._checks import BadValue, each, shown, sizes
from roofline_helpers.dtypes import BITS, nbytes
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.work.work import Work


def latent_attention(
    batch: Any,
    q_len: Any,
    kv_len: Any = None,
    heads: Any = 128,
    dtype: Any = "bf16",
    *,
    kv_dtype: Any = None,
    latent: int = 512,
    rope: int = 64,
    head_dim: int = 128,
) -> Work:
    """Count the attention kernel of DeepSeek-V2 and V3, with its cache of latents.

    In decode (q_len of 1) the query is brought into the latent space, so each head works on
    vectors of latent + rope elements: 2 · batch · heads · kv_len · (2 · latent + rope) FLOPs, and
    the cache, latent + rope elements per token for all heads together, is read once. In prefill
    keys and values are expanded per head, to head_dim + rope and head_dim, and a causal mask is
    on: half of the pairs.

    Parameters
    ----------
    batch, q_len, kv_len, heads : int or array
        Sequences, queries of each, keys of each (q_len unless given), and heads.
    kv_dtype : str or data type, optional
        Type of the cache, or in prefill of keys and values, where it isn't `dtype`.
    latent, rope, head_dim : int
        Elements of the compressed vector, of its part with positions, and of a head: 512, 64 and
        128 in DeepSeek-V3.

    Raises
    ------
    BadType, BadValue, UnknownName
        A size that is not a whole number from 1 to 10¹⁸; no such data type; in prefill other
        lengths of queries and keys.

    Source: DeepSeek-AI, arXiv:2405.04434, section 2.1.

    Examples
    --------
    >>> round(latent_attention(64, 1, 4096).intensity)
    229
    """
    named = {"batch": batch, "q_len": q_len, "kv_len": q_len if kv_len is None else kv_len}
    s = dict(zip([*named, "heads"], sizes(**named, heads=heads), strict=True))
    decode = bool(np.all(np.equal(s["q_len"], 1)))
    if not decode and np.any(np.not_equal(s["q_len"], s["kv_len"])):
        raise BadValue(f"prefill needs kv_len = q_len, got {shown(q_len)} and {shown(kv_len)}")
    stored = dtype if kv_dtype is None else kv_dtype
    rows = s["batch"] * s["heads"] * s["q_len"]
    if decode:
        q_width, v_width, pairs = latent + rope, latent, rows * s["kv_len"]
        keys = {"cache": nbytes(s["batch"] * s["kv_len"] * (latent + rope), stored)}
    else:
        q_width, v_width = head_dim + rope, head_dim
        pairs = each(_half, rows * (s["kv_len"] + 1))
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


def _half(n: Any) -> Any:
    return n // 2
