"""Pairs of programs: one as people write it, and one repaired, which gives the same result.

`repairs` runs them. Each names the public report that shows its kind, the kind of waste in it, and
what its author expected of the repair before anything ran. Sizes are for one large GPU;
`Data(small=True)` gives tiny ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

UNUSED, ZEROS, MOVED = "computed, not used", "zeros and one-hots", "moved, not changed"
AGAIN, REPEATED, WIDER = "done again", "repeated in memory", "wider than asked"
KEPT, SMALL, SINGLE = "kept for later", "small, or waiting", "one at a time"
CLEAN = "nothing in vain"
KINDS = (UNUSED, ZEROS, MOVED, AGAIN, REPEATED, WIDER, KEPT, SMALL, SINGLE, CLEAN)

GAIN, NONE = "a gain", "no gain"

BF16, F32 = "bfloat16", "float32"


@dataclass(frozen=True)
class Program:
    """A function with its arguments.

    `donated` has the places of arguments that a call consumes, each with the place of the result
    that takes it at the next call.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    donated: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """A program and its repair.

    `make` returns both for a `Data`; `seen` are the views of the two results that have to agree
    within a `tolerance`, as a share of the largest magnitude.
    """

    name: str
    kind: str
    source: str
    expected: str
    make: Callable[[Data], tuple[Program, Program]]
    tolerance: float
    seen: tuple[Callable[[Any], Any], Callable[[Any], Any]]
    x64: bool


