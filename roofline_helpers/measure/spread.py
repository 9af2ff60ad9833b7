"""A layer spread over the devices that JAX has: tensor-parallel, FSDP, and its arithmetic alone.

Each is one program that the compiler partitions: it puts in the collectives, and hides them where
it can. "alone" is the same arithmetic on each device, of parts that are there already: what is
longer than that is exposed communication.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from roofline_helpers.measure.case import Case, array
from roofline_helpers.measure.collectives import AXIS, Spread, mesh
from roofline_helpers.work import Work

WIDTH, HIDDEN = 8192, 28672
"""Of the MLP: Llama-3-70B's."""

BATCHES = (256, 1024, 4096, 16384)

Axes = tuple[str | None, ...]


def mlp(x: Any, up: Any, down: Any) -> Any:
    """Two matrices with GELU between them."""
    import jax

    return jax.nn.gelu(x @ up) @ down


HOW: Mapping[str, tuple[Axes, Axes, Axes]] = {
    "tensor-parallel": ((None, None), (None, AXIS), (AXIS, None)),
    "FSDP": ((AXIS, None), (AXIS, None), (None, AXIS)),
}
"""How x, up and down are spread over the devices."""


def cases(
    batches: Sequence[int] = BATCHES,
    width: int = WIDTH,
    hidden: int = HIDDEN,
    dtype: str = "bf16",
    devices: Sequence[Any] | None = None,
) -> list[Case]:
    """Return the MLP of each batch: tensor-parallel and FSDP, each with its arithmetic alone.

    Parameters
    ----------
    batches : sequence of int
        Rows of x, on all devices together.
    width, hidden : int
        Of the MLP.
    dtype : str
        One of `JAX_DTYPES`.
    devices : sequence of jax.Device, optional
        Those that take part; all that JAX has if not given.

    Raises
    ------
    BadValue
        Fewer than two devices, or sizes that they don't divide.
    """
    place = mesh(devices)
    count = int(place.devices.size)
    made = []
    for batch in batches:
        for how, axes in HOW.items():
            for alone in (False, True):
                parts = _parts(how, batch, width, hidden, count) if alone else None
                shapes = parts or ((batch, width), (width, hidden), (hidden, width))
                name = f"MLP {batch}×{width}×{hidden}, {how}{', arithmetic alone' if alone else ''}"
                make = functools.partial(_made, shapes, dtype, place, None if alone else axes)
                start = functools.partial(_started, place, axes, alone)
                job = _work(how, batch, width, hidden, count, alone)
                made.append(Case(f"{name} over {count}", "spread", job, make, start=start))
    return made


def _parts(
    how: str, batch: int, width: int, hidden: int, count: int
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of one device's part of the arithmetic."""
    if how == "FSDP":
        return (batch // count, width), (width, hidden), (hidden, width)
    return (batch, width), (width, hidden // count), (hidden // count, width)


def _made(
    shapes: Sequence[tuple[int, ...]], dtype: str, place: Any, axes: Sequence[Axes] | None
) -> tuple[Any, ...]:
    """Return the arrays, spread; without axes each device has one of its own."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    arrays = []
    for i, shape in enumerate(shapes):
        where = PartitionSpec(*axes[i]) if axes else PartitionSpec()
        scale = shape[0] ** -0.5 if i else 1.0
        arrays.append(
            jax.device_put(array(*shape, dtype=dtype, scale=scale), NamedSharding(place, where))
        )
    return tuple(arrays)


def _started(place: Any, axes: tuple[Axes, Axes, Axes], alone: bool, *arrays: Any) -> Spread:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    if alone:
        return Spread(mlp, arrays)
    result = NamedSharding(place, PartitionSpec(*axes[0]))

    def spread(*arguments: Any) -> Any:
        return jax.lax.with_sharding_constraint(mlp(*arguments), result)

    return Spread(spread, arrays)


def _work(how: str, batch: int, width: int, hidden: int, count: int, alone: bool) -> Work:
    """Count one device's share: FLOPs, bytes, and what it sends by the ring's count."""
    weights = 4.0 * width * hidden  # bytes
    if how == "FSDP":
        rows, local, sent = batch / count, weights, weights * (count - 1) / count
    else:
        rows, local = float(batch), weights / count
        sent = 4.0 * batch * width * (count - 1) / count
    flops = 4.0 * batch * width * hidden / count
    reads = {"x": 2.0 * rows * width, "weights": local}
    others = {} if alone else {"network": sent}
    return Work(f"MLP, {how}", reads, {"y": 2.0 * rows * width}, flops, dtype="bf16", others=others)
