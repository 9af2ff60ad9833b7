"""The ladder: one decode step of Llama-3-8B from plain JAX to the GPU's roof, one change a rung.

from examples.llama_decode import model, steps

shape, rung = model.Llama(), steps.RUNGS[-1]
step, arguments = rung.jitted(shape), rung.arguments(shape, batch=16, tokens=2048)
logits, cache = step(*arguments)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from . import model
from .model import Array, Cache, Llama, Plain, Weights
from .plan import Cut, Kernels, Ring


def packed(weights: Weights, kernels: Kernels, batch: int) -> Weights:
    """Return the weights as the kernels stream them for so many sequences."""
    from . import hopper

    cut = {name: kernels.cut(name, batch) for name in kernels.products}

    def one(w: Weights) -> Weights:
        half = cut["gate_up"].tile // 2  # a tile: so many rows of gate, then as many of up
        gate, up = (w[name].T.reshape(-1, half, len(w[name])) for name in ("gate", "up"))
        rows = {
            "qkv": jnp.concatenate([w[name] for name in "qkv"], axis=1).T,
            "o": w["o"].T,
            "gate_up": jnp.concatenate([gate, up], axis=1).reshape(-1, gate.shape[-1]),
            "down": w["down"].T,
        }
        tiles = {name: hopper.pack(rows[name], cut[name]) for name in rows}
        return tiles | {"norm1": w["norm1"], "norm2": w["norm2"]}

    jitted = jax.jit(one)
    return {**weights, "layers": [jitted(layer) for layer in weights["layers"]]}


def kernel_layer(
    kernels: Kernels,
    stream: tuple[Array, Array, Array],
    w: Weights,
    gain: Array,
    pair: tuple[Array, Array],
    turn: tuple[Array, Array],
    position: Array,
    **how: Any,
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
    """Return what `hopper.add` makes of the layer's output, by `gain`; its keys and values."""
    from . import hopper, hopper_attention

    how = {"chain": kernels.chain, **how}
    batch = len(pair[0])

    def linear(x: Array, name: str, squares: Array | None = None, **more: Any) -> Array:
        cut = kernels.cut(name, batch)
        return hopper.linear(x, w[name], cut, squares, name=name, **more, **how)

    residual, y, squares = stream
    narrow = {"narrow": kernels.narrow}
    keys, values = map(jax.new_ref, pair)  # written in place
    splits = kernels.splits(*keys.shape[:3])
    cut: dict[str, Any] = {
        "splits": splits,
        "ring": kernels.tiles,
        "programs": kernels.programs,
    }
    parts = linear(y, "qkv", squares, **narrow)
    out = hopper_attention.attend(parts, turn, position, keys, values, **cut, **how)
    if splits > 1:
        out = hopper_attention.merge(out[0], out[1], len(y), **how)
    parts = linear(out.reshape(len(y), -1), "o", **narrow)
    residual, y, squares = hopper.add(parts, residual, w["norm2"], **how)
    parts = linear(linear(y, "gate_up", squares, swiglu=True), "down", **narrow)
    return hopper.add(parts, residual, gain, **how), (jax.freeze(keys), jax.freeze(values))


def kernel_step(
    shape: Llama,
    kernels: Kernels,
    weights: Weights,
    cache: Cache,
    tokens: Array,
    position: Array,
    **how: Any,
) -> tuple[Array, Cache]:
    """As `model.step`, by kernels. `how` goes to each of them (`interpret`, on a CPU).

    Raises
    ------
    ValueError
        A batch that the kernels can't take.
    """
    from . import hopper

    batch, layers = len(tokens), weights["layers"]
    if batch > 64 or (batch > 8 and batch % 8):
        raise ValueError(f"the kernels take 1 to 8 sequences, or 16, 24, … 64; got {batch}")
    one = jax.jit(functools.partial(kernel_layer, kernels, **how))  # lowered once for all layers
    turn = model.angles(shape, position)
    residual = weights["embedding"][tokens].astype(jnp.float32)
    residual = jnp.pad(residual, ((0, -batch % 8), (0, 0)))  # the kernels take eight rows at a time
    gains = [w["norm1"] for w in layers[1:]] + [weights["norm"]]
    y = (residual * layers[0]["norm1"].astype(jnp.float32)).astype(jnp.bfloat16)
    stream = residual, y, hopper.first_squares(residual)
    pairs = []
    for w, gain, pair in zip(layers, gains, cache, strict=True):
        stream, pair = one(stream, w, gain, pair, turn, position[None])
        pairs.append(pair)
    y = model.rms_norm(stream[0][:batch], weights["norm"], shape.epsilon)
    return y @ weights["head"], pairs


