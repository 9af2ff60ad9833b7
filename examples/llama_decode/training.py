"""A ladder for training: one step of one of Llama-3-8B's layers, forward, backward and Adam.

from llama_decode import model, training

shape, rung = model.Llama(), training.RUNGS[-1]
state = training.state(shape)
state, loss = jax.jit(rung.step(shape), donate_argnums=0)(state, training.batch(shape, 4, 2048))
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from . import model, prefill
from .model import Array, Llama, Plain


@dataclass(frozen=True)
class Way:
    """How the training step is written.

    Parameters
    ----------
    bfloat16 : bool
        Weights are cast to bfloat16 for the products; the state stays in float32.
    remat : bool
        The backward pass computes the whole layer again.
    attention : {"einsum", "cudnn"}
        Two contractions, or one kernel.
    """

    bfloat16: bool = False
    remat: bool = True
    attention: str = "einsum"


def state(shape: Llama, seed: int = 0) -> dict[str, Any]:
    """Return weights and Adam's two moments of one layer, in float32."""
    one = model.random_weights(replace(shape, layers=1, vocabulary=8), seed)["layers"][0]
    weights = jax.tree.map(lambda w: w.astype(jnp.float32), one)
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return {"weights": weights, "mean": zeros, "square": jax.tree.map(jnp.copy, zeros)}


def batch(shape: Llama, size: int, tokens: int, seed: int = 1) -> Array:
    """Return activations [B, T, D] to train on."""
    return jax.random.normal(jax.random.key(seed), (size, tokens, shape.width), jnp.bfloat16)


def loss(shape: Llama, way: Way, weights: Any, x: Array) -> Array:
    """Return the mean square of what the layer adds to x."""
    kind = jnp.bfloat16 if way.bfloat16 else jnp.float32
    weights = jax.tree.map(lambda w: w.astype(kind), weights)
    plain = Plain(scan=False, float32=not way.bfloat16, attention=way.attention)
    one = functools.partial(prefill.layer, shape, prefill.Way(plain))
    one = jax.checkpoint(one) if way.remat else one
    y, _ = one(x.astype(kind), weights)
    return jnp.mean(jnp.square((y - x).astype(jnp.float32)))


def step(shape: Llama, way: Way, state: dict[str, Any], x: Array) -> tuple[dict[str, Any], Array]:
    """Return the state after one step of Adam, and the loss before it."""
    rate, decay, other, epsilon = 1e-4, 0.9, 0.95, 1e-8
    value, slope = jax.value_and_grad(functools.partial(loss, shape, way))(state["weights"], x)
    mean = jax.tree.map(lambda m, g: decay * m + (1 - decay) * g, state["mean"], slope)
    square = jax.tree.map(lambda s, g: other * s + (1 - other) * g * g, state["square"], slope)
    weights = jax.tree.map(
        lambda w, m, s: w - rate * m / (jnp.sqrt(s) + epsilon), state["weights"], mean, square
    )
    return {"weights": weights, "mean": mean, "square": square}, value


@dataclass(frozen=True)
class Rung:
    """One way to write the step, and what it changes about the rung before."""

    name: str
    change: str
    way: Way
    donate: bool = True

    def step(self, shape: Llama) -> Callable[..., Any]:
        """Return the function of the state and activations [B, T, D], not compiled."""
        return functools.partial(step, shape, self.way)


FIRST = Way()
NARROW = replace(FIRST, bfloat16=True)
KEPT = replace(NARROW, remat=False)
FUSED = replace(KEPT, attention="cudnn")
RUNGS = (
    Rung("as first written", "products in float32, all computed twice", FIRST, donate=False),
    Rung("in bfloat16", "weights are cast for the products", NARROW, donate=False),
    Rung("kept", "the backward pass finds what the forward pass computed", KEPT, donate=False),
    Rung("cuDNN", "attention is one kernel, backward too", FUSED, donate=False),
    Rung("donated", "the state is updated in place", FUSED),
)
