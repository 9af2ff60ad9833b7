"""What mlsysim predicts of the published training steps, so that it can be held against them too.

    pip install mlsysim==0.3.0        in an environment of its own, with NumPy 2
    python -m tools.evidence.mlsysim  write roofline_helpers/data/evidence/mlsysim.json

Its `DistributedModel` is called as it is, with its own defaults: half of the peak, no overlap. It
is given this package's published rates of the chip and its links, and of the recipe what it takes:
model, batch, sequence, type, the split, whether most of the forward pass is computed again. A slice
of TPUs is one node to it. A split over positions it doesn't have: such rows stay empty.

Source: V. Janapa Reddi, mlsysbook.ai/mlsysim, version 0.3.0.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
from typing import Any

from roofline_helpers import validation
from roofline_helpers.validation import PublishedStep
from tools.evidence import keep


def mlsysim(name: str) -> Any:
    """Return a module of mlsysim, which this project's environment doesn't have."""
    return importlib.import_module(f"mlsysim.{name}")


def hardware(one: PublishedStep) -> Any:
    """Return the chip as mlsysim describes chips: published figures of this package."""
    types = mlsysim("hardware.types")
    chip = one.place.chip
    whole = one.place.members / one.place.chips  # of v7x, members are its two devices
    hbm = chip.memory["hbm"]
    dtype = "fp8" if one.dtype == "fp8" else "bf16"
    peak = f"{chip.peak(one.dtype).value * whole / 1e12} TFLOPs/s"
    return types.HardwareNode(
        name=chip.name,
        release_year=2024,
        compute=types.ComputeCore(peak_flops=peak, precision_flops={dtype: peak}),
        memory=types.MemoryHierarchy(
            capacity=f"{hbm.capacity.value * whole / 1e9} GB",
            bandwidth=f"{chip.roofline(chip.half).bandwidth * whole / 1e9} GB/s",
        ),
    )


def fleet(one: PublishedStep) -> Any:
    """Return the machines: slices of TPUs or hosts of GPUs, and what joins them."""
    types = mlsysim("systems.types")
    place = one.place
    whole = place.members / place.chips
    inside = math.prod(axis.size for axis in place.fast)
    links = {axis.network: float(place.chip.links[axis.network]) for axis in place.axes[:1]}
    outer = [axis for axis in place.axes if axis.network in ("dcn", "nic")]
    rate = outer[0].protocols[0].rate if outer else links[place.axes[0].network]
    node = types.Node(
        name=place.chip.name,
        accelerator=hardware(one),
        accelerators_per_node=inside,
        intra_node_bw=f"{links[place.axes[0].network] * whole / 1e9} GB/s",
    )
    fabric = types.NetworkFabric(name="outer", bandwidth=f"{rate * whole / 1e9} GB/s")
    count = place.chips // inside
    return types.Fleet(name="recipe", node=node, count=count, fabric=fabric)


def workload(one: PublishedStep) -> Any:
    """Return the model as mlsysim describes models."""
    types = mlsysim("models.types")
    model = one.model
    widths: dict[str, Any] = {
        "name": model.name,
        "architecture": "Transformer",
        "parameters": f"{model.parameters} count",
        "layers": model.layers,
        "hidden_dim": model.d_model,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
    }
    if not model.experts:
        return types.TransformerWorkload(**widths)
    return types.SparseTransformerWorkload(
        **widths,
        active_parameters=f"{model.active_parameters} count",
        experts=model.experts.count,
        active_experts_per_token=model.experts.active,
    )


def seconds(one: PublishedStep) -> float | None:
    """Return mlsysim's seconds of a step; None where it has no such split."""
    setting = one.published.setting
    if setting.size("context") > 1:
        return None
    solver = mlsysim("engine.solvers.distributed").DistributedModel()
    prediction = solver.solve(
        workload(one),
        fleet(one),
        batch_size=one.batch,
        seq_len=one.seq,
        precision=one.dtype if one.dtype in ("fp8", "int8") else "bf16",
        tp_size=setting.size("tensor"),
        pp_size=setting.size("pipeline"),
        ep_size=setting.size("expert"),
        microbatch_count=setting.microbatches,
        v_stages=setting.interleave,
        zero_stage=3 if setting.size("fsdp") > 1 else 0,
        activation_recomputation={"qkv", "up"} <= set(setting.recompute),
    )
    return float(prediction.step_latency_total.m_as("s"))


if __name__ == "__main__":
    steps = [step for step in validation.steps() if isinstance(step, PublishedStep)]
    predicted = {step.key: value for step in steps if (value := seconds(step)) is not None}
    version = importlib.metadata.version("mlsysim")
    command = "python -m tools.evidence.mlsysim"
    keep("mlsysim", {"command": command, "version": version, "seconds": predicted})
