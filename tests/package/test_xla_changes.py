"""Two reports side by side, kernels by groups, and costs by JAX's own keys."""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from compiled_programs import sharded, spec
from compiled_reports import needs, report_of

from roofline import xla
from roofline.xla.flops import Flops
from roofline.xla.kernel import cycle_seconds_of, seconds_of
from roofline_helpers.common.checks import UnknownName

N, F = 1024, 4096


def mlp(w: Any, x: Any, *, wide: bool = False) -> Any:
    with jax.named_scope("up"):
        hidden = x @ w["up"]
    with jax.named_scope("act"):
        hidden = jax.nn.relu(hidden)
    hidden = jax.lax.optimization_barrier(hidden)
    with jax.named_scope("down"):
        out = hidden.astype(x.dtype) @ w["down"]
        return out.astype(jnp.float32) if wide else out


WEIGHTS = {"up": (N, F), "down": (F, N)}


@functools.cache
def mlp_report(*, wide: bool = False) -> xla.Report:
    weights = {name: spec(*shape) for name, shape in WEIGHTS.items()}
    fn = functools.partial(mlp, wide=wide)
    return xla.analyze(fn, weights, spec(8 * N, N), chip="v6e", name="mlp")


def test_an_upcast_is_seen_where_it_is() -> None:
    needs("v6e")
    difference = mlp_report().diff(mlp_report(wide=True))
    change, memory = difference.changes
    assert memory.kind == "memory"
    assert (change.kind, change.location) == ("grew", "down")
    assert change.hbm_bytes == 2 * 8 * N * N
    # bound by compute: the roof's time stays
    back = mlp_report(wide=True).diff(mlp_report())
    assert {change.kind for change in back.changes} == {"shrank", "memory"}
    rows = (
        replace(row, flops=Flops(matrix=row.flops.matrix / 2)) for row in mlp_report(wide=True).rows
    )
    faster = mlp_report().diff(replace(mlp_report(wide=True), rows=tuple(rows)))
    assert {change.kind for change in faster.changes} == {"shrank", "memory"}


def test_an_exchange_comes_in() -> None:
    needs("v6e")

    def product(a: Any, b: Any) -> Any:
        return a @ b

    whole = xla.analyze(product, sharded((N, N)), sharded((N, N), None, "model"), chip="v6e")
    split = xla.analyze(
        product, sharded((N, N), None, "model"), sharded((N, N), "model", None), chip="v6e"
    )
    came = [change for change in whole.diff(split).changes if change.kind == "exchange"]
    assert [change.text.partition(":")[0] for change in came] == ["all-reduce along model came in"]
    gone = [change for change in split.diff(whole).changes if change.kind == "exchange"]
    assert "is gone" in gone[0].text


def test_groups_hold_every_kernel_once() -> None:
    needs("v6e")
    report = report_of("transformer-block-step", "v6e")
    for by in ("scope", "line", "role"):
        groups = report.groups(by)
        listed = [kernel for kernels in groups.values() for kernel in kernels]
        assert sorted(map(id, listed)) == sorted(map(id, report.kernels))
        longest = [
            max(seconds_of(kernels), cycle_seconds_of(kernels)) for kernels in groups.values()
        ]
        assert longest == sorted(longest, reverse=True)
    with pytest.raises(UnknownName, match="scope, function, line, role"):
        report.groups("colour")
