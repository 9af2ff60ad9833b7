"""From a function and its arguments to a lowered program, for every style of JAX code."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from roofline.xla.body import inside
from roofline.xla.pallas import PallasKernel, counted, foreign, requested, unused
from roofline.xla.targets import (
    Target,
    chip_key,
    first_device,
    is_chip,
    layout_for,
    mesh_devices,
    platform_of,
)
from roofline_helpers.chips import Chip
from roofline_helpers.common.checks import BadType, BadValue, RooflineError, name_of, needed

if TYPE_CHECKING:
    import jax
    from jax.extend.core import ClosedJaxpr, Jaxpr
    from jaxlib.mlir import ir

# --- Arguments -----------------------------------------------------------------------------------


class CannotTrace(RooflineError, TypeError):
    """JAX could not trace the function with these arguments.

    Examples
    --------
    >>> issubclass(CannotTrace, RooflineError)
    True
    """


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call: arrays, shapes, pytrees of them, and anything static."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arrays(self) -> list[Any]:
        """The arrays and shapes in all of them.

        Raises
        ------
        CannotTrace
            A value that JAX can't flatten.
        BadType
            A generator, or another iterator.
        """
        import jax

        try:
            leaves = jax.tree.leaves(self.tree, is_leaf=lambda leaf: isinstance(leaf, Iterator))
        except (TypeError, ValueError) as error:  # such as a mapping whose keys have no order
            raise CannotTrace(f"JAX can't take these arguments: {reason_of(error)}") from error
        for leaf in leaves:
            if isinstance(leaf, Iterator):
                raise BadType(
                    f"an argument is a {type(leaf).__name__}, which gives its values once, so they "
                    "would be constants of the program: give a list or a tuple of them"
                )
        return [leaf for leaf in leaves if is_array(leaf)]

    @property
    def mesh(self) -> dict[str, int]:
        """The axes of the mesh that they are sharded over, and their sizes; {} without one.

        Raises
        ------
        BadValue
            They are sharded over different meshes.
        """
        meshes = {tuple(mesh.shape.items()) for mesh in self._meshes}
        if len(meshes) > 1:
            raise BadValue(f"the arguments are sharded over different meshes: {sorted(meshes)}")
        return dict(*meshes)

    @property
    def _meshes(self) -> list[Any]:
        from jax.sharding import NamedSharding

        shardings = (getattr(leaf, "sharding", None) for leaf in self.arrays)
        return [sharding.mesh for sharding in shardings if isinstance(sharding, NamedSharding)]

    def set_mesh(self) -> Any:
        """Return a context with the arguments' mesh set."""
        from jax.sharding import use_abstract_mesh

        mesh = self._meshes[0]
        return use_abstract_mesh(getattr(mesh, "abstract_mesh", mesh))

    def replicated(self, mesh: Mapping[str, int]) -> Arguments:
        """Return the arguments replicated over an abstract mesh."""
        import jax
        from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

        types = (AxisType.Auto,) * len(mesh)
        devices = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=types)
        spread = NamedSharding(devices, PartitionSpec())
        return self._with_arrays(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=spread)
        )

    def described(self) -> tuple[str, ...]:
        """Return each as text: bf16[2048,2048], {wo, w1}, k=3."""
        named = (f"{name}={_described(argument)}" for name, argument in self.named.items())
        return (*(_described(argument) for argument in self.positional), *named)

    def first(self, holds: Callable[[Any], bool]) -> str:
        """Return the first argument with an array for which this holds, by place or name, or ""."""
        import jax

        named: dict[Any, Any] = {**dict(enumerate(self.positional)), **self.named}
        for name, told in zip(named, self.described(), strict=True):
            if any(holds(leaf) for leaf in jax.tree.leaves(named[name]) if is_array(leaf)):
                return f"argument {name} ({told.removeprefix(f'{name}=')})"
        return ""

    def shapes(self) -> Arguments:
        """Return the arguments as shapes with the same sharding, on devices of any kind."""
        import jax
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        def shape(leaf: Any) -> Any:
            if isinstance(leaf, np.generic):  # a scalar may be static
                return leaf
            sharding = getattr(leaf, "sharding", None)
            if not isinstance(sharding, NamedSharding | PartitionSpec):
                sharding = None
            weak = bool(getattr(leaf, "weak_type", False))
            return jax.ShapeDtypeStruct(leaf.shape, _dtype(leaf), sharding=sharding, weak_type=weak)

        return self._with_arrays(shape)

    @property
    def tree(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All of them as a pytree."""
        return self.positional, dict(self.named)

    def _with_arrays(self, change: Callable[[Any], Any]) -> Arguments:
        """Return the arguments with each array changed."""
        import jax

        def changed(leaf: Any) -> Any:
            return change(leaf) if is_array(leaf) else leaf

        return Arguments(*jax.tree.map(changed, self.tree))


LONGEST = 1200
"""Characters of a JAX error that are passed on: its first lines have the reason."""

_LOCATION = re.compile(
    r'\s*(Suspected Python Code Location:|The MLIR operation involved:\s*"builtin.module").*',
    re.DOTALL,  # a whole module isn't the place of an error
)
_NOISE = re.compile(r"^(For simplicity, JAX has removed|-{8,}|The stack trace below|See https?:)")


def reason_of(error: BaseException) -> str:
    """Return an error's text without the lines that JAX adds to every error."""
    text = _LOCATION.sub("", str(error)).strip()
    lines = [line.rstrip() for line in text.splitlines()]
    kept = "\n".join(line for line in lines if line and not _NOISE.match(line)) or repr(error)
    return kept if len(kept) <= LONGEST else kept[:LONGEST].rsplit("\n", 1)[0] + " …"


def is_array(value: Any) -> bool:
    """Return whether it is an array, or the shape of one."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _dtype(value: Any) -> Any:
    """Return the type that JAX gives an array: without x64, float64 is float32."""
    import jax
    import numpy as np

    kind = value.dtype
    return jax.dtypes.canonicalize_dtype(kind) if isinstance(kind, np.dtype) else kind


def _described(value: Any) -> str:
    import jax

    if is_array(value):
        return str(jax.core.ShapedArray(value.shape, _dtype(value)).str_short(short_dtypes=True))
    if isinstance(value, Mapping):
        return f"{{{', '.join(map(str, value))}}}" if len(value) <= 4 else f"{len(value)} arrays"
    if isinstance(value, (list, tuple)):
        inner = [_described(member) for member in value]
        return f"({', '.join(inner)})" if len(inner) <= 3 else f"{len(inner)} values"
    text = repr(value)
    return text if len(text) <= 30 else type(value).__name__


# --- From a function to a traced program ---------------------------------------------------------


class Captured(NamedTuple):
    """An array that a function closes over: its name where it is known, its type, its bytes."""

    name: str
    type: str
    bytes: int


@dataclass(frozen=True)
class Lowered:
    """A lowered program (`jax.stages.Lowered`) with its target and further facts.

    `arguments` are those of its executable, `devices` those of a topology (none: JAX's device
    here), `made_for` the name of their chip, `calls` its Pallas kernels, `requested` the FLOPs of
    the function's matmuls, `unused` the share of these that no result needs, and `captured` the
    large arrays that it closes over.
    """

    stage: Any
    arguments: Arguments
    name: str
    platform: str
    target: str
    topology: str = ""
    devices: tuple[jax.Device, ...] = ()
    made_for: str = ""
    calls: tuple[PallasKernel, ...] = ()
    requested: float | None = None
    unused: float = 0.0
    captured: tuple[Captured, ...] = ()

    @functools.cached_property
    def module(self) -> ir.Module:
        """Its StableHLO."""
        return self.stage.compiler_ir("stablehlo")

    @functools.cached_property
    def written(self) -> str:
        """Its HLO as JAX wrote it, before any pass of a compiler."""
        return str(self.stage.compiler_ir("hlo").as_hlo_module().to_string())

    @functools.cached_property
    def partitions(self) -> int:
        """Devices that it is spread over."""
        return self._stated("num_partitions") * self.replicas

    @property
    def replicas(self) -> int:
        """Copies of it that run together: what `jax.pmap` made before JAX 0.8."""
        return self._stated("num_replicas")

    def _stated(self, name: str) -> int:
        stated = self.module.operation.attributes
        return int(stated[f"mhlo.{name}"].value) if f"mhlo.{name}" in stated else 1

    @functools.cached_property
    def mesh(self) -> dict[str, int]:
        """The axes of its mesh; {} without one."""
        meshes = []
        for operation in self.module.body.operations:
            if operation.operation.name == "sdy.mesh":
                axes = str(operation).partition("<[")[2].partition("]")[0]
                meshes.append({name: int(size) for name, size in _AXIS.findall(axes)})
        fitting = [mesh for mesh in meshes if math.prod(mesh.values()) == self.partitions]
        return fitting[0] if fitting else meshes[0] if meshes and self.partitions == 1 else {}

    @property
    def options(self) -> dict[str, Any]:
        """The compiler options given to `jax.jit`."""
        return dict(getattr(getattr(self.stage, "_lowering", None), "_compiler_options_kvs", ()))


_AXIS = re.compile(r'"([^"]+)"=(\d+)')


# --- tracing and lowering -------------------------------------------------------------------------


class _Lowers(NamedTuple):
    """A function that lowers itself, after it did: in place of `jax.stages.Traced`."""

    jaxpr: Any
    stage: Any

    def lower(self, **_: Any) -> Any:
        """Return its `jax.stages.Lowered`."""
        return self.stage


def trace_function(fn: Any, arguments: Arguments, jit: Mapping[str, Any]) -> tuple[Any, Arguments]:
    """Return the traced function (`jax.stages.Traced`), and its arguments.

    Every function to analyse, explain or time goes through here: what the caller calls is what is
    traced, whatever `lower` or `__wrapped__` a wrapper has. Modules of Equinox and of NNX are
    split: their arrays are arguments and results, and everything else is static. Changes that an
    NNX function makes to its arguments are results too, as under `flax.nnx.jit`. What maps over
    devices lowers itself.

    Parameters
    ----------
    fn : callable
        A plain function, a result of `jax.jit`, `jax.pmap`, `equinox.filter_jit` or `flax.nnx.jit`,
        the result of its `trace`, or an object that calls any of these.
    arguments : Arguments
        Its arguments.
    jit : mapping
        Options of `jax.jit`, for a plain function.
    """
    if _is_of_jax(fn, "Traced"):
        return fn, arguments
    fn, arguments = _unbound(fn, arguments)
    if hasattr(fn, "lower") and jit:
        raise BadType(f"{function_name(fn)} is jitted already: give {', '.join(jit)} to jax.jit")
    with _donating():
        if is_of_nnx(fn):
            return _traced_by_nnx(fn, arguments)
        if maps_devices(fn):
            return _lowered_by_itself(fn, arguments), arguments
        called, taken = without_objects(fn, arguments, jit)
        try:
            traced = called.trace(*taken.positional, **taken.named)
        except Exception:
            if called is fn or not hasattr(fn, "lower") or is_of_equinox(fn):
                raise
            return _lowered_by_itself(fn, arguments), arguments  # it can't be traced from outside
        donated = _donated_inside(traced.jaxpr, taken)
        if donated and called is not fn and not jit:
            called, taken = without_objects(fn, arguments, {"donate_argnums": donated})
            traced = called.trace(*taken.positional, **taken.named)
        return traced, taken


def _unbound(fn: Any, arguments: Arguments) -> tuple[Any, Arguments]:
    """Return what is jitted of a method or of a partial of it, and all its arguments."""
    while True:
        if isinstance(fn, functools.partial) and hasattr(fn.func, "lower"):
            named = {**fn.keywords, **arguments.named}
            fn, arguments = fn.func, Arguments((*fn.args, *arguments.positional), named)
        elif isinstance(fn, MethodType) and hasattr(fn.__func__, "lower"):
            positional = fn.__self__, *arguments.positional
            fn, arguments = fn.__func__, replace(arguments, positional=positional)
        else:
            return fn, arguments


def _lowered_by_itself(fn: Any, arguments: Arguments) -> _Lowers:
    import jax

    stage, jaxpr = fn.lower(*arguments.positional, **arguments.named), None
    with contextlib.suppress(Exception):  # of Equinox's modules
        jaxpr = jax.make_jaxpr(fn)(*arguments.positional, **arguments.named)
    return _Lowers(jaxpr, getattr(stage, "lowered", stage))


def _donated_inside(jaxpr: Any, arguments: Arguments) -> list[int]:
    """Return the arguments that a function donates as it only calls what is jitted."""
    import jax

    if len(jaxpr.jaxpr.eqns) != 1:
        return []
    [call] = jaxpr.jaxpr.eqns
    donated = call.params.get("donated_invars", ())
    given = {var for var, away in zip(call.invars, donated, strict=False) if away}
    numbers, at = [], 0
    for number, argument in enumerate(arguments.positional):
        count = len(jax.tree.leaves(argument))
        leaves = jaxpr.jaxpr.invars[at : at + count]
        numbers += [number] if leaves and given.issuperset(leaves) else []
        at += count
    return numbers


@contextlib.contextmanager
def tracing_errors(
    fn: Any, described: Sequence[str] | None = None, advice: str = ""
) -> Iterator[None]:
    """Turn an error during tracing into a CannotTrace that names the call."""
    try:
        yield
    except RooflineError:
        raise
    except Exception as error:
        call = function_name(fn) + ("" if described is None else f"({', '.join(described)})")
        values = "Tracer" in type(error).__name__ or "Concretization" in type(error).__name__
        message = f"JAX can't trace {call}: {type(error).__name__}: {reason_of(error)}"
        if "AbstractMesh exists" in message:
            values, advice = True, ". An abstract mesh has no devices here: give chip="
        raise CannotTrace(message + (advice if values else "")) from error


def lower(
    fn: Any,
    arguments: Arguments,
    jit: Mapping[str, Any],
    target: Target | None = None,
    name: str | None = None,
    advice: str = "",
) -> Lowered:
    """Lower a function for JAX's device here, or for TPUs that need not be here.

    Parameters
    ----------
    fn, arguments, jit
        As in `trace_function`; `fn` may also be the result of a jitted function's `lower`.
    target : Target, optional
        A TPU, and the layout of its chips, by default the smallest that holds the mesh. Without a
        target, or if it is the device here, it is JAX's device.
    name : str, optional
        The function's name in messages.
    advice : str
        Text for the error if a function needs values during tracing.
    """
    device, called = first_device(), name or function_name(fn)
    with tracing_errors(fn, arguments.described(), advice):
        if target is not None and target.chip.kind == "tpu" and not is_chip(device, target.chip):
            return _lower_ahead(fn, arguments, jit, target, called)
        arguments.mesh  # noqa: B018 - refuses different meshes
        return _lowered(fn, arguments, jit, called, platform_of(device), chip_key(device))


def _lower_ahead(
    fn: Any,
    arguments: Arguments,
    jit: Mapping[str, Any],
    target: Target,
    name: str,
) -> Lowered:
    mesh, (chip, topology) = arguments.mesh, target
    layout = layout_for(chip, math.prod(mesh.values()), topology)
    devices = mesh_devices(chip, layout, tuple(mesh.values()))
    arguments = arguments.shapes()
    made_for = name, "tpu", chip.key
    with pretend_devices(devices), _mapped_over(chip, topology):
        try:
            lowered = _lowered(fn, arguments, jit, *made_for)
        except RuntimeError as error:  # a bare PartitionSpec, and no mesh is set
            if "requires a non-empty mesh" not in str(error) or not arguments.mesh:
                raise
            with arguments.set_mesh():
                lowered = _lowered(fn, arguments, jit, *made_for)
        if lowered.partitions == 1 < math.prod(lowered.mesh.values()):
            # only a shard_map over an abstract mesh has the number of devices
            lowered = _lowered(fn, arguments.replicated(lowered.mesh), jit, *made_for)
    if lowered.replicas > 1:
        raise BadValue(
            f"{name} is a jax.pmap, which this JAX can't compile for chips that aren't here: use "
            "jax.shard_map over a mesh"
        )
    layout = layout_for(chip, lowered.partitions, topology)
    sizes = tuple(lowered.mesh.values()) or (lowered.partitions,)
    placed = tuple(mesh_devices(chip, layout, sizes))
    return replace(lowered, topology=layout, devices=placed, made_for=chip.name)


def _lowered(
    fn: Any, arguments: Arguments, jit: Mapping[str, Any], name: str, platform: str, target: str
) -> Lowered:
    if _is_of_jax(fn, "Lowered"):
        return Lowered(fn, arguments, name, platform, target)
    traced, arguments = trace_function(fn, arguments, jit)
    ahead = {"lowering_platforms": ("tpu",)} if platform == "tpu" else {}
    machine = foreign(traced.jaxpr) if platform == "tpu" and traced.jaxpr is not None else None
    if machine is not None:
        raise BadValue(
            f"{name} launches a Pallas kernel for GPUs ({machine.replace('_', ' ')}), which a TPU "
            "can't run: give it no compiler_params of another machine"
        )
    with _donating():
        lowered = Lowered(traced.lower(**ahead), arguments, name, platform, target)
    with contextlib.suppress(Exception):  # a future JAX may represent kernels differently
        return replace(
            lowered,
            calls=counted(traced.jaxpr, platform) if platform != "cpu" else (),
            requested=requested(traced.jaxpr),
            unused=unused(traced.jaxpr),
            captured=captured_by(fn, traced.jaxpr),
        )
    return lowered


CAPTURED = 2**20
"""Bytes from which on an array that a function closes over is named."""


def captured_by(fn: Any, jaxpr: ClosedJaxpr) -> tuple[Captured, ...]:
    """Return the arrays that a traced function closes over, the largest first.

    They are constants of its program. Their names are those by which the function, or an object
    whose method it is, knows them.
    """
    import jax

    held = {id(array): array for array in _constants(jaxpr.jaxpr, jaxpr.consts)}
    large = [array for array in held.values() if getattr(array, "nbytes", 0) >= CAPTURED]
    names: dict[int, str] = {}
    for name, value in _known_to(fn).items() if large else ():
        for path, leaf in jax.tree_util.tree_leaves_with_path(value):
            names.setdefault(id(leaf), name + jax.tree_util.keystr(path))
    found = [Captured(names.get(id(a), ""), _described(a), int(a.nbytes)) for a in large]
    return tuple(sorted(found, key=lambda array: -array.bytes))


def _constants(jaxpr: Jaxpr, own: Sequence[Any]) -> Iterator[Any]:
    """Yield the constants of a jaxpr, and of those inside it."""
    yield from own
    for equation in jaxpr.eqns:
        for inner, constants in inside(equation):
            yield from _constants(inner, constants)


def _known_to(fn: Any) -> dict[str, Any]:
    """Return what a function finds by name without being given it."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    called = fn if hasattr(fn, "__code__") else getattr(fn, "__wrapped__", fn)
    owner, called = (
        (called.__self__, called.__func__)
        if isinstance(called, MethodType)
        else (called, called if hasattr(called, "__code__") else type(called).__call__)
    )
    known = {f"self.{name}": value for name, value in getattr(owner, "__dict__", {}).items()}
    with contextlib.suppress(TypeError, ValueError):  # not of Python, or of another function
        found = inspect.getclosurevars(called)
        known |= {**found.globals, **found.nonlocals}
    return known


@contextlib.contextmanager
def _donating() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        yield


# --- modules of Equinox and of NNX ----------------------------------------------------------------


def _traced_by_nnx(fn: Any, arguments: Arguments) -> tuple[Any, Arguments]:
    """Return the function that `nnx.jit` traces, and its arguments, made from modules."""
    inner, traced = fn.jitted_fn, []

    def caught(*args: Any, **kwargs: Any) -> None:
        traced.append((inner.trace(*args, **kwargs), Arguments(args, kwargs)))

    # nnx.jit splits modules itself, in its own context, so its own lowering is used
    with mock.patch.object(fn, "jitted_fn", SimpleNamespace(lower=caught)):
        fn.lower(*arguments.positional, **arguments.named)
    return traced[0]


def without_objects(fn: Any, arguments: Arguments, jit: Mapping[str, Any]) -> tuple[Any, Arguments]:
    """Return a function under `jax.jit`, and arguments that are only arrays.

    A called module becomes an argument, so that its arrays aren't constants of the program. Leaves
    that JAX can't trace (the activation function of an Equinox module) are static, and left out of
    the results.
    """
    import jax

    if maps_devices(fn):
        raise BadType(f"{function_name(fn)} maps over devices: it can't be traced as one program")
    if hasattr(fn, "trace") and _is_of_jax(fn, type(fn).__name__):
        return fn, arguments
    foreign = is_of_equinox(fn)
    if foreign:
        jit = _donated_by_equinox(fn, arguments)
        fn = fn.__wrapped__
    if any(map(is_array, jax.tree.leaves(fn))):

        def called(*args: Any, module: Any, **kwargs: Any) -> Any:
            return module(*args, **kwargs)

        called.__name__ = function_name(fn)
        fn, arguments = called, Arguments(arguments.positional, {**arguments.named, "module": fn})
    elif not _can_hash(fn):  # jax.jit asks for it
        fn = functools.wraps(fn)(functools.partial(fn))
    leaves = jax.tree.leaves(arguments.tree, is_leaf=is_object)
    plain = (is_array(leaf) or isinstance(leaf, _NUMBERS) for leaf in leaves)
    if not foreign and not any(map(is_object, leaves)) and all(plain):
        return jax.jit(fn, **jit), arguments
    return _split_arrays(fn, arguments, jit)


def _can_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _donated_by_equinox(fn: Any, arguments: Arguments) -> dict[str, Any]:
    first, rest = getattr(fn, "donate_first", False), getattr(fn, "donate_rest", False)
    numbers = [i for i in range(len(arguments.positional)) if (rest if i else first)]
    return {"donate_argnums": numbers, "donate_argnames": list(arguments.named) if rest else []}


_NUMBERS = (bool, int, float, complex)


def _split_arrays(fn: Any, arguments: Arguments, jit: Mapping[str, Any]) -> tuple[Any, Arguments]:
    """Return a function from arrays to arrays, and its arrays.

    Changes that a function makes to its arguments (NNX) are results. Everything but arrays is
    static.
    """
    import jax

    leaves, tree = jax.tree.flatten(arguments.tree)

    @functools.wraps(fn)
    def merged(*args: Any, **kwargs: Any) -> Any:
        given = jax.tree.leaves((args, kwargs))
        free = iter(given)
        args, kwargs = tree.unflatten(next(free) if is_array(old) else old for old in leaves)
        out = fn(*args, **kwargs)
        known = {id(leaf) for leaf in given}
        after = jax.tree.leaves((args, kwargs))
        changed = [leaf for leaf in after if id(leaf) not in known]
        return jax.tree.map(_array_alone, (out, changed) if any(map(is_array, changed)) else out)

    plain = {option: value for option, value in jit.items() if not option.startswith("static")}
    return jax.jit(merged, **plain), Arguments(*tree.unflatten(map(_array_alone, leaves)))


def _array_alone(leaf: Any) -> Any:
    return leaf if is_array(leaf) else None


def is_object(value: Any) -> bool:
    """Return whether it is an object of NNX: a module, an optimiser, a variable."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return False
    return isinstance(value, (getattr(nnx, "Pytree", None) or nnx.Object, nnx.Variable))


# --- kinds of functions ---------------------------------------------------------------------------


def function_name(fn: Any) -> str:
    """Return a function's name."""
    inner = fn.func if isinstance(fn, functools.partial) else fn
    called = getattr(inner, "__name__", None) or getattr(inner, "fun_name", None)
    called = str(called or type(inner).__name__)
    return "function" if called in ("<lambda>", "Compiled", "Lowered", "Traced") else called


def _is_of_jax(fn: Any, *names: str) -> bool:
    return type(fn).__name__ in names and type(fn).__module__.startswith("jax")


def results_of(stage: Any) -> list[Any]:
    """Return shape and type of each result of a lowered or a compiled program."""
    import jax

    try:
        return list(jax.tree.leaves(stage.out_info))
    except AssertionError:  # JAX's own, of an executable with ordered effects
        return list(stage._executable.out_avals)


def is_compiled(fn: Any) -> bool:
    """Return whether it is a result of `jax.jit(f).lower(...).compile()`."""
    shows = hasattr(fn, "as_text") and hasattr(fn, "cost_analysis") and not hasattr(fn, "compile")
    return shows or type(fn).__name__ == "Compiled"


def is_stage(fn: Any) -> bool:
    """Return whether it is a function on its way to an executable, or an executable."""
    return _is_of_jax(fn, "Traced", "Lowered") or is_compiled(fn)


def is_of_nnx(fn: Any) -> bool:
    """Return whether it is a result of `flax.nnx.jit`."""
    return hasattr(fn, "jitted_fn") and type(fn).__module__.startswith("flax.")


def is_of_equinox(fn: Any) -> bool:
    """Return whether it is a result of `equinox.filter_jit`."""
    return type(fn).__name__ == "_JitWrapper" and type(fn).__module__.startswith("equinox.")


def maps_devices(fn: Any) -> bool:
    """Return whether it is a result of `jax.pmap` or `equinox.filter_pmap`."""
    jax_s_own = str(getattr(fn, "__globals__", {}).get("__name__")).startswith("jax.")
    equinox_s = type(fn).__name__ == "_PmapWrapper"
    of_jax = _is_of_jax(fn, "PmapFunction")
    return hasattr(fn, "lower") and (jax_s_own or equinox_s or of_jax)


# --- the device that a function sees --------------------------------------------------------------


@contextlib.contextmanager
def pretend_devices(devices: Sequence[jax.Device]) -> Iterator[None]:
    """Make JAX report these devices to traced code; what it evaluates meanwhile runs here."""
    import jax
    from jax._src.core import EvalTrace

    evaluate = EvalTrace.process_primitive

    def listed(*_: Any, **__: Any) -> list[Any]:
        return list(devices)

    def evaluated_here(*args: Any, **kwargs: Any) -> Any:
        with jax.default_device(None):
            return evaluate(*args, **kwargs)

    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.default_device(devices[0]))
        stack.enter_context(mock.patch.object(EvalTrace, "process_primitive", evaluated_here))
        stack.enter_context(mock.patch.object(jax, "devices", listed))
        stack.enter_context(mock.patch.object(jax, "local_devices", listed))
        stack.enter_context(mock.patch.object(jax, "default_backend", return_value="tpu"))
        yield


