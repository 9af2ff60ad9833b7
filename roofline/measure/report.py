"""A record as text, as a picture, as a file; and the one to compare it with."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline import storage
from roofline_helpers.common.checks import BadType, shown
from roofline_helpers.common.dtypes import dtype as dtype_of
from roofline_helpers.common.show import si
from roofline_helpers.measured import Record, device_records
from roofline_helpers.measured.record import CEILINGS, SCHEMA, ceiling_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def report(record: Record) -> str:
    """Return a record as text: the device, its ceilings, then every sample.

    The line of a ceiling ends with the notes of the sample that sets it.

    Examples
    --------
    >>> from roofline_helpers.measured import device_records
    >>> report(device_records()["h200"]).splitlines()[0]
    'NVIDIA H200 SXM (gpu, 16 host cores), JAX 0.11.2, 2026-11-21T02:05:42Z'
    """
    about = record.device
    lines = [
        f"{record.name} ({about['platform']}, {record.host['cores']} host cores), "
        f"JAX {record.software.get('jax', '?')}, {record.date}"
    ]
    fastest = sorted(record.best("memory").values(), key=ceiling_rate)[-1:]
    ceilings = [("memory ceiling", si(sample.bandwidth, "B/s"), sample) for sample in fastest]
    for group in ("compute", "vector"):
        for dtype, sample in record.best(group).items():
            ceilings.append((f"{group} ceiling, {dtype}", si(sample.rate, "FLOP/s"), sample))
    lines += ["; ".join([f"{name}: {rate}", *sample.remarks]) for name, rate, sample in ceilings]
    same = same_device(record)
    if same is not None:
        peaks = [f"{si(peak, 'FLOP/s')} {dtype}" for dtype, peak in same.peaks.items()]
        theirs = ", ".join([si(same.bandwidth, "B/s"), *peaks])
        lines.append(f"the book's record of this device, {same.date[:10]}: {theirs}")
    lines += [f"note: {note}" for note in record.notes]
    lines += ["", record.table().to_string()]
    return "\n".join(lines)


def same_device(record: Record) -> Record | None:
    """Return the newest committed record of the same device, or None.

    Devices are the same if JAX's `device_kind` is. On a CPU, where that is only "cpu", the
    processor's name and the number of cores must agree.

    Raises
    ------
    BadType
        Not a record.

    Examples
    --------
    >>> from dataclasses import replace
    >>> mine = replace(device_records()["h200"], command="roofline measure")
    >>> same_device(mine).name
    'NVIDIA H200 SXM'
    """
    if not isinstance(record, Record):
        raise BadType(f"record must be a Record, got {shown(record)}")
    committed = device_records().values()
    same = [other for other in committed if _identity(other) == _identity(record)]
    return max(same, key=lambda other: other.date, default=None)


def _identity(record: Record) -> tuple[Any, ...]:
    if record.device["platform"] == "cpu":
        return "cpu", record.device["name"], record.host["cores"]
    return record.device["platform"], record.device["kind"]


def draw(
    record: Record, dtype: Any = None, ax: Axes | None = None, *, beside: Record | None = None
) -> Axes:
    """Draw a measured roofline, and the kernels of its data type where they were measured.

    Parameters
    ----------
    record : Record
        What was measured.
    dtype : str or data type, optional
        By default bf16 if it is the faster, else fp32, else any that was measured.
    beside : Record, optional
        Another record, such as `same_device` gives: its roof is drawn dashed, and its samples of
        the same kernels as crosses. A data type that it lacks leaves it out.

    Examples
    --------
    >>> records = device_records()
    >>> draw(records["h100"], beside=records["h200"]).texts[0].get_text()  # in bf16
    'peak 726.9 TFLOP/s'
    """
    from roofline_helpers import plot

    if beside is not None and not isinstance(beside, Record):
        raise BadType(f"beside must be a Record, got {shown(beside)}")
    peaks = record.peaks
    if dtype is None:
        order = sorted(peaks, key=lambda name: name not in ("bf16", "fp32"))
        dtype = max(order[:2], key=lambda name: peaks[name]) if peaks else "fp32"
    roof, wanted = record.roofline(dtype), dtype_of(dtype)
    kernels = {}
    for sample in record.samples:
        counted = sample.group not in CEILINGS and sample.flops
        if counted and sample.dtype == wanted and sample.passes:
            kernels[sample.name.removesuffix(f" {wanted}")] = sample  # the roof's name says it
    points = {name: sample.intensity for name, sample in kernels.items()}
    achieved = {name: sample.rate for name, sample in kernels.items()}
    ax = plot.roofline(roof, points, achieved=achieved, ax=ax)
    if beside is None or wanted not in beside.peaks:
        return ax
    grey = {"color": plot.PALETTE["muted"], "zorder": 2}
    other, (low, high) = beside.roofline(wanted), ax.get_xlim()
    across = sorted({low, min(max(other.ridge, low), high), high})
    label = f"the record of {beside.date[:10]}"
    heights = [other.attainable(x) for x in across]
    ax.plot(across, heights, ls="--", label=label, gid="beside:roof", **grey)
    drawn = {(kernel.name, kernel.source) for kernel in kernels.values()}
    spots = [s for s in beside.samples if s.passes and (s.name, s.source) in drawn]
    where = [s.intensity for s in spots], [s.rate for s in spots]
    ax.plot(*where, "x", gid="beside:kernels", **grey)
    ax.set(xlim=(low, high))
    ax.legend(loc="lower right")
    return ax


def data_of(record: Record) -> dict[str, Any]:
    """Return a record as its file's JSON data."""
    return {"schema": SCHEMA, **asdict(record)}


def load(path: Any) -> Record:
    """Return the record in a file.

    Raises
    ------
    BadRecord
        No such file; damaged, foreign, older or newer: see `storage.load`.

    Examples
    --------
    >>> from roofline_helpers.common.records import committed
    >>> load(committed("roofline_helpers", "measured", "h200.json")).name
    'NVIDIA H200 SXM'
    """
    return storage.load(path, SCHEMA, Record)


def save(record: Record, path: str | os.PathLike[str]) -> Path:
    """Write a record to a file, whole or not at all.

    Examples
    --------
    >>> save(run(quick=True), "mine.json")  # doctest: +SKIP
    """
    return storage.save(path, data_of(record))
