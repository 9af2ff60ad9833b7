"""The exchanges between the devices of a mesh in a training step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from roofline import network
from roofline.network import Axis
from roofline.network.collectives import Transfer
from roofline.training.setting import TrainingSetting
from roofline_helpers.common.dtypes import width


def exchanges(one: TrainingSetting) -> tuple[Transfer, ...]:
    """Return every exchange of a step."""
    return (
        *_weights(one),
        *_gradients(one),
        *_widths(one),
        *_experts(one),
        *_positions(one),
        *_stages(one),
    )


class _Weights(NamedTuple):
    """Weights that are exchanged together: how many `times` per stage, and elements per device.

    `apart` is whether devices of the expert axis hold different weights.
    """

    name: str
    times: float
    elements: float
    apart: bool = False


def _layer_weights(one: TrainingSetting) -> list[_Weights]:
    """Return the weights of a stage in one tensor-parallel group."""
    model, spread = one.model, one.size("expert")
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
    tensor, stages = one.size("tensor"), one.size("pipeline")
    return [
        kind._replace(times=kind.times / stages, elements=kind.elements / tensor)
        for kind in kinds
        if kind.times
    ]


def _sharded_over(one: TrainingSetting) -> tuple[Axis, ...]:
    """Return the axes that weights are sharded over and gathered from."""
    return tuple(axis for role in one.sharded for axis in one.mesh.get(role, ()))


def _whole_over(one: TrainingSetting, apart: bool) -> tuple[Axis, ...]:
    """Return the axes that split the batch or its positions and keep the same weights."""
    splitting = ("data", "fsdp", *([] if apart else ["expert"]), "context")
    roles = [role for role in splitting if role not in one.sharded]
    return tuple(axis for role in roles for axis in one.mesh.get(role, ()))


def _weights(one: TrainingSetting) -> Iterator[Transfer]:
    """Weights gathered before each forward and each backward pass over a layer."""
    over = _sharded_over(one)
    if one.size(*one.sharded) == 1:
        return
    for name, count, elements, _ in _layer_weights(one):
        gathered = network.all_gather(elements * width(one.dtype), over)
        # once for the forward pass, once for the backward pass and its recomputation
        yield Transfer("fsdp", f"weights of a {name}", 2 * count * one.microbatches, gathered, True)


def _gradients(one: TrainingSetting) -> Iterator[Transfer]:
    """Gradients: reduce-scattered to the weight's owner, all-reduced among several owners."""
    over = _sharded_over(one)
    for name, count, elements, apart in _layer_weights(one):
        nbytes = elements * width("bf16")
        what = f"gradients of a {name}"
        if one.size(*one.sharded) > 1:
            scattered = network.reduce_scatter(nbytes, over)
            yield Transfer("fsdp", what, count * one.microbatches, scattered, True)
        whole = _whole_over(one, apart)
        if whole:
            share = nbytes / one.size(*one.sharded)
            yield Transfer("data", what, count, network.all_reduce(share, whole), True)


def _widths(one: TrainingSetting) -> Iterator[Transfer]:
    """Activations around each block of a layer, if its widths are split.

    Sharded between blocks, gathered before and scattered after: V. Korthikanti et al., figure 5.
    """
    if one.size("tensor") == 1:
        return
    sums = one.model.sums / one.size("pipeline")
    tokens = one.group_tokens / one.microbatches
    nbytes = tokens * one.model.d_model * width("bf16")
    again = 1 if {"qkv", "up"} & set(one.recompute) else 0
    passes = sums * one.microbatches
    over = one.mesh["tensor"]
    gathered, scattered = network.all_gather(nbytes, over), network.reduce_scatter(nbytes, over)
    yield Transfer("tensor", "activations gathered", (2 + again) * passes, gathered, False)
    yield Transfer("tensor", "sums scattered", 2 * passes, scattered, False)


def _experts(one: TrainingSetting) -> Iterator[Transfer]:
    """Tokens to their experts and back, in both passes.

    Between hosts a token goes once to each that has some of its experts, and on from there, as in
    DeepSeek-V3 (arXiv:2412.19437, section 3.2.2); within one network once to each expert.
    """
    if one.size("expert") == 1 or not one.model.experts:
        return
    layers = one.model.expert_layers / one.size("pipeline")
    over, active = one.mesh["expert"], one.model.experts.active
    sent = one.group_tokens / one.microbatches * one.model.d_model
    again = 1 if "up" in one.recompute else 0
    count = (4 + again) * layers * one.microbatches
    narrow = sent * min(width("bf16"), width(one.dtype))
    least = network.collectives.copies(narrow, active, over)
    what = "tokens to experts and back"
    if len({axis.network for axis in over}) > 1:
        copies = network.collectives.copies(sent * width("bf16"), active, over)
        for moved, must in zip(copies, least, strict=True):
            yield Transfer("expert", what, count, moved, False, (must,))
    else:
        moved = network.all_to_all(sent * active * width("bf16") * one.size("expert"), over)
        yield Transfer("expert", what, count, moved, False, least)


def _positions(one: TrainingSetting) -> Iterator[Transfer]:
    """Keys and values of the other positions, and their gradients."""
    if one.size("context") == 1:
        return
    layers = one.model.layers / one.size("pipeline")
    tokens = one.group_tokens * one.size("context") / one.microbatches
    nbytes = tokens * one.model.cache_width / one.size("tensor") * width("bf16")
    over = one.mesh["context"]
    count = layers * one.microbatches
    gathered, scattered = network.all_gather(nbytes, over), network.reduce_scatter(nbytes, over)
    yield Transfer("context", "keys and values", 2 * count, gathered, True)
    yield Transfer("context", "gradients of keys and values", count, scattered, True)


def _stages(one: TrainingSetting) -> Iterator[Transfer]:
    """Activations to the next stage, and gradients back."""
    if one.size("pipeline") == 1:
        return
    tokens = one.group_tokens / one.microbatches
    nbytes = tokens * one.model.d_model * width("bf16") / one.size("tensor")
    # stages wind through the axes and wait for the slowest hop; the first and last send one way
    # only
    hops = [network.permute(nbytes, axis) for axis in one.mesh["pipeline"]]
    slowest = max(hops, key=lambda hop: hop.seconds)
    least = min(
        (network.permute(nbytes / 2, axis) for axis in one.mesh["pipeline"]),
        key=lambda hop: hop.transfer,
    )
    count = 2 * one.microbatches * one.interleave
    yield Transfer("pipeline", "activations to the next stage", count, slowest, True, (least,))
