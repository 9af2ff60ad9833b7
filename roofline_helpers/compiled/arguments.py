"""Arguments of a function that is compiled: described in words, and moved to another chip."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from roofline_helpers import hardware
from roofline_helpers._checks import BadValue, RooflineError
from roofline_helpers.compiled import targets


class CannotTrace(RooflineError, TypeError):
    """JAX could not trace the function with these arguments."""


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
        return [leaf for leaf in leaves if _is_array(leaf)]

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

    def described(self) -> tuple[str, ...]:
        """Return each as a reader would write it: bf16[2048,2048], {wo, w1}, k=3."""
        named = (f"{name}={_described(each)}" for name, each in self.named.items())
        return (*(_described(each) for each in self.positional), *named)

    def moved(
        self, chip: hardware.Chip, layout: str | None, static: set[int]
    ) -> tuple[Arguments, Any]:
        """Return the arguments as shapes on devices of a chip that need not be here.

        Parameters
        ----------
        chip : hardware.Chip
            One that `targets.TOPOLOGIES` has.
        layout : str, optional
            As `targets.devices` takes it.
        static : set of int
            Positions of arguments that stay as they are.

        Returns
        -------
        Arguments
            On one device, or on a mesh of the shape that they were sharded over.
        sharding
            That of what is not sharded.
        """
        import jax
        import numpy as np
        from jax.sharding import NamedSharding

        mesh, default = _placed(chip, self.mesh, layout)
        scalars = all(isinstance(leaf, np.generic) for leaf in self.arrays)

        def move(leaf: Any) -> Any:
            # a NumPy scalar may be static; it is moved only where nothing else names the device
            if not _is_array(leaf) or (isinstance(leaf, np.generic) and not scalars):
                return leaf
            sharding = default
            if mesh is not None and isinstance(getattr(leaf, "sharding", None), NamedSharding):
                sharding = NamedSharding(mesh, leaf.sharding.spec)
            return jax.ShapeDtypeStruct(leaf.shape, _dtype(leaf), sharding=sharding)

        positional = tuple(
            each if place in static else jax.tree.map(move, each)
            for place, each in enumerate(self.positional)
        )
        named = {name: jax.tree.map(move, each) for name, each in self.named.items()}
        return Arguments(positional, named), default


def _placed(chip: hardware.Chip, shape: Mapping[str, int], layout: str | None) -> tuple[Any, Any]:
    """Return a mesh of this shape, None without axes, and the sharding of what is not sharded."""
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    devices = targets.devices(chip, math.prod(shape.values()), layout)
    if not shape:
        return None, SingleDeviceSharding(devices[0])
    mesh = Mesh(np.array(devices).reshape(tuple(shape.values())), tuple(shape))
    return mesh, NamedSharding(mesh, PartitionSpec())


def reason(error: Exception) -> str:
    """Return the first line of an error, and what to do about the mesh of a `shard_map`."""
    text = str(error).strip()
    first = (text.splitlines() or [repr(error)])[0]
    elsewhere = "incompatible devices" in text and "shard_map" in text
    if elsewhere or "GlobalToLocalShape" in text:
        first += ". Give jax.shard_map an AbstractMesh, and arguments that are sharded over it"
    return first


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _dtype(value: Any) -> Any:
    """Return the type that JAX gives an array: without x64, float64 is float32."""
    import jax
    import numpy as np

    kind = value.dtype
    return jax.dtypes.canonicalize_dtype(kind) if isinstance(kind, np.dtype) else kind


_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u"}


def _described(value: Any) -> str:
    if _is_array(value):
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
