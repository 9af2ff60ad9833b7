"""A step's matmuls as kernels, each with the time of similar measured kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from roofline.network.measured import SAME_GPU
from roofline.training import mixture
from roofline.training.setting import TrainingSetting
from roofline_helpers import work
from roofline_helpers.chips import Chip
from roofline_helpers.common.checks import BadValue
from roofline_helpers.measured.laws import law_of, least_times
from roofline_helpers.measured.tables import count, group, summed_length
from roofline_helpers.work import Work

SAME_RATE = {"mxfp8": "fp8", "fp16": "bf16"}
"""Types without measured matmuls, each with the type that the matrix unit computes as fast. The
times of fp8 have the passes that scale a matmul's input; `TrainingStep.elementwise` has what mxfp8
does besides."""

NEAREST, MANY = 9, 1024
"""Grouped matmuls that are looked at, and the rows of an expert beyond which their rate is about
the same: few were measured with more."""


def has_laws(chip: Chip, dtype: str) -> bool:
    """Return whether a chip's matmuls in this type and its attention have laws."""
    dtype = SAME_RATE.get(dtype, dtype)
    jobs = work.matmul(1, 1, 1, dtype), work.flash_attention(1, 1, 1, 1, 1, causal=True)
    return all(law_of(job, _measured(chip)) for job in jobs)


def matmul_seconds(
    setting: TrainingSetting, forward: Mapping[str, float], flops: float
) -> tuple[float, float]:
    """Return the seconds of the layers' matmuls and of the LM head's on one device.

    Stages of a pipeline have equal shares of both.

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
    dtype = SAME_RATE.get(setting.dtype, setting.dtype)
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
    heads = max(1, model.heads // split)
    if model.mixers(lambda mixer: mixer.kind == "latent attention"):
        attention = work.latent_attention(sequences, setting.seq, setting.seq, heads)
    else:
        attention = work.flash_attention(
            sequences,
            setting.seq,
            heads=heads,
            head_dim=model.head_dim,
            kv_heads=max(1, model.kv_heads // split),
            causal=True,
        )
    passes = {name: setting.passes(name) for name in forward}
    rest = flops - sum(forward[name] * passes[name] for name in forward)
    head = work.matmul(rows, max(1, model.vocabulary // split), width, chip.half)
    # attention has five matmuls backward and two forward
    seconds = forward["attention"] * (passes["attention"] + 1 / 2) * _per_flop(attention, chip)
    for name, (n, k) in sides.items():
        routed = mixture.routed(setting, name) if model.experts and name in ("up", "down") else 0.0
        job = work.matmul(rows, round(n), round(k), dtype, b=dtype, out=chip.half)
        seconds += (forward[name] - routed) * passes[name] * _per_flop(job, chip)
        if routed:
            seconds += routed * passes[name] * setting.imbalance * _per_flop_of_experts(setting)
    members = setting.topology.members
    return seconds / members, rest * _per_flop(head, chip) / members


def _per_flop_of_experts(setting: TrainingSetting) -> float:
    """Return the seconds per FLOP of measured grouped matmuls like the experts', the median.

    They are the `NEAREST` in rows of an expert and in widths, of those with all experts on one GPU:
    where experts are spread, the benchmarks give a GPU the tokens of all, and it passes over more
    rows than it multiplies. The faster of the ways to scale fp8 counts.
    """
    experts, chip = setting.model.experts, _measured(setting.topology.chip)
    assert experts
    rows, inner = min(setting.rows_of_an_expert, MANY), experts.inner or setting.model.d_model
    wanted = np.log([rows, inner, experts.d_ff])
    dtype, medians = SAME_RATE.get(setting.dtype, setting.dtype), []
    for named in ("fp8", "fp8 in blocks") if dtype == "fp8" else (dtype,):
        table = group("grouped_matmul", chip, named)
        here = table["local_experts"] == table["experts"]
        if not here.any():
            continue
        table = {name: values[here] for name, values in table.items()}
        rows = np.minimum(table["tokens"] * table["top_k"] / table["experts"], MANY)
        apart = np.abs(np.log([rows, table["hidden"], table["inter"]]).T - wanted).sum(axis=1)
        per_flop = table["seconds"] / count("grouped_matmul", table, named).matrix_flops
        medians.append(float(np.median(per_flop[apart.argsort(kind="stable")[:NEAREST]])))
    if not medians:
        raise BadValue(f"no grouped matmuls in {dtype} were measured on {chip}: give law=False")
    return min(medians)


def _per_flop(job: Work, chip: Chip) -> float:
    law = law_of(job, _measured(chip))
    assert law is not None
    return float(law.time(*least_times(job, chip), summed_length(job)) / job.matrix_flops)


def _measured(chip: Chip) -> str:
    return SAME_GPU.get(chip.key, chip.key)
