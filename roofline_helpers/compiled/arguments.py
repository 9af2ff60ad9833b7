"""Arguments of a function that is compiled: described in words, and moved to another chip."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roofline_helpers._checks import BadValue, RooflineError


class CannotTrace(RooflineError, TypeError):
    """JAX could not trace the function with these arguments.

    Examples
    --------
    >>> issubclass(CannotTrace, RooflineError)
    True
    """


@dataclass(frozen=True)
class Arguments:
    """What a function is called with: arrays, shapes, pytrees of them, and anything static."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arrays(self) -> list[Any]:
        """The arrays and shapes in all of them.

        Raises
        ------
        CannotTrace
            Something that JAX can't take apart.
        """
        import jax

        try:
            leaves = jax.tree.leaves((self.positional, dict(self.named)))
        except (TypeError, ValueError) as error:  # such as a mapping whose keys have no order
            raise CannotTrace(f"JAX can't take these arguments: {reason(error)}") from error
        return [leaf for leaf in leaves if is_array(leaf)]

    @property
    def mesh(self) -> dict[str, int]:
        """The axes of the mesh that they are sharded over, and their sizes; {} without one.

        Raises
        ------
        BadValue
            They are sharded over different meshes.
        """
        from jax.sharding import NamedSharding

        shardings = (getattr(leaf, "sharding", None) for leaf in self.arrays)
        meshes = {tuple(s.mesh.shape.items()) for s in shardings if isinstance(s, NamedSharding)}
        if len(meshes) > 1:
            raise BadValue(f"the arguments are sharded over different meshes: {sorted(meshes)}")
        return dict(*meshes)

    def set_mesh(self) -> Any:
        """Return the context in which the mesh of the arguments is the one that is set."""
        from jax.sharding import NamedSharding, use_abstract_mesh

        shardings = (getattr(leaf, "sharding", None) for leaf in self.arrays)
        mesh = next(each.mesh for each in shardings if isinstance(each, NamedSharding))
        return use_abstract_mesh(getattr(mesh, "abstract_mesh", mesh))

    def replicated(self, mesh: Mapping[str, int]) -> Arguments:
        """Return the arguments, each whole on every device of an abstract mesh."""
        import jax
        from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

        types = (AxisType.Auto,) * len(mesh)
        devices = AbstractMesh(tuple(mesh.values()), tuple(mesh), axis_types=types)
        spread = NamedSharding(devices, PartitionSpec())

        def place(leaf: Any) -> Any:
            if not is_array(leaf):
                return leaf
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=spread)

        positional = tuple(jax.tree.map(place, each) for each in self.positional)
        return Arguments(positional, {k: jax.tree.map(place, v) for k, v in self.named.items()})

    def described(self) -> tuple[str, ...]:
        """Return each as a reader would write it: bf16[2048,2048], {wo, w1}, k=3."""
        named = (f"{name}={_described(each)}" for name, each in self.named.items())
        return (*(_described(each) for each in self.positional), *named)

    def shapes(self, static: set[int]) -> Arguments:
        """Return the arguments as shapes, spread as they are: they may be on devices of any kind.

        `static` are positions of arguments that stay as they are.
        """
        import jax
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        def shape(leaf: Any) -> Any:
            if not is_array(leaf) or isinstance(leaf, np.generic):  # a scalar may be static
                return leaf
            sharding = getattr(leaf, "sharding", None)
            if not isinstance(sharding, NamedSharding | PartitionSpec):
                sharding = None
            weak = bool(getattr(leaf, "weak_type", False))
            kind = _dtype(leaf)
            return jax.ShapeDtypeStruct(leaf.shape, kind, sharding=sharding, weak_type=weak)

        positional = tuple(
            each if place in static else jax.tree.map(shape, each)
            for place, each in enumerate(self.positional)
        )
        named = {name: jax.tree.map(shape, each) for name, each in self.named.items()}
        return Arguments(positional, named)


LONGEST = 1200
"""Characters of an error of JAX that are passed on: its first lines, which tell what is wrong."""

_LOCATION = re.compile(r"\s*Suspected Python Code Location:.*", re.DOTALL)
_NOISE = re.compile(r"^(For simplicity, JAX has removed|-{8,}|The stack trace below|See https?:)")


def reason(error: BaseException) -> str:
    """Return what an error says, without what JAX says below every one."""
    lines = [line.rstrip() for line in _LOCATION.sub("", str(error)).strip().splitlines()]
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


_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u"}


def _described(value: Any) -> str:
    if is_array(value):
        kind = str(_dtype(value))
        parts = re.fullmatch(r"(bfloat|float|uint|int)(\d+)(.*)", kind)
        kind = f"{_SHORT[parts.group(1)]}{parts.group(2)}{parts.group(3)}" if parts else kind
        return f"{kind}[{','.join(map(str, value.shape))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(map(str, value))}}}" if len(value) <= 4 else f"{len(value)} arrays"
    if isinstance(value, (list, tuple)):
        inner = [_described(each) for each in value]
        return f"({', '.join(inner)})" if len(inner) <= 3 else f"{len(inner)} values"
    text = repr(value)
    return text if len(text) <= 30 else type(value).__name__
