"""The exchanges between the devices of a mesh in a training step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from roofline import network
from roofline.network import Axis
from roofline.network.collectives import Transfer
from roofline.training.setting import TrainingSetting
from roofline_helpers.common.dtypes import width


def exchanges(setting: TrainingSetting) -> tuple[Transfer, ...]:
    """Return every exchange of a step."""
    return (
        *_weights(setting),
        *_gradients(setting),
        *_widths(setting),
        *_experts(setting),
        *_positions(setting),
        *_stages(setting),
    )


class _Weights(NamedTuple):
    """Weights that are exchanged together: how many `times` per stage, and elements per device.

    `apart` is whether devices of the expert axis hold different weights.
    """

    name: str
    times: float
    elements: float
    apart: bool = False


def _layer_weights(setting: TrainingSetting) -> list[_Weights]:
    """Return the weights of a stage in one tensor-parallel group."""
    model, spread = setting.model, setting.size("expert")
    dense = model.layers - model.expert_layers
    experts, mixing = model.expert_parameters(), model.attention_parameters
    if not dense:  # dense feed-forwards beside the experts
        mixing += model.dense / model.layers
    kinds = [_Weights("layer", dense, mixing + model.dense_parameters)]
    if spread == 1:
        kinds.append(_Weights("layer of experts", model.expert_layers, mixing + experts))
    else:
        kinds.append(_Weights("layer's attention", model.expert_layers, mixing))
        kinds.append(_Weights("layer's experts", model.expert_layers, experts / spread, True))
    matrices = 2 - model.tied
    vocabulary = model.vocabulary_parameters / matrices
    kinds.append(_Weights("matrix of the vocabulary", matrices, vocabulary))
    tensor, stages = setting.size("tensor"), setting.size("pipeline")
    return [
        kind._replace(times=kind.times / stages, elements=kind.elements / tensor)
        for kind in kinds
        if kind.times
    ]


def _sharded_over(setting: TrainingSetting) -> tuple[Axis, ...]:
    """Return the axes that weights are sharded over and gathered from."""
    return tuple(axis for role in setting.sharded for axis in setting.mesh.get(role, ()))


def _whole_over(setting: TrainingSetting, apart: bool) -> tuple[Axis, ...]:
    """Return the axes that split the batch or its positions and keep the same weights."""
    splitting = ("data", "fsdp", *([] if apart else ["expert"]), "context")
    roles = [role for role in splitting if role not in setting.sharded]
    return tuple(axis for role in roles for axis in setting.mesh.get(role, ()))


def _weights(setting: TrainingSetting) -> Iterator[Transfer]:
    """Weights gathered before each forward and each backward pass over a layer."""
    over = _sharded_over(setting)
    if setting.size(*setting.sharded) == 1:
        return
    for name, count, elements, _ in _layer_weights(setting):
        gathered = network.all_gather(elements * width(setting.dtype), over)
        # once for the forward pass, once for the backward pass and its recomputation
        yield Transfer(
            "fsdp", f"weights of a {name}", 2 * count * setting.microbatches, gathered, True
        )


def _gradients(setting: TrainingSetting) -> Iterator[Transfer]:
    """Gradients: reduce-scattered to the weight's owner, all-reduced among several owners."""
    over = _sharded_over(setting)
    for name, count, elements, apart in _layer_weights(setting):
        nbytes = elements * width("bf16")
        purpose = f"gradients of a {name}"
        if setting.size(*setting.sharded) > 1:
            scattered = network.reduce_scatter(nbytes, over)
            often = count * setting.microbatches
            yield Transfer("fsdp", purpose, often, scattered, True, forward=0)
        whole = _whole_over(setting, apart)
        if whole:
            share = nbytes / setting.size(*setting.sharded)
            yield Transfer("data", purpose, count, network.all_reduce(share, whole), True)


def _widths(setting: TrainingSetting) -> Iterator[Transfer]:
    """Activations around each block of a layer, if its widths are split.

    Sharded between blocks, gathered before and scattered after: V. Korthikanti et al., figure 5.
    """
    if setting.size("tensor") == 1:
        return
    sums = setting.model.sums / setting.size("pipeline")
    tokens = setting.microbatch_tokens
    nbytes = tokens * setting.model.d_model * width("bf16")
    passes = sums * setting.microbatches
    over = setting.mesh["tensor"]
    gathered, scattered = network.all_gather(nbytes, over), network.reduce_scatter(nbytes, over)
    yield Transfer(
        "tensor", "activations gathered", (2 + setting.recomputes_blocks) * passes, gathered, False
    )
    yield Transfer("tensor", "sums scattered", 2 * passes, scattered, False)


def _experts(setting: TrainingSetting) -> Iterator[Transfer]:
    """Tokens to their experts and back, in both passes.

    Between hosts a token goes once to each that has some of its experts, and on from there, as in
    DeepSeek-V3 (arXiv:2412.19437, section 3.2.2); within one network once to each expert. A device
    with `imbalance` times the mean load receives so many more.
    """
    if setting.size("expert") == 1 or not setting.model.experts:
        return
    layers = setting.model.expert_layers / setting.size("pipeline")
    over, experts = setting.mesh["expert"], setting.model.experts
    active, groups = experts.active, (experts.groups, experts.top_groups)
    sent = setting.microbatch_tokens * setting.model.d_model
    count = (4 + ("up" in setting.recompute)) * layers * setting.microbatches
    narrow = sent * min(width("bf16"), width(setting.dtype))
    least = network.collectives.copies(narrow, active, over, groups)
    purpose, hidden = "tokens to experts and back", setting.overlaps
    loaded = sent * width("bf16") * setting.imbalance
    if len({axis.network for axis in over}) > 1:
        copies = network.collectives.copies(loaded, active, over, groups)
        for moved, must in zip(copies, least, strict=True):
            yield Transfer("expert", purpose, count, moved, hidden, (must,))
    else:
        moved = network.all_to_all(loaded * active * setting.size("expert"), over)
        yield Transfer("expert", purpose, count, moved, hidden, least)


def _positions(setting: TrainingSetting) -> Iterator[Transfer]:
    """Keys and values of the other positions, and their gradients."""
    if setting.size("context") == 1:
        return
    layers = setting.model.layers / setting.size("pipeline")
    tokens = setting.group_tokens * setting.size("context") / setting.microbatches
    nbytes = tokens * setting.model.cache_width / setting.size("tensor") * width("bf16")
    over = setting.mesh["context"]
    count = layers * setting.microbatches
    gathered, scattered = network.all_gather(nbytes, over), network.reduce_scatter(nbytes, over)
    yield Transfer("context", "keys and values", 2 * count, gathered, True)
    yield Transfer("context", "gradients of keys and values", count, scattered, True, forward=0)


def _stages(setting: TrainingSetting) -> Iterator[Transfer]:
    """Activations to the next stage, and gradients back."""
    if setting.size("pipeline") == 1:
        return
    tokens = setting.microbatch_tokens
    nbytes = tokens * setting.model.d_model * width("bf16") / setting.size("tensor")
    # stages wind through the axes and wait for the slowest hop; the first and last send one way
    # only
    hops = [network.permute(nbytes, axis) for axis in setting.mesh["pipeline"]]
    slowest = max(hops, key=lambda hop: hop.seconds)
    least = min(
        (network.permute(nbytes / 2, axis) for axis in setting.mesh["pipeline"]),
        key=lambda hop: hop.transfer,
    )
    count = 2 * setting.microbatches * setting.interleave
    yield Transfer("pipeline", "activations to the next stage", count, slowest, True, (least,))
