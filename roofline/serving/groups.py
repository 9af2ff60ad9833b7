"""A step on a mesh: groups of kernels of one device, and its exchanges.

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
from roofline.serving.operations import Job
from roofline.serving.setting import ROLES, ServingSetting
from roofline_helpers.common.dtypes import computed_as, width
from roofline_helpers.work import Work

# --- kernels --------------------------------------------------------------------------------------


def groups(s: ServingSetting) -> list[Job]:
    """Return the kernels of one device by kind, all layers together."""
    model, tokens = s.model, s.group_tokens
    mixing, dense = model.mixing / s.widths, model.dense / s.widths
    jobs = [_matmuls(s, "attention's projections", s.projections, mixing, tokens), _attention(s)]
    if model.state_bytes:
        jobs.append(_states(s))
    if dense:
        jobs.append(_matmuls(s, "feed-forward", s.weights, dense, tokens))
    if model.experts:
        used = model.expert_layers * model.expert_parameters(active=True) / s.widths
        chosen = s.tokens / s.size("data", "expert")
        jobs.append(_matmuls(s, "experts", s.experts, used, chosen, _experts_read(s)))
    ends = tokens if s.phase == "decode" else s.sequences("data", "expert")
    flops = 2 * model.vocabulary * model.d_model / s.widths * ends
    read = model.vocabulary * model.d_model / s.widths * width(s.vocabulary)
    jobs.append(_group("vocabulary", "W", read, flops, s.half))
    return jobs


def _matmuls(
    s: ServingSetting, name: str, dtype: str, used: float, tokens: float, read: float | None = None
) -> Job:
    """Return matmuls of tokens with `used` weights each; `read` weights are read from memory.

    They compute in the type of the activations if `dtype`, the weights' type, is the same.
    """
    nbytes = (used if read is None else read) * width(dtype)
    narrow = computed_as(dtype) == computed_as(s.activations)
    return _group(name, "W", nbytes, 2 * used * tokens, s.activations if narrow else s.half)


def _attention(s: ServingSetting) -> Job:
    model = s.model
    if s.phase == "prefill":  # each device has heads of its own, all positions of them
        flops = s.sequences("data", "expert") * model.attention_flops(s.context) / s.widths
    else:
        tokens = s.sequences("data", "expert", "batch") * s.new
        products = model.mixers(lambda mixer: mixer.next_products(s.context))
        flops = 2 * tokens * products / s.size("tensor", "context")
    return _group("attention", "KV cache", s.cache_read, flops, s.half)


def _states(s: ServingSetting) -> Job:
    """Return the update of all states: each is read and written once a step."""
    tokens = s.sequences("data", "expert", "batch") * s.new
    flops = tokens * s.model.mixers(lambda mixer: mixer.flops) / s.size("tensor")
    moved = {"states": s.state_bytes}
    return Job(("states",), 1, Work("states", moved, moved, vector_flops=flops, dtype=s.half))


def _group(name: str, tensor: str, nbytes: float, flops: float, dtype: str) -> Job:
    return Job((name,), 1, Work(name, {tensor: nbytes}, {}, matrix_flops=flops, dtype=dtype))


def _experts_read(s: ServingSetting) -> float:
    """Return the experts' elements that a step reads on one device: those that any token uses."""
    experts = s.model.experts
    assert experts
    hit = experts.count * experts.chosen_by(s.sequences("data") * s.new_tokens)
    d_model = s.model.d_model
    read = hit * experts.expert(d_model) + experts.always(d_model)
    return s.model.expert_layers * read / s.widths / s.size("expert")


# --- exchanges ------------------------------------------------------------------------------------


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
