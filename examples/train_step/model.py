"""One training step of a Llama-shaped model over several GPUs, in as many ways as `Way` has fields.

`step` with the default `Way` is the step as a person first writes it: FSDP by shardings alone, the
layers in a scan, attention as books write it, all logits at once, everything computed twice. What
the ladder in `rungs` changes about it one by one is a field of `Way`.

Weights and Adam's moments are float32 and sharded; the matmuls compute in bfloat16.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from examples.llama_decode.model import Llama, angles, rms_norm, rotate

Array: TypeAlias = jax.Array
Weights: TypeAlias = dict[str, Any]

FSDP, TENSOR = "fsdp", "tensor"
"""The mesh's axes: the batch and the weights are cut along the first, widths along the second."""

SPLIT = {
    "q": 1, "k": 1, "v": 1, "o": 0, "gate": 1, "up": 1, "down": 0, "norm1": None, "norm2": None
}  # fmt: skip
"""A layer's arrays, and the axis of [inputs, outputs] that tensor parallelism cuts."""


@dataclass(frozen=True)
class Way:
    """How the training step is written.

    Parameters
    ----------
    scan : bool
        The layers are one `lax.scan` over stacked weights.
    attention : {"einsum", "cudnn"}
        Two contractions with float32 scores between them, or one kernel.
    gathered : bool
        Every device gathers a layer's weights in its own program (`shard_map`), so that gradients
        leave by reduce-scatter; otherwise shardings say where arrays lie, and the compiler how.
    chunks : int
        The loss takes the tokens in so many parts, and works out their gradient at once; 0 holds
        all logits.
    keep : {"nothing", "matmuls", "all"}
        What the backward pass finds: nothing but a layer's input, the matmuls' and attention's
        results (weights are gathered again), or all, gathered weights too.
    tensor : int
        Devices along which widths are cut; the others cut the batch and the weights.
    fp8 : bool
        The layers' matmuls compute in fp8, and their weights travel in it.
    flags : mapping of str to bool or int
        Options of the compiler.
    straggler : int
        Matmuls of 4096³ that the first device does besides, for nothing.
    """

    scan: bool = True
    attention: str = "einsum"
    gathered: bool = False
    chunks: int = 0
    keep: str = "nothing"
    tensor: int = 1
    fp8: bool = False
    flags: Mapping[str, Any] = field(default_factory=dict)
    straggler: int = 0


# --- state ----------------------------------------------------------------------------------------


def sizes(shape: Llama) -> dict[str, tuple[int, ...]]:
    """Return the shapes of one layer's arrays: matrices [inputs, outputs]."""
    wide, narrow = shape.heads * shape.head, shape.groups * shape.head
    d, h = shape.width, shape.hidden
    matrices = {"q": (d, wide), "k": (d, narrow), "v": (d, narrow), "o": (wide, d)}
    matrices |= {"gate": (d, h), "up": (d, h), "down": (h, d)}
    return matrices | {"norm1": (d,), "norm2": (d,)}


def specs(way: Way, layers: int) -> Weights:
    """Return how each array of the weights lies on the mesh."""

    def one(cut: int | None) -> P:
        axes = [FSDP] if cut is None else [TENSOR, FSDP] if cut == 0 else [FSDP, TENSOR]
        return P(None, *axes) if way.scan else P(*axes)

    of_layer = {name: one(cut) for name, cut in SPLIT.items()}
    stack: Any = of_layer if way.scan else [of_layer] * layers
    ends = {"embedding": P(None, (FSDP, TENSOR)), "norm": P(FSDP), "head": P(FSDP, TENSOR)}
    return {**ends, "layers": stack}


