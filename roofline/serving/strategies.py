"""Which operations of a step run as one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Fused:
    """A kernel of a fusion strategy: its operations, its runs per step, its extra results.

    `count` is "once", "layers" or "between" (layers − 1). `keep` names tensors that are made and
    read inside, but needed outside too. A kernel is left out of steps without its first operation;
    its other operations may be missing.

    Examples
    --------
    >>> STRATEGIES["none"][0].ops
    ('embedding',)
    """

    ops: tuple[str, ...]
    count: str = "layers"
    keep: tuple[str, ...] = ()


def _alone(*ops: str) -> tuple[Fused, ...]:
    return tuple(Fused((op,)) for op in ops)


_START = Fused(("embedding",), "once")
_END = Fused(("LM head",), "once")

STRATEGIES: Mapping[str, tuple[Fused, ...]] = {
    "none": (
        _START,
        *_alone("RMSNorm 1", "quantise 1", "QKV projection", "RoPE", "KV append"),
        *_alone("Q·Kᵀ", "softmax", "P·V", "flash attention", "quantise o"),
        *_alone("output projection", "residual 1", "RMSNorm 2", "quantise 2"),
        *_alone("router", "top-k", "permute", "experts' gate+up", "experts' SwiGLU"),
        *_alone("experts' quantise h", "experts' down", "unpermute"),
        *_alone("gate+up projection", "SwiGLU", "quantise h", "down projection", "residual 2"),
        Fused(("final RMSNorm",), "once"),
        _END,
    ),
    "pointwise": (
        _START,
        Fused(("RMSNorm 1", "quantise 1"), "once"),
        *_alone("QKV projection"),
        Fused(("RoPE", "KV append")),
        *_alone("Q·Kᵀ", "softmax", "P·V", "flash attention", "quantise o", "output projection"),
        Fused(("residual 1", "RMSNorm 2", "quantise 2"), keep=("x'",)),
        *_alone("router", "top-k", "permute", "experts' gate+up"),
        Fused(("experts' SwiGLU", "experts' quantise h")),
        *_alone("experts' down", "unpermute", "gate+up projection"),
        Fused(("SwiGLU", "quantise h")),
        *_alone("down projection"),
        Fused(("residual 2", "next RMSNorm 1", "next quantise 1"), "between", keep=("x''",)),
        Fused(("residual 2", "final RMSNorm"), "once"),
        _END,
    ),
    "epilogue": (
        _START,
        Fused(("RMSNorm 1", "quantise 1")),
        Fused(("QKV projection", "RoPE", "KV append")),
        *_alone("Q·Kᵀ", "softmax"),
        Fused(("P·V", "quantise o")),
        Fused(("flash attention", "quantise o")),
        Fused(("output projection", "residual 1")),
        Fused(("RMSNorm 2", "quantise 2")),
        *_alone("router", "top-k", "permute"),
        Fused(("experts' gate+up", "experts' SwiGLU", "experts' quantise h")),
        *_alone("experts' down"),
        Fused(("unpermute", "residual 2")),
        Fused(("gate+up projection", "SwiGLU", "quantise h")),
        Fused(("down projection", "residual 2")),
        Fused(("final RMSNorm",), "once"),
        _END,
    ),
}
"""The kernels of each fusion strategy, in order.

"none": each operation is a kernel, as in eager mode.

"pointwise": elementwise and row operations are fused with each other – residual with the norm
after it, also of the next layer; RoPE with the cache; SwiGLU – but not with matmuls, as XLA's and
Inductor's loop fusion do around library calls.

"epilogue": operations on a matmul's output tile are fused into its kernel: RoPE and the cache,
SwiGLU, residuals. A norm needs whole rows, which lie in several tiles, so it stays a kernel of its
own. Fused serving kernels do this, and XLA's output fusion on a TPU.
"""

SPLIT: Mapping[str, tuple[Fused, ...]] = {
    **STRATEGIES,
    "epilogue": (
        _START,
        Fused(("RMSNorm 1", "quantise 1"), "once"),
        Fused(("QKV projection", "RoPE", "KV append")),
        *_alone("Q·Kᵀ", "softmax"),
        Fused(("P·V", "quantise o")),
        Fused(("flash attention", "quantise o")),
        *_alone("output projection"),
        Fused(("residual 1", "RMSNorm 2", "quantise 2"), keep=("x'",)),
        *_alone("router", "top-k", "permute"),
        Fused(("experts' gate+up", "experts' SwiGLU", "experts' quantise h")),
        *_alone("experts' down", "unpermute"),
        Fused(("gate+up projection", "SwiGLU", "quantise h")),
        *_alone("down projection"),
        Fused(("residual 2", "next RMSNorm 1", "next quantise 1"), "between", keep=("x''",)),
        Fused(("residual 2", "final RMSNorm"), "once"),
        _END,
    ),
}
"""The same on several chips: there a residual needs the all-reduce of the matmul first, so in
"epilogue" it is fused with the norm after it.
"""
