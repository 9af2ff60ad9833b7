"""Trace a function for a chip that need not be here: every way in which JAX code is written.

JAX lowers for another platform what is traced on this one, over a mesh of any devices, abstract or
concrete. Where a function asks at that time which device there is (as Pallas kernels do), it sees
the chip that it is compiled for.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from roofline_helpers._checks import BadType
from roofline_helpers.compiled import pallas
from roofline_helpers.compiled.arguments import Arguments, is_array
from roofline_helpers.hlo.blocks import PallasKernel


@dataclass(frozen=True)
class Lowered:
    """A traced program: its StableHLO, and the devices that it is for.

    `mesh` are the axes of the mesh that it is spread over, `options` what `jax.jit` was told for
    the compiler, `calls` its Pallas kernels, `requested` the FLOPs of the products it asks for.
    """

    module: Any
    partitions: int
    mesh: Mapping[str, int]
    options: Mapping[str, Any]
    calls: tuple[PallasKernel, ...] = ()
    requested: float | None = None


def lower(fn: Any, arguments: Arguments, jit: Mapping[str, Any], devices: Sequence[Any]) -> Lowered:
    """Return a function as traced for devices of another chip.

    Parameters
    ----------
    fn : callable
        A plain function, one that `jax.jit`, `equinox.filter_jit` or `flax.nnx.jit` made, or what
        `trace` or `lower` of one returns.
    arguments : Arguments
        What it is called with.
    jit : mapping
        Options of `jax.jit`, for a plain function.
    devices : sequence of jax.Device
        What the function sees where it asks for devices.
    """
    with seeing(devices):
        try:
            lowered = _lowered(fn, arguments, jit)
        except RuntimeError as error:  # a bare PartitionSpec, and no mesh is set
            if "requires a non-empty mesh" not in str(error) or not arguments.mesh:
                raise
            with arguments.set_mesh():
                lowered = _lowered(fn, arguments, jit)
        if lowered.partitions == 1 < math.prod(lowered.mesh.values()):
            # only a shard_map over an abstract mesh says how many devices there are
            lowered = _lowered(fn, arguments.replicated(lowered.mesh), jit)
    return lowered


def lower_here(fn: Any, arguments: Arguments, jit: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return a function as lowered for the device that JAX has here, and as traced.

    The first is a `jax.stages.Lowered`, the second a `jax.stages.Traced`, or None.
    """
    if is_lowered(fn):
        return fn, None
    if is_traced(fn):
        return fn.lower(), fn
    fn, arguments, jit = unfiltered(fn, arguments, jit)
    with _donating():
        if is_foreign(fn):
            lowered = fn.lower(*arguments.positional, **arguments.named)
            return getattr(lowered, "lowered", lowered), None
        fn, arguments = jitted(fn, arguments, jit)
        traced = fn.trace(*arguments.positional, **arguments.named)
        return traced.lower(), traced


def read(lowered: Any, traced: Any = None, platform: str = "tpu") -> Lowered:
    """Return what is known of a `jax.stages.Lowered`, and of what it was traced to."""
    inner = getattr(lowered, "lowered", lowered)  # of Equinox and of NNX
    module = inner.compiler_ir("stablehlo")
    stated = module.operation.attributes
    partitions = int(_number(stated, "mhlo.num_partitions") * _number(stated, "mhlo.num_replicas"))
    kept = getattr(getattr(inner, "_lowering", None), "_compiler_options_kvs", ())
    calls: tuple[PallasKernel, ...] = ()
    requested = None
    if traced is not None:
        with contextlib.suppress(Exception):  # JAX may write kernels otherwise one day
            calls = pallas.counted(traced.jaxpr, platform)
            requested = pallas.requested(traced.jaxpr)
    mesh = _mesh(module, partitions)
    return Lowered(module, partitions, mesh, dict(kept), calls, requested)


def _lowered(fn: Any, arguments: Arguments, jit: Mapping[str, Any]) -> Lowered:
    fn, arguments, jit = unfiltered(fn, arguments, jit)
    if is_traced(fn):
        return read(fn.lower(lowering_platforms=("tpu",)), fn)
    if is_lowered(fn):
        return read(fn)
    if is_foreign(fn):
        return read(fn.lower(*arguments.positional, **arguments.named))
    fn, arguments = jitted(fn, arguments, jit)
    with _donating():
        traced = fn.trace(*arguments.positional, **arguments.named)
        return read(traced.lower(lowering_platforms=("tpu",)), traced)


def jitted(fn: Any, arguments: Arguments, jit: Mapping[str, Any]) -> tuple[Any, Arguments]:
    """Return a function that can be traced, and its arguments.

    Leaves of arguments that JAX can't trace (the activation function of an Equinox module) are
    held fixed.
    """
    import jax

    if hasattr(fn, "lower"):
        if jit:
            raise BadType(f"{named(fn)} is jitted already: give {', '.join(jit)} to jax.jit")
        return fn, arguments
    statics = _positions(jit, "static_argnums")
    fixed = [
        None if place in statics else jax.tree.map(_fixed, each)
        for place, each in enumerate(arguments.positional)
    ]
    if not any(leaf is not None for leaf in jax.tree.leaves(fixed)):
        return jax.jit(fn, **jit), arguments

    @functools.wraps(fn)
    def merged(*args: Any, **kwargs: Any) -> Any:
        whole = [
            each if place in statics else jax.tree.map(_merge, fixed[place], each, is_leaf=_is_none)
            for place, each in enumerate(args)
        ]
        return fn(*whole, **kwargs)

    free = tuple(
        each if place in statics else jax.tree.map(_free, each)
        for place, each in enumerate(arguments.positional)
    )
    return jax.jit(merged, **jit), Arguments(free, arguments.named)