class Data:
    """Random arguments, the same in every run, and the sizes of a run."""

    def __init__(self, small: bool = False) -> None:
        self.small = small
        self.stream = np.random.default_rng(0)

    def size(self, *sizes: int) -> tuple[int, ...]:
        """Return sizes, a sixteenth of them in a small run, but 2 at least."""
        return tuple(max(n // 16, 2) for n in sizes) if self.small else sizes

    def normal(self, *shape: int, dtype: str = BF16, scale: float = 1.0) -> jax.Array:
        """Return normal numbers; after a million they repeat."""
        count = min(int(np.prod(shape)), 1_000_003)
        drawn = (self.stream.standard_normal(count) * scale).astype(jnp.dtype(dtype))
        return jax.device_put(np.resize(drawn, shape))

    def weight(self, *shape: int, dtype: str = BF16) -> jax.Array:
        """Return normal numbers over the square root of the last axis but one."""
        return self.normal(*shape, dtype=dtype, scale=shape[-2] ** -0.5)

    def whole(self, below: int, *shape: int) -> jax.Array:
        """Return whole numbers from 0 on."""
        return jax.device_put(self.stream.integers(0, below, shape, np.int32))


PAIRS: dict[str, Pair] = {}


def _same(result: Any) -> Any:
    return result


def pair(
    kind: str,
    source: str,
    expected: str = GAIN,
    *,
    tolerance: float = 0.02,
    seen: tuple[Callable[[Any], Any], Callable[[Any], Any]] = (_same, _same),
    x64: bool = False,
) -> Callable[[Callable[[Data], tuple[Program, Program]]], None]:
    """Return the decorator that adds a pair by the name of the function that makes it."""

    def add(make: Callable[[Data], tuple[Program, Program]]) -> None:
        name = make.__name__.replace("_", "-")
        PAIRS[name] = Pair(name, kind, source, expected, make, tolerance, seen, x64)

    return add


def _one(args: tuple[Any, ...], *fns: Callable[..., Any]) -> tuple[Program, Program]:
    before, after = fns
    return Program(before, args), Program(after, args)


def _attention() -> str:
    return "cudnn" if jax.default_backend() == "gpu" else "xla"


# --- Computed, not used --------------------------------------------------------------------------


@pair(UNUSED, "https://github.com/Blaizzy/mlx-vlm/issues/1732")
def last_logits(data: Data) -> tuple[Program, Program]:
    """Logits of a whole prompt, of which the last position is sampled from."""
    batch, (length, width, vocabulary) = 8, data.size(512, 2048, 32000)
    args = data.normal(batch, length, width), data.weight(width, vocabulary)

    def before(x: Any, w: Any) -> Any:
        logits = (x @ w).astype(jnp.float32)
        return jax.nn.log_softmax(logits[:, -1])

    def after(x: Any, w: Any) -> Any:
        logits = (x[:, -1] @ w).astype(jnp.float32)
        return jax.nn.log_softmax(logits)

    return _one(args, before, after)


@pair(UNUSED, "https://github.com/jax-ml/jax/issues/19711")
def product_trace(data: Data) -> tuple[Program, Program]:
    """The trace of a product, of which only the diagonal is summed."""
    (n,) = data.size(4096)
    args = tuple(jnp.abs(data.normal(n, n, dtype=F32)) for _ in range(2))
    return _one(args, lambda a, b: jnp.trace(a @ b), lambda a, b: jnp.sum(a * b.T))


@pair(UNUSED, "https://github.com/jax-ml/jax/issues/8409")
def vmapped_branch(data: Data) -> tuple[Program, Program]:
    """A heavy branch beside an identity under vmap: half of the examples don't need it."""
    batch, (tokens, width, hidden) = 64, data.size(512, 512, 2048)
    x, up, down = (
        data.normal(batch, tokens, width),
        data.weight(width, hidden),
        data.weight(hidden, width),
    )
    chosen = jnp.arange(batch) % 2 == 0

    def heavy(x: Any, up: Any, down: Any) -> Any:
        return jax.nn.gelu(x @ up) @ down

    def before(x: Any, chosen: Any, up: Any, down: Any) -> Any:
        def each(x: Any, chosen: Any) -> Any:
            return lax.cond(chosen, lambda x: heavy(x, up, down), lambda x: x, x)

        return jax.vmap(each)(x, chosen)

    def after(x: Any, chosen: Any, up: Any, down: Any) -> Any:
        at = jnp.flatnonzero(chosen, size=batch // 2)
        return x.at[at].set(heavy(x[at], up, down))

    return _one((x, chosen, up, down), before, after)


@pair(UNUSED, "https://github.com/jax-ml/jax/issues/3428")
def filters_by_example(data: Data) -> tuple[Program, Program]:
    """One filter for each example, as all examples with all filters and then the diagonal."""
    batch, channels, side = (4, 2, 16) if data.small else (64, 16, 64)
    x = data.normal(batch, channels, side, side, dtype=F32)
    w = data.normal(batch, channels, 5, 5, dtype=F32, scale=0.05)

    def before(x: Any, w: Any) -> Any:
        every = jnp.arange(batch)
        return lax.conv_general_dilated(x, w, (1, 1), "VALID")[every, every]

    def after(x: Any, w: Any) -> Any:
        rows = x.reshape(1, batch * channels, side, side)
        return lax.conv_general_dilated(rows, w, (1, 1), "VALID", feature_group_count=batch)[0]

    return _one((x, w), before, after)


@pair(UNUSED, "https://github.com/stumpy-dev/stumpy/issues/938")
def few_frequencies(data: Data) -> tuple[Program, Program]:
    """A whole Fourier transform for its 32 lowest frequencies."""
    rows, length = data.size(4096, 8192)
    kept = 32 if not data.small else 4

    def before(x: Any) -> Any:
        return jnp.abs(jnp.fft.rfft(x)[:, :kept])

    def after(x: Any) -> Any:
        at = jnp.arange(length)[:, None] * jnp.arange(kept) % length
        angle = at.astype(jnp.float32) * (2 * np.pi / length)
        return jnp.hypot(x @ jnp.cos(angle), x @ jnp.sin(angle))

    return _one((data.normal(rows, length, dtype=F32),), before, after)


def _drawn(result: Any) -> Any:
    return jnp.array([len(np.unique(result)), result.shape[0]], jnp.float32)


@pair(UNUSED, "https://github.com/jax-ml/jax/issues/5328", seen=(_drawn, _drawn))
def part_of_a_permutation(data: Data) -> tuple[Program, Program]:
    """A million numbers in random order, of which 500 are read: as many different ones."""
    n, kept = (4096, 50) if data.small else (1_000_000, 500)
    return _one(
        (jax.random.key(0),),
        lambda key: jax.random.permutation(key, n)[:kept],
        lambda key: lax.top_k(jax.random.uniform(key, (n,)), kept)[1],
    )


# --- Zeros and one-hots --------------------------------------------------------------------------


@pair(ZEROS, "https://github.com/google-research/bert/issues/1065")
def one_hot_lookup(data: Data) -> tuple[Program, Program]:
    """An embedding as a product with one-hot rows."""
    vocabulary, width, tokens = data.size(32000, 1024, 2048)
    args = data.normal(vocabulary, width), data.whole(vocabulary, tokens)

    def before(table: Any, tokens: Any) -> Any:
        return jax.nn.one_hot(tokens, vocabulary, dtype=table.dtype) @ table

    return _one(args, before, lambda table, tokens: table[tokens])


@pair(ZEROS, "https://github.com/jax-ml/jax/pull/20940")
def ragged_product(data: Data) -> tuple[Program, Program]:
    """Experts with as many tokens each, by the call for groups of any size."""
    experts, (tokens, width, hidden) = 16, data.size(2048, 1024, 1024)
    x, w = data.normal(tokens, width), data.weight(experts, width, hidden)
    sizes = jnp.full(experts, tokens // experts, jnp.int32)

    def after(x: Any, w: Any, sizes: Any) -> Any:
        groups = x.reshape(experts, -1, width)
        return jnp.einsum("etd,edf->etf", groups, w).reshape(tokens, hidden)

    return _one((x, w, sizes), lax.ragged_dot, after)


@pair(ZEROS, "https://github.com/PaddlePaddle/PaddleFleet/pull/796")
def one_hot_dispatch(data: Data) -> tuple[Program, Program]:
    """Tokens brought to their experts by a product with a one-hot mask."""
    experts, (tokens, capacity, width) = 16, data.size(8192, 640, 1024)
    args = data.normal(tokens, width), data.whole(experts, tokens)

    def places(expert: Any) -> Any:
        hot = jax.nn.one_hot(expert, experts, dtype=jnp.int32)
        return jnp.sum(jnp.cumsum(hot, 0) * hot, -1) - 1

    def before(x: Any, expert: Any) -> Any:
        place = jax.nn.one_hot(places(expert), capacity, dtype=x.dtype)
        mask = jax.nn.one_hot(expert, experts, dtype=x.dtype)[:, :, None] * place[:, None]
        return jnp.einsum("tec,td->ecd", mask, x)

    def after(x: Any, expert: Any) -> Any:
        place = places(expert)
        slot = jnp.where(place < capacity, expert * capacity + place, experts * capacity)
        slots = jnp.zeros(experts * capacity, jnp.int32)
        source = slots.at[slot].set(jnp.arange(1, tokens + 1), mode="drop")
        rows = jnp.where(source[:, None] > 0, x[source - 1], 0)
        return rows.reshape(experts, capacity, width)

    return _one(args, before, after)


@pair(ZEROS, "https://github.com/probabilistic-numerics/probnum/issues/210")
def kronecker(data: Data) -> tuple[Program, Program]:
    """A Kronecker product, written out before it is applied."""
    n, columns = data.size(96, 32)
    a, b = (data.weight(n, n, dtype=F32) for _ in range(2))
    x = data.normal(n * n, columns, dtype=F32)

    def after(a: Any, b: Any, x: Any) -> Any:
        inner = jnp.einsum("kl,jlm->jkm", b, x.reshape(n, n, columns))
        return jnp.einsum("ij,jkm->ikm", a, inner).reshape(n * n, columns)

    return _one((a, b, x), lambda a, b, x: jnp.kron(a, b) @ x, after)


@pair(ZEROS, "https://github.com/jax-ml/jax/issues/787")
def pair_hessian(data: Data) -> tuple[Program, Program]:
    """The Hessian of an energy of pairs, by one tangent for each coordinate."""
    n = 8 if data.small else 128
    points = data.normal(n, 3, dtype=F32)

    def distance(r: Any) -> Any:
        return jnp.sqrt(jnp.sum(r**2, -1) + 1e-2)

    def energy(c: Any) -> Any:
        return jnp.sum(distance(c[None] - c[:, None]))

    def after(c: Any) -> Any:
        each = jax.vmap(jax.vmap(jax.hessian(distance)))(c[:, None] - c[None])
        each = 2 * jnp.where(jnp.eye(n, dtype=bool)[..., None, None], 0, each)
        whole = jnp.einsum("ij,iab->ijab", jnp.eye(n), each.sum(1)) - each
        return whole.transpose(0, 2, 1, 3)

    return _one((points,), jax.jacfwd(jax.jacrev(energy)), after)


@pair(ZEROS, "https://github.com/state-spaces/s4/pull/104")
def real_fft(data: Data) -> tuple[Program, Program]:
    """A long convolution of real numbers by complex transforms, whose imaginary parts are zero."""
    rows, length = data.size(1024, 8192)
    args = data.normal(rows, length, dtype=F32), data.normal(rows, length, dtype=F32)

    def before(x: Any, k: Any) -> Any:
        product = jnp.fft.fft(x, 2 * length) * jnp.fft.fft(k, 2 * length)
        return jnp.fft.ifft(product).real[:, :length]

    def after(x: Any, k: Any) -> Any:
        product = jnp.fft.rfft(x, 2 * length) * jnp.fft.rfft(k, 2 * length)
        return jnp.fft.irfft(product, 2 * length)[:, :length]

    return _one(args, before, after)


@pair(ZEROS, "https://github.com/NVIDIA/TransformerEngine/pull/3162")
def sliding_window(data: Data) -> tuple[Program, Program]:
    """Attention in a window, as all scores and then a mask."""
    batch, heads, depth, (length, window) = 2, 8, 64, data.size(4096, 256)
    args = tuple(data.normal(batch, heads, length, depth) for _ in range(3))

    def attend(q: Any, k: Any, v: Any, near: Any) -> Any:
        scores = jnp.einsum("...qd,...kd->...qk", q, k).astype(jnp.float32) / depth**0.5
        weights = jax.nn.softmax(jnp.where(near, scores, -1e30), -1).astype(q.dtype)
        return jnp.einsum("...qk,...kd->...qd", weights, v)

    def before(q: Any, k: Any, v: Any) -> Any:
        back = jnp.arange(length)[:, None] - jnp.arange(length)
        return attend(q, k, v, (back >= 0) & (back < window))

    def after(q: Any, k: Any, v: Any) -> Any:
        def blocks(x: Any) -> Any:
            return x.reshape(batch, heads, -1, window, depth)

        def with_last(x: Any) -> Any:
            last = jnp.pad(x[:, :, :-1], ((0, 0), (0, 0), (1, 0), (0, 0), (0, 0)))
            return jnp.concatenate([last, x], 3)

        back = jnp.arange(window)[:, None] + window - jnp.arange(2 * window)
        near = (back >= 0) & (back < window)
        first = jnp.arange(length // window)[:, None, None] > 0
        near = near & (first | (jnp.arange(2 * window) >= window))
        rows = attend(blocks(q), with_last(blocks(k)), with_last(blocks(v)), near)
        return rows.reshape(batch, heads, length, depth)

    return _one(args, before, after)


@pair(ZEROS, "https://github.com/tensorflow/tensorflow/issues/30659", NONE)
def zero_upsampling(data: Data) -> tuple[Program, Program]:
    """A transposed convolution by hand, over rows and columns of zeros."""
    batch, side, channels = (2, 8, 4) if data.small else (32, 64, 64)
    x = data.normal(batch, side, side, channels)
    w = data.normal(3, 3, channels, channels, scale=0.05)
    layout = ("NHWC", "HWIO", "NHWC")

    def before(x: Any, w: Any) -> Any:
        wide = jnp.zeros((batch, 2 * side, 2 * side, channels), x.dtype).at[:, ::2, ::2].set(x)
        return lax.conv_general_dilated(wide, w, (1, 1), "SAME", dimension_numbers=layout)

    def after(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), ((1, 2), (1, 2)), lhs_dilation=(2, 2), dimension_numbers=layout
        )

    return _one((x, w), before, after)


# --- Moved, not changed --------------------------------------------------------------------------


def _decode(q: Any, k: Any, v: Any) -> Any:
    """Return one position's attention, [batch, key heads, group, depth], over a cache."""
    scores = jnp.einsum("bkgd,bktd->bkgt", q, k).astype(jnp.float32) / q.shape[-1] ** 0.5
    return jnp.einsum("bkgt,bktd->bkgd", jax.nn.softmax(scores, -1).astype(q.dtype), v)


@pair(MOVED, "https://github.com/keras-team/keras-hub/pull/2781")
def cache_rewritten(data: Data) -> tuple[Program, Program]:
    """A cache taken apart, updated and stacked again at each token."""
    batch, heads, depth, (length,) = 16, 8, 128, data.size(2048)
    cache = data.normal(2, batch, heads, length, depth)
    new = data.normal(2, batch, heads, 1, depth)
    q = data.normal(batch, heads, 4, depth)

    def before(cache: Any, new: Any, q: Any, at: Any) -> Any:
        k, v = cache[0], cache[1]
        k = lax.dynamic_update_slice(k, new[0], (0, 0, at, 0))
        v = lax.dynamic_update_slice(v, new[1], (0, 0, at, 0))
        return jnp.stack([k, v]), _decode(q, k, v)

    def after(cache: Any, new: Any, q: Any, at: Any) -> Any:
        cache = lax.dynamic_update_slice(cache, new, (0, 0, 0, at, 0))
        return cache, _decode(q, cache[0], cache[1])

    args = (cache, new, q, jnp.int32(length // 2))
    return Program(before, args, {0: 0}), Program(after, args, {0: 0})


@pair(MOVED, "https://github.com/sgl-project/sglang-jax/issues/65")
def cache_not_donated(data: Data) -> tuple[Program, Program]:
    """A cache that isn't donated, so that it is copied for the one position that changes."""
    batch, heads, depth, (length,) = 16, 8, 128, data.size(4096)
    cache, new = data.normal(batch, length, heads, depth), data.normal(batch, 1, heads, depth)
    args = (cache, new, jnp.int32(7))

    def update(cache: Any, new: Any, at: Any) -> Any:
        return lax.dynamic_update_slice(cache, new, (0, at, 0, 0))

    return Program(update, args), Program(update, args, {0: 0})


@pair(MOVED, "https://github.com/jax-ml/jax/issues/17845")
def shifted_buffer(data: Data) -> tuple[Program, Program]:
    """A history that a scan shifts by one place in each turn, where a ring moves one row."""
    steps, (rows, width) = 64, data.size(2048, 2048)
    steps = steps if not data.small else 4
    args = data.normal(rows, width, dtype=F32), data.normal(steps, width, dtype=F32)

    def before(buffer: Any, xs: Any) -> Any:
        def body(buffer: Any, x: Any) -> Any:
            new = jnp.tanh(0.5 * buffer[-1] + x)
            return jnp.concatenate([buffer[1:], new[None]]), None

        return lax.scan(body, buffer, xs)[0]

    def after(buffer: Any, xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            buffer, last, at = carry
            new = jnp.tanh(0.5 * last + x)
            return (buffer.at[at].set(new), new, at + 1), None

        ring = lax.scan(body, (buffer, buffer[-1], 0), xs)[0][0]
        return jnp.roll(ring, -steps, 0)

    return _one(args, before, after)


def _channels_last(result: Any) -> Any:
    return jnp.moveaxis(result, 1, -1)


@pair(MOVED, "https://github.com/ROCm/MIOpen/issues/2001", seen=(_channels_last, _same))
def channels_first(data: Data) -> tuple[Program, Program]:
    """Convolutions with the channels before the image, which tensor cores want last."""
    batch, channels, side = (2, 4, 8) if data.small else (32, 128, 56)
    x = data.normal(batch, channels, side, side)
    ws = [data.normal(channels, channels, 3, 3, scale=0.03) for _ in range(2)]

    def before(x: Any, ws: Any) -> Any:
        for w in ws:
            x = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME"))
        return x

    def after(x: Any, ws: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        for w in ws:
            x = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)
            x = jax.nn.relu(x)
        return x

    last = jnp.moveaxis(x, 1, -1), [jnp.transpose(w, (2, 3, 1, 0)) for w in ws]
    return Program(before, (x, ws)), Program(after, last)


@pair(MOVED, "https://github.com/keras-team/keras-hub/issues/1562")
def cache_order(data: Data) -> tuple[Program, Program]:
    """A cache with its heads behind its positions, which a product by heads has to transpose."""
    batch, heads, group, depth, (length,) = 16, 8, 4, 128, data.size(2048)
    q = data.normal(batch, heads, group, depth)
    k, v = (data.normal(batch, length, heads, depth) for _ in range(2))

    def before(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bkgd,btkd->bkgt", q, k).astype(jnp.float32) / depth**0.5
        weights = jax.nn.softmax(scores, -1).astype(q.dtype)
        return jnp.einsum("bkgt,btkd->bkgd", weights, v)

    turned = (q, jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2))
    return Program(before, (q, k, v)), Program(_decode, turned)


@pair(MOVED, "https://github.com/jax-ml/jax/issues/13356")
def stacked_weights(data: Data) -> tuple[Program, Program]:
    """A decode step's layers as a scan over stacked weights, which slices them in each turn."""
    layers, batch, (width, hidden) = 12, 16, data.size(2048, 4096)
    x = data.normal(batch, width)
    up, down = data.weight(layers, width, hidden), data.weight(layers, hidden, width)

    def layer(x: Any, w: Any) -> Any:
        return x + 0.3 * (jax.nn.gelu(x @ w[0]) @ w[1])

    def before(x: Any, ws: Any) -> Any:
        return lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0]

    def after(x: Any, ws: Any) -> Any:
        for w in ws:
            x = layer(x, w)
        return x

    apart = list(zip(list(up), list(down), strict=True))
    return Program(before, (x, (up, down))), Program(after, (x, apart))


@pair(MOVED, "https://github.com/sgl-project/sglang-jax/issues/65", NONE)
def optimiser_not_donated(data: Data) -> tuple[Program, Program]:
    """Adam without donation: it writes elsewhere, and moves as many bytes."""
    (n,) = data.size(1 << 25)
    p, m, v, g = (data.normal(n, dtype=F32) for _ in range(4))

    def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v

    args = (p, m, jnp.abs(v), g)
    return Program(adam, args), Program(adam, args, {0: 0, 1: 1, 2: 2})


# --- Done again ----------------------------------------------------------------------------------


@pair(AGAIN, "https://github.com/AI-Hypercomputer/maxtext/pull/3924")
def checkpoint_everywhere(data: Data) -> tuple[Program, Program]:
    """A checkpoint around each layer, though memory would hold what it throws away."""
    layers, (tokens, width, hidden) = 4, data.size(2048, 1024, 4096)
    x = data.normal(tokens, width)
    ws = [(data.weight(width, hidden), data.weight(hidden, width)) for _ in range(layers)]

    def layer(x: Any, w: Any) -> Any:
        return x + jax.nn.gelu(x @ w[0]) @ w[1]

    def loss(layer: Any, ws: Any, x: Any) -> Any:
        for w in ws:
            x = layer(x, w)
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    def before(ws: Any, x: Any) -> Any:
        return jax.grad(lambda ws: loss(jax.checkpoint(layer), ws, x))(ws)

    def after(ws: Any, x: Any) -> Any:
        return jax.grad(lambda ws: loss(layer, ws, x))(ws)

    return _one((ws, x), before, after)


@pair(AGAIN, "https://github.com/cactus-compute/needle/pull/44")
def whole_prefix_again(data: Data) -> tuple[Program, Program]:
    """Eight tokens, each with the keys and values of the whole prefix anew."""
    batch, steps, (prefix, width) = 8, 8, data.size(512, 1024)
    length = prefix + steps
    x = jnp.pad(data.normal(batch, prefix, width), ((0, 0), (0, steps), (0, 0)))
    wq, wk, wv = (data.weight(width, width) for _ in range(3))

    def attend(q: Any, k: Any, v: Any, at: Any) -> Any:
        scores = jnp.einsum("bd,btd->bt", q, k).astype(jnp.float32) / width**0.5
        scores = jnp.where(jnp.arange(length) <= at, scores, -1e30)
        return jnp.einsum("bt,btd->bd", jax.nn.softmax(scores, -1).astype(q.dtype), v)

    def before(x: Any, wq: Any, wk: Any, wv: Any) -> Any:
        def step(at: Any, x: Any) -> Any:
            new = attend(x[:, at] @ wq, x @ wk, x @ wv, at)
            return x.at[:, at + 1].set(new)

        return lax.fori_loop(prefix - 1, length - 1, step, x)

    def after(x: Any, wq: Any, wk: Any, wv: Any) -> Any:
        def step(at: Any, carry: Any) -> Any:
            x, k, v = carry
            new = attend(x[:, at] @ wq, k, v, at)
            k = k.at[:, at + 1].set(new @ wk)
            v = v.at[:, at + 1].set(new @ wv)
            return x.at[:, at + 1].set(new), k, v

        return lax.fori_loop(prefix - 1, length - 1, step, (x, x @ wk, x @ wv))[0]

    return _one((x, wq, wk, wv), before, after)


def _share(result: Any) -> Any:
    return jnp.mean((result != 0).astype(jnp.float32))


@pair(AGAIN, "https://github.com/pytorch/xla/issues/3868", NONE, seen=(_share, _share))
def random_bits(data: Data) -> tuple[Program, Program]:
    """A dropout mask by Threefry, and by the device's own generator: as many zeros."""
    x = data.normal(*data.size(8192, 8192))

    def dropout(key: Any, x: Any) -> Any:
        return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)

    keys = (jax.random.key(0), jax.random.key(0, impl="rbg"))
    before, after = (Program(dropout, (key, x)) for key in keys)
    return before, after


@pair(AGAIN, "https://github.com/jax-ml/jax/issues/1139")
def factorised_again(data: Data) -> tuple[Program, Program]:
    """One matrix, factorised anew for each right-hand side of a map."""
    n, sides = data.size(256, 32)
    sides = max(sides, 4)
    a = data.normal(n, n, dtype=F32, scale=0.1) + n * 0.1 * jnp.eye(n)
    b = data.normal(sides, n, dtype=F32)
    return _one(
        (a, b),
        lambda a, b: lax.map(lambda b: jnp.linalg.solve(a, b), b),
        lambda a, b: jnp.linalg.solve(a, b.T).T,
    )


@pair(AGAIN, "https://github.com/marin-community/marin/issues/1937")
def cast_again(data: Data) -> tuple[Program, Program]:
    """fp32 weights that each microbatch of a scan casts to bf16 anew."""
    batches, rows, (width,) = 16, 64, data.size(2048)
    x = data.normal(batches, rows, width)
    ws = [data.weight(width, width, dtype=F32) for _ in range(4)]

    def forward(x: Any, ws: Any) -> Any:
        for w in ws:
            x = jax.nn.relu(x @ w.astype(x.dtype))
        return x

    def before(x: Any, ws: Any) -> Any:
        return lax.scan(lambda _, x: (None, forward(x, ws)), None, x)[1]

    def after(x: Any, ws: Any) -> Any:
        narrow = lax.optimization_barrier([w.astype(x.dtype) for w in ws])
        return lax.scan(lambda _, x: (None, forward(x, narrow)), None, x)[1]

    return _one((x, ws), before, after)


@pair(AGAIN, "https://github.com/jax-ml/jax/issues/7024", NONE)
def softplus_in_a_loop(data: Data) -> tuple[Program, Program]:
    """A function of the weights alone in a loop's body, which the compiler can take out itself."""
    steps, batch, (width,) = 64, 64, data.size(1024)
    args = data.normal(batch, width), data.weight(width, width)

    def loop(x: Any, weight: Callable[[], Any]) -> Any:
        return lax.fori_loop(0, steps, lambda _, h: jnp.tanh(x + h @ weight()), x)

    def after(x: Any, w: Any) -> Any:
        ready = jax.nn.softplus(w) - 0.7
        return loop(x, lambda: ready)

    return _one(args, lambda x, w: loop(x, lambda: jax.nn.softplus(w) - 0.7), after)


# --- Repeated in memory --------------------------------------------------------------------------


@pair(REPEATED, "https://github.com/jax-ml/jax/issues/1918")
def pair_distances(data: Data) -> tuple[Program, Program]:
    """Distances of all pairs from their differences, each point repeated for every other."""
    n, depth = data.size(4096, 256)
    args = data.normal(n, depth, dtype=F32), data.normal(n, depth, dtype=F32)

    def before(a: Any, b: Any) -> Any:
        return jnp.sum((a[:, None] - b[None]) ** 2, -1)

    def after(a: Any, b: Any) -> Any:
        return jnp.sum(a * a, 1)[:, None] + jnp.sum(b * b, 1) - 2 * a @ b.T

    return _one(args, before, after)


@pair(REPEATED, "https://github.com/nod-ai/amd-shark-ai/pull/1359")
def gathered_experts(data: Data) -> tuple[Program, Program]:
    """A copy of an expert's weights for each token, where all experts would be fewer bytes."""
    experts, (tokens, width, hidden) = 8, data.size(64, 1024, 2048)
    x, w = data.normal(tokens, width), data.weight(experts, width, hidden)
    expert = data.whole(experts, tokens)

    def before(x: Any, w: Any, expert: Any) -> Any:
        return jnp.einsum("td,tdf->tf", x, w[expert])

    def after(x: Any, w: Any, expert: Any) -> Any:
        return jnp.einsum("td,edf->etf", x, w)[expert, jnp.arange(tokens)]

    return _one((x, w, expert), before, after)


@pair(REPEATED, "https://github.com/jax-ml/jax/issues/8585")
def tiled_weights(data: Data) -> tuple[Program, Program]:
    """One weight, tiled for each example of a batched product."""
    batch, (tokens, width) = 32, data.size(128, 1024)
    args = data.normal(batch, tokens, width), data.weight(width, width)

    def before(x: Any, w: Any) -> Any:
        return jnp.einsum("btd,bdf->btf", x, jnp.tile(w[None], (batch, 1, 1)))

    return _one(args, before, lambda x, w: jnp.einsum("btd,df->btf", x, w))


@pair(REPEATED, "https://github.com/jax-ml/jax/issues/1811")
def patches(data: Data) -> tuple[Program, Program]:
    """A convolution as a product over patches, each pixel nine times in memory."""
    batch, side, channels = (2, 8, 4) if data.small else (32, 64, 64)
    x = data.normal(batch, side, side, channels)
    w = data.normal(3, 3, channels, channels, scale=0.05)

    def before(x: Any, w: Any) -> Any:
        wide = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        parts = [wide[:, i : i + side, j : j + side] for i in range(3) for j in range(3)]
        return jnp.concatenate(parts, -1) @ w.reshape(9 * channels, channels)

    def after(x: Any, w: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)

    return _one((x, w), before, after)


@pair(REPEATED, "https://github.com/AI-Hypercomputer/maxtext/pull/1377", NONE)
def repeated_heads(data: Data) -> tuple[Program, Program]:
    """Key heads repeated for each query head of their group."""
    batch, heads, group, depth, (length,) = 16, 8, 4, 128, data.size(2048)
    q = data.normal(batch, heads, group, depth)
    k, v = (data.normal(batch, heads, length, depth) for _ in range(2))

    def before(q: Any, k: Any, v: Any) -> Any:
        k, v = jnp.repeat(k, group, 1), jnp.repeat(v, group, 1)
        return _decode(q.reshape(batch, heads * group, 1, depth), k, v).reshape(q.shape)

    return _one((q, k, v), before, _decode)


# --- Wider than asked ----------------------------------------------------------------------------


@pair(WIDER, "https://github.com/trevin-creator/autoresearch-mlx/issues/3", tolerance=0.05)
def widened_residual(data: Data) -> tuple[Program, Program]:
    """A training step whose residual a NumPy scalar makes fp32, from its first line on."""
    heads, layers, batch = 8, 2, 4
    width, hidden, vocabulary, length = data.size(512, 2048, 8192, 512)
    weights = {
        "embed": data.normal(vocabulary, width, scale=0.05),
        "out": data.weight(width, vocabulary),
        "layers": [
            {
                "qkv": data.weight(width, 3 * width),
                "o": data.weight(width, width),
                "up": data.weight(width, hidden),
                "down": data.weight(hidden, width),
            }
            for _ in range(layers)
        ],
    }
    tokens = data.whole(vocabulary, batch, length + 1)

    def norm(x: Any) -> Any:
        mean = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
        return x * lax.rsqrt(mean + 1e-6).astype(x.dtype)

    def block(x: Any, w: Any) -> Any:
        q, k, v = jnp.split((norm(x) @ w["qkv"]).reshape(batch, length, 3 * heads, -1), 3, 2)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        seen = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)
        x = x + seen.reshape(batch, length, width) @ w["o"]
        return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"]

    def loss(weights: Any, tokens: Any, scale: Any) -> Any:
        x = weights["embed"][tokens[:, :-1]] * scale
        for w in weights["layers"]:
            x = block(x, w)
        logits = jax.nn.log_softmax((norm(x) @ weights["out"]).astype(jnp.float32))
        return -jnp.mean(jnp.take_along_axis(logits, tokens[:, 1:, None], -1))

    def step(weights: Any, tokens: Any, scale: Any) -> Any:
        value, slope = jax.value_and_grad(loss)(weights, tokens, scale)
        return value, jax.tree.map(lambda w, g: (w - 1e-2 * g).astype(w.dtype), weights, slope)

    return _one(
        (weights, tokens),
        lambda weights, tokens: step(weights, tokens, np.sqrt(width)),
        lambda weights, tokens: step(weights, tokens, width**0.5),
    )


@pair(WIDER, "https://github.com/micdoh/XLRON/pull/29")
def fp32_layers(data: Data) -> tuple[Program, Program]:
    """Feed-forward layers with weights and activations in fp32."""
    tokens, width, hidden = data.size(2048, 2048, 4096)
    x, up, down = (
        data.normal(tokens, width, dtype=F32),
        data.weight(width, hidden, dtype=F32),
        data.weight(hidden, width, dtype=F32),
    )

    def layers(x: Any, up: Any, down: Any) -> Any:
        return jax.nn.gelu(x @ up) @ down

    args = (x, up, down)
    narrow = tuple(array.astype(BF16) for array in args)
    return Program(layers, args), Program(layers, narrow)


@pair(WIDER, "https://github.com/jax-ml/jax/issues/1830", x64=True)
def float64_inside(data: Data) -> tuple[Program, Program]:
    """A NumPy scalar of float64 in a kernel of float32 arrays, with 64 bits enabled."""
    n = data.size(4096)[0]
    x = data.normal(n, n, dtype=F32)

    def kernel(x: Any, sigma: Any) -> Any:
        near = jnp.exp(-(x**2) / sigma**2)
        return (near / jnp.sum(near, -1, keepdims=True)).astype(jnp.float32)

    return _one(
        (x,), lambda x: kernel(x, np.float64(1.3)), lambda x: kernel(x, np.float32(1.3).item())
    )


@pair(WIDER, "https://github.com/trevin-creator/autoresearch-mlx/issues/3")
def mixed_product(data: Data) -> tuple[Program, Program]:
    """bf16 activations times fp32 weights: the product is one of fp32."""
    tokens, width, hidden = data.size(4096, 2048, 4096)
    x, w = data.normal(tokens, width), data.weight(width, hidden, dtype=F32)
    return _one(
        (x, w),
        lambda x, w: jax.nn.relu(x @ w).astype(x.dtype),
        lambda x, w: jax.nn.relu(x @ w.astype(x.dtype)),
    )


@pair(WIDER, "https://github.com/huggingface/transformers/issues/30860")
def dequantised(data: Data) -> tuple[Program, Program]:
    """int8 weights made fp32 before a product, and not in it."""
    batch, (width, hidden) = 16, data.size(8192, 8192)
    x, scale = data.normal(batch, width), jnp.abs(data.normal(hidden, scale=0.01)) + 0.01
    w = (data.whole(255, width, hidden) - 127).astype(jnp.int8)

    def before(x: Any, w: Any, scale: Any) -> Any:
        wide = w.astype(jnp.float32) * scale.astype(jnp.float32)
        return (x.astype(jnp.float32) @ wide).astype(x.dtype)

    def after(x: Any, w: Any, scale: Any) -> Any:
        return (x @ w.astype(x.dtype)) * scale

    return _one((x, w, scale), before, after)


@pair(WIDER, "https://github.com/jax-ml/jax/pull/30717", NONE)
def int8_product(data: Data) -> tuple[Program, Program]:
    """A product of int8 by way of bf16, and as one of int8."""
    tokens, width, hidden = data.size(4096, 4096, 4096)
    x, w = (
        (data.whole(255, *shape) - 127).astype(jnp.int8)
        for shape in ((tokens, width), (width, hidden))
    )

    def before(x: Any, w: Any) -> Any:
        product = jnp.dot(x.astype(BF16), w.astype(BF16), preferred_element_type=jnp.float32)
        return product * 1e-4

    def after(x: Any, w: Any) -> Any:
        return jnp.dot(x, w, preferred_element_type=jnp.int32).astype(jnp.float32) * 1e-4

    return _one((x, w), before, after)


# --- Kept for later ------------------------------------------------------------------------------


@pair(KEPT, "https://github.com/jax-ml/jax/issues/3186")
def scan_residuals(data: Data) -> tuple[Program, Program]:
    """A scan's gradient that keeps an array of each turn, cheaper to compute once more."""
    steps, (n,) = 32, data.size(2048)
    args = jnp.float32(1.0), data.normal(steps, dtype=F32), data.normal(n, n, dtype=F32)

    def loss(body: Callable[..., Any], x: Any, ys: Any, z: Any) -> Any:
        return jnp.mean(lax.scan(lambda c, y: (body(c, y, x, z), None), jnp.zeros_like(z), ys)[0])

    def body(c: Any, y: Any, x: Any, z: Any) -> Any:
        return c + x * jnp.sin(y + z * jnp.cos(z))

    return _one(
        args,
        jax.grad(lambda x, ys, z: loss(body, x, ys, z)),
        jax.grad(lambda x, ys, z: loss(jax.checkpoint(body), x, ys, z)),
    )


def _by_hand(q: Any, k: Any, v: Any) -> Any:
    """Return causal attention as people write it, [batch, length, heads, depth]."""
    length, depth = q.shape[1], q.shape[3]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / depth**0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1).astype(q.dtype), v)


def _fused(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=_attention())


@pair(KEPT, "https://github.com/google/flax/pull/4649")
def attention_scores(data: Data) -> tuple[Program, Program]:
    """Attention by hand, whose scores go to memory and back."""
    args = tuple(data.normal(4, data.size(2048)[0], 16, 64) for _ in range(3))
    return _one(args, _by_hand, _fused)


@pair(KEPT, "https://github.com/NVIDIA/TransformerEngine/pull/3162", tolerance=0.04)
def attention_gradient(data: Data) -> tuple[Program, Program]:
    """The gradient of attention by hand, which keeps the scores of the forward pass."""
    args = tuple(data.normal(4, data.size(1024)[0], 16, 64) for _ in range(3))

    def gradient(attend: Callable[..., Any]) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            return jnp.sum(jnp.square(attend(q, k, v).astype(jnp.float32)))

        return jax.grad(loss, (0, 1, 2))

    return _one(args, gradient(_by_hand), gradient(_fused))


@pair(KEPT, "https://github.com/jax-ml/jax/issues/2491")
def every_state(data: Data) -> tuple[Program, Program]:
    """All states of a recurrence, of which the last one is read."""
    steps, (rows, width) = 64, data.size(2048, 1024)
    args = data.normal(rows, width, dtype=F32), data.normal(steps, width, dtype=F32)

    def before(h: Any, xs: Any) -> Any:
        def body(h: Any, x: Any) -> Any:
            h = jnp.tanh(0.9 * h + x)
            return h, h

        return lax.scan(body, h, xs)[1][-1]

    def after(h: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (jnp.tanh(0.9 * h + x), None), h, xs)[0]

    return _one(args, before, after)


@pair(KEPT, "https://github.com/jax-ml/jax/issues/20600")
def gradients_by_example(data: Data) -> tuple[Program, Program]:
    """The gradient of each example, of which only the norm is asked."""
    batch, (width, hidden) = 64, data.size(1024, 1024)
    x, w = data.normal(batch, width, dtype=F32), data.weight(width, hidden, dtype=F32)

    def loss(w: Any, x: Any) -> Any:
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    def before(w: Any, x: Any) -> Any:
        every = jax.vmap(jax.grad(loss), (None, 0))(w, x)
        return jnp.sqrt(jnp.sum(every**2, (1, 2)))

    def after(w: Any, x: Any) -> Any:
        above = jax.grad(lambda h: jnp.sum(jnp.tanh(h) ** 2))(x @ w)
        return jnp.linalg.norm(x, axis=1) * jnp.linalg.norm(above, axis=1)

    return _one((w, x), before, after)


@pair(KEPT, "https://github.com/huggingface/transformers/issues/30860", NONE)
def chunked_loss(data: Data) -> tuple[Program, Program]:
    """A language model's logits and their gradient whole, and in chunks that are made twice."""
    chunks, (tokens, width, vocabulary) = 8, data.size(4096, 1024, 32000)
    x, w = data.normal(tokens, width), data.weight(width, vocabulary)
    labels = data.whole(vocabulary, tokens)

    def losses(x: Any, w: Any, labels: Any) -> Any:
        logits = (x @ w).astype(jnp.float32)
        chosen = jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]
        return jax.nn.logsumexp(logits, -1) - chosen

    def before(x: Any, w: Any, labels: Any) -> Any:
        return jax.value_and_grad(lambda x, w: jnp.mean(losses(x, w, labels)), (0, 1))(x, w)

    def after(x: Any, w: Any, labels: Any) -> Any:
        def loss(x: Any, w: Any) -> Any:
            parts = x.reshape(chunks, -1, width), labels.reshape(chunks, -1)
            each = jax.checkpoint(lambda part: losses(part[0], w, part[1]))
            return jnp.mean(lax.map(each, parts))

        return jax.value_and_grad(loss, (0, 1))(x, w)

    return _one((x, w, labels), before, after)


# --- Small, or waiting ---------------------------------------------------------------------------


@pair(SMALL, "https://github.com/jax-ml/jax/issues/24411")
def lstm_inputs(data: Data) -> tuple[Program, Program]:
    """An LSTM that multiplies each turn's input, though no turn needs another's."""
    steps, batch, (width,) = 128, 32, data.size(512)
    steps = steps if not data.small else 8
    xs = data.normal(steps, batch, width)
    wx, wh = data.weight(width, 4 * width), data.weight(width, 4 * width)
    state = jnp.zeros((batch, width), BF16), jnp.zeros((batch, width), BF16)

    def cell(state: Any, gates: Any) -> Any:
        i, f, g, o = jnp.split(gates, 4, -1)
        c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def before(state: Any, xs: Any, wx: Any, wh: Any) -> Any:
        return lax.scan(lambda s, x: cell(s, x @ wx + s[0] @ wh), state, xs)[1]

    def after(state: Any, xs: Any, wx: Any, wh: Any) -> Any:
        return lax.scan(lambda s, x: cell(s, x + s[0] @ wh), state, xs @ wx)[1]

    return _one((state, xs, wx, wh), before, after)


@pair(SMALL, "https://github.com/reservoirpy/reservoirpy/pull/239")
def mapped_products(data: Data) -> tuple[Program, Program]:
    """A map over examples that don't depend on each other."""
    batch, (rows, width) = 128, data.size(64, 512)
    batch = batch if not data.small else 4
    args = data.normal(batch, rows, width), data.weight(width, width)

    def each(x: Any, w: Any) -> Any:
        x = jax.nn.gelu(x @ w)
        return x - jnp.mean(x, -1, keepdims=True)

    def before(x: Any, w: Any) -> Any:
        return lax.map(lambda x: each(x, w), x)

    def after(x: Any, w: Any) -> Any:
        return jax.vmap(lambda x: each(x, w))(x)

    return _one(args, before, after)


@pair(SMALL, "https://github.com/jax-ml/jax/issues/2491")
def linear_recurrence(data: Data) -> tuple[Program, Program]:
    """A linear recurrence turn by turn, where a scan by halves takes as many as its logarithm."""
    steps, width = data.size(1024, 4096)
    a = jax.nn.sigmoid(data.normal(steps, width, dtype=F32))
    b = data.normal(steps, width, dtype=F32)

    def before(a: Any, b: Any) -> Any:
        def body(h: Any, ab: Any) -> Any:
            h = ab[0] * h + ab[1]
            return h, h

        return lax.scan(body, jnp.zeros(width), (a, b))[1]

    def after(a: Any, b: Any) -> Any:
        def joined(left: Any, right: Any) -> Any:
            return left[0] * right[0], right[0] * left[1] + right[1]

        return lax.associative_scan(joined, (a, b))[1]

    return _one((a, b), before, after)


@pair(SMALL, "https://github.com/jax-ml/jax/issues/28097")
def short_turns(data: Data) -> tuple[Program, Program]:
    """A scan of short turns, one launch each, and sixteen of them in one."""
    steps, (width,) = 512, data.size(16384)
    steps = steps if not data.small else 32
    args = data.normal(width, dtype=F32), data.normal(steps, width, dtype=F32)

    def body(h: Any, x: Any) -> Any:
        return 0.5 * h + 0.4 * jnp.sin(h) + x, None

    return _one(
        args,
        lambda h, xs: lax.scan(body, h, xs)[0],
        lambda h, xs: lax.scan(body, h, xs, unroll=16)[0],
    )


@pair(SMALL, "https://github.com/pytorch/pytorch/issues/3929", NONE)
def many_arrays(data: Data) -> tuple[Program, Program]:
    """An optimiser's step over many small arrays, and over one in which they lie together."""
    count, (n,) = 64, data.size(4096)
    count = count if not data.small else 4
    arrays = [[data.normal(n, dtype=F32) for _ in range(count)] for _ in range(3)]

    def step(p: Any, m: Any, g: Any) -> Any:
        m = 0.9 * m + g
        return p - 1e-3 * m / (jnp.sqrt(m * m) + 1e-6), m

    def before(ps: Any, ms: Any, gs: Any) -> Any:
        done = [step(p, m, g) for p, m, g in zip(ps, ms, gs, strict=True)]
        return [p for p, _ in done], [m for _, m in done]

    def after(ps: Any, ms: Any, gs: Any) -> Any:
        p, m = step(jnp.concatenate(ps), jnp.concatenate(ms), jnp.concatenate(gs))
        return jnp.split(p, count), jnp.split(m, count)

    return _one(tuple(arrays), before, after)


@pair(SMALL, "https://github.com/jax-ml/jax/issues/29946")
def condition_each_turn(data: Data) -> tuple[Program, Program]:
    """A power iteration that asks after every turn whether it is done, or after every tenth."""
    turns, inner, (n,) = 60, 10, data.size(1024)
    a = jnp.abs(data.normal(n, n, dtype=F32)) / n

    def once(a: Any, v: Any) -> Any:
        w = a @ v
        return w / jnp.linalg.norm(w)

    def before(a: Any, v: Any) -> Any:
        def more(carry: Any) -> Any:
            turn, change, _ = carry
            return (turn < turns) & (change >= 0)

        def body(carry: Any) -> Any:
            turn, _, v = carry
            new = once(a, v)
            return turn + 1, jnp.max(jnp.abs(new - v)), new

        return lax.while_loop(more, body, (0, jnp.float32(1), v))[2]

    def after(a: Any, v: Any) -> Any:
        def more(carry: Any) -> Any:
            turn, change, _ = carry
            return (turn < turns) & (change >= 0)

        def body(carry: Any) -> Any:
            turn, _, v = carry
            last = v
            for _ in range(inner):
                last, v = v, once(a, v)
            return turn + inner, jnp.max(jnp.abs(v - last)), v

        return lax.while_loop(more, body, (0, jnp.float32(1), v))[2]

    return _one((a, jnp.ones(n) / n**0.5), before, after)


# --- One at a time -------------------------------------------------------------------------------


@pair(SINGLE, "https://github.com/jax-ml/jax/issues/38806")
def few_segments(data: Data) -> tuple[Program, Program]:
    """Many values added into a few places, where they wait for each other."""
    values, segments = data.size(1 << 16, 24)
    args = data.normal(values, dtype=F32) + 2.0, data.whole(segments, values)

    def before(x: Any, ids: Any) -> Any:
        return jax.ops.segment_sum(x, ids, segments)

    def after(x: Any, ids: Any) -> Any:
        return jnp.sum(jnp.where(ids[:, None] == jnp.arange(segments), x[:, None], 0), 0)

    return _one(args, before, after)


@pair(SINGLE, "https://github.com/jax-ml/jax/issues/11321")
def small_solves(data: Data) -> tuple[Program, Program]:
    """Many systems of three unknowns by LU, and by their determinants."""
    (count,) = data.size(20_000)
    a = data.normal(count, 3, 3, dtype=F32) + 4 * jnp.eye(3)
    b = data.normal(count, 3, dtype=F32)

    def before(a: Any, b: Any) -> Any:
        return jnp.linalg.solve(a, b[..., None])[..., 0]

    def after(a: Any, b: Any) -> Any:
        columns = jnp.moveaxis(a, -1, 0)
        crossed = [jnp.cross(columns[(i + 1) % 3], columns[(i + 2) % 3]) for i in range(3)]
        determinant = jnp.sum(columns[0] * crossed[0], -1, keepdims=True)
        return jnp.stack([jnp.sum(c * b, -1) for c in crossed], -1) / determinant

    return _one((a, b), before, after)


@pair(SINGLE, "https://github.com/jax-ml/jax/issues/2282")
def resampled_images(data: Data) -> tuple[Program, Program]:
    """Images resized by a gather for each pixel, and by two products."""
    batch, (side, new) = 32, data.size(512, 384)
    batch = batch if not data.small else 2
    images = data.normal(batch, side, side, dtype=F32)

    def places() -> Any:
        return jnp.arange(new, dtype=jnp.float32) * ((side - 1) / (new - 1))

    def before(images: Any) -> Any:
        grid = jnp.meshgrid(places(), places(), indexing="ij")
        take = jax.scipy.ndimage.map_coordinates
        return jax.vmap(lambda image: take(image, grid, 1, mode="nearest"))(images)

    def after(images: Any) -> Any:
        apart = jnp.abs(places()[:, None] - jnp.arange(side))
        weights = jnp.maximum(1 - apart, 0)
        return jnp.einsum("ih,bhw,jw->bij", weights, images, weights)

    return _one((images,), before, after)


@pair(SINGLE, "https://github.com/jax-ml/jax/issues/8637")
def histogram(data: Data) -> tuple[Program, Program]:
    """Pixels counted one by one, and by sorting them and looking for the borders."""
    pixels = data.size(1 << 20)[0]
    image = data.whole(256, pixels)

    def after(x: Any) -> Any:
        borders = jnp.searchsorted(jnp.sort(x), jnp.arange(257))
        return jnp.diff(borders).astype(jnp.int32)

    return _one((image,), lambda x: jnp.zeros(256, jnp.int32).at[x].add(1), after)


@pair(SINGLE, "https://github.com/huggingface/transformers/pull/18239", NONE)
def take_along(data: Data) -> tuple[Program, Program]:
    """Single elements of each row by a gather, and by comparing all of them."""
    batch, (rows, width, taken) = 64, data.size(512, 512, 128)
    x = data.normal(batch, rows, width, dtype=F32)
    at = data.whole(width, batch, rows, taken)

    def after(x: Any, at: Any) -> Any:
        hit = at[..., None] == jnp.arange(width)
        return jnp.sum(jnp.where(hit, x[:, :, None], 0), -1)

    return _one((x, at), lambda x, at: jnp.take_along_axis(x, at, -1), after)


@pair(SINGLE, "https://github.com/jax-ml/jax/issues/26227", NONE)
def segment_sum(data: Data) -> tuple[Program, Program]:
    """Rows added into segments in any order, and sorted before."""
    rows, width, segments = data.size(1 << 17, 128, 1 << 14)
    args = data.normal(rows, width, dtype=F32), data.whole(segments, rows)

    def before(x: Any, ids: Any) -> Any:
        return jax.ops.segment_sum(x, ids, segments)

    def after(x: Any, ids: Any) -> Any:
        order = jnp.argsort(ids)
        return jax.ops.segment_sum(x[order], ids[order], segments, indices_are_sorted=True)

    return _one(args, before, after)


@pair(SINGLE, "https://github.com/pytorch/xla/issues/898", NONE)
def embedding_gradient(data: Data) -> tuple[Program, Program]:
    """The gradient of an embedding, added row by row, and as a product with one-hot rows."""
    vocabulary, width, tokens = data.size(32000, 1024, 4096)
    args = data.normal(tokens, width), data.whole(vocabulary, tokens)

    def before(slope: Any, tokens: Any) -> Any:
        return jnp.zeros((vocabulary, width), slope.dtype).at[tokens].add(slope)

    def after(slope: Any, tokens: Any) -> Any:
        return jax.nn.one_hot(tokens, vocabulary, dtype=slope.dtype).T @ slope

    return _one(args, before, after)


@pair(SINGLE, "https://github.com/jax-ml/jax/issues/27155", NONE)
def sorted_for_a_few(data: Data) -> tuple[Program, Program]:
    """The 50 largest logits by a sort of all, and by top_k."""
    batch, kept, (vocabulary,) = 16, 50, data.size(128256)
    logits = data.normal(batch, vocabulary, dtype=F32)
    return _one(
        (logits,),
        lambda x: -jnp.sort(-x, -1)[:, :kept],
        lambda x: lax.top_k(x, kept)[0],
    )


@pair(SINGLE, "https://github.com/jax-ml/jax/issues/1737", NONE)
def symmetric_solves(data: Data) -> tuple[Program, Program]:
    """A batch of symmetric systems by LU, and by Cholesky."""
    batch, n = data.size(512, 32)
    root = data.weight(batch, n, n, dtype=F32)
    a = root @ jnp.swapaxes(root, 1, 2) + jnp.eye(n)
    b = data.normal(batch, n, 1, dtype=F32)

    def after(a: Any, b: Any) -> Any:
        return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b)

    return _one((a, b), jnp.linalg.solve, after)


