"""A measurement of one device: samples, the file that keeps them, several as one."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import msgspec

from roofline_helpers import chips
from roofline_helpers.common import records
from roofline_helpers.common.checks import name_of
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.records import BadRecord, Count, Natural, Positive
from roofline_helpers.common.show import Fields, si, table
from roofline_helpers.roofline import Roofline

if TYPE_CHECKING:
    import pandas


# --- The device and the clock ------------------------------------------------------------------


class Device(TypedDict):
    """The measured device: `memory` and `cache` in bytes; `chip` where the chip table has it.

    Examples
    --------
    >>> device_records()["h200"].device["platform"]
    'gpu'
    """

    platform: str
    kind: str
    name: str
    chip: NotRequired[str | None]
    count: int
    driver: NotRequired[str | None]
    memory: NotRequired[Natural | None]
    cache: Positive


class Host(TypedDict):
    """The machine that it was measured on.

    Examples
    --------
    >>> device_records()["h200"].host["cores"]
    16
    """

    system: str
    machine: str
    cpu: str
    cores: int
    load: NotRequired[float | None]


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, from repeated samples of many calls each.

    Parameters
    ----------
    median, low, q1, q3, high : float
        Of the samples: the quartiles, and the extremes.
    repeats, calls : int
        Samples, and calls in each.
    compile : float
        Seconds of tracing, compiling and the first call.
    drift : float
        Median of the last third of the samples over that of the first third, minus 1.
    notes : tuple of str
        Reasons to doubt the result.

    Examples
    --------
    >>> timing = device_records()["h200"].samples[0].passes[0]
    >>> timing.low <= timing.q1 <= timing.median <= timing.q3 <= timing.high
    True
    """

    median: Positive
    low: Positive
    q1: Positive
    q3: Positive
    high: Positive
    repeats: Count
    calls: Count
    compile: Natural = 0.0
    drift: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        return (self.q3 - self.q1) / self.median

    def __repr__(self) -> str:
        text = f"{si(self.median, 's')} a call ({si(self.q1, 's')} to {si(self.q3, 's')}, "
        text += f"{self.repeats} samples of {self.calls} calls)"
        return "; ".join([text, *self.notes])


# --- The result of one case -------------------------------------------------------------------

CEILINGS = ("memory", "levels", "compute", "vector")
"""Groups that are ceilings; the samples of all others are kernels."""

OURS = ("jax", "pallas")
"""Sources whose samples set the ceilings: JAX without other libraries."""


