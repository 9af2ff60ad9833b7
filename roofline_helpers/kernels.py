"""Fused kernels in Pallas: the LayerNorm chain and attention, with their gradients.

One source runs in three ways. A kernel's body is plain `jax.numpy` on the blocks that a program
holds; what differs between machines is how the arrays are cut, which is `_Rows` and `_Tiles`
below, and which compiler follows:

======== ============================ =======================================================
layout   compiled by                  a block
======== ============================ =======================================================
"tpu"    Mosaic, or interpreted       many rows, copied to VMEM while the last block is worked
                                      on; widths as they are
"gpu"    Pallas' Triton, or           few rows, in registers; every width is rounded up to a
         interpreted                  power of two, and the lanes that stick out are masked
======== ============================ =======================================================

The choice follows the platform that a program is lowered for (`jax.lax.platform_dependent`), so
that a program that is compiled on a laptop for a TPU gets the TPU's kernel. On a CPU kernels are
interpreted, in the TPU's layout: right, and slow. `layout` and `interpret` override it.

Arithmetic is fp32 whatever the arrays are; each result is rounded once, when it is stored.

Source: P. Tillet et al., "Triton" (2019); T. Dao et al., arXiv:2205.14135; the Pallas manual.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from roofline_helpers import work
from roofline_helpers._checks import BadType, BadValue, finite, flag, name_of, shown, single, size

LAYOUTS = ("tpu", "gpu")
"""How the arrays can be cut."""

FLOATS = ("float32", "bfloat16", "float16")
"""Data types of x, Q, K and V."""

_GPU_TILES = {"forward": (128, 64), "dq": (128, 32), "dkv": (64, 64)}  # fastest on an H100
_LANES, _SUBLANES = 128, 8  # one TPU register: 8 × 128 values of 4 bytes
_VMEM = 8 * 2**20  # bytes of blocks that a TPU program asks for where it has the choice
_LEAST = float(jnp.finfo(jnp.float32).min)
_LOG2E = 1 / math.log(2)
_VMEM_MOST = 100 * 2**20  # and at the most


@dataclass(frozen=True)
class Blocks:
    """How to cut a kernel, where the default is not wanted.

    Parameters
    ----------
    rows, step : int, optional
        Rows that one program owns, and how many of them it holds at a time (LayerNorm kernels).
        `rows` is rounded up to a multiple of `step`, and on a GPU `step` to a power of two;
        with layout="gpu" it must be one.
    q, kv : int, optional
        Queries, and keys, of one block of scores (attention).
    warps, stages : int, optional
        Warps of a GPU program, and depth of its software pipeline. A TPU has neither.

    Raises
    ------
    BadType, BadValue
        Not a whole number of at least 1; warps, stages, q or kv that the machine cannot have.
    """

    rows: int | None = None
    step: int | None = None
    q: int | None = None
    kv: int | None = None
    warps: int | None = None
    stages: int | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "step", "q", "kv", "warps", "stages"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, int(size(name, given, 2**31)))
        for name, least in (("q", 16), ("kv", 16), ("warps", 1)):
            given = getattr(self, name)
            if given is not None and (given < least or given & (given - 1)):
                raise BadValue(f"{name} must be a power of two from {least}, got {given}")


@dataclass(frozen=True)
class _Options:
    """What is known when a kernel is traced: hashable, so that JAX caches by it."""

    eps: float = 1e-5
    rate: float = 0.0
    scale: float = 1.0
    causal: bool = False
    layout: str | None = None
    interpret: bool | None = None
    blocks: Blocks = Blocks()


# --- LayerNorm, GELU, dropout, residual: the interface -------------------------------------------


def layernorm_gelu(
    x: Any,
    gamma: Any,
    beta: Any,
    *,
    eps: float = 1e-5,
    layout: str | None = None,
    interpret: bool | None = None,
    blocks: Blocks | None = None,
) -> Any:
    """Return gelu(γ · (x − mean) / √(variance + ε) + β) over the last axis, in one kernel.

    x is read once and y written once: 2 tensors where LayerNorm and GELU apart move 4. GELU is
    the tanh form. The gradient is one kernel too: it reads x and dy, and writes dx and one row of
    dγ and dβ per program.

    Parameters
    ----------
    x : array [..., n]
        fp32, bf16 or fp16. The row may have any length that fits a program (see Raises).
    gamma, beta : array [n]
        Scale and shift, in any of these types.
    eps : float
        Added to the variance; zero or positive.
    layout : "tpu" or "gpu", optional
        How to cut the arrays. By default that of the platform that is compiled for.
    interpret : bool, optional
        Run the kernel step by step in JAX rather than compile it. By default on a CPU only.
    blocks : Blocks, optional
        Sizes other than the default.

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
    A program holds whole rows. TPU v5e and v7x take 131072 columns (32768 in the chain with a
    one-byte mask); Triton's tensors end at 2²⁰ elements. Their compilers refuse what is longer.

    On a GPU this is Pallas' Triton backend, which JAX 0.11 calls deprecated, and which drops the
    declared cost: `cost_analysis` knows nothing of the kernel there.

    Examples
    --------
    >>> x = jnp.array([[1.0, 2.0, 3.0]])
    >>> [round(float(y), 3) for y in layernorm_gelu(x, jnp.ones(3), jnp.zeros(3))[0]]
    [-0.135, 0.0, 1.089]

    Source: J. L. Ba et al., arXiv:1607.06450; D. Hendrycks, K. Gimpel, arXiv:1606.08415.
    """
    options = _options(layout, interpret, blocks, eps=eps)
    x, gamma, beta = _row_arguments(x, gamma, beta)
    return _layernorm_gelu(x, gamma, beta, options)


def layernorm_gelu_dropout_residual(
    x: Any,
    gamma: Any,
    beta: Any,
    mask: Any,
    residual: Any,
    *,
    rate: float,
    eps: float = 1e-5,
    layout: str | None = None,
    interpret: bool | None = None,
    blocks: Blocks | None = None,
) -> Any:
    """Return residual + gelu(layernorm(x)) · mask / (1 − rate), in one kernel.

    x, mask and residual are read once and y is written once: 4 tensors, where four kernels move
    10. The gradient is one kernel: it reads x, mask and dy and writes dx and one row of dγ and dβ
    per program. It works the mean and the variance out again, since x must be read anyway.

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
    >>> x, one = jnp.array([[1.0, 2.0, 3.0]]), jnp.ones(3)
    >>> y = layernorm_gelu_dropout_residual(x, one, 0 * one, x < 3, x, rate=0.5)
    >>> [round(float(each), 3) for each in y[0]]
    [0.729, 2.0, 3.0]
    """
    rate = single("rate", rate, zero=True)
    if rate >= 1:
        raise BadValue(f"rate must be from 0 to below 1, got {rate}")
    options = _options(layout, interpret, blocks, eps=eps, rate=rate)
    x, gamma, beta = _row_arguments(x, gamma, beta)
    residual = _float_array("residual", residual)
    mask = _array("mask", mask)
    for name, given in (("mask", mask), ("residual", residual)):
        if given.shape != x.shape:
            raise BadValue(f"{name} must have x's shape {x.shape}, got {given.shape}")
    if mask.dtype == jnp.bool_:
        mask = mask.astype(jnp.int8)
    return _chain(x, gamma, beta, mask, residual, options)


def chain_work(
    rows: Any, columns: Any, dtype: Any = "bf16", *, mask: Any = None, fused: bool = True
) -> work.Work | tuple[work.Work, ...]:
    """Return the work of `layernorm_gelu_dropout_residual`: one kernel, or its four operations.

    Parameters
    ----------
    rows, columns, dtype, mask
        As in `work.fusion_chain`.
    fused : bool
        One kernel of 4 tensors, or a tuple of four kernels that move 10.

    Raises
    ------
    BadType, BadValue, UnknownName
        As in `roofline_helpers.work`.

    Examples
    --------
    >>> four = chain_work(65536, 4096, fused=False)
    >>> round(sum(job.bytes for job in four) / chain_work(65536, 4096).bytes, 3)
    2.5
    """
    four = work.fusion_chain(rows, columns, dtype, mask=mask)
    return work.fuse(*four) if flag("fused", fused) else four


# --- the kernels ---------------------------------------------------------------------------------
#
# A program owns `tile.block` rows and walks through them `tile.step` at a time, so that what it
# holds stays small. What tile.walk() hands to a step is fp32, and zero outside the array.


def _forward_kernel(x: Any, gamma: Any, beta: Any, y: Any, *, tile: _Rows) -> None:
    def step(i: Any, loaded: Any, carry: Any) -> Any:
        normal, _ = tile.standardise(loaded[0], i)
        gelu, _ = _gelu(normal * tile.vector(gamma) + tile.vector(beta))
        tile.store(y, i, gelu)
        return carry

    tile.walk([x], step, 0)


def _chain_kernel(
    x: Any, gamma: Any, beta: Any, mask: Any, residual: Any, y: Any, *, tile: _Rows
) -> None:
    def step(i: Any, loaded: Any, carry: Any) -> Any:
        values, kept, skip = loaded
        normal, _ = tile.standardise(values, i)
        gelu, _ = _gelu(normal * tile.vector(gamma) + tile.vector(beta))
        tile.store(y, i, skip + gelu * (kept * tile.keep))
        return carry

    tile.walk([x, mask, residual], step, 0)


def _backward_kernel(*refs: Any, tile: _Rows) -> None:
    """Write dx, and this program's share of dγ and dβ.

    With x̂ the normalised row, u = γx̂ + β and d = dy · mask/(1 − p) · gelu'(u):
    dγ = Σ d·x̂ and dβ = Σ d over all rows, and with g = d·γ, over each row,
    dx = (g − mean(g) − x̂ · mean(g·x̂)) / σ.
    """
    x, gamma, beta, *mask, dy, dx, dgamma, dbeta = refs

    def step(i: Any, loaded: Any, sums: Any) -> Any:
        values, d, *kept = loaded
        normal, inverse = tile.standardise(values, i)
        scale = tile.vector(gamma)
        _, slope = _gelu(normal * scale + tile.vector(beta))
        d = d * slope
        if kept:
            d = d * (kept[0] * tile.keep)
        sums = sums[0] + _sum(d * normal, axis=0), sums[1] + _sum(d, axis=0)
        g = d * scale
        along = tile.mean(g * normal)
        tile.store(dx, i, (g - tile.mean(g) - normal * along) * inverse)
        return sums

    nothing = jnp.zeros((1, tile.width), jnp.float32)
    total_gamma, total_beta = tile.walk([x, dy, *mask], step, (nothing, nothing))
    tile.store_vector(dgamma, total_gamma)
    tile.store_vector(dbeta, total_beta)


def _gelu(u: Any) -> tuple[Any, Any]:
    """Return GELU's tanh form and its slope.

    u/2 · (1 + tanh v) = u · s with s = 1 / (1 + e^(−2v)) and v = √(2/π) · (u + 0.044715 u³): the
    same function, without the cancellation in 1 + tanh v, and quicker than tanh on a GPU. Its
    unit for exponentials works in powers of two, so log₂ e goes into the constants.
    """
    k, cubic = 2 * math.sqrt(2 / math.pi), 0.044715
    square = u * u
    s = 1.0 / (1.0 + jnp.exp2(u * (square * (-_LOG2E * k * cubic) - _LOG2E * k)))
    gelu = u * s
    return gelu, s + gelu * (1.0 - s) * (square * (3 * cubic * k) + k)


def _sum(x: Any, axis: int) -> Any:
    return jnp.sum(x, axis=axis, keepdims=True)


@dataclass(frozen=True)
class _Rows:
    """How the LayerNorm kernels are cut: `programs` blocks of `block` rows, `step` at a time."""

    rows: int
    columns: int
    block: int
    step: int
    width: int  # columns, or the power of two above
    eps: float
    keep: float  # 1 / (1 − rate)
    triton: bool  # compiled by Triton: loads and stores take the mask
    first: Any = 0  # this program's first row, known inside a kernel only

    @property
    def programs(self) -> int:
        return -(-self.rows // self.block)

    @property
    def ragged_rows(self) -> bool:
        return self.rows % self.block != 0

    @property
    def ragged_columns(self) -> bool:
        return self.width != self.columns

    def walk(self, refs: Sequence[Any], body: Callable[..., Any], start: Any) -> Any:
        """Do ``body(i, arrays, carry)`` for each step of this program's rows.

        All arrays of a step are asked for before the first is used, so that they are under way
        together and a program waits once a step.
        """

        def step(i: Any, carry: Any) -> Any:
            loaded = [_load(self.at(ref, i), self.inside(i), self.triton) for ref in refs]
            return body(i, loaded, carry)

        steps = self.block // self.step
        return step(0, start) if steps == 1 else lax.fori_loop(0, steps, step, start)

    def lanes(self) -> Any:
        return lax.broadcasted_iota(jnp.int32, (1, self.width), 1) < self.columns

    def inside(self, i: Any) -> Any:
        """Tell which elements of step i lie in the array; None if all do, whatever i is."""
        row = lax.broadcasted_iota(jnp.int32, (self.step, 1), 0) + (self.first + i * self.step)
        masks = [row < self.rows] * self.ragged_rows + [self.lanes()] * self.ragged_columns
        if not masks:
            return None
        return jnp.broadcast_to(functools.reduce(jnp.logical_and, masks), (self.step, self.width))

    def at(self, ref: Any, i: Any) -> Any:
        if self.step == self.block:
            return ref.at[:, :]
        return ref.at[pl.ds(pl.multiple_of(i * self.step, self.step), self.step), :]

    def store(self, ref: Any, i: Any, value: Any) -> None:
        _store(self.at(ref, i), value, self.inside(i), self.triton)

    def vector(self, ref: Any) -> Any:
        """Return a [1, columns] array as fp32, zero outside.

        Asked for where it is used: held from the start it would take registers that another
        program could run in (on an H100, 40 rather than 32 a thread with 16 warps).
        """
        return _load(ref.at[:, :], self.lanes() if self.ragged_columns else None, self.triton)

    def store_vector(self, ref: Any, value: Any) -> None:
        inside = self.lanes() if self.ragged_columns else None
        _store(ref.at[:, :], value, inside, self.triton)

    def mean(self, x: Any) -> Any:
        """Return each row's mean: lanes outside must hold zero, and don't count."""
        return _sum(x, axis=1) * (1 / self.columns)

    def standardise(self, x: Any, i: Any) -> tuple[Any, Any]:
        """Return (x − mean) / √(variance + ε), and 1 / √(variance + ε).

        The variance is that of the centred values, never mean(x²) − mean². The mean of a row
        near 10⁴ is itself rounded, to about 0.001 in fp32; the mean of the centred values finds
        that slip, and both are corrected by it. Lanes outside would hold −mean: they are zeroed.

        The maximum changes nothing. It stands between sum · (1/n) and x − mean, which a compiler
        could contract to one fused multiply-add, whose mean is not rounded, in one place and not
        in another: near 10⁴ the two differ by as much as the slip that is to be corrected.
        """
        shift = jnp.maximum(self.mean(x), _LEAST)
        centred = x - shift
        inside = self.inside(i)
        if inside is not None:
            centred = jnp.where(inside, centred, 0.0)
        slip = self.mean(centred)
        variance = jnp.maximum(self.mean(centred * centred) - slip * slip, 0.0)
        inverse = lax.rsqrt(variance + self.eps)
        normal = centred * inverse - slip * inverse
        return (normal if inside is None else jnp.where(inside, normal, 0.0)), inverse


def _load(view: Any, inside: Any, triton: bool) -> Any:
    """Return a block as fp32; lanes that lie outside the array are zero."""
    if inside is None:
        return _wide(view[...])
    if triton:  # lanes outside must not be touched: they are another row's memory, or nobody's
        return _wide(_triton().load(view, mask=inside, other=0))
    return jnp.where(inside, _wide(view[...]), 0)  # padded with anything: NaN, say


def _wide(value: Any) -> Any:
    if jnp.issubdtype(value.dtype, jnp.integer):
        value = value.astype(jnp.int32)
    return value.astype(jnp.float32)


def _store(view: Any, value: Any, inside: Any, triton: bool) -> None:
    value = value.astype(view.dtype)
    if inside is None or not triton:
        view[...] = value  # what lies outside the array is dropped
    else:
        _triton().store(view, value, mask=inside)


# --- the kernels' calls, and their derivatives ---------------------------------------------------


@functools.partial(jax.jit, static_argnums=3)
def _layernorm_gelu(x: Any, gamma: Any, beta: Any, options: _Options) -> Any:
    return _layernorm_gelu_vjp(_as_rows(x), gamma, beta, options).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _layernorm_gelu_vjp(x: Any, gamma: Any, beta: Any, options: _Options) -> Any:
    rows, columns = x.shape
    job = work.fuse(
        work.layernorm(rows, columns, x.dtype, y="n"), work.gelu(x.size, x.dtype, x="n", y="y")
    )
    call = functools.partial(_forward_call, kernel=_forward_kernel, options=options, job=job)
    return _by_platform(call, options, x, gamma, beta)


def _layernorm_gelu_forward(x: Any, gamma: Any, beta: Any, options: _Options) -> Any:
    return _layernorm_gelu_vjp(x, gamma, beta, options), (x, gamma, beta)


def _layernorm_gelu_backward(options: _Options, saved: Any, dy: Any) -> Any:
    x, gamma, beta = saved
    return _gradients(options, x, gamma, beta, None, dy)


_layernorm_gelu_vjp.defvjp(_layernorm_gelu_forward, _layernorm_gelu_backward)


@functools.partial(jax.jit, static_argnums=5)
def _chain(x: Any, gamma: Any, beta: Any, mask: Any, residual: Any, options: _Options) -> Any:
    rows = (_as_rows(each) for each in (mask, residual))
    return _chain_vjp(_as_rows(x), gamma, beta, *rows, options).reshape(x.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _chain_vjp(x: Any, gamma: Any, beta: Any, mask: Any, residual: Any, options: _Options) -> Any:
    rows, columns = x.shape
    job = chain_work(rows, columns, x.dtype, mask=mask.dtype)
    call = functools.partial(_forward_call, kernel=_chain_kernel, options=options, job=job)
    return _by_platform(call, options, x, gamma, beta, mask, residual)


def _chain_forward(
    x: Any, gamma: Any, beta: Any, mask: Any, residual: Any, options: _Options
) -> Any:
    y = _chain_vjp(x, gamma, beta, mask, residual, options)
    return y, (x, gamma, beta, mask, jnp.zeros((), residual.dtype))


def _chain_backward(options: _Options, saved: Any, dy: Any) -> Any:
    x, gamma, beta, mask, residual = saved
    gradients = _gradients(options, x, gamma, beta, mask, dy)
    return *gradients, None, dy.astype(residual.dtype)


_chain_vjp.defvjp(_chain_forward, _chain_backward)


def _forward_call(
    *arrays: Any, kernel: Any, options: _Options, job: Any, layout: str, interpret: bool
) -> Any:
    x, gamma, beta, *others = arrays
    tile = _rows(options, layout, interpret, [x, *others, x])
    whole, vector = _row_specs(tile)
    return pl.pallas_call(
        _located(kernel, tile),
        grid=(tile.programs,),
        in_specs=[whole, vector, vector, *[whole] * len(others)],
        out_specs=whole,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        name=kernel.__name__.strip("_"),
        **_call_options(options, layout, interpret, job, _row_warps(tile), _row_vmem(tile, arrays)),
    )(x, gamma.reshape(1, -1), beta.reshape(1, -1), *others)


def _gradients(options: _Options, x: Any, gamma: Any, beta: Any, mask: Any, dy: Any) -> Any:
    arrays = (x, gamma, beta, *([] if mask is None else [mask]), dy)
    dx, dgamma, dbeta = _by_platform(
        functools.partial(_backward_call, options=options), options, *arrays
    )
    return dx, dgamma.astype(gamma.dtype), dbeta.astype(beta.dtype)


def _backward_call(*arrays: Any, options: _Options, layout: str, interpret: bool) -> Any:
    x, gamma, beta, *others = arrays
    tile = _rows(options, layout, interpret, [x, *others, x], backward=True)
    whole, vector = _row_specs(tile)
    share = pl.BlockSpec((None, 1, tile.width), lambda i: (i, 0, 0))
    shares = jax.ShapeDtypeStruct((tile.programs, 1, tile.columns), jnp.float32)
    dx, dgamma, dbeta = pl.pallas_call(
        _located(_backward_kernel, tile),
        grid=(tile.programs,),
        in_specs=[whole, vector, vector, *[whole] * len(others)],
        out_specs=[whole, share, share],
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype), shares, shares],
        name="chain_backward_kernel" if len(others) == 2 else "layernorm_gelu_backward_kernel",
        **_call_options(
            options,
            layout,
            interpret,
            _backward_work(arrays, tile.programs),
            _row_warps(tile),
            _row_vmem(tile, [*arrays, x]),
        ),
    )(x, gamma.reshape(1, -1), beta.reshape(1, -1), *others)
    return dx, jnp.sum(dgamma, axis=(0, 1)), jnp.sum(dbeta, axis=(0, 1))


def _backward_work(arrays: Sequence[Any], programs: int) -> work.Work:
    """Count the backward kernel: forward again, 11 for GELU's slope, 4 for d, 8 for dx, 3 sums."""
    x, gamma, _, *others = arrays
    rows, columns = x.shape
    again = work.fuse(
        work.layernorm(rows, columns, x.dtype), work.gelu(x.size, x.dtype, x="y", y="u")
    )
    return replace(
        again,
        name="backward",
        reads={str(i): each.size * each.dtype.itemsize for i, each in enumerate(arrays)},
        writes={"dx": x.size * x.dtype.itemsize, "dγ, dβ": 2 * programs * gamma.size * 4},
        passes={},
        vector_flops=again.vector_flops + x.size * (11 + 2 * len(others) + 8 + 3),
    )


