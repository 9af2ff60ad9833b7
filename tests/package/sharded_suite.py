"""Sharded programs, with their exchanges counted by hand: kind, bytes in and out, axis, times.

The bytes of an exchange are those of one device: what it brings, and what it has afterwards.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

BF16 = 2
Hand = tuple[str, int, int, str | None, int]
"""An exchange: kind, bytes in, bytes out, axis, launches."""


@dataclass(frozen=True)
class Sharded:
    """A program for a chip and a mesh, and its exchanges in any order."""

    chip: str
    mesh: dict[str, int]
    make: Callable[[Any], tuple[Any, tuple[Any, ...]]]
    hand: list[Hand]
    layout: str | None = None


def mesh_of(axes):
    types = (AxisType.Auto,) * len(axes)
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=types)


def array(mesh, shape, *spec):
    placed = NamedSharding(mesh, PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(shape, "bfloat16", sharding=placed)


# --- said outright, with shard_map ----------------------------------------------------------------

N, WIDE = 2048, 1024
LOCAL = BF16 * N * WIDE  # what a device has of an array of n·N rows


def mapped(body, over, out=None):
    """Return a maker of a shard_map over rows; its result is spread the same way unless told."""

    def make(mesh):
        spread = PartitionSpec(over)
        names = (over,) if isinstance(over, str) else over
        devices = math.prod(mesh.shape[name] for name in names)
        fn = jax.shard_map(
            body,
            mesh=mesh,
            in_specs=spread,
            out_specs=spread if out is None else PartitionSpec(*out),
            check_vma=False,
        )
        return fn, (array(mesh, (devices * N, WIDE), over),)

    return make


def looped(axis, turns):
    def turn(x, _):
        return lax.psum(x, axis) * 0.5, None

    return lambda x: lax.scan(turn, x, None, length=turns)[0]


# --- left to the compiler -------------------------------------------------------------------------

ROWS, D, F = 512, 1024, 4096


def multilayer(w, x):
    return jax.nn.relu(x @ w["up"]) @ w["down"]


def kept(fn, mesh, *spec):
    place = NamedSharding(mesh, PartitionSpec(*spec))
    return lambda *args: lax.with_sharding_constraint(fn(*args), place)


def both(mesh):
    weights = {
        "up": array(mesh, (D, F), "data", "model"),
        "down": array(mesh, (F, D), "model", "data"),
    }
    return kept(multilayer, mesh, "data"), (weights, array(mesh, (8 * ROWS, D), "data"))


def across_slices(mesh):
    """A gradient that slices add up, of weights that are spread over them too."""

    def loss(w, x):
        return ((x @ w).astype("float32") ** 2).mean()

    every = ("slice", "data")
    return jax.grad(loss), (array(mesh, (D, F), every), array(mesh, (16 * ROWS, D), every))


def windowed(mesh):
    """Rows arrive by sequence, products are by columns: XLA makes loops of permutes of it."""
    d, f, rows = 8192, 28672, 16384
    weights = {
        "up": array(mesh, (d, f), None, "model"),
        "down": array(mesh, (f, d), "model", None),
    }
    return kept(multilayer, mesh, "model"), (weights, array(mesh, (rows, d), "model"))


def _window(n):
    shard = BF16 * 16384 * 8192 // n
    return [
        ("all-gather", shard, n * shard, "model", 1),
        ("reduce-scatter", n * shard, shard, "model", 1),
    ]


W = BF16 * D * F  # one matrix of weights

SHARDED = {
    "all-reduce, v5e": Sharded(
        "v5e",
        {"data": 4},
        mapped(lambda x: lax.psum(x, "data"), "data", out=()),
        [("all-reduce", LOCAL, LOCAL, "data", 1)],
    ),
    "all-to-all, v6e": Sharded(
        "v6e",
        {"expert": 4},
        mapped(lambda x: lax.all_to_all(x, "expert", 0, 0, tiled=True), "expert"),
        [("all-to-all", LOCAL, LOCAL, "expert", 1)],
    ),
    "one of two axes": Sharded(
        "v5e",
        {"data": 4, "model": 4},
        mapped(lambda x: lax.psum(x, "model"), ("data", "model"), out=("data",)),
        [("all-reduce", LOCAL, LOCAL, "model", 1)],
    ),
    "in a loop": Sharded(
        "v6e",
        {"data": 4},
        mapped(looped("data", 5), "data"),
        [("all-reduce", LOCAL, LOCAL, "data", 5)],
    ),
    "both, v5e": Sharded(
        "v5e",
        {"data": 4, "model": 4},
        both,
        [
            ("all-gather", W // 16, W // 4, "data", 1),
            ("all-gather", W // 16, W // 4, "data", 1),
            ("all-reduce", BF16 * 2 * ROWS * D, BF16 * 2 * ROWS * D, "model", 1),
        ],
    ),
    "across slices, v6e": Sharded(
        "v6e",
        {"slice": 2, "data": 8},
        across_slices,
        [
            ("all-gather", W // 16, W // 8, "slice", 1),
            ("all-gather", W // 8, W, "data", 1),
            ("all-reduce", W, W, "data", 1),  # of which each device then takes a part
            ("all-reduce", W // 8, W // 8, "slice", 1),
            ("all-gather", W // 8, W, "data", 1),
        ],
        "2*2x4",
    ),
    "windowed, v5e": Sharded("v5e", {"model": 16}, windowed, _window(16)),
}
