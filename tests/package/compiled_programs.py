"""The functions that the tests compile, with their arguments and options of `analyze`."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec


def spec(*shape, dtype="bfloat16"):
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


def product(m, n, k, dtype="bfloat16", out=None):
    def matmul(a, b):
        wide = "int32" if dtype == "int8" else "float32"
        product = jnp.matmul(a, b, preferred_element_type=wide if out else None)
        return product.astype(out) if out else product

    return matmul, (spec(m, k, dtype=dtype), spec(k, n, dtype=dtype)), {}


def layernorm(x, gamma, beta):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5) * gamma + beta).astype(x.dtype)


def attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.125
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def elementwise():
    def relu_of(x, bias):
        return jax.nn.relu(x * 2 + bias)

    return relu_of, (spec(4096, 4096), spec(4096)), {}


def conv():
    def convolution(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    return convolution, (spec(16, 28, 28, 128), spec(3, 3, 128, 128)), {}


def gather():
    def embedding(table, rows):
        return table[rows]

    return embedding, (spec(32000, 4096), spec(2048, dtype="int32")), {}


def scatter():
    def scatter_add(table, rows, updates):
        return table.at[rows].add(updates)

    args = (spec(32000, 1024), spec(2048, dtype="int32"), spec(2048, 1024))
    return scatter_add, args, {"donate_argnums": 0}


def cache(donated):
    def append(cache, row, at):
        return jax.lax.dynamic_update_slice(cache, row, (at, 0))

    args = (spec(32768, 1024), spec(16, 1024), spec(dtype="int32"))
    return append, args, {"donate_argnums": 0} if donated else {}


def scan(layers):
    def layers_of(x, weights):
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, weights)[0]

    return layers_of, (spec(16, 1024), spec(layers, 1024, 1024)), {}


def nested_loops():
    def nested(x, w):
        def outer(h, _):
            inner = jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), h, None, length=5)[0]
            return inner * 0.5, None

        return jax.lax.scan(outer, x, None, length=4)[0]

    return nested, (spec(512, 512), spec(512, 512)), {}


def while_loop():
    def until(x, w):
        return jax.lax.while_loop(lambda h: jnp.max(h) < 1e3, lambda h: h @ w, x)

    return until, (spec(512, 512), spec(512, 512)), {}


def remat():
    @jax.checkpoint
    def block(x, w):
        return jnp.tanh(jnp.tanh(x @ w) @ w)

    def value_and_gradient(x, w):
        value, pull = jax.vjp(block, x, w)
        return value, pull(value)[0]

    return value_and_gradient, (spec(512, 512), spec(512, 512)), {}


def pallas(declared):
    def body(x, y, out):
        out[...] = x[...] * 2 + y[...]

    block = pl.BlockSpec((128, 1024), lambda i: (i, 0))
    n = 1024 * 1024
    cost = pl.CostEstimate(flops=2 * n, bytes_accessed=12 * n, transcendentals=0)

    def fused(x, y):
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


def mesh(*sizes):
    """Return an abstract mesh of axes "data" and "model": it needs no devices."""
    return AbstractMesh(sizes, ("data", "model")[: len(sizes)])


def sharded(shape, *spec):
    """Return a bf16 array spread over a 2 × 2 mesh."""
    placed = NamedSharding(mesh(2, 2), PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(shape, jax.numpy.bfloat16, sharding=placed)


def sharded_product():
    def matmul(a, b):
        return a @ b

    return matmul, (sharded((2048, 2048), None, "model"), sharded((2048, 2048), "model", None)), {}
