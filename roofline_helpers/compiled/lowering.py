"""From a function and its arguments to a traced program: every way in which JAX code is written.

JAX lowers for another platform what is traced on this one, over a mesh of any devices, abstract or
concrete. Where a function asks at that time which device there is (as Pallas kernels do), it sees
the chip that it is compiled for.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

from roofline_helpers._checks import BadType, RooflineError
from roofline_helpers.compiled import pallas
from roofline_helpers.compiled.arguments import Arguments, CannotTrace, is_array, reason
from roofline_helpers.hlo.blocks import PallasKernel


@dataclass(frozen=True)
class Lowered:
    """A traced program: its StableHLO, and the devices that it is for.

    `mesh` are the axes of the mesh that it is spread over, `options` what `jax.jit` was told for
    the compiler, `calls` its Pallas kernels, `requested` the FLOPs of the products it asks for,
    `unused` the share of these that nothing it returns needs.
    """

    module: Any
    partitions: int
    mesh: Mapping[str, int]
    options: Mapping[str, Any]
    calls: tuple[PallasKernel, ...] = ()
    requested: float | None = None
    unused: float = 0.0


# --- the way in -----------------------------------------------------------------------------------


def trace(fn: Any, arguments: Arguments, jit: Mapping[str, Any]) -> tuple[Any, Arguments]:
    """Return a function as traced (`jax.stages.Traced`), and the arguments that this one takes.

    Whatever is analysed, explained or timed comes in here. Modules of Equinox and of NNX are taken
    apart: their arrays are arguments and results, and everything else is held fixed. What an NNX
    function changes in its arguments is a result too, as it is under `flax.nnx.jit`.

    Parameters
    ----------
    fn : callable
        A plain function, one that `jax.jit`, `equinox.filter_jit` or `flax.nnx.jit` made, or what
        `trace` of one returns.
    arguments : Arguments
        What it is called with.
    jit : mapping
        Options of `jax.jit`, for a plain function.
    """
    if is_traced(fn):
        return fn, arguments
    if isinstance(fn, functools.partial) and _jits_objects(fn.func):  # a method that is jitted
        named_too = {**fn.keywords, **arguments.named}
        fn, arguments = fn.func, Arguments((*fn.args, *arguments.positional), named_too)
    if hasattr(fn, "lower") and jit:
        raise BadType(f"{named(fn)} is jitted already: give {', '.join(jit)} to jax.jit")
    with _donating():
        if is_of_nnx(fn):
            return _traced_by_nnx(fn, arguments)
        fn, arguments = pure(fn, arguments, jit)
        return fn.trace(*arguments.positional, **arguments.named), arguments


@contextlib.contextmanager
def errors_of(fn: Any, described: Sequence[str] | None = None, advice: str = "") -> Iterator[None]:
    """Turn what JAX raises while it traces into a CannotTrace that names the call."""
    try:
        yield
    except RooflineError:
        raise
    except Exception as error:
        call = named(fn) if described is None else f"{named(fn)}({', '.join(described)})"
        values = "Tracer" in type(error).__name__ or "Concretization" in type(error).__name__
        what = f"JAX can't trace {call}: {type(error).__name__}: {reason(error)}"
        raise CannotTrace(what + (advice if values else "")) from error


def lower(fn: Any, arguments: Arguments, jit: Mapping[str, Any], devices: Sequence[Any]) -> Lowered:
    """Return a function as traced for TPUs that need not be here.

    Parameters
    ----------
    fn, arguments, jit
        As `trace` takes them; or what `lower` of a function returns.
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


def _lowered(fn: Any, arguments: Arguments, jit: Mapping[str, Any]) -> Lowered:
    if is_lowered(fn):
        return read(fn)
    traced, _ = trace(fn, arguments, jit)
    with _donating():
        return read(traced.lower(lowering_platforms=("tpu",)), traced)


def lower_here(fn: Any, arguments: Arguments, jit: Mapping[str, Any]) -> tuple[Any, Any, Arguments]:
    """Return a function as lowered for the device that JAX has here, and as traced.

    The first is a `jax.stages.Lowered`, the second a `jax.stages.Traced` or None, the third what
    the executable is called with.
    """
    if is_lowered(fn):
        return fn, None, arguments
    traced, arguments = trace(fn, arguments, jit)
    with _donating():
        return traced.lower(), traced, arguments


