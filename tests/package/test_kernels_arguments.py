"""What the kernels refuse, in the package's own words."""

from __future__ import annotations

import math
from typing import Any

import pytest
from kernel_suite import jax, jnp

from roofline_helpers import kernels
from roofline_helpers._checks import BadType, BadValue, UnknownName

X = jnp.ones((4, 8))
V = jnp.ones(8)
Q = jnp.ones((1, 2, 4, 8))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: kernels.layernorm_gelu([1.0], V, V), BadType, "x must be a JAX or NumPy array"),
        (lambda: kernels.layernorm_gelu(X.astype(int), V, V), BadType, "float32, bfloat16"),
        (lambda: kernels.layernorm_gelu(X[:0], V, V), BadValue, "at least one element"),
        (lambda: kernels.layernorm_gelu(X, V[:5], V), BadValue, r"gamma must have shape \(8,\)"),
        (lambda: kernels.layernorm_gelu(X, V, V, eps=-1.0), BadValue, "eps"),
        (lambda: kernels.layernorm_gelu(X, V, V, layout="gpus"), UnknownName, "Nearest: 'gpu'"),
        (lambda: kernels.layernorm_gelu(X, V, V, interpret="yes"), BadType, "True or False"),
        (lambda: kernels.layernorm_gelu(X, V, V, blocks=4), BadType, "Blocks"),
        (
            lambda: kernels.layernorm_gelu_dropout_residual(X, V, V, X, X, rate=1.0),
            BadValue,
            "rate must be from 0 to below 1",
        ),
        (
            lambda: kernels.layernorm_gelu_dropout_residual(X, V, V, X[0], X, rate=0.1),
            BadValue,
            r"mask must have x's shape \(4, 8\)",
        ),
        (lambda: kernels.attention(Q[0], Q, Q), BadValue, "batch, heads, length, head_dim"),
        (lambda: kernels.attention(Q, Q.astype("bfloat16"), Q), BadType, "of q's type"),
        (lambda: kernels.attention(Q, Q, Q[:, :1]), BadValue, "one shape"),
        (lambda: kernels.attention(Q[:, :1], Q, Q), BadValue, "multiple"),
        (lambda: kernels.attention(Q, Q, Q, mask=X), BadValue, r"broadcast to \(1, 2, 4, 4\)"),
        (lambda: kernels.attention(Q, Q, Q, mask=X[:, :4].astype(int)), BadType, "mask must be"),
        (lambda: kernels.attention(Q, Q, Q, scale=math.inf), BadValue, "scale"),
        (
            lambda: kernels.attention(Q, Q, Q, scale="x"),
            BadType,
            r"scale must be one .*'x' \(str\)",
        ),
        (lambda: kernels.attention(Q, Q, Q, scale=X), BadType, "scale must be one number"),
        (
            lambda: jax.jit(lambda s: kernels.attention(Q, Q, Q, scale=s))(2.0),
            BadType,
            "scale must be one number, static under jax.jit",
        ),
        (
            lambda: kernels.layernorm_gelu(X, V, V, layout="gpu", blocks=kernels.Blocks(step=24)),
            BadValue,
            "power of two of rows, got a step of 24",
        ),
        (lambda: kernels.Blocks(q=20), BadValue, "power of two from 16"),
        (lambda: kernels.Blocks(rows=0), BadValue, "rows"),
    ],
)
def test_what_is_refused(call: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        call()
