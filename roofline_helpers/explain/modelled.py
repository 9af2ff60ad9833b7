"""What the compiled program alone tells: for a chip that is not here, nothing runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roofline_helpers import hardware
from roofline_helpers.compiled import targets
from roofline_helpers.compiled.analysis import Request
from roofline_helpers.compiled.arguments import Arguments
from roofline_helpers.explain.ceilings import Ceilings
from roofline_helpers.explain.explanation import Explanation
from roofline_helpers.explain.findings import Case, findings
from roofline_helpers.explain.program import Program
from roofline_helpers.explain.rows import Row, compiled
from roofline_helpers.show import si
from roofline_helpers.verdicts import assumed_floor
from roofline_helpers.work import Work


def explained(
    fn: Any,
    arguments: Arguments,
    chip: Any,
    jit: Mapping[str, Any],
    name: str | None,
    work: Sequence[Work] = (),
) -> Explanation:
    """Compile a function for a chip, and explain what its kernels take by the roofline.

    The seconds of a row are those of its roof, but no kernel, and no turn of a loop, takes less
    than the floor that verdicts assume. A finding's are what the roof would sink by.
    """
    key, layout = targets.slice_of(chip)
    known = hardware.chip(key)
    missing = targets.can_compile(known)
    if missing is not None:
        raise targets.NoCompiler(missing)
    report = Request(fn, arguments, known, jit=jit, topology=layout, name=name).report()
    program = Program(report.text, report.platform, calls=report.calls)
    device, notes = known.per_device(), ["compiled, not run: every second is the roofline's"]
    floor = known.floor.value if known.floor else assumed_floor(known.kind)
    notes.append(
        f"each kernel, and each turn of a loop, takes {si(floor, 's')} at least: the shortest "
        "product that was published for a TPU"
    )
    ceilings = Ceilings(device, None)
    if "fp32" not in device.vector:
        peak, how = targets.assumed_vector_peak(known)
        ceilings = Ceilings(device, None, vector=peak)
        notes.append(f"vector work at {si(peak, 'FLOP/s')}, which nobody publishes: {how}")
    case = case_of(program, ceilings, floor)
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
