"""What a device told of a function that ran on it, and how that is read.

Measuring needs the device, and reading doesn't: what was taken can go to another process, which
reads it while the device is at the next function.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from roofline_helpers.compiled.kernel import main_dtype
from roofline_helpers.explain import doubt, protos
from roofline_helpers.explain.ceilings import Ceilings, ceilings_of
from roofline_helpers.explain.explanation import Energy, Explanation
from roofline_helpers.explain.findings import Case, findings
from roofline_helpers.explain.program import Program
from roofline_helpers.explain.rows import LOOP, Joined, join
from roofline_helpers.explain.running import Turns
from roofline_helpers.explain.trace import Trace
from roofline_helpers.work import Work


@dataclass(frozen=True)
class Taken:
    """One function's runs, as they were measured, before anything is read out of them.

    Parameters
    ----------
    name, arguments : str, sequence of str
        What is called, and with what.
    device : jax.Device or str
        Where it ran; a GPU's name serves as well.
    called : str
        What the device is called.
    turns : Turns
        Seconds without the profiler and with it, and the trace.
    executable : protos.Shown or None
        The compiled program; None where the function called several.
    """

    name: str
    arguments: tuple[str, ...]
    device: Any
    called: str
    turns: Turns
    executable: protos.Shown | None
    work: Sequence[Work] = ()
    ceilings: Any = None
    graphs: tuple[float, ...] = ()
    queue: int = 1
    compiling: float = 0.0
    energy: Energy | None = None
    notes: tuple[str, ...] = ()
    software: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    seconds: float = 0.0

    def explained(self) -> Explanation:
        """Return where the time goes: kernels joined with the program, roofs and causes."""
        begun = perf_counter()
        trace = self.turns.trace
        programs = self._programs()
        ceilings = ceilings_of(self.device, dtypes(programs, trace), self.ceilings)
        joined = join(trace, programs, ceilings, self.queue, self.turns.goal)
        doubts = (*doubt.of_clocks(self.turns), *doubt.of_ceilings(joined.rows))
        case = case_of(joined, programs, ceilings, trace, self.turns.plain, self.queue)
        return Explanation(
            name=self.name,
            arguments=self.arguments,
            platform=trace.platform,
            device=self.called,
            origin="measured",
            rows=joined.rows,
            findings=findings(case),
            runs=self.turns.plain,
            traced=self.turns.traced,
            graphs=self.graphs,
            queue=self.queue,
            compiling=self.compiling,
            hand=ceilings.hand(self.work),
            roofs=ceilings.figures(),
            energy=self.energy,
            timeline=joined.timeline,
            lines=joined.lines,
            notes=(*self.notes, *doubts, *joined.notes, *ledger_notes(programs, joined)),
            software=self.software,
            date=self.date,
            seconds=self.seconds + perf_counter() - begun,
        )

    def _programs(self) -> dict[str, Program]:
        if self.executable is None:
            return protos.carried(self.turns.trace)
        program = self.executable.program(self.turns.trace.platform)
        return {program.module.name: program}


def case_of(
    joined: Joined,
    programs: Mapping[str, Program],
    ceilings: Ceilings,
    trace: Trace,
    runs: Sequence[float],
    queue: int,
) -> Case:
    """Return what the causes of lost time are looked for in."""
    return Case(
        rows=joined.rows,
        programs=programs,
        ceilings=ceilings,
        platform=trace.platform,
        wall=statistics.median(runs),
        compiling=_compiling(trace, queue),
        processors=int(trace.facts.get("core_count", 0)),
        unsteady=statistics.median(runs) - min(runs),
    )


def dtypes(programs: Mapping[str, Program], trace: Trace) -> list[str]:
    """Return the types of the products in the programs that ran: a trace carries others too."""
    ran = {event.program for event in trace.events}
    types = (
        main_dtype(row.matrix_types)
        for name, program in programs.items()
        if name.partition("(")[0] in ran
        for row in program.rows.values()
    )
    return sorted({each for each in types if each is not None})


def _compiling(trace: Trace, queue: int) -> float:
    """Return the seconds of each call in which the host compiles."""
    inside = [
        span.end - span.start
        for span in trace.host
        if "backend_compile" in span.name
        and any(run.start <= span.start < run.end for run in trace.runs)
    ]
    return sum(inside) / max(len(trace.runs) * queue, 1)


def ledger_notes(programs: Mapping[str, Program], joined: Joined) -> list[str]:
    """Return what could not be known of the programs that ran, nor seen in the trace."""
    ran = dict.fromkeys(row.program for row in joined.rows if row.program in programs)
    loops = {row.name for row in joined.rows if row.kind == LOOP}
    seen = tuple(f"loop {name}{end}" for name in loops for end in (" (", ":"))
    notes = (note for name in ran for note in programs[name].ledger.notes)
    return list(dict.fromkeys(note for note in notes if not note.startswith(seen)))[:12]


def now() -> str:
    """Return the moment, as records say it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
