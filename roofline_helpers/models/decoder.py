"""Language models as shapes: parameters, cache, state and FLOPs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from roofline_helpers.common.checks import BadType, BadValue, flag, name_of, shown, text, whole
from roofline_helpers.common.dtypes import nbytes
from roofline_helpers.common.show import Facts, si
from roofline_helpers.models.layers import (
    Block,
    Experts,
    FeedForward,
    Latent,
    Local,
    Mixer,
    Stored,
    attention,
    check_sizes,
    latent_attention,
)

WIDTHS = ("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocabulary")
CAUSAL = ("halved", "whole")
"""How the FLOPs of causal attention are counted: unmasked pairs only, or all pairs."""


@dataclass(frozen=True, repr=False)
class Decoder(Facts):
    """The shape of a decoder-only language model.

    Parameters
    ----------
    name : str
    layers, d_model, heads, kv_heads, head_dim, d_ff, vocabulary : int
        Depth and widths; d_ff is that of dense layers.
    gated, tied : bool
        Whether a feed-forward has three matrices, not two; whether embedding and LM head share one.
    ahead : int
        Modules beside it that predict further tokens, each a layer more; in no count of these.
    experts, latent, local : optional
        Mixture-of-experts, latent-attention and sliding-window settings.
    blocks : tuple of Block
        Each layer, where these settings can't say it.
    stored : Stored, optional
        The types in which it is stored, if it was read from a configuration.
    source : str
        Where these numbers were read.

    Raises
    ------
    BadType, BadValue, UnknownName
        Not whole positive numbers, here and in all methods; heads not a multiple of kv_heads; an
        odd head_dim, which rotary embedding can't split into pairs; no such data type.

    Examples
    --------
    >>> from roofline_helpers.models import LLAMA_3_8B
    >>> LLAMA_3_8B.parameters, LLAMA_3_8B.cache_per_token("bf16")
    (8030261248, 131072)
    """

    name: str
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    d_ff: int
    vocabulary: int
    gated: bool = True
    tied: bool = False
    ahead: int = 0
    experts: Experts | None = None
    latent: Latent | None = None
    local: Local | None = None
    blocks: tuple[Block, ...] = ()
    stored: Stored | None = None
    source: str = ""

    def __post_init__(self) -> None:
        text("name", self.name)
        check_sizes(self, *WIDTHS)
        flag("gated", self.gated)
        flag("tied", self.tied)
        for name, kind in (("experts", Experts), ("latent", Latent), ("local", Local)):
            given = getattr(self, name)
            if not isinstance(given, kind | None):
                raise BadType(f"{name} must be models.{kind.__name__} or None, got {shown(given)}")
        if self.heads % self.kv_heads:
            raise BadValue(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.head_dim % 2:
            raise BadValue(f"head_dim must be even, got {self.head_dim}")
        if not self.blocks:
            return
        if len(self.blocks) != self.layers:
            raise BadValue(f"{len(self.blocks)} blocks for {self.layers} layers")
        if {block.experts for block in self.blocks} - {None} != {self.experts} - {None}:
            raise BadValue(f"experts must be those of the blocks, got {self.experts}")
        if self.blocks == self.alike:  # then nothing has to say it layer by layer
            object.__setattr__(self, "blocks", ())

    def _facts(self) -> dict[str, str]:
        cached = f"{si(self.cache_per_token(), 'B')} of cache a token in bf16"
        if self.state_bytes:
            cached += f" and {si(self.state_bytes, 'B')} of state a sequence"
        facts = {"layers": f"{self.layers} layers of {self.d_model:,}", "cache": cached}
        used = f", {si(self.active_parameters, '').strip()} of them active" if self.experts else ""
        return {**facts, "parameters": f"{si(self.parameters, '').strip()} parameters{used}"}

    # --- layers -------------------------------------------------------------------------------

    @cached_property
    def kinds(self) -> Mapping[Block, int]:
        """Its different layers, and how many there are of each."""
        return Counter(self.blocks or self.alike)

    @property
    def alike(self) -> tuple[Block, ...]:
        """Its layers, as the settings without `blocks` say."""
        dense, experts, local = FeedForward(self.d_ff, self.gated), self.experts, self.local
        sizes = (self.d_model, self.heads, self.kv_heads, self.head_dim)
        far = near = attention(*sizes)
        if self.latent:
            far = near = latent_attention(self.d_model, self.heads, self.latent)
        elif local:
            near = replace(far, window=local.window, chunked=local.chunked)
        mixed = experts and replace(experts, every=1, dense=0, gated=self.gated)
        blocks = []
        for n in range(self.layers):
            has = experts and n >= experts.dense and (n - experts.dense + 1) % experts.every == 0
            whole = not local or (n + 1) % local.every == 0
            blocks.append(Block(far if whole else near, (mixed if has and mixed else dense,)))
        return tuple(blocks)

    def mixers(self, number: Callable[[Mixer], float]) -> Any:
        """Return the sum over all layers of a number that their mixers have."""
        return sum(n * number(block.mixer) for block, n in self.kinds.items() if block.mixer)

    def feeds(self, number: Callable[[Any], float], kind: type = object) -> Any:
        """Return the sum over all layers of a number that their feed-forwards of a kind have."""
        counted = ((feed, n) for block, n in self.kinds.items() for feed in block.feeds)
        return sum(n * number(feed) for feed, n in counted if isinstance(feed, kind))

    @property
    def sums(self) -> int:
        """Sums that the residuals of all layers take, each with a norm before it."""
        return sum(n * block.sums for block, n in self.kinds.items())

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return int(self.feeds(lambda feed: 1, Experts))

    # --- weights ------------------------------------------------------------------------------

    @property
    def mixing(self) -> int:
        """Elements of all layers' matrices around attention, or around a state."""
        return int(self.mixers(lambda mixer: mixer.weights))

    @property
    def dense(self) -> int:
        """Elements of all dense feed-forwards."""
        return int(self.feeds(lambda feed: feed.matrices(self.d_model), FeedForward))

    @property
    def attention_parameters(self) -> float:
        """Elements of one layer's matrices for queries, keys, values and output.

        The mean over all layers if they differ.
        """
        return _mean(self.mixing, self.layers)

    @property
    def dense_parameters(self) -> float:
        """Elements of one dense layer's feed-forward; the mean if they differ."""
        return _mean(self.dense, int(self.feeds(lambda feed: 1, FeedForward)))

    def expert_parameters(self, active: bool = False) -> int:
        """Return the elements of one layer's experts and router; with `active`, of those used."""
        experts = next((block.experts for block in self.kinds if block.experts), None)
        return experts.matrices(self.d_model, active) if experts else 0

    def _matrices(self, active: bool) -> int:
        return self.mixing + self.dense + self.expert_layers * self.expert_parameters(active)

    @property
    def matrices(self) -> int:
        """Elements of all layers' matrices."""
        return self._matrices(active=False)

    @property
    def active_matrices(self) -> int:
        """Elements of the layers' matrices that one token uses."""
        return self._matrices(active=True)

    @property
    def vocabulary_parameters(self) -> int:
        """Elements of embedding and LM head."""
        return (1 if self.tied else 2) * self.vocabulary * self.d_model

    @property
    def parameters(self) -> int:
        """Elements of all weights."""
        norms = (self.sums + 1) * self.d_model
        return self.matrices + norms + self.vocabulary_parameters

    @property
    def active_parameters(self) -> int:
        """Elements of the weights that one token uses."""
        return self.parameters - self.matrices + self.active_matrices

    # --- cache and state ----------------------------------------------------------------------

    @property
    def cache_width(self) -> float:
        """Elements that one token adds to the cache of one layer; the mean if they differ."""
        return _mean(self.mixers(lambda mixer: mixer.cache_width), self.layers)

    def cache_per_token(self, dtype: Any = "bf16") -> int:
        """Return the bytes that one token adds to the cache of all layers, local ones included."""
        width = int(self.mixers(lambda mixer: mixer.cache_width))
        return int(nbytes(width, dtype)) if width else 0

    def cache_bytes(self, context: Any, dtype: Any = "bf16") -> int:
        """Return the bytes of one sequence's cache; local layers hold only their window."""
        tokens = whole("context", context)
        kept = int(self.mixers(lambda mixer: mixer.cache_width * mixer.kept(tokens)))
        return int(nbytes(kept, dtype)) if kept else 0

    @property
    def state_bytes(self) -> int:
        """Bytes of one sequence's state in all layers that keep one, whatever its length."""
        return int(self.mixers(lambda mixer: mixer.state_bytes))

    # --- FLOPs --------------------------------------------------------------------------------

    def matrix_flops(self, tokens: Any = 1) -> int:
        """Return the FLOPs of the weights' matmuls: two per token and weight that it uses."""
        out = self.vocabulary * self.d_model
        return 2 * whole("tokens", tokens) * (self.active_matrices + out)

    def attention_flops(self, seq: Any, *, causal: str = "halved") -> int:
        """Return the FLOPs of attention on one sequence: scores and weighted values.

        Parameters
        ----------
        seq : int
            Its tokens.
        causal : {"halved", "whole"}
            Whether only unmasked pairs are counted, S (S+1) / 2, or all S².
        """
        s = whole("seq", seq)
        everything = name_of("count of causal attention", causal, CAUSAL) == "whole"
        return 2 * int(self.mixers(lambda mixer: mixer.products(s, everything)))

    def training_flops(self, tokens: Any, seq: Any, *, causal: str = "halved") -> int:
        """Return the FLOPs of a training step: three times those of a forward pass.

        `causal` as in `attention_flops`.

        Raises
        ------
        BadValue
            Tokens that are no whole number of sequences.
        """
        n, s = whole("tokens", tokens), whole("seq", seq)
        if n % s:
            raise BadValue(f"tokens ({n}) must be whole sequences of {s}")
        return 3 * (self.matrix_flops(n) + n // s * self.attention_flops(s, causal=causal))


def _mean(total: int, count: int) -> float:
    """Return a whole number if it is one."""
    return total // count if count and total % count == 0 else total / max(count, 1)
