"""Code of all kernels: arguments, the layout of a platform, options of the compilers."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from roofline_helpers import work
from roofline_helpers.common.checks import BadType, flag, name_of, shown, single

ArrayLike: TypeAlias = "Array | np.ndarray[Any, Any]"
"""What the kernels take."""

Ref: TypeAlias = Any
"""A block of an array, as Pallas hands it to a kernel's body."""

Index: TypeAlias = "int | Array"
"""A number of rows or blocks, traced inside a kernel."""

LAYOUTS = ("tpu", "gpu")
"""The tiles that the arrays allow."""

FLOATS = ("float32", "bfloat16", "float16")
"""Data types of x, Q, K and V."""

LANES, SUBLANES = 128, 8
"""One TPU register: 8 × 128 values of 4 bytes."""

LOG2E = 1 / math.log(2)
"""log₂ e: the hardware's exponential is 2^x, so e^x is 2^(x · log₂ e)."""

_VMEM_MOST = 100 * 2**20  # bytes that a TPU program may ask for


@dataclass(frozen=True)
class Options:
    """The static facts of a kernel: hashable, so that JAX caches by them."""

    eps: float = 1e-5
    rate: float = 0.0
    scale: float = 1.0
    causal: bool = False
    layout: str | None = None
    interpret: bool | None = None


def by_platform(call: Callable[..., Any], options: Options, *arrays: Array) -> Any:
    """Call with the layout of the platform that the program is lowered for."""

    def on(layout: str, interpret: bool) -> Callable[..., Any]:
        return functools.partial(
            call,
            layout=options.layout or layout,
            interpret=interpret if options.interpret is None else options.interpret,
        )

    if options.layout is not None and options.interpret is not None:
        return on(options.layout, options.interpret)(*arrays)
    gpu = on("gpu", False)  # CUDA and ROCm share it, so that JAX traces it once
    return lax.platform_dependent(
        *arrays, cpu=on("tpu", True), tpu=on("tpu", False), cuda=gpu, rocm=gpu
    )


def call_options(
    layout: str, interpret: bool, job: work.Work, warps: int, vmem: int
) -> dict[str, Any]:
    """Return the compiler's options: the cost estimate, and the resources of a program."""
    cost = pl.CostEstimate(
        flops=int(job.flops),
        bytes_accessed=int(job.bytes),
        transcendentals=int(job.transcendentals),
    )
    shared: dict[str, Any] = {"interpret": interpret, "cost_estimate": cost}
    if interpret:
        return shared
    if layout == "gpu":
        params = triton_backend().CompilerParams(num_warps=warps, num_stages=2)
    else:
        tpu = importlib.import_module("jax.experimental.pallas.tpu")
        limit = min(max(16 * 2**20, vmem + vmem // 2), _VMEM_MOST)
        params = tpu.CompilerParams(vmem_limit_bytes=limit)
    return {**shared, "compiler_params": params}


def triton_backend() -> Any:
    """Return Pallas' Triton module: not on every platform, so imported when needed."""
    return importlib.import_module("jax.experimental.pallas.triton")


def quotient(index: Index, size: int) -> Array:
    """Return max(index, 0) // size of a traced index, without the sign check of `//`."""
    return lax.div(jnp.maximum(index, 0), jnp.int32(size))


def round_up(n: int, multiple: int) -> int:
    """Return the first multiple that is not below n."""
    return -(-n // multiple) * multiple


def sum_along(x: Array, axis: int) -> Array:
    """Return the sum along an axis, which stays with length 1."""
    return jnp.sum(x, axis=axis, keepdims=True)


def options_of(
    layout: str | None, interpret: bool | None, *, eps: float = 1e-5, **others: Any
) -> Options:
    """Return the arguments of a kernel that aren't arrays, checked."""
    return Options(
        eps=single("eps", eps, zero=True),
        layout=None if layout is None else name_of("layout", layout, LAYOUTS),
        interpret=None if interpret is None else flag("interpret", interpret),
        **others,
    )


def array_argument(name: str, value: object) -> Array:
    """Return a JAX or NumPy array as JAX's; raise BadType for anything else."""
    if not isinstance(value, Array | np.ndarray):
        raise BadType(f"{name} must be a JAX or NumPy array, got {shown(value)}")
    return jnp.asarray(value)


def float_argument(name: str, value: object) -> Array:
    """Return an array of one of `FLOATS`; raise BadType for anything else."""
    array = array_argument(name, value)
    if array.dtype.name not in FLOATS:
        raise BadType(f"{name} must be of type {', '.join(FLOATS)}, got {array.dtype.name}")
    return array
