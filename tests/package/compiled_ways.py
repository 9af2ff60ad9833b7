"""Ways in which people write JAX, each analysed for a TPU v6e: prints what came out as JSON.

Run as a script, with four pretended CPU devices: a mesh of the machine's own devices needs them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    os.environ["JAX_PLATFORMS"] = "cpu"

N = 512
WAYS: dict[str, Callable[[], Any]] = {}


def way(make: Callable[[], Any]) -> Callable[[], Any]:
    """Add a way."""
    WAYS[make.__name__] = make
    return make


def analyze(fn: Any, *args: Any, **options: Any) -> Any:
    from roofline_helpers import xla

    return xla.analyze(fn, *args, chip=options.pop("chip", "v6e"), **options)


def mesh() -> Any:
    import jax
    from jax.sharding import AxisType

    return jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def square(*spec: Any, over: Any = None) -> Any:
    """Return the shape of a square matrix, spread over a mesh if one is given."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    sharding = NamedSharding(over, PartitionSpec(*spec)) if over is not None else None
    return jax.ShapeDtypeStruct((N, N), "bfloat16", sharding=sharding)


def product(a: Any, b: Any) -> Any:
    return a @ b


def kept(a: Any, b: Any) -> Any:
    """Multiply, and say by bare axes where the result belongs."""
    import jax

    return jax.lax.with_sharding_constraint(a @ b, jax.sharding.PartitionSpec("data", "model"))


@way
def set_mesh() -> Any:
    import jax

    with jax.set_mesh(mesh()):
        return analyze(kept, square(), square())


@way
def in_shardings() -> Any:
    import jax

    over = mesh()
    places = square(None, "model", over=over).sharding, square("model", None, over=over).sharding
    return analyze(jax.jit(product, in_shardings=places), square(), square())


def summed(over: Any) -> Any:
    import jax
    from jax.sharding import PartitionSpec

    return jax.shard_map(
        lambda a: jax.lax.psum(a, "data"),
        mesh=over,
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec(),
    )


@way
def shard_map_on_a_concrete_mesh() -> Any:
    return analyze(summed(mesh()), square())


@way
def lowered() -> Any:
    import jax

    return analyze(jax.jit(product).lower(square(), square()))


@way
def pallas_without_interpret() -> Any:
    import jax
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    def body(x: Any, out: Any) -> None:
        out[...] = x[...] * 2

    spec = pl.BlockSpec((128, N), lambda i: (i, 0))
    x = jax.ShapeDtypeStruct((N, N), "float32")

    def doubled(x: Any) -> Any:
        if hasattr(pltpu, "get_tpu_info"):  # what the kernels that ship with JAX ask
            assert pltpu.get_tpu_info().vmem_capacity_bytes > 0
        assert "TPU" in jax.devices()[0].device_kind
        assert jax.default_backend() == "tpu"
        return pl.pallas_call(body, grid=(4,), in_specs=[spec], out_specs=spec, out_shape=x)(x)

    return analyze(doubled, x)


def told(report: Any) -> dict[str, Any]:
    """Return what the test looks at."""
    collectives = [exchange.collective for exchange in report.exchanges]
    return {
        "target": report.target,
        "devices": report.devices,
        "mesh": dict(report.mesh),
        "topology": report.topology,
        "tiled": "T(8,128)" in report.text,
        "matrix": report.matrix_flops,
        "hbm": report.hbm_bytes,
        "memory": report.memory.total,
        "collectives": [(e.kind, e.axis, e.group_size) for e in collectives],
    }


def main() -> None:
    from roofline_helpers.xla import compiler
    from tools import programs

    compiler.compile_ahead = programs.ahead
    for name, make in WAYS.items():
        print(json.dumps({name: told(make())}), flush=True)


if __name__ == "__main__":
    sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))]
    main()