@contextlib.contextmanager
def _donating() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        yield


def unfiltered(
    fn: Any, arguments: Arguments, jit: Mapping[str, Any]
) -> tuple[Any, Arguments, Mapping[str, Any]]:
    """Return a function, its arguments and its options, once it is a function and nothing more.

    A module that is called (of Equinox, of NNX) holds arrays: they become the first argument, so
    that they aren't constants of the program. `equinox.filter_jit` takes shapes for constants: its
    function is jitted anew, with the arguments that it donates.
    """
    import jax

    inner = fn
    if type(fn).__module__.startswith("equinox") and hasattr(fn, "donate_first"):
        inner = fn.__wrapped__
        first, rest = fn.donate_first, fn.donate_rest
        donated = [i for i in range(len(arguments.positional)) if (rest if i else first)]
        jit = {**jit, "donate_argnums": donated}
    if hasattr(inner, "lower") or not any(map(is_array, jax.tree.leaves(inner))):
        return inner, arguments, jit

    def called(module: Any, *args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    called.__name__ = named(inner)
    shifted = {
        option: [place + 1 for place in _positions(jit, option)]
        if option.endswith("nums")
        else value
        for option, value in jit.items()
    }
    return called, Arguments((inner, *arguments.positional), arguments.named), shifted


def _positions(jit: Mapping[str, Any], option: str) -> set[int]:
    positions = jit.get(option, ())
    return {positions} if isinstance(positions, int) else set(positions)


_NUMBERS = (bool, int, float, complex)


def _traceable(leaf: Any) -> bool:
    return is_array(leaf) or isinstance(leaf, _NUMBERS)


def _fixed(leaf: Any) -> Any:
    return None if _traceable(leaf) else leaf


def _free(leaf: Any) -> Any:
    return leaf if _traceable(leaf) else None


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _merge(fixed: Any, free: Any) -> Any:
    return free if fixed is None else fixed


# --- what readers give ----------------------------------------------------------------------------


def named(fn: Any) -> str:
    """Return what a function is called."""
    inner = fn.func if isinstance(fn, functools.partial) else fn
    called = getattr(inner, "__name__", None) or getattr(inner, "fun_name", None)
    return str(called or type(fn).__name__)


def _is_of_jax(fn: Any, name: str) -> bool:
    return type(fn).__name__ == name and type(fn).__module__.startswith("jax")


def is_traced(fn: Any) -> bool:
    """Return whether it is what `jax.jit(f).trace(...)` returns."""
    return _is_of_jax(fn, "Traced")


def is_lowered(fn: Any) -> bool:
    """Return whether it is what `jax.jit(f).lower(...)` returns."""
    return _is_of_jax(fn, "Lowered")


def is_compiled(fn: Any) -> bool:
    """Return whether it is what `jax.jit(f).lower(...).compile()` returns."""
    return hasattr(fn, "as_text") and hasattr(fn, "cost_analysis") and not hasattr(fn, "compile")


def is_foreign(fn: Any) -> bool:
    """Return whether it is jitted by another library, whose `lower` takes no platforms."""
    return hasattr(fn, "lower") and not type(fn).__module__.startswith("jax")


# --- the device that a function sees --------------------------------------------------------------


@contextlib.contextmanager
def seeing(devices: Sequence[Any]) -> Iterator[None]:
    """Let traced code find these devices where it asks JAX for the ones that are here."""
    import jax

    there = list(devices)

    def asked(*_: Any, **__: Any) -> list[Any]:
        return list(there)

    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.default_device(there[0]))
        stack.enter_context(mock.patch.object(jax, "devices", asked))
        stack.enter_context(mock.patch.object(jax, "local_devices", asked))
        stack.enter_context(mock.patch.object(jax, "default_backend", return_value="tpu"))
        yield


# --- what the module says -------------------------------------------------------------------------

_AXIS = re.compile(r'"([^"]+)"=(\d+)')


def _number(attributes: Any, name: str) -> int:
    return int(attributes[name].value) if name in attributes else 1


def _mesh(module: Any, partitions: int) -> dict[str, int]:
    """Return the axes of the mesh that a module is spread over; {} where it names none."""
    meshes = []
    for operation in module.body.operations:
        if operation.operation.name == "sdy.mesh":
            axes = str(operation).partition("<[")[2].partition("]")[0]
            meshes.append({name: int(size) for name, size in _AXIS.findall(axes)})
    fitting = [mesh for mesh in meshes if math.prod(mesh.values()) == partitions]
    return fitting[0] if fitting else meshes[0] if meshes and partitions == 1 else {}
