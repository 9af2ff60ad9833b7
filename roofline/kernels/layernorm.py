"""LayerNorm with GELU, dropout and residual add in one kernel, and its gradient in another."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from roofline.kernels.launch import (
    ArrayLike,
    Options,
    array_argument,
    by_platform,
    call_options,
    float_argument,
    options_of,
)
from roofline.kernels.rows import (
    Rows,
    backward_kernel,
    cut_rows,
    forward_kernel,
    located_at,
    row_specs,
    vmem_of_rows,
    warps_of_rows,
)
from roofline_helpers import work
from roofline_helpers.common.checks import BadValue, single


def layernorm_gelu(
    x: ArrayLike,
    gamma: ArrayLike,
    beta: ArrayLike,
    *,
    eps: float = 1e-5,
    layout: str | None = None,
    interpret: bool | None = None,
) -> Array:
    """Return gelu(γ · (x − mean) / √(variance + ε) + β) over the last axis, in one kernel.

    x is read once and y written once: 2 tensors where LayerNorm and GELU (in its tanh form) apart
    move 4. The gradient is one kernel too: it reads x and dy, and writes dx and one row of dγ and
    dβ per program.

    Parameters
    ----------
    x : array [..., n]
        fp32, bf16 or fp16.
    gamma, beta : array [n]
        Scale and shift, in any of these types.
    eps : float
        Added to the variance; zero or positive.
    layout : "tpu" or "gpu", optional
        How to cut the arrays. By default that of the target platform.
    interpret : bool, optional
        Run the kernel step by step in JAX rather than compile it. By default on a CPU only.

    Returns
    -------
    array [..., n]
        Of x's type.

    Raises
    ------
    BadType, BadValue, UnknownName
        Shapes or types that don't fit, no element at all, no such layout.

    Notes
    -----
    A program holds whole rows, so compilers refuse long ones: TPU v5e and v7x take 131072 columns
    (32768 in the chain with a one-byte mask), Triton 2²⁰ elements. Triton drops the declared cost:
    `cost_analysis` knows nothing of the kernel on a GPU. There XLA launches it with nearly all of
    an SM's L1 as shared memory, which costs 5% on an H100 and which no option of Pallas changes.

    Examples
    --------
    >>> x = jnp.array([[1.0, 2.0, 3.0]])
    >>> [round(float(y), 3) for y in layernorm_gelu(x, jnp.ones(3), jnp.zeros(3))[0]]
    [-0.135, 0.0, 1.089]

    Source: J. L. Ba et al., arXiv:1607.06450; D. Hendrycks, K. Gimpel, arXiv:1606.08415.
    """
    options = options_of(layout, interpret, eps=eps)
    x, gamma, beta = _row_arguments(x, gamma, beta)
    return _chain(x, gamma, beta, (), options)


def layernorm_gelu_dropout_residual(
    x: ArrayLike,
    gamma: ArrayLike,
    beta: ArrayLike,
    mask: ArrayLike,
    residual: ArrayLike,
    *,
    rate: float,
    eps: float = 1e-5,
    layout: str | None = None,
    interpret: bool | None = None,
) -> Array:
    """Return residual + gelu(layernorm(x)) · mask / (1 − rate), in one kernel.

    x, mask and residual are read once and y is written once: 4 tensors, where four kernels move
    10. The gradient is one kernel, which recomputes mean and variance, since it must read x anyway.

    Parameters
    ----------
    mask : array of x's shape
        1 keeps an element and 0 drops it, in any type; a constant to the gradient. A bool mask is
        converted first, which costs a pass over it: int8 or x's own type does not.
    residual : array of x's shape
        fp32, bf16 or fp16. Its gradient is dy itself.
    rate : float
        Share of elements that the mask drops, from 0 to below 1.

    The others, what is returned and raised: as in `layernorm_gelu`.

    Examples
    --------
    >>> x, gamma, beta = jnp.array([[1.0, 2.0, 3.0]]), jnp.ones(3), jnp.zeros(3)
    >>> y = layernorm_gelu_dropout_residual(x, gamma, beta, x < 3, x, rate=0.5)
    >>> [round(float(element), 3) for element in y[0]]
    [0.729, 2.0, 3.0]
    """
    rate = single("rate", rate, zero=True)
    if rate >= 1:
        raise BadValue(f"rate must be from 0 to below 1, got {rate}")
    options = options_of(layout, interpret, eps=eps, rate=rate)
    x, gamma, beta = _row_arguments(x, gamma, beta)
    residual = float_argument("residual", residual)
    mask = array_argument("mask", mask)
    for name, array in (("mask", mask), ("residual", residual)):
        if array.shape != x.shape:
            raise BadValue(f"{name} must have x's shape {x.shape}, got {array.shape}")
    if mask.dtype == jnp.bool_:
        mask = mask.astype(jnp.int8)
    return _chain(x, gamma, beta, (mask, residual), options)


@functools.partial(jax.jit, static_argnums=4)
def _chain(x: Array, gamma: Array, beta: Array, ends: Sequence[Array], options: Options) -> Array:
    """Do the whole chain with its ends, mask and residual, or LayerNorm and GELU alone."""
    rows = tuple(map(_as_rows, ends))
    return _chain_vjp(_as_rows(x), gamma, beta, rows, options).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _chain_vjp(
    x: Array, gamma: Array, beta: Array, ends: Sequence[Array], options: Options
) -> Array:
    call = functools.partial(_forward_call, options=options)
    return by_platform(call, options, x, gamma, beta, *ends)


def _chain_forward(
    x: Array, gamma: Array, beta: Array, ends: Sequence[Array], options: Options
) -> tuple[Array, Any]:
    y = _chain_vjp(x, gamma, beta, ends, options)
    like_residual = jnp.zeros((), ends[1].dtype) if ends else None
    return y, (x, gamma, beta, ends[:1], like_residual)


def _chain_backward(options: Options, saved: Any, dy: Array) -> tuple[Any, ...]:
    x, gamma, beta, mask, like_residual = saved
    call = functools.partial(_backward_call, options=options)
    dx, dgamma, dbeta = by_platform(call, options, x, gamma, beta, *mask, dy)
    skipped = () if like_residual is None else (None, dy.astype(like_residual.dtype))
    return dx, dgamma.astype(gamma.dtype), dbeta.astype(beta.dtype), skipped


_chain_vjp.defvjp(_chain_forward, _chain_backward)


def _forward_call(*arrays: Array, options: Options, layout: str, interpret: bool) -> Any:
    x, gamma, beta, *ends = arrays
    rows, columns = x.shape
    if ends:
        ops = work.fusion_chain(rows, columns, x.dtype, mask=ends[0].dtype)
    else:
        ops = work.layernorm(rows, columns, x.dtype, y="n"), work.gelu(x.size, x.dtype, x="n")
    tile = cut_rows(options, layout, interpret, [x, *ends, x])
    whole, vector = row_specs(tile)
    return pl.pallas_call(
        located_at(forward_kernel, tile),
        grid=(tile.programs,),
        in_specs=[whole, vector, vector, *[whole] * len(ends)],
        out_specs=whole,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        name="chain_kernel" if ends else "layernorm_gelu_kernel",
        **_launch_options(layout, interpret, work.fuse(*ops), tile, arrays),
    )(x, gamma.reshape(1, -1), beta.reshape(1, -1), *ends)


def _backward_call(*arrays: Array, options: Options, layout: str, interpret: bool) -> Any:
    x, gamma, beta, *mask_and_dy = arrays
    tile = cut_rows(options, layout, interpret, [x, *mask_and_dy, x], backward=True)
    whole, vector = row_specs(tile)
    share = pl.BlockSpec((None, 1, tile.width), lambda i: (i, 0, 0))
    shares = jax.ShapeDtypeStruct((tile.programs, 1, tile.columns), jnp.float32)
    dx, dgamma, dbeta = pl.pallas_call(
        located_at(backward_kernel, tile),
        grid=(tile.programs,),
        in_specs=[whole, vector, vector, *[whole] * len(mask_and_dy)],
        out_specs=[whole, share, share],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype), shares, shares],
        name="chain_backward_kernel" if len(mask_and_dy) == 2 else "layernorm_gelu_backward_kernel",
        **_launch_options(
            layout, interpret, backward_work(arrays, tile.programs), tile, [*arrays, x]
        ),
    )(x, gamma.reshape(1, -1), beta.reshape(1, -1), *mask_and_dy)
    return dx, jnp.sum(dgamma, axis=(0, 1)), jnp.sum(dbeta, axis=(0, 1))


def _launch_options(
    layout: str, interpret: bool, job: work.Work, tile: Rows, arrays: Sequence[Array]
) -> dict[str, Any]:
    """Return the options of a kernel's call; `arrays` pass through VMEM."""
    warps, vmem = warps_of_rows(tile), vmem_of_rows(tile, arrays)
    return call_options(layout, interpret, job, warps, vmem)