def _located(kernel: Any, tile: _Rows) -> Any:
    """Return the kernel with its first row known: program_id must be asked outside of loops."""

    @functools.wraps(kernel)
    def located(*refs: Any) -> None:
        kernel(*refs, tile=replace(tile, first=pl.program_id(0) * tile.block))

    return located


def _row_specs(tile: _Rows) -> tuple[Any, Any]:
    whole = pl.BlockSpec((tile.block, tile.width), lambda i: (i, 0))
    vector = pl.BlockSpec((1, tile.width), lambda i: (0, 0))
    return whole, vector


def _rows(
    options: _Options, layout: str, interpret: bool, arrays: Sequence[Any], backward: bool = False
) -> _Rows:
    """Choose how to cut [rows, columns] arrays, of which `arrays` pass through a program."""
    rows, columns = arrays[0].shape
    chosen = options.blocks
    if layout == "gpu":
        width = pl.next_power_of_2(columns)
        step = chosen.step or max(1, min(pl.next_power_of_2(rows), 512 // width))
        if options.layout is None:  # traced for a CPU and a TPU too, which take any step
            step = pl.next_power_of_2(step)
        block = chosen.rows or (_up(min(64, -(-rows // 528)), step) if backward else step)
        if step & (step - 1):
            raise BadValue(f"a GPU program holds a power of two of rows, got a step of {step}")
    else:
        width = columns
        narrowest = min(each.dtype.itemsize for each in arrays)
        packed = _SUBLANES * 4 // narrowest  # rows of one register: int8 must be read by these
        step = chosen.step or (_SUBLANES if narrowest > 1 and width > 2**15 else packed)
        each_row = _up(columns, _LANES) * sum(each.dtype.itemsize for each in arrays)
        fitting = max(1, _VMEM // (2 * each_row * step))
        block = chosen.rows or step * min(fitting, max(1, 512 // step))
    return _Rows(
        rows=rows,
        columns=columns,
        block=min(_up(block, step), _up(rows, step)),
        step=step,
        width=width,
        eps=options.eps,
        keep=1 / (1 - options.rate),
        triton=layout == "gpu" and not interpret,
    )


def _row_warps(tile: _Rows) -> int:
    """Return the warps of a GPU program: up to 8, and more where a thread would hold over 32."""
    elements = tile.step * tile.width
    return max(1, min(8, elements // 512), min(32, elements // 1024))


def _row_vmem(tile: _Rows, arrays: Sequence[Any]) -> int:
    """Return the bytes of VMEM: each array's block twice, and 8 fp32 intermediates of a step."""
    lanes = _up(tile.width, _LANES)
    per_row: int = sum(each.dtype.itemsize for each in arrays if each.ndim == 2)
    return lanes * (2 * tile.block * (per_row + 4) + 8 * 4 * tile.step + 16 * _SUBLANES * 4)


# --- attention: the interface --------------------------------------------------------------------


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    mask: Any = None,
    layout: str | None = None,
    interpret: bool | None = None,
    blocks: Blocks | None = None,
) -> Any:
    """Return softmax(scale · Q·Kᵀ + mask) · V in one kernel: no score reaches the memory.

    For each block of queries, the kernel walks over the keys with a running maximum m and sum l
    of each row, and rescales what it has by exp(m − m') whenever the maximum grows to m'. The
    result is divided by l once, at the end. The backward pass saves only m + log l for each row,
    and works the scores out again in two kernels, for dQ and for dK and dV.

    Parameters
    ----------
    q : array [batch, heads, q_len, head_dim]
        fp32, bf16 or fp16. fp32 products are exact to fp32, not TF32 or bf16.
    k, v : array [batch, kv_heads, kv_len, head_dim]
        Of q's type. Each KV head serves heads / kv_heads query heads. Lengths may be any; those
        that are no multiple of a block are padded, which costs a copy.
    causal : bool
        Hide keys that come later than the query. The last query sees every key.
    scale : float, optional
        1 / √head_dim if not given. Part of the program: no `jax.jit` around may trace it.
    mask : array that broadcasts to [batch, heads, q_len, kv_len], optional
        bool (True may be seen), or floats that are added to the scores, −∞ to hide. A query that
        sees no key gives zeros. A constant to the gradient.
    layout, interpret, blocks
        As in `layernorm_gelu`.

    Returns
    -------
    array [batch, heads, q_len, head_dim]
        Of q's type.

    Raises
    ------
    BadType, BadValue, UnknownName
        Shapes or types that don't fit; no such layout.

    Notes
    -----
    On a TPU a program holds K and V of one head whole in VMEM: 65536 keys of 128 bf16 compile for
    v5e and v7x. On a GPU it reads them block by block, and each block of queries does so again.

    Examples
    --------
    >>> q = jnp.ones((1, 1, 2, 4))
    >>> v = jnp.arange(8.0).reshape(1, 1, 2, 4)
    >>> attention(q, q, v, causal=True)[0, 0].tolist()
    [[0.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0]]

    Source: T. Dao et al., arXiv:2205.14135; M. Milakov, N. Gimelshein, arXiv:1805.02867.
    """
    q, k, v = (_float_array(name, given) for name, given in (("q", q), ("k", k), ("v", v)))
    for name, given in (("q", q), ("k", k), ("v", v)):
        if given.ndim != 4 or given.size == 0:
            raise BadValue(
                f"{name} must be [batch, heads, length, head_dim], none of them 0, "
                f"got shape {given.shape}"
            )
        if given.dtype != q.dtype:
            raise BadType(f"{name} must be of q's type {q.dtype}, got {given.dtype}")
    if k.shape != v.shape:
        raise BadValue(f"k and v must have one shape, got {k.shape} and {v.shape}")
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]) or q.shape[1] % k.shape[1]:
        raise BadValue(
            f"q and k must have one batch and head_dim, and heads of q must be a multiple of "
            f"those of k, got {q.shape} and {k.shape}"
        )
    factor = 1 / math.sqrt(q.shape[3]) if scale is None else _static("scale", scale)
    options = _options(layout, interpret, blocks, scale=factor, causal=flag("causal", causal))
    return _attention(q, k, v, _mask_array(mask, q, k), options)


def _mask_array(mask: Any, q: Any, k: Any) -> Any:
    """Return the mask as floats [batch or 1, heads or 1, q_len, kv_len], or None."""
    if mask is None:
        return None
    mask = _array("mask", mask)
    full = (*q.shape[:3], k.shape[2])
    shape = (1,) * (4 - mask.ndim) + mask.shape
    if len(shape) != 4 or any(
        have not in (1, want) for have, want in zip(shape, full, strict=True)
    ):
        raise BadValue(f"mask must broadcast to {full}, got shape {mask.shape}")
    if mask.dtype == jnp.bool_:
        mask = jnp.where(mask, 0.0, -jnp.inf).astype(q.dtype)
    elif mask.dtype.name not in FLOATS:
        raise BadType(f"mask must be bool or one of {', '.join(FLOATS)}, got {mask.dtype}")
    return jnp.broadcast_to(mask.reshape(shape), (*shape[:2], *full[2:]))


# --- attention: the kernels ----------------------------------------------------------------------


def _attention_kernel(q: Any, k: Any, v: Any, *refs: Any, tile: _Tiles) -> None:
    """Walk over the keys of one block of queries; write O, and log-sum-exp where it is wanted."""
    mask, o, *lse = refs if tile.mask else (None, *refs)
    queries = q[...]
    first = tile.first_query

    def step(j: Any, carry: Any, hide: bool) -> Any:
        highest, total, sums = carry
        keys = tile.slice(k, j, tile.kv)
        scores = tile.scores(queries, keys, first, j * tile.kv, tile.mask_at(mask, j), hide)
        higher = jnp.maximum(highest, jnp.max(scores, axis=1, keepdims=True))
        origin = jnp.where(higher == -jnp.inf, 0.0, higher)  # nothing seen so far: −∞ − −∞ is NaN
        weights = jnp.exp2(scores - origin)
        shrink = jnp.exp2(highest - origin)
        values = tile.slice(v, j, tile.kv)
        sums = sums * shrink + _dot(weights.astype(values.dtype), values)
        return higher, total * shrink + _sum(weights, axis=1), sums

    nothing = jnp.full((tile.q, 1), -jnp.inf, jnp.float32)
    start = (nothing, jnp.zeros_like(nothing), jnp.zeros((tile.q, tile.head_dim), jnp.float32))
    highest, total, sums = tile.each_keys(first, step, start)
    seen = total > 0.0
    total = jnp.where(seen, total, 1.0)
    o[...] = (sums / total).astype(o.dtype)
    if lse:
        lse[0][...] = jnp.where(seen, highest + _LOG2E * jnp.log(total), 0.0).T


def _dq_kernel(
    q: Any, k: Any, v: Any, do: Any, lse: Any, delta: Any, *refs: Any, tile: _Tiles
) -> None:
    """Write dQ of one block of queries: P = 2^(S − lse), dS = P ∘ (dO·Vᵀ − δ), dQ = dS·K."""
    mask, dq = refs if tile.mask else (None, *refs)
    queries, d_out = q[...], do[...]
    log_sum, offset = lse[...].T, delta[...].T
    first = tile.first_query

    def step(j: Any, sums: Any, hide: bool) -> Any:
        keys, values = tile.slice(k, j, tile.kv), tile.slice(v, j, tile.kv)
        scores = tile.scores(queries, keys, first, j * tile.kv, tile.mask_at(mask, j), hide)
        weights = jnp.exp2(scores - log_sum)
        d_scores = weights * (_dot(d_out, values, (1, 1)) - offset)
        return sums + _dot(d_scores.astype(keys.dtype), keys)

    start = jnp.zeros((tile.q, tile.head_dim), jnp.float32)
    sums = tile.each_keys(first, step, start)
    dq[...] = (sums * tile.scale).astype(dq.dtype)


def _dkv_kernel(
    q: Any, k: Any, v: Any, do: Any, lse: Any, delta: Any, *refs: Any, tile: _Tiles
) -> None:
    """Write dK and dV of one block of keys, with the scores transposed: dV = Pᵀ·dO, dK = dSᵀ·Q."""
    mask, dk, dv = refs if tile.mask else (None, *refs)
    keys, values = k[...], v[...]
    first = tile.first_key

    def step(i: Any, carry: Any, hide: bool) -> Any:
        sums_k, sums_v = carry
        queries, d_out = tile.slice(q, i, tile.q), tile.slice(do, i, tile.q)
        at = (slice(None), pl.ds(pl.multiple_of(i * tile.q, tile.q), tile.q))
        hidden = None if mask is None else tile.slice(mask, i, tile.q)
        scores = tile.scores_transposed(keys, queries, i * tile.q, first, hidden, hide)
        weights = jnp.exp2(scores - lse[at])
        sums_v += _dot(weights.astype(d_out.dtype), d_out)
        d_scores = weights * (_dot(values, d_out, (1, 1)) - delta[at])
        return sums_k + _dot(d_scores.astype(queries.dtype), queries), sums_v

    start = jnp.zeros((tile.kv, tile.head_dim), jnp.float32)
    sums_k, sums_v = tile.each_queries(first, step, (start, start))
    dk[...] = (sums_k * tile.scale).astype(dk.dtype)
    dv[...] = sums_v.astype(dv.dtype)


def _loops(
    bounds: Sequence[Any], hides: Sequence[bool], body: Callable[..., Any], carry: Any
) -> Any:
    """Loop from each bound to the next; loops that are known to be empty are left out."""
    for low, high, hide in zip(bounds, bounds[1:], hides, strict=False):
        if not (isinstance(low, int) and isinstance(high, int) and low >= high):
            carry = lax.fori_loop(low, high, functools.partial(body, hide=hide), carry)
    return carry


def _dot(a: Any, b: Any, contract: tuple[int, int] = (1, 0)) -> Any:
    """Return A·B, summed over these axes of A and B, in fp32: (1, 1) is A·Bᵀ."""
    exact = lax.Precision.HIGHEST if a.dtype == jnp.float32 else lax.Precision.DEFAULT
    return lax.dot_general(
        a,
        b,
        (((contract[0],), (contract[1],)), ((), ())),
        precision=(exact, exact),
        preferred_element_type=jnp.float32,
    )


@dataclass(frozen=True)
class _Tiles:
    """How attention is cut: blocks of `q` queries and `kv` keys, over padded lengths."""

    q: int
    kv: int
    q_len: int
    kv_len: int
    head_dim: int  # padded
    scale: float
    causal: bool
    mask: bool

    @property
    def q_padded(self) -> int:
        return _up(self.q_len, self.q)

    @property
    def kv_padded(self) -> int:
        return _up(self.kv_len, self.kv)

    @property
    def ahead(self) -> int:
        """Keys before those that the first query is aligned with – the last query sees all."""
        return self.kv_len - self.q_len

    @property
    def first_query(self) -> Any:
        return pl.program_id(2) * self.q

    @property
    def first_key(self) -> Any:
        return pl.program_id(2) * self.kv

    def each_keys(self, first_query: Any, body: Callable[..., Any], start: Any) -> Any:
        """Do ``body(j, carry, hide)`` for each block of keys that a block of queries looks at.

        Scores need hiding only in blocks that the diagonal cuts, or that end past the last key.
        Those come last, in a loop of their own; blocks beyond the diagonal are skipped.
        """
        last, whole = self.kv_padded // self.kv, self.kv_len // self.kv
        if self.causal:
            seen = first_query + self.ahead + 1  # keys that its first query sees
            whole = jnp.minimum(_quotient(seen, self.kv), whole)
            last = jnp.minimum(_quotient(seen + self.q - 1 + self.kv - 1, self.kv), last)
        return _loops((0, whole, last), (False, True), body, start)

    def each_queries(self, first_key: Any, body: Callable[..., Any], start: Any) -> Any:
        """Do ``body(i, carry, hide)`` for each block of queries that sees a block of keys.

        Keys past the last one aren't hidden: what comes out for them is cut off.
        """
        first, whole, last = 0, 0, self.q_padded // self.q
        if self.causal:
            behind = first_key - self.ahead  # the first query that sees its first key
            first = jnp.minimum(_quotient(behind, self.q), last)
            whole = jnp.minimum(_quotient(behind + self.kv - 1 + self.q - 1, self.q), last)
        return _loops((first, whole, last), (True, False), body, start)

    def slice(self, ref: Any, index: Any, length: int) -> Any:
        return ref[pl.ds(pl.multiple_of(index * length, length), length), :]

    def mask_at(self, ref: Any, j: Any) -> Any:
        if ref is None:
            return None
        return ref[:, pl.ds(pl.multiple_of(j * self.kv, self.kv), self.kv)]

    def scores(
        self, queries: Any, keys: Any, q_first: Any, kv_first: Any, mask: Any, hide: bool
    ) -> Any:
        """Return (scale · Q·Kᵀ + mask) · log₂ e [q, kv]: −∞ for a key hidden or past the end."""
        scores = _dot(queries, keys, (1, 1)) * (self.scale * _LOG2E)
        if mask is not None:
            scores += mask.astype(jnp.float32) * _LOG2E
        return self._hide(scores, q_first, kv_first, 0) if hide else scores

    def scores_transposed(
        self, keys: Any, queries: Any, q_first: Any, kv_first: Any, mask: Any, hide: bool
    ) -> Any:
        """Return the same as [kv, q]."""
        scores = _dot(keys, queries, (1, 1)) * (self.scale * _LOG2E)
        if mask is not None:
            scores += mask.astype(jnp.float32).T * _LOG2E
        return self._hide(scores, q_first, kv_first, 1) if hide else scores

    def _hide(self, scores: Any, q_first: Any, kv_first: Any, q_axis: int) -> Any:
        key = lax.broadcasted_iota(jnp.int32, scores.shape, 1 - q_axis) + kv_first
        if self.kv_padded != self.kv_len:
            scores = jnp.where(key < self.kv_len, scores, -jnp.inf)
        if self.causal:
            query = lax.broadcasted_iota(jnp.int32, scores.shape, q_axis) + q_first
            scores = jnp.where(key <= query + self.ahead, scores, -jnp.inf)
        return scores


# --- attention: calls and derivatives ------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=4)
def _attention(q: Any, k: Any, v: Any, mask: Any, options: _Options) -> Any:
    return _attention_vjp(q, k, v, mask, options)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _attention_vjp(q: Any, k: Any, v: Any, mask: Any, options: _Options) -> Any:
    call = functools.partial(_attention_call, options=options, save=False)
    return _by_platform(call, options, q, k, v, *([] if mask is None else [mask]))


def _attention_forward(q: Any, k: Any, v: Any, mask: Any, options: _Options) -> Any:
    call = functools.partial(_attention_call, options=options, save=True)
    o, lse = _by_platform(call, options, q, k, v, *([] if mask is None else [mask]))
    return o, (q, k, v, mask, o, lse)


def _attention_backward(options: _Options, saved: Any, do: Any) -> Any:
    q, k, v, mask, o, lse = saved
    delta = jnp.sum(do.astype(jnp.float32) * o.astype(jnp.float32), axis=-1)[:, :, None, :]
    arrays = (q, k, v, do, lse, delta, *([] if mask is None else [mask]))
    dq = _by_platform(functools.partial(_dq_call, options=options), options, *arrays)
    dk, dv = _by_platform(functools.partial(_dkv_call, options=options), options, *arrays)
    return dq, dk, dv, None


_attention_vjp.defvjp(_attention_forward, _attention_backward)


def _attention_call(
    q: Any, k: Any, v: Any, *mask: Any, options: _Options, save: bool, layout: str, interpret: bool
) -> Any:
    tile = _tiles(options, layout, q, k, bool(mask), "forward")
    batch, heads, q_len, head_dim = q.shape
    block, keys = _block(tile.q, tile), _whole(tile.kv_padded, tile, q, k)
    shapes = [jax.ShapeDtypeStruct((batch, heads, tile.q_padded, tile.head_dim), q.dtype)]
    results = [block]
    if save:
        shapes.append(jax.ShapeDtypeStruct((batch, heads, 1, tile.q_padded), jnp.float32))
        results.append(_row_of(tile))
    o, *lse = pl.pallas_call(
        functools.partial(_attention_kernel, tile=tile),
        grid=(batch, heads, tile.q_padded // tile.q),
        in_specs=[block, keys, keys, *_mask_specs(mask, (tile.q, tile.kv_padded), False)],
        out_specs=results,
        out_shape=shapes,
        name="attention_kernel",
        **_attention_options(options, layout, interpret, tile, q, k),
    )(*_padded(tile, (q,), (k, v)), *_padded_masks(tile, mask))
    o = o[:, :, :q_len, :head_dim]
    return (o, lse[0][..., :q_len]) if save else o


def _dq_call(*arrays: Any, options: _Options, layout: str, interpret: bool) -> Any:
    q, k, v, do, lse, delta, *mask = arrays
    tile = _tiles(options, layout, q, k, bool(mask), "dq")
    batch, heads, q_len, head_dim = q.shape
    block, keys, row = _block(tile.q, tile), _whole(tile.kv_padded, tile, q, k), _row_of(tile)
    queries, d_out, keys_, values = _padded(tile, (q, do), (k, v))
    dq = pl.pallas_call(
        functools.partial(_dq_kernel, tile=tile),
        grid=(batch, heads, tile.q_padded // tile.q),
        in_specs=[block, keys, keys, block, row, row]
        + _mask_specs(mask, (tile.q, tile.kv_padded), False),
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(queries.shape, q.dtype),
        name="attention_dq_kernel",
        **_attention_options(options, layout, interpret, tile, q, k, "dq"),
    )(queries, keys_, values, d_out, *_padded_rows(tile, lse, delta), *_padded_masks(tile, mask))
    return dq[:, :, :q_len, :head_dim]


def _dkv_call(*arrays: Any, options: _Options, layout: str, interpret: bool) -> Any:
    q, k, v, do, lse, delta, *mask = arrays
    tile = _tiles(options, layout, q, k, bool(mask), "dkv")
    batch, kv_heads, kv_len, head_dim = k.shape
    heads, group = q.shape[1], q.shape[1] // kv_heads
    block = pl.BlockSpec(
        (None, None, tile.kv, tile.head_dim), lambda b, h, j: (b, _quotient(h, group), j, 0)
    )
    whole = _whole(tile.q_padded, tile, q, q)
    row = pl.BlockSpec((None, None, 1, tile.q_padded), lambda b, h, j: (b, h, 0, 0))
    queries, d_out, keys, values = _padded(tile, (q, do), (k, v))
    # Each query head has its own dK and dV; those that share a KV head are added afterwards
    shape = (batch, heads, tile.kv_padded, tile.head_dim)
    shares = jax.ShapeDtypeStruct(shape, k.dtype if group == 1 else jnp.float32)
    results = pl.pallas_call(
        functools.partial(_dkv_kernel, tile=tile),
        grid=(batch, heads, tile.kv_padded // tile.kv),
        in_specs=[whole, block, block, whole, row, row]
        + _mask_specs(mask, (tile.q_padded, tile.kv), True),
        out_specs=[_block(tile.kv, tile)] * 2,
        out_shape=[shares, shares],
        name="attention_dkv_kernel",
        **_attention_options(options, layout, interpret, tile, q, k, "dkv"),
    )(queries, keys, values, d_out, *_padded_rows(tile, lse, delta), *_padded_masks(tile, mask))
    if group > 1:
        grouped = (each.reshape(batch, kv_heads, group, *shape[2:]) for each in results)
        results = [jnp.sum(each, axis=2).astype(k.dtype) for each in grouped]
    return tuple(each[:, :, :kv_len, :head_dim] for each in results)


def _block(length: int, tile: _Tiles) -> Any:
    """Return the spec of one block of rows of [batch, heads, length, head_dim]."""
    return pl.BlockSpec((None, None, length, tile.head_dim), lambda b, h, i: (b, h, i, 0))


def _whole(length: int, tile: _Tiles, q: Any, array: Any) -> Any:
    """Return the spec of all rows of a head: a TPU copies them once for all its programs."""
    group = q.shape[1] // array.shape[1]
    return pl.BlockSpec(
        (None, None, length, tile.head_dim), lambda b, h, i: (b, _quotient(h, group), 0, 0)
    )


def _row_of(tile: _Tiles) -> Any:
    """Return the spec of one number a query: [batch, heads, 1, q_len]."""
    return pl.BlockSpec((None, None, 1, tile.q), lambda b, h, i: (b, h, 0, i))


def _mask_specs(masks: Sequence[Any], block: tuple[int, int], by_key: bool) -> list[Any]:
    def spec(mask: Any) -> Any:
        batch, heads = mask.shape[0] > 1, mask.shape[1] > 1

        def place(b: Any, h: Any, i: Any) -> Any:
            return b if batch else 0, h if heads else 0, 0 if by_key else i, i if by_key else 0

        return pl.BlockSpec((None, None, *block), place)

    return [spec(mask) for mask in masks]


def _padded(tile: _Tiles, queries: Sequence[Any], keys: Sequence[Any]) -> list[Any]:
    """Return them with whole blocks of rows and columns, zeros where there was nothing."""
    lengths = [tile.q_padded] * len(queries) + [tile.kv_padded] * len(keys)
    return [
        _grown(each, length, tile.head_dim)
        for each, length in zip((*queries, *keys), lengths, strict=True)
    ]


def _padded_rows(tile: _Tiles, *rows: Any) -> list[Any]:
    return [_grown(each, 1, tile.q_padded) for each in rows]


def _padded_masks(tile: _Tiles, masks: Sequence[Any]) -> list[Any]:
    return [_grown(each, tile.q_padded, tile.kv_padded) for each in masks]


def _grown(array: Any, rows: int, columns: int) -> Any:
    more = (rows - array.shape[2], columns - array.shape[3])
    return jnp.pad(array, [(0, 0), (0, 0), (0, more[0]), (0, more[1])]) if any(more) else array


def _attention_options(
    options: _Options,
    layout: str,
    interpret: bool,
    tile: _Tiles,
    q: Any,
    k: Any,
    kind: str = "forward",
) -> dict[str, Any]:
    job = _attention_work(q, k, options, kind)
    return _call_options(options, layout, interpret, job, 4, _attention_vmem(tile, q))


def _tiles(options: _Options, layout: str, q: Any, k: Any, mask: bool, kind: str) -> _Tiles:
    """Choose how to cut attention, for the "forward", "dq" or "dkv" kernel."""
    if layout == "gpu":
        head_dim, least = max(16, pl.next_power_of_2(q.shape[3])), 16
        large = q.dtype == jnp.float32 or head_dim > 128
        most_q, most_kv = (32, 32) if large else _GPU_TILES[kind]
    else:
        head_dim, least = q.shape[3], _LANES
        most_q, most_kv = 256, 512 if kind == "forward" else 256
    return _Tiles(
        q=options.blocks.q or max(least, min(most_q, pl.next_power_of_2(q.shape[2]))),
        kv=options.blocks.kv or max(least, min(most_kv, pl.next_power_of_2(k.shape[2]))),
        q_len=q.shape[2],
        kv_len=k.shape[2],
        head_dim=head_dim,
        scale=options.scale,
        causal=options.causal,
        mask=mask,
    )


def _attention_vmem(tile: _Tiles, q: Any) -> int:
    """Return the bytes of VMEM: K and V whole, twice, a row of mask, and blocks of scores."""
    lanes, longest = _up(tile.head_dim, _LANES), max(tile.q_padded, tile.kv_padded)
    itemsize: int = q.dtype.itemsize
    whole = 2 * 2 * longest * lanes * itemsize + 4 * longest * _SUBLANES * 4
    blocks = 8 * max(tile.q, tile.kv) * lanes * 4 + 6 * tile.q * tile.kv * 4
    return whole + blocks + (2 * longest * max(tile.q, tile.kv) * 4 if tile.mask else 0)


def _attention_work(q: Any, k: Any, options: _Options, kind: str) -> work.Work:
    """Count a kernel: of the products of the forward one, 2, those for dQ are 3, dK and dV 4."""
    batch, heads, q_len, head_dim = q.shape
    causal = options.causal and q_len <= k.shape[2]
    job = work.flash_attention(
        batch, q_len, k.shape[2], heads, head_dim, k.shape[1], q.dtype, causal=causal
    )
    if kind == "forward":
        return job
    queries, keys = job.reads["q"], job.reads["k"]
    return replace(
        job,
        name=kind,
        reads={**job.reads, "dO": queries, "lse, δ": 2 * 4 * batch * heads * q_len},
        writes={"dQ": queries} if kind == "dq" else {"dK": keys, "dV": keys},
        matrix_flops=job.matrix_flops * (3 if kind == "dq" else 4) // 2,
        passes={},
    )


# --- what both share -----------------------------------------------------------------------------


def _by_platform(call: Any, options: _Options, *arrays: Any) -> Any:
    """Call with the layout of the platform that the program is lowered for."""

    def on(layout: str, interpret: bool) -> Any:
        return functools.partial(
            call,
            layout=options.layout or layout,
            interpret=interpret if options.interpret is None else options.interpret,
        )

    if options.layout is not None and options.interpret is not None:
        return on(options.layout, options.interpret)(*arrays)
    return lax.platform_dependent(
        *arrays,
        cpu=on("tpu", True),
        tpu=on("tpu", False),
        cuda=on("gpu", False),
        rocm=on("gpu", False),
    )


def _call_options(
    options: _Options, layout: str, interpret: bool, job: Any, warps: int, vmem: int
) -> dict[str, Any]:
    """Return what the compiler is told: cost, and how much of the machine a program takes."""
    cost = pl.CostEstimate(
        flops=int(job.flops),
        bytes_accessed=int(job.bytes),
        transcendentals=int(job.transcendentals),
    )
    told: dict[str, Any] = {"interpret": interpret, "cost_estimate": cost}
    if interpret:
        return told
    if layout == "gpu":
        told["compiler_params"] = _triton().CompilerParams(
            num_warps=options.blocks.warps or warps, num_stages=options.blocks.stages or 2
        )
        return told
    tpu = importlib.import_module("jax.experimental.pallas.tpu")
    told["compiler_params"] = tpu.CompilerParams(
        vmem_limit_bytes=min(max(16 * 2**20, vmem + vmem // 2), _VMEM_MOST)
    )
    return told


def _triton() -> Any:
    """Return Pallas' Triton module: not on every platform, so imported when needed."""
    return importlib.import_module("jax.experimental.pallas.triton")


def _quotient(index: Any, size: int) -> Any:
    """Return max(index, 0) // size of a traced index: `//` would ask for its sign, too."""
    return lax.div(jnp.maximum(index, 0), jnp.int32(size))


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _as_rows(x: Any) -> Any:
    return x.reshape(-1, x.shape[-1])


def _options(
    layout: Any, interpret: Any, blocks: Any, *, eps: Any = 1e-5, **others: Any
) -> _Options:
    if blocks is not None and not isinstance(blocks, Blocks):
        raise BadType(f"blocks must be a Blocks, got {shown(blocks)}")
    return _Options(
        eps=single("eps", eps, zero=True),
        layout=None if layout is None else name_of("layout", layout, LAYOUTS),
        interpret=None if interpret is None else flag("interpret", interpret),
        blocks=blocks or Blocks(),
        **others,
    )


def _array(name: str, given: Any) -> Any:
    if not isinstance(given, jax.Array | np.ndarray):
        raise BadType(f"{name} must be a JAX or NumPy array, got {shown(given)}")
    return jnp.asarray(given)


def _static(name: str, given: Any) -> float:
    try:
        return finite(name, given)
    except TypeError:  # BadType is one, and so is JAX's for a traced value
        wanted = "one number, static under jax.jit"
        raise BadType(f"{name} must be {wanted}, got {shown(given)}") from None


def _float_array(name: str, given: Any) -> Any:
    array = _array(name, given)
    if array.dtype.name not in FLOATS:
        raise BadType(f"{name} must be of type {', '.join(FLOATS)}, got {array.dtype.name}")
    return array


def _row_arguments(x: Any, gamma: Any, beta: Any) -> tuple[Any, Any, Any]:
    x = _float_array("x", x)
    if x.ndim == 0 or x.size == 0:
        raise BadValue(f"x must have a last axis and at least one element, got shape {x.shape}")
    gamma, beta = _float_array("gamma", gamma), _float_array("beta", beta)
    for name, given in (("gamma", gamma), ("beta", beta)):
        if given.shape != x.shape[-1:]:
            raise BadValue(f"{name} must have shape {x.shape[-1:]}, got {given.shape}")
    return x, gamma, beta
