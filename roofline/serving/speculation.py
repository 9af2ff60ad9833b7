"""Speculative decoding: a draft model proposes tokens, the target verifies them in one step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from roofline.serving.forward import ServingStep
from roofline_helpers.common.checks import BadValue, shown, single, whole
from roofline_helpers.common.show import Fields
from roofline_helpers.models import Decoder


@dataclass(frozen=True, repr=False)
class Speculation(Fields):
    """A round of speculative decoding: a draft model proposes tokens, the target verifies them.

    `tokens` is the mean number of tokens per sequence and round, (1 − αᴸ⁺¹) / (1 − α) if each of L
    draft tokens is accepted with probability α; `seconds` is the time of a round.

    Examples
    --------
    >>> Speculation(tokens=2.5, seconds=0.02).time_per_token
    0.008
    """

    tokens: float
    seconds: float

    @property
    def time_per_token(self) -> float:
        """Seconds of a round per token."""
        return self.seconds / self.tokens


def speculative(
    target: ServingStep, draft: ServingStep, *, draft_tokens: int, acceptance: float
) -> Speculation:
    """Return a round of speculative decoding: L draft steps, then one target step on all tokens.

    Parameters
    ----------
    target, draft : ServingStep
        Decode steps of one batch. The draft can be a small model or, as in EAGLE and multi-token
        prediction, one more layer on the target's activations.
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
    >>> from roofline import network
    >>> from roofline.serving import step
    >>> slice_ = network.topology("v5e", "4x4")
    >>> large = step("llama-3-70b", slice_)
    >>> small = step("llama-3-8b", slice_)
    >>> round(speculative(large, small, draft_tokens=4, acceptance=0.8).tokens, 2)
    3.36
    """
    length = whole("draft_tokens", draft_tokens)
    rate = single("acceptance", acceptance, zero=True)
    if rate > 1:
        raise BadValue(f"acceptance must be from 0 to 1, got {shown(acceptance)}")
    asked = {(step.setting.phase, step.setting.batch) for step in (target, draft)}
    if asked != {("decode", target.setting.batch)}:
        raise BadValue("target and draft must be decode steps of the same batch")
    tokens = length + 1.0 if rate == 1 else (1 - rate ** (length + 1)) / (1 - rate)
    return Speculation(tokens, length * draft.seconds + target.but(new=length + 1).seconds)


def own_module(model: Decoder) -> Decoder:
    """Return a model's module for multi-token prediction as a draft model: its last layer again.

    Embedding and LM head are the model's. The matrix from a token and its state to the module's
    input, two squares of the width, isn't counted.

    Raises
    ------
    BadValue
        A model that isn't known to ship one.

    Examples
    --------
    >>> from roofline import model
    >>> own_module(model("deepseek-v3")).layers
    1
    """
    if not model.ahead:
        raise BadValue(
            f"{model.name} isn't known to ship a module for multi-token prediction: give a draft "
            "model, or a config.json with num_nextn_predict_layers"
        )
    last = (model.blocks or model.alike)[-1]
    shape: dict[str, Any] = {"layers": 1, "blocks": (last,), "experts": last.experts, "tied": True}
    return replace(model, name=f"{model.name}'s own module", **shape)
