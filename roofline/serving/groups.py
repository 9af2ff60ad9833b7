"""The kernels of a step on a mesh, by kind: matmuls, attention, states, without norms and
residuals.
"""

from __future__ import annotations

from roofline.serving.operations import Job
from roofline.serving.setting import ServingSetting
from roofline_helpers.common.dtypes import computed_as, width
from roofline_helpers.work import Work


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
