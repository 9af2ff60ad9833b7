"""Bytes that a device needs for a training step."""

from __future__ import annotations

from dataclasses import dataclass

from roofline.training.setting import TrainingSetting
from roofline_helpers.common.dtypes import width
from roofline_helpers.models import Decoder

GRADIENTS = "fp32"
"""The type in which gradients are kept."""


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes of one device: weights, gradients, the optimiser's moments, saved activations.

    Left out: a layer's working set, gathered weights in flight, the runtime's own. `replicas` are
    devices that hold the same weights.

    Examples
    --------
    >>> TrainingMemory(weights=4e9, gradients=4e9, moments=8e9, activations=2e9, capacity=32e9).fits
    True
    """

    weights: float
    gradients: float
    moments: float
    activations: float
    capacity: float
    replicas: int = 1

    @property
    def total(self) -> float:
        """Bytes needed."""
        return self.weights + self.gradients + self.moments + self.activations

    @property
    def fits(self) -> bool:
        """Whether a device has enough memory."""
        return self.total <= self.capacity

    @property
    def unless(self) -> str:
        """What would make it fit if it doesn't, as recipes do it; empty if it fits or can't.

        Published runs fit that this count says don't: their optimiser splits gradients and moments
        over the replicas too, or activations wait in the host's memory.
        """
        split, saved = (self.gradients + self.moments) * (1 - 1 / self.replicas), self.activations
        changes = {
            "": 0.0,
            "gradients and moments are split over the replicas too": split,
            "activations wait in the host's memory, or more of them are recomputed": saved,
            "both are moved: moments split over replicas, activations to the host": split + saved,
        }
        fitting = (how for how, less in changes.items() if self.total - less <= self.capacity)
        return next(fitting, "")


def footprint(setting: TrainingSetting) -> TrainingMemory:
    """Return the memory of each device."""
    held = parameters_held(setting)
    return TrainingMemory(
        weights=held * width(setting.weights),
        gradients=held * width(GRADIENTS),
        moments=2 * held * width(setting.moments),
        activations=saved_elements(setting) * width("bf16"),
        capacity=setting.topology.chip.memory["hbm"].capacity.value,
        replicas=setting.size("data"),
    )


def parameters_held(setting: TrainingSetting) -> float:
    """Return the number of weights on one device."""
    model = setting.model
    shared = setting.size(*setting.sharded, "tensor", "pipeline")
    experts = model.expert_layers * model.expert_parameters()
    others = model.parameters - experts
    return (others + experts / setting.size("expert")) / shared


def saved_elements(setting: TrainingSetting) -> float:
    """Return the elements saved for the backward pass, on one device.

    A layer's input always; its matmuls' results unless they are recomputed.
    """
    model = setting.model
    per_token = model.d_model + sum(
        elements for name, elements in kept_widths(model).items() if name not in setting.recompute
    )
    layers = model.layers / setting.size("pipeline")
    in_flight = min(setting.microbatches, setting.size("pipeline")) / setting.microbatches
    return per_token * layers * setting.group_tokens / setting.size("tensor") * in_flight


def kept_widths(model: Decoder) -> dict[str, float]:
    """Return the elements per token that each matmul of a layer saves for the backward pass."""
    qkv = model.mixers(lambda mixer: mixer.made) / model.layers
    values = model.mixers(lambda mixer: mixer.output) / model.layers / model.d_model
    up = (3 if model.gated else 2) * model.feeds(lambda feed: feed.hidden) / model.layers
    return {"qkv": qkv + model.d_model, "attention": values, "output": model.d_model, "up": up}
