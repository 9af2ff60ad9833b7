"""LayerNorm → GELU → dropout → residual and its gradient: in JAX, Pallas, PyTorch and Triton."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roofline_helpers import kernels, work
from roofline_helpers.kernels.layernorm import backward_work
from roofline_helpers.work import Work
from tools.gpu.pytorch import right
from tools.gpu.suite import Suite

EPS, RATE = 1e-5, 0.1


def forward(suite: Suite) -> None:
    """Add LayerNorm → GELU → dropout → residual in all its variants."""
    rows = suite.size(65536)
    columns = suite.size(4096)
    four = work.fusion_chain(rows, columns)
    counts = {
        4: work.total(*four, name="chain, four kernels"),
        2: work.total(work.fuse(*four[:2]), work.fuse(*four[2:]), name="chain, two kernels"),
        1: work.fuse(*four, name="chain, one kernel"),
    }

    shapes: list[Any] = [(rows, columns), (columns,), (columns,), chain_mask(rows, columns)]
    shapes.append((rows, columns))

    def add(name: str, kernels: int, fn: Any, source: str = "jax", **options: Any) -> None:
        label = f"chain {name} {rows}×{columns} bf16"
        suite.jax(
            label,
            "chain",
            counts[kernels],
            fn,
            *shapes,
            source=source,
            needs=9.0 * rows * columns * 2,
            **options,
        )

    norm, soft, drop, plus = (jax.jit(f) for f in (layernorm, gelu, dropout, jnp.add))
    head = jax.jit(lambda x, g, b: gelu(layernorm(x, g, b)))
    tail = jax.jit(lambda x, mask, residual: dropout(x, mask) + residual)
    add("op by op", 4, op_by_op, jit=False)
    add(
        "four kernels",
        4,
        lambda x, g, b, m, r: plus(drop(soft(norm(x, g, b)), m), r),
        jit=False,
    )
    add("two kernels", 2, lambda x, g, b, m, r: tail(head(x, g, b), m, r), jit=False)
    add("one jit", 1, one_jit)
    add("pallas", 1, pallas_chain, "pallas")
    if suite.torch is not None:
        _torch_chain(suite, rows, columns, counts)


def _torch_chain(suite: Suite, rows: int, columns: int, counts: Mapping[int, Work]) -> None:
    """Add the same in PyTorch: eager, compiled, and as a Triton kernel of our own."""
    torch = suite.torch
    eager = torch_eager(torch)

    def masked(start: Callable[..., Any]) -> Callable[..., Any]:
        def begin(x: Any, g: Any, b: Any, m: Any, r: Any) -> Any:
            kept = (m > -1.2816).to(m.dtype)  # of a normal distribution: nine in ten
            call = start(x, g, b, kept, r)
            wanted = eager(*(t.float() for t in (x[:512], g, b, kept[:512], r[:512])))
            right(call()[:512], wanted)
            return call

        return begin

    def plain(*tensors: Any) -> Callable[[], Any]:
        return lambda: eager(*tensors)

    def compiled(*tensors: Any) -> Callable[[], Any]:
        made = torch.compile(eager)
        return lambda: made(*tensors)

    def own(*tensors: Any, shared: int = -1) -> Any:
        module = importlib.import_module("tools.gpu.triton_chain")
        return module.start(*tensors, EPS, RATE, torch.empty_like, shared)

    shapes = [(rows, columns), (columns,), (columns,), (rows, columns), (rows, columns)]
    label = f"{rows}×{columns} bf16"
    for name, count, start, source in (
        ("op by op", 4, plain, "torch"),
        ("compiled", 1, compiled, "torch.compile"),
        ("Triton", 1, own, "triton"),
        # As XLA launches: what is left as cache is too small for γ and β
        ("Triton, L1 as shared memory", 1, functools.partial(own, shared=100), "triton"),
    ):
        job = counts[count]
        suite.pytorch(f"chain {name} {label}", "chain", job, masked(start), *shapes, source=source)


def backward(suite: Suite) -> None:
    """Add the chain's gradient alone, from its inputs."""
    rows = suite.size(65536)
    columns = suite.size(4096)
    job = chain_backward_work(rows, columns)
    label = f"{rows}×{columns} bf16"
    shapes: list[Any] = [(rows, columns), (columns,), (columns,), chain_mask(rows, columns)]
    shapes.append((rows, columns))
    for name, chain, source in (
        ("one jit", one_jit, "jax"),
        ("pallas", pallas_chain, "pallas"),
    ):
        suite.jax(
            f"chain backward {name} {label}",
            "backward",
            job,
            gradient(chain),
            *shapes,
            source=source,
            needs=9.0 * rows * columns * 2,
        )
    for name, how, source in (
        ("op by op", _eager, "torch"),
        ("compiled", _compiled, "torch.compile"),
        ("Triton", _own, "triton"),
    ):
        start = functools.partial(torch_chain_backward, suite.torch, how=how)
        whole, row = (rows, columns), (columns,)
        suite.pytorch(
            f"chain backward {name} {label}",
            "backward",
            job,
            start,
            whole,
            row,
            row,
            whole,
            whole,
            source=source,
        )


