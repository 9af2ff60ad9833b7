"""A record as text, and as a file."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from roofline import storage
from roofline_helpers.common.show import si
from roofline_helpers.measured import Record, beside
from roofline_helpers.measured.record import SCHEMA, ceiling_rate


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
    ceilings = [("memory ceiling", si(each.bandwidth, "B/s"), each) for each in fastest]
    for group in ("compute", "vector"):
        for dtype, each in record.best(group).items():
            ceilings.append((f"{group} ceiling, {dtype}", si(each.rate, "FLOP/s"), each))
    lines += ["; ".join([f"{name}: {rate}", *each.remarks]) for name, rate, each in ceilings]
    same = beside(record)
    if same is not None:
        peaks = [f"{si(peak, 'FLOP/s')} {dtype}" for dtype, peak in same.peaks.items()]
        theirs = ", ".join([si(same.bandwidth, "B/s"), *peaks])
        lines.append(f"the book's record of this device, {same.date[:10]}: {theirs}")
    lines += [f"note: {note}" for note in record.notes]
    lines += ["", record.table().to_string()]
    return "\n".join(lines)


def data_of(record: Record) -> dict[str, Any]:
    """Return a record as its file's JSON data."""
    return {"schema": SCHEMA, **asdict(record)}


def save(record: Record, path: str | os.PathLike[str]) -> Path:
    """Write a record to a file, whole or not at all.

    Examples
    --------
    >>> save(run(quick=True), "mine.json")  # doctest: +SKIP
    """
    return storage.save(path, data_of(record))
