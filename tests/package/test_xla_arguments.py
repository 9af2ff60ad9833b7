"""What can be analysed: kinds of functions, arguments, meshes, devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_programs import spec
from compiled_reports import needs

from roofline import xla
from roofline.diagnosis import explain
from roofline_helpers.common.checks import RooflineError


def test_every_kind_of_function_and_argument():
    needs("v6e")
    n = 256
    x = jnp.ones((n, n), jnp.bfloat16)
    wanted = xla.analyze(lambda a: a * 2 + 1, spec(n, n), chip="v6e")
    assert (wanted.vector_flops, wanted.hbm_bytes) == (2 * n * n, 4 * n * n)

    def named(a, *, mode):
        return a * 2 + 1 if mode == "double" else a

    def positional(a, mode):
        return a * 2 + 1 if mode == "double" else a

    factor = jnp.asarray(2, jnp.bfloat16)
    variants = [
        (lambda a: a * 2 + 1, (x,), {}),
        (lambda a: a * factor + 1, (spec(n, n),), {}),
        (lambda tree: tree["a"][0] * 2 + 1, ({"a": [spec(n, n)]},), {}),
        (positional, (spec(n, n), "double"), {"static_argnums": 1}),
        (lambda a, k: a * k.astype(a.dtype) + 1, (x, np.float32(2)), {}),
        (named, (spec(n, n),), {"mode": "double", "static_argnames": "mode"}),
        (jax.jit(jax.vmap(lambda a: a * 2 + 1)), (spec(n, n),), {}),
    ]
    for fn, args, options in variants:
        report = xla.analyze(fn, *args, chip="v6e", **options)
        assert (report.vector_flops, report.hbm_bytes) == (2 * n * n, 4 * n * n)
        assert report.bounds == ("memory", "latency")


def test_a_cpu_as_the_chip_is_the_one_here():
    x = jnp.ones((8, 8))
    for chip in (jax.devices("cpu")[0], "cpu", None):
        assert xla.analyze(jnp.matmul, x, x, chip=chip).target == "cpu"
    assert explain(jnp.matmul, x, x, chip="cpu", seconds=0.01, progress=False).origin == "measured"


@pytest.mark.parametrize("ask", [xla.analyze, explain])
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"topology": "2x2"}, "give chip= too"),
        ({"chip": "v6e-"}, "Nearest: 'v6e'"),
        ({"chip": "v6e-two"}, "Nearest: 'v6e'"),
    ],
)
def test_half_a_target_is_refused(ask, asked, said):
    with pytest.raises(RooflineError, match=said):
        ask(jnp.sin, jnp.ones(8), **asked)
