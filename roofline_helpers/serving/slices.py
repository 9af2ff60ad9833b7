"""One step of serving a decoder on several chips: products, cache, exchanges, memory.

A coarser count than `step`'s, of whole groups of kernels and with norms and residuals left out, for
decoders of every kind of `models` and for meshes. Attention's heads and all widths are split over
"tensor", positions of the cache over "context" (and widths with them), experts over "expert", which
splits the sequences of everything else, and "data" are whole replicas.

Sources: R. Pope et al., "Efficiently Scaling Transformer Inference", arXiv:2211.05102; jax-ml/
scaling-book, "All about Transformer inference"; DeepSeek-AI, arXiv:2412.19437, section 3.4;
Y. Leviathan et al., arXiv:2211.17192 (speculation).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from roofline_helpers import network
from roofline_helpers._checks import BadType, BadValue, name_of, shown, single, whole
from roofline_helpers.dtypes import BITS
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.models import Decoder
from roofline_helpers.models import model as model_of
from roofline_helpers.network import Axis, Collective, Topology
from roofline_helpers.serving.setting import PHASES
from roofline_helpers.show import Facts, si

ROLES = ("data", "expert", "context", "tensor")
"""What a mesh axis is for, from the slowest links to the fastest."""


@dataclass(frozen=True)
class Part:
    """Kernels of one kind on one device: FLOPs, bytes of memory, seconds.

    Examples
    --------
    >>> from roofline_helpers import network
    >>> place = network.topology("v5e", "4x2")
    >>> part = on_slice("llama-3-70b", place, batch=32, context=8192).parts[0]
    >>> part.name, part.seconds > 0
    ("attention's projections", True)
    """

    name: str
    flops: float
    weights: float
    cache: float
    seconds: float


@dataclass(frozen=True, repr=False)
class SliceStep(Facts):
    """One step on a slice. See `on_slice`.

    Examples
    --------
    >>> from roofline_helpers import network
    >>> one = on_slice("llama-3-70b", network.topology("v5e", "4x4"), batch=32, context=8192)
    >>> one.fits, f"{one.bound * 1e3:.1f} ms"
    (False, '23.7 ms')
    """

    model: Decoder
    place: Topology
    mesh: Mapping[str, tuple[Axis, ...]]
    phase: str
    batch: int
    context: int
    new: int
    weights: str
    vocabulary: str
    activations: str
    cache: str

    def _title(self) -> str:
        return f"{self.model.name}, {self.phase}"

    def _facts(self) -> dict[str, str]:
        room = "fits" if self.fits else "doesn't fit"
        return {
            "seconds": f"{si(self.seconds, 's')} a step",
            "throughput": f"{si(self.tokens_per_second, 'tokens/s')}",
            "network": f"{self.comms / self.seconds:.0%} of it in the network",
            "memory": f"{si(self.memory, 'B')} a device, {room}",
        }

    def size(self, *roles: str) -> int:
        """Return how many devices lie along these roles."""
        return math.prod(axis.size for role in roles for axis in self.mesh.get(role, ()))

    # --- shares of one device -----------------------------------------------------------------

    @property
    def _group(self) -> float:
        """New tokens of the devices that split widths."""
        return self.batch * self.new / self.size("data", "expert")

    @property
    def _widths(self) -> int:
        return self.size("tensor", "context")

    @property
    def _expert_share(self) -> float:
        """Elements of the experts that one device keeps, of one layer."""
        return self.model.expert_parameters() / (self._widths * self.size("expert"))

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights that one device keeps."""
        model = self.model
        dense = (model.layers - model.expert_layers) * model.dense_parameters
        others = (model.layers * model.attention_parameters + dense) / self._widths
        layers = others + model.expert_layers * self._expert_share
        vocabulary = model.vocabulary_parameters / self._widths
        return layers * _width(self.weights) + vocabulary * _width(self.vocabulary)

    @property
    def cache_copies(self) -> float:
        """How often one cache is kept: splitting heads finer than keys have them copies those."""
        heads = 1 if self.model.latent else self.model.kv_heads
        return max(1.0, self.size("tensor") / heads)

    @property
    def cache_bytes(self) -> float:
        """Bytes of cache that one device keeps."""
        sequences = self.batch / self.size("data", "expert")
        held = self.model.cache_bytes(self.context, self.cache) * sequences
        return held * self.cache_copies / self._widths

    @property
    def memory(self) -> float:
        """Bytes of weights and cache on one device; activations are left out."""
        return self.weight_bytes + self.cache_bytes

    @property
    def fits(self) -> bool:
        """Whether that is at most what a device has."""
        return self.memory <= self.place.chip.memory["hbm"].capacity.value

    # --- products -----------------------------------------------------------------------------

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Kernels of one device by kind, all layers together."""
        model, tokens = self.model, self._group
        attention = model.layers * model.attention_parameters / self._widths
        parts = [self._product("attention's projections", attention, attention, tokens)]
        parts.append(self._attention())
        dense = (model.layers - model.expert_layers) * model.dense_parameters / self._widths
        if dense:
            parts.append(self._product("feed-forward", dense, dense, tokens))
        if model.experts:
            used = model.expert_layers * model.expert_parameters(active=True) / self._widths
            parts.append(self._product("experts", used, self._experts_read(), tokens))
        head = model.vocabulary * model.d_model / self._widths
        ends = tokens if self.phase == "decode" else self.batch / self.size("data", "expert")
        parts.append(self._product("vocabulary", head, head, ends, self.vocabulary))
        return tuple(parts)

    def _experts_read(self) -> float:
        """Elements of experts that a step reads on one device: those that any token uses.

        Of E experts, E (1 − (1 − k/E)ᵗ) where t tokens choose k each at random.
        """
        experts = self.model.experts
        if not experts:
            return 0.0
        tokens = self._group * self.size("expert")
        hit = 1 - math.pow(1 - experts.active / experts.count, tokens)
        whole_layer = self.model.expert_parameters()
        always = experts.shared / (experts.shared + experts.count)
        share = hit * (1 - always) + always
        return self.model.expert_layers * whole_layer * share / self._widths / self.size("expert")

    def _product(
        self, name: str, used: float, read: float, tokens: float, dtype: str | None = None
    ) -> Part:
        flops = 2 * used * tokens
        nbytes = read * _width(dtype or self.weights)
        narrow = self.activations if dtype is None else self.place.chip.half
        return self._part(name, flops, nbytes, 0.0, narrow)

    def _attention(self) -> Part:
        model = self.model
        sequences = self.batch / self.size("data", "expert")
        if self.phase == "prefill":
            flops = sequences * model.attention_flops(self.context) / self._widths
        else:
            keys = model.cache_bytes(self.context, "int8") / model.cache_width
            width = model.score_width
            if model.latent:  # weights of keys and values are absorbed into queries and output
                width = model.heads * (2 * model.latent.kv_rank + model.latent.rope_dim)
            flops = 2 * self._group * width * keys / self._widths
        return self._part("attention", flops, 0.0, self.cache_bytes, self.place.chip.half)

    def _part(self, name: str, flops: float, weights: float, cache: float, dtype: str) -> Part:
        roof = self.place.chip.roofline(dtype, reached=self.place.ceilings == "reached")
        seconds = max(flops / roof.peak, (weights + cache) / roof.bandwidth)
        return Part(name, flops, weights, cache, seconds)

    # --- exchanges ----------------------------------------------------------------------------

    @cached_property
    def exchanges(self) -> tuple[tuple[str, float, Collective], ...]:
        """What is exchanged: name, how often, and the collective."""
        model = self.model
        all_of_them: list[tuple[str, float, Collective]] = []
        passed = self._group * model.d_model * 2
        split = (*self.mesh.get("tensor", ()), *self.mesh.get("context", ()))
        if self._widths > 1:
            summed = network.all_reduce(passed, split)
            all_of_them.append(("sums of attention and feed-forward", 2.0 * model.layers, summed))
        if self.size("context") > 1 and self.phase == "decode":
            partial = self._group * model.heads * (model.head_dim + 2) / self.size("tensor") * 2
            over = self.mesh["context"]
            all_of_them.append(
                ("parts of attention", float(model.layers), network.all_reduce(partial, over))
            )
        if self.size("expert") > 1 and model.experts:
            sent = passed * model.experts.active * self.size("expert") / self._widths
            moved = network.all_to_all(sent, self.mesh["expert"])
            all_of_them.append(("tokens to experts and back", 2.0 * model.expert_layers, moved))
        return tuple(all_of_them)

    # --- what follows -------------------------------------------------------------------------

    @property
    def comms(self) -> float:
        """Seconds of all exchanges."""
        return sum(count * each.seconds for _, count, each in self.exchanges)

    @property
    def seconds(self) -> float:
        """Seconds of the step: parts and exchanges, one after the other."""
        return sum(part.seconds for part in self.parts) + self.comms

    @property
    def bound(self) -> float:
        """Seconds at least: all products, all bytes and all exchanges side by side."""
        roof = self.place.chip.roofline(self.activations, reached=self.place.ceilings == "reached")
        flops = sum(part.flops for part in self.parts) / roof.peak
        nbytes = sum(part.weights + part.cache for part in self.parts) / roof.bandwidth
        return max(flops, nbytes, sum(n * each.transfer for _, n, each in self.exchanges))

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all sequences a second."""
        return self.batch * self.new / self.seconds

    @property
    def time_per_token(self) -> float:
        """Seconds of a step for each new token of one sequence."""
        return self.seconds / self.new

    def but(self, **changes: Any) -> SliceStep:
        """Return the same step with another batch, context or new tokens.

        Raises
        ------
        UnknownName, BadType, BadValue
            No such argument; not a whole positive number.
        """
        names = ("batch", "context", "new")
        new: dict[str, Any] = {name_of("argument", n, names): whole(n, changes[n]) for n in changes}
        return replace(self, **new)

    def largest_batch(self) -> int:
        """Return the most sequences that fit; 0 if not even one for each group does."""
        free = self.place.chip.memory["hbm"].capacity.value - self.weight_bytes
        each = self.cache_bytes / self.batch
        return max(0, math.floor(free / each))


