"""Whole models that the tests compile, with the matrix FLOPs of each counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiled_programs import array, attention, layernorm


def _block_step() -> Any:
    import jax
    import jax.numpy as jnp

    size, heads = 512, 8

    def block(p: Any, x: Any) -> Any:
        batch, length, _ = x.shape
        h = layernorm(x, p["g1"], p["b1"])
        qkv = (h @ p["wqkv"]).reshape(batch, length, 3, heads, size // heads)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        mixed = attention(q, k, v).transpose(0, 2, 1, 3).reshape(batch, length, size)
        x = x + mixed @ p["wo"]
        h = layernorm(x, p["g2"], p["b2"])
        return x + jax.nn.gelu(h @ p["w1"]) @ p["w2"]

    def step(p: Any, x: Any) -> Any:
        gradients = jax.grad(lambda p: (block(p, x).astype(jnp.float32) ** 2).mean())(p)
        return jax.tree.map(lambda w, g: (w - 0.01 * g).astype(w.dtype), p, gradients)

    shapes = {
        "g1": (size,),
        "b1": (size,),
        "g2": (size,),
        "b2": (size,),
        "wqkv": (size, 3 * size),
        "wo": (size, size),
        "w1": (size, 4 * size),
        "w2": (4 * size, size),
    }
    return step, ({name: array(*shape) for name, shape in shapes.items()}, array(1, 512, size)), {}


def _convnet_step() -> Any:
    import jax
    import jax.numpy as jnp

    def forward(p: Any, x: Any) -> Any:
        for w in p["convolutions"]:
            x = jax.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return x.mean((1, 2)) @ p["dense"]

    def gradient(p: Any, x: Any) -> Any:
        return jax.grad(lambda p: (forward(p, x).astype(jnp.float32) ** 2).mean())(p)

    weights = {
        "convolutions": [array(3, 3, 16, 32), array(3, 3, 32, 64)],
        "dense": array(64, 10),
    }
    return gradient, (weights, array(8, 32, 32, 16)), {}


def _block_matrix(chip: str, version: str) -> float:
    tokens, size, length = 512, 512, 512
    weights = 12 * size * size
    linear = 3 * 2 * tokens * weights  # forward, and two products for each backward
    attention = 2 * 2 * tokens * length * size  # QKᵀ and PV
    known = chip == "v4" or version == "0.7.2"  # else PV is inside 'online-softmax'
    forward_unknown = 0 if known else attention / 2
    return linear + 3 * attention - forward_unknown


def _convnet_matrix(chip: str, version: str) -> float:
    first = 2 * 8 * (3 * 32 - 2) ** 2 * 16 * 32
    second = 2 * 8 * (3 * 16 - 2) ** 2 * 32 * 64
    dense = 2 * 8 * 64 * 10
    return 2 * first + 3 * second + 3 * dense  # no gradient of the picture


MODELS: dict[str, tuple[Callable[[], Any], Callable[[str, str], float]]] = {
    "transformer-block-step": (_block_step, _block_matrix),
    "convnet-gradient": (_convnet_step, _convnet_matrix),
}
"""Whole models, with the matrix FLOPs counted by hand."""
