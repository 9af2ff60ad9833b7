"""Measurements between devices: collectives, timed inside one program."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from roofline.measure.timing import CannotRun, JaxProgram
from roofline.measure.workloads import Case, size_in_words
from roofline.xla.compiler import executable_of
from roofline.xla.lower import Arguments, lower
from roofline_helpers.common.checks import BadValue, shown
from roofline_helpers.work import Work

if TYPE_CHECKING:
    from jax import Array, Device
    from jax.sharding import Mesh

SIZES = tuple(2**power for power in range(10, 31, 2))
"""Bytes of the whole array: 1 KiB to 1 GiB."""

QUICK = (2**10, 2**16, 2**20)
"""Bytes of the whole array in quick runs."""

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "permute", "permute back")
"""The five collectives; a permute goes to the next device, or to the one before."""

_COMBINERS = [
    f"{maker}{name}-combiner"
    for maker in ("", "cpu-", "gpu-")
    for name in ("all-reduce", "all-gather", "reduce-scatter", "collective-permute")
]
APART = {"xla_disable_hlo_passes": ",".join(_COMBINERS)}
"""The compiler option that turns off the passes that combine small collectives."""

AXIS = "x"


def device_mesh(devices: Sequence[Device] | None = None) -> Mesh:
    """Return a mesh of one axis over the devices that JAX has, or over some of them.

    Raises
    ------
    BadValue
        Fewer than two devices.
    """
    import jax
    import numpy as np

    devices = jax.devices() if devices is None else list(devices)
    if len(devices) < 2:
        raise BadValue(
            f"a collective needs at least 2 devices, got {shown([str(d) for d in devices])}. On a "
            "CPU, XLA_FLAGS=--xla_force_host_platform_device_count=4 pretends to have four: for "
            "correctness; their times mean nothing"
        )
    return jax.sharding.Mesh(np.array(devices), (AXIS,))


def run_collective(kind: str, x: Array, count: int) -> Array:
    """Return the result of a collective over the mesh's axis on this device's part."""
    from jax import lax

    if kind == "all-gather":
        return lax.all_gather(x, AXIS, tiled=True)
    if kind == "all-reduce":
        return lax.psum(x, AXIS)
    if kind == "reduce-scatter":
        return lax.psum_scatter(x, AXIS, tiled=True)
    if kind == "all-to-all":
        return lax.all_to_all(x, AXIS, 0, 0, tiled=True)
    step = 1 if kind == "permute" else -1
    ring = [(i, (i + step) % count) for i in range(count)]
    return lax.ppermute(x, AXIS, ring)


def chain(kind: str, mesh: Mesh) -> Callable[..., list[Array]]:
    """Return a function that runs one collective of this kind on each of its arguments in turn."""
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec

    def local(*parts: Array) -> list[Array]:
        ends: list[Array] = []
        for part in parts:
            if ends:  # each collective waits for the one before
                part, ends[-1] = lax.optimization_barrier((part, ends[-1]))
            ends.append(run_collective(kind, part, mesh.devices.size))
        return [end[:1] for end in ends]

    spec = PartitionSpec(AXIS)
    spread: Callable[..., list[Array]] = jax.shard_map(
        local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    return spread


def network_bytes(kind: str, size: float, count: int) -> float:
    """Return the bytes that a device sends, by the ring's count."""
    if kind.startswith("permute"):
        return size / count
    times = {"all-reduce": 2, "all-to-all": 1 / count}.get(kind, 1)
    return times * size * (count - 1) / count


def collective_cases(
    sizes: Sequence[int] = SIZES, devices: Sequence[Device] | None = None
) -> list[Case]:
    """Return a case for each collective and size over the devices, in bfloat16.

    Sizes are bytes of the whole array, rounded up to a whole part for each device.

    Raises
    ------
    BadValue
        Fewer than two devices.
    """
    mesh = device_mesh(devices)
    count = mesh.devices.size
    # between two devices a permute forwards and one back are the same
    kinds = [kind for kind in KINDS if count > 2 or kind != "permute back"]
    cases = []
    for size, kind in itertools.product(sizes, kinds):
        loops = max(4, min(32, 2**28 // size))
        part, sent = size / count, {"network": network_bytes(kind, size, count)}
        case = Case(
            f"{kind} {size_in_words(size)} over {count}",
            "collectives",
            Work(kind, {"part": part}, {"made": part}, others=sent),
            functools.partial(_arrays, kind, size, mesh, loops),
            start=functools.partial(_program, kind, mesh),
            needs=3.0 * loops * size,
            loops=loops,
        )
        cases.append(case)
    return cases


def _program(kind: str, mesh: Mesh, *parts: Array) -> JaxProgram:
    import jax

    lowered = lower(jax.jit(chain(kind, mesh)), Arguments(parts), {})
    program = JaxProgram(executable_of(lowered, APART), [parts], None, "plain")
    name = "collective-permute" if kind.startswith("permute") else kind
    pattern = re.compile(rf" {name}(?:-start)?\(")
    kept = len(pattern.findall(program.call.as_text()))
    if kept != len(parts):
        raise CannotRun(f"{kept} of {len(parts)} {name}s are left in the compiled program: {kind}")
    return program


def _arrays(kind: str, size: int, mesh: Mesh, copies: int) -> tuple[Array, ...]:
    """Return the arguments: a reduction's part is a whole array, others' parts are shards."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    count = mesh.devices.size
    elements = -(-size // (2 * count * count)) * count * count
    whole = elements * (count if kind in ("all-reduce", "reduce-scatter") else 1)
    make = jax.jit(
        lambda i: (jnp.arange(whole, dtype=jnp.int32) % 251 + i).astype("bfloat16"),
        out_shardings=NamedSharding(mesh, PartitionSpec(AXIS)),
    )
    return tuple(make(i) for i in range(copies))


def multi_device_cases(quick: bool = False) -> list[Case]:
    """Return cases over all devices that JAX has, over half of them, and so on down to a pair.

    Raises
    ------
    BadValue
        Fewer than two devices.
    """
    devices = list(device_mesh().devices.flat)
    cases = []
    while len(devices) > 1:
        cases += collective_cases(QUICK if quick else SIZES, devices=devices)
        devices = devices[: len(devices) // 2]
    return cases
