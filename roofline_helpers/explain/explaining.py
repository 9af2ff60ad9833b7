"""Explain a function: compile once, time it, trace it, join, and name what costs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from roofline_helpers import measure, show
from roofline_helpers._checks import BadType, flag, shown, single, text
from roofline_helpers.compiled import lowering
from roofline_helpers.compiled.analysis import refuse_ambiguous, turns_of
from roofline_helpers.compiled.arguments import Arguments
from roofline_helpers.compiled.targets import first_device
from roofline_helpers.explain import modelled, protos, running
from roofline_helpers.explain.ceilings import ceilings_of
from roofline_helpers.explain.energy import energy_of
from roofline_helpers.explain.explanation import Explanation
from roofline_helpers.explain.findings import findings
from roofline_helpers.explain.rows import join
from roofline_helpers.explain.running import UNGRAPHED, Runner
from roofline_helpers.explain.taken import Taken, case_of, dtypes, ledger_notes, now
from roofline_helpers.explain.trace import CannotProfile, Trace, read
from roofline_helpers.work import Work


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
    energy: bool = False,
    turns: Mapping[str, int] | None = None,
    trace: str | os.PathLike[str] | None = None,
    hlo: str | os.PathLike[str] | None = None,
    name: str | None = None,
    progress: bool = True,
    **kwargs: Any,
) -> Explanation:
    """Run a JAX function, and return where its time goes: kernel by kernel, and why.

    It is compiled once. The same executable is timed without the profiler, traced with it, and
    read: each kernel's time is joined with its FLOPs and bytes, its roof, and the line of code
    that it comes from.

    Parameters
    ----------
    fn : callable or path
        What `analyze` takes: a plain function, one that `jax.jit`, `equinox.filter_jit` or
        `flax.nnx.jit` made, or an executable (``.lower(…).compile()``). Or the folder of a trace
        from elsewhere (``jax.profiler.trace``), which needs no arguments.
    *args, **kwargs
        What it is called with: arrays, pytrees of them, Equinox and NNX modules.
    work : Work or sequence of Work, optional
        The same counted by hand: the waterfall then begins at its least time.
    chip : str, optional
        A TPU that need not be here, or a slice such as "v6e-8": the function is compiled for it,
        nothing runs, and every second is the model's. For a trace, the chip that it was made on,
        where it doesn't say.
    topology : str, optional
        Layout of those chips, as in `analyze`.
    jit : bool
        False calls the function as it is: programs that it calls one by one, transfers and the
        host's time show.
    static_argnums, static_argnames, donate_argnums : optional
        As for `jax.jit`; for a function that is jitted already, give them there.
    consume : bool
        Whether donated arguments may be used up. By default copies are, and the caller's stay.
    ceilings : measure.Record or Roofline, optional
        What the device reaches. By default what the chip table has of it; a CPU is measured.
    seconds : float
        About how long to time it without the profiler; with it takes about as long. Both are run
        in turn, up to four times, until the two agree within 3 %; no turn begins after three times
        as long.
    queue : int, optional
        Calls that are queued before one is awaited. By default 1 on a CPU, and elsewhere what
        takes some 20 ms, as in a loop that doesn't look at every result.
    energy : bool
        Whether to measure joules, for some 3 s more, where the device reports them.
    turns : mapping of str to int, optional
        How often loops turn whose trip counts neither the program nor a trace tells, as in
        `analyze`.
    trace : path, optional
        Folder to keep the trace in.
    hlo : path, optional
        For a trace from elsewhere: a folder of XLA's dumps, or the program as text.
    name : str, optional
        What to call it.
    progress : bool
        Whether to show on a terminal, in one line, what is being done.

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
        This device can't be profiled, the trace names nothing, or there is no room for it.
    BadType, BadValue, UnknownName
        An option outside what is allowed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> why = explain(lambda x: jnp.tanh(x @ x), jnp.ones((512, 512)))  # doctest: +SKIP
    >>> why.save("why.html")  # doctest: +SKIP
    """
    own = {key: value for key, value in locals().items() if key not in ("fn", "args", "kwargs")}
    refuse_ambiguous(explain, fn, args, own)
    for option, value in (("name", name), ("topology", topology)):
        if value is not None:
            text(option, value)
    options = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
    }
    task = Task(
        fn,
        Arguments(args, kwargs),
        _works(work),
        jit={option: value for option, value in options.items() if value is not None},
        compiled=flag("jit", jit),
        consume=flag("consume", consume),
        ceilings=ceilings,
        seconds=single("seconds", seconds),
        queue=running.check_calls(queue),
        energy=flag("energy", energy),
        turns=turns_of(turns),
        trace=None if trace is None else os.fspath(trace),
        name=name,
    )
    with show.progress(flag("progress", progress)) as say:
        if isinstance(fn, str | os.PathLike):
            return task.of_trace(Path(fn), hlo, chip)
        if not (callable(fn) or lowering.is_stage(fn)):
            raise BadType(f"the function must be callable, or a trace's folder, got {shown(fn)}")
        if chip is not None:
            asked = {"jit": task.jit, "turns": task.turns, "name": name}
            return modelled.explained(fn, task.arguments, chip, task.work, topology, **asked)
        if topology is not None:
            raise BadType("topology= is the layout of chips that need not be here: give chip= too")
        return task.measured(say)


def _works(given: Any) -> tuple[Work, ...]:
    works = given if isinstance(given, Sequence) else () if given is None else (given,)
    for each in works:
        if not isinstance(each, Work):
            raise BadType(f"work must be a Work (roofline_helpers.work), got {shown(each)}")
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
    energy: bool = False
    turns: Mapping[str, int] = field(default_factory=dict)
    trace: str | None = None
    name: str | None = None

    def measured(self, say: Callable[[str], None]) -> Explanation:
        """Run it here, and explain what it did."""
        taken = self.taken(say)
        say("reading, against the ceilings")
        return taken.explained()

    def taken(self, say: Callable[[str], None]) -> Taken:
        """Run it here, with and without the profiler, and return all that the device told."""
        begun = perf_counter()
        device = first_device()
        gpu = device.platform == "gpu"
        say("compiling")
        runner = self._runner(UNGRAPHED if gpu else {})
        say("running, with and without the profiler")
        one = min(runner.run(1) for _ in range(3))
        runs, queue = running.counts(one, self.seconds, self.queue, device.platform == "cpu")
        queue = 1 if runner.alone else queue
        traced = min(runs, 8 if gpu else 16)
        turns = running.in_turn(runner, runs, traced, queue, self.seconds, self.trace)
        say("CUDA graphs")
        graphs = self._graphed(runs, queue) if gpu and self.compiled and not runner.given else ()
        return Taken(
            name=self.name or runner.name,
            arguments=self.arguments.described(),
            device=device,
            called=str(device.device_kind) if gpu else measure.device()["name"],
            turns=turns,
            executable=protos.shown(runner.compiled, runner.calls, self.turns),
            work=self.work,
            ceilings=self.ceilings,
            graphs=graphs,
            queue=queue,
            compiling=runner.seconds,
            energy=energy_of(runner, queue) if self.energy else None,
            notes=tuple(runner.notes),
            software=measure.software(),
            date=now(),
            seconds=perf_counter() - begun,
        )

    def _runner(self, options: Mapping[str, str]) -> Runner:
        if self.compiled:
            return running.compiled_runner(self.fn, self.arguments, self.jit, options, self.consume)
        if self.jit:
            raise BadType(f"{', '.join(self.jit)} is for a function that is compiled: jit=True")
        return Runner(
            self.fn,
            self.arguments.positional,
            self.arguments.named,
            name=lowering.named(self.fn),
        )

    def _graphed(self, runs: int, queue: int) -> tuple[float, ...]:
        """Return the seconds of a call as JAX runs it by default on a GPU."""
        runner = self._runner({})
        running.plain(runner, 3, queue)
        return tuple(running.plain(runner, max(runs // 2, 3), queue))

    def of_trace(self, folder: Path, hlo: Any, chip: Any) -> Explanation:
        """Explain a trace from elsewhere."""
        if self.arguments.positional or self.arguments.named or self.turns:
            raise BadType("a trace is explained without arguments, and without turns")
        trace = read(folder)
        programs = protos.carried(trace)
        if hlo is not None:
            programs |= protos.dumped(hlo, trace.platform)
        if not programs:
            raise CannotProfile(
                f"{trace.file} carries no compiled program: give hlo=, a folder of XLA's dumps"
            )
        ceilings = ceilings_of(chip or _named(trace), dtypes(programs, trace), self.ceilings)
        joined = join(trace, programs, ceilings, self.queue or 1)
        windows = [run.end - run.start for run in trace.runs] or [
            sum(row.seconds for row in joined.rows)
        ]
        runs = tuple(each / (self.queue or 1) for each in windows)
        notes = list(joined.notes)
        if trace.platform == "tpu":
            notes.append("read by the documented format of a TPU's trace; nobody ran it here")
        if not trace.runs:
            notes.append(
                "no run is marked (jax.profiler.StepTraceAnnotation): all of the trace is one call"
            )
        return Explanation(
            name=self.name or folder.name,
            arguments=(),
            platform=trace.platform,
            device=_named(trace),
            origin="trace",
            rows=joined.rows,
            findings=findings(case_of(joined, programs, ceilings, trace, runs, 1)),
            runs=runs,
            traced=runs,
            queue=self.queue or 1,
            hand=ceilings.hand(self.work),
            roofs=ceilings.figures(),
            timeline=joined.timeline,
            lines=joined.lines,
            notes=(*notes, *ledger_notes(programs, joined)),
            date=now(),
        )


def _named(trace: Trace) -> str:
    """Return what a trace's device is called."""
    return trace.facts.get("gpu_device_name") or trace.facts.get("device_type") or trace.device
