"""The setting of a step, and one device's share of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from roofline.network import Topology
from roofline.network.axes import Mesh
from roofline.network.measured import SAME_GPU
from roofline.serving.elsewhere import law_elsewhere
from roofline_helpers import work
from roofline_helpers.chips import Chip
from roofline_helpers.common.checks import BadValue, name_of
from roofline_helpers.common.dtypes import COMPUTED, computed_as, width
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.show import Fields
from roofline_helpers.measured.laws import law_of
from roofline_helpers.models import Decoder
from roofline_helpers.models.layers import GROUP, Experts
from roofline_helpers.work import Work

PHASES = ("decode", "prefill")
ATTENTION = ("naive", "flash")
ROLES = ("data", "expert", "batch", "context", "tensor")
"""The roles of mesh axes, from the slowest links to the fastest: whole replicas; experts; and over
which every matrix is split, sequences, positions and KV heads of the cache."""

NARROW = ("fp8", "int8", "int4")
"""Types that weights and cache may have instead of the chip's 16-bit one, on any chip."""

FOUR_BITS = ("fp4", *COMPUTED)
"""Further types, with a scale for each block, of the newest chips."""


WAYS = {("fp8", "fp8"): ("fp8 in blocks",), ("bf16", "mxfp4"): ("mxfp8",)}
"""Other types that servers' experts read, by those of activations and experts, if that is faster.

No tuned grouped matmul of fp8 with one scale a tensor was measured on Hopper. On Blackwell servers
quantise the tokens for experts in mxfp4.
"""

TYPES = ("weights", "experts", "projections", "cache", "activations")
"""The types that a configuration may say: of dense feed-forwards, of experts, of the matrices
around attention, of the cache, and of what the matmuls read."""

SAME = ("fp8", "fp8 in blocks", "mxfp8", "nvfp4", "int8")
"""Types of weights that engines multiply by activations of the same type; others are widened."""


def types_of(model: Decoder, chip: Chip, given: Mapping[str, Any]) -> dict[str, str]:
    """Return each of `TYPES`: as given, else as the model's configuration says, else 16 bits.

    Types of experts and projections follow given `weights`, and so do activations if the type is in
    `SAME` and the chip computes in it.

    Raises
    ------
    BadValue
        A configuration whose types aren't read, and no `weights` are given.
    UnknownName, BadType
        As `stored_as` and `computed_in`.
    """
    stored, said = model.stored, {}
    if stored and given["weights"] is None:
        if not stored.types:
            raise BadValue(
                f"{model.name}: {stored.says}. Say the type of weights, and of a narrow cache"
            )
        said = {name: chip.half if kind == "bf16" else kind for name, kind in stored.types.items()}
        if computed_as(said.get("activations", chip.half)) not in chip.matrix:
            del said["activations"]  # weights are widened before they are multiplied
    elif given["weights"] in SAME and computed_as(given["weights"]) in chip.matrix:
        said["activations"] = given["weights"]
    first = said.get("weights", said.get("experts", said.get("mixers")))
    cached = stored.cache if stored else None
    usual = {"weights": first, "projections": said.get("mixers"), **said, "cache": cached}
    asked = {name: usual.get(name) if given[name] is None else given[name] for name in TYPES}
    weights = stored_as(chip, "weights", asked["weights"])
    parts = {name: asked[name] or weights for name in ("weights", "experts", "projections")}
    types = {name: stored_as(chip, name, kind) for name, kind in parts.items()}
    return {
        **types,
        "cache": stored_as(chip, "cache", asked["cache"]),
        "activations": computed_in(chip, {*types.values()}, asked["activations"]),
    }


def origin(setting: ServingSetting, name: str) -> str:
    """Return who says one of `TYPES`: who asked, the model as it ships, or nobody."""
    stored = setting.model.stored
    shipped = {**stored.types, "projections": stored.mixers}.get(name) if stored else None
    if name in setting.given:
        return "as given"
    follows = "weights" in setting.given or (name == "activations" and not shipped)
    if follows and name != "cache":
        return "after the weights"
    shipped = setting.half if shipped == "bf16" else shipped
    return (
        f"as shipped ({stored.says})" if stored and shipped == getattr(setting, name) else "assumed"
    )


