"""Programs of all kinds that have nothing in vain: none of their work is named as such."""

import functools

import jax
import jax.numpy as jnp
from compiled_programs import spec
from jax import lax


def chained(x, layers):
    for w in layers:
        x = jax.nn.relu(x @ w)
    return x


def normed(x, scale, shift):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def trained(layers, moments, x, y):
    def loss(layers):
        # stored as [out, in]: the order in which a TPU's compiler writes its gradient
        hidden = jax.nn.relu(x @ layers[0].T)
        return ((hidden @ layers[1] - y).astype(jnp.float32) ** 2).mean()

    value, by_layer = jax.value_and_grad(loss)(layers)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, by_layer)
    return jax.tree.map(lambda w, m: w - 0.01 * m, layers, moments), moments, value


def gated(x, w):
    """A norm's sum of squares, and a gate's exponential, between matmuls: no attention."""
    scale = lax.rsqrt((x.astype(jnp.float32) ** 2).mean(-1, keepdims=True) + 1e-6)
    read = x * scale.astype(x.dtype)
    return x + (jax.nn.silu(read @ w["gate"]) * (read @ w["up"])) @ w["down"]


def unrolled_step(layers, x):
    def loss(layers):
        y = x
        for w in layers:
            y = jax.checkpoint(gated)(y, w)
        return y.astype(jnp.float32).mean()

    value, by_layer = jax.value_and_grad(loss)(layers)
    return jax.tree.map(lambda w, g: w - (1e-3 * g).astype(w.dtype), layers, by_layer), value


def adam(w, m, v, g):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


def decoded(k, v, q, new, at):
    k, v = (lax.dynamic_update_slice(cache, new, (0, 0, at, 0)) for cache in (k, v))
    p = jax.nn.softmax(jnp.einsum("bhgd,bhtd->bhgt", q, k).astype(jnp.float32))
    return jnp.einsum("bhgt,bhtd->bhgd", p.astype(v.dtype), v), k, v


def recurrent(x, w, valid):
    def step(h, now):
        return jnp.where(now[1][:, None], jnp.tanh(h @ w + now[0]), h), None

    return lax.scan(step, jnp.zeros_like(x[0]), (x, valid))[0]


def flash(q, k, v):
    from jax.experimental.pallas.ops.tpu import flash_attention as kernels

    sizes = kernels.BlockSizes(block_q=1024, block_k_major=1024, block_k=512, block_b=1)
    return kernels.flash_attention(q, k, v, block_sizes=sizes)


def loss(x, w, y):
    logits = (x @ w).astype(jnp.float32)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], -1))


def convolved(x, w):
    layout = "NHWC", "HWIO", "NHWC"
    return jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout))


def rotated(x, cos, sin):
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def grouped(q, k, v):
    p = jax.nn.softmax(jnp.einsum("bgqe,bsge->bgqs", q, k).astype(jnp.float32))
    return jnp.einsum("bgqs,bsge->bgqe", p.astype(v.dtype), v)


def clustered(x, centres):
    apart = (x**2).sum(1)[:, None] + (centres**2).sum(1) - 2 * x @ centres.T
    near, many = jnp.argmin(apart, 1), centres.shape[0]
    sums = jax.ops.segment_sum(x, near, many)
    return sums / jnp.maximum(jax.ops.segment_sum(jnp.ones(len(x)), near, many), 1)[:, None]


def heated(u):
    def step(_, u):
        near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return u.at[1:-1, 1:-1].set(0.25 * near)

    return lax.fori_loop(0, 20, step, u)


def stacked_states(x, w):
    return lax.scan(lambda h, a: (jnp.tanh(h @ w + a),) * 2, jnp.zeros_like(x[0]), x)[1]


def clipped(gradients):
    size = jnp.sqrt(sum((g**2).sum() for g in gradients))
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / size), gradients)


def grouped_norm(x):
    g = x.reshape(*x.shape[:3], 8, -1)
    centred = g - g.mean((1, 2, 4), keepdims=True)
    return (centred * lax.rsqrt(g.var((1, 2, 4), keepdims=True) + 1e-5)).reshape(x.shape)


def until_length(x, lengths):
    mask = jnp.arange(x.shape[1])[None, :, None] < lengths[:, None, None]
    return jnp.where(mask, jnp.tanh(x), 0).sum(1)


def prefixes(a, b):
    return lax.associative_scan(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), (a, b))


def logistic(w, x, y):
    return jax.grad(lambda w: jnp.mean(jnp.logaddexp(0.0, -y * (x @ w))))(w)


def residual_block(x, first, second, gain):
    def loss(first, second):
        y = x + convolved(convolved(x, first) * gain, second)
        return (y.astype(jnp.float32) ** 2).mean()

    return jax.grad(loss, (0, 1))(first, second)


def rk4(a, y):
    def step(y, _):
        one = jnp.tanh(a @ y)
        two = jnp.tanh(a @ (y + 0.005 * one))
        three = jnp.tanh(a @ (y + 0.005 * two))
        four = jnp.tanh(a @ (y + 0.01 * three))
        return y + 0.01 / 6 * (one + 2 * two + 2 * three + four), None

    return lax.scan(step, y, None, length=50)[0]


def routed_experts(x, up, down, at):
    hidden = jax.nn.gelu(jnp.einsum("ecd,edf->ecf", x[at], up))
    rows = jnp.einsum("ecf,efd->ecd", hidden, down)
    return jnp.zeros_like(x).at[at.reshape(-1)].add(rows.reshape(-1, x.shape[-1]))


def lstm(x, w, u):
    def step(carry, a):
        h, c = carry
        i, f, g, o = jnp.split(a + h @ u, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    none = jnp.zeros((x.shape[1], u.shape[0]))
    return lax.scan(step, (none, none), x @ w)[0][0]


def long_convolution(x, k):
    return jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(k))


