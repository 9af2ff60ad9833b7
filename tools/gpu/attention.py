"""Attention and its gradient: as books write it, by cuDNN, in our own kernel, by PyTorch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from roofline_helpers import kernels, work
from roofline_helpers.device.workloads import Case, array
from roofline_helpers.work import Work
from tools.gpu.suite import Suite


def forward(suite: Suite) -> None:
    """Add naive and flash attention over lengths: XLA, cuDNN, our Pallas kernel, PyTorch."""
    sdpa = functools.partial(torch_attention, suite.torch)
    batch, heads, width = (1, 1, 16) if suite.tiny else (2, 16, 128)

    for length in (16, 32) if suite.tiny else (512, 1024, 2048, 4096, 8192):
        three = work.naive_attention(batch, length, heads=heads, head_dim=width)
        flash = work.flash_attention(batch, length, heads=heads, head_dim=width)
        shape = (batch, heads, length, width)
        label = f"attention {batch}×{heads}×{length}×{width} bf16"
        scores = 8.0 * batch * heads * length * length
        job = work.total(*three, name="naive attention")
        suite.jax(f"naive {label}", "attention", job, naive, *[shape] * 3, needs=scores)
        turned = (batch, length, heads, width)
        suite.jax(f"flash {label}", "attention", flash, cudnn, *[turned] * 3, source="cudnn")
        suite.jax(
            f"flash {label}", "attention", flash, pallas_attention, *[shape] * 3, source="pallas"
        )

        suite.pytorch(f"flash {label}", "attention", flash, sdpa, *[shape] * 3)
    for length in (32,) if suite.tiny else (2048, 8192):
        causal = work.flash_attention(batch, length, heads=heads, head_dim=width, causal=True)
        shape = (batch, heads, length, width)
        turned = (batch, length, heads, width)
        label = f"causal flash attention {batch}×{heads}×{length}×{width} bf16"
        f = functools.partial(cudnn, causal=True)
        suite.jax(label, "attention", causal, f, *[turned] * 3, source="cudnn")
        f = functools.partial(pallas_attention, causal=True)
        suite.jax(label, "attention", causal, f, *[shape] * 3, source="pallas")
        start = functools.partial(sdpa, causal=True)
        suite.pytorch(label, "attention", causal, start, *[shape] * 3)


def backward(suite: Suite) -> None:
    """Add attention's gradient alone, from what its forward pass saved."""
    batch, heads, width = (1, 1, 16) if suite.tiny else (2, 16, 128)
    for length, causal in (
        ((32, False), (32, True))
        if suite.tiny
        else (
            (2048, False),
            (4096, False),
            (4096, True),
        )
    ):
        shape = (batch, heads, length, width)
        turned = (batch, length, heads, width)
        word = "causal " if causal else ""
        label = f"attention backward {batch}×{heads}×{length}×{width} bf16"
        naive_job, job = attention_backward_work(batch, heads, length, width, causal)
        scores = 16.0 * batch * heads * length * length
        if not causal:
            _add_backward(suite, f"naive {label}", naive_job, naive, shape, "jax", needs=scores)
        for f, source, its in ((cudnn, "cudnn", turned), (pallas_attention, "pallas", shape)):
            f = functools.partial(f, causal=causal)
            _add_backward(suite, f"{word}flash {label}", job, f, its, source)
        start = functools.partial(torch_attention_backward, suite.torch, causal=causal)
        suite.pytorch(f"{word}flash {label}", "backward", job, start, *[shape] * 4)


def _add_backward(
    suite: Suite,
    name: str,
    job: Work,
    f: Any,
    shape: tuple[int, ...],
    source: str,
    needs: Any = None,
) -> None:
    """Add the gradient of an attention, from what its forward pass saved."""
    kept: dict[str, Any] = {}  # the shape of what is saved: known once forward has run

    def make() -> tuple[Any, ...]:
        q, k, v, do = (array(*shape, dtype="bf16", scale=s) for s in (1, 0.9, 0.8, 0.7))
        saved = jax.jit(lambda q, k, v: jax.vjp(f, q, k, v)[1])(q, k, v)
        leaves, kept["tree"] = jax.tree.flatten(saved)
        return tuple(leaves), do

    def run(leaves: Any, do: Any) -> Any:
        return jax.tree.unflatten(kept["tree"], leaves)(do)

    suite.cases.append(
        Case(name, "backward", replace(job, dtype="bf16"), make, run, source=source, needs=needs)
    )


# --- in JAX ---


def naive(q: Any, k: Any, v: Any) -> Any:
    """Attention as it is written in books: scores, softmax, product."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    p = jax.nn.softmax(scores.astype(jnp.float32)).astype(q.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", p, v)


def cudnn(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Attention of NVIDIA's library, called by JAX: [batch, length, heads, width]."""
    # elsewhere than on a GPU, in a rehearsal, JAX's own
    which = "cudnn" if jax.default_backend() == "gpu" else "xla"
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=which)


def pallas_attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Attention in our own kernel."""
    return kernels.attention(q, k, v, causal=causal)


def attention_backward_work(
    batch: int, heads: int, length: int, width: int, causal: bool
) -> tuple[Work, Work]:
    """Count attention's gradient, naive from saved probabilities, and in one kernel.

    Products: naive 4 (dV, dP, dQ, dK), flash 5, since it works the scores out again, where forward
    has 2. Naive kernels read or write an S × S matrix 7 times: P for dV, dP out, P and dP in, dS
    out, dS for dQ, dS for dK. Flash reads q, k, v, o, dO and a number a row, and writes dQ, dK, dV.
    """
    forward = work.flash_attention(batch, length, heads=heads, head_dim=width, causal=causal)
    tensor = 2 * batch * heads * length * width
    matrix = 2 * batch * heads * length**2
    writes = {"dQ": tensor, "dK": tensor, "dV": tensor}
    saved = dict.fromkeys(("q", "k", "v", "dO"), tensor)
    flash = replace(
        forward,
        name="flash attention backward",
        reads={**saved, "o": tensor, "lse": 4 * batch * heads * length},
        writes=writes,
        matrix_flops=forward.matrix_flops * 5 // 2,
    )
    naive = replace(
        forward,
        name="naive attention backward",
        reads={**saved, "dO again": tensor, "S × S": 5 * matrix},
        writes={**writes, "S × S": 2 * matrix},
        matrix_flops=forward.matrix_flops * 2,
    )
    return naive, flash


# --- in PyTorch ---


def torch_attention(torch: Any, q: Any, k: Any, v: Any, causal: bool = False) -> Callable[[], Any]:
    """Return PyTorch's attention, which picks FlashAttention-2 or cuDNN."""
    f = torch.nn.functional.scaled_dot_product_attention
    return lambda: f(q, k, v, is_causal=causal)


def torch_attention_backward(
    torch: Any, q: Any, k: Any, v: Any, do: Any, causal: bool
) -> Callable[[], Any]:
    """Return PyTorch's gradient of its attention."""
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in (q, k, v)]
        o = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
    return lambda: torch.autograd.grad(o, leaves, do, retain_graph=True)
