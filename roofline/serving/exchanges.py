"""The exchanges between the devices of a mesh in a serving step.

"tensor", "context" and "batch" together split every matrix, and the cache by KV heads, by positions
and by sequences. Experts are split over "expert", which splits the sequences of everything else;
"data" are whole replicas.

Sources: R. Pope et al., "Efficiently Scaling Transformer Inference", arXiv:2211.05102, section 3.3
(the cache split by sequences); N. Bhatia et al., "Helix Parallelism", arXiv:2507.07120 (by
positions); jax-ml/scaling-book, "All about Transformer inference"; DeepSeek-AI, arXiv:2412.19437,
section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator

from roofline import network
from roofline.network.collectives import Transfer
from roofline.serving.setting import ROLES, ServingSetting
from roofline_helpers.common.dtypes import width


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
        sent = model.experts.inner or model.d_model
        routed = s.tokens / s.size("data", "expert") * sent / s.widths
        active, over = model.experts.active, s.mesh["expert"]
        moved = network.all_to_all(2 * routed * active * s.size("expert"), over)
        least = network.collectives.copies(routed * min(2.0, width(s.activations)), active, over)
        purpose, count = "tokens to experts and back", 2 * model.expert_layers
        yield Transfer("expert", purpose, count, moved, least=least)


def _of_caches(s: ServingSetting) -> Iterator[Transfer]:
    """Yield the exchanges that follow from splitting the cache differently from the matrices."""
    layers, tokens = s.cached_layers, s.group_tokens / s.size("tensor")
    if not layers:
        return
    cached = s.model.mixers(lambda mixer: mixer.cache_width) / layers
    by_batch, by_position = (s.mesh.get(role, ()) for role in ("batch", "context"))
    if s.phase == "prefill":
        if s.size("batch", "context") > 1:
            nbytes = tokens * cached * width(s.cache)
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
