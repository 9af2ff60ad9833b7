"""Ceilings: streams, cache levels, square products, multiply-adds."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax

from roofline_helpers import device, work
from roofline_helpers.device.workloads import level_cases, vector_case
from tools.gpu.suite import Suite


def memory(suite: Suite) -> None:
    """Add JAX's streaming kernels, each next to PyTorch's copy and add, and the cache levels."""
    n = suite.elements(2**30)
    for dtype, width in (("fp32", 4), ("bf16", 2)):
        size = n * width
        streams = device.workloads.memory_cases(size, dtype)
        suite.cases += streams
        label = streams[0].name.removeprefix("read ")
        copied = work.elementwise(n, 1, 1, 0, dtype, name="copy")
        suite.jax(
            f"copy {label}",
            "memory",
            copied,
            pallas_copy,
            (n,),
            dtype=dtype,
            source="pallas",
            needs=2.0 * size,
        )
        for op, flops in (("copy", 0), ("add one", 1)):
            job = work.elementwise(n, 1, 1, flops, dtype, name=op)

            def start(x: Any, op: str = op) -> Callable[[], Any]:
                out = suite.torch.empty_like(x)
                if op == "copy":
                    return lambda: out.copy_(x)
                return lambda: suite.torch.add(x, 1, out=out)

            suite.pytorch(f"{op} {label}", "memory", job, start, (n,), dtype=dtype)
    low, high = (12, 14) if suite.tiny else (16, 30)
    suite.cases += level_cases([2**e for e in range(low, high + 1, 2)])


def compute(suite: Suite) -> None:
    """Add square products, by data type, and the multiply-add chain."""
    sides = (16, 32, 64) if suite.tiny else [2**e for e in range(6, 15)]
    for side in sides:
        suite.matmul(side, side, side, "bf16", "compute", torch=side >= 1024 or suite.tiny)
    for side in (32,) if suite.tiny else (4096, 8192, 16384):
        turned = device.workloads.matmul_case(side, side, side, "bf16", turned=True)
        suite.cases.append(turned)

        def start(a: Any, b: Any) -> Callable[[], Any]:
            out = a @ b.T
            return lambda: suite.torch.matmul(a, b.T, out=out)

        shape = (side, side)
        suite.pytorch(turned.name, "compute", turned.work, start, shape, shape, warm=turned.warm)
    side = suite.size(8192)
    suite.matmul(side, side, side, "fp16", "compute", torch=True)
    for dtype in ("fp8", "int8", "tf32"):
        suite.matmul(side, side, side, dtype, "compute")
    half = suite.size(4096)
    suite.matmul(half, half, half, "fp32", "compute", torch=True)
    for dtype in ("fp32", "bf16"):
        suite.cases.append(vector_case(dtype, suite.elements(2**24)))


def pallas_copy(x: Any) -> Any:
    """A copy in Pallas: many loads in flight for each thread, where XLA's kernel has one."""
    from jax.experimental import pallas as pl

    block = min(8192, x.size)

    def kernel(x_ref: Any, y_ref: Any) -> None:
        y_ref[...] = x_ref[...]

    options: dict[str, Any] = {"interpret": True}
    if jax.default_backend() == "gpu":
        triton = importlib.import_module("jax.experimental.pallas.triton")
        options = {"compiler_params": triton.CompilerParams(num_warps=8)}
    spec = pl.BlockSpec((block,), lambda i: (i,))
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(
        kernel,
        out_shape=out,
        grid=(x.size // block,),
        in_specs=[spec],
        out_specs=spec,
        **options,
    )(x)
