"""What the kernels refuse, in the package's own words."""

import pytest
from kernel_suite import jnp

from roofline import kernels
from roofline_helpers.common.checks import BadType, BadValue, UnknownName

X = jnp.ones((4, 8))
V = jnp.ones(8)
Q = jnp.ones((1, 2, 4, 8))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: kernels.layernorm_gelu([1.0], V, V), BadType, "x must be a JAX or NumPy array"),
        (lambda: kernels.layernorm_gelu(X, V[:5], V), BadValue, r"gamma must have shape \(8,\)"),
        (lambda: kernels.layernorm_gelu(X, V, V, layout="gpus"), UnknownName, "Nearest: 'gpu'"),
        (
            lambda: kernels.layernorm_gelu_dropout_residual(X, V, V, X, X, rate=1.0),
            BadValue,
            "rate must be from 0 to below 1",
        ),
        (lambda: kernels.attention(Q[0], Q, Q), BadValue, "batch, heads, length, head_dim"),
        (lambda: kernels.attention(Q, Q, Q[:, :1]), BadValue, "one shape"),
    ],
)
def test_what_is_refused(call, error, match):
    with pytest.raises(error, match=match):
        call()
