"""What the tests of the Pallas kernels share: tolerances, references, quick compilation, TPUs."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: no kernel can run")
jnp = jax.numpy

# Of numbers of about 1: some roundings of the type, of the many inside in fp32
TOLERANCES = {"float32": 3e-5, "float16": 4e-3, "bfloat16": 2e-2}
RATE = 0.25
KEEP = 1 / (1 - RATE)
# The quickest to compile, which is most of the time here: what comes out runs once
QUICK = {"xla_backend_optimization_level": 0}
QUICK |= {"xla_cpu_parallel_codegen_split_count": 1, "xla_llvm_disable_expensive_passes": True}


def x64():
    """Return a context in which JAX computes in fp64."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # before JAX 0.8

    return enable_x64()


def compiled_quickly(function, *arrays):
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    return jitted.lower(*arrays).compile(compiler_options=QUICK)(*arrays)


def wide(array):
    return np.asarray(array.astype("float32") if hasattr(array, "astype") else array, np.float64)


def near(result, wanted):
    """Assert that all elements are as near as the result's type allows; NaN never is."""
    assert result.shape == np.shape(wanted)
    error = np.max(np.abs(wide(result) - wanted), initial=0)
    assert error <= TOLERANCES[str(result.dtype)] * (1 + np.max(np.abs(wanted), initial=0))


def chain_arrays(shape, dtype, mean=0.0, mask="int8", seed=0):
    """Return x, γ, β, mask, residual and dy."""
    rng = np.random.default_rng([seed, *shape])
    kept = jnp.asarray(rng.random(shape) > RATE, mask)
    x, residual, dy = (jnp.asarray(rng.normal(size=shape), dtype) for _ in range(3))
    gamma, beta = (jnp.asarray(rng.normal(size=shape[-1:]), dtype) for _ in range(2))
    if mean:
        x = jnp.asarray(mean + rng.normal(size=shape), dtype)
    return [x, gamma, beta, kept, residual, dy]


def spec(*shape, dtype="bfloat16"):
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


def total(arrays):
    return sum(jnp.sum(leaf.astype(jnp.float32)) for leaf in jax.tree.leaves(arrays))
