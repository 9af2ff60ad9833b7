"""Planted faults: for each cause small programs that have it, and others that haven't."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from compiled_programs import spec
from jax import lax
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import roofline

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""


class Planted(NamedTuple):
    """A cause, programs with and without it, and options of `explain` for both."""

    cause: str
    faulty: Callable[[], Call]
    sound: Callable[[], Call]
    options: dict[str, Any]


PLANTED: list[Planted] = []


def planted(cause: str, sound: Callable[[], Call], **options: Any) -> Callable[..., Any]:
    def add(faulty: Callable[[], Call]) -> Callable[[], Call]:
        PLANTED.append(Planted(cause, faulty, sound, options))
        return faulty

    return add


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> jax.Array:
    """Return normal numbers, which come again after 65,536: to draw millions takes longer."""
    numbers = np.random.default_rng(seed).standard_normal(2**16, np.float32)
    return jnp.asarray(np.resize(numbers, shape), dtype)


# --- copies ---------------------------------------------------------------------------------------


def by_head() -> Call:
    def f(q: Any, k: Any, v: Any) -> Any:
        p = jax.nn.softmax(jnp.einsum("bhd,bhtd->bht", q, k))
        return jnp.einsum("bht,bhtd->bhd", p, v)

    cache = normal(4, 16, 1024, 64)
    return f, (normal(4, 16, 64), cache, cache)


@planted("layout-copy", by_head)
def cache_by_token() -> Call:
    def f(q: Any, k: Any, v: Any) -> Any:
        p = jax.nn.softmax(jnp.einsum("bhd,bthd->bht", q, k))
        return jnp.einsum("bht,bthd->bhd", p, v)

    cache = normal(4, 1024, 16, 64)
    return f, (normal(4, 16, 64), cache, cache)


def one_by_one(x: Any, layers: Any) -> Any:
    for w in layers:
        x = jnp.tanh(x @ w)
    return x


def stacked(x: Any, layers: Any) -> Any:
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, layers)[0]


def unrolled() -> Call:
    return one_by_one, (normal(16, 4096), [normal(4096, 4096) / 64 for _ in range(3)])


@planted("scan-copy", unrolled)
def scanned_weights() -> Call:
    return stacked, (normal(16, 4096), normal(3, 4096, 4096) / 64)


def layers_of_their_own() -> Call:
    return one_by_one, (spec(16, 2048), [spec(2048, 2048)] * 4)


@planted("relaid-weights", layers_of_their_own, chip="v7x")
def stacked_weights() -> Call:
    return stacked, (spec(16, 2048), spec(4, 2048, 2048))


def appended(cache: Any, new: Any, i: Any) -> Any:
    cache = lax.dynamic_update_slice(cache, new, (0, i, 0))
    return jnp.sum(cache[:, :64], axis=(1, 2)), cache


def a_cache() -> tuple[Any, ...]:
    return normal(8, 4096, 256), normal(8, 1, 256), jnp.int32(5)


@planted("not-donated", lambda: (jax.jit(appended, donate_argnums=0), a_cache()))
def kept_cache() -> Call:
    return appended, a_cache()


# --- arithmetic -----------------------------------------------------------------------------------


def narrowed_by_the_compiler() -> Call:
    def f(w: Any, m: Any, x: Any, y: Any) -> Any:
        loss = jax.value_and_grad(lambda w: ((jax.nn.relu(x @ w[0]) @ w[1] - y) ** 2).mean())
        value, g = loss(w)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, g)
        return jax.tree.map(lambda w, m: w - 1e-2 * m, w, m), m, value

    x, up = (spec(1024, n, dtype=jnp.float32) for n in (1024, 4096))
    w = up, spec(4096, 1024, dtype=jnp.float32)
    return f, (w, w, x, x)


@planted("float32", narrowed_by_the_compiler, chip="v5p")
def promoted() -> Call:
    return jnp.matmul, (spec(64, 8192), spec(8192, 8192, dtype=jnp.float32))


@planted("vector-product", lambda: (jnp.matmul, (spec(1024, 512), spec(512, 1024))), chip="v5e")
def multiplied_and_summed() -> Call:
    wide = functools.partial(spec, dtype=jnp.float32)
    return lambda a, b: jnp.sum(a[:, :, None] * b[None], axis=1), (wide(1024, 512), wide(512, 1024))


@planted("padded", lambda: (jnp.matmul, (spec(2**18, 256), spec(256, 256))), chip="v5e")
def padded() -> Call:
    return jnp.matmul, (spec(65536, 24, 40), spec(65536, 40, 24))


# --- fusion ---------------------------------------------------------------------------------------


def chain(x: Any, barrier: bool) -> Any:
    y = jnp.tanh(x)
    y = lax.optimization_barrier(y) if barrier else y
    y = y * 3 + x
    y = lax.optimization_barrier(y) if barrier else y
    return jnp.where(y > 0, y, 0.1 * y)


@planted("unfused", lambda: (functools.partial(chain, barrier=False), (spec(2**28),)), chip="v5e")
def barriers() -> Call:
    return functools.partial(chain, barrier=True), (spec(2**28),)


def mlp() -> Call:
    def f(x: Any, up: Any, down: Any) -> Any:
        return jax.nn.silu(x @ up) @ down

    return f, (spec(16384, 2048), spec(2048, 8192), spec(8192, 2048))


@planted("scores", mlp, chip="v5e")
def attention() -> Call:
    def f(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("hqd,hkd->hqk", q, k) / 8
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)

    return f, (spec(32, 4096, 128),) * 3


def few() -> Call:
    return lambda x: lax.top_k(x, 2), (spec(8192, 8),)


@planted("sort", few, chip="v6e")
def sorted_for_a_few() -> Call:
    return lambda x: jnp.argsort(x, -1)[:, -8:], (spec(64, 2048, dtype=jnp.float32),)


def indexed() -> Call:
    return lambda table, rows: table[rows], (spec(32768, 1024), spec(1024, dtype=jnp.int32))


@planted("one-hot", indexed, chip="v6e")
def looked_up_by_matmul() -> Call:
    def f(table: Any, rows: Any) -> Any:
        return jax.nn.one_hot(rows, 32768, dtype=table.dtype) @ table

    return f, indexed()[1]


@planted("gather", lambda: (lambda t: jnp.tanh(t[::1]), (normal(2**22),)))
def single_numbers() -> Call:
    rows = np.random.default_rng(0).integers(0, 2**24, 2**21).astype(np.int32)
    return lambda t, i: t[i], (normal(2**24), jnp.asarray(rows))


# --- idle -----------------------------------------------------------------------------------------


@planted("short-kernels", lambda: (jnp.matmul, (normal(768, 768), normal(768, 768))))
def many_turns() -> Call:
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 3000, lambda i, x: jnp.sin(x) @ jnp.eye(4), x)

    return f, (normal(4, 4),)


def long_program() -> Call:
    f = jax.jit(lambda x: x @ x @ x)
    return f, (normal(1024, 1024),)


@planted("host", long_program, jit=False)
def slow_host() -> Call:
    f = jax.jit(lambda x: jnp.tanh(x @ x))

    def step(x: Any) -> Any:
        y = f(x)
        time.sleep(0.02)  # a loader, a logger
        return f(y)

    return step, (normal(256, 256),)


@planted("dispatch", long_program)
def short_program() -> Call:
    return lambda x: x + 1, (normal(64),)


@planted("callback", lambda: (lambda x: jnp.sin(x) * 2, (normal(2**20),)))
def callback() -> Call:
    def f(x: Any) -> Any:
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(lambda y: np.asarray(y) * 2, like, jnp.sin(x))

    return f, (normal(2**20),)


@planted("compiling", long_program, jit=False)
def jitted_inside() -> Call:
    def step(x: Any) -> Any:
        return jax.jit(lambda y: jnp.tanh(y) @ y)(x)

    return step, (normal(256, 256),)


def sharded(split: bool) -> Call:
    mesh = AbstractMesh((4,), ("x",))

    def at(shape: tuple[int, int], *axes: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*axes)))

    rows = at((1024, 4096), *((None, "x") if split else ("x", None)))
    weights = at((4096, 4096), "x" if split else None, None)
    return jax.jit(lambda x, w: jnp.tanh(x @ w)), (rows, weights)


@planted("transcendentals", lambda: (lambda x: 2 * x + 1, (spec(4096, 4096),)), chip="v6e")
def exponentials() -> Call:
    return (lambda x: jnp.tanh(jnp.exp(jnp.sin(x)))), (spec(4096, 4096),)


@planted("communication", lambda: sharded(False), chip="v5e")
def summed_over_devices() -> Call:
    return sharded(True)


@functools.cache
def explained(program: Callable[[], Call], **options: Any) -> Any:
    """Explain a program, once: some sound ones are those of several causes."""
    fn, args = program()
    return roofline.explain(fn, *args, **{"seconds": 0.1, "progress": False, **options})
