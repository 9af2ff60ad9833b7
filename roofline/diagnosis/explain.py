"""Explain a function: compile once, time it, trace it, merge both, and name the causes."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from roofline.diagnosis.ceilings import Ceilings, ceilings_of
from roofline.diagnosis.devices import joined, number_of
from roofline.diagnosis.explanation import Explanation
from roofline.diagnosis.findings import Case, Finding, findings
from roofline.diagnosis.findings.idle import COMPILING
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import KERNEL, LOOP, TimedRow, with_program
from roofline.diagnosis.runner import (
    UNGRAPHED,
    Runner,
    compiled_runner,
    run_counts,
    run_in_turn,
)
from roofline.diagnosis.trace import Trace, program_of, programs_in, read_trace
from roofline.diagnosis.trace_steps import prepared
from roofline.measure.machine import busy, device_facts, now, software_versions
from roofline.network.topology import slice_of
from roofline.xla.analysis import (
    NOT_REUSED,
    check_options,
    jit_options,
    report_of,
    turns_of,
)
from roofline.xla.arrays import memory_notes
from roofline.xla.expected import Expected
from roofline.xla.kernel import CompiledKernel, main_dtype
from roofline.xla.lower import Arguments, function_name, is_stage
from roofline.xla.report import Report
from roofline.xla.targets import (
    NoCompiler,
    assumed_vector_peak,
    can_compile,
    first_device,
)
from roofline_helpers import chips
from roofline_helpers.common import show
from roofline_helpers.common.checks import BadType, BadValue, flag, needed, shown, single, whole
from roofline_helpers.common.show import si
from roofline_helpers.work import Work

BEATEN = 1.2
"""A kernel that is faster than its roof by this factor means that the roof is wrong."""


def consistency_notes(rows: Sequence[TimedRow]) -> tuple[str, ...]:
    """Return a note if kernels ran faster than the device's reached ceilings."""
    held = [row for row in rows if row.kind == KERNEL and row.reachable]
    fast = [row for row in held if row.seconds * BEATEN < (row.reachable or 0.0)]
    took = sum(row.seconds for row in fast)
    if took <= 0.05 * sum(row.seconds for row in held):
        return ()
    return (
        f"{len(fast)} of {len(held)} kernels, {si(took, 's')} of the call, run more than "
        f"{BEATEN} times as fast as their roof: the ceilings were measured at a worse "
        "moment than the kernels, or more work was counted than they do; give ceilings= from a "
        "quiet moment",
    )


# --- From rows to an explanation -----------------------------------------------------------------


def explained(
    case: Case,
    work: Sequence[Work],
    expected: Expected | None = None,
    *,
    notes: Sequence[str],
    withheld: str = "",
    busy: str = "",
    **run: Any,
) -> Explanation:
    """Return a case as an explanation; `run` holds its further fields.

    `withheld` says why nothing can be said about causes, `busy` why only about one that dominates.
    """
    unused = [note for note in notes if note.startswith(NOT_REUSED)]
    told = [note for note in notes if note not in unused]
    case = replace(case, unused=tuple(note.removeprefix(NOT_REUSED) for note in unused))
    found = findings(case)
    compiled_anew = tuple(each for each in found if each.cause == COMPILING.key)
    if busy:  # what dominates a call does so at any moment
        if found[0].named and found[0].seconds > max(0.3 * case.wall, 2 * _second(found)):
            found = found[:1]
            told.append(busy)
        else:
            withheld = withheld or busy
    if withheld and compiled_anew:  # whatever slows a call, it does that in each
        found, withheld = compiled_anew, ""
    if withheld:  # no finding says it then
        told += unused
    return Explanation(
        platform=case.platform,
        rows=case.rows,
        findings=() if withheld else found,
        expected=expected or case.ceilings.expected(case.rows),
        hand=case.ceilings.hand(work),
        roofs=case.ceilings.figures(),
        notes=tuple(told),
        withheld=withheld,
        **run,
    )


def _second(found: Sequence[Finding]) -> float:
    return found[1].seconds if len(found) > 1 else 0.0


SLOWED = 2.0
"""A profiler that makes a call longer than this many times shows its own time, not the call's."""

SPREAD = 1.2
"""Calls on a CPU whose median is this many times the fastest share it with other work."""


