"""Collectives between the devices that JAX has, timed inside one program.

A call of a program on several devices takes about 120 µs from Python, longer than a small
collective. So one program has several, in a chain: `jax.lax.optimization_barrier` makes each wait
for the one before, and the compiler's joining of small ones is switched off. What is returned of
each is one element, so that nothing is left out and nothing is copied.

Sizes are those of the whole array: what an all-gather ends with, what every device has a summand
of in an all-reduce and a reduce-scatter, what all devices together hold in an all-to-all and a
permute.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from roofline_helpers._checks import BadValue, shown
from roofline_helpers.measure.case import Case, kind_of
from roofline_helpers.measure.timing import CannotTime, reason
from roofline_helpers.work import Work

SIZES = tuple(2**power for power in range(10, 31, 2))
"""Bytes of the whole array: 1 KiB to 1 GiB."""

QUICK = (2**10, 2**16, 2**20)
"""Bytes of the whole array where it must be quick."""

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "permute", "permute back")
"""The five collectives; a permute goes to the next device, or to the one before."""

_COMBINERS = [
    f"{maker}{name}-combiner"
    for maker in ("", "cpu-", "gpu-")
    for name in ("all-reduce", "all-gather", "reduce-scatter", "collective-permute")
]
APART = {"xla_disable_hlo_passes": ",".join(_COMBINERS)}
"""The compiler's option that keeps collectives apart: its passes that join small ones are off."""

AXIS = "x"


class Spread:
    """A compiled program over several devices with its arguments: what `clock` times.

    Parameters
    ----------
    fn : callable
        Takes the arguments, which say by their sharding where they are.
    args : tuple of arrays
        Its arguments.
    options : mapping, optional
        The compiler's options.
    """

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], options: Any = None) -> None:
        import jax

        self.args, self.result = args, None
        lowered = jax.jit(fn).lower(*args)
        try:
            self.compiled = lowered.compile(compiler_options=dict(options or {}))
        except Exception as error:
            raise CannotTime(f"JAX couldn't compile it: {reason(error)}") from error

    def launch(self, calls: int) -> None:
        """Queue the calls."""
        for _ in range(calls):
            self.result = self.compiled(*self.args)

    def wait(self) -> None:
        """Return when the last call has ended on every device."""
        import jax

        jax.block_until_ready(self.result)


def mesh(devices: Sequence[Any] | None = None) -> Any:
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


def one(kind: str, x: Any, count: int) -> Any:
    """Return what a collective over the mesh's axis makes of this device's part."""
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
    return lax.ppermute(x, AXIS, [(i, (i + step) % count) for i in range(count)])


def chain(kind: str, place: Any) -> Callable[..., Any]:
    """Return a function that runs one collective of this kind on each of its arguments in turn."""
    from jax.sharding import PartitionSpec

    step = functools.partial(one, kind, count=place.devices.size)

    def local(*parts: Any) -> Any:
        return [end[:1] for end in in_turn([(step, part) for part in parts])]

    spec = PartitionSpec(AXIS)
    return mapped(local, place, spec, spec)


def in_turn(exchanges: Sequence[tuple[Callable[[Any], Any], Any]]) -> list[Any]:
    """Return what each exchange makes of its part, none begun before the last one has ended."""
    from jax import lax

    ends: list[Any] = []
    for exchange, part in exchanges:
        if ends:
            part, ends[-1] = lax.optimization_barrier((part, ends[-1]))
        ends.append(exchange(part))
    return ends


def mapped(fn: Callable[..., Any], place: Any, given: Any, made: Any) -> Callable[..., Any]:
    """Return a function of each device's part as one of whole arrays, under old and new names.

    `given` and `made` say how its arguments and its result are cut.
    """
    import jax

    shard_map: Any = getattr(jax, "shard_map", None)
    if shard_map is None:
        shard_map = importlib.import_module("jax.experimental.shard_map").shard_map
    for unchecked in ({"check_vma": False}, {"check_rep": False}):
        try:
            whole: Callable[..., Any] = shard_map(
                fn, mesh=place, in_specs=given, out_specs=made, **unchecked
            )
            return whole
        except TypeError:
            continue
    raise CannotTime("this JAX's shard_map takes neither check_vma nor check_rep")


def network_bytes(kind: str, size: float, count: int) -> float:
    """Return the bytes that a device sends, by the ring's count."""
    if kind == "all-reduce":
        return 2 * size * (count - 1) / count
    if kind.startswith("permute"):
        return size / count
    if kind == "all-to-all":
        return size * (count - 1) / count**2
    return size * (count - 1) / count


def cases(
    sizes: Sequence[int] = SIZES,
    kinds: Sequence[str] = KINDS,
    dtype: str = "bf16",
    devices: Sequence[Any] | None = None,
) -> list[Case]:
    """Return a case for each collective and size over the devices.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of the whole array; rounded up to a whole part for each device.
    kinds : sequence of str
        Of `KINDS`.
    dtype : str
        One of `JAX_DTYPES`.
    devices : sequence of jax.Device, optional
        Those that take part; all that JAX has if not given.

    Raises
    ------
    BadValue
        Fewer than two devices.
    """
    place = mesh(devices)
    count = place.devices.size
    kinds = [kind for kind in kinds if count > 2 or kind != "permute back"]  # with two, the same
    made = []
    for size in sizes:
        for kind in kinds:
            loops = max(4, min(32, 2**28 // size))
            started = functools.partial(_started, kind, place)
            arrays = functools.partial(_arrays, kind, size, dtype, place, loops)
            sent = network_bytes(kind, size, count)
            job = Work(
                kind, {"part": size / count}, {"made": size / count}, others={"network": sent}
            )
            name = f"{kind} {_spelled(size)} over {count}"
            needs = 3.0 * loops * size
            made.append(
                Case(name, "collectives", job, arrays, start=started, needs=needs, loops=loops)
            )
    return made


def _started(kind: str, place: Any, *parts: Any) -> Spread:
    program = Spread(chain(kind, place), parts, APART)
    name = "collective-permute" if kind.startswith("permute") else kind
    pattern = re.compile(rf" {name}(?:-start)?\(")
    left = len(pattern.findall(program.compiled.as_text()))
    if left != len(parts):
        raise CannotTime(f"of {len(parts)} collectives the compiler left {left}: {kind}")
    return program


def _arrays(kind: str, size: int, dtype: str, place: Any, copies: int) -> tuple[Any, ...]:
    """Return the arguments: each device's part is the whole array where it has a summand of it."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    count = place.devices.size
    kind_of_number = kind_of(dtype)
    elements = -(-size // (kind_of_number.itemsize * count * count)) * count * count
    whole = elements * (count if kind in ("all-reduce", "reduce-scatter") else 1)
    spread = NamedSharding(place, PartitionSpec(AXIS))
    make = jax.jit(
        lambda i: (jnp.arange(whole, dtype=jnp.int32) % 251 + i).astype(kind_of_number),
        out_shardings=spread,
    )
    return tuple(make(i) for i in range(copies))


def _spelled(size: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 2**power:
            return f"{size / 2**power:g} {unit}"
    return f"{size} B"
