"""Attention, interpreted, against fp64 references (tolerances: `kernel_suite`)."""

import math

import numpy as np
import pytest
from kernel_suite import compiled_quickly, jax, jnp, near, wide, x64

from roofline import kernels

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hasty")]  # kernels are interpreted


def visible(q_len, kv_len, causal):
    later = np.arange(kv_len) > np.arange(q_len)[:, None] + kv_len - q_len
    return np.where(later & causal, -np.inf, 0)


def plain_attention(q, k, v, hidden):
    """Compute attention with all scores at once; rows that see nothing give zeros."""
    group = q.shape[1] // k.shape[1]
    k = jnp.repeat(k, group, axis=1)
    v = jnp.repeat(v, group, axis=1)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[3]) + hidden
    highest = jnp.max(scores, axis=-1, keepdims=True)
    weights = jnp.exp(scores - jax.lax.stop_gradient(jnp.where(jnp.isinf(highest), 0, highest)))
    total = jnp.sum(weights, axis=-1, keepdims=True)
    weights = weights / jnp.where(total == 0, 1, total)
    return jnp.einsum("bhqk,bhkd->bhqd", weights, v), scores


# layout, (batch, heads, kv_heads, q_len, kv_len, head_dim), type, causal
ATTENTIONS = [
    ("gpu", (1, 2, 1, 1, 17, 5), "bfloat16", True),
    ("gpu", (2, 4, 2, 37, 51, 20), "float32", True),
    ("tpu", (2, 2, 1, 300, 600, 16), "bfloat16", False),
    # blocks before the diagonal, on it and beyond
    ("gpu", (1, 1, 1, 100, 133, 16), "float32", True),
]


@pytest.mark.parametrize(("layout", "shape", "dtype", "causal"), ATTENTIONS)
def test_attention_and_its_gradients(layout, shape, dtype, causal):
    batch, heads, kv_heads, q_len, kv_len, width = shape
    rng = np.random.default_rng(shape)
    q, do = (jnp.asarray(rng.normal(size=(batch, heads, q_len, width)), dtype) for _ in range(2))
    k, v = (jnp.asarray(rng.normal(size=(batch, kv_heads, kv_len, width)), dtype) for _ in "kv")
    hidden = visible(q_len, kv_len, causal)

    def reference(q, k, v, do):
        def run(*qkv):
            return plain_attention(*qkv, hidden)

        o, pull, scores = jax.vjp(run, q, k, v, has_aux=True)
        return [scores, o, *pull(do)]

    def both(q, k, v, do):
        def run(*qkv):
            return kernels.attention(*qkv, causal=causal, layout=layout, interpret=True)

        o, pull = jax.vjp(run, q, k, v)
        return [o, *pull(do)]

    with x64():
        every = compiled_quickly(reference, *map(wide, (q, k, v, do)))
        scores, *wanted = map(np.asarray, every)
    results = compiled_quickly(both, q, k, v, do)
    blind = ~np.isfinite(scores).any(axis=-1)
    assert blind.any() == (causal and q_len > kv_len)
    assert not wide(results[0])[blind].any()
    assert not wide(results[1])[blind].any()
    for result, reference in zip(results, wanted, strict=True):
        assert str(result.dtype) == dtype
        near(result, np.where(np.isnan(reference), 0, reference))


def test_attention_survives_large_scores():
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(1, 1, 16, 16)), "float32") for _ in "qkv")
    o = kernels.attention(100 * q, 100 * k, v)
    nearest = np.argmax(wide(q)[0, 0] @ wide(k)[0, 0].T, axis=1)
    near(o[0, 0], wide(v)[0, 0][nearest])