@contextlib.contextmanager
def _mapped_over(chip: Chip, topology: str | None) -> Iterator[None]:
    """Let `jax.pmap` find devices of a chip that need not be here, as many as it maps over."""
    try:
        from jax._src import pmap
    except ImportError:
        yield
        return

    def devices(_: Any, __: Any, size: int, *___: Any) -> tuple[jax.Device, ...]:
        return tuple(mesh_devices(chip, layout_for(chip, size, topology), (size,)))

    with mock.patch.object(pmap, "_get_mesh_devices", devices):
        yield


# --- Pallas kernels of a traced function ----------------------------------------------------------


def pallas_kernels(
    fn: Any, *args: Any, platform: str = "tpu", **kwargs: Any
) -> tuple[PallasKernel, ...]:
    """Return the Pallas kernels that a function launches, counted; nothing is compiled or run.

    FLOPs are the body's, over the grid; bytes those that block specs and index maps fetch. A TPU
    doesn't fetch a block again whose index stays. On a GPU each program requests its own blocks,
    and the caches serve some of them.

    Parameters
    ----------
    fn : callable
        A plain function, or a result of `jax.jit`. A kernel in a loop is counted once.
    *args, **kwargs
        Its arguments: arrays, `jax.ShapeDtypeStruct` objects, pytrees of them.
    platform : {"tpu", "gpu"}
        Platform of kernels that name none.

    Returns
    -------
    tuple of PallasKernel
        In the order of their launches, without those that can't be counted: a grid that depends on
        data or has more than `pallas.MOST_STEPS` steps, Mosaic GPU.

    Raises
    ------
    CannotTrace, UnknownName
        JAX can't trace the function with these arguments; no such platform.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jax.experimental import pallas as pl
    >>> def double(x_ref, y_ref):
    ...     y_ref[...] = 2 * x_ref[...]
    >>> rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
    >>> x = jax.ShapeDtypeStruct((64, 128), jnp.float32)
    >>> call = pl.pallas_call(double, grid=(8,), in_specs=[rows], out_specs=rows, out_shape=x)
    >>> [kernel] = pallas_kernels(call, x)
    >>> kernel.flops, kernel.bytes, kernel.operands[0].fetches
    (8192.0, 65536.0, 8)
    """
    needed("tracing", "jax")
    import jax

    platform = name_of("platform", platform, ["tpu", "gpu"])
    with tracing_errors(fn), mock.patch.object(jax, "default_backend", return_value=platform):
        traced, _ = trace_function(fn, Arguments(args, kwargs), {})
    return counted(traced.jaxpr, platform)