def slowed(trace: Trace, plain: Sequence[float], traced: Sequence[float], queue: int) -> str:
    """Return why a trace says nothing about the call: the profiler's own time; empty if it does.

    Parameters
    ----------
    trace : Trace
        Of the calls with the profiler.
    plain, traced : sequence of float
        Seconds of a call, run by run: without the profiler, and with it.
    queue : int
        Calls in each run.
    """
    alone, watched = statistics.median(plain), statistics.median(traced)
    if watched > SLOWED * alone:
        calls = max(len(trace.runs) * queue, 1)
        return (
            f"the profiler makes a call {watched / alone:.1f} times as long ({si(watched, 's')} "
            f"instead of {si(alone, 's')}), and writes down {len(trace.events) / calls:,.0f} "
            "launches in each: what it shows is mostly its own time, so shares are withheld"
        )
    return ""


def unsteady(plain: Sequence[float]) -> str:
    """Return why the calls of a CPU, in seconds, don't suffice for a diagnosis; empty if they do.

    Then another run may name other causes, unless one of them dominates.
    """
    spread, others = statistics.median(plain) / min(plain), list(busy())
    if spread <= SPREAD and not others:
        return ""
    return (
        f"this machine is too busy: half of the calls take {spread:.2f} times the fastest or "
        f"more{''.join(f' ({note})' for note in others)}; explain it again when nothing else runs"
    )


def dtypes(programs: Mapping[str, Program], trace: Trace) -> list[str]:
    """Return the types of matmuls in the programs that ran: a trace carries others too."""
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
    inside = (
        span.seconds
        for span in trace.host
        if any(run.start <= span.start < run.end for run in trace.runs)
    )
    return sum(inside) / max(len(trace.runs) * queue, 1)


def ledger_notes(programs: Mapping[str, Program], rows: Sequence[TimedRow]) -> list[str]:
    """Return the programs' notes, without those that the trace answers."""
    ran = dict.fromkeys(row.program for row in rows if row.program in programs)
    loops = {row.name for row in rows if row.kind == LOOP}
    seen = tuple(f"loop {name}{end}" for name in loops for end in (" (", ":"))
    each = [programs[name] for name in ran]
    notes = [note for one in each for note in memory_notes(one.module, one.ledger.rows)]
    notes += [note for one in each for note in one.ledger.notes]
    return list(dict.fromkeys(note for note in notes if not note.startswith(seen)))[:12]


# --- Without a run: the compiled program alone, for a chip that is not here ----------------------


class Ahead(NamedTuple):
    """A compiled kernel, the seconds that the call waits for it, and those to expect of it."""

    kernel: CompiledKernel
    exposed: float
    seconds: float


def case_ahead(
    program: Program, ceilings: Ceilings, floor: float = 0.0, report: Report | None = None
) -> Case:
    """Return a program that didn't run as a case for findings: rows take their roofs' times.

    Where the compiler's cycles are longer than the roof they count, as `analyze` prints them.
    Asynchronous copies and exchanges are assumed to be hidden. With a report, rows take no less
    than it counts for their kernels and for all together: an exchange takes the time of its links,
    less the part that other kernels hide. `high` holds the seconds if data choose more bytes.
    """
    counted: dict[str, list[Ahead]] = {}
    if report is not None:
        waits = report.timeline.exposed
        for kernel, exposed, takes in zip(report.kernels, waits, report.likely, strict=True):
            counted.setdefault(kernel.name, []).append(Ahead(kernel, exposed, takes.good))
    rows = [_row(name, program, ceilings, floor, counted.get(name, [])) for name in program.rows]
    # All kernels share one memory: a program takes at least the time of all its bytes, so other
    # kernels can't hide the bytes of asynchronous copies
    hidden = math.fsum(row.busy - row.seconds for row in rows if row.kernel.overlaps)
    if report is not None and report.expected is not None and hidden:
        bound = (report.time_at_roof or 0.0) - math.fsum(row.least or 0.0 for row in rows)
        more = report.expected.seconds - math.fsum(row.seconds for row in rows)

        def waited(row: TimedRow, left: float) -> float:
            return max(left, 0.0) / hidden * (row.busy - row.seconds) + row.seconds

        rows = [
            _lasting(row, waited(row, more), waited(row, bound)) if row.kernel.overlaps else row
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
    name: str,
    program: Program,
    ceilings: Ceilings,
    floor: float,
    counted: Sequence[Ahead],
) -> TimedRow:
    kernel = program.rows[name]
    bare = TimedRow(name, launches=float(kernel.launches), program=program.module.name)
    row = with_program(bare, program, ceilings)
    least = sum(each.kernel.roof_seconds or 0.0 for each in counted)
    most = sum(each.kernel.most_seconds or 0.0 for each in counted)
    limits = dict.fromkeys(each.kernel.limits for each in counted if each.kernel.limits)
    if kernel.overlaps:
        exposed = sum(each.exposed for each in counted)
        row = _lasting(row, exposed, exposed)
    else:
        reachable = max(row.reachable or 0.0, least)
        takes = sum(each.seconds for each in counted) if counted else floor * kernel.launches
        row = replace(row, seconds=max(reachable, takes))
        if not kernel.untimed:
            row = replace(row, least=least or row.least, reachable=reachable)
    busy = max(row.seconds, least)
    limit = row.limit if kernel.untimed else " or ".join(limits) or row.limit
    high = busy if math.isinf(most) else max(busy, most)
    return replace(row, busy=busy, low=busy, high=high, limit=limit)


