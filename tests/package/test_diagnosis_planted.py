"""Faults that other compilers and machines show: planted, they are named, and else they are not."""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from compiled_programs import spec
from jax import lax

import roofline
from roofline.diagnosis.modelled import case_of
from roofline.xla import can_compile

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""


def normal(*shape):
    """Return normal numbers, which come again after 65,536: to draw millions takes longer."""
    return jnp.resize(np.random.default_rng(0).standard_normal(2**16, np.float32), shape)


def one_by_one(x, layers):
    for w in layers:
        x = jnp.tanh(x @ w)
    return x


def stacked(x, layers):
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, layers)[0]


def chain(x, between):
    y = between(between(jnp.tanh(x)) * 3 + x)
    return jnp.where(y > 0, y, 0.1 * y)


def unfused(between):
    return functools.partial(chain, between=between), (spec(2**28),)


def many_turns(x):
    return lax.fori_loop(0, 3000, lambda i, x: jnp.sin(x) @ jnp.eye(4), x)


WIDE = functools.partial(spec, dtype=jnp.float32)
COMPILED = {  # for a chip: at fault, and sound
    "relaid-weights": (
        "v7x",
        (stacked, (spec(16, 2048), spec(4, 2048, 2048))),
        (one_by_one, (spec(16, 2048), [spec(2048, 2048)] * 4)),
    ),
    "vector-product": (
        "v5e",
        (lambda a, b: jnp.sum(a[:, :, None] * b[None], 1), (WIDE(1024, 512), WIDE(512, 1024))),
        (jnp.matmul, (spec(1024, 512), spec(512, 1024))),
    ),
    "padded": (
        "v5e",
        (jnp.matmul, (spec(65536, 24, 40), spec(65536, 40, 24))),
        (jnp.matmul, (spec(2**18, 256), spec(256, 256))),
    ),
    "unfused": ("v5e", unfused(lax.optimization_barrier), unfused(lambda y: y)),
}


@pytest.mark.parametrize("cause", COMPILED)
def test_what_a_chip_s_compiler_shows(cause):
    chip, faulty, sound = COMPILED[cause]
    if missing := can_compile(chip):
        pytest.skip(missing)
    told, other = (
        roofline.explain(fn, *args, chip=chip, progress=False) for fn, args in (faulty, sound)
    )
    assert cause in {finding.cause for finding in told.findings}, str(told)
    assert cause not in {finding.cause for finding in other.findings}, str(other)
    seconds = [finding.seconds for finding in told.findings if finding.named]
    assert seconds == sorted(seconds, reverse=True)
    assert 0 < seconds[-1] <= seconds[0] <= case_of(told).wall * (1 + 1e-9)


def measured(fn, *args):
    why = roofline.explain(fn, *args, seconds=0.1, progress=False)
    if why.withheld:
        pytest.skip(f"NOT TESTED: {why.withheld}")
    return why


@pytest.mark.weekly
def test_what_a_clock_shows():
    rows = np.random.default_rng(0).integers(0, 2**24, 2**21).astype(np.int32)
    large = measured(lambda x: x @ x @ x, normal(1024, 1024))
    for cause, fn, args in (
        ("gather", lambda t, i: t[i], (normal(2**24), jnp.asarray(rows))),
        ("short-kernels", many_turns, (normal(4, 4),)),
        ("dispatch", lambda x: x + 1, (normal(64),)),
    ):
        assert cause in {finding.cause for finding in measured(fn, *args).findings}
        assert cause not in {finding.cause for finding in large.findings}