@dataclass(frozen=True)
class Rung:
    """One way to write the step, and what it changes about the rung before."""

    name: str
    change: str
    way: Plain | Kernels
    donate: bool = True

    def prepare(self, weights: Weights, batch: int) -> Weights:
        """Return the weights as `step` takes them for so many sequences."""
        if isinstance(self.way, Kernels):
            return packed(weights, self.way, batch)
        return model.prepare(weights, self.way)

    def cache(self, shape: Llama, batch: int, tokens: int) -> Cache:
        """Return a cache as `step` takes it, filled at random: the same on every rung."""
        plain = self.way if isinstance(self.way, Plain) else Plain(scan=False, by_head=True)
        return model.random_cache(shape, batch, tokens, plain)

    def arguments(self, shape: Llama, batch: int, tokens: int) -> tuple[Any, ...]:
        """Return what `jitted` is called with: weights, cache, tokens [B], the last position."""
        weights = self.prepare(model.random_weights(shape), batch)
        return weights, self.cache(shape, batch, tokens), *places(batch, tokens)

    def step(self, shape: Llama, **how: Any) -> Callable[..., tuple[Array, Cache]]:
        """Return the function of weights, cache, tokens and position, not compiled."""
        if isinstance(self.way, Kernels):
            return functools.partial(kernel_step, shape, self.way, **how)
        return functools.partial(model.step, shape, self.way)

    def jitted(self, shape: Llama) -> Any:
        """Return the step under `jax.jit`, with what it donates and its compiler's options."""
        options = {}
        if isinstance(self.way, Kernels) and self.way.chain:
            options["xla_gpu_enable_command_buffer"] = ""  # in a CUDA graph kernels don't overlap
        donated = 1 if self.donate else ()
        return jax.jit(self.step(shape), donate_argnums=donated, compiler_options=options)

    def compiled(self, shape: Llama, batch: int, tokens: int) -> Any:
        """Return the step compiled for arrays of these sizes, none of which is made."""
        specs = jax.eval_shape(lambda: self.arguments(shape, batch, tokens))
        return self.jitted(shape).lower(*specs).compile()


def places(batch: int, tokens: int) -> tuple[Array, Array]:
    """Return a token for each sequence, and the last place of a cache with room for `tokens`."""
    return jnp.arange(batch, dtype=jnp.int32), jnp.int32(tokens - 1)


FIRST = Plain()
UNROLLED = replace(FIRST, scan=False)
NARROW = replace(UNROLLED, float32=False)
BY_HEAD = replace(NARROW, by_head=True)
FUSED = replace(BY_HEAD, fused=True)
RUNGS = (
    Rung("as first written", "one scan over stacked layers and caches", FIRST, donate=False),
    Rung("unrolled", "a Python loop over the layers: no slices copied", UNROLLED, donate=False),
    Rung("donated", "the cache's buffers are handed over, not copied", UNROLLED),
    Rung("in bfloat16", "keys and values enter attention as they are", NARROW),
    Rung("by head", "the cache is [B, G, T, 128]: no transposes before the products", BY_HEAD),
    Rung("side by side", "one matmul for q, k and v, one for gate and up", FUSED),
    Rung(
        "cuDNN",
        "attention is one kernel, on a cache [B, T, G, 128]",
        replace(FUSED, by_head=False, attention="cudnn"),
    ),
    Rung(
        "own kernels", "seven kernels a layer, each streams its weights once", Kernels(chain=False)
    ),
    Rung("overlapped", "each kernel's weights are under way while the one before ends", Kernels()),
    Rung(
        "narrow sums",
        "partial sums in bfloat16; buffers and splits chosen for the batch",
        Kernels(deep=8, narrow=True, middle={"o": Cut(64, 2, depth=128, ring=Ring(6))}),
    ),
)