def _lasting(row: TimedRow, seconds: float, least: float) -> TimedRow:
    """Return a row of an asynchronous copy or exchange that shows for so many seconds."""
    return replace(row, seconds=seconds, least=least, reachable=max(seconds, least))


def explain(
    fn: Any,
    *args: Any,
    work: Work | Sequence[Work] | None = None,
    chip: Any = None,
    topology: str | None = None,
    jit: bool = True,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    consume: bool = False,
    ceilings: Any = None,
    seconds: float = 1.0,
    queue: int | None = None,
    turns: Mapping[str, int] | None = None,
    trace: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: bool = True,
    **kwargs: Any,
) -> Explanation:
    """Run a JAX function, and return where its time goes: kernel by kernel, and why.

    It is compiled once. The same executable is timed without the profiler, traced with it, and its
    text is read: each kernel gets its time, FLOPs and bytes, its roof, and its line of code.

    Parameters
    ----------
    fn : callable or path
        As in `analyze`: a plain function, a result of `jax.jit`, `equinox.filter_jit` or
        `flax.nnx.jit`, or an executable (``.lower(…).compile()``). Or the folder of a trace from
        elsewhere (``jax.profiler.trace``), which needs no arguments: its complete steps are
        explained, on the device that waits longest for others, else the busiest.
    *args, **kwargs
        Its arguments: arrays, pytrees of them, Equinox and NNX modules.
    work : Work or sequence of Work, optional
        The same work counted by hand: the waterfall then begins at its least time.
    chip : str, optional
        A TPU that need not be here, or a slice such as "v6e-8": the function is compiled for it,
        nothing runs, and all times are modelled. For a trace that doesn't name its chip, the chip
        it was recorded on.
    topology : str, optional
        Layout of those chips, as in `analyze`.
    jit : bool
        False calls the function as it is: the programs that it calls one by one, transfers and the
        host's time are visible.
    static_argnums, static_argnames, donate_argnums : optional
        As for `jax.jit`; for a function that is jitted already, give them there.
    consume : bool
        Whether donated arguments may be consumed. By default copies are donated.
    ceilings : device.Record or Roofline, optional
        The rates that the device reaches. By default those of the chip table; a CPU is measured.
    seconds : float
        About how long to time it without the profiler; with it takes about as long. Both are run
        in turn, up to four times, until they agree within 3%; no round begins after three times
        this.
    queue : int, optional
        Calls that are queued before one is awaited. By default 1 on a CPU, and elsewhere about
        20 ms of calls, as in a loop that doesn't look at every result.
    turns : mapping of str to int, optional
        Trip counts of loops whose count neither the program nor a trace states, as in `analyze`.
    trace : path, optional
        Folder to save the trace in.
    name : str, optional
        The name in the result.
    progress : bool
        Whether to show a status line on a terminal.

    Returns
    -------
    Explanation

    Raises
    ------
    CannotTrace, CannotCompile
        JAX can't trace it with these arguments, or the compiler refuses it.
    CannotRun
        It fails where it runs.
    CannotProfile
        This device can't be profiled, the trace names no kernel, or there is no disk space for it.
    BadType, BadValue, UnknownName
        An option outside what is allowed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> why = explain(lambda x: jnp.tanh(x @ x), jnp.ones((512, 512)))  # doctest: +SKIP
    >>> why.save("why.html")  # doctest: +SKIP
    """
    own = {key: value for key, value in locals().items() if key not in ("fn", "args", "kwargs")}
    needed("explain", "jax")
    check_options(explain, fn, args, own)
    task = Task(
        fn,
        Arguments(args, kwargs),
        _as_works(work),
        jit=jit_options(own),
        compiled=flag("jit", jit),
        consume=flag("consume", consume),
        ceilings=ceilings,
        seconds=single("seconds", seconds),
        queue=None if queue is None else whole("queue", queue),
        turns=turns_of(turns),
        trace=None if trace is None else os.fspath(trace),
        name=name,
    )
    with show.progress(flag("progress", progress)) as say:
        if isinstance(fn, str | os.PathLike):
            return task.of_trace(Path(fn), chip)
        if not (callable(fn) or is_stage(fn)):
            raise BadType(f"the function must be callable, or a trace's folder, got {shown(fn)}")
        if chip is not None:
            return task.ahead(chip, topology)
        if topology is not None:
            raise BadType("topology= is the layout of chips that need not be here: give chip= too")
        return task.measured(say)


