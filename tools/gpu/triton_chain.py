# mypy: ignore-errors
"""LayerNorm → GELU → dropout → residual as one Triton kernel: what the Pallas one is held against.

One program a row, the row in registers, arithmetic in fp32.
"""

import ctypes

import triton
import triton.language as tl

CARVEOUT = 9  # CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT of the CUDA driver


@triton.jit
def kernel(x, gamma, beta, mask, residual, y, n, eps, keep, BLOCK: tl.constexpr):
    """Write residual + gelu(layernorm(x)) · mask · keep for one row of n elements."""
    at = tl.arange(0, BLOCK)
    inside = at < n
    row = tl.program_id(0).to(tl.int64) * n
    v = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    kept = tl.load(mask + row + at, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(residual + row + at, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, v - tl.sum(v, 0) / n, 0.0)
    v = centred / tl.sqrt(tl.sum(centred * centred, 0) / n + eps)
    v = v * tl.load(gamma + at, mask=inside, other=0.0).to(tl.float32)
    v = v + tl.load(beta + at, mask=inside, other=0.0).to(tl.float32)
    # gelu(v) = v · (1 + tanh t)/2 = v · σ(2t) with t = √(2/π) (v + 0.044715 v³)
    v = v * tl.sigmoid(1.5957691216057308 * (v + 0.044715 * v * v * v))
    tl.store(y + row + at, (r + v * kept * keep).to(y.dtype.element_ty), mask=inside)


def start(x, gamma, beta, mask, residual, eps, rate, empty_like, shared=-1):
    """Return a function that runs the kernel on these tensors and returns its result.

    `shared` is the percentage of an SM's L1 cache that is set apart as shared memory; −1 leaves
    it to the driver, which keeps nearly all as cache for this kernel. XLA launches with 100.
    """
    rows, n = x.shape
    y = empty_like(x)
    block = triton.next_power_of_2(n)

    def launch():
        return kernel[(rows,)](
            x, gamma, beta, mask, residual, y, n, eps, 1 / (1 - rate), BLOCK=block, num_warps=8
        )

    def call():
        launch()
        return y

    handle = ctypes.c_void_p(launch().function)
    error = ctypes.CDLL("libcuda.so.1").cuFuncSetAttribute(handle, CARVEOUT, shared)
    if error:
        raise RuntimeError(f"the driver refused a carve-out of {shared}: error {error}")
    return call
