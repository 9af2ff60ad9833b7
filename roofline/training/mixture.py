"""The extra work of mixtures of experts: padding rows and one-hot dispatch.

Two ways are in use. *Seats*: with a capacity factor, each expert has `capacity` times its even
share of rows for a sequence, filled or not, and two matmuls with a one-hot mask of tokens by seats
dispatch the tokens and combine the results (GShard, Switch). *Grouped matmuls*: rows are sorted by
expert, and one kernel multiplies them tile by tile; a tile with rows of two experts is computed for
both.

Sources: D. Lepikhin et al., arXiv:2006.16668; W. Fedus et al., arXiv:2101.03961; T. Gale et al.,
arXiv:2211.15841; JAX, `pallas/ops/tpu/megablox/gmm.py`, `make_group_metadata`.
"""

from __future__ import annotations

from roofline.training.setting import TrainingSetting
from roofline_helpers.models.layers import Experts

_MASKED = 5
"""Matmuls with a mask in both passes: dispatch and combine; the gradients of the tokens, of the
experts' results, and of the weights in the combining mask."""


def routed(setting: TrainingSetting, product: str) -> float:
    """Return the FLOPs of the routed experts in one forward pass, of all layers and tokens.

    Parameters
    ----------
    setting : TrainingSetting
    product : {"up", "down"}
        Their first matmuls, or the last.
    """
    model, experts = setting.model, _experts(setting)
    matrices = 2 if product == "up" and model.gated else 1
    weights = experts.active * matrices * (experts.inner or model.d_model) * experts.d_ff
    return 2 * setting.tokens * model.expert_layers * weights


def all_routed(setting: TrainingSetting) -> float:
    """Return the FLOPs of the routed experts in all passes; 0 without experts."""
    if not setting.model.experts:
        return 0.0
    return sum(routed(setting, name) * setting.passes(name) for name in ("up", "down"))


def rows(setting: TrainingSetting) -> float:
    """Return the rows that experts multiply over the rows that tokens fill."""
    if setting.capacity is not None:
        return setting.capacity
    if setting.tile is None:
        return 1.0
    return 1 + setting.tile / setting.rows_of_an_expert


def sorting_passes(setting: TrainingSetting) -> float:
    """Return the tensors as wide as a token that sorting reads and writes in a forward pass.

    With k experts a token, k copies are written and k results added up. Where experts are spread,
    what arrives is sorted by expert, and back. XLA's gathers read a token for each of its copies,
    and put the results back into order before they are added up.
    """
    active = _experts(setting).active
    if setting.tile is not None:
        return 1 + 5 * active
    return 2 + 2 * active + (4 * active if setting.size("expert") > 1 else 0)


def seats(setting: TrainingSetting) -> float:
    """Return the seats of all experts for one sequence; 0 if tokens are sorted."""
    if setting.capacity is None:
        return 0.0
    return setting.capacity * _experts(setting).active * setting.seq


def routing_flops(setting: TrainingSetting) -> float:
    """Return the FLOPs of padding rows and of matmuls with a mask."""
    if not setting.model.experts:
        return 0.0
    model = setting.model
    masked = 2 * setting.tokens * seats(setting) * model.d_model * model.expert_layers
    return (rows(setting) - 1) * all_routed(setting) + masked * (
        _MASKED + ("up" in setting.recompute)
    )


def _experts(setting: TrainingSetting) -> Experts:
    assert setting.model.experts is not None
    return setting.model.experts