def stored_as(chip: Chip, part: str, given: Any) -> str:
    """Return the type of weights or of a cache: by default the chip's 16-bit one.

    Raises
    ------
    UnknownName, BadType
        No such type.
    """
    types = (chip.half, *NARROW, *FOUR_BITS)
    if given is None:
        return chip.half
    return name_of(f"type of {part} on {chip.name}", dtype_of(given), types)


def computed_in(chip: Chip, weights: Set[str], given: Any) -> str:
    """Return the type of activations: the 16-bit one, or that of some of the weights.

    Raises
    ------
    UnknownName, BadType
        No such type, or the chip has no peak for it.
    BadValue
        No weights have that type, or it is int4, in which no layer of a step computes.
    """
    activations = stored_as(chip, "activations", given)
    if activations == chip.half:
        return activations
    chip.peak(activations, "matrix")
    if computed_as(activations) not in map(computed_as, weights) or activations == "int4":
        raise BadValue(
            f"activations must be {chip.half}, or fp8, int8 or fp4 with weights of that type, "
            f"got {activations} with {', '.join(sorted(weights))} weights"
        )
    return activations


def split(size: int, parts: int) -> int:
    """Return the largest of so many parts."""
    return -(-size // parts)


class Sizes(NamedTuple):
    """The part of a setting that operations depend on; of the chip only its 16-bit type, `half`.

    `tokens` are those of the devices that share each matrix, `ends` of them go through the LM head,
    `sequences` with `new` tokens are those whose attention one device computes, and `routed` tokens
    choose among the experts of which it has some. `widths`, `heads`, `positions`, `expert_widths`
    and `expert_groups` are the numbers of parts, and a `group` of int4 weights has one scale.
    `grouped` is what experts read as one measured kernel, or "".

    Examples
    --------
    >>> from roofline.serving import step
    >>> step("llama-3-8b", "h100", batch=64, context=2048).setting.sizes.tokens
    64
    """

    model: Decoder
    half: str
    prefill: bool
    tokens: int
    ends: int
    sequences: int
    new: int
    context: int
    routed: int
    widths: int
    heads: int
    positions: int
    expert_widths: int
    expert_groups: int
    weights: str
    experts: str
    projections: str
    vocabulary: str
    activations: str
    cache: str
    group: int
    fusion: str
    attention: str
    grouped: str

    def reads_narrow(self, weights: str) -> bool:
        """Return whether matmuls with such weights read the narrow type of activations."""
        return self.activations != self.half and computed_as(weights) == computed_as(
            self.activations
        )

    def grouped_kernel(self, experts: Experts) -> Work:
        """Return the experts' matmuls as the kernels that were measured."""
        return work.grouped_matmul(
            self.routed,
            experts.inner or self.model.d_model,
            split(experts.d_ff, self.expert_widths),
            experts.count,
            experts.active,
            self.grouped,
            local_experts=split(experts.count, self.expert_groups),
            weights="fp8 in blocks" if self.grouped == "fp8 in blocks" else self.experts,
        )


@dataclass(frozen=True, repr=False)
class ServingSetting(Fields):
    """The setting of a step, checked and with every default filled in. See `step`.

    `given` are those of `TYPES` that were asked for; the others are the model's own, or assumed.

    Examples
    --------
    >>> from roofline.serving import step
    >>> setting = step("llama-3-8b", "h100", batch=64, context=2048).setting
    >>> setting.phase, setting.tokens
    ('decode', 64)
    """

    model: Decoder
    topology: Topology
    mesh: Mesh
    hardware: Chip | Topology
    expert_widths: int
    phase: str
    batch: int
    context: int
    new: int
    weights: str
    experts: str
    projections: str
    vocabulary: str
    activations: str
    cache: str
    given: tuple[str, ...] = ()
    fusion: str = "pointwise"
    attention: str = "flash"
    law: bool = False
    floor: bool = True
    resident: bool = False
    reserve: float = 0.0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `step` that give this setting."""
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        given |= {name: None for name in TYPES if name not in self.given}
        del given["topology"], given["given"]
        alone = isinstance(self.hardware, Chip)
        if self.expert_widths == self.widths:
            given["expert_widths"] = None
        layout = {"mesh": None, "chips": self.chips} if alone else {"chips": 1}
        return {**given, **layout, "reached": self.reached}

    @property
    def chip(self) -> Chip:
        """The chip, or one of several."""
        return self.topology.chip

    @property
    def chips(self) -> int:
        """The number of chips."""
        return self.topology.chips

    @property
    def reached(self) -> bool:
        """Whether ceilings are measured ones."""
        return self.topology.ceilings == "reached"

    @property
    def half(self) -> str:
        """The chip's 16-bit type."""
        return self.chip.half

    @property
    def new_tokens(self) -> int:
        """Tokens per sequence that the step works on."""
        return self.new if self.phase == "decode" else self.context

    @property
    def tokens(self) -> int:
        """Tokens of all sequences that the step works on."""
        return self.batch * self.new_tokens

    @property
    def law_chip(self) -> str:
        """The chip whose measured kernels are like this one's."""
        return SAME_GPU.get(self.chip.key, self.chip.key)

    @cached_property
    def sizes(self) -> Sizes:
        """The part of the setting that the operations depend on."""
        prefill, sequences = self.phase == "prefill", self.sequences("data", "expert")
        sizes = Sizes(
            model=self.model,
            half=self.half,
            prefill=prefill,
            tokens=self.group_tokens,
            ends=sequences if prefill else self.group_tokens,
            sequences=sequences if prefill else self.sequences("data", "expert", "batch"),
            new=self.new_tokens,
            context=self.context,
            routed=self.sequences("data") * self.new_tokens,
            widths=self.widths,
            heads=self.widths if prefill else self.size("tensor"),
            positions=1 if prefill else self.size("context"),
            expert_widths=self.expert_widths,
            expert_groups=self.expert_groups,
            vocabulary=self.vocabulary,
            **{name: getattr(self, name) for name in TYPES},
            group=self.model.stored.group if self.model.stored else GROUP,
            fusion=self.fusion,
            attention=self.attention,
            grouped="",
        )
        if not self.law or not self.model.experts:
            return sizes
        read = self.activations if sizes.reads_narrow(self.experts) else self.half
        seconds = {}
        for way in (read, *WAYS.get((read, self.experts), ())):
            job = sizes._replace(grouped=way).grouped_kernel(self.model.experts)
            if law := law_of(job, self.law_chip):
                seconds[way] = law.seconds(job)
        job = sizes._replace(grouped=read).grouped_kernel(self.model.experts)
        elsewhere = "" if law_elsewhere(job, self.chip) is None else read
        return sizes._replace(grouped=min(seconds, key=seconds.__getitem__, default=elsewhere))

    # --- devices on a mesh --------------------------------------------------------------------

    def size(self, *roles: str) -> int:
        """Return the number of devices along these roles."""
        return math.prod(axis.size for role in roles for axis in self.mesh.get(role, ()))

    def sequences(self, *roles: str) -> int:
        """Return the sequences per device if they are split over these roles.

        At least 1, since a sequence isn't split: with 16 over 64 devices, some devices have none.
        """
        return -(-self.batch // self.size(*roles))

    @property
    def widths(self) -> int:
        """The number of devices that share each matrix."""
        return self.size("tensor", "context", "batch")

    @property
    def expert_groups(self) -> int:
        """The number of groups of devices that have different experts."""
        return self.size("expert") * self.widths // self.expert_widths

    @property
    def group_tokens(self) -> int:
        """New tokens of the devices that share each matrix."""
        return self.sequences("data", "expert") * self.new_tokens

    @property
    def cached_layers(self) -> int:
        """Layers that have a cache."""
        return int(self.model.mixers(lambda mixer: mixer.cache_width > 0))

    @property
    def attended(self) -> float:
        """Elements of one token's queries and attention results in one layer that has a cache.

        For latent attention the weights of keys and values are absorbed into queries and output.
        """
        return float(self.model.mixers(lambda mixer: mixer.absorbed) / self.cached_layers)

    @property
    def state_bytes(self) -> float:
        """Bytes of the sequences' states on one device, of layers without a cache."""
        part = self.model.state_bytes / self.size("tensor")
        return part * self.sequences("data", "expert", "batch")

    @property
    def cache_bytes(self) -> float:
        """Bytes of cache and states on one device."""
        tensor = self.size("tensor")  # with more devices than KV heads each has a copy
        elements = self.model.mixers(
            lambda m: max(1, tensor / m.kv_heads) * m.cache_width * m.kept(self.context)
        )
        part = elements * width(self.cache) / self.size("tensor", "context")
        return float(part * self.sequences("data", "expert", "batch") + self.state_bytes)
