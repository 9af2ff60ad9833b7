"""Go through the cases, several times if wanted, and return the record."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

from roofline_helpers import show
from roofline_helpers._checks import BadType, RooflineError, shown, single, whole
from roofline_helpers.measure.case import Case
from roofline_helpers.measure.machine import busy, device, free_memory, host, software
from roofline_helpers.measure.record import Record
from roofline_helpers.measure.sample import Sample
from roofline_helpers.measure.timing import RISING, clock, reason
from roofline_helpers.measure.workloads import cases
from roofline_helpers.show import si

SECONDS = {False: 0.3, True: 0.15}
"""About how long each case is measured in each pass: usually, and where it must be quick."""


def run(
    quick: bool = False,
    *,
    chosen: Sequence[Case] | None = None,
    passes: int = 1,
    seconds: float | None = None,
    deadline: float | None = None,
    progress: bool = True,
    command: str | None = None,
    partial: str | os.PathLike[str] | None = None,
    probe: Callable[[], Mapping[str, Any]] | None = None,
    between: Callable[[int, Record], Record] | None = None,
) -> Record:
    """Measure the default device, and return the record.

    A case that this device can't do (no memory, no such data type, a compiler that refuses) is
    kept with its reason, and the rest goes on.

    Parameters
    ----------
    quick : bool
        Fewer cases, each measured for a shorter time.
    chosen : sequence of Case, optional
        In place of `cases(quick)`.
    passes : int
        Times that the whole list is gone through, back and forth: their difference is the spread
        between runs.
    seconds : float, optional
        About how long to measure each case in each pass.
    deadline : float, optional
        Seconds after which no case is begun any more; the record says so.
    progress : bool
        Whether to show on a terminal what is being measured.
    command : str, optional
        What the record names as the command that made it.
    partial : path, optional
        Where to keep what there is so far, once every few seconds.
    probe : callable, optional
        Returns the device's state; called while it is busy.
    between : callable, optional
        Called after each pass with its number and the record so far; returns the record to go on
        with.

    Returns
    -------
    Record

    Raises
    ------
    BadType, BadValue
        A budget that isn't a positive number; passes that aren't a whole number from 1.

    Examples
    --------
    >>> run(quick=True).save("mine.json")  # doctest: +SKIP
    """
    begun = perf_counter()
    todo = cases(quick) if chosen is None else chosen
    if not isinstance(todo, Sequence) or not all(isinstance(case, Case) for case in todo):
        raise BadType(f"chosen must be a sequence of Case, got {shown(chosen)}")
    rounds = whole("passes", passes)
    budget = single("seconds", SECONDS[bool(quick)] if seconds is None else seconds)
    how = _How(budget, probe)
    record = _empty(todo, command or "roofline_helpers.measure.run()")
    compiled: list[Any] = [None] * len(todo)
    saved = begun
    left_out = done = 0
    with show.progress(progress) as say:
        for number in range(rounds):
            # Back and forth: what comes second may find the chip warm or slowed down
            order = range(len(todo)) if number % 2 == 0 else range(len(todo) - 1, -1, -1)
            for index in order:
                case = todo[index]
                passed = perf_counter() - begun
                say(f"{done} of {rounds * len(todo)}, {passed:.0f} s: {case.name}")
                done += 1
                if deadline is not None and passed > deadline:
                    left_out += 1
                    continue
                sample = record.samples[index]
                sample, compiled[index] = _attempt(case, sample, compiled[index], how)
                samples = (*record.samples[:index], sample, *record.samples[index + 1 :])
                record = replace(record, samples=samples)
                if partial is not None and perf_counter() - saved > 5:
                    record.save(partial)
                    saved = perf_counter()
            if between is not None:
                record = between(number, record)
                if partial is not None:
                    record.save(partial)
    notes = [*record.notes]
    if left_out:
        notes.append(f"{left_out} measurements left out: the time was up after {deadline:.0f} s")
    notes += [note for note in busy() if note not in notes]
    return replace(record, notes=tuple(notes), complete=True)


def _empty(todo: Sequence[Case], command: str) -> Record:
    return Record(
        device=device(),
        host=host(),
        software=software(),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        command=command,
        samples=tuple(unmeasured(case) for case in todo),
        notes=tuple(busy()),
        flags={k: os.environ[k] for k in ("XLA_FLAGS", "LIBTPU_INIT_ARGS") if os.environ.get(k)},
        complete=False,
    )


def unmeasured(case: Case) -> Sample:
    """Return the sample of a case before its first pass."""
    return Sample(
        name=case.name,
        group=case.group,
        source=case.source,
        dtype=case.work.dtype,
        flops=float(case.work.flops),
        matrix_flops=float(case.work.matrix_flops),
        bytes=float(case.work.bytes),
        network=float(case.work.others["network"]) if "network" in case.work.others else None,
    )


class _How(NamedTuple):
    """How each case is measured: about how long, and what tells the device's state meanwhile."""

    seconds: float
    probe: Callable[[], Mapping[str, Any]] | None


def _attempt(case: Case, sample: Sample, compiled: Any, how: _How) -> tuple[Sample, Any]:
    """Return the sample with one more pass, or why there is none, and the compiled program."""
    if sample.error:
        return sample, None
    needs = 2 * float(case.work.bytes) if case.needs is None else case.needs
    free = free_memory()
    if free is not None and needs > 0.8 * free:
        error = f"not enough memory: needs {si(needs, 'B')}, {si(free, 'B')} are free"
        return replace(sample, error=error), None
    try:
        return _measured(case, sample, compiled, how)
    except Exception as failure:  # one kernel that fails must not take the others with it
        why = str(failure) if isinstance(failure, RooflineError) else reason(failure)
        if sample.passes:  # it worked before
            note = f"failed in a later pass: {why}"
            return replace(sample, notes=(*sample.notes, note)), compiled
        return replace(sample, error=why), None


def _measured(case: Case, sample: Sample, compiled: Any, how: _How) -> tuple[Sample, Any]:
    state: dict[str, Any] = {}

    def look() -> None:
        if how.probe is not None:
            state.update(how.probe())

    args = case.make()
    begun = perf_counter()
    program = case.program(args, compiled)
    del args
    timing = clock(program, seconds=how.seconds, warm=case.warm, begun=begun, probe=look)
    xla_bytes = getattr(program, "xla_bytes", None)
    notes = getattr(program, "notes", ())
    if case.loops > 1:
        timing = replace(timing, **{n: getattr(timing, n) / case.loops for n in RISING})
        xla_bytes = None  # XLA does not know how often the loop turns
    sample = replace(
        sample,
        passes=(*sample.passes, timing),
        xla_bytes=sample.xla_bytes or xla_bytes,
        state=state or sample.state,
        notes=tuple(dict.fromkeys([*sample.notes, *notes])),
    )
    return sample, getattr(program, "compiled", None)