def solved(a, b):
    return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(a), b, lower=True)


def messages(h, source, to, w):
    return jax.nn.relu(jax.ops.segment_sum((h @ w)[source], to, len(h)) + h)


def power_iteration(a, v):
    def step(state):
        u = a @ state[0]
        return u / jnp.linalg.norm(u), state[1] + 1

    return lax.while_loop(lambda state: state[1] < 50, step, (v, 0))[0]


def in_bf16(x, first, second):
    def loss(*w):
        first, second = (each.astype(x.dtype) for each in w)
        return ((jax.nn.gelu(x @ first) @ second).astype(jnp.float32) ** 2).mean()

    by_w = jax.grad(loss, (0, 1))(first, second)
    return first - 0.01 * by_w[0], second - 0.01 * by_w[1]


WIDE = functools.partial(spec, dtype=jnp.float32)
INTS = functools.partial(spec, dtype=jnp.int32)
GATED = [{"gate": spec(1024, 4096), "up": spec(1024, 4096), "down": spec(4096, 1024)}] * 2
CACHE = spec(16, 8, 2048, 128)
CLEAN = {
    "matmuls": (chained, (spec(4096, 4096), [spec(4096, 4096)] * 4), {}),
    "layernorm": (normed, (WIDE(8192, 1024), WIDE(1024), WIDE(1024)), {}),
    "training": (
        trained,
        ([spec(8192, 2048), spec(8192, 2048)],) * 2 + (spec(8192, 2048),) * 2,
        {"donate_argnums": (0, 1)},
    ),
    "unrolled step": (unrolled_step, (GATED, spec(2048, 1024)), {"donate_argnums": 0}),
    "optimiser": (adam, (WIDE(4096, 4096),) * 4, {"donate_argnums": (0, 1, 2)}),
    "decode": (
        decoded,
        (CACHE, CACHE, spec(16, 8, 4, 128), spec(16, 8, 1, 128), spec(dtype=jnp.int32)),
        {"donate_argnums": (0, 1)},
    ),
    "recurrent": (
        recurrent,
        (WIDE(8, 4096, 2048), WIDE(2048, 2048), spec(8, 4096, dtype=jnp.bool_)),
        {},
    ),
    "Pallas attention": (flash, (spec(4, 8, 4096, 128),) * 3, {}),
    "its gradient": (
        lambda x, w: jax.grad(lambda w: (convolved(x, w) ** 2).sum())(w),
        (WIDE(8, 32, 32, 64), WIDE(3, 3, 64, 64)),
        {},
    ),
    "rows of a table": (lambda t, i: t[i] * 2, (WIDE(32768, 512), INTS(4096)), {}),
    "real transform": (lambda x: jnp.abs(jnp.fft.rfft(x)), (WIDE(256, 4096),), {}),
    "gradient of a loss": (
        jax.grad(loss, argnums=(0, 1)),
        (spec(1024, 512), spec(512, 4096), INTS(1024)),
        {},
    ),
    "rotary": (rotated, (WIDE(8, 1024, 8, 64), WIDE(1024, 1, 32), WIDE(1024, 1, 32)), {}),
    "grouped queries": (
        grouped,
        (spec(16, 8, 4, 128), spec(16, 1024, 8, 128), spec(16, 1024, 8, 128)),
        {},
    ),
    "clusters": (clustered, (WIDE(16384, 64), WIDE(64, 64)), {}),
    "Newton": (
        lambda x: lax.fori_loop(0, 10, lambda _, y: 0.5 * (y + x / y), x),
        (WIDE(1024, 1024),),
        {},
    ),
    "group norm": (grouped_norm, (WIDE(8, 32, 32, 128),), {}),
    "logistic regression": (logistic, (WIDE(512), WIDE(8192, 512), WIDE(8192)), {}),
    "heat": (heated, (WIDE(1024, 1024),), {"donate_argnums": 0}),
    "prefixes": (prefixes, (WIDE(1024, 512), WIDE(1024, 512)), {}),
    "states": (stacked_states, (WIDE(32, 256, 512), WIDE(512, 512)), {}),
    "clipped": (clipped, ([WIDE(1024, 1024)] * 3,), {}),
    "histogram": (lambda i: jnp.zeros(64).at[i].add(1.0), (INTS(65536),), {}),
    "lengths": (until_length, (WIDE(32, 512, 256), INTS(32)), {}),
    "residual block": (
        residual_block,
        (spec(64, 56, 56, 64), spec(3, 3, 64, 64), spec(3, 3, 64, 64), spec(64)),
        {},
    ),
    "Runge-Kutta": (rk4, (WIDE(256, 256), WIDE(256, 64)), {}),
    "routed experts": (
        routed_experts,
        (spec(4096, 1024), spec(8, 1024, 2048), spec(8, 2048, 1024), INTS(8, 512)),
        {},
    ),
    "LSTM": (lstm, (WIDE(64, 64, 512), WIDE(512, 2048), WIDE(512, 2048)), {}),
    "long convolution": (long_convolution, (WIDE(512, 8192), WIDE(512, 8192)), {}),
    "a system of equations": (solved, (WIDE(1024, 1024), WIDE(1024, 256)), {}),
    "messages on a graph": (
        messages,
        (WIDE(10_000, 128), INTS(80_000), INTS(80_000), WIDE(128, 128)),
        {},
    ),
    "power iteration": (power_iteration, (WIDE(2048, 2048), WIDE(2048)), {}),
    "mixed precision": (in_bf16, (spec(4096, 1024), WIDE(1024, 4096), WIDE(4096, 1024)), {}),
}
"""Programs that already do what is advised, as function, arguments and options of `jax.jit`."""