def mesh(way: Way) -> Mesh:
    """Return all devices, as the way groups them."""
    count = len(jax.devices())
    kinds = (jax.sharding.AxisType.Auto,) * 2
    size = (count // way.tensor, way.tensor)
    return jax.make_mesh(size, (FSDP, TENSOR), axis_types=kinds)


def placed(way: Way, layers: int, on: Mesh) -> Any:
    """Return the shardings of the state that `step` takes and returns."""
    each = jax.tree.map(lambda p: NamedSharding(on, p), specs(way, layers))
    return {"weights": each, "mean": each, "square": each, "count": NamedSharding(on, P())}


def state(shape: Llama, way: Way, on: Mesh, seed: int = 0) -> Any:
    """Return weights and Adam's moments in float32, on the mesh; the same numbers in every way."""

    def draw() -> Any:
        keys = dict(
            zip(
                ["embedding", "head", *SPLIT],
                jax.random.split(jax.random.key(seed), 11),
                strict=True,
            )
        )
        # one array for all layers, whichever way holds them, so that the numbers are the same

        def drawn(name: str, *size: int) -> Array:
            x = jax.random.normal(keys[name], size, jnp.bfloat16).astype(jnp.float32)
            return x * size[-2] ** -0.5

        layers: Any = {
            name: jnp.ones((shape.layers, *size))
            if len(size) == 1
            else drawn(name, shape.layers, *size)
            for name, size in sizes(shape).items()
        }
        if not way.scan:
            layers = [jax.tree.map(lambda x, i=i: x[i], layers) for i in range(shape.layers)]
        embedding = drawn("embedding", shape.vocabulary, shape.width) * shape.vocabulary**0.5
        head = drawn("head", shape.width, shape.vocabulary)
        weights = {
            "embedding": embedding, "layers": layers, "norm": jnp.ones(shape.width), "head": head
        }  # fmt: skip
        zeros = jax.tree.map(jnp.zeros_like, weights)
        count = jnp.zeros((), jnp.int32)
        return {"weights": weights, "mean": zeros, "square": zeros, "count": count}

    return jax.jit(draw, out_shardings=placed(way, shape.layers, on))()


def batch(shape: Llama, size: int, length: int, on: Mesh, seed: int = 1) -> Array:
    """Return tokens [B, T + 1] at random, the batch cut along the mesh."""
    tokens = jax.random.randint(jax.random.key(seed), (size, length + 1), 0, shape.vocabulary)
    return jax.device_put(tokens, NamedSharding(on, P(FSDP)))


# --- one layer ------------------------------------------------------------------------------------


def attend(q: Array, k: Array, v: Array, way: Way) -> Array:
    """Return causal attention [B, T, H, head]; k and v have fewer heads."""
    if way.attention == "cudnn":
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
    repeats = q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(x, repeats, axis=2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    shares = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", shares.astype(v.dtype), v)


def before(shape: Llama, dot: Any, x: Array, w: Weights) -> tuple[Array, Array, Array]:
    """Return a layer's queries, keys and values [B, T, heads, head]."""
    y = rms_norm(x, w["norm1"], shape.epsilon)
    q, k, v = (dot(y, w[name]).reshape(*x.shape[:2], -1, shape.head) for name in "qkv")
    cos, sin = (a[:, None] for a in angles(shape, jnp.arange(x.shape[1])[:, None]))
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def after(shape: Llama, dot: Any, total: Any, x: Array, out: Array, w: Weights) -> Array:
    """Return a layer's result from its input and its attention."""
    x = x + total(dot(out.reshape(*x.shape[:2], -1), w["o"]))
    y = rms_norm(x, w["norm2"], shape.epsilon)
    return x + total(dot(jax.nn.silu(dot(y, w["gate"])) * dot(y, w["up"]), w["down"]))


def layer(
    shape: Llama, way: Way, x: Array, w: Weights, *, dot: Any = jnp.matmul, total: Any = None
) -> Array:
    """Return a layer's result [B, T, D]; `total` adds over the tensor axis what `dot` left."""
    total = total or (lambda x: x)
    first, last = functools.partial(before, shape, dot), functools.partial(after, shape, dot, total)
    if way.keep == "matmuls":
        policy = jax.checkpoint_policies.save_from_both_policies(
            jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
            jax.checkpoint_policies.save_only_these_names("product"),
        )
        first, last = (jax.checkpoint(f, policy=policy) for f in (first, last))
    return last(x, attend(*first(x, w), way), w)


def layers_of(shape: Llama, way: Way, x: Array, layers: Any, **how: Any) -> Array:
    """Return the last layer's result."""
    one = functools.partial(layer, shape, way, **how)
    one = jax.checkpoint(one) if way.keep == "nothing" else one
    if way.scan:
        return lax.scan(lambda x, w: (one(x, w), None), x, layers)[0]
    for w in layers:
        x = one(x, w)
    return x


# --- the loss -------------------------------------------------------------------------------------


def whole_loss(x: Array, head: Array, targets: Array) -> Array:
    """Return the sum of the tokens' cross-entropies, from all logits at once."""
    logits = (x @ head).astype(jnp.float32)
    right = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.sum(jax.nn.logsumexp(logits, axis=-1) - right)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def chunked_loss(x: Array, head: Array, targets: Array, chunks: int) -> Array:
    """Return the same for x [N, D], a part of the tokens at a time."""
    return _chunked(x, head, targets, chunks)[0]


def _chunked(x: Array, head: Array, targets: Array, chunks: int) -> Any:
    """Return the loss, and its gradient by x and by the head in float32."""
    wide = jnp.float32
    loss, to_head, to_x = jnp.zeros((), wide), jnp.zeros(head.shape, wide), []
    for rows, wanted in zip(jnp.split(x, chunks), jnp.split(targets, chunks), strict=True):
        logits = (rows @ head).astype(wide)
        total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        loss += jnp.sum(total[:, 0] - jnp.take_along_axis(logits, wanted[:, None], axis=-1)[:, 0])
        hit = jnp.arange(head.shape[1])[None] == wanted[:, None]
        slope = (jnp.exp(logits - total) - hit).astype(x.dtype)
        to_x.append(slope @ head.T)
        to_head += jnp.matmul(rows.T, slope, preferred_element_type=wide)
    return loss, (jnp.concatenate(to_x), to_head)


def _chunked_forward(x: Array, head: Array, targets: Array, chunks: int) -> Any:
    loss, (to_x, to_head) = _chunked(x, head, targets, chunks)
    return loss, (to_x, to_head.astype(head.dtype))


def _chunked_backward(chunks: int, saved: Any, slope: Array) -> Any:
    to_x, to_head = saved
    return slope.astype(to_x.dtype) * to_x, slope.astype(to_head.dtype) * to_head, None


chunked_loss.defvjp(_chunked_forward, _chunked_backward)


# --- matmuls in fp8 -------------------------------------------------------------------------------


def narrowed(x: Array, kind: Any, axes: Any = ()) -> tuple[Array, Array]:
    """Return x in fp8 and what to multiply it by; the largest over devices of these axes too."""
    most = jnp.max(jnp.abs(x)).astype(jnp.float32)
    most = lax.pmax(most, axes) if axes else most
    scale = jnp.maximum(most, 1e-12) / float(jnp.finfo(kind).max)
    return (x.astype(jnp.float32) / scale).astype(kind), scale


def _product8(a: Array, b: Array, scale: Array, over: tuple[int, int]) -> Array:
    """Return a and b, both in fp8, contracted over an axis of each."""
    dims = (((over[0],), (over[1],)), ((), ()))
    out = lax.dot_general(a, b, dims, preferred_element_type=jnp.bfloat16)
    return out * scale.astype(jnp.bfloat16)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def gathered_dot8(x: Array, w: Array, axis: int) -> Array:
    """Return x [N, K] · w [K, N], w's shards gathered along one of its axes, all in fp8."""
    return _dot8_forward(x, w, axis)[0]


def _dot8_forward(x: Array, w: Array, axis: int) -> Any:
    narrow, x_scale = narrowed(x, jnp.float8_e4m3fn)
    shard, w_scale = narrowed(w, jnp.float8_e4m3fn, (FSDP,))
    full = lax.all_gather(shard, FSDP, axis=axis, tiled=True)
    out = _product8(narrow, full, x_scale * w_scale, (1, 0))
    return out, (narrow, x_scale, full, w_scale)


def _dot8_backward(axis: int, saved: Any, slope: Array) -> Any:
    narrow, x_scale, full, w_scale = saved
    down, scale = narrowed(slope, jnp.float8_e5m2)
    to_x = _product8(down, full, scale * w_scale, (1, 1))
    to_w = _product8(narrow, down, x_scale * scale, (0, 0))
    return to_x, lax.psum_scatter(to_w, FSDP, scatter_dimension=axis, tiled=True)


gathered_dot8.defvjp(_dot8_forward, _dot8_backward)


# --- the loss by shardings, and by each device's own program --------------------------------------


def loss_by_shardings(shape: Llama, way: Way, on: Mesh, weights: Weights, tokens: Array) -> Array:
    """Return the mean loss; the compiler decides what travels."""
    half = jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights)

    def cut(x: Array) -> Array:
        return lax.with_sharding_constraint(x, NamedSharding(on, P(FSDP)))

    def total(x: Array) -> Array:
        return cut(x) if way.tensor > 1 else x

    x = cut(half["embedding"][tokens[:, :-1]])
    x = cut(layers_of(shape, way, x, half["layers"], total=total))
    x = rms_norm(x, half["norm"], shape.epsilon)
    return whole_loss(x, half["head"], tokens[:, 1:]) / tokens[:, 1:].size


def local_loss(shape: Llama, way: Way, count: int, weights: Weights, tokens: Array) -> Array:
    """Return this device's part of the mean loss over `count` tokens, from its shards."""
    half = jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights)

    def gather(w: Array, axis: int) -> Array:
        return lax.all_gather(w, FSDP, axis=axis, tiled=True)

    def full(w: Weights) -> Weights:
        """Gather a layer's weights, but those that the product gathers in fp8."""
        return {
            name: w[name] if way.fp8 and cut is not None else gather(w[name], 1 if cut == 0 else 0)
            for name, cut in SPLIT.items()
        }

    def dot8(x: Array, w: Array) -> Array:
        axis = 1 if w.shape[0] == x.shape[-1] else 0  # along which the weights are cut
        out = gathered_dot8(x.reshape(-1, x.shape[-1]), w, axis)
        return checkpoint_name(out, "product").reshape(*x.shape[:-1], -1)

    # every device looks all tokens up in its columns, then each batch gets its rows
    every = lax.all_gather(tokens[:, :-1], FSDP, tiled=True)
    x = lax.all_to_all(half["embedding"][every], FSDP, split_axis=0, concat_axis=2, tiled=True)
    if way.straggler:
        x = _delayed(x, way.straggler)
    one = functools.partial(layer, shape, way, dot=dot8 if way.fp8 else jnp.matmul)

    def gathers(x: Array, w: Weights) -> Array:
        return one(x, full(w))

    gathers = jax.checkpoint(gathers) if way.keep == "nothing" else gathers
    if way.scan:
        x = lax.scan(lambda x, w: (gathers(x, w), None), x, half["layers"])[0]
    else:
        for w in half["layers"]:
            x = gathers(x, w)
    x = rms_norm(x, gather(half["norm"], 0), shape.epsilon)
    head, targets = gather(half["head"], 0), tokens[:, 1:]
    if way.chunks:
        flat = x.reshape(-1, shape.width)
        return chunked_loss(flat, head, targets.reshape(-1), way.chunks) / count
    return whole_loss(x, head, targets) / count


