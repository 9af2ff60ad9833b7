"""Single kernels: products that aren't square, elementwise, reductions, normalisations, gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from roofline_helpers import work
from roofline_helpers.work import Work
from tools.gpu.chain import EPS, layernorm
from tools.gpu.suite import Suite


def products(suite: Suite) -> None:
    """Add products that aren't square: skinny, batched, one vector."""
    n = suite.size(8192)
    for m in (1, 8, 16, 64, 128, 256, 512):
        suite.matmul(m, n, n, "bf16", "skinny", torch=m in (1, 16, 128) or suite.tiny)
    suite.matmul(n, n, suite.size(64), "bf16", "skinny", torch=True)
    for batch, side in ((64, suite.size(1024)), (1024, suite.size(128))):
        suite.matmul(side, side, side, "bf16", "batched", batch=batch, torch=True)
    suite.matmul(1, suite.size(28672), n, "bf16", "decode", torch=True)


def elementwise(suite: Suite) -> None:
    """Add x + 1 from tiny to huge, exp and GELU."""
    for e in (8, 10) if suite.tiny else (12, 16, 20, 22, 24, 26, 28):
        n = 2**e
        job = work.elementwise(n, 1, 1, 1, "bf16")
        suite.jax(f"x + 1 on 2^{e} bf16", "elementwise", job, lambda x: x + 1, (n,))
    n = suite.elements(2**28)
    special = work.elementwise(n, 1, 1, 1, "bf16", transcendentals=1, name="exp")
    suite.jax(f"exp on {n} bf16", "elementwise", special, jnp.exp, (n,))
    suite.jax(f"GELU on {n} bf16", "elementwise", work.gelu(n), jax.nn.gelu, (n,))


def reductions(suite: Suite) -> None:
    """Add sums along rows and along columns."""
    side = suite.size(16384)
    for axis, name in ((1, "row sums"), (0, "column sums")):
        suite.jax(
            f"{name} {side}×{side} fp32",
            "reductions",
            work.reduction(side, side, "fp32"),
            lambda x, axis=axis: x.sum(axis),
            (side, side),
            dtype="fp32",
        )


def normalisations(suite: Suite) -> None:
    """Add LayerNorm and softmax."""
    for rows, columns in ((65536, 4096), (8192, 1024)):
        r, c = suite.size(rows), suite.size(columns)
        name = f"LayerNorm {r}×{c} bf16"
        job = work.layernorm(r, c)
        suite.jax(name, "normalisations", job, layernorm, (r, c), (c,), (c,))

        def norm(x: Any, g: Any, b: Any) -> Callable[[], Any]:
            return lambda: suite.torch.nn.functional.layer_norm(x, x.shape[-1:], g, b, EPS)

        suite.pytorch(name, "normalisations", job, norm, (r, c), (c,), (c,))
    for rows, columns in ((8192, 8192), (262144, 1024)):
        r, c = suite.size(rows), suite.size(columns)
        name = f"softmax {r}×{c} bf16"
        suite.jax(name, "normalisations", work.softmax(r, c), jax.nn.softmax, (r, c))

        def soft(x: Any) -> Callable[[], Any]:
            return lambda: suite.torch.softmax(x, -1)

        suite.pytorch(name, "normalisations", work.softmax(r, c), soft, (r, c))


def gather(suite: Suite) -> None:
    """Add gathers: rows of a table, and single elements, in random order."""
    rows = suite.size(2**18)
    width = suite.size(1024)
    table = rows * width * 2
    taken = rows * width * 2
    job = Work("gather rows", {"table": table, "index": rows * 4}, {"y": taken}, dtype="bf16")

    def index(n: int, below: int) -> Callable[[], Any]:
        return lambda: jax.device_put(
            np.random.default_rng(1).integers(0, below, n, dtype=np.int32)
        )

    suite.jax(
        f"gather {rows} rows of {width} bf16",
        "gather",
        job,
        lambda t, i: jnp.take(t, i, axis=0, mode="clip"),
        (rows, width),
        index(rows, rows),
    )
    n = suite.elements(2**28)
    m = suite.elements(2**25)
    job = Work("gather elements", {"x": 4 * m, "index": 4 * m}, {"y": 4 * m}, dtype="fp32")
    suite.jax(
        f"gather {m} elements of {n} fp32",
        "gather",
        job,
        lambda x, i: jnp.take(x, i, mode="clip"),
        (n,),
        index(m, n),
        dtype="fp32",
        needs=8.0 * n,
    )
