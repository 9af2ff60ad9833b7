"""A measurement of one device, and the file that keeps it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline_helpers import hardware, records
from roofline_helpers._checks import BadType, name_of, shown
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.measure import display
from roofline_helpers.measure.machine import Device, Host
from roofline_helpers.measure.sample import Sample, best
from roofline_helpers.records import BadRecord
from roofline_helpers.roofline import Roofline

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

SCHEMA = "roofline_helpers.measured/1"
"""What a record says of itself."""


@dataclass(frozen=True)
class Record:
    """A measurement of one device: what it is, how it was measured, and every sample's summary.

    Examples
    --------
    >>> from roofline_helpers.measure import measured
    >>> h200 = measured()["h200"]
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
        return hardware.chip(key).name if key else str(self.device["name"])

    @property
    def chip(self) -> hardware.Chip | None:
        """One device of the chip that was measured; None where the chip table hasn't got it."""
        key = self.device.get("chip")
        return hardware.chip(key).per_device() if key else None

    def sample(self, name: str, source: str = "jax") -> Sample:
        """Return a sample by its name.

        Raises
        ------
        UnknownName
            No such sample of that source; the message gives the nearest.
        """
        of_source = {each.name: each for each in self.samples if each.source == source}
        return of_source[name_of(f"sample of {source}", name, of_source)]

    def group(self, group: str, source: str | None = None) -> tuple[Sample, ...]:
        """Return the samples of a group that could be measured, of one source or of all.

        Raises
        ------
        UnknownName
            No such group in this record.
        """
        group = name_of(
            "group of samples", group, list(dict.fromkeys(s.group for s in self.samples))
        )
        return tuple(
            each
            for each in self.samples
            if each.group == group and each.passes and source in (None, each.source)
        )

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
        return {name: each.bandwidth for name, each in self.best("memory").items()}

    @property
    def peaks(self) -> dict[str, float]:
        """Measured compute ceilings, FLOP/s by data type – the best of JAX's matrix products."""
        return {dtype: each.rate for dtype, each in self.best("compute").items()}

    @property
    def vector_peaks(self) -> dict[str, float]:
        """Measured ceilings of the vector unit, FLOP/s by data type – the multiply-add chain."""
        return {dtype: each.rate for dtype, each in self.best("vector").items()}

    def best(self, group: str) -> dict[str, Sample]:
        """Return the best sample of each stream of "memory", of each data type elsewhere."""
        return best(self.samples, group)

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
            origin="measured",
        )

    def table(self, group: str | None = None) -> pandas.DataFrame:
        """Return the samples as a table for reading, of one group or of all.

        Raises
        ------
        UnknownName, BadType
            No such group; nothing to show.
        """
        chosen = self.samples
        if group is not None:
            self.group(group)
            chosen = tuple(each for each in self.samples if each.group == group)
        return display.listed(chosen)

    def draw(
        self, dtype: Any = None, ax: Axes | None = None, *, beside: Record | None = None
    ) -> Axes:
        """Draw the measured roofline, and the kernels of its data type where they were measured.

        Parameters
        ----------
        dtype : str or data type, optional
            By default bf16 where it is the faster, else fp32, else what there is.
        beside : Record, optional
            Another record, such as `beside` gives: its roof is drawn dashed, and its samples of
            the same kernels as crosses. A data type that it lacks leaves it out.
        """
        if beside is not None and not isinstance(beside, Record):
            raise BadType(f"beside must be a Record, got {shown(beside)}")
        peaks = self.peaks
        if dtype is None:
            order = sorted(peaks, key=lambda name: name not in ("bf16", "fp32"))
            dtype = max(order[:2], key=lambda name: peaks[name]) if peaks else "fp32"
        roof, wanted = self.roofline(dtype), dtype_of(dtype)
        kernels = display.kernels_of(self.samples, wanted)
        drawn = display.draw(roof, kernels, wanted, ax)
        if beside is not None and wanted in beside.peaks:
            label = f"the record of {beside.date[:10]}"
            display.add_other(drawn, label, beside.roofline(wanted), beside.samples, kernels)
        return drawn

    def to_dict(self) -> dict[str, Any]:
        """Return it as its file holds it."""
        return {"schema": SCHEMA, **asdict(self)}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file, whole or not at all (`records.save`)."""
        return records.save(path, self.to_dict())


def load(path: Any) -> Record:
    """Return the record in a file.

    Raises
    ------
    BadRecord
        No such file; damaged, foreign, older or newer: see `records.load`.

    Examples
    --------
    >>> load(records.committed("measured", "h200.json")).name
    'NVIDIA H200 SXM'
    """
    return records.load(path, SCHEMA, Record)