# --- in JAX ---


def layernorm(x: Any, g: Any, b: Any) -> Any:
    """LayerNorm over the last axis, in fp32 inside."""
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + EPS)
    return (normal * g + b).astype(x.dtype)


def gelu(x: Any) -> Any:
    """GELU in its tanh form, in fp32 inside."""
    return jax.nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)


def dropout(x: Any, mask: Any) -> Any:
    """x · mask / (1 − rate)."""
    return x * mask * jnp.asarray(1 / (1 - RATE), x.dtype)


def one_jit(x: Any, g: Any, b: Any, mask: Any, residual: Any) -> Any:
    """The chain, left to XLA."""
    return dropout(gelu(layernorm(x, g, b)), mask) + residual


def op_by_op(x: Any, g: Any, b: Any, mask: Any, residual: Any) -> Any:
    """The chain with every operation launched by itself: call it without jit."""
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    normal = centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + EPS)
    y = (normal * g + b).astype(x.dtype)
    inner = math.sqrt(2 / math.pi) * (y + 0.044715 * (y * y * y))
    z = 0.5 * y * (1 + jnp.tanh(inner))
    return z * mask * jnp.asarray(1 / (1 - RATE), x.dtype) + residual


def pallas_chain(x: Any, g: Any, b: Any, mask: Any, residual: Any) -> Any:
    """The chain in our own kernel."""
    return kernels.layernorm_gelu_dropout_residual(x, g, b, mask, residual, rate=RATE, eps=EPS)


def gradient(chain: Callable[..., Any]) -> Callable[..., Any]:
    """Return the chain's gradient by x, γ and β. That by the residual is dy itself."""

    def backward(x: Any, g: Any, b: Any, mask: Any, dy: Any) -> Any:
        # the gradient needs no value of the residual: any array of its shape will do
        return jax.vjp(lambda x, g, b: chain(x, g, b, mask, dy), x, g, b)[1](dy)

    return backward


def chain_mask(rows: int, columns: int) -> Callable[[], Any]:
    """Return what makes a mask of ones and zeros in bf16, nine in ten of them ones."""

    def mask() -> Any:
        kept = np.random.default_rng(2).random((1021, columns)) >= RATE
        return jnp.resize(jnp.asarray(kept, jnp.bfloat16), (rows, columns))

    return mask


def chain_backward_work(rows: int, columns: int) -> Work:
    """Count the chain's gradient: x, mask and dy are read and dx is written, 4 tensors."""
    tensor, row = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((rows, columns), (columns,)))
    job = backward_work([tensor, row, row, tensor, tensor], 1)
    return replace(job, name="chain backward", dtype="bf16")


# --- in PyTorch ---


def torch_eager(torch: Any) -> Callable[..., Any]:
    """Return the chain in PyTorch's own operations."""
    f = torch.nn.functional

    def eager(x: Any, g: Any, b: Any, m: Any, r: Any) -> Any:
        y = f.gelu(f.layer_norm(x, x.shape[-1:], g, b, EPS), approximate="tanh")
        return r + y * m * (1 / (1 - RATE))

    return eager


def _eager(torch: Any, eager: Callable[..., Any]) -> Callable[..., Any]:
    """Return the chain with autograd over each operation."""
    return eager


def _compiled(torch: Any, eager: Callable[..., Any]) -> Callable[..., Any]:
    """Return the chain compiled; what forward saved must outlive backwards run again and again."""
    config: Any = importlib.import_module("torch._functorch.config")
    config.donated_buffer = False
    compiled: Callable[..., Any] = torch.compile(eager)
    return compiled


def _own(torch: Any, eager: Callable[..., Any]) -> Callable[..., Any]:
    """Return the chain of our example: one Triton kernel forward, one backward."""
    example: Any = importlib.import_module("examples.torch_chain")
    return functools.partial(example.chain, rate=RATE, eps=EPS)


def torch_chain_backward(
    torch: Any,
    x: Any,
    g: Any,
    b: Any,
    m: Any,
    dy: Any,
    how: Callable[[Any, Callable[..., Any]], Callable[..., Any]],
) -> Callable[[], Any]:
    """Return PyTorch's gradient of the chain, eager, compiled or our own."""
    kept = (m > -1.2816).to(m.dtype)
    eager = torch_eager(torch)

    def pull(f: Any, *tensors: Any) -> Callable[[], Any]:
        x, g, b, kept, dy = tensors
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (x, g, b)]
            y = f(*leaves, kept, torch.zeros_like(x))
        return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)

    call = pull(how(torch, eager), x, g, b, kept, dy)
    few = (x[:512].float(), g.float(), b.float(), kept[:512].float(), dy[:512].float())
    right(call()[0][:512], pull(eager, *few)()[0])
    return call
