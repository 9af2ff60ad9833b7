"""The rungs of examples/llama_decode compute the same step."""

from dataclasses import replace

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: no step can run")

from kernel_suite import compiled_quickly  # noqa: E402

from examples.llama_decode import model, steps  # noqa: E402

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
