"""Bytes that a device needs for a serving step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from roofline.serving.operations import jobs, stored
from roofline.serving.setting import ServingSetting
from roofline_helpers.common.dtypes import width
from roofline_helpers.work import Work


@dataclass(frozen=True)
class ServingMemory:
    """Bytes of one device: what a step needs at once, and what there is.

    `activations` is the peak of live bytes during any kernel: those that it reads and writes, and
    those that a later kernel needs; on a topology they are left out. `reserve` is the runtime's.

    Examples
    --------
    >>> from roofline.serving import step
    >>> memory = step("llama-3-8b", "h100", batch=64, context=2048).memory
    >>> memory.fits, round(memory.total / 1e9)
    (True, 33)
    """

    weights: float
    cache: float
    activations: int
    capacity: float
    reserve: float = 0.0

    @property
    def per_batch(self) -> float:
        """Bytes that are proportional to the batch."""
        return self.cache + self.activations

    @property
    def total(self) -> float:
        """Bytes needed."""
        return self.weights + self.per_batch

    @property
    def for_sequences(self) -> float:
        """Bytes that weights and the runtime leave; negative: bytes missing."""
        return self.capacity - self.reserve - self.weights

    @property
    def room(self) -> float:
        """Bytes left over; negative: bytes missing."""
        return self.for_sequences - self.per_batch

    @property
    def fits(self) -> bool:
        """Whether the device has that much."""
        return self.room >= 0


def footprint(s: ServingSetting) -> ServingMemory:
    """Return the memory of each device."""
    capacity = s.chip.memory["hbm"].capacity.value
    if s.by_kernel:
        weights: float = s.share.weights_bytes(s.weights, s.vocabulary)
        traveling = jobs(replace(s, resident=False))  # none of it stays on the chip
        alive = _peak_live_bytes([job.work for job in traveling])
    else:
        weights, alive = _weights_on_mesh(s), 0
    return ServingMemory(weights, s.cache_bytes, alive, capacity, s.reserve * capacity)


def _weights_on_mesh(s: ServingSetting) -> float:
    """Return the bytes of weights, without those of the norms."""
    model = s.model
    experts = model.expert_layers * model.expert_parameters() / s.size("expert")
    total = model.mixing * width(s.projections) + model.dense * width(s.weights)
    total += experts * width(s.experts) + model.vocabulary_parameters * width(s.vocabulary)
    return total / s.widths


def _peak_live_bytes(works: list[Work]) -> int:
    """Return the most bytes of activations that are alive during one of the kernels."""
    nbytes: dict[str, int] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, work in enumerate(works):
        for tensor, size in [*work.reads.items(), *work.writes.items()]:
            if not stored(tensor):
                nbytes[tensor] = max(int(size), nbytes.get(tensor, 0))
                first.setdefault(tensor, number)
                last[tensor] = number
    return max(
        sum(size for tensor, size in nbytes.items() if first[tensor] <= number <= last[tensor])
        for number in range(len(works))
    )
