"""FLOPs and bytes of the measured kernels, by the same counts as any other kernel's."""

from __future__ import annotations

from typing import Any

import numpy as np

from roofline_helpers.work import (
    Work,
    flash_attention,
    grouped_matmul,
    latent_attention,
    matmul,
)

# What the tables call a type: type of A or of queries, and of weights or cache
TYPES = {
    "bf16": ("bf16", "bf16"),
    "fp8": ("fp8", "fp8"),
    "fp8 in blocks": ("fp8", "fp8"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "int8": ("int8", "int8"),
    "int8 weights": ("bf16", "int8"),
    "int4 weights": ("bf16", "int4"),
    "mxfp4 weights": ("bf16", "mxfp4"),
    "mxfp4 weights, mxfp8": ("mxfp8", "mxfp4"),
    "bf16, fp8 cache": ("bf16", "fp8"),
}


def count(family: str, rows: Any, dtype: str) -> Work:
    """Return one `Work` whose counts are arrays, one element per measured kernel.

    `rows` is a table or a mapping of columns.
    """
    a, weights = TYPES[dtype]
    s = {name: np.asarray(rows[name]) for name in rows if name != "op"}
    if family == "matmul":
        return matmul(s["m"], s["n"], s["k"], a, b=weights, out="bf16")
    if family == "prefill_attention":
        n = s["kv_len"]
        heads = (s["heads"], s["head_dim"], s["kv_heads"])
        return flash_attention(s["batch"], n, n, *heads, a, kv_dtype=weights, causal=True)
    if family == "decode_attention":
        heads = (s["heads"], s["head_dim"], s["kv_heads"])
        return flash_attention(s["batch"], 1, s["kv_len"], *heads, a, kv_dtype=weights)
    if family in ("prefill_mla", "decode_mla"):
        q_len = 1 if family == "decode_mla" else s["kv_len"]
        return latent_attention(s["batch"], q_len, s["kv_len"], s["heads"], a, kv_dtype=weights)
    sizes = {name: s[name] for name in ("tokens", "hidden", "inter", "experts", "top_k")}
    return grouped_matmul(**sizes, dtype=a, local_experts=s["local_experts"], weights=weights)


def reduced(job: Work) -> Any:
    """Return the length that one output of a kernel is summed over, in elements."""
    named = {"matmul": "k", "grouped_matmul": "hidden"}.get(job.kind, "kv_len")
    return np.asarray(job.dims.get(named, 0), dtype=float)
