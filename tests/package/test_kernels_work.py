"""What the kernels tell compilers about themselves, held against what they do."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_suite import KEEP, jax, jnp, spec

from roofline_helpers import kernels
from roofline_helpers.kernels.launch import LAYOUTS
from roofline_helpers.kernels.layernorm import backward_work


def calls(jaxpr: Any) -> list[Any]:
    """The calls of Pallas kernels in a jaxpr, and in those inside it."""
    equations = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "pallas_call":
            equations.append(equation)
            continue
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            equations += calls(inner) if hasattr(inner, "eqns") else []
    return equations


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_attention_are_those_that_its_kernels_do(layout: str) -> None:
    heads, length, width = 2, 256, 128
    q = spec(1, heads, length, width, dtype="float32")

    def loss(q: Any, k: Any, v: Any) -> Any:
        return kernels.attention(q, k, v, layout=layout, interpret=True).sum()

    products = {}
    for call in calls(jax.make_jaxpr(jax.value_and_grad(loss, (0, 1, 2)))(q, q, q).jaxpr):
        product = 2 * heads * length * length * width
        declared = round(call.params["cost_estimate"].flops / product)  # the softmax is some 2 %
        products[declared] = str(call.params["jaxpr"]).count("dot_general")
    assert products == {2: 2, 3: 3, 4: 4}


def test_flops_of_the_backward_chain_are_near_those_of_xla() -> None:
    shape = (64, 512)
    x, vector = spec(*shape, dtype="float32"), spec(shape[1], dtype="float32")

    def chain(x: Any, gamma: Any, beta: Any, mask: Any) -> Any:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
        u = centred * jax.lax.rsqrt(variance + 1e-5) * gamma + beta
        return jax.nn.gelu(u) * mask * KEEP

    def gradient(x: Any, gamma: Any, beta: Any, mask: Any, dy: Any) -> Any:
        return jax.vjp(lambda *args: chain(*args, mask), x, gamma, beta)[1](dy)

    counted = jax.jit(gradient).lower(x, vector, vector, x, x).cost_analysis()["flops"]
    ours = backward_work([x, vector, vector, x, x], 1).flops
    assert ours == pytest.approx(counted, rel=0.25)
