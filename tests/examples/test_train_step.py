"""The rungs of examples/train_step compute one step; context.py computes causal attention."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: no step can run")
jnp = jax.numpy

from kernel_suite import QUICK  # noqa: E402


def losses() -> dict[str, list[float]]:
    """Return four losses of some rungs, on the four devices of this process."""
    from examples.train_step import model, rungs

    shape, tokens, found = rungs.Llama(2, 64, 128, 4, 2, 16, 128), (4, 32), {}
    for rung in (*rungs.RUNGS, *rungs.ASIDE):
        if rung.name not in ("as first written", "fp8", "straggler"):
            continue
        delayed = 1 if rung.way.straggler else 0
        way = replace(rung.way, attention="einsum", straggler=delayed)
        mesh = model.mesh(way)
        step = model.compiled(shape, way, mesh, tokens)
        state, ids = model.state(shape, way, mesh), model.batch(shape, *tokens, mesh)
        for _ in range(4):
            state, loss = step(state, ids)
            found.setdefault(rung.name, []).append(float(loss))
    return found


def distances() -> dict[str, float]:
    """Return how far attention over a cut sequence is from the same in one piece."""
    from jax.sharding import AxisType
    from jax.sharding import PartitionSpec as P

    from examples.train_step import context

    keys = jax.random.split(jax.random.key(0), 3)
    heads = zip(keys, (4, 2, 2), strict=True)
    q, k, v = (jax.random.normal(key, (1, 64, many, 16)) for key, many in heads)
    wanted, _ = context.partial(q, k, v, causal=True)
    mesh = jax.make_mesh((4,), (context.AXIS,), axis_types=(AxisType.Auto,))
    cut, found = P(None, context.AXIS), {}
    for name, (way, zigzag) in context.WAYS.items():
        order = context.zigzag_order(64, 4) if zigzag else jnp.arange(64)
        one: Any = functools.partial(way, n=4)
        run = jax.shard_map(one, mesh=mesh, in_specs=(cut,) * 3, out_specs=cut, check_vma=False)
        got = jax.jit(run)(*(x[:, order] for x in (q, k, v)))
        found[name] = float(jnp.linalg.norm(got - wanted[:, order]) / jnp.linalg.norm(wanted))
    return found


@functools.cache
def elsewhere() -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return both, from a process with four devices."""
    flags = {"xla_force_host_platform_device_count": 4, **QUICK}
    typed = " ".join(f"--{name}={value}".lower() for name, value in flags.items())
    environment = {**os.environ, "XLA_FLAGS": typed, "JAX_PLATFORMS": "cpu"}
    path = os.pathsep.join(each for each in sys.path if each)
    code = "import json, test_train_step as t; print(json.dumps([t.losses(), t.distances()]))"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    first, second = json.loads(told.stdout.splitlines()[-1])
    return first, second


@pytest.mark.slow
def test_each_rung_learns_as_the_first_one_does() -> None:
    found, _ = elsewhere()
    first = found.pop("as first written")
    assert first[3] < first[0] - 0.01
    assert set(found) == {"fp8", "straggler"}
    for name, each in found.items():
        close = 0.02 if name == "fp8" else 3e-3
        assert each == pytest.approx(first, rel=close), name
    assert found["fp8"] != found["straggler"]


@pytest.mark.slow
def test_attention_over_a_cut_sequence_is_attention() -> None:
    _, found = elsewhere()
    assert set(found) == {"gathered, in order", "ring, in order", "ring, zigzag"}
    assert max(found.values()) < 1e-5
