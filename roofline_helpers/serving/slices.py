"""One step of serving a decoder on several chips: products, cache, exchanges, memory.

A coarser count than `step`'s, of whole groups of kernels and with norms and residuals left out, for
decoders of every kind of `models` and for meshes. The axes "tensor", "context" and "batch" together
split every matrix. They differ in what each splits of the cache: "tensor" its key heads, "context"
its positions (context parallelism), and "batch" its sequences. Experts are split over "expert",
which splits the sequences of everything else, and "data" are whole replicas.

Sources: R. Pope et al., "Efficiently Scaling Transformer Inference", arXiv:2211.05102, section 3.3
(the cache split by sequences); N. Bhatia et al., "Helix Parallelism", arXiv:2507.07120 (by
positions); jax-ml/scaling-book, "All about Transformer inference"; DeepSeek-AI, arXiv:2412.19437,
section 3.4; Y. Leviathan et al., arXiv:2211.17192 (speculative decoding).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from roofline_helpers import network
from roofline_helpers.common.checks import BadType, BadValue, name_of, shown, single, whole
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.common.show import Facts, si
from roofline_helpers.models import Decoder
from roofline_helpers.models import model as model_of
from roofline_helpers.network import Axis, Collective, Topology
from roofline_helpers.serving.setting import PHASES, computed_in, stored_as

ROLES = ("data", "expert", "batch", "context", "tensor")
"""What a mesh axis is for, from the slowest links to the fastest."""

_ROUTED = "tokens to experts and back"


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
    >>> place = network.topology("v5e", "4x4")
    >>> one = on_slice("llama-3-70b", place, {"tensor": 16}, batch=32, context=8192)
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
            "layout": " × ".join(f"{role} {self.size(role)}" for role in self.mesh),
            "seconds": f"{si(self.seconds, 's')} a step",
            "throughput": f"{si(self.tokens_per_second, 'tokens/s')}",
            "network": f"{self.comms / self.seconds:.0%} of it in the network",
            "memory": f"{si(self.memory, 'B')} a device, {room}",
        }

    def size(self, *roles: str) -> int:
        """Return how many devices lie along these roles."""
        return math.prod(axis.size for role in roles for axis in self.mesh.get(role, ()))

    # --- shares of one device -----------------------------------------------------------------

    def _sequences(self, *roles: str) -> int:
        """Return the sequences of a device, where those of all are split over these roles.

        A sequence isn't split, so that of 16 over 64 devices those that have any have one.
        """
        return -(-self.batch // self.size(*roles))

    @property
    def _group(self) -> int:
        """New tokens of the devices that split widths."""
        return self._sequences("data", "expert") * self.new

    @property
    def _widths(self) -> int:
        return self.size("tensor", "context", "batch")

    @property
    def _attended(self) -> int:
        """Elements of one token's queries and of what attention returns, of one layer.

        Where keys and values are latent, their weights are absorbed into queries and output.
        """
        model = self.model
        if model.latent:
            return model.heads * (2 * model.latent.kv_rank + model.latent.rope_dim)
        return model.score_width

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
        return self._cache_of_one * self._sequences("data", "expert", "batch")

    @property
    def _cache_of_one(self) -> float:
        """Bytes that a device keeps of a sequence whose cache it has a part of."""
        held = self.model.cache_bytes(self.context, self.cache)
        return held * self.cache_copies / self.size("tensor", "context")

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
            chosen = self.batch * self.new / self.size("data", "expert")
            parts.append(self._product("experts", used, self._experts_read(), chosen))
        head = model.vocabulary * model.d_model / self._widths
        ends = tokens if self.phase == "decode" else self._sequences("data", "expert")
        parts.append(self._product("vocabulary", head, head, ends, self.vocabulary))
        return tuple(parts)

    def _experts_read(self) -> float:
        """Elements of experts that a step reads on one device: those that any token uses.

        Of E experts, E (1 − (1 − k/E)ᵗ) where t tokens choose k each at random.
        """
        experts = self.model.experts
        if not experts:
            return 0.0
        tokens = self._sequences("data") * self.new
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
        if self.phase == "prefill":  # each device has heads of its own, all positions of them
            sequences = self._sequences("data", "expert")
            flops = sequences * model.attention_flops(self.context) / self._widths
        else:
            tokens = self._sequences("data", "expert", "batch") * self.new
            keys = model.cache_bytes(self.context, "int8") / model.cache_width
            flops = 2 * tokens * self._attended * keys / self.size("tensor", "context")
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
        split = [axis for role in reversed(ROLES[2:]) for axis in self.mesh.get(role, ())]
        if self._widths > 1:
            summed = network.all_reduce(passed, split)
            all_of_them.append(("sums of attention and feed-forward", 2.0 * model.layers, summed))
        all_of_them += self._of_caches()
        if self.size("expert") > 1 and model.experts:
            sent = 2 * self._routed * model.experts.active * self.size("expert")
            moved = network.all_to_all(sent, self.mesh["expert"])
            all_of_them.append((_ROUTED, 2.0 * model.expert_layers, moved))
        return tuple(all_of_them)

    def _of_caches(self) -> Iterator[tuple[str, float, Collective]]:
        """Yield what devices exchange because the cache isn't split as the matrices are."""
        layers, left = float(self.model.layers), self._group / self.size("tensor")
        by_batch, by_position = (self.mesh.get(role, ()) for role in ("batch", "context"))
        if self.phase == "prefill":
            if self.size("batch", "context") > 1:
                moved = left * self.model.cache_width * _width(self.cache)
                found = network.all_to_all(moved, (*by_position, *by_batch))
                yield "new keys and values to their place", layers, found
            return
        if self.size("batch") > 1:
            both = (self._attended + self.model.cache_width) * 2  # bytes, there and back
            moved = left * both / self.size("context") / 2
            found = network.all_to_all(moved, by_batch)
            yield "queries to their sequence's cache and back", 2 * layers, found
        if self.size("context") > 1:
            # queries are gathered, what comes of them is scattered, with its maximum and its sum
            one_way = self._attended / 2 + 2 * self.model.heads
            found = network.all_reduce(left / self.size("batch") * one_way * 2, by_position)
            yield "parts of attention", layers, found

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
    def _routed(self) -> float:
        """Elements of new tokens that one device sends to experts."""
        tokens = self.batch * self.new / self.size("data", "expert")
        return tokens * self.model.d_model / self._widths

    @property
    def bound(self) -> float:
        """Seconds of this step at least: products, bytes and exchanges side by side.

        Not of a token: speculative decoding makes several in a step. A token counts once for each
        device that has some of its experts, and once for their host.
        """
        roof = self.place.chip.roofline(self.activations, reached=self.place.ceilings == "reached")
        flops = sum(part.flops for part in self.parts) / roof.peak
        nbytes = sum(part.weights + part.cache for part in self.parts) / roof.bandwidth
        phases = []
        for name, count, planned in self.exchanges:
            least: tuple[Collective, ...] = (planned,)
            if name == _ROUTED and self.model.experts:
                narrow = self._routed * min(2.0, _width(self.activations))
                least = network.collectives.copies(
                    narrow, self.model.experts.active, self.mesh["expert"]
                )
            phases += [(phase, count) for each in least for phase in each.phases]
        return max(flops, nbytes, network.collectives.least_busy(phases))

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all sequences a second."""
        return self.batch * self.new / self.seconds

    @property
    def time_per_token(self) -> float:
        """Seconds of a step for each new token of one sequence."""
        return self.seconds / self.new

    def but(self, **changes: Any) -> SliceStep:
        """Return the same step, in its layout, with another batch, context or new tokens.

        Raises
        ------
        UnknownName, BadType, BadValue
            No such argument; not a whole positive number.
        """
        names = ("batch", "context", "new")
        new: dict[str, Any] = {name_of("argument", n, names): whole(n, changes[n]) for n in changes}
        return replace(self, **new)

    def largest_batch(self) -> int:
        """Return the most sequences that fit in this layout; 0 if not even one does."""
        free = self.place.chip.memory["hbm"].capacity.value - self.weight_bytes
        most = max(0, math.floor(free / self._cache_of_one))
        return most * self.size("data", "expert", "batch")


def on_slice(
    model: Decoder | str,
    place: Topology,
    mesh: Any = None,
    *,
    phase: str = "decode",
    batch: int = 1,
    context: int = 2048,
    new: int = 1,
    weights: Any = None,
    vocabulary: Any = None,
    activations: Any = None,
    cache: Any = None,
) -> SliceStep:
    """Return one step of serving a decoder on a slice or on hosts of GPUs.

    Parameters
    ----------
    model : Decoder or str
        As `roofline_helpers.models.model` takes it.
    place : Topology
        Of `network.topology`; its ceilings are those of compute and memory too.
    mesh : mapping of str to int or axes, optional
        Devices for each of `ROLES`; if not given, the fastest layout that fits (`layouts`).
    phase : {"decode", "prefill"}
        `new` tokens a sequence, or whole prompts.
    batch : int
        Sequences of all replicas.
    context : int
        Tokens of each in the cache, or the length of the prompts.
    new : int
        Tokens that a decode step adds to each sequence: more than one where guesses are checked.
    weights, vocabulary, cache, activations : str or data type, optional
        As for `step`: of the layers' weights, of embedding and output matrix, of the cache, and
        what the layers' products compute in. The chip's 16-bit type if not given.

    Raises
    ------
    BadType, BadValue, UnknownName
        No such model, role, phase or type; a mesh that isn't the topology's, or that splits more
        heads or experts than there are; not whole numbers.

    Examples
    --------
    >>> place = network.topology("v5e", "4x2")
    >>> kept = {"weights": "int8", "vocabulary": "int8", "cache": "int8"}
    >>> one = on_slice("llama-3-70b", place, {"tensor": 8}, batch=32, context=8192, **kept)
    >>> f"{one.memory * 8 / 1e9:.0f} GB on 8 chips, {one.bound * 1e3:.0f} ms at least"
    '114 GB on 8 chips, 17 ms at least'
    """
    decoder = model_of(model)
    if not isinstance(place, Topology):
        raise BadType(f"place must be a topology (network.topology), got {shown(place)}")
    chip = place.chip
    phase = name_of("phase", phase, PHASES)
    weights = stored_as(chip, "weights", weights)
    one = SliceStep(
        model=decoder,
        place=place,
        mesh=_laid({"data": place.members} if mesh is None else mesh, decoder, place),
        phase=phase,
        batch=whole("batch", batch),
        context=whole("context", context),
        new=whole("new", new) if phase == "decode" else whole("context", context),
        weights=weights,
        vocabulary=stored_as(chip, "vocabulary", vocabulary),
        activations=computed_in(chip, weights, activations),
        cache=stored_as(chip, "cache", cache),
    )
    return _layouts(one)[0] if mesh is None else one


def layouts(model: Decoder | str, place: Topology, **setting: Any) -> list[SliceStep]:
    """Return a step in every layout of a slice: those that fit, the fastest first, then the others.

    A layout gives each of `ROLES` a whole number of devices. Equally fast ones come by memory, and
    so do those that don't fit.

    Parameters
    ----------
    model, place
        As `on_slice` takes them.
    **setting
        What else it takes, but for `mesh`.

    Raises
    ------
    BadType, BadValue, UnknownName
        As `on_slice`.

    Examples
    --------
    >>> from roofline_helpers import network
    >>> place = network.topology("v6e", "4x8", ceilings="reached")
    >>> best = layouts("llama-3-70b", place, batch=256, context=1500)[0]
    >>> {role: best.size(role) for role in best.mesh}
    {'data': 2, 'context': 2, 'tensor': 8}
    """
    return _layouts(on_slice(model, place, {"data": getattr(place, "members", 1)}, **setting))


def _layouts(one: SliceStep) -> list[SliceStep]:
    members = one.place.members
    sizes = [n for n in range(1, members + 1) if members % n == 0]
    found = []
    for each in product(sizes, repeat=len(ROLES)):
        if math.prod(each) == members:
            mesh = {role: n for role, n in zip(ROLES, each, strict=True) if n > 1}
            with suppress(BadValue):
                laid = _laid(mesh or {"tensor": 1}, one.model, one.place)
                found.append(replace(one, mesh=laid))
    return sorted(found, key=lambda s: (not s.fits, s.seconds if s.fits else 0.0, s.memory))


def _laid(mesh: Any, model: Decoder, place: Topology) -> dict[str, tuple[Axis, ...]]:
    """Return the axes of each role; raise as `on_slice`."""
    named = {name_of("role of a mesh axis", role, ROLES): n for role, n in dict(mesh).items()}
    laid = place.mesh({role: named[role] for role in ROLES if role in named})
    size = {role: math.prod(axis.size for axis in axes) for role, axes in laid.items()}
    if math.prod(size.values()) != place.members:
        raise BadValue(f"the mesh must use all {place.members} members of {place!r}")
    experts = model.experts.count if model.experts else 1
    for role, most, what in (("tensor", model.heads, "heads"), ("expert", experts, "experts")):
        if size.get(role, 1) > most:
            raise BadValue(f"{role} over {size[role]} devices: {model.name} has {most} {what}")
    return laid


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
    """A round of speculative decoding: a draft model proposes tokens, the target verifies them.

    `tokens` are what one round yields of each sequence on average, (1 − αᴸ⁺¹) / (1 − α) where each
    of L draft tokens is accepted with probability α; `seconds` what the round takes.

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
    target: SliceStep, draft: SliceStep, *, draft_tokens: int, acceptance: float
) -> Speculation:
    """Return a round of speculative decoding: steps of a draft model, one of the target on all.

    Parameters
    ----------
    target, draft : SliceStep
        Decode steps of one batch and context. The draft can be a small model or, as in EAGLE and
        multi-token prediction, one more layer on the target's activations.
    draft_tokens : int
        L, the steps of the draft model in a round.
    acceptance : float
        α, from 0 to 1: the share of draft tokens that the target accepts.

    Raises
    ------
    BadType, BadValue
        Not such steps or numbers.

    Sources: Y. Leviathan, M. Kalman, Y. Matias, arXiv:2211.17192, equation 1; Y. Li et al.,
    arXiv:2401.15077 (EAGLE); DeepSeek-AI, arXiv:2412.19437, section 5.4.3 (multi-token prediction).

    Examples
    --------
    >>> from roofline_helpers import network
    >>> place = network.topology("v5e", "4x4")
    >>> large = on_slice("llama-3-70b", place, batch=1, context=2048)
    >>> small = on_slice("llama-3-8b", place, batch=1, context=2048)
    >>> round(speculative(large, small, draft_tokens=4, acceptance=0.8).tokens, 2)
    3.36
    """
    length = whole("draft_tokens", draft_tokens)
    rate = single("acceptance", acceptance, zero=True)
    if rate > 1:
        raise BadValue(f"acceptance must be from 0 to 1, got {shown(acceptance)}")
    if {target.phase, draft.phase} != {"decode"} or target.batch != draft.batch:
        raise BadValue("target and draft must be decode steps of the same batch")
    tokens = length + 1.0 if rate == 1 else (1 - rate ** (length + 1)) / (1 - rate)
    return Speculation(tokens, length * draft.seconds + target.but(new=length + 1).seconds)


def _width(dtype: str) -> float:
    return BITS[dtype] / 8
