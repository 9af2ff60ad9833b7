"""What came out of one case."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from roofline_helpers.measure.timing import Timing
from roofline_helpers.records import Natural, Positive

CEILINGS = ("memory", "levels", "compute", "vector")
"""Groups that are ceilings; the samples of all others are kernels."""

OURS = ("jax", "pallas")
"""Sources whose samples make the ceilings: what JAX reaches by itself."""


@dataclass(frozen=True)
class Sample:
    """What came out of one case: a summary of each pass over it.

    Parameters
    ----------
    name, group, source, dtype : str
        As in `Case`; the data type is that of its work.
    flops, matrix_flops, bytes : float
        Of one call, counted by hand.
    passes : tuple of Timing
        One a pass; empty where it could not be measured.
    xla_bytes : float, optional
        Bytes accessed, as XLA counts them for the compiled program.
    counters : mapping, optional
        Hardware counters: "dram_read", "dram_written" (bytes of one call), "kernels".
    state : mapping, optional
        The device's state while it was busy: "clock" (Hz), "power" (W), "throttle" …
    notes : tuple of str
        What to know about it.
    error : str, optional
        Why it could not be measured.
    runs : tuple of float
        Median of each run, in seconds, where several processes measured it (`combine`).
    date : str, optional
        When it was measured, where that isn't the record's date (`merge`).
    network : float, optional
        Bytes that each device sends to others in one call, counted by hand.

    Examples
    --------
    >>> from roofline_helpers.measure import measured
    >>> sample = measured()["h200"].sample("matmul 4096×4096×4096 bf16")
    >>> sample.dtype, f"{sample.rate / 1e12:.0f} TFLOP/s"
    ('bf16', '661 TFLOP/s')
    """

    name: str
    group: str
    source: str
    dtype: str
    flops: Natural
    matrix_flops: Natural
    bytes: Positive
    passes: tuple[Timing, ...] = ()
    xla_bytes: Natural | None = None
    counters: Mapping[str, Natural] | None = None
    state: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    error: str | None = None
    runs: tuple[Positive, ...] = ()
    date: str | None = None
    network: Natural | None = None

    @property
    def seconds(self) -> float:
        """Median over the passes, in seconds a call; NaN where it could not be measured."""
        return statistics.median(t.median for t in self.passes) if self.passes else math.nan

    @property
    def spread(self) -> float:
        """Largest minus smallest median of the passes, over their median; 0 for a single pass."""
        medians = [timing.median for timing in self.passes]
        return (max(medians) - min(medians)) / self.seconds if medians else math.nan

    @property
    def between(self) -> float:
        """Largest minus smallest median of the runs, over their median; NaN for a single run."""
        if len(self.runs) < 2:
            return math.nan
        return (max(self.runs) - min(self.runs)) / statistics.median(self.runs)

    @property
    def rate(self) -> float:
        """FLOP/s achieved."""
        return self.flops / self.seconds

    @property
    def bandwidth(self) -> float:
        """Byte/s achieved, over the bytes counted by hand."""
        return self.bytes / self.seconds

    @property
    def link_bandwidth(self) -> float:
        """Byte/s that each device sent, over the bytes counted by hand; NaN where none are."""
        return (self.network or math.nan) / self.seconds

    @property
    def intensity(self) -> float:
        """FLOP/byte, counted by hand."""
        return self.flops / self.bytes

    @property
    def dram_bytes(self) -> float:
        """Bytes of one call that crossed DRAM, by hardware counters; NaN where none were read."""
        counted = self.counters or {}
        return counted.get("dram_read", math.nan) + counted.get("dram_written", math.nan)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a record holds it."""
        return asdict(self)

    @property
    def remarks(self) -> list[str]:
        """Its notes and those of its passes, each once."""
        passed = (note for timing in self.passes for note in timing.notes)
        return list(dict.fromkeys([*self.notes, *passed]))


def best(samples: Iterable[Sample], group: str) -> dict[str, Sample]:
    """Return the best sample of each stream of "memory", of each data type elsewhere.

    Only those that were measured, from `OURS`, count.
    """
    streams = group == "memory"
    chosen: dict[str, Sample] = {}
    for each in samples:
        if each.group == group and each.source in OURS and each.passes:
            key = re.sub(r" [\d.]+ [KMG]?i?B .*", "", each.name) if streams else each.dtype
            rivals = (chosen.get(key, each), each)
            chosen[key] = max(rivals, key=lambda one: one.bandwidth if streams else one.rate)
    return chosen
