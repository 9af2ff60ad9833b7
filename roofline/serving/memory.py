"""Bytes that a device needs for a serving step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from roofline.serving.layer import stored, weight
from roofline.serving.operations import fused, operations
from roofline.serving.setting import ServingSetting, Sizes
from roofline_helpers.work import Work

EVERY = 10**6
"""Tokens that choose every expert."""


@dataclass(frozen=True)
class ServingMemory:
    """Bytes of one device: what a step needs at once, and what there is.

    `activations` is the peak of live bytes during any kernel: those that it reads and writes, and
    those that a later kernel needs. `reserve` is the runtime's.

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
    alive = max(_peak_live_bytes([job.work for job in kind]) for kind in fused(s.sizes))
    return ServingMemory(
        _weights(s.sizes, s.model.tied), s.cache_bytes, alive, capacity, s.reserve * capacity
    )


@lru_cache(maxsize=1024)
def _weights(sizes: Sizes, tied: bool) -> int:
    """Return the bytes of weights: what the operations of all layers read, and every expert."""
    alone = sizes._replace(tokens=1, ends=1, sequences=1, new=1, prefill=False, grouped="")
    alone = alone._replace(routed=EVERY, activations=sizes.half)
    nbytes, ends = 0.0, {"W head": 0.0, "γ": 0.0}
    for block, layers in sizes.model.kinds.items():
        ops = operations(alone, block)
        read = {t: float(n) for op in ops.values() for t, n in op.reads.items() if weight(t)}
        ends = {name: read[name] for name in ends}
        del read["W embedding, rows"]
        nbytes += layers * (sum(read.values()) - sum(ends.values()))
    return int(nbytes + sum(ends.values()) + (0 if tied else ends["W head"]))


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