def on_slice(
    model: Decoder | str,
    place: Topology,
    mesh: Any = None,
    *,
    phase: str = "decode",
    batch: int = 1,
    context: int = 2048,
    new: int = 1,
    weights: Any = "bf16",
    vocabulary: Any = None,
    activations: Any = None,
    cache: Any = "bf16",
) -> SliceStep:
    """Return one step of serving a decoder on a slice or on hosts of GPUs.

    Parameters
    ----------
    model : Decoder or str
        As `roofline_helpers.models.model` takes it.
    place : Topology
        Of `network.topology`; its ceilings are those of compute and memory too.
    mesh : mapping of str to int or axes, optional
        Devices for each of `ROLES`; all for "tensor" if not given.
    phase : {"decode", "prefill"}
        `new` tokens a sequence, or whole prompts.
    batch : int
        Sequences of all replicas.
    context : int
        Tokens of each in the cache, or the length of the prompts.
    new : int
        Tokens that a decode step adds to each sequence: more than one where guesses are checked.
    weights, vocabulary, cache : str or data type
        Types of the layers' weights, of embedding and output matrix (that of the chip's 16 bits if
        not given), and of the cache.
    activations : str or data type, optional
        What the layers' products compute in; the chip's 16-bit type if not given.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such model, role, phase or type; a mesh that isn't the topology's; not whole numbers.

    Examples
    --------
    >>> place = network.topology("v5e", "4x2")
    >>> kept = {"weights": "int8", "vocabulary": "int8", "cache": "int8"}
    >>> one = on_slice("llama-3-70b", place, batch=32, context=8192, **kept)
    >>> f"{one.memory * 8 / 1e9:.0f} GB on 8 chips, {one.bound * 1e3:.0f} ms at least"
    '114 GB on 8 chips, 17 ms at least'
    """
    decoder = model_of(model)
    if not isinstance(place, Topology):
        raise BadType(f"place must be a topology (network.topology), got {shown(place)}")
    asked = {"tensor": place.members} if mesh is None else dict(mesh)
    named = {name_of("role of a mesh axis", role, ROLES): size for role, size in asked.items()}
    laid = place.mesh({role: named[role] for role in ROLES if role in named})
    if math.prod(each.size for axes in laid.values() for each in axes) != place.members:
        raise BadValue(f"the mesh must use all {place.members} members of {place!r}")
    chip = place.chip
    phase = name_of("phase", phase, PHASES)
    one = SliceStep(
        model=decoder,
        place=place,
        mesh=laid,
        phase=phase,
        batch=whole("batch", batch),
        context=whole("context", context),
        new=whole("new", new) if phase == "decode" else whole("context", context),
        weights=dtype_of(weights),
        vocabulary=chip.half if vocabulary is None else dtype_of(vocabulary),
        activations=chip.half if activations is None else dtype_of(activations),
        cache=dtype_of(cache),
    )
    chip.peak(one.activations, "matrix")
    experts = decoder.experts.count if decoder.experts else 1
    for role, most, what in (("tensor", decoder.heads, "heads"), ("expert", experts, "experts")):
        if one.size(role) > most:
            raise BadValue(
                f"{role} over {one.size(role)} devices: {decoder.name} has {most} {what}"
            )
    return one


