"""Explanations say which argument makes JAX compile a function again."""

import jax
import jax.numpy as jnp
import pytest

from roofline.diagnosis.anew import compiled_anew, reasons_of

X = jnp.ones((64, 64))
scaled = jax.jit(lambda x, scale: x * scale)
power = jax.jit(lambda x, k: x * k, static_argnums=1)
CALLS = {
    "x is f32[65], and was f32[64]": lambda n: scaled(jnp.ones(64 + n), 2.0),
    "x is bf16[16], and was f32[16]": lambda n: scaled(
        jnp.ones(16, "bfloat16" if n else "float32"), 2.0
    ),
    "scale is f32[], and was f32[] of a weak type (a Python number)": lambda n: scaled(
        X, jnp.float32(2.0) if n else 2.0
    ),
    "a static argument is 1, and was 0": lambda n: power(X, n),
    "it is defined anew, and a new function is a new program": lambda _: jax.jit(lambda y: y + 1)(
        X
    ),
    "": lambda _: scaled(X, 2.0),
}


@pytest.mark.parametrize("reason", CALLS)
def test_the_argument_that_changed(reason):
    jax.clear_caches()
    with compiled_anew() as said:
        CALLS[reason](0)
        said.clear()
        CALLS[reason](1)
    found = reasons_of(said)
    assert [why.partition("): ")[2] for why in found] == ([reason] if reason else [])
    assert all("test_diagnosis_anew.py:" in why for why in found)
