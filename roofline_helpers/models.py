"""Language models as shapes: the catalogue, parameters, cache and FLOPs."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from roofline_helpers.common.checks import BadValue, flag, mapping, name_of, text, whole
from roofline_helpers.common.dtypes import nbytes
from roofline_helpers.common.show import Facts, si

__all__ = ["Decoder", "model", "LLAMA_3_8B"]

# --- Decoders ------------------------------------------------------------------------------------

WIDTHS = ("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocabulary")
CAUSAL = ("halved", "whole")
"""How the FLOPs of causal attention are counted: unmasked pairs only, or all pairs."""


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the feed-forward.

    Parameters
    ----------
    count, active : int
        Experts, and how many of them each token uses.
    d_ff : int
        Width of one expert.
    shared : int
        Further experts of that width, which every token uses.
    every, dense : int
        One layer in `every` has experts; the first `dense` have none.

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

    def __post_init__(self) -> None:
        _check_sizes(self, "count", "active", "d_ff", "every")
        _check_sizes(self, *(name for name in ("shared", "dense") if getattr(self, name) != 0))
        if self.active > self.count:
            raise BadValue(f"active ({self.active}) must be at most count ({self.count})")

    def chosen_by(self, tokens: int) -> float:
        """Return the expected share of experts that any of these tokens uses, chosen at random.

        Of E experts, 1 − (1 − k/E)ᵗ where each of t tokens chooses k.
        """
        return 1 - math.pow(1 - self.active / self.count, tokens)


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: the cache holds one short vector per token.

    Source: DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434.

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
        _check_sizes(self, *(field.name for field in fields(self)))


@dataclass(frozen=True)
class Local:
    """Layers that see only the last `window` keys: all but one in `every`.

    Examples
    --------
    >>> Local(window=1024, every=6).window
    1024
    """

    window: int
    every: int

    def __post_init__(self) -> None:
        _check_sizes(self, "window", "every")


@dataclass(frozen=True, repr=False)
class Decoder(Facts):
    """The shape of a decoder-only transformer.

    Parameters
    ----------
    name : str
    layers, d_model, heads, kv_heads, head_dim, d_ff, vocabulary : int
        Depth and widths; d_ff is that of dense layers.
    gated, tied : bool
        Whether a feed-forward has three matrices, not two; whether embedding and LM head share
        one.
    experts, latent, local : optional
        Mixture-of-experts, latent-attention and sliding-window settings.
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
    experts: Experts | None = None
    latent: Latent | None = None
    local: Local | None = None
    source: str = ""

    def __post_init__(self) -> None:
        text("name", self.name)
        _check_sizes(self, *WIDTHS)
        flag("gated", self.gated)
        flag("tied", self.tied)
        if self.heads % self.kv_heads:
            raise BadValue(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.head_dim % 2:
            raise BadValue(f"head_dim must be even, got {self.head_dim}")

    def _facts(self) -> dict[str, str]:
        cached = f"{si(self.cache_per_token(), 'B')} of cache a token in bf16"
        facts = {"layers": f"{self.layers} layers of {self.d_model:,}", "cache": cached}
        used = f", {si(self.active_parameters, '').strip()} of them active" if self.experts else ""
        return {**facts, "parameters": f"{si(self.parameters, '').strip()} parameters{used}"}

    def describe(self) -> str:
        """Return it as text: every width and setting, one a line."""
        from roofline_helpers.common.terminal import Grid, text_of

        rows = [(field.name, str(getattr(self, field.name))) for field in fields(self)]
        stated = [row for row in rows if row[1] != "None"]
        return text_of(repr(self), Grid(["", ""], stated))

    # --- weights ------------------------------------------------------------------------------

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        if not self.experts:
            return 0
        return (self.layers - self.experts.dense) // self.experts.every

    @property
    def local_layers(self) -> int:
        """Layers whose attention is local."""
        return self.layers - self.layers // self.local.every if self.local else 0

    @property
    def q_width(self) -> int:
        """Elements of all queries of one token – heads · head_dim."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of all keys of one token – kv_heads · head_dim."""
        return self.kv_heads * self.head_dim

    @property
    def attention_parameters(self) -> int:
        """Elements of one layer's matrices for queries, keys, values and output."""
        if self.latent:
            of = self.latent
            queries = of.q_rank * (self.d_model + self.heads * (of.nope_dim + of.rope_dim))
            down = self.d_model * (of.kv_rank + of.rope_dim)
            up = of.kv_rank * self.heads * (of.nope_dim + of.value_dim)
            return queries + down + up + self.heads * of.value_dim * self.d_model
        return 2 * self.d_model * (self.q_width + self.kv_width)

    def _feed_forward(self, d_ff: int) -> int:
        return (3 if self.gated else 2) * self.d_model * d_ff

    @property
    def dense_parameters(self) -> int:
        """Elements of one dense layer's feed-forward."""
        return self._feed_forward(self.d_ff)

    def expert_parameters(self, active: bool = False) -> int:
        """Return the elements of one layer's experts and router; with `active`, of those used."""
        if not self.experts:
            return 0
        used = (self.experts.active if active else self.experts.count) + self.experts.shared
        return used * self._feed_forward(self.experts.d_ff) + self.d_model * self.experts.count

    def _matrices(self, active: bool) -> int:
        dense = (self.layers - self.expert_layers) * self.dense_parameters
        experts = self.expert_layers * self.expert_parameters(active)
        return self.layers * self.attention_parameters + dense + experts

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
        norms = (2 * self.layers + 1) * self.d_model
        return self.matrices + norms + self.vocabulary_parameters

    @property
    def active_parameters(self) -> int:
        """Elements of the weights that one token uses."""
        return self.parameters - self.matrices + self.active_matrices

    def weights_bytes(self, weights: Any, rest: Any = "bf16") -> int:
        """Return the bytes of all weights: one type for the layers' matrices, one for the rest."""
        return int(nbytes(self.matrices, weights) + nbytes(self.parameters - self.matrices, rest))

    # --- cache --------------------------------------------------------------------------------

    @property
    def cache_width(self) -> int:
        """Elements that one token adds to the cache of one layer."""
        if self.latent:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * self.kv_width

    def cache_per_token(self, dtype: Any = "bf16") -> int:
        """Return the bytes that one token adds to the cache of all layers, local ones included."""
        return int(nbytes(self.layers * self.cache_width, dtype))

    def cache_bytes(self, context: Any, dtype: Any = "bf16") -> int:
        """Return the bytes of one sequence's cache; local layers hold only their window."""
        return int(nbytes(self.cache_width * self._keys(whole("context", context)), dtype))

    def _keys(self, context: int) -> int:
        # those that the last token sees, over all layers
        near = min(context, self.local.window) if self.local else context
        return (self.layers - self.local_layers) * context + self.local_layers * near

    # --- FLOPs --------------------------------------------------------------------------------

    @property
    def score_width(self) -> int:
        """Multiply-adds of attention for one query and key, scores and values together."""
        if self.latent:
            of = self.latent
            return self.heads * (of.nope_dim + of.rope_dim + of.value_dim)
        return 2 * self.q_width

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
        far = near = s * s if everything else s * (s + 1) // 2
        if self.local and self.local.window < s:
            window = self.local.window
            near = window * (window + 1) // 2 + (s - window) * window
        pairs = (self.layers - self.local_layers) * far + self.local_layers * near
        return 2 * self.score_width * pairs

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


def _check_sizes(of: Any, *names: str) -> None:
    for name in names:
        whole(name, getattr(of, name))


# --- The decoders of `data/models.toml` ----------------------------------------------------------


def model(given: Any) -> Decoder:
    """Return a decoder by its key or name, or that of a ``config.json`` on disk.

    Parameters
    ----------
    given : str, Path or Decoder
        "llama-3-8b", "Mixtral 8x7B". Case, spaces, "-" and "_" don't matter. Or the path of a
        configuration as Hugging Face's transformers write it, or of its folder: of a decoder with
        gated feed-forwards, dense or of experts in every layer.

    Raises
    ------
    UnknownName, BadType
        No such model; the message gives the nearest and lists all. Not a name.
    BadValue
        No such file, or a configuration that lacks a width, or has another kind of attention.

    Examples
    --------
    >>> model("mixtral-8x7b").experts.active
    2
    """
    if isinstance(given, Decoder):
        return given
    if isinstance(given, Path) or str(given).endswith(".json"):
        path = Path(given)
        return _configured(path / "config.json" if path.is_dir() else path)
    known = _catalogue()
    also = {each.name: key for key, each in known.items()}
    return known[name_of("model", given, known, also)]


def _configured(path: Path) -> Decoder:
    try:
        data = dict(mapping(f"{path}", json.loads(path.read_text("utf-8"))))
    except OSError as error:
        raise BadValue(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise BadValue(f"{path} isn't JSON: {error}") from None
    data |= data.get("text_config", {})
    if "kv_lora_rank" in data:
        raise BadValue(f"{path}: latent attention isn't read: make a Decoder")
    try:
        width, heads = (whole(k, data[k]) for k in ("hidden_size", "num_attention_heads"))
        d_ff = data["intermediate_size"]
        count = data.get("num_local_experts") or data.get("num_experts")
        own = data.get("moe_intermediate_size", d_ff)
        return Decoder(
            name=path.parent.name or path.stem,
            layers=data["num_hidden_layers"],
            d_model=width,
            heads=heads,
            kv_heads=data.get("num_key_value_heads", heads),
            head_dim=data.get("head_dim") or width // heads,
            d_ff=d_ff,
            vocabulary=data["vocab_size"],
            tied=data.get("tie_word_embeddings", False),
            experts=Experts(count, data["num_experts_per_tok"], own) if count else None,
            local=_windows(path, data),
        )
    except KeyError as error:
        raise BadValue(f"{path}: no {error} in this configuration") from None


def _windows(path: Path, data: dict[str, Any]) -> Local | None:
    if not data.get("sliding_window") or not data.get("use_sliding_window", True):
        return None
    kinds = data.get("layer_types", [])
    full = [n for n, kind in enumerate(kinds, 1) if kind == "full_attention"]
    if len(full) == len(kinds) > 0:
        return None
    if not full or full != list(range(full[0], len(kinds) + 1, full[0])):
        raise BadValue(f"{path}: these local layers aren't read: make a Decoder")
    return Local(data["sliding_window"], full[0])


@cache
def _catalogue() -> dict[str, Decoder]:
    text = resources.files("roofline_helpers").joinpath("data", "models.toml").read_text("utf-8")
    return {key: _decoder(entry) for key, entry in tomllib.loads(text).items()}


def _decoder(entry: dict[str, Any]) -> Decoder:
    parts = {"experts": Experts, "latent": Latent, "local": Local}
    return Decoder(
        name=entry["name"],
        **entry["widths"],
        gated=entry.get("gated", True),
        tied=entry.get("tied", False),
        source=entry["source"],
        **{name: kind(**entry[name]) for name, kind in parts.items() if name in entry},
    )


LLAMA_3_8B = model("llama-3-8b")
"""Llama 3 8B, trained on contexts of 8192 tokens; Llama 3.1 8B has the same shape, and 131 072."""
