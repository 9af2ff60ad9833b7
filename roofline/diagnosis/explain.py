"""Explain a function: compile once, time it, trace it, merge both, and name the causes."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline import terminal
from roofline.diagnosis.anew import compiled_anew, reasons_of
from roofline.diagnosis.ceilings import ceilings_of
from roofline.diagnosis.devices import number_of, rows_of_devices
from roofline.diagnosis.doubts import consistency_notes, ledger_notes, slowed, unsteady
from roofline.diagnosis.explanation import Explanation
from roofline.diagnosis.findings import Case, findings
from roofline.diagnosis.modelled import analyze, found_without_clock
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import in_graphs
from roofline.diagnosis.runner import UNGRAPHED, Runner, compiled_runner, run_counts, run_in_turn
from roofline.diagnosis.trace import Trace, program_of, programs_in, read_trace
from roofline.diagnosis.trace_steps import prepared
from roofline.measure.machine import device_facts, now, software_versions
from roofline.network.topology import slice_of
from roofline.xla.analysis import (
    NOT_REUSED,
    check_options,
    jit_options,
    needed_by,
    turns_of,
)
from roofline.xla.lower import Arguments, function_name, is_stage
from roofline.xla.roofs import main_dtype
from roofline.xla.targets import first_device, target_of
from roofline_helpers import chips
from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    UnknownName,
    flag,
    needed,
    shown,
    single,
    whole,
)
from roofline_helpers.measured.record import Record
from roofline_helpers.roofline import Roofline
from roofline_helpers.work import Work

if TYPE_CHECKING:
    from jax import Device

    from roofline_helpers.chips import Chip


def explain(
    fn: Any,
    *args: Any,
    work: Work | Sequence[Work] | None = None,
    chip: str | None = None,
    topology: str | None = None,
    jit: bool = True,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    consume: bool = False,
    ceilings: Record | Roofline | None = None,
    seconds: float = 1.0,
    queue: int | None = None,
    turns: Mapping[str, int] | None = None,
    trace: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: bool = True,
    **kwargs: Any,
) -> Any:
    """Run a JAX function, and return where its time goes: kernel by kernel, and why.

    The executable is timed without the profiler and traced with it, and its text is read: each
    kernel gets its time, FLOPs and bytes, its roof, and its line of code. With `chip` nothing runs,
    and this is `analyze`.

    Parameters
    ----------
    fn : callable or path
        As in `analyze`: a function, a result of `jax.jit`, `equinox.filter_jit` or `flax.nnx.jit`,
        an executable. Or the folder of a trace (``jax.profiler.trace``), whose complete steps are
        explained without arguments, on the device that waits longest for others, else the busiest.
    *args, **kwargs
        Its arguments: arrays, pytrees of them, Equinox and NNX modules.
    work : Work or sequence of Work, optional
        The same work counted by hand: the waterfall begins at its least time.
    chip : str, optional
        A TPU, or a slice such as "v6e-8", for which the function is compiled, as by `analyze`. For
        a trace, the chip that it was recorded on.
    topology : str, optional
        Layout of those chips, as in `analyze`.
    jit : bool
        False calls the function as it is: program by program, with transfers and the host's time.
        If a later call than the first compiles, the result says which argument changed.
    static_argnums, static_argnames, donate_argnums : optional
        As for `jax.jit`, for a function that isn't jitted already.
    consume : bool
        Whether donated arguments are given away. By default copies are.
    ceilings : Record or Roofline, optional
        The rates that the device reaches; by default those of the chip table, or of the CPU here,
        measured.
    seconds : float
        About how long to time it without the profiler; with it takes about as long. Both are
        repeated until they agree within 3%, for three times this at most.
    queue : int, optional
        Calls that are queued before one is awaited; by default 1 on a CPU, elsewhere 20 ms of them.
    turns : mapping of str to int, optional
        Trip counts of loops, as in `analyze`.
    trace : path, optional
        Folder to save the trace in.
    name : str, optional
        The name in the result.
    progress : bool
        Whether to show a status line on a terminal.

    Returns
    -------
    Explanation
        Of a run, or of a trace.
    Report
        With `chip`, of the compiled program.

    Raises
    ------
    CannotTrace, CannotCompile
        JAX can't trace it with these arguments, or the compiler refuses it.
    CannotRun
        It fails where it runs.
    CannotProfile
        No profiler for this device, no kernel in the trace, or no disk space for it.
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
    with terminal.progress(flag("progress", progress)) as say:
        if isinstance(fn, str | os.PathLike):
            return task.of_trace(Path(fn), chip)
        if not (callable(fn) or is_stage(fn)):
            raise BadType(f"the function must be callable, or a trace's folder, got {shown(fn)}")
        target = target_of(chip, topology)
        if target is not None:
            _check_nothing_runs(own)
            asked = {**target._asdict(), "turns": turns, "name": name}
            return analyze(fn, *args, **asked, **jit_options(own), **kwargs)
        return task.measured(say)