def read(lowered: Any, traced: Any = None, platform: str = "tpu") -> Lowered:
    """Return what is known of a `jax.stages.Lowered`, and of what it was traced to."""
    module = lowered.compiler_ir("stablehlo")
    stated = module.operation.attributes
    partitions = int(_number(stated, "mhlo.num_partitions") * _number(stated, "mhlo.num_replicas"))
    kept = getattr(getattr(lowered, "_lowering", None), "_compiler_options_kvs", ())
    calls: tuple[PallasKernel, ...] = ()
    requested, unused = None, 0.0
    if traced is not None:
        with contextlib.suppress(Exception):  # JAX may write kernels otherwise one day
            calls = pallas.counted(traced.jaxpr, platform) if platform != "cpu" else ()
            requested = pallas.requested(traced.jaxpr)
            unused = pallas.unused(traced.jaxpr)
    mesh = _mesh(module, partitions)
    return Lowered(module, partitions, mesh, dict(kept), calls, requested, unused)


@contextlib.contextmanager
def _donating() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        yield


# --- modules of Equinox and of NNX ----------------------------------------------------------------


def _traced_by_nnx(fn: Any, arguments: Arguments) -> tuple[Any, Arguments]:
    """Return what `nnx.jit` traces, and the arguments that it makes of modules."""
    inner, seen = fn.jitted_fn, []

    def caught(*args: Any, **kwargs: Any) -> None:
        seen.append((inner.trace(*args, **kwargs), Arguments(args, kwargs)))

    # nnx.jit takes modules apart itself, in a context of its own: so it is asked to lower
    with mock.patch.object(fn, "jitted_fn", SimpleNamespace(lower=caught)):
        fn.lower(*arguments.positional, **arguments.named)
    return seen[0]


def pure(fn: Any, arguments: Arguments, jit: Mapping[str, Any]) -> tuple[Any, Arguments]:
    """Return a function that `jax.jit` made, and arguments that are arrays and nothing else.

    A module that is called holds arrays: it becomes the first argument, so that they aren't
    constants of the program. Leaves that JAX can't trace (the activation function of an Equinox
    module) are held fixed, and left out of the results.
    """
    import jax

    foreign = _jits_objects(fn)
    if hasattr(fn, "lower") and not foreign:
        return fn, arguments
    numbers = True
    if foreign:
        numbers = not hasattr(fn, "donate_first")  # Equinox holds numbers fixed
        jit = {**jit, **_donated_by_equinox(fn, arguments)}
        fn = fn.__wrapped__
    if _holds_arrays(fn):

        def called(module: Any, *args: Any, **kwargs: Any) -> Any:
            return module(*args, **kwargs)

        called.__name__ = named(fn)
        fn, arguments = called, Arguments((fn, *arguments.positional), arguments.named)
        jit = {
            option: [place + 1 for place in _positions(jit, option)]
            if option.endswith("nums")
            else value
            for option, value in jit.items()
        }
    apart = _Apart(arguments, jit, numbers)
    if not (foreign or apart.fixed or apart.objects):
        return jax.jit(fn, **jit), arguments

    @functools.wraps(fn)
    def merged(*args: Any, **kwargs: Any) -> Any:
        return apart.called(fn, args, kwargs)

    return jax.jit(merged, **jit), apart.free


def _donated_by_equinox(fn: Any, arguments: Arguments) -> dict[str, Any]:
    first, rest = getattr(fn, "donate_first", False), getattr(fn, "donate_rest", False)
    places = [i for i in range(len(arguments.positional)) if (rest if i else first)]
    names = list(arguments.named) if rest else []
    return {"donate_argnums": places, "donate_argnames": names} if first or rest else {}


