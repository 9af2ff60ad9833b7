"""A small transformer in JAX: a training step, attention, an append to a cache, a sharded layer."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

HEADS, HEAD = 8, 128
RATE = 1e-3
SLOPES = 0.5 ** np.arange(1, HEADS + 1)


def normed(x, scale):
    wide = x.astype(jnp.float32)
    mean = (wide * wide).mean(-1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean + 1e-6)).astype(x.dtype) * scale


def feed_forward(x, layer):
    with jax.named_scope("mlp"):
        hidden = normed(x, layer["scale"]) @ layer["up"]
        hidden = jax.nn.relu(hidden)
        return x + hidden @ layer["down"], None


def loss(params, x, wanted):
    x, _ = jax.lax.scan(feed_forward, x, params)
    with jax.named_scope("loss"):
        return jnp.square(x - wanted).astype(jnp.float32).mean()


@functools.partial(jax.jit, donate_argnums=0)
def train_step(params, x, wanted):
    """One step of gradient descent: the new parameters take the place of the old ones."""
    gradients = jax.grad(loss)(params, x, wanted)
    with jax.named_scope("update"):
        return jax.tree.map(lambda p, g: p - RATE * g, params, gradients)


def attention(layer, x):
    batch, length, width = x.shape
    with jax.named_scope("heads"):
        q = (x @ layer["q"]).reshape(batch, length, HEADS, HEAD)
        k = (x @ layer["k"]).reshape(batch, length, HEADS, HEAD)
        v = (x @ layer["v"]).reshape(batch, length, HEADS, HEAD)
    with jax.named_scope("scores"):
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / HEAD**0.5
        distance = jnp.arange(length)[None, :] - jnp.arange(length)[:, None]
        bias = (SLOPES[:, None, None] * distance).astype(scores.dtype)
        weights = jax.nn.softmax(jnp.where(distance <= 0, scores + bias, -1e9), axis=-1)
    with jax.named_scope("mixed"):
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
        return mixed.reshape(batch, length, width) @ layer["out"]


@functools.partial(jax.jit, donate_argnums=0)
def append(cache, row, position):
    """Write a token's keys into their cache, in place."""
    with jax.named_scope("cache"):
        return jax.lax.dynamic_update_slice(cache, row[:, None], (0, position, 0, 0))


def sharded_layer(layer, x):
    """The feed-forward layer over a mesh: tokens along "data", hidden units along "model"."""
    with jax.named_scope("sharded"):
        hidden = jax.nn.relu(x @ layer["up"])
        hidden = jax.lax.with_sharding_constraint(hidden, P("data", "model"))
        return hidden @ layer["down"]