FOR_A_RUN = ("work", "jit", "consume", "ceilings", "queue", "trace")
"""Options that say nothing of a program that only is compiled."""


def _check_nothing_runs(own: Mapping[str, Any]) -> None:
    usual = inspect.signature(explain).parameters
    given = [f"{name}=" for name in FOR_A_RUN if own[name] != usual[name].default]
    if given:
        raise BadType(f"{', '.join(given)} is for a run, not for a chip: leave chip= out")


def _as_works(given: object) -> tuple[Work, ...]:
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
    ceilings: object = None
    seconds: float = 1.0
    queue: int | None = None
    turns: Mapping[str, int] = field(default_factory=dict)
    trace: str | None = None
    name: str | None = None

    def measured(self, say: Callable[[str], None]) -> Explanation:
        """Run it here, with and without the profiler, and say where the time goes."""
        shape = self.arguments.first(lambda array: not hasattr(array, "__array__"))
        if shape:
            raise BadType(f"{shape} is a shape, which is enough with chip=; to run it, give arrays")
        deleted = self.arguments.first(lambda array: getattr(array, "is_deleted", bool)())
        if deleted:
            raise BadValue(
                f"{deleted} was deleted: it was donated to an earlier call. Make it anew; with "
                "chip= its shape is enough"
            )
        device = first_device()
        gpu = device.platform == "gpu"
        say("compiling")
        runner = self._runner(UNGRAPHED if gpu else {})
        say("running, with and without the profiler")
        with compiled_anew() as said:
            first = runner.run(1)
            said.clear()  # the first call compiles all
            call = min(first, runner.run(1), runner.run(1))
        runs, queue = run_counts(call, self.seconds, self.queue, device.platform == "cpu")
        queue = 1 if runner.alone else queue
        traced = min(runs, 8 if gpu else 16)
        timed = run_in_turn(runner, runs, traced, queue, self.seconds, self.trace)
        graphed = gpu and self.compiled and not runner.given
        usual = self._graphed(runs, queue, say) if graphed else ()
        say("reading, against the ceilings")
        trace = timed.trace
        programs = programs_in(trace)
        if runner.compiled is not None:
            program = program_of(runner.compiled, trace.platform, runner.calls, self.turns)
            if runner.lowered is not None:
                program = replace(program, written=runner.lowered.written)
            programs = {program.module.name: program}
        run = Explanation(
            name=self.name or runner.name,
            arguments=self.arguments.described(),
            platform=trace.platform,
            device=str(device.device_kind) if gpu else device_facts()["name"],
            origin="measured",
            runs=usual or timed.plain,
            traced=timed.traced,
            ungraphed=timed.plain if usual else (),
            queue=queue,
            withheld=slowed(trace, timed.plain, timed.traced, queue),
            needed=None if runner.lowered is None else needed_by(runner.lowered, self.turns),
            compiling=runner.seconds,
            notes=tuple(runner.notes),
            software=software_versions(),
        )
        goal = statistics.median(timed.plain)
        busy = unsteady(timed.plain) if trace.platform == "cpu" else ""
        anew = reasons_of(said)
        return self.of_run(run, trace, programs, device, goal=goal, busy=busy, anew=anew)

    def of_run(
        self,
        run: Explanation,
        trace: Trace,
        programs: Mapping[str, Program],
        device: Device | Chip | str,
        *,
        goal: float | None = None,
        busy: str = "",
        anew: tuple[str, ...] = (),
    ) -> Explanation:
        """Return the explanation of a traced run with its programs, under its device's ceilings."""
        ceilings = ceilings_of(device, dtypes(programs, trace), self.ceilings)
        devices = rows_of_devices(trace, programs, ceilings, run.queue, goal)
        rows = in_graphs(devices.rows, run.wall) if run.ungraphed else devices.rows
        case = Case(
            rows=rows,
            programs=programs,
            ceilings=ceilings,
            platform=trace.platform,
            wall=run.wall,
            compiling=_compiling(trace, run.queue),
            anew=anew,
            processors=int(trace.facts.get("core_count", 0)),
            unsteady=run.wall - min(run.runs),
            by_device={str(number_of(name)): rows for name, rows in devices.by_device.items()},
        )
        notes = (
            *run.notes,
            *consistency_notes(devices.rows),
            *devices.notes,
            *(f"compiled anew, not in each call: {why}" for why in anew if not case.compiling),
            *ledger_notes(programs, devices.rows),
        )
        run = replace(run, notes=notes, date=now(), devices=devices.times)
        return diagnosed(run, case, self.work, busy=busy)

    def _runner(self, options: Mapping[str, str]) -> Runner:
        if self.compiled:
            return compiled_runner(self.fn, self.arguments, self.jit, options, self.consume)
        if self.jit:
            raise BadType(f"{', '.join(self.jit)} is for a function that is compiled: jit=True")
        arguments, name = self.arguments, function_name(self.fn)
        return Runner(self.fn, arguments.positional, arguments.named, name=name)

    def _graphed(self, runs: int, queue: int, say: Callable[[str], None]) -> tuple[float, ...]:
        """Return the seconds of a call as JAX runs it by default on a GPU."""
        say("running in CUDA graphs")
        runner = self._runner({})
        times = [runner.run(queue) for _ in range(3 + max(runs // 2, 3))]
        return tuple(times[3:])  # the first ones record the graphs

    def of_trace(self, folder: Path, chip: str | None) -> Explanation:
        """Explain a trace from elsewhere."""
        if self.arguments.positional or self.arguments.named or self.turns:
            raise BadType("a trace is explained without arguments, and without turns")
        trace = read_trace(folder)
        known = None if chip is None else slice_of(chip)[0]
        if known is not None and known.kind != trace.platform:
            raise BadValue(f"the trace is of a {trace.platform.upper()}, and chip= is {known.name}")
        name, maybe = _device_name(trace), [] if known is not None else _chips_of(trace)
        programs = programs_in(trace)
        trace, notes = prepared(trace, programs)
        if maybe:
            known, *others = maybe
            name = name if name in known.device_kinds else known.name
            listed = ", ".join(chip.key for chip in others)
            if others:
                notes.append(f"the trace's device may also be {listed}: chip= says so")
        hosts = len(list(trace.file.parent.glob("*.xplane.pb")))
        if hosts > 1 and folder.is_dir():
            notes.append(f"{trace.file.name} is one of {hosts} traces there: name another's file")
        if not programs:
            notes.append(
                "the trace carries no compiled program (HLO), so kernels have no FLOPs, bytes, "
                "roof or line"
            )
        if trace.platform == "tpu":
            notes.append("a TPU's trace: reading them was tried on one of a single v6e")
        queue = self.queue or 1
        runs = tuple(run.seconds / queue for run in trace.runs)
        run = Explanation(
            name=self.name or folder.name,
            arguments=(),
            platform=trace.platform,
            device=name,
            origin="trace",
            runs=runs,
            traced=runs,
            queue=queue,
            notes=tuple(notes),
        )
        return self.of_run(run, trace, programs, known or name)


def _device_name(trace: Trace) -> str:
    """Return the name of a trace's device."""
    named = (trace.facts.get(key) for key in ("gpu_device_name", "device_type_string"))
    return next(filter(None, named), trace.device)


def _chips_of(trace: Trace) -> list[Chip]:
    """Return the chips that a trace's device may be: one, if its name or its facts say which.

    AMD's profiler writes no name: only the version of its instruction set, memory and clock.
    """
    name, facts = _device_name(trace), trace.facts
    with contextlib.suppress(UnknownName):
        return _by_facts([chips.chip(name), *chips.namesakes(name)], facts)
    if facts.get("device_vendor") != "AMD":
        return []
    version = f"gfx{facts.get('compute_cap_major')}{facts.get('compute_cap_minor')}"
    same = [chip for chip in chips.all_chips() if chip.architecture.startswith(version)]
    same.sort(key=lambda chip: chip.architecture not in chip.aliases)
    return _by_facts(same, facts)


def _by_facts(fitting: list[Chip], facts: Mapping[str, str]) -> list[Chip]:
    """Return those chips whose memory and clock are as stated; all if none is."""

    def own(chip: Chip) -> dict[str, float]:
        clock = chip.clock.value if chip.clock else math.inf
        memory = chip.memory["hbm"].capacity.value / chip.devices
        return {"memory_size": memory, "clock_rate": clock / 1e3}

    for said in ("memory_size", "clock_rate"):
        stated = float(facts.get(said, 0))
        near = [chip for chip in fitting if abs(stated / own(chip)[said] - 1) < 0.03]
        fitting = near or fitting
    return fitting


# --- From a run to its explanation ---------------------------------------------------------------


def diagnosed(run: Explanation, case: Case, work: Sequence[Work], busy: str = "") -> Explanation:
    """Return what is known of a run with its rows, roofs and findings.

    `busy` says why only a cause that dominates counts. Where shares of the call are `withheld`, the
    findings are those of its compiled programs, which need no clock.
    """
    unused = [note for note in run.notes if note.startswith(NOT_REUSED)]
    notes = [note for note in run.notes if note not in unused]
    case = replace(case, unused=tuple(note.removeprefix(NOT_REUSED) for note in unused))
    found, withheld = findings(case), run.withheld
    compiled_anew = tuple(finding for finding in found if finding.cause == "compiling")
    if busy:  # what dominates a call does so at any moment
        second = found[1].seconds if len(found) > 1 else 0.0
        # other programs on the same cores may make kernels three times as long, but not more
        least = 0.3 if found[0].named else 0.7
        if found[0].seconds > max(least * case.wall, 2 * second):
            found = found[:1]
            notes.append(busy)
        else:
            withheld = withheld or busy
    if withheld and compiled_anew:  # whatever slows a call, it does that in each
        found, withheld = compiled_anew, ""
    found = found_without_clock(case) if withheld else found
    said = {finding.evidence for finding in found}
    notes += [note for note in unused if note.removeprefix(NOT_REUSED) not in said]
    return replace(
        run,
        rows=case.rows,
        findings=found,
        expected=case.ceilings.expected(case.rows),
        hand=case.ceilings.hand(work),
        roofs=case.ceilings.roofs,
        notes=tuple(notes),
        withheld=withheld,
    )


def dtypes(programs: Mapping[str, Program], trace: Trace) -> list[str]:
    """Return the types of matmuls in the programs that ran: a trace carries others too."""
    ran = {event.program for event in trace.events}
    types = set()
    for name, program in programs.items():
        if name.partition("(")[0] in ran:
            types |= {main_dtype(kernel.matrix_types) for kernel in program.rows.values()}
    return sorted(dtype for dtype in types if dtype is not None)


def _compiling(trace: Trace, queue: int) -> float:
    """Return the seconds of each call in which the host compiles."""
    inside = (
        span.seconds
        for span in trace.host
        if any(run.start <= span.start < run.end for run in trace.runs)
    )
    return sum(inside) / max(len(trace.runs) * queue, 1)
