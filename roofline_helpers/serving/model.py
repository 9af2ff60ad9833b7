"""Decoders in the manner of Llama: their widths, weights and cache."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from roofline_helpers._checks import BadValue, text, whole
from roofline_helpers.dtypes import nbytes


@dataclass(frozen=True)
class Model:
    """A decoder with grouped-query attention and a gated feed-forward, as Llama has them.

    Parameters
    ----------
    name : str
    layers, d_model, heads, kv_heads, head_dim, d_ff, vocabulary : int
        Depth and widths. Embedding and output matrix are two matrices.
    source : str
        Where the figures were read.

    Raises
    ------
    BadType, BadValue
        Not whole positive numbers; heads not a multiple of kv_heads; an odd head_dim, which RoPE
        cannot split into pairs.

    Examples
    --------
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
    source: str = ""

    def __post_init__(self) -> None:
        text("name", self.name)
        text("source", self.source)
        for field, value in asdict(self).items():
            if field not in ("name", "source"):
                object.__setattr__(self, field, whole(field, value))
        if self.heads % self.kv_heads:
            raise BadValue(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.head_dim % 2:
            raise BadValue(f"head_dim must be even, got {self.head_dim}")

    @property
    def q_width(self) -> int:
        """Elements of all queries of one token – heads · head_dim."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of all keys of one token – kv_heads · head_dim."""
        return self.kv_heads * self.head_dim

    @property
    def matrices(self) -> int:
        """Elements of the weight matrices of one layer."""
        attention = self.d_model * (2 * self.q_width + 2 * self.kv_width)
        return attention + 3 * self.d_model * self.d_ff

    @property
    def parameters(self) -> int:
        """Elements of all weights."""
        norms = (2 * self.layers + 1) * self.d_model
        return self.layers * self.matrices + norms + 2 * self.vocabulary * self.d_model

    def weights_bytes(self, weights: Any, rest: Any = "bf16") -> int:
        """Return the bytes of all weights: the layers' matrices in one type, the rest in another.

        Raises
        ------
        UnknownName, BadType
            No such data type.
        """
        matrices = self.layers * self.matrices
        return int(nbytes(matrices, weights) + nbytes(self.parameters - matrices, rest))

    def cache_per_token(self, dtype: Any = "bf16") -> int:
        """Return the bytes of keys and values that one token leaves in the cache.

        2 · layers · kv_heads · head_dim elements.

        Raises
        ------
        UnknownName, BadType
            No such data type.
        """
        return int(nbytes(2 * self.layers * self.kv_width, dtype))


LLAMA_3_8B = Model(
    name="Llama 3 8B",
    layers=32,
    d_model=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    d_ff=14336,
    vocabulary=128256,
    source="arXiv:2407.21783, table 3; vocabulary: params.json of meta-llama/Meta-Llama-3-8B",
)
"""Llama 3 8B, trained on contexts of 8192 tokens; Llama 3.1 8B has the same shape, and 131 072."""