def _as_works(given: Any) -> tuple[Work, ...]:
    works = given if isinstance(given, Sequence) else () if given is None else (given,)
    for work in works:
        if not isinstance(work, Work):
            raise BadType(f"work must be a Work (roofline_helpers.work), got {shown(work)}")
    return tuple(works)


@dataclass(frozen=True)
class Task:
    """A function to explain, and how."""

    fn: Any
    arguments: Arguments
    work: tuple[Work, ...]
    jit: Mapping[str, Any] = field(default_factory=dict)
    compiled: bool = True
    consume: bool = False
    ceilings: Any = None
    seconds: float = 1.0
    queue: int | None = None
    turns: Mapping[str, int] = field(default_factory=dict)
    trace: str | None = None
    name: str | None = None

    def measured(self, say: Callable[[str], None]) -> Explanation:
        """Run it here, with and without the profiler, and say where the time goes."""
        if any(not hasattr(each, "__array__") for each in self.arguments.arrays):
            raise BadType("shapes are enough with chip=; to run a function, give it arrays")
        gone = [each for each in self.arguments.arrays if getattr(each, "is_deleted", bool)()]
        if gone:
            raise BadValue(
                f"an argument of shape {gone[0].shape} was deleted: it was donated to an earlier "
                "call. Make it anew; with chip= its shape is enough"
            )
        device = first_device()
        gpu = device.platform == "gpu"
        say("compiling")
        runner = self._runner(UNGRAPHED if gpu else {})
        say("running, with and without the profiler")
        one = min(runner.run(1) for _ in range(3))
        runs, queue = run_counts(one, self.seconds, self.queue, device.platform == "cpu")
        queue = 1 if runner.alone else queue
        traced = min(runs, 8 if gpu else 16)
        turns = run_in_turn(runner, runs, traced, queue, self.seconds, self.trace)
        graphed = gpu and self.compiled and not runner.given
        graphs = self._graphed(runs, queue, say) if graphed else ()
        say("reading, against the ceilings")
        trace = turns.trace
        programs = programs_in(trace)
        if runner.compiled is not None:
            program = program_of(runner.compiled, trace.platform, runner.calls, self.turns)
            programs = {program.module.name: program}
        return self._traced(
            trace,
            programs,
            device,
            statistics.median(turns.plain),
            name=self.name or runner.name,
            arguments=self.arguments.described(),
            device=str(device.device_kind) if gpu else device_facts()["name"],
            origin="measured",
            runs=turns.plain,
            traced=turns.traced,
            graphs=graphs,
            queue=queue,
            withheld=slowed(trace, turns.plain, turns.traced, queue),
            busy=unsteady(turns.plain) if trace.platform == "cpu" else "",
            compiling=runner.seconds,
            notes=runner.notes,
            software=software_versions(),
        )

    def _traced(
        self,
        trace: Trace,
        programs: Mapping[str, Program],
        chip: Any,
        goal: float | None = None,
        **run: Any,
    ) -> Explanation:
        """Return the explanation of a trace with its programs, under its device's ceilings."""
        runs, queue = run["runs"], run["queue"]
        ceilings = ceilings_of(chip, dtypes(programs, trace), self.ceilings)
        all_devices = joined(trace, programs, ceilings, queue, goal)
        rows, wall = all_devices.rows, statistics.median(runs)
        case = Case(
            rows=rows,
            programs=programs,
            ceilings=ceilings,
            platform=trace.platform,
            wall=wall,
            compiling=_compiling(trace, queue),
            processors=int(trace.facts.get("core_count", 0)),
            unsteady=wall - min(runs),
            by_device={str(number_of(name)): r for name, r in all_devices.by_device.items()},
        )
        notes = (*consistency_notes(rows), *all_devices.notes, *ledger_notes(programs, rows))
        run |= {"notes": (*run["notes"], *notes), "date": now(), "devices": all_devices.times}
        return explained(case, self.work, **run)

    def _runner(self, options: Mapping[str, str]) -> Runner:
        if self.compiled:
            return compiled_runner(self.fn, self.arguments, self.jit, options, self.consume)
        if self.jit:
            raise BadType(f"{', '.join(self.jit)} is for a function that is compiled: jit=True")
        return Runner(
            self.fn,
            self.arguments.positional,
            self.arguments.named,
            name=function_name(self.fn),
        )

    def _graphed(self, runs: int, queue: int, say: Callable[[str], None]) -> tuple[float, ...]:
        """Return the seconds of a call as JAX runs it by default on a GPU."""
        say("running in CUDA graphs")
        runner = self._runner({})
        times = [runner.run(queue) for _ in range(3 + max(runs // 2, 3))]
        return tuple(times[3:])

    def ahead(self, chip: Any, topology: str | None) -> Explanation:
        """Compile it for a chip that is not here, and explain its kernels' modelled times.

        The seconds of a row are those of its roof, or of the compiler's cycles where those are
        longer, but no kernel and no iteration of a loop takes
        less than the floor that verdicts assume, and the call no less than `analyze` counts for it.
        A finding's seconds are the reduction of the roof's.
        """
        if self.ceilings is not None or self.trace or not self.compiled:
            raise BadType("ceilings=, trace= and jit=False are for a run: leave chip= out")
        key, layout = slice_of(chip)
        known = chips.chip(key)
        missing = can_compile(known)
        if missing is not None:
            raise NoCompiler(missing)
        place = self.jit, topology or layout, self.turns, self.name
        report, module = report_of(self.fn, self.arguments, known, *place)
        program = Program(module, report.platform, calls=report.calls, turns=self.turns)
        floor = report.floor or 0.0
        notes = [
            "nothing ran: a row's seconds are those of its reached roof or, if they are longer, "
            "the compiler's cycles",
            f"a kernel without cycles, and each iteration of its loop, takes {si(floor, 's')} at "
            "least: the shortest matmul published for a TPU",
        ]
        assumed, vector = assumed_vector_peak(known), None
        if assumed is not None:
            vector, how = assumed
            notes.append(f"vector work at {si(vector, 'FLOP/s')}, which nobody publishes: {how}")
        case = case_ahead(program, Ceilings(known.per_device(), None, vector), floor, report)
        return explained(
            case,
            self.work,
            report.expected,
            name=report.name,
            arguments=report.arguments,
            device=known.name,
            origin="modelled",
            runs=(case.wall,),
            compiling=report.compiling,
            notes=(*notes, *report.notes),
            software={"jax": report.jax_version, "compiler": report.compiler},
        )

    def of_trace(self, folder: Path, chip: Any) -> Explanation:
        """Explain a trace from elsewhere."""
        if self.arguments.positional or self.arguments.named or self.turns:
            raise BadType("a trace is explained without arguments, and without turns")
        trace = read_trace(folder)
        known = None if chip is None else chips.chip(slice_of(chip)[0])
        if known is not None and known.kind != trace.platform:
            raise BadValue(f"the trace is of a {trace.platform.upper()}, and chip= is {known.name}")
        programs = programs_in(trace)
        trace, notes = prepared(trace, programs)
        hosts = len(list(trace.file.parent.glob("*.xplane.pb")))
        if hosts > 1 and folder.is_dir():
            notes.append(f"{trace.file.name} is one of {hosts} traces there: name another's file")
        if not programs:
            notes.append(
                "the trace carries no compiled program (HLO), so kernels have no FLOPs, bytes, "
                "roof or line"
            )
        queue = self.queue or 1
        runs = tuple(run.seconds / queue for run in trace.runs)
        if trace.platform == "tpu":
            notes.append("a TPU's trace: reading them was tried on one of a single v6e")
        return self._traced(
            trace,
            programs,
            known or _named(trace),
            name=self.name or folder.name,
            arguments=(),
            device=_named(trace),
            origin="trace",
            runs=runs,
            traced=runs,
            queue=queue,
            notes=notes,
        )


def _named(trace: Trace) -> str:
    """Return the name of a trace's device."""
    named = (trace.facts.get(key) for key in ("gpu_device_name", "device_type_string"))
    return next(filter(None, named), trace.device)
