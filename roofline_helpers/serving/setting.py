"""What a step is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from roofline_helpers.hardware import Chip
from roofline_helpers.models import Decoder

PHASES = ("decode", "prefill")
ATTENTION = ("naive", "flash")
NARROW = ("fp8", "int8", "int4")
"""Types that weights and cache may have instead of the chip's 16-bit one."""


class Sizes(NamedTuple):
    """What of a setting its operations depend on; of the chip only its 16-bit type, `half`.

    `model` is what one chip has of it: the whole of its depth, a share of its widths.

    Examples
    --------
    >>> from roofline_helpers.serving import step
    >>> step("llama-3-8b", "h100", batch=64, context=2048).setting.sizes.tokens
    64
    """

    model: Decoder
    half: str
    phase: str
    batch: int
    context: int
    weights: str
    activations: str
    cache: str
    fusion: str
    attention: str
    chips: int

    @property
    def tokens(self) -> int:
        """Tokens that the step works on – new ones of all sequences."""
        return self.batch * (1 if self.phase == "decode" else self.context)


@dataclass(frozen=True)
class Setting:
    """What a step is asked for, checked and with every default filled in. See `step`.

    Examples
    --------
    >>> from roofline_helpers.serving import step
    >>> setting = step("llama-3-8b", "h100", batch=64, context=2048).setting
    >>> setting.phase, setting.tokens
    ('decode', 64)
    """

    model: Decoder
    chip: Chip
    phase: str
    batch: int
    context: int
    weights: str
    activations: str
    cache: str
    fusion: str
    attention: str
    reached: bool = False
    floor: bool = True
    resident: bool = False
    reserve: float = 0.0
    chips: int = 1

    @property
    def share(self) -> Decoder:
        """One chip's part of the model: heads and widths are split, what passes on is whole."""
        split = ("heads", "kv_heads", "d_ff", "vocabulary")
        return replace(
            self.model, **{name: getattr(self.model, name) // self.chips for name in split}
        )

    @property
    def tokens(self) -> int:
        """Tokens that the step works on – new ones of all sequences."""
        return self.sizes.tokens

    @property
    def sizes(self) -> Sizes:
        """What the operations depend on."""
        same = (getattr(self, name) for name in Sizes._fields if name not in ("model", "half"))
        return Sizes(self.share, self.chip.half, *same)