# --- Nothing in vain -----------------------------------------------------------------------------


@pair(CLEAN, "", NONE)
def clean_layers(data: Data) -> tuple[Program, Program]:
    """Feed-forward layers in bf16, and the same with a jit around each part."""
    tokens, width, hidden = data.size(4096, 2048, 4096)
    args = data.normal(tokens, width), data.weight(width, hidden), data.weight(hidden, width)

    def after(x: Any, up: Any, down: Any) -> Any:
        inner = jax.jit(lambda x, up: jax.nn.gelu(x @ up))
        return jax.jit(jnp.matmul)(inner(x, up), down)

    return _one(args, lambda x, up, down: jax.nn.gelu(x @ up) @ down, after)


@pair(CLEAN, "", NONE)
def clean_norm(data: Data) -> tuple[Program, Program]:
    """LayerNorm and GELU, and the same with the variance from the mean of squares."""
    rows, width = data.size(32768, 4096)
    args = data.normal(rows, width), data.normal(width), data.normal(width)

    def normed(x: Any, mean: Any, variance: Any, g: Any, b: Any) -> Any:
        y = (x.astype(jnp.float32) - mean) * lax.rsqrt(variance + 1e-5)
        return jax.nn.gelu(y.astype(x.dtype) * g + b)

    def before(x: Any, g: Any, b: Any) -> Any:
        wide = x.astype(jnp.float32)
        return normed(x, wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True), g, b)

    def after(x: Any, g: Any, b: Any) -> Any:
        wide = x.astype(jnp.float32)
        mean = wide.mean(-1, keepdims=True)
        return normed(x, mean, (wide * wide).mean(-1, keepdims=True) - mean**2, g, b)

    return _one(args, before, after)