@dataclass(frozen=True, repr=False)
class Sample(Fields):
    """The results of one case: a summary of each pass over it.

    Parameters
    ----------
    name, group, source, dtype : str
        As in `roofline.measure.workloads.Case`; the data type is that of its work.
    flops, matrix_flops, bytes : float
        Of one call, counted by hand.
    passes : tuple of Timing
        Empty where it could not be measured; `error` then says why.
    xla_bytes : float, optional
        Bytes accessed, as XLA counts them for the compiled program.
    counters : mapping, optional
        Hardware counters: "dram_read", "dram_written" (bytes of one call), "kernels".
    state : mapping, optional
        The busy device's "clock" (Hz), "power" (W), "throttle" …
    runs : tuple of float
        Median of each run, in seconds, where several processes measured it.
    date : str, optional
        Where that isn't the record's.
    network : float, optional
        Bytes that each device sends to others in one call, counted by hand.

    Examples
    --------
    >>> from roofline_helpers.measured import device_records
    >>> sample = device_records()["h200"].sample("matmul 4096×4096×4096 bf16")
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
    def run_spread(self) -> float:
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
    def intensity(self) -> float:
        """FLOP/byte, counted by hand."""
        return self.flops / self.bytes

    @property
    def dram_bytes(self) -> float:
        """Bytes of one call that crossed DRAM, by hardware counters; NaN where none were read."""
        counted = self.counters or {}
        return counted.get("dram_read", math.nan) + counted.get("dram_written", math.nan)

    def _cells(self, between: bool) -> dict[str, Any]:
        """Return its row of a table; `between` devices, with the links' bytes for memory's."""
        measured = bool(self.passes)
        sent = self.network / self.seconds / 1e9 if measured and self.network else None
        memory = self.bandwidth / 1e9 if measured else None
        notes = [*([self.error] if self.error else []), *self.remarks]
        notes = [note.removeprefix("unstable: ").removeprefix("drifting: ") for note in notes]
        return {
            "": self.name if self.source == "jax" else f"{self.name} ({self.source})",
            "type": self.dtype,
            "time": si(self.seconds, "s") if measured else None,
            **({"link GB/s": sent} if between else {"GB/s": memory}),
            "GFLOP/s": self.rate / 1e9 if measured and self.flops else None,
            **({} if between else {"FLOP/byte": self.intensity}),
            "note": ", ".join(dict.fromkeys(notes)),
        }

    @property
    def remarks(self) -> list[str]:
        """Its notes and those of its passes, each once."""
        of_passes = (note for timing in self.passes for note in timing.notes)
        return list(dict.fromkeys([*self.notes, *of_passes]))


def ceiling_rate(sample: Sample) -> float:
    """Return the rate of a sample as a ceiling: byte/s of memory, else FLOP/s."""
    return sample.bandwidth if sample.group == "memory" else sample.rate


# --- A measurement of one device, and the file that keeps it -------------------------------------

SCHEMA = "roofline_helpers.measured/1"
"""The header of a record."""


@dataclass(frozen=True)
class Record:
    """A measurement of one device: what it is, how it was measured, and every sample's summary.

    Examples
    --------
    >>> from roofline_helpers.measured import device_records
    >>> h200 = device_records()["h200"]
    >>> h200.name, f"{h200.bandwidth / 1e12:.2f} TB/s"
    ('NVIDIA H200 SXM', '4.56 TB/s')
    """

    device: Device
    host: Host
    software: Mapping[str, str]
    date: str
    command: str
    samples: tuple[Sample, ...]
    notes: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True

    def __repr__(self) -> str:
        measured = sum(bool(sample.passes) for sample in self.samples)
        text = f"{self.name}: {measured} of {len(self.samples)} cases, JAX "
        text += f"{self.software.get('jax', '?')}, {self.date}"
        return f"<{text}{'' if self.complete else ', incomplete'}>"

    @property
    def name(self) -> str:
        """The chip's name where the chip table has it, else what the device calls itself."""
        key = self.device.get("chip")
        return chips.chip(key).name if key else str(self.device["name"])

    @property
    def chip(self) -> chips.Chip | None:
        """One device of the chip that was measured; None if the chip table doesn't have it."""
        key = self.device.get("chip")
        return chips.chip(key).per_device() if key else None

    def sample(self, name: str, source: str = "jax") -> Sample:
        """Return a sample by its name.

        Raises
        ------
        UnknownName
            No such sample of that source; the message gives the nearest.
        """
        by_name = {sample.name: sample for sample in self.samples if sample.source == source}
        return by_name[name_of(f"sample of {source}", name, by_name)]

    def group(self, group: str, source: str | None = None) -> tuple[Sample, ...]:
        """Return the samples of a group that could be measured, of one source or of all.

        Raises
        ------
        UnknownName
            No such group in this record.
        """
        measured = (sample for sample in self._of_group(group) if sample.passes)
        return tuple(sample for sample in measured if source in (None, sample.source))

    def _of_group(self, group: str) -> tuple[Sample, ...]:
        """Return a group's samples, also those that could not be measured."""
        groups = dict.fromkeys(sample.group for sample in self.samples)
        wanted = name_of("group of samples", group, list(groups))
        return tuple(sample for sample in self.samples if sample.group == wanted)

    @property
    def bandwidth(self) -> float:
        """Measured memory ceiling, byte/s – the best of JAX's streaming kernels at the full size.

        Raises
        ------
        BadRecord
            No streaming kernel was measured.
        """
        streams = self.streams
        if not streams:
            raise BadRecord(f"{self!r} has no memory ceiling")
        return max(streams.values())

    @property
    def streams(self) -> dict[str, float]:
        """Best bandwidth of each streaming kernel, byte/s – "read", "write", "copy", "triad" …"""
        return {name: sample.bandwidth for name, sample in self.best("memory").items()}

    @property
    def peaks(self) -> dict[str, float]:
        """Measured compute ceilings, FLOP/s by data type – the best of JAX's matmuls."""
        return {dtype: sample.rate for dtype, sample in self.best("compute").items()}

    @property
    def vector_peaks(self) -> dict[str, float]:
        """Measured ceilings of the vector unit, FLOP/s by data type – the multiply-add chain."""
        return {dtype: sample.rate for dtype, sample in self.best("vector").items()}

    def best(self, group: str) -> dict[str, Sample]:
        """Return the best sample of each stream of "memory", of each data type elsewhere.

        Only those that were measured, from JAX and its Pallas kernels, count.
        """
        chosen: dict[str, Sample] = {}
        for sample in self.samples:
            if sample.group == group and sample.source in OURS and sample.passes:
                stream = re.sub(r" [\d.]+ [KMG]?i?B .*", "", sample.name)
                key = stream if group == "memory" else sample.dtype
                chosen[key] = max(chosen.get(key, sample), sample, key=ceiling_rate)
        return chosen

    def roofline(self, dtype: Any = "bf16") -> Roofline:
        """Return the measured roofline for a data type.

        Raises
        ------
        UnknownName
            That type was not measured; the message lists those that were.
        """
        wanted = name_of("data type measured here", dtype_of(dtype), self.peaks)
        return Roofline(
            peak=self.peaks[wanted],
            levels={"hbm": self.bandwidth},
            vector=self.vector_peaks.get("fp32"),
            name=f"{self.name} {wanted}, measured",
        )

    def table(self, group: str | None = None) -> pandas.DataFrame:
        """Return the samples as a table for reading, of one group or of all.

        Raises
        ------
        UnknownName, BadType
            No such group; nothing to show.
        """
        chosen = self.samples if group is None else self._of_group(group)
        between = any(sample.network for sample in chosen)
        return table(sample._cells(between) for sample in chosen)


# --- The package's own records --------------------------------------------------------------------

KINDS = ("measured", "timed")


def device_records(kind: str = "measured") -> dict[str, Record]:
    """Return the committed records of a kind, by name: "h100", "h200", …

    The kinds are "measured" (a device's ceilings, and kernels with their counts) and "timed"
    (small kernels, weights in few bits, long caches; by a profiler).

    Raises
    ------
    UnknownName
        No such kind.

    Examples
    --------
    >>> list(device_records())
    ['h100', 'h200']
    >>> len(device_records("timed")["h200"].group("small kernels, cold"))
    446
    """
    folder = name_of("kind of record", kind, KINDS)
    files = records.files(records.committed("roofline_helpers", folder))
    read = msgspec.json.Decoder(Record).decode
    return {name: read(file.read_bytes()) for name, file in files.items()}
