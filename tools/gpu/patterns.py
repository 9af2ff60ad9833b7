"""What fusion gains, pattern by pattern: op by op against one jit, eager against torch.compile.

Each pattern is counted once, as one kernel that moves the least bytes; so a time over the least
time says how many tensors travelled in vain. "sizes" times the chain of `chain` from few rows to
many: where a kernel is short, the launch is what fusion saves.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from roofline_helpers import work
from roofline_helpers.work import Work
from tools.gpu import chain
from tools.gpu.suite import Suite

Shape = tuple[int, ...]
EPS = 1e-5


@dataclass(frozen=True)
class Pattern:
    """A pattern in both frameworks, with the work of its one kernel."""

    name: str
    jax: Callable[..., Any]
    torch: Callable[[Any], Callable[..., Any]]  # takes torch, returns the function
    shapes: tuple[Shape, ...]
    flops: float  # on the matrix unit for products, else on the vector unit
    written: Shape
    dtype: str = "bf16"
    product: bool = False

    @property
    def work(self) -> Work:
        """Return FLOPs, and each input read and each output written once."""
        size = {"bf16": 2, "fp32": 4}[self.dtype]
        reads = {f"x{i}": size * math.prod(s) for i, s in enumerate(self.shapes)}
        outputs = size * math.prod(self.written)
        counted = (self.flops, 0.0) if self.product else (0.0, self.flops)
        return Work(self.name, reads, {"y": outputs}, *counted, dtype=self.dtype)


def _layernorm(x: Any, r: Any, g: Any, b: Any) -> Any:
    return chain.layernorm(x + r, g, b)


def _rmsnorm(x: Any, g: Any) -> Any:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + EPS) * g).astype(x.dtype)


def _softmax(x: Any, mask: Any) -> Any:
    wide = x.astype(jnp.float32) * 0.125 + mask.astype(jnp.float32)
    powers = jnp.exp(wide - wide.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)).astype(x.dtype)


def _rope(x: Any, cos: Any, sin: Any) -> Any:
    first, second = jnp.split(x, 2, -1)
    turned = jnp.concatenate([-second, first], -1)
    return x * cos[:, None, :] + turned * sin[:, None, :]


def _cross_entropy(x: Any, wanted: Any) -> Any:
    wide = x.astype(jnp.float32)
    top = wide.max(-1, keepdims=True)
    total = jnp.log(jnp.exp(wide - top).sum(-1, keepdims=True)) + top
    return (total - (wide * wanted.astype(jnp.float32)).sum(-1, keepdims=True)).astype(x.dtype)


def _convolution(x: Any, w: Any, mean: Any, variance: Any, g: Any, b: Any) -> Any:
    kinds = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=kinds)
    scale = g * jax.lax.rsqrt(jnp.abs(variance) + EPS)
    return jax.nn.relu((y - mean) * scale + b)


def _adam(p: Any, m: Any, v: Any, g: Any) -> Any:
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return p - 1e-3 * m / (jnp.sqrt(jnp.abs(v)) + 1e-8), m, v


def _torch_layernorm(torch: Any) -> Callable[..., Any]:
    norm = torch.nn.functional.layer_norm
    return lambda x, r, g, b: norm(x + r, x.shape[-1:], g, b, EPS)


def _torch_rmsnorm(torch: Any) -> Callable[..., Any]:
    def rmsnorm(x: Any, g: Any) -> Any:
        wide = x.float()
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + EPS) * g).to(x.dtype)

    return rmsnorm


def _torch_rope(torch: Any) -> Callable[..., Any]:
    def rope(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.chunk(2, -1)
        return x * cos[:, None, :] + torch.cat([-second, first], -1) * sin[:, None, :]

    return rope


def _torch_cross_entropy(torch: Any) -> Callable[..., Any]:
    def loss(x: Any, wanted: Any) -> Any:
        wide = x.float()
        total = torch.logsumexp(wide, -1, keepdim=True)
        return (total - (wide * wanted.float()).sum(-1, keepdim=True)).to(x.dtype)

    return loss


def _torch_convolution(torch: Any) -> Callable[..., Any]:
    f = torch.nn.functional

    def convolution(x: Any, w: Any, mean: Any, variance: Any, g: Any, b: Any) -> Any:
        y = f.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1)
        return f.relu(f.batch_norm(y, mean, variance.abs(), g, b, eps=EPS))

    return convolution


def _torch_adam(torch: Any) -> Callable[..., Any]:
    def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        return p - 1e-3 * m / (v.abs().sqrt() + 1e-8), m, v

    return adam


def _bias_gelu(x: Any, b: Any) -> Any:
    return jax.nn.gelu(x + b)


def _torch_bias_gelu(torch: Any) -> Callable[..., Any]:
    return lambda x, b: torch.nn.functional.gelu(x + b, approximate="tanh")


def _swiglu(g: Any, u: Any) -> Any:
    return jax.nn.silu(g) * u


def _torch_swiglu(torch: Any) -> Callable[..., Any]:
    return lambda g, u: torch.nn.functional.silu(g) * u


def _torch_softmax(torch: Any) -> Callable[..., Any]:
    return lambda x, m: torch.softmax(x.float() * 0.125 + m.float(), -1).to(x.dtype)


def _product(x: Any, w: Any, b: Any) -> Any:
    return jax.nn.gelu(x @ w + b)


def _torch_product(torch: Any) -> Callable[..., Any]:
    return lambda x, w, b: torch.nn.functional.gelu(x @ w + b, approximate="tanh")


def patterns(size: Callable[[int], int]) -> list[Pattern]:
    """Return the patterns; `size` shrinks a dimension for a rehearsal."""
    return [*_of_rows(size), *_of_models(size), *_of_products(size)]


def _of_rows(size: Callable[[int], int]) -> list[Pattern]:
    """Return patterns over the rows of one matrix."""
    whole = (size(65536), size(4096))
    row, n = whole[1:], float(math.prod(whole))
    square = (size(2048), size(2048))
    scores = (16, *square)
    logits = (size(8192), size(32000))
    many = float(math.prod(scores))
    classes = float(math.prod(logits))
    two = (whole, whole)
    four = (whole, whole, row, row)
    return [
        Pattern("bias → GELU", _bias_gelu, _torch_bias_gelu, (whole, row), 10 * n, whole),
        Pattern("SwiGLU", _swiglu, _torch_swiglu, two, 5 * n, whole),
        Pattern("RMSNorm", _rmsnorm, _torch_rmsnorm, (whole, row), 4 * n, whole),
        Pattern("add → LayerNorm", _layernorm, _torch_layernorm, four, 9 * n, whole),
        Pattern(
            "scale → mask → softmax", _softmax, _torch_softmax, (scores, square), 7 * many, scores
        ),
        Pattern(
            "cross-entropy",
            _cross_entropy,
            _torch_cross_entropy,
            (logits, logits),
            6 * classes,
            (logits[0], 1),
        ),
    ]


def _of_models(size: Callable[[int], int]) -> list[Pattern]:
    """Return patterns over tensors of other shapes."""
    turned = (size(16384), 16, 128)
    angles = (turned[0], 128)
    weights = (size(8192) ** 2,)
    three = 3.0 * math.prod(turned)
    state = (weights,) * 4
    return [
        Pattern("rotary embedding", _rope, _torch_rope, (turned, angles, angles), three, turned),
        Pattern("Adam", _adam, _torch_adam, state, 14.0 * weights[0], (3, *weights), "fp32"),
    ]


def _of_products(size: Callable[[int], int]) -> list[Pattern]:
    """Return patterns whose first kernel is on the matrix unit."""
    rows = size(8192)
    n = size(4096)
    channels = size(256)
    image = (size(64), size(56), size(56), channels)
    filters = (3, 3, channels, channels)
    taps = 18.0 * math.prod(image) * channels
    return [
        Pattern(
            "matmul → bias → GELU",
            _product,
            _torch_product,
            ((rows, n), (n, n), (n,)),
            2.0 * rows * n * n,
            (rows, n),
            product=True,
        ),
        Pattern(
            "convolution → BatchNorm → ReLU",
            _convolution,
            _torch_convolution,
            (image, filters, *[(channels,)] * 4),
            taps,
            image,
            product=True,
        ),
    ]


def add_patterns(suite: Suite) -> None:
    """Add each pattern op by op and fused, in JAX and in PyTorch."""
    for pattern in patterns(suite.size):
        job = pattern.work
        shapes = pattern.shapes
        dtype = pattern.dtype
        needs = 6.0 * (float(job.bytes) + 4 * math.prod(shapes[0]))
        for how, jit in (("op by op", False), ("one jit", True)):
            name = f"{pattern.name}, {how}"
            suite.jax(
                name, "patterns", job, pattern.jax, *shapes, dtype=dtype, needs=needs, jit=jit
            )
        if suite.torch is None:
            continue
        eager = pattern.torch(suite.torch)
        suite.pytorch(
            f"{pattern.name}, op by op", "patterns", job, _called(eager), *shapes, dtype=dtype
        )
        suite.pytorch(
            f"{pattern.name}, compiled",
            "patterns",
            job,
            _compiled(suite.torch, eager),
            *shapes,
            dtype=dtype,
            source="torch.compile",
        )


def _called(eager: Callable[..., Any]) -> Callable[..., Callable[[], Any]]:
    """Return what takes tensors and returns the call on them."""
    return lambda *tensors: functools.partial(eager, *tensors)


def _compiled(torch: Any, eager: Callable[..., Any]) -> Callable[..., Callable[[], Any]]:
    """Return what takes tensors and returns the compiled call on them, for these shapes alone."""
    return lambda *tensors: functools.partial(torch.compile(eager, dynamic=False), *tensors)


def add_sizes(suite: Suite) -> None:
    """Add the chain of `chain` from 16 rows to 16384; 65536 are in the group "chain"."""
    columns = suite.size(4096)
    for rows in (16, 32) if suite.tiny else (16, 256, 1024, 4096, 16384):
        job = work.fuse(*work.fusion_chain(rows, columns))
        label = f"chain {{}} {rows}×{columns} bf16"
        whole, row = (rows, columns), (columns,)
        mask = chain.chain_mask(rows, columns)
        tensors: list[Any] = [whole, row, row, mask, whole]
        needs = 9.0 * rows * columns * 2
        for how, fn, jit in (
            ("op by op", chain.op_by_op, False),
            ("one jit", chain.one_jit, True),
        ):
            suite.jax(label.format(how), "sizes", job, fn, *tensors, needs=needs, jit=jit)
        if suite.torch is None:
            continue
        eager = chain.torch_eager(suite.torch)
        for how, start, source in (
            ("op by op", _called(eager), "torch"),
            ("compiled", _compiled(suite.torch, eager), "torch.compile"),
        ):
            shapes = (whole, row, row, whole, whole)
            suite.pytorch(label.format(how), "sizes", job, start, *shapes, source=source)
