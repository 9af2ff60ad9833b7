"""The checked setting of a training step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from roofline.network import Topology
from roofline.network.axes import OUTER, Mesh
from roofline.network.topology import Asked
from roofline_helpers.common.checks import BadType, BadValue, name_of, shown
from roofline_helpers.common.show import Fields
from roofline_helpers.models import Decoder

ROLES = ("data", "pipeline", "fsdp", "expert", "context", "tensor")
"""The roles of mesh axes, from the slowest links to the fastest: batch with whole weights; layers;
batch with sharded weights; experts; positions of a sequence; widths of the layers."""

SHARDED = ("fsdp", "context")
"""Roles over which weights may be sharded, and gathered for each layer."""

PRODUCTS = ("qkv", "attention", "output", "up", "down")
"""Matmuls of one layer, in order: "up" is gate and up projection, also of experts."""

RECOMPUTE: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "attention": ("attention",),
    "full": ("qkv", "attention", "output", "up"),
}
"""Matmuls that the backward pass recomputes. The result of a layer's last matmul isn't needed,
except for the router's gradient: with experts "down" is recomputed too."""


@dataclass(frozen=True, repr=False)
class TrainingSetting(Fields):
    """The setting of a step, with every default filled in. See `step`.

    Examples
    --------
    >>> from roofline import network, training
    >>> cube = network.topology("v7x", "4x4x4")
    >>> training.step("llama-3-70b", cube, {"fsdp": 64}, batch=256, seq=8192).setting.tokens
    2097152
    """

    model: Decoder
    topology: Topology
    mesh: Mesh
    batch: int
    seq: int
    dtype: str
    weights: str
    moments: str
    recompute: tuple[str, ...]
    microbatches: int
    interleave: int
    sharded: tuple[str, ...]
    capacity: float | None
    tile: int | None
    law: bool = False
    overlap: bool | None = None
    imbalance: float = 1.0

    def size(self, *roles: str) -> int:
        """Return the number of devices along these roles."""
        return math.prod(axis.size for role in roles for axis in self.mesh.get(role, ()))

    @property
    def tokens(self) -> int:
        """Tokens of the whole batch."""
        return self.batch * self.seq

    @property
    def group_tokens(self) -> float:
        """Tokens of the devices that share a layer's work: those of one tensor-parallel group."""
        return self.tokens / self.size("data", "fsdp", "expert", "context")

    @property
    def microbatch_tokens(self) -> float:
        """Those of a microbatch."""
        return self.group_tokens / self.microbatches

    @property
    def overlaps(self) -> bool:
        """Whether another microbatch's compute hides the exchanges of experts."""
        if self.overlap is not None:
            return self.overlap
        leaves = any(axis.network in OUTER for axis in self.mesh.get("expert", ()))
        return leaves and self.microbatches > 1

    @property
    def rows_of_an_expert(self) -> float:
        """Tokens of a microbatch that an expert multiplies, if all are loaded evenly."""
        experts = self.model.experts
        assert experts is not None
        return self.microbatch_tokens * self.size("expert") * experts.active / experts.count

    def passes(self, product: str) -> int:
        """Return how often a step has the FLOPs of a matmul's forward pass: backward, twice."""
        return 3 + (product in self.recompute)

    @property
    def recomputes_blocks(self) -> bool:
        """Whether the backward pass computes the first matmuls of a block again, from its input."""
        return not {"qkv", "up"}.isdisjoint(self.recompute)


def mesh_axes(topology: Topology, mesh: Asked, model: Decoder, seq: int) -> Mesh:
    """Return the network's axes of each role; raise as `step`."""
    most = {
        "expert": (model.experts.count if model.experts else 1, "experts"),
        "pipeline": (model.layers, "layers"),
        "tensor": (model.heads, "heads"),
        "context": (seq, "positions"),
    }
    return topology.mesh_of_roles(mesh, ROLES, most, model.name)


def sharding_roles(asked: Iterable[str]) -> tuple[str, ...]:
    """Return the roles that weights are sharded over."""
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        raise BadType(f"sharded must be roles of the mesh, got {shown(asked)}")
    return tuple(name_of("role that shards weights", role, SHARDED) for role in asked)


def recomputed(asked: str | Iterable[str]) -> tuple[str, ...]:
    """Return the matmuls that are recomputed."""
    if isinstance(asked, str):
        return RECOMPUTE[name_of("recompute", asked, RECOMPUTE)]
    if not isinstance(asked, Iterable):
        raise BadType(f"recompute must be a name or products, got {shown(asked)}")
    return tuple(name_of("product", product, PRODUCTS) for product in asked)


def refuse_misfit(setting: TrainingSetting) -> None:
    """Raise BadValue for arguments that are valid alone but not together."""
    model = setting.model
    if setting.capacity is not None and setting.tile is not None:
        raise BadValue("give capacity or tile, not both")
    if (setting.capacity or setting.tile) and not model.experts:
        raise BadValue(f"capacity and tile are for experts, but {model.name} has none")
    if setting.overlap and setting.microbatches < 2:
        raise BadValue("overlap hides an exchange behind another microbatch, but there is only one")
    most = model.experts.count / model.experts.active if model.experts else 1
    if not 1 <= setting.imbalance <= most:
        raise BadValue(
            f"imbalance is the largest load over the mean, of {model.name} from 1 to {most:g}, got "
            f"{setting.imbalance:g}"
        )
    batch, passes = setting.batch, setting.microbatches
    groups = setting.size("data", "fsdp", "expert")
    rows = groups * passes
    if batch % rows:
        if batch % groups == 0:
            other = f"microbatches={math.gcd(batch // groups, passes)}"
        else:
            fewer = math.gcd(batch, groups)
            other = f"{fewer} groups with context={setting.size('context') * groups // fewer}"
        raise BadValue(
            f"a batch of {batch} in {passes} microbatches isn't whole sequences for each of "
            f"{groups} groups (data × fsdp × expert). Nearest: "
            f"batch={max(round(batch / rows), 1) * rows}, or {other}"
        )
