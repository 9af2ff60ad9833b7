"""A step's matmuls as kernels, each with the time of similar measured kernels."""

from __future__ import annotations

from collections.abc import Mapping

from roofline.network.measured import SAME_GPU
from roofline.training import mixture
from roofline.training.setting import TrainingSetting
from roofline_helpers import measured, work
from roofline_helpers.chips import Chip
from roofline_helpers.measured.laws import Law, law_of, least_times
from roofline_helpers.measured.tables import dtype_in_tables, summed_length
from roofline_helpers.work import Work


def has_laws(chip: Chip, dtype: str) -> bool:
    """Return whether a chip's matmuls in this type and its attention have laws."""
    jobs = work.matmul(1, 1, 1, dtype), work.flash_attention(1, 1, 1, 1, 1, causal=True)
    return all(law_of(job, _measured(chip)) for job in jobs)


def matmul_seconds(setting: TrainingSetting, forward: Mapping[str, float], flops: float) -> float:
    """Return the seconds of all matmuls on one device, without the pipeline bubble.

    Parameters
    ----------
    setting : TrainingSetting
        On a chip that `has_laws`.
    forward : mapping of str to float
        FLOPs of one forward pass by matmul.
    flops : float
        FLOPs of the whole step. The rest, beyond these matmuls, is the LM head.

    Each matmul runs at the rate of its forward kernel: its backward ones have the same sides.
    """
    model, chip, split = setting.model, setting.topology.chip, setting.size("tensor")
    tokens, width = setting.microbatch_tokens, model.d_model
    inner = model.mixers(lambda mixer: mixer.output) / model.layers / width
    ups = 2 if model.gated else 1
    sides = {
        "qkv": ((model.attention_parameters - inner * width) / width / split, width),
        "output": (width, inner / split),
        "up": (ups * model.d_ff / split, width),
        "down": (width, model.d_ff / split),
    }
    rows = max(1, round(tokens))
    sequences = max(1, round(tokens / setting.seq))
    attention = work.flash_attention(
        sequences,
        setting.seq,
        heads=max(1, model.heads // split),
        head_dim=model.head_dim,
        kv_heads=max(1, model.kv_heads // split),
        causal=True,
    )
    passes = {name: setting.passes(name) for name in forward}
    rest = flops - sum(forward[name] * passes[name] for name in forward)
    head = work.matmul(rows, max(1, model.vocabulary // split), width, chip.half)
    seconds = rest * _per_flop(head, chip)
    # attention has five matmuls backward and two forward
    seconds += forward["attention"] * (passes["attention"] + 1 / 2) * _per_flop(attention, chip)
    for name, (n, k) in sides.items():
        routed = mixture.routed(setting, name) if model.experts and name in ("up", "down") else 0.0
        job = work.matmul(rows, round(n), round(k), setting.dtype, b=setting.dtype, out=chip.half)
        seconds += (forward[name] - routed) * passes[name] * _per_flop(job, chip)
        if routed:
            seconds += routed * passes[name] * _per_flop_of_experts(setting, rows)
    return seconds / setting.topology.members


def _per_flop_of_experts(setting: TrainingSetting, rows: int) -> float:
    """Return the seconds per FLOP of a grouped matmul, by the faster of the ways to scale fp8."""
    experts, spread, chip = setting.model.experts, setting.size("expert"), setting.topology.chip
    assert experts
    job = work.grouped_matmul(
        rows * spread,
        setting.model.d_model,
        experts.d_ff,
        experts.count,
        experts.active,
        setting.dtype,
        local_experts=experts.count // spread,
    )
    types = ("fp8", "fp8 in blocks") if setting.dtype == "fp8" else (dtype_in_tables(job),)
    return min(
        _per_flop(job, chip, measured.law(job.kind, _measured(chip), dtype)) for dtype in types
    )


def _per_flop(job: Work, chip: Chip, law: Law | None = None) -> float:
    law = law or law_of(job, _measured(chip))
    assert law is not None
    return float(law.time(*least_times(job, chip), summed_length(job)) / job.matrix_flops)


def _measured(chip: Chip) -> str:
    return SAME_GPU.get(chip.key, chip.key)
