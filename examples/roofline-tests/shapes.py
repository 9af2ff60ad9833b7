"""What the steps are called with: shapes and types only. Nothing runs, no accelerator is needed."""

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P


def array(*shape, dtype="bfloat16", sharding=None):
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=sharding)


LAYERS = {
    "scale": array(2, 512),
    "up": array(2, 512, 2048),
    "down": array(2, 2048, 512),
}
TOKENS = array(16384, 512)

ATTENTION = {name: array(1024, 1024) for name in ("q", "k", "v", "out")}
SEQUENCES = array(8, 1024, 1024)

CACHE = array(8, 4096, 8, 128)
ROW = array(8, 8, 128)
POSITION = array(dtype="int32")

MESH = AbstractMesh((4, 4), ("data", "model"))


def spread(shape, *spec):
    return array(*shape, sharding=NamedSharding(MESH, P(*spec)))


SHARDED = {
    "up": spread((4096, 16384), None, "model"),
    "down": spread((16384, 4096), "model", None),
}
SHARDED_TOKENS = spread((8192, 4096), "data", None)