def _delayed(x: Array, matmuls: int) -> Array:
    """Return x, on the first device after so many matmuls."""
    side = min(4096, math.isqrt(x.size))
    square = lax.stop_gradient(x).reshape(-1)[: side * side].reshape(side, side)

    def late() -> Array:
        turn = lambda _, y: (y @ square * side**-0.5).astype(x.dtype)  # noqa: E731
        return lax.fori_loop(0, matmuls, turn, square)[0, 0]

    more = lax.cond(lax.axis_index(FSDP) == 0, late, lambda: square[0, 0])
    return x + lax.stop_gradient(more) * jnp.asarray(1e-30, x.dtype)


# --- the step -------------------------------------------------------------------------------------


def adam(state: Any, slopes: Weights) -> Any:
    """Return the state after one step of Adam."""
    rate, decay, other, epsilon = 1e-4, 0.9, 0.95, 1e-8
    count = state["count"] + 1
    slopes = jax.tree.map(lambda g: g.astype(jnp.float32), slopes)
    mean = jax.tree.map(lambda m, g: decay * m + (1 - decay) * g, state["mean"], slopes)
    square = jax.tree.map(lambda s, g: other * s + (1 - other) * g * g, state["square"], slopes)
    first, second = 1 - decay**count, 1 - other**count
    weights = jax.tree.map(
        lambda w, m, s: w - rate * (m / first) / (jnp.sqrt(s / second) + epsilon),
        state["weights"],
        mean,
        square,
    )
    return {"weights": weights, "mean": mean, "square": square, "count": count}


