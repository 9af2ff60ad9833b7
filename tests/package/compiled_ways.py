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


def mesh(kind: str = "Auto", abstract: bool = False) -> Any:
    import jax
    from jax.sharding import AbstractMesh, AxisType

    types = (getattr(AxisType, kind),) * 2
    if abstract:
        return AbstractMesh((2, 2), ("data", "model"), axis_types=types)
    return jax.make_mesh((2, 2), ("data", "model"), axis_types=types)


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
def no_arguments() -> Any:
    import jax
    import jax.numpy as jnp

    return analyze(jax.jit(lambda: jnp.ones((N, N)) * 2))


@way
def only_a_number() -> Any:
    import jax
    import jax.numpy as jnp

    return analyze(jax.jit(lambda s: jnp.ones((N, N)) * s), 3.0)


@way
def abstract_mesh() -> Any:
    over = mesh(abstract=True)
    return analyze(product, square(None, "model", over=over), square("model", None, over=over))


@way
def explicit_axes() -> Any:
    over = mesh("Explicit", abstract=True)
    return analyze(product, square("data", None, over=over), square(None, "model", over=over))


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


@way
def out_shardings() -> Any:
    import jax

    place = square("data", "model", over=mesh()).sharding
    return analyze(jax.jit(product, out_shardings=place), square(), square())


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
def compiled_for_a_tpu() -> Any:
    import jax
    from jax.sharding import SingleDeviceSharding

    from roofline_helpers.chips import chip
    from roofline_helpers.xla.targets import all_devices

    place = SingleDeviceSharding(all_devices(chip("v6e"), "2x2")[0])
    x = jax.ShapeDtypeStruct((N, N), "bfloat16", sharding=place)
    return analyze(jax.jit(product).lower(x, x).compile(), chip=None)


@way
def compiled_here() -> Any:
    import jax

    return analyze(jax.jit(product).lower(square(), square()).compile(), chip=None)


@way
def a_cloud_s_name() -> Any:
    over = mesh(abstract=True)
    args = square(None, "model", over=over), square("model", None, over=over)
    return analyze(product, *args, chip="v6e-8")


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


@way
def ragged_paged_attention() -> Any:
    import jax
    from jax.experimental.pallas.ops.tpu.ragged_paged_attention import kernel

    def numbers(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, "int32")

    q = jax.ShapeDtypeStruct((64, 8, 128), "bfloat16")
    pages = jax.ShapeDtypeStruct((128, 16, 16, 128), "bfloat16")
    rest = numbers(8), numbers(8, 16), numbers(9), numbers(1)
    return analyze(lambda *args: kernel.ragged_paged_attention(*args), q, pages, *rest)


def _equinox() -> tuple[Any, Any, Any]:
    import equinox
    import jax

    model = equinox.nn.MLP(N, N, N, 1, key=jax.random.key(0))
    return equinox, model, jax.ShapeDtypeStruct((8, N), "float32")


@way
def equinox_module() -> Any:
    import jax

    _, model, x = _equinox()
    return analyze(lambda model, x: jax.vmap(model)(x), model, x)


@way
def equinox_filter_jit() -> Any:
    import jax

    equinox, model, x = _equinox()
    return analyze(equinox.filter_jit(lambda model, x: jax.vmap(model)(x)), model, x)


def _nnx() -> tuple[Any, Any, Any]:
    import jax
    from flax import nnx

    return nnx, nnx.Linear(N, N, rngs=nnx.Rngs(0)), jax.ShapeDtypeStruct((8, N), "float32")


@way
def nnx_module() -> Any:
    _, model, x = _nnx()
    return analyze(lambda model, x: model(x), model, x)


@way
def nnx_jit() -> Any:
    nnx, model, x = _nnx()
    return analyze(nnx.jit(lambda model, x: model(x)), model, x)


def told(report: Any) -> dict[str, Any]:
    """Return what the test looks at."""
    return {
        "target": report.target,
        "devices": report.devices,
        "mesh": dict(report.mesh),
        "topology": report.topology,
        "tiled": "T(8,128)" in report.text,
        "matrix": report.matrix_flops,
        "hbm": report.hbm_bytes,
        "memory": report.memory.total,
        "collectives": [(each.kind, each.axis, each.group_size) for each in report.collectives],
    }


def main() -> None:
    from roofline_helpers.xla import compiler
    from tools import programs

    for name, make in WAYS.items():
        # One is compiled each time, for several devices; the others' programs are kept
        compiler.compile_ahead = programs._ahead if name == "abstract_mesh" else programs.ahead
        try:
            outcome = told(make())
        except ModuleNotFoundError as error:
            outcome = {"absent": str(error)}
        except Exception as error:
            outcome = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({name: outcome}), flush=True)


if __name__ == "__main__":
    sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))]
    main()
