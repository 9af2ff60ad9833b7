"""What the layers of a language model are made of: attention, states, feed-forwards, experts."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from roofline_helpers.common.checks import BadValue, whole
from roofline_helpers.common.dtypes import BITS

GROUP = 128
"""Weights of int4 that share a scale of 16 bits, as AWQ and GPTQ store them.

Sources: J. Lin et al., arXiv:2306.00978; E. Frantar et al., arXiv:2210.17323."""


@dataclass(frozen=True)
class FeedForward:
    """A dense feed-forward: three matrices if it is gated, else two.

    Examples
    --------
    >>> FeedForward(d_ff=14336).matrices(4096)
    176160768
    """

    d_ff: int
    gated: bool = True

    def matrices(self, d_model: int, active: bool = False) -> int:
        """Return the elements of its matrices; a token uses all of them."""
        return (3 if self.gated else 2) * d_model * self.d_ff

    @property
    def hidden(self) -> int:
        """Elements of the hidden tensors of one token."""
        return self.d_ff


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward.

    Parameters
    ----------
    count, active : int
        Experts, and how many of them each token uses.
    d_ff : int
        Width of one expert.
    shared, shared_d_ff : int
        Experts that every token uses besides, and their width if it is another.
    every, dense : int
        One layer in `every` has experts; the first `dense` have none.
    gated : bool
        Whether an expert has three matrices, not two.
    inner : int
        Width of what the experts read and write, if it isn't the model's: one matrix leads there,
        and one back.
    groups, top_groups : int
        Experts lie in so many groups, and those of a token in at most `top_groups` of them
        (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).

    Examples
    --------
    >>> Experts(count=8, active=2, d_ff=14336).chosen_by(2)
    0.4375
    """

    count: int
    active: int
    d_ff: int
    shared: int = 0
    every: int = 1
    dense: int = 0
    gated: bool = True
    shared_d_ff: int = 0
    inner: int = 0
    groups: int = 1
    top_groups: int = 1

    def __post_init__(self) -> None:
        check_sizes(self, "count", "active", "d_ff", "every", "groups", "top_groups")
        also = ("shared", "dense", "shared_d_ff", "inner")
        check_sizes(self, *(name for name in also if getattr(self, name) != 0))
        if self.active > self.count:
            raise BadValue(f"active ({self.active}) must be at most count ({self.count})")
        if self.count % self.groups or self.top_groups > self.groups:
            raise BadValue(
                f"groups ({self.groups}) must divide count ({self.count}) and be at least "
                f"top_groups ({self.top_groups})"
            )

    def chosen_by(self, tokens: int) -> float:
        """Return the expected share of experts that any of these tokens uses, chosen at random.

        Of E experts, 1 − (1 − k/E)ᵗ where each of t tokens chooses k.
        """
        return 1 - math.pow(1 - self.active / self.count, tokens)

    def expert(self, d_model: int) -> int:
        """Return the elements of one expert that isn't shared."""
        return FeedForward(self.d_ff, self.gated).matrices(self.inner or d_model)

    def matrices(self, d_model: int, active: bool = False) -> int:
        """Return the elements of experts and router; with `active`, of those that a token uses."""
        used = self.active if active else self.count
        shared = FeedForward(self.shared_d_ff or self.d_ff, self.gated).matrices(d_model)
        # every token uses the shared experts, the router, and the ways in and out
        always = self.shared * shared + d_model * (self.count + 2 * self.inner)
        return used * self.expert(d_model) + always

    @property
    def hidden(self) -> int:
        """Elements of the hidden tensors of one token."""
        return self.active * self.d_ff + self.shared * (self.shared_d_ff or self.d_ff)


