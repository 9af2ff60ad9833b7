"""LayerNorm → GELU → dropout → residual in PyTorch: one Triton kernel forward, one backward.

Copy this file. `Chain(4096)` is a Module with γ and β; `chain` is the function under it, which
autograd differentiates by the formulas in `_backward`. Tensors have shape (rows, columns); rows
stay in registers, so columns are at most 16384. Arithmetic is in fp32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 16384  # columns: a row must fit in the registers of one program
PROGRAMS = 1056  # of the backward pass: eight for each of an H200's 132 SMs
SLOPE = tl.constexpr(1.5957691216057308)  # 2 √(2/π)
CUBIC = tl.constexpr(0.044715)


@triton.jit
def _normal(v, inside, n, eps):
    """Return a row without its mean and over its standard deviation, and 1 / the latter."""
    centred = tl.where(inside, v - tl.sum(v, 0) / n, 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 0) / n + eps)
    return centred * inverse, inverse


@triton.jit
def forward_kernel(x, gamma, beta, mask, residual, y, n, eps, keep, BLOCK: tl.constexpr):
    """Write residual + gelu(layernorm(x)) · mask · keep for one row of n elements."""
    at = tl.arange(0, BLOCK)
    inside = at < n
    row = tl.program_id(0).to(tl.int64) * n
    v = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    kept = tl.load(mask + row + at, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(residual + row + at, mask=inside, other=0.0).to(tl.float32)
    normal, _ = _normal(v, inside, n, eps)
    v = normal * tl.load(gamma + at, mask=inside, other=0.0).to(tl.float32)
    v = v + tl.load(beta + at, mask=inside, other=0.0).to(tl.float32)
    # gelu(v) = v · (1 + tanh t)/2 = v · σ(2t) with t = √(2/π) (v + 0.044715 v³)
    v = v * tl.sigmoid(SLOPE * (v + CUBIC * v * v * v))
    tl.store(y + row + at, (r + v * kept * keep).to(y.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    x, gamma, beta, mask, dy, dx, dgamma, dbeta, rows, n, eps, keep,
    TURNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write dx for every PROGRAMS-th row, and this program's part of dγ and dβ.

    The forward pass saved nothing but its inputs: mean, deviation and GELU are computed again.
    """
    at = tl.arange(0, BLOCK)
    inside = at < n
    g = tl.load(gamma + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(beta + at, mask=inside, other=0.0).to(tl.float32)
    part_of_g = tl.zeros((BLOCK,), tl.float32)
    part_of_b = tl.zeros((BLOCK,), tl.float32)
    for turn in range(TURNS):
        i = tl.program_id(0) + turn * tl.num_programs(0)
        here = inside & (i < rows)
        row = i.to(tl.int64) * n
        v = tl.load(x + row + at, mask=here, other=0.0).to(tl.float32)
        kept = tl.load(mask + row + at, mask=here, other=0.0).to(tl.float32)
        d = tl.load(dy + row + at, mask=here, other=0.0).to(tl.float32) * kept * keep
        normal, inverse = _normal(v, inside, n, eps)
        u = normal * g + b
        s = tl.sigmoid(SLOPE * (u + CUBIC * u * u * u))
        d = d * (s + u * s * (1 - s) * SLOPE * (1 + 3 * CUBIC * u * u))  # · gelu'(u)
        part_of_g += d * normal
        part_of_b += d
        d = d * g
        d = inverse * (d - tl.sum(d, 0) / n - normal * (tl.sum(d * normal, 0) / n))
        tl.store(dx + row + at, d.to(dx.dtype.element_ty), mask=here)
    part = tl.program_id(0).to(tl.int64) * n
    tl.store(dgamma + part + at, part_of_g, mask=inside)
    tl.store(dbeta + part + at, part_of_b, mask=inside)


class _Chain(torch.autograd.Function):
    """The chain and its gradient, for autograd."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        x, gamma, beta, mask, residual, rate, eps = arguments
        rows, n = x.shape
        y = torch.empty_like(x)
        keep = 1 / (1 - rate)
        block = triton.next_power_of_2(n)
        forward_kernel[(rows,)](
            x, gamma, beta, mask, residual, y, n, eps, keep, BLOCK=block, num_warps=8
        )
        ctx.save_for_backward(x, gamma, beta, mask)
        ctx.keep, ctx.eps = keep, eps
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, gamma, beta, mask = ctx.saved_tensors
        dy = gradients[0].contiguous()
        rows, n = x.shape
        programs = min(rows, PROGRAMS)
        dx = torch.empty_like(x)
        parts = torch.empty((2, programs, n), dtype=torch.float32, device=x.device)
        block = triton.next_power_of_2(n)
        backward_kernel[(programs,)](
            x, gamma, beta, mask, dy, dx, parts[0], parts[1], rows, n, ctx.eps, ctx.keep,
            TURNS=triton.cdiv(rows, programs), BLOCK=block, num_warps=8,
        )  # fmt: skip
        dgamma, dbeta = parts.sum(1)
        return dx, dgamma.to(gamma.dtype), dbeta.to(beta.dtype), None, dy, None, None


def chain(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor,
    residual: Tensor,
    rate: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return residual + gelu(layernorm(x)) · mask / (1 − rate), in one kernel.

    Parameters
    ----------
    x, mask, residual : Tensor
        Shape (rows, columns), contiguous, one type; the mask has ones and zeros.
    gamma, beta : Tensor
        Shape (columns,).
    rate : float
        Share of elements that dropout sets to zero.
    eps : float
        Added to the variance.

    Raises
    ------
    ValueError
        For shapes, strides or devices that the kernel doesn't take.
    """
    if x.ndim != 2 or not 0 < x.shape[1] <= WIDEST:
        raise ValueError(f"x must have shape (rows, 1 to {WIDEST}), got {tuple(x.shape)}")
    if not 0 <= rate < 1:
        raise ValueError(f"rate must be at least 0 and below 1, got {rate}")
    tensors = {"mask": mask, "residual": residual, "gamma": gamma, "beta": beta}
    for name, tensor in tensors.items():
        wanted = x.shape if name in ("mask", "residual") else x.shape[1:]
        if tensor.shape != wanted:
            raise ValueError(f"{name} must have shape {tuple(wanted)}, got {tuple(tensor.shape)}")
    for name, tensor in {"x": x, **tensors}.items():
        if not tensor.is_contiguous() or tensor.device != x.device:
            raise ValueError(f"{name} must be contiguous and on {x.device}")
    result: Tensor = _Chain.apply(x, gamma, beta, mask, residual, rate, eps)
    return result


class Chain(torch.nn.Module):
    """LayerNorm → GELU → dropout → residual with its own γ and β.

    Parameters
    ----------
    columns : int
        Elements in a row.
    rate : float
        Dropout's rate, in training.
    eps : float
        Added to the variance.
    """

    def __init__(self, columns: int, rate: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.gamma = torch.nn.Parameter(torch.ones(columns))
        self.beta = torch.nn.Parameter(torch.zeros(columns))
        self.rate, self.eps = rate, eps

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """Return residual + dropout(gelu(layernorm(x))); without dropout in evaluation."""
        rate = self.rate if self.training else 0.0
        mask = (torch.rand_like(x, dtype=torch.float32) >= rate).to(x.dtype)
        gamma, beta = self.gamma.to(x.dtype), self.beta.to(x.dtype)
        return chain(x, gamma, beta, mask, residual, rate, self.eps)