def frontier(
    step: SliceStep, batches: Iterable[int] | None = None, *, latency: float | None = None
) -> list[SliceStep]:
    """Return the steps between the quickest and the one with the most tokens a second.

    Parameters
    ----------
    step : SliceStep
        Whose batch is varied.
    batches : sequence of int, optional
        Powers of two up to the largest that fits, and that one, if not given.
    latency : float, optional
        Seconds that a step may take: a service's target.

    Returns
    -------
    list of SliceStep
        Those that fit and keep to the latency, each with more tokens a second than the one before.

    Raises
    ------
    BadType, BadValue
        Not whole positive batches; not a positive number of seconds.

    Examples
    --------
    >>> from roofline_helpers import network
    >>> one = on_slice("llama-3-8b", network.topology("v5e", "4x2"), batch=1, context=2048)
    >>> [step.batch for step in frontier(one, [1, 8, 64])]
    [1, 8, 64]
    """
    most = step.largest_batch()
    if batches is None:
        batches = [2**n for n in range(max(most, 1).bit_length())] + [most]
    limit = math.inf if latency is None else single("latency", latency)
    kept: list[SliceStep] = []
    for batch in sorted({whole("batch", n) for n in batches if n}):
        one = step.but(batch=batch)
        better = not kept or one.tokens_per_second > kept[-1].tokens_per_second
        if one.fits and one.time_per_token <= limit and better:
            kept.append(one)
    return kept


