"""Layers that are cut over devices: an MLP, and a decoder's layer of attention and MLP.

A layer's function works on what one device has: it is told how partial sums are added up, and its
weights are there as its products need them. So the same lines run whole, cut, and as the
arithmetic of one part alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from roofline_helpers.models import Decoder

FSDP, TENSOR = "fsdp", "tensor"
"""Axes of the mesh: over the first go the batch and a share of every weight, over the other the
heads and the width of the MLP."""

Weights = Mapping[str, Any]
Add = Callable[[Any], Any]


@dataclass(frozen=True)
class Layer:
    """A layer of given sizes.

    Parameters
    ----------
    name : str
        With its number of tokens.
    inputs : tuple of int
        Shape of its input, and of its result: sequences or tokens first, the width last.
    matrices : mapping of str to (int, int)
        Its weights. Those of `closing` have the axis over which tensor parallelism cuts first, the
        others last: partial sums of a product with one of `closing` have to be added up.
    fn : callable
        Takes the input, the weights by name, and the function that adds up partial sums.
    heads : tuple of int
        Of queries, of keys, and the width of one; empty without attention.
    between : tuple of int
        Elements that a token reads and writes between the products: of its whole width, and of
        widths that tensor parallelism cuts. What the products' kernels do on their way isn't in it.
    """

    name: str
    inputs: tuple[int, ...]
    matrices: Mapping[str, tuple[int, int]]
    fn: Callable[[Any, Weights, Add], Any]
    closing: tuple[str, ...] = ("down",)
    heads: tuple[int, ...] = ()
    between: tuple[int, int] = (0, 0)

    @property
    def tokens(self) -> int:
        """Rows that every matrix is multiplied with."""
        return math.prod(self.inputs[:-1])

    @property
    def attention(self) -> float:
        """FLOPs of attention, over all tokens and heads: each query meets those before it."""
        if not self.heads:
            return 0.0
        sequences, length, _ = self.inputs
        return 2.0 * sequences * length * (length + 1) * self.heads[0] * self.heads[2]

    @property
    def elements(self) -> int:
        """Of all matrices."""
        return sum(rows * columns for rows, columns in self.matrices.values())

    def axes(self, name: str) -> tuple[str, str]:
        """Return the axis of the mesh over which each dimension of a matrix is cut."""
        return (TENSOR, FSDP) if name in self.closing else (FSDP, TENSOR)

    def part(self, name: str, cut: Mapping[str, int]) -> tuple[int, int]:
        """Return the shape of a device's part of a matrix, cut as often over each axis."""
        first, last = self.axes(name)
        rows, columns = self.matrices[name]
        return rows // cut.get(first, 1), columns // cut.get(last, 1)


def mlp(tokens: int, width: int, hidden: int) -> Layer:
    """Return two matrices with GELU between them."""

    def fn(x: Any, w: Weights, add: Add) -> Any:
        import jax

        return add(jax.nn.gelu(x @ w["up"]) @ w["down"])

    matrices = {"up": (width, hidden), "down": (hidden, width)}
    return Layer(f"MLP {tokens}×{width}×{hidden}", (tokens, width), matrices, fn)


def decoder_layer(model: Decoder, sequences: int, length: int) -> Layer:
    """Return one layer of a decoder as it reads prompts: all tokens of its sequences at once."""
    d, q, kv, wide = model.d_model, model.q_width, model.kv_width, model.d_ff
    matrices = {"q": (d, q), "k": (d, kv), "v": (d, kv), "o": (q, d)}
    matrices |= {"gate": (d, wide), "up": (d, wide), "down": (wide, d)}

    def fn(x: Any, w: Weights, add: Add) -> Any:
        import jax

        y = _norm(x)
        heads = (*y.shape[:2], -1, model.head_dim)
        queries, keys, values = ((y @ w[name]).reshape(heads) for name in "qkv")
        y = _attention(_turned(queries), _turned(keys), values)
        x = x + add(y.reshape(*y.shape[:2], -1) @ w["o"])
        y = _norm(x)
        return x + add((jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"])

    return Layer(
        f"{model.name} layer {sequences}×{length}",
        (sequences, length, d),
        matrices,
        fn,
        closing=("o", "down"),
        heads=(model.heads, model.kv_heads, model.head_dim),
        # norms and sums of the residual stream; queries and keys turned; gate times up
        between=(2 * 2 * d + 2 * 3 * d, 2 * (q + kv) + 3 * wide),
    )


def _norm(x: Any) -> Any:
    """Return rows of root mean square 1."""
    import jax
    import jax.numpy as jnp

    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)
    return (wide * scale).astype(x.dtype)


def _turned(x: Any) -> Any:
    """Return queries or keys, [sequence, token, head, …], turned by their place in the sequence."""
    import jax.numpy as jnp

    half = x.shape[-1] // 2
    angle = jnp.arange(x.shape[1])[:, None] * 5e5 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    low, high = jnp.split(x.astype(jnp.float32), 2, -1)
    turned = jnp.concatenate((low * cos - high * sin, high * cos + low * sin), -1)
    return turned.astype(x.dtype)


def _attention(q: Any, k: Any, v: Any) -> Any:
    """Return causal attention: one kernel where cuDNN has one, else as XLA makes it."""
    import jax

    fused = jax.default_backend() == "gpu" and q.dtype.itemsize == 2
    how: Any = "cudnn" if fused else "xla"
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=how)