@pair(CLEAN, "", NONE)
def clean_decode(data: Data) -> tuple[Program, Program]:
    """Products of a few rows with large weights, and the same summed in fp32 by name."""
    batch, (width, hidden) = 8, data.size(4096, 16384)
    args = data.normal(batch, width), data.weight(width, hidden), data.weight(hidden, width)

    def product(x: Any, w: Any) -> Any:
        return jnp.einsum("bd,df->bf", x, w, preferred_element_type=jnp.float32).astype(x.dtype)

    def after(x: Any, up: Any, down: Any) -> Any:
        return product(jax.nn.silu(product(x, up)), down)

    return _one(args, lambda x, up, down: jax.nn.silu(x @ up) @ down, after)


@pair(CLEAN, "", NONE)
def clean_training(data: Data) -> tuple[Program, Program]:
    """A donated training step, and the same with the vector-Jacobian product by hand."""
    tokens, width, hidden = data.size(4096, 1024, 4096)
    args = data.weight(width, hidden), data.weight(hidden, width), data.normal(tokens, width)

    def loss(up: Any, down: Any, x: Any) -> Any:
        return jnp.mean(jnp.square((jax.nn.gelu(x @ up) @ down).astype(jnp.float32)))

    def stepped(up: Any, down: Any, slopes: Any) -> Any:
        return up - 0.1 * slopes[0], down - 0.1 * slopes[1]

    def before(up: Any, down: Any, x: Any) -> Any:
        return stepped(up, down, jax.grad(loss, (0, 1))(up, down, x))

    def after(up: Any, down: Any, x: Any) -> Any:
        _, back = jax.vjp(lambda up, down: loss(up, down, x), up, down)
        return stepped(up, down, back(jnp.float32(1)))

    return Program(before, args, {0: 0, 1: 1}), Program(after, args, {0: 0, 1: 1})


@pair(CLEAN, "", NONE)
def clean_softmax(data: Data) -> tuple[Program, Program]:
    """A softmax over rows by hand, and JAX's own."""
    x = data.normal(*data.size(16384, 8192), dtype=F32)

    def before(x: Any) -> Any:
        powers = jnp.exp(x - jnp.max(x, -1, keepdims=True))
        return powers / jnp.sum(powers, -1, keepdims=True)

    return _one((x,), before, lambda x: jax.nn.softmax(x, -1))


def in_turn() -> list[Pair]:
    """Return all pairs so that each kind comes early: the first of each, then the second."""
    by_kind = [[pair for pair in PAIRS.values() if pair.kind == kind] for kind in KINDS]
    longest = max(map(len, by_kind))
    return [pairs[n] for n in range(longest) for pairs in by_kind if n < len(pairs)]