def step(shape: Llama, way: Way, on: Mesh, tokens: tuple[int, int]) -> Callable[..., Any]:
    """Return the function of the state and tokens [B, T + 1], which gives the state and the loss.

    `tokens` is (B, T) of the whole mesh.
    """
    if not way.gathered:

        def by_shardings(state: Any, tokens: Array) -> Any:
            f = functools.partial(loss_by_shardings, shape, way, on)
            loss, slopes = jax.value_and_grad(f)(state["weights"], tokens)
            return adam(state, slopes), loss

        return by_shardings
    if way.tensor > 1:
        raise ValueError("tensor parallelism is written by shardings: gathered=False")
    count = tokens[0] * tokens[1]

    def local(state: Any, tokens: Array) -> Any:
        f = functools.partial(local_loss, shape, way, count)
        loss, slopes = jax.value_and_grad(f)(state["weights"], tokens)
        return adam(state, slopes), lax.psum(loss, FSDP)

    each = specs(way, shape.layers)
    whole = {"weights": each, "mean": each, "square": each, "count": P()}
    return jax.shard_map(
        local, mesh=on, in_specs=(whole, P(FSDP)), out_specs=(whole, P()), check_vma=False
    )


def compiled(shape: Llama, way: Way, on: Mesh, tokens: tuple[int, int]) -> Any:
    """Return the step compiled, with the state updated in place; no array is made."""
    where = placed(way, shape.layers, on)
    specs = jax.eval_shape(functools.partial(state, shape, way, on))
    args = jax.tree.map(
        lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), specs, where
    )
    cut = NamedSharding(on, P(FSDP))
    ids = jax.ShapeDtypeStruct((tokens[0], tokens[1] + 1), jnp.int32, sharding=cut)
    jitted = jax.jit(
        step(shape, way, on, tokens),
        donate_argnums=0,
        out_shardings=(where, NamedSharding(on, P())),
    )
    return jitted.lower(args, ids).compile(compiler_options=dict(way.flags) or None)
