"""What the compiled program alone tells: for a chip that is not here, nothing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofline_helpers import hardware
from roofline_helpers._checks import BadType
from roofline_helpers.compiled import analyze
from roofline_helpers.explain.ceilings import Ceilings
from roofline_helpers.explain.explanation import Explanation
from roofline_helpers.explain.findings import Case, findings
from roofline_helpers.explain.program import Program
from roofline_helpers.explain.rows import Row, compiled
from roofline_helpers.work import Work


def explained(
    fn: Any,
    args: Sequence[Any],
    chip: Any,
    jit: Mapping[str, Any],
    name: str | None,
    work: Sequence[Work] = (),
) -> Explanation:
    """Compile a function for a chip, and explain what its kernels take by the roofline.

    The seconds of a row are those of its roof, and a finding's are what the roof would sink by.
    """
    known = hardware.chip(chip)
    report = analyze(fn, *args, chip=known, name=name, use="compiler", **jit)
    if not report.text:
        raise BadType(f"{known.name}: the compiled program is needed, and only a record is here")
    program = Program(report.text, report.platform)
    ceilings = Ceilings(known.per_device(), None)
    case = case_of(program, ceilings)
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
        notes=("compiled, not run: every second is the roofline's", *report.notes),
        software={"jax": report.jax_version, "compiler": report.compiler},
    )


def case_of(program: Program, ceilings: Ceilings) -> Case:
    """Return a program that didn't run as a case for findings: rows take what their roofs do."""
    rows = tuple(_row(name, program, ceilings) for name in program.rows)
    return Case(
        rows=rows,
        programs={program.module.name: program},
        ceilings=ceilings,
        platform=program.platform,
        wall=sum(row.seconds for row in rows) or 1e-12,
        measured=False,
    )


def _row(name: str, program: Program, ceilings: Ceilings) -> Row:
    there = program.rows[name]
    bare = Row(name, launches=float(there.launches), program=program.module.name)
    row = compiled(bare, program, ceilings)
    if there.overlaps:  # it runs at the same time as other kernels, and is taken to be hidden
        row = replace(row, least=0.0, tiled=0.0, reachable=0.0)
    seconds = row.reachable or 0.0
    return replace(row, seconds=seconds, busy=seconds, low=seconds, high=seconds)
