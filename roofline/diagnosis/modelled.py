"""A compiled program that didn't run: its causes, from a case in which rows take modelled times."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import NamedTuple, ParamSpec

from roofline import xla
from roofline.diagnosis.ceilings import Ceilings
from roofline.diagnosis.findings import Case, Finding, findings
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow, with_program
from roofline.xla.analysis import NOT_REUSED
from roofline.xla.kernel import CompiledKernel
from roofline.xla.report import Report
from roofline.xla.targets import assumed_vector_peak

Given = ParamSpec("Given")


def _with_findings(compiled: Callable[Given, Report]) -> Callable[Given, Report]:
    @functools.wraps(compiled)
    def analyze(*args: Given.args, **options: Given.kwargs) -> Report:
        report = compiled(*args, **options)
        turns = options.get("turns")
        return found_in(report, turns if isinstance(turns, Mapping) else {})

    return analyze


analyze = _with_findings(xla.analyze)
"""`xla.analyze`, and the causes of what its program loses."""


def found_in(report: Report, turns: Mapping[str, int] | None = None) -> Report:
    """Return a report with its findings; as it is without a chip or the whole program's text."""
    partial = not report.text or report.origin == "record"  # which keeps the entry alone
    if report.chip is None or partial or report.findings is not None:
        return report
    found = findings(case_of(report, turns))
    said = {finding.evidence for finding in found}
    notes = (n for n in report.notes if n.removeprefix(NOT_REUSED) not in said)
    whole = replace(report, findings=found, notes=tuple(notes))
    known = {member.name for member in fields(report)}  # what was computed of it stays
    vars(whole).update({key: value for key, value in vars(report).items() if key not in known})
    return whole


def case_of(report: Report, turns: Mapping[str, int] | None = None) -> Case:
    """Return a compiled program as a case for findings, under its chip's ceilings."""
    program = Program(
        report.text,
        report.platform,
        calls=report.calls,
        turns=turns or {},
        written=report.written,
    )
    assumed = None if report.chip is None else assumed_vector_peak(report.chip)
    ceilings = Ceilings(report.chip, vector=None if assumed is None else assumed[0])
    case = modelled_case(program, ceilings, report.floor or 0.0, report)
    unused = [note for note in report.notes if note.startswith(NOT_REUSED)]
    said = tuple(note.removeprefix(NOT_REUSED) for note in unused)
    return replace(case, unused=said)


def found_without_clock(case: Case) -> tuple[Finding, ...]:
    """Return the causes in the compiled programs of a call whose times say nothing."""
    ran = dict.fromkeys(row.program for row in case.rows if row.program in case.programs)
    parts = [modelled_case(case.programs[name], case.ceilings) for name in ran]
    rows = tuple(row for part in parts for row in part.rows)
    wall = math.fsum(row.seconds for row in rows)
    if not wall:
        return ()
    whole = replace(case, rows=rows, wall=wall, measured=False, compiling=0.0, unsteady=0.0)
    found = (finding for finding in findings(replace(whole, by_device={})) if finding.named)
    return tuple(replace(finding, known=False) for finding in found)  # of another time than these


class Launch(NamedTuple):
    """A compiled kernel, the seconds that the call waits for it, and those to expect of it."""

    kernel: CompiledKernel
    exposed: float
    expected: float


def modelled_case(
    program: Program, ceilings: Ceilings, floor: float = 0.0, report: Report | None = None
) -> Case:
    """Return a program that didn't run as a case for findings: rows take their roofs' times.

    The compiler's cycles count where they are longer. Asynchronous copies and exchanges are assumed
    to be hidden. With a report, rows take no less than it counts for their kernels and for all
    together: an exchange takes the time of its links, less what other kernels hide. `high` holds
    the seconds if data choose more bytes.
    """
    launches: dict[str, list[Launch]] = {}
    if report is not None:
        exposed = report.timeline.exposed
        for kernel, waited, likely in zip(report.kernels, exposed, report.likely, strict=True):
            seconds = likely.known
            if kernel.host_bytes:  # how long the host takes isn't known: its launch keeps the row
                seconds = max(seconds, floor * kernel.launches)
            launches.setdefault(kernel.name, []).append(Launch(kernel, waited, seconds))
    running = (name for name, row in program.rows.items() if row.launches)
    rows = [_row(name, program, ceilings, floor, launches.get(name, [])) for name in running]
    # All kernels share one memory: a program takes at least the time of all its bytes, so other
    # kernels can't hide the bytes of asynchronous copies
    hidden = math.fsum(row.busy - row.seconds for row in rows if row.kernel.overlaps)
    awaited = None if report is None or report.expected is None else report.expected.seconds
    if report is not None and awaited is not None and hidden:
        least = (report.time_at_roof or 0.0) - math.fsum(row.least or 0.0 for row in rows)
        expected = awaited - math.fsum(row.seconds for row in rows)

        def with_share(row: TimedRow, seconds: float) -> float:
            return max(seconds, 0.0) / hidden * (row.busy - row.seconds) + row.seconds

        rows = [
            _exposed(row, with_share(row, expected), with_share(row, least))
            if row.kernel.overlaps
            else row
            for row in rows
        ]
    return Case(
        rows=tuple(rows),
        programs={program.module.name: program},
        ceilings=ceilings,
        platform=program.platform,
        wall=sum(row.seconds for row in rows) or 1e-12,
        measured=False,
    )


def _row(
    name: str, program: Program, ceilings: Ceilings, floor: float, launches: Sequence[Launch]
) -> TimedRow:
    kernel = program.rows[name]
    row = TimedRow(name, launches=float(kernel.launches), program=program.module.name)
    row = with_program(row, program, ceilings)
    least = sum(launch.kernel.roof_seconds or 0.0 for launch in launches)
    most = sum(launch.kernel.most_seconds or 0.0 for launch in launches)
    limits = dict.fromkeys(launch.kernel.limits for launch in launches if launch.kernel.limits)
    if kernel.overlaps:
        exposed = sum(launch.exposed for launch in launches)
        row = _exposed(row, exposed, exposed)
    else:
        reachable = max(row.reachable or 0.0, least)
        floors = floor * kernel.launches
        expected = sum(launch.expected for launch in launches) if launches else floors
        row = replace(row, seconds=max(reachable, expected))
        if not kernel.untimed:
            row = replace(row, least=least or row.least, reachable=reachable)
    busy = max(row.seconds, least)
    limit = row.limit if kernel.untimed else " or ".join(limits) or row.limit
    high = busy if math.isinf(most) else max(busy, most)
    return replace(row, busy=busy, low=busy, high=high, limit=limit)


def _exposed(row: TimedRow, seconds: float, least: float) -> TimedRow:
    """Return a row of an asynchronous copy or exchange for which the call waits so long."""
    return replace(row, seconds=seconds, least=least, reachable=max(seconds, least))
