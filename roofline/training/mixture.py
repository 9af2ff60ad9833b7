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


def routed(one: TrainingSetting, which: str) -> float:
    """Return the FLOPs of the routed experts in one forward pass, of all layers and tokens.

    Parameters
    ----------
    one : TrainingSetting
    which : {"up", "down"}
        Their first matmuls, or the last.
    """
    of = _experts(one)
    matrices = 1 if which == "down" else (2 if one.model.gated else 1)
    return (
        2
        * one.tokens
        * one.model.expert_layers
        * of.active
        * matrices
        * (of.inner or one.model.d_model)
        * of.d_ff
    )


def rows(one: TrainingSetting) -> float:
    """Return the rows that experts multiply over the rows that tokens fill."""
    if one.capacity is not None:
        return one.capacity
    if one.tile is None:
        return 1.0
    of = _experts(one)
    each = one.group_tokens / one.microbatches * of.active * one.size("expert") / of.count
    return 1 + one.tile / each


def seats(one: TrainingSetting) -> float:
    """Return the seats of all experts for one sequence; 0 if tokens are sorted."""
    if one.capacity is None:
        return 0.0
    return one.capacity * _experts(one).active * one.seq


def routing_flops(one: TrainingSetting) -> float:
    """Return the FLOPs of padding rows and of matmuls with a mask."""
    if not one.model.experts:
        return 0.0
    products = sum(routed(one, name) * (3 + (name in one.recompute)) for name in ("up", "down"))
    masked = 2 * one.tokens * seats(one) * one.model.d_model * one.model.expert_layers
    return (rows(one) - 1) * products + masked * (_MASKED + ("up" in one.recompute))


def _experts(one: TrainingSetting) -> Experts:
    assert one.model.experts is not None
    return one.model.experts