@dataclass(frozen=True)
class Mixer:
    """What mixes the tokens of a layer, as numbers: attention with a cache, or a state.

    `attention` and `latent_attention` make them; `roofline.recurrent` those with a state.

    Parameters
    ----------
    weights, output : int
        Elements of its matrices, and of the last of them.
    heads, kv_heads : int
        Heads over which devices can split it, and its cache or state.
    made, cache_width : int
        Elements of one token's queries, keys and values, and that it adds to the cache.
    scores, absorbed : int
        Multiply-adds for one query and key; the same in decoding, where latent attention's matrices
        of keys and values are absorbed into queries and output.
    window : int
        Most keys that a token sees and the cache holds; 0: all.
    chunked : bool
        Whether a token sees only its own chunk of `window` tokens, not the last `window`.
    top, choosing, choosing_width : int
        Keys that an indexer chooses for each token; its multiply-adds for one key, and its elements
        among `cache_width`.
    state, recent, flops : int
        Elements of one sequence's recurrent state, and of the last inputs of a short convolution
        (16 bits each); FLOPs of one token's update and reading of that state.
    scan, chunk : int
        Multiply-adds of one token where a whole sequence is read in chunks of so many tokens.
    dtype : str
        Type of the recurrent state.
    latent : Latent, optional
        The widths of latent attention.

    Examples
    --------
    >>> attention(4096, heads=32, kv_heads=8, head_dim=128, window=1024).kept(4096)
    1024
    """

    kind: str
    weights: int
    output: int
    heads: int = 1
    kv_heads: int = 1
    made: int = 0
    cache_width: int = 0
    scores: int = 0
    absorbed: int = 0
    window: int = 0
    chunked: bool = False
    top: int = 0
    choosing: int = 0
    choosing_width: int = 0
    state: int = 0
    recent: int = 0
    flops: int = 0
    scan: int = 0
    chunk: int = 0
    dtype: str = "fp32"
    latent: Latent | None = None

    @property
    def state_bytes(self) -> int:
        """Bytes of one sequence's state."""
        parts = {self.dtype: self.state, "16 bits": self.recent}
        return sum(int(n * BITS.get(kind, 16)) // 8 for kind, n in parts.items())

    def kept(self, context: int) -> int:
        """Return the keys that the cache of one sequence holds."""
        return min(context, self.window or context)

    def seen(self, context: int) -> int:
        """Return the keys that the last token sees."""
        if self.chunked:
            return (context - 1) % self.window + 1
        return min(context, self.window or self.top or context)

    def pairs(self, seq: int, whole: bool = False) -> int:
        """Return the pairs of query and key of one sequence: unmasked ones, or all."""
        most = self.window or self.top
        if not most or most >= seq:
            return seq * seq if whole else _triangle(seq)
        if self.chunked:
            return seq // most * _triangle(most) + _triangle(seq % most)
        return _triangle(most) + (seq - most) * most

    def products(self, seq: int, whole: bool = False) -> int:
        """Return the multiply-adds of attention on one sequence, or of scanning it in chunks."""
        if not self.cache_width:
            return self.scan * seq
        chosen = self.choosing * (seq * seq if whole else _triangle(seq))
        return self.scores * self.pairs(seq, whole) + chosen


def attention(
    d_model: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    value_dim: int = 0,
    gate: int = 0,
    one_matrix: bool = False,
    **seen: Any,
) -> Mixer:
    """Return attention with grouped queries.

    Parameters
    ----------
    d_model, heads, kv_heads, head_dim : int
    value_dim : int
        Width of a head's values, if it isn't `head_dim`.
    gate : int
        Columns of a matrix that makes gates for the result.
    one_matrix : bool
        Whether one matrix makes keys and values; the cache holds both.
    **seen
        `window` and `chunked` of `Mixer`, and of an indexer `top`, `choosing` and `choosing_width`.
    """
    values = value_dim or head_dim
    output = heads * values * d_model
    queries, cached = heads * head_dim, kv_heads * (head_dim + values)
    columns = queries + gate + (kv_heads * head_dim if one_matrix else cached)
    index = seen.get("choosing_width", 0)
    columns += index + seen.get("choosing", 0)
    return Mixer(
        "attention",
        columns * d_model + output,
        output,
        heads,
        kv_heads,
        made=queries + cached,
        cache_width=cached + index,
        scores=heads * (head_dim + values),
        absorbed=heads * (head_dim + values),
        **seen,
    )


def latent_attention(
    d_model: int,
    heads: int,
    latent: Latent,
    *,
    top: int = 0,
    index_heads: int = 0,
    index_dim: int = 0,
) -> Mixer:
    """Return multi-head latent attention, with an indexer if `top` keys are chosen.

    Source of the indexer: DeepSeek-AI, "DeepSeek-V3.2", arXiv:2512.02556.
    """
    query, index = heads * (latent.nope_dim + latent.rope_dim), index_heads * index_dim
    output = heads * latent.value_dim * d_model
    queries = (query + index) * (latent.q_rank or d_model) + latent.q_rank * d_model
    down = d_model * (latent.kv_rank + latent.rope_dim + index_dim + index_heads)
    up = heads * (latent.nope_dim + latent.value_dim)
    return Mixer(
        "latent attention",
        queries + down + latent.kv_rank * up + output,
        output,
        heads,
        made=latent.q_rank + latent.kv_rank + latent.rope_dim + query + up,
        cache_width=latent.kv_rank + latent.rope_dim + index_dim,
        scores=query + heads * latent.value_dim,
        absorbed=heads * (2 * latent.kv_rank + latent.rope_dim),
        top=top,
        choosing=index,
        choosing_width=index_dim,
        latent=latent,
    )


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: the cache holds one short vector per token.

    Source: DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434. Without `q_rank`, 0, one matrix makes the
    queries.

    Examples
    --------
    >>> Latent(q_rank=1536, kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128).kv_rank
    512
    """

    q_rank: int
    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int

    def __post_init__(self) -> None:
        check_sizes(self, *(f.name for f in fields(self) if f.name != "q_rank" or self.q_rank))


@dataclass(frozen=True)
class Block:
    """One layer: what mixes its tokens, if anything does, and its feed-forwards.

    Examples
    --------
    >>> Block(attention(4096, 32, 8, 128), (FeedForward(d_ff=14336),)).sums
    2
    """

    mixer: Mixer | None
    feeds: tuple[FeedForward | Experts, ...] = ()
    parallel: bool = False
    """Whether feed-forwards read what the mixer reads, so that both results are added at once."""

    @property
    def sums(self) -> int:
        """Norms, and sums that a residual takes: one for the mixer, one for the feed-forwards."""
        return 1 if self.parallel else bool(self.mixer) + bool(self.feeds)

    @property
    def experts(self) -> Experts | None:
        """Its mixture of experts."""
        return next((feed for feed in self.feeds if isinstance(feed, Experts)), None)


@dataclass(frozen=True)
class Local:
    """Layers that see only the last `window` keys: all but one in `every`.

    With `chunked` they see only their own chunk of `window` tokens.

    Examples
    --------
    >>> Local(window=1024, every=6).window
    1024
    """

    window: int
    every: int
    chunked: bool = False

    def __post_init__(self) -> None:
        check_sizes(self, "window", "every")


@dataclass(frozen=True)
class Stored:
    """The types in which a configuration says that a model is stored.

    `weights` of dense feed-forwards, `experts`, `mixers` of the matrices around attention or a
    state, `cache`; `activations`: what the matmuls of such weights read; `group`: weights of int4
    that share a scale. `says` is where that stands, or, if there are no types, why they can't be
    read.

    Examples
    --------
    >>> Stored("its quantization_config", weights="fp8").types
    {'weights': 'fp8'}
    """

    says: str
    weights: str | None = None
    experts: str | None = None
    mixers: str | None = None
    cache: str | None = None
    activations: str | None = None
    group: int = GROUP

    @property
    def types(self) -> dict[str, str]:
        """The types that are said, by what they are of."""
        values = {field.name: getattr(self, field.name) for field in fields(self)[1:-1]}
        return {name: value for name, value in values.items() if value}


def check_sizes(owner: Any, *names: str) -> None:
    """Raise BadType or BadValue unless these fields are whole positive numbers."""
    for name in names:
        whole(name, getattr(owner, name))


def _triangle(n: int) -> int:
    return n * (n + 1) // 2
