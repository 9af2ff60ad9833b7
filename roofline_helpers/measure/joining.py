"""Several records of one device as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roofline_helpers._checks import BadType, BadValue, shown
from roofline_helpers.measure.record import Record
from roofline_helpers.measure.sample import Sample


def combine(runs: Sequence[Record]) -> Record:
    """Return one record of several runs of the same cases, each in a process of its own.

    A sample has the passes of all runs, and the median of each in `Sample.runs`: their spread is
    `Sample.between`. What failed in every run keeps its error. The rest is that of the last run.

    Raises
    ------
    BadValue
        No run; runs of different devices.

    Examples
    --------
    >>> from roofline_helpers.measure import measured
    >>> combine([measured()["h200"]]).name
    'NVIDIA H200 SXM'
    """
    _one_device(runs)
    by_case: dict[tuple[str, str], list[Sample]] = {}
    for record in runs:
        for each in record.samples:
            by_case.setdefault((each.name, each.source), []).append(each)
    return replace(
        runs[-1],
        samples=tuple(_combined(samples) for samples in by_case.values()),
        notes=tuple(dict.fromkeys(note for record in runs for note in record.notes)),
        complete=all(record.complete for record in runs),
    )


def _combined(samples: Sequence[Sample]) -> Sample:
    worked = [each for each in samples if each.passes]
    if not worked:
        return samples[-1]
    notes = [note for each in samples for note in each.notes]
    notes += [f"failed in one run: {each.error}" for each in samples if each.error]
    with_counters = [each for each in worked if each.counters]
    return replace(
        worked[-1],
        passes=tuple(timing for each in worked for timing in each.passes),
        runs=tuple(each.seconds for each in worked),
        counters=with_counters[-1].counters if with_counters else None,
        notes=tuple(dict.fromkeys(notes)),
    )


def merge(older: Record, newer: Record) -> Record:
    """Return the newer record, with the older one's samples of what was not measured again.

    Those keep their date (`Sample.date`); a note says so where the software was another. What
    neither has measured, for want of time, is left out.

    Raises
    ------
    BadValue
        Records of different devices.

    Examples
    --------
    >>> from roofline_helpers.measure import measured
    >>> h200 = measured()["h200"]
    >>> len(merge(h200, h200).samples) == len(h200.samples)
    True
    """
    _one_device([older, newer])
    again = {(each.name, each.source): each for each in newer.samples}
    notes = [*older.notes, *newer.notes]
    samples = []
    for each in older.samples:
        new = again.pop((each.name, each.source), None)
        if new is None or (each.passes and not new.passes):
            kept = replace(each, date=each.date or older.date)
            note = f"failed when it was measured again: {new.error}" if new else ""
            new = replace(kept, notes=(*kept.notes, note)) if note else kept
        samples.append(new)
    samples += [each for each in again.values() if each.passes or each.error]
    if older.software != newer.software and any(each.date == older.date for each in samples):
        was = ", ".join(f"{name} {version}" for name, version in older.software.items())
        notes.append(f"samples dated {older.date} were measured with {was}")
    return replace(newer, samples=tuple(samples), notes=tuple(dict.fromkeys(notes)))


def _one_device(runs: Sequence[Record]) -> None:
    if not isinstance(runs, Sequence) or not all(isinstance(one, Record) for one in runs):
        raise BadType(f"records (measure.load) are needed, got {shown(runs)}")
    if not runs:
        raise BadValue("at least one record is needed, got none")
    kinds = list(dict.fromkeys(str(record.device["kind"]) for record in runs))
    if len(kinds) > 1:
        raise BadValue(f"the records must be of one device, got {', '.join(kinds)}")
