"""The functions that the tests compile, with their arguments and options of `analyze`."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec


def spec(*shape: int, dtype: Any = "bfloat16") -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


def product(m: int, n: int, k: int, dtype: str = "bfloat16", out: str | None = None) -> Any:
    def matmul(a: Any, b: Any) -> Any:
        wide = "int32" if dtype == "int8" else "float32"
        product = jnp.matmul(a, b, preferred_element_type=wide if out else None)
        return product.astype(out) if out else product

    return matmul, (spec(m, k, dtype=dtype), spec(k, n, dtype=dtype)), {}


def layernorm(x: Any, gamma: Any, beta: Any) -> Any:
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5) * gamma + beta).astype(x.dtype)


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.125
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def elementwise() -> Any:
    def relu_of(x: Any, bias: Any) -> Any:
        return jax.nn.relu(x * 2 + bias)

    return relu_of, (spec(4096, 4096), spec(4096)), {}


def conv() -> Any:
    def convolution(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    return convolution, (spec(16, 28, 28, 128), spec(3, 3, 128, 128)), {}


def gather() -> Any:
    def embedding(table: Any, rows: Any) -> Any:
        return table[rows]

    return embedding, (spec(32000, 4096), spec(2048, dtype="int32")), {}


def scatter() -> Any:
    def scatter_add(table: Any, rows: Any, updates: Any) -> Any:
        return table.at[rows].add(updates)

    args = (spec(32000, 1024), spec(2048, dtype="int32"), spec(2048, 1024))
    return scatter_add, args, {"donate_argnums": 0}


def cache(donated: bool) -> Any:
    def append(cache: Any, row: Any, at: Any) -> Any:
        return jax.lax.dynamic_update_slice(cache, row, (at, 0))

    args = (spec(32768, 1024), spec(16, 1024), spec(dtype="int32"))
    return append, args, {"donate_argnums": 0} if donated else {}


def scan(layers: int) -> Any:
    def layers_of(x: Any, weights: Any) -> Any:
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0]

    return layers_of, (spec(16, 1024), spec(layers, 1024, 1024)), {}


def nested_loops() -> Any:
    def nested(x: Any, w: Any) -> Any:
        def outer(h: Any, _: Any) -> Any:
            inner = jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), h, None, length=5)[0]
            return inner * 0.5, None

        return jax.lax.scan(outer, x, None, length=4)[0]

    return nested, (spec(512, 512), spec(512, 512)), {}


def while_loop() -> Any:
    def until(x: Any, w: Any) -> Any:
        return jax.lax.while_loop(lambda h: jnp.max(h) < 1e3, lambda h: h @ w, x)

    return until, (spec(512, 512), spec(512, 512)), {}


def remat() -> Any:
    @jax.checkpoint
    def block(x: Any, w: Any) -> Any:
        return jnp.tanh(jnp.tanh(x @ w) @ w)

    def value_and_gradient(x: Any, w: Any) -> Any:
        value, pull = jax.vjp(block, x, w)
        return value, pull(value)[0]

    return value_and_gradient, (spec(512, 512), spec(512, 512)), {}


def pallas(declared: bool) -> Any:
    def body(x: Any, y: Any, out: Any) -> None:
        out[...] = x[...] * 2 + y[...]

    block = pl.BlockSpec((128, 1024), lambda i: (i, 0))
    n = 1024 * 1024
    cost = pl.CostEstimate(flops=2 * n, bytes_accessed=12 * n, transcendentals=0)

    def fused(x: Any, y: Any) -> Any:
        return pl.pallas_call(
            body,
            grid=(8,),
            in_specs=[block, block],
            out_specs=block,
            out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
            cost_estimate=cost if declared else None,
            name="fused",
        )(x, y)

    return fused, (spec(1024, 1024, dtype="float32"),) * 2, {}


def mesh(*sizes: int) -> Any:
    """Return an abstract mesh of axes "data" and "model": it needs no devices."""
    return AbstractMesh(sizes, ("data", "model")[: len(sizes)])


def sharded(shape: tuple[int, ...], *spec: Any) -> Any:
    """Return a bf16 array spread over a 2 × 2 mesh."""
    placed = NamedSharding(mesh(2, 2), PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(shape, jax.numpy.bfloat16, sharding=placed)


def sharded_product() -> Any:
    def matmul(a: Any, b: Any) -> Any:
        return a @ b

    return matmul, (sharded((2048, 2048), None, "model"), sharded((2048, 2048), "model", None)), {}
