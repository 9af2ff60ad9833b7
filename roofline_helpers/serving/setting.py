"""What a step is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from roofline_helpers.chips import Chip
from roofline_helpers.common.checks import BadValue, name_of
from roofline_helpers.common.dtypes import COMPUTED, computed_as
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.models import Decoder

PHASES = ("decode", "prefill")
ATTENTION = ("naive", "flash")
NARROW = ("fp8", "int8", "int4")
"""Types that weights and cache may have instead of the chip's 16-bit one, on any chip."""

FOUR_BITS = ("fp4", *COMPUTED)
"""Types that they may have besides: of the newest chips, with a scale for each block."""


def stored_as(chip: Chip, what: str, given: Any) -> str:
    """Return the type of weights or of a cache: by default the chip's 16-bit one.

    Raises
    ------
    UnknownName, BadType
        No such type.
    """
    types = (chip.half, *NARROW, *FOUR_BITS)
    if given is None:
        return chip.half
    return name_of(f"type of {what} on {chip.name}", dtype_of(given), types)


def computed_in(chip: Chip, weights: str, given: Any) -> str:
    """Return the type of activations: the 16-bit one, or that of the weights.

    Raises
    ------
    UnknownName, BadType
        No such type, or the chip has no peak for it.
    BadValue
        The weights have another type.
    """
    activations = stored_as(chip, "activations", given)
    if activations == chip.half:
        return activations
    chip.peak(activations, "matrix")
    if computed_as(activations) != computed_as(weights) or activations == "int4":
        raise BadValue(
            f"activations must be {chip.half}, or fp8, int8 or fp4 with weights of that type, "
            f"got {activations} with {weights} weights"
        )
    return activations


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
class ServingSetting:
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
    law: bool = False
    floor: bool = True
    resident: bool = False
    reserve: float = 0.0
    chips: int = 1

    @property
    def share(self) -> Decoder:
        """One chip's part of the model: heads and widths are split, what passes on is whole."""
        split = ("heads", "kv_heads", "d_ff", "vocabulary")
        part = {name: getattr(self.model, name) // self.chips for name in split}
        experts = self.model.experts
        if experts:
            experts = replace(experts, d_ff=experts.d_ff // self.chips)
        return replace(self.model, **part, experts=experts)

    @property
    def tokens(self) -> int:
        """Tokens that the step works on – new ones of all sequences."""
        return self.sizes.tokens

    @property
    def sizes(self) -> Sizes:
        """What the operations depend on."""
        same = (getattr(self, name) for name in Sizes._fields if name not in ("model", "half"))
        return Sizes(self.share, self.chip.half, *same)