def backward_work(arrays: Sequence[Array], programs: int) -> work.Work:
    """Count the backward kernel: forward again, 11 for GELU's slope, 4 for d, 8 for dx, 3 sums."""
    x, gamma, _, *mask_and_dy = arrays
    rows, columns = x.shape
    forward = work.fuse(
        work.layernorm(rows, columns, x.dtype), work.gelu(x.size, x.dtype, x="y", y="u")
    )
    return replace(
        forward,
        name="backward",
        reads={str(i): array.size * array.dtype.itemsize for i, array in enumerate(arrays)},
        writes={"dx": x.size * x.dtype.itemsize, "dγ, dβ": 2 * programs * gamma.size * 4},
        passes={},
        vector_flops=forward.vector_flops + x.size * (11 + 2 * len(mask_and_dy) + 8 + 3),
    )


def _as_rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _row_arguments(x: ArrayLike, gamma: ArrayLike, beta: ArrayLike) -> tuple[Array, Array, Array]:
    x = float_argument("x", x)
    if x.ndim == 0 or x.size == 0:
        raise BadValue(f"x must have a last axis and at least one element, got shape {x.shape}")
    gamma, beta = float_argument("gamma", gamma), float_argument("beta", beta)
    for name, array in (("gamma", gamma), ("beta", beta)):
        if array.shape != x.shape[-1:]:
            raise BadValue(f"{name} must have shape {x.shape[-1:]}, got {array.shape}")
    return x, gamma, beta
