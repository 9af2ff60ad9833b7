"""What the compiled program alone tells: for a chip that is not here, nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from roofline_helpers import hardware
from roofline_helpers.compiled import targets
from roofline_helpers.compiled.analysis import Request
from roofline_helpers.compiled.arguments import Arguments
from roofline_helpers.compiled.report import Report
from roofline_helpers.explain.ceilings import Ceilings
from roofline_helpers.explain.explanation import Explanation
from roofline_helpers.explain.findings import Case, findings
from roofline_helpers.explain.program import Program
from roofline_helpers.explain.rows import Row, compiled, short
from roofline_helpers.show import si
from roofline_helpers.work import Work


def explained(
    fn: Any,
    arguments: Arguments,
    chip: Any,
    work: Sequence[Work],
    topology: str | None,
    **asked: Any,
) -> Explanation:
    """Compile a function for a chip, and explain what its kernels take by the roofline.

    The seconds of a row are those of its roof, but no kernel, and no turn of a loop, takes less
    than the floor that verdicts assume, and the call no less than `analyze` counts for it. A
    finding's are what the roof would sink by. `asked` is what else a `Request` takes.
    """
    key, layout = targets.slice_of(chip)
    known = hardware.chip(key)
    missing = targets.can_compile(known)
    if missing is not None:
        raise targets.NoCompiler(missing)
    report = Request(fn, arguments, known, topology=topology or layout, **asked).report()
    program = Program(report.text, report.platform, calls=report.calls, turns=asked["turns"])
    notes = ["compiled, not run: every second is the roofline's"]
    floor = report.floor or 0.0
    notes.append(
        f"each kernel, and each turn of a loop, takes {si(floor, 's')} at least: the shortest "
        "product that was published for a TPU"
    )
    assumed, vector = targets.assumed_vector_peak(known), None
    if assumed is not None:
        vector, how = assumed
        notes.append(f"vector work at {si(vector, 'FLOP/s')}, which nobody publishes: {how}")
    ceilings = Ceilings(known.per_device(), None, vector)
    case = case_of(program, ceilings, floor)
    rows = as_analyzed(case.rows, report)
    case = replace(case, rows=rows, wall=sum(row.seconds for row in rows) or 1e-12)
    return Explanation(
        name=report.name,
        arguments=report.arguments,
        platform=report.platform,
        device=known.name,
        origin="modelled",
        rows=case.rows,
        findings=findings(case),
        runs=(case.wall,),
        compiling=report.seconds,
        hand=ceilings.hand(work),
        roofs=ceilings.figures(),
        notes=(*notes, *report.notes),
        software={"jax": report.jax_version, "compiler": report.compiler},
    )


def as_analyzed(rows: Sequence[Row], report: Report) -> tuple[Row, ...]:
    """Return rows that take no less than a report counts for their kernels and for all together.

    An exchange takes the time of the links that it runs along, and what runs beside other kernels
    shows as far as it isn't hidden. `high` holds the seconds where data choose more bytes.
    """
    waited: dict[str, float] = {}
    for kernel, seconds in zip(report.kernels, report.timeline.exposed, strict=True):
        waited[kernel.name] = waited.get(kernel.name, 0.0) + seconds
    listed = []
    for row in rows:
        kernels = [kernel for kernel in report.kernels if kernel.name == row.name]
        least = sum(kernel.roof_seconds or 0.0 for kernel in kernels)
        most = sum(kernel.most_seconds or 0.0 for kernel in kernels)
        beside = all(kernel.row.overlaps for kernel in kernels)
        seconds = waited[row.name] if beside else max(row.seconds, least)
        reachable = seconds if beside else max(row.reachable or 0.0, least)
        roof = short(min(least, reachable))
        listed.append(
            replace(
                row,
                seconds=seconds,
                busy=max(seconds, least),
                low=max(seconds, least),
                high=max(seconds, most),
                least=roof,
                tiled=roof if beside else max(row.tiled or 0.0, roof),
                reachable=short(reachable),
                limit=" or ".join(dict.fromkeys(k.limits for k in kernels if k.limits)),
            )
        )
    return _not_hidden(listed, report)


def _not_hidden(rows: Sequence[Row], report: Report) -> tuple[Row, ...]:
    """Return rows in which copies beside other kernels show what these can't hide.

    The memory is one: a program takes at least the time of all its bytes.
    """
    more = (report.time_at_roof or 0.0) - sum(row.seconds for row in rows)
    beside = {kernel.name for kernel in report.kernels if kernel.row.overlaps}
    hidden = {row.name: row.busy - row.seconds for row in rows if row.name in beside}
    total = sum(hidden.values())
    if more <= 0 or not total:
        return tuple(rows)
    shown = {name: more * each / total for name, each in hidden.items()}
    return tuple(
        replace(
            row,
            seconds=row.seconds + shown[row.name],
            least=(row.least or 0.0) + shown[row.name],
            tiled=(row.tiled or 0.0) + shown[row.name],
            reachable=(row.reachable or 0.0) + shown[row.name],
        )
        if row.name in shown
        else row
        for row in rows
    )


def case_of(program: Program, ceilings: Ceilings, floor: float = 0.0) -> Case:
    """Return a program that didn't run as a case for findings: rows take what their roofs do."""
    rows = tuple(_row(name, program, ceilings, floor) for name in program.rows)
    return Case(
        rows=rows,
        programs={program.module.name: program},
        ceilings=ceilings,
        platform=program.platform,
        wall=sum(row.seconds for row in rows) or 1e-12,
        measured=False,
    )


def _row(name: str, program: Program, ceilings: Ceilings, floor: float) -> Row:
    there = program.rows[name]
    bare = Row(name, launches=float(there.launches), program=program.module.name)
    row = compiled(bare, program, ceilings)
    seconds = max(row.reachable or 0.0, floor * there.launches)
    if there.overlaps:  # it runs at the same time as other kernels, and is taken to be hidden
        row, seconds = replace(row, least=0.0, tiled=0.0, reachable=0.0), 0.0
    return replace(row, seconds=seconds, busy=seconds, low=seconds, high=seconds)
