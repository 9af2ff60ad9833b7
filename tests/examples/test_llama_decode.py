"""The rungs of examples/llama_decode compute the same step; its kernels are lowered and right."""

from dataclasses import replace

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: no step can run")
jnp = jax.numpy

from kernel_suite import compiled_quickly  # noqa: E402

from examples.llama_decode import model, steps  # noqa: E402
from examples.llama_decode.plan import Cut, Ring  # noqa: E402

SHAPE = model.Llama(2, width=128, hidden=192, heads=4, groups=2, head=32, vocabulary=64)
TOKENS = 256
PLAIN = [rung for rung in steps.RUNGS if isinstance(rung.way, model.Plain)]


def distance(got: jax.Array, wanted: jax.Array) -> float:
    got, wanted = (np.asarray(each, np.float32) for each in (got, wanted))
    assert np.isfinite(got).all()
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


def by_layer(cache: model.Cache, plain: model.Plain) -> np.ndarray:
    """Return a cache as [layer, keys or values, B, T, G, D]."""
    each = np.asarray(jax.tree.map(lambda x: np.asarray(x, np.float32), cache))
    each = each.swapaxes(0, 1) if plain.scan else each
    return each.swapaxes(3, 4) if plain.by_head else each


def ran(rung: steps.Rung, position: int) -> tuple[jax.Array, np.ndarray]:
    plain = rung.way
    if plain.attention == "cudnn":  # JAX's own attention is the same function, on a CPU too
        plain = replace(plain, attention="xla")
    rung = replace(rung, way=plain)
    weights, cache, tokens, _ = rung.arguments(SHAPE, 3, TOKENS)
    arguments = weights, cache, tokens, np.int32(position)
    logits, cache = compiled_quickly(rung.jitted(SHAPE), *arguments)
    return logits, by_layer(cache, plain)


@pytest.mark.usefixtures("hasty")
def test_rungs_in_plain_jax_compute_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = compiled_quickly(lambda: model.random_weights(SHAPE))
    monkeypatch.setattr(model, "random_weights", lambda shape: weights)  # made once
    wanted, cache = ran(PLAIN[0], 130)
    for rung in PLAIN[1:]:
        logits, own = ran(rung, 130)
        assert distance(logits, wanted) < 0.02, rung.name
        assert np.array_equal(np.delete(own, 130, 3), np.delete(cache, 130, 3)), rung.name
        assert distance(own[:, :, :, 130], cache[:, :, :, 130]) < 0.02, rung.name
    other, _ = ran(PLAIN[0], 131)
    assert distance(other, wanted) > 0.02  # the position matters: the bounds above can fail


gpu = pytest.importorskip("jax.experimental.pallas.mosaic_gpu", exc_type=ImportError)


NEEDS_JAX = pytest.mark.skipif(
    not hasattr(gpu, "InterpretGPUParams"), reason="the kernels need JAX 0.11"
)


@NEEDS_JAX
@pytest.mark.parametrize("batch", [1, 16])
def test_kernels_are_lowered_for_a_gpu(batch: int) -> None:
    rung = steps.RUNGS[-1]
    shape = model.Llama(layers=1)
    specs = jax.eval_shape(lambda: rung.arguments(shape, batch, 2048))
    checks = [jax.export.DisabledSafetyCheck.custom_call("mosaic_gpu_v2")]
    made = jax.export.export(rung.jitted(shape), platforms=["cuda"], disabled_checks=checks)(*specs)
    kernels = 8 if batch == 1 else 7  # with one sequence the splits are merged
    assert made.mlir_module().count("custom_call @mosaic_gpu_v2") == kernels


def interpreted() -> dict[str, object]:
    return {"interpret": gpu.InterpretGPUParams(), "chain": False}


def normal(key: int, *size: int, dtype: object = jnp.float32) -> jax.Array:
    return jax.random.normal(jax.random.key(key), size, dtype)


@NEEDS_JAX
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_product_with_a_norm_is_right(dtype: object) -> None:
    how = interpreted()
    from examples.llama_decode import hopper

    parts = normal(0, 2, 8, 512, dtype=dtype)
    residual = normal(1, 8, 512)
    gain = normal(2, 512)
    new, y, squares = hopper.add(parts, residual, gain, **how)
    np.testing.assert_allclose(
        new, residual + parts.astype(jnp.float32).sum(0), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(squares[:, :8], hopper.first_squares(new)[:, :8], rtol=1e-5)
    w = normal(3, 256, 512, dtype=jnp.bfloat16) / 512**0.5
    cut = Cut(128, ring=Ring(4, ahead=3))
    got = hopper.linear(y, hopper.pack(w, cut), cut, squares, swiglu=True, **how)
    wanted = model.rms_norm(new, gain, 1e-5) @ w.T.astype(jnp.float32)
    gate, up = jnp.split(wanted.reshape(8, 2, 128), 2, axis=2)  # a tile: 64 of gate, 64 of up
    assert distance(got, (jax.nn.silu(gate) * up).reshape(8, -1)) < 0.01
    narrow = dtype == jnp.bfloat16
    parts = hopper.linear(y, hopper.pack(w, cut), replace(cut, splits=2), narrow=narrow, **how)
    assert parts.dtype == dtype
    plain = y.astype(jnp.float32) @ w.T.astype(jnp.float32)
    assert distance(parts.astype(jnp.float32).sum(0), plain) < 0.01


@NEEDS_JAX
@pytest.mark.parametrize(
    ("position", "splits", "dtype"),
    [
        (0, 1, jnp.float32),
        (200, 1, jnp.bfloat16),
        (200, 2, jnp.float32),
    ],
)
def test_attention_rotates_appends_and_attends(position: int, splits: int, dtype: object) -> None:
    how = interpreted()
    from examples.llama_decode import hopper_attention

    shape = model.Llama(heads=8, groups=2)
    plain = model.Plain(False, False, by_head=True)
    parts = normal(0, 2, 8, 12 * 128, dtype=dtype)
    at = jnp.array([position], jnp.int32)
    keys, values = (normal(key, 1, 2, TOKENS, 128, dtype=jnp.bfloat16) for key in (1, 2))
    turn = model.angles(shape, jnp.int32(position))
    refs = jax.new_ref(keys), jax.new_ref(values)
    layout = {"ring": Ring(2, ahead=1), "programs": 4, "splits": splits}
    got = hopper_attention.attend(parts, turn, at, *refs, **layout, **how)
    if splits > 1:
        got = hopper_attention.merge(*got, 8, **how)[:1]
    q, k, v = jnp.split(parts.astype(jnp.float32).sum(0)[:1].reshape(1, 12, 128), [8, 10], axis=1)
    q, k, v = (x.astype(jnp.bfloat16) for x in (model.rotate(q, *turn), model.rotate(k, *turn), v))
    keys = keys.at[:, :, position].set(k)
    values = values.at[:, :, position].set(v)
    assert jnp.array_equal(refs[0][...], keys)
    assert jnp.array_equal(refs[1][...], values)
    assert distance(got, model.attend(q, keys, values, jnp.int32(position), plain)) < 0.01
