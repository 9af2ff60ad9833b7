"""A step's matmuls as kernels, each with the time of similar measured kernels."""

from __future__ import annotations

from collections.abc import Mapping

from roofline.network.measured import SAME_GPU
from roofline.training import mixture
from roofline.training.setting import TrainingSetting
from roofline_helpers import work
from roofline_helpers.chips import Chip
from roofline_helpers.measured import laws
from roofline_helpers.measured.law import Law, least
from roofline_helpers.measured.tables import reduced
from roofline_helpers.measured.typical import dtype_in_tables, law_of
from roofline_helpers.work import Work


def known(chip: Chip, dtype: str) -> bool:
    """Return whether a chip's matmuls in this type and its attention have laws."""
    jobs = work.matmul(1, 1, 1, dtype), work.flash_attention(1, 1, 1, 1, 1, causal=True)
    return all(law_of(job, _measured(chip)) for job in jobs)


def compute(one: TrainingSetting, forward: Mapping[str, float], flops: float) -> float:
    """Return the seconds of all matmuls on one device, without the pipeline bubble.

    Parameters
    ----------
    one : TrainingSetting
        On a chip whose laws are `known`.
    forward : mapping of str to float
        FLOPs of one forward pass by matmul.
    flops : float
        FLOPs of the whole step. The rest, beyond these matmuls, is the LM head.

    Each matmul runs at the rate of its forward kernel: its backward ones have the same sides.
    """
    model, chip, split = one.model, one.place.chip, one.size("tensor")
    tokens, width = one.group_tokens / one.microbatches, model.d_model
    inner = model.mixers(lambda mixer: mixer.output) / model.layers / width
    ups = 2 if model.gated else 1
    sides = {
        "qkv": ((model.attention_parameters - inner * width) / width / split, width),
        "output": (width, inner / split),
        "up": (ups * model.d_ff / split, width),
        "down": (width, model.d_ff / split),
    }
    rows = max(1, round(tokens))
    sequences = max(1, round(tokens / one.seq))
    heads = [max(1, each // split) for each in (model.heads, model.kv_heads)]
    attention = work.flash_attention(
        sequences, one.seq, one.seq, heads[0], model.head_dim, heads[1], causal=True
    )
    again = {name: 3 + (name in one.recompute) for name in forward}
    rest = flops - sum(forward[name] * again[name] for name in forward)
    head = work.matmul(rows, max(1, model.vocabulary // split), width, chip.half)
    seconds = rest * _per_flop(head, chip)
    # attention has five matmuls backward and two forward
    seconds += forward["attention"] * (again["attention"] + 1 / 2) * _per_flop(attention, chip)
    for name, (n, k) in sides.items():
        routed = mixture.routed(one, name) if model.experts and name in ("up", "down") else 0.0
        job = work.matmul(rows, round(n), round(k), one.dtype, b=one.dtype, out=chip.half)
        seconds += (forward[name] - routed) * again[name] * _per_flop(job, chip)
        if routed:
            seconds += routed * again[name] * _of_experts(one, rows)
    return seconds / one.place.members


def _of_experts(one: TrainingSetting, rows: int) -> float:
    """Return the seconds per FLOP of a grouped matmul, by the faster of the ways to scale fp8."""
    of, spread, chip = one.model.experts, one.size("expert"), one.place.chip
    assert of is not None
    job = work.grouped_matmul(
        rows * spread,
        one.model.d_model,
        of.d_ff,
        of.count,
        of.active,
        one.dtype,
        local_experts=of.count // spread,
    )
    ways = ("fp8", "fp8 in blocks") if one.dtype == "fp8" else (dtype_in_tables(job),)
    return min(_per_flop(job, chip, laws(job.kind, _measured(chip), way)) for way in ways)


def _per_flop(job: Work, chip: Chip, law: Law | None = None) -> float:
    law = law or law_of(job, _measured(chip))
    assert law is not None
    return float(law.time(*least(job, chip), reduced(job)) / job.matrix_flops)


def _measured(chip: Chip) -> str:
    return SAME_GPU.get(chip.key, chip.key)