class _Apart:
    """Arguments in two parts: arrays, and what is held fixed. An NNX object's arrays are a state.

    `free` are the arguments that JAX can trace, `objects` the NNX objects in all of them, `fixed`
    says whether anything else was left out.
    """

    def __init__(self, arguments: Arguments, jit: Mapping[str, Any], numbers: bool) -> None:
        import jax

        names = jit.get("static_argnames", ())
        self.static = _positions(jit, "static_argnums")
        self.names = {names} if isinstance(names, str) else set(names)
        self.numbers = numbers
        everything = self._free(arguments.positional, arguments.named)
        self.leaves, self.tree = jax.tree.flatten(everything, is_leaf=is_object)
        self.objects = tuple(leaf for leaf in self.leaves if is_object(leaf))
        self.fixed = not all(is_object(leaf) or self._traceable(leaf) for leaf in self.leaves)
        self.free = arguments
        if not (self.objects or self.fixed):
            return
        states = self._states()
        traced = [
            next(states) if is_object(leaf) else leaf if self._traceable(leaf) else None
            for leaf in self.leaves
        ]
        positional, kept = jax.tree.unflatten(self.tree, traced)
        self.free = self._whole(positional, kept, arguments.positional, arguments.named)

    def _traceable(self, leaf: Any) -> bool:
        return is_array(leaf) or (self.numbers and isinstance(leaf, bool | int | float | complex))

    def _free(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return the arguments without the static ones."""
        args = tuple(None if i in self.static else each for i, each in enumerate(positional))
        return args, {key: value for key, value in named.items() if key not in self.names}

    def _whole(self, args: Any, kept: Any, positional: Any, named: Any) -> Arguments:
        """Return arguments with the static ones of others in their places."""
        again = (positional[i] if i in self.static else each for i, each in enumerate(args))
        return Arguments(tuple(again), {key: kept.get(key, named[key]) for key in named})

    def _states(self) -> Iterator[Any]:
        """Yield the arrays of each NNX object; those that two share are the first one's."""
        if self.objects:
            from flax import nnx

            self.graph: Any
            self.graph, state = nnx.split(self.objects)
            pure: dict[Any, Any] = nnx.to_pure_dict(state)
            yield from (pure.get(place, {}) for place in range(len(self.objects)))

    def called(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function with traced arguments; return its arrays, and those that it changed."""
        import jax

        given = self.tree.flatten_up_to(self._free(args, kwargs))
        objects: Sequence[Any] = ()
        if self.objects:
            from flax import nnx

            places = [n for n, leaf in enumerate(self.leaves) if is_object(leaf)]
            state = {number: given[n] for number, n in enumerate(places) if given[n]}
            objects = nnx.merge(self.graph, state)
        before = {id(leaf) for leaf in jax.tree.leaves(given)}
        waiting = iter(objects)
        whole = [
            next(waiting) if is_object(leaf) else new if self._traceable(leaf) else leaf
            for leaf, new in zip(self.leaves, given, strict=True)
        ]
        positional, kept = jax.tree.unflatten(self.tree, whole)
        call = self._whole(positional, kept, args, kwargs)
        out = self._arrays(fn(*call.positional, **call.named))
        after = jax.tree.leaves(self._arrays(list(objects)))
        changed = [leaf for leaf in after if id(leaf) not in before]
        return (out, changed) if changed else out

    def _arrays(self, tree: Any) -> Any:
        """Return a tree with its arrays and numbers only; of an NNX object, its state."""
        import jax

        def kept(leaf: Any) -> Any:
            if is_object(leaf):
                from flax import nnx

                return nnx.to_pure_dict(nnx.state(leaf))
            return (
                leaf if is_array(leaf) or isinstance(leaf, bool | int | float | complex) else None
            )

        return jax.tree.map(kept, tree, is_leaf=is_object)


def _positions(jit: Mapping[str, Any], option: str) -> set[int]:
    positions = jit.get(option, ())
    return {positions} if isinstance(positions, int) else set(positions)


def _holds_arrays(fn: Any) -> bool:
    import jax

    return any(is_object(leaf) or is_array(leaf) for leaf in jax.tree.leaves(fn, is_leaf=is_object))


def is_object(value: Any) -> bool:
    """Return whether it is an object of NNX: a module, an optimiser, a variable."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return False
    return isinstance(value, (getattr(nnx, "Pytree", None) or nnx.Object, nnx.Variable))


# --- what readers give ----------------------------------------------------------------------------


def named(fn: Any) -> str:
    """Return what a function is called."""
    inner = fn.func if isinstance(fn, functools.partial) else fn
    called = getattr(inner, "__name__", None) or getattr(inner, "fun_name", None)
    called = str(called or type(inner).__name__)
    return "function" if called in ("<lambda>", "Compiled", "Lowered", "Traced") else called


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
    shows = hasattr(fn, "as_text") and hasattr(fn, "cost_analysis") and not hasattr(fn, "compile")
    return shows or type(fn).__name__ == "Compiled"


def is_stage(fn: Any) -> bool:
    """Return whether it is a function on its way to an executable, or an executable."""
    return is_traced(fn) or is_lowered(fn) or is_compiled(fn)


def is_of_nnx(fn: Any) -> bool:
    """Return whether it is what `flax.nnx.jit` made."""
    return _jits_objects(fn) and hasattr(fn, "jitted_fn")


def _jits_objects(fn: Any) -> bool:
    """Return whether it is what `equinox.filter_jit` or `flax.nnx.jit` made."""
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
