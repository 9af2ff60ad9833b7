"""Ways in which people write JAX, each analysed for a TPU v6e: prints what came out as JSON.

Run by test_xla_ways.py in a process with four pretended CPU devices: a mesh of the machine's own
devices needs them.
"""

import json

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from roofline import xla
from roofline.xla import compiler
from tools import programs

N = 512


def analyze(fn, *args):
    return xla.analyze(fn, *args, chip="v6e")


def mesh():
    return jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


SQUARE = jax.ShapeDtypeStruct((N, N), "bfloat16")


def product(a, b):
    return a @ b


def set_mesh():
    """Say by bare axes where the result belongs."""

    def kept(a, b):
        return jax.lax.with_sharding_constraint(a @ b, PartitionSpec("data", "model"))

    with jax.set_mesh(mesh()):
        return analyze(kept, SQUARE, SQUARE)


def in_shardings():
    over = mesh()
    specs = PartitionSpec(None, "model"), PartitionSpec("model", None)
    shardings = tuple(NamedSharding(over, spec) for spec in specs)
    return analyze(jax.jit(product, in_shardings=shardings), SQUARE, SQUARE)


def shard_map_on_a_concrete_mesh():
    summed = jax.shard_map(
        lambda a: jax.lax.psum(a, "data"),
        mesh=mesh(),
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec(),
    )
    return analyze(summed, SQUARE)


def pmap_over_more_devices_than_here():
    x = jax.ShapeDtypeStruct((8, N, N), "bfloat16")
    return analyze(jax.pmap(lambda a: jax.lax.psum(a @ a, "batch"), axis_name="batch"), x)


WAYS = (
    set_mesh,
    in_shardings,
    shard_map_on_a_concrete_mesh,
    pmap_over_more_devices_than_here,
)


def outcome(report):
    """Return what the test looks at."""
    collectives = [exchange.collective for exchange in report.exchanges]
    return {
        "target": report.target,
        "devices": report.devices,
        "tiled": "T(8,128)" in report.text,
        "matrix": report.matrix_flops,
        "hbm": report.hbm_bytes,
        "memory": report.memory.total if report.memory else 0,
        "collectives": [(e.kind, e.axis, e.group_size) for e in collectives],
    }


if __name__ == "__main__":
    compiler.compile_ahead = programs.ahead
    print(json.dumps({way.__name__: outcome(way()) for way in WAYS}))
