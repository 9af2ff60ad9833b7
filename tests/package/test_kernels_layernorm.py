"""The LayerNorm kernels, interpreted, against fp64 references (tolerances: `kernel_suite`)."""

import math

import numpy as np
import pytest
from kernel_suite import KEEP, RATE, chain_arrays, compiled_quickly, jax, jnp, near, wide, x64

from roofline import kernels

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hasty")]  # kernels are interpreted


def chain(x, gamma, beta, mask, residual):
    """Compute the chain in plain JAX, in the type that the arrays have."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    u = centred / jnp.sqrt(variance + 1e-5) * gamma + beta
    gelu = 0.5 * u * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
    return residual + gelu * mask * KEEP


def chain_reference(arrays):
    """Return y, dx, dγ, dβ and d residual in fp64: the gradients by jax.grad."""

    def both(x, gamma, beta, mask, residual, dy):
        y, pull = jax.vjp(lambda x, g, b, r: chain(x, g, b, mask, r), x, gamma, beta, residual)
        return [y, *pull(dy)]

    with x64():
        wanted = [np.asarray(result) for result in compiled_quickly(both, *map(wide, arrays))]
    assert wanted[0].dtype == np.float64
    return wanted


def chain_results(arrays, **options):
    def both(x, gamma, beta, mask, residual, dy):
        def run(x, gamma, beta, residual):
            return kernels.layernorm_gelu_dropout_residual(
                x, gamma, beta, mask, residual, rate=RATE, interpret=True, **options
            )

        y, pull = jax.vjp(run, x, gamma, beta, residual)
        return [y, *pull(dy)]

    return list(compiled_quickly(both, *arrays))


CHAINS = [  # layout, shape, type, mask, mean
    ("tpu", (1, 1), "float32", "int8", 0.0),
    ("gpu", (530, 257), "bfloat16", "bfloat16", 0.0),  # a program walks over two rows
    ("gpu", (3, 3000), "float32", "int8", 1e4),
    ("tpu", (700, 40), "float32", "float32", -1e4),  # two programs, the last not full
]


@pytest.mark.parametrize(("layout", "shape", "dtype", "mask", "mean"), CHAINS)
def test_chain_and_its_gradients(layout, shape, dtype, mask, mean):
    arrays = chain_arrays(shape, dtype, mean, mask)
    wanted = chain_reference(arrays)
    results = chain_results(arrays, layout=layout)
    assert [str(result.dtype) for result in results] == [dtype] * 5
    for result, reference in zip(results, wanted, strict=True):
        near(result, reference)


@pytest.mark.parametrize("layout", kernels.launch.LAYOUTS)
def test_layernorm_gelu_is_the_chain_without_its_end(layout):
    arrays = chain_arrays((5, 77), "float32")
    x, gamma, beta, *_, dy = arrays
    ends = [*arrays[:3], jnp.ones_like(x) / KEEP, jnp.zeros_like(x), dy]
    wanted = chain_reference(ends)

    def both(x, gamma, beta, dy):
        def run(x, gamma, beta):
            return kernels.layernorm_gelu(x, gamma, beta, layout=layout)

        y, pull = jax.vjp(run, x, gamma, beta)
        return [y, *pull(dy)]

    for result, reference in zip(compiled_quickly(both, x, gamma, beta, dy), wanted, strict=False):
        near(result, reference)


def test_a_constant_row_gives_beta():
    x, gamma, beta, *_ = chain_arrays((3, 100), "float32")
    y = kernels.layernorm_gelu(jnp.full_like(x, 12345.678), gamma, beta)
    u = wide(beta)
    wanted = 0.5 * u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
    near(y, np.broadcast_to(wanted, x.shape))
