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
_BETWEEN = (
    Fused(("residual 2", "next RMSNorm 1", "next quantise 1"), "between", keep=("x''",)),
    Fused(("residual 2", "final RMSNorm"), "once"),
)
_TILES = (
    Fused(("QKV projection", "RoPE", "KV append")),
    Fused(("P·V", "quantise o")),
    Fused(("flash attention", "quantise o")),
    Fused(("experts' gate+up", "experts' SwiGLU", "experts' quantise h")),
    Fused(("gate+up projection", "SwiGLU", "quantise h")),
)

STRATEGIES: Mapping[str, tuple[Fused, ...]] = {
    "none": (_START, *_alone("RMSNorm 1", "quantise 1"), Fused(("final RMSNorm",), "once"), _END),
    "pointwise": (
        _START,
        Fused(("RMSNorm 1", "quantise 1"), "once"),
        Fused(("RoPE", "KV append")),
        Fused(("residual 1", "RMSNorm 2", "quantise 2"), keep=("x'",)),
        Fused(("experts' SwiGLU", "experts' quantise h")),
        Fused(("SwiGLU", "quantise h")),
        *_BETWEEN,
        _END,
    ),
    "epilogue": (
        _START,
        Fused(("RMSNorm 1", "quantise 1")),
        *_TILES,
        Fused(("output projection", "residual 1")),
        Fused(("RMSNorm 2", "quantise 2")),
        Fused(("unpermute", "residual 2")),
        Fused(("down projection", "residual 2")),
        Fused(("final RMSNorm",), "once"),
        _END,
    ),
}
"""The kernels of each fusion strategy; an operation of a layer that none has runs alone.

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
        *_TILES,
        Fused(("residual 1", "RMSNorm 2", "quantise 2"), keep=("x'",)),
        *_BETWEEN,
        _END,
    ),
}
"""The same on several chips: there a residual needs the all-reduce of the matmul first, so in
"epilogue" it is fused with the norm after it.
"""