@dataclass(frozen=True)
class Speculation:
    """Steps in which a small model guesses and the large one checks.

    `tokens` are what one round yields of each sequence on average, (1 − αᴸ⁺¹) / (1 − α) where each
    of L guesses is right with probability α; `seconds` what the round takes.

    Examples
    --------
    >>> Speculation(tokens=2.5, seconds=0.02).time_per_token
    0.008
    """

    tokens: float
    seconds: float

    @property
    def time_per_token(self) -> float:
        """Seconds of a round for each token that it yields."""
        return self.seconds / self.tokens


def speculative(
    target: SliceStep, draft: SliceStep, *, guesses: int, acceptance: float
) -> Speculation:
    """Return a round of speculation: `guesses` steps of the draft, one of the target on all.

    Parameters
    ----------
    target, draft : SliceStep
        Decode steps of one batch and context.
    guesses : int
        L.
    acceptance : float
        α, from 0 to 1: how often a guess is what the target would have said.

    Raises
    ------
    BadType, BadValue
        Not such steps or numbers.

    Source: Y. Leviathan, M. Kalman, Y. Matias, arXiv:2211.17192, equation 1.

    Examples
    --------
    >>> from roofline_helpers import network
    >>> place = network.topology("v5e", "4x4")
    >>> large = on_slice("llama-3-70b", place, batch=1, context=2048)
    >>> small = on_slice("llama-3-8b", place, batch=1, context=2048)
    >>> round(speculative(large, small, guesses=4, acceptance=0.8).tokens, 2)
    3.36
    """
    length = whole("guesses", guesses)
    rate = single("acceptance", acceptance, zero=True)
    if rate > 1:
        raise BadValue(f"acceptance must be from 0 to 1, got {shown(acceptance)}")
    if {target.phase, draft.phase} != {"decode"} or target.batch != draft.batch:
        raise BadValue("target and draft must be decode steps of the same batch")
    tokens = length + 1.0 if rate == 1 else (1 - rate ** (length + 1)) / (1 - rate)
    return Speculation(tokens, length * draft.seconds + target.but(new=length + 1).seconds)


def _width(dtype: str) -> float:
    return BITS[dtype] / 8
