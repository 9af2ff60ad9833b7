"""The exchanges between the devices of a mesh in a serving step.

"tensor", "context" and "batch" together split every matrix, and the cache by KV heads, by positions
and by sequences. Experts are split over "expert", which splits the sequences of everything else;
"data" are whole replicas.

A server's sizes in these words: ``tp_size`` is "tensor", ``attention_dp_size`` "expert", and
``moe_tp_size`` `expert_widths`; ``moe_ep_size`` follows, since tensor · expert = moe_tp · moe_ep.
Whole experts on the devices of one tensor-parallel group need no exchange but the sum that the
group takes in any case.

Sources: R. Pope et al., "Efficiently Scaling Transformer Inference", arXiv:2211.05102, section 3.3
(the cache split by sequences); N. Bhatia et al., "Helix Parallelism", arXiv:2507.07120 (by
positions); jax-ml/scaling-book, "All about Transformer inference"; DeepSeek-AI, arXiv:2412.19437,
section 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from roofline import network
from roofline.network.collectives import Transfer
from roofline.network.measured import expert_exchange
from roofline.serving.setting import ROLES, ServingSetting
from roofline_helpers.common.dtypes import width as dtype_width
from roofline_helpers.models.layers import Experts


def exchanges(s: ServingSetting) -> Iterator[Transfer]:
    """Yield the exchanges between devices.

    At the very least, a token is sent once to each device that holds any of its experts, and once
    to their host.
    """
    model = s.model
    if s.widths > 1:
        roles = reversed(ROLES[2:])
        split = [axis for role in roles for axis in s.mesh.get(role, ())]
        nbytes = s.group_tokens * model.d_model * 2
        summed = network.all_reduce(nbytes, split, algorithm="custom")
        yield Transfer("width", "sums of attention and feed-forward", model.sums, summed)
    yield from _of_caches(s)
    if s.size("expert") > 1 and model.experts:
        yield from _of_experts(s, model.experts)


def _of_experts(s: ServingSetting, experts: Experts) -> Iterator[Transfer]:
    """Yield the exchanges of the devices that share experts, but not each other's sequences."""
    width, count = experts.inner or s.model.d_model, s.model.expert_layers
    over = s.mesh["expert"]
    if s.expert_widths > s.widths:  # each computes a part of the width, for the tokens of others
        nbytes = 2 * s.sequences("data") * s.new_tokens * width
        yield Transfer("expert", "all tokens to all", count, network.all_gather(nbytes, over))
        yield Transfer("expert", "sums back", count, network.reduce_scatter(nbytes, over))
        return
    routed = s.tokens / s.size("data", "expert") * width / s.widths
    if s.expert_widths < s.widths:  # also to the devices that share every other matrix
        over = (*over, *(axis for role in ROLES[2:] for axis in s.mesh.get(role, ())))
    members = math.prod(axis.size for axis in over)
    moved = network.all_to_all(2 * routed * experts.active * members, over)
    element = min(2.0, dtype_width(s.activations))
    if s.law and s.expert_groups == members and len(moved.phases) == 1:
        sizes = (members, s.group_tokens / s.widths, width, experts.active, element)
        took = [expert_exchange(op, s.chip, *sizes) for op in ("dispatch", "combine")]
        if None not in took:  # the mean of both
            phase = replace(moved.phases[0], algorithm="measured", transfer=0.0)
            moved = replace(moved, phases=(replace(phase, latency=sum(filter(None, took)) / 2),))
    sent = routed * element
    least = network.collectives.copies(sent, experts.active, over)
    yield Transfer("expert", "tokens to experts and back", 2 * count, moved, least=least)


def _of_caches(s: ServingSetting) -> Iterator[Transfer]:
    """Yield the exchanges that follow from splitting the cache differently from the matrices."""
    layers, tokens = s.cached_layers, s.group_tokens / s.size("tensor")
    if not layers:
        return
    cached = s.model.mixers(lambda mixer: mixer.cache_width) / layers
    by_batch, by_position = (s.mesh.get(role, ()) for role in ("batch", "context"))
    if s.phase == "prefill":
        if s.size("batch", "context") > 1:
            nbytes = tokens * cached * dtype_width(s.cache)
            moved = network.all_to_all(nbytes, (*by_position, *by_batch))
            yield Transfer("context", "new keys and values to their place", layers, moved)
        return
    if s.size("batch") > 1:
        nbytes = tokens * (s.attended + cached) / s.size("context")  # two each, half of them a way
        moved = network.all_to_all(nbytes, by_batch)
        yield Transfer("batch", "queries to their sequence's cache and back", 2 * layers, moved)
    if s.size("context") > 1:
        # queries are gathered, partial results are scattered with their maximum and sum
        elements = s.attended / 2 + 2 * s.model.heads
        moved = network.all_reduce(tokens / s.size("batch") * elements * 2, by_position)
        yield Transfer("context", "parts of attention", layers, moved)
