"""What a step is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from roofline_helpers.hardware import Chip
from roofline_helpers.models import Decoder

PHASES = ("decode", "prefill")
ATTENTION = ("naive", "flash")
NARROW = ("fp8", "int8", "int4")
"""Types that weights and cache may have instead of the chip's 16-bit one."""


class Sizes(NamedTuple):
    """What of a setting its operations depend on; of the chip only its 16-bit type, `half`.

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

    @property
    def tokens(self) -> int:
        """Tokens that the step works on – new ones of all sequences."""
        return self.sizes.tokens

    @property
    def sizes(self) -> Sizes:
        """What the operations depend on."""
        same = (getattr(self, name) for name in Sizes._fields if name not in ("model", "half"))
        return Sizes(self.model, self.chip.half, *same)
