"""Run a compiled function, with and without the profiler."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from roofline.diagnosis.trace import (
    RUN,
    CannotProfile,
    Trace,
    concatenated,
    read_trace,
    typical_runs,
)
from roofline.measure.timing import CannotRun, reason
from roofline.xla.analysis import captured_notes, futile_notes
from roofline.xla.buffers import buffers_at_peak, listing
from roofline.xla.compiler import executable_of
from roofline.xla.hlo import parse
from roofline.xla.lower import (
    Arguments,
    Lowered,
    function_name,
    is_compiled,
    is_of_nnx,
    lower,
    results_of,
)
from roofline.xla.pallas import PallasKernel
from roofline.xla.targets import chip_key, device_of, first_device, platform_of, quiet
from roofline_helpers.common.checks import BadType, BadValue, RooflineError

# --- Compile a function once, and run the same executable with and without the profiler ----------

UNGRAPHED: Mapping[str, str] = {"xla_gpu_enable_command_buffer": ""}
"""The compiler option that keeps a GPU's kernels out of CUDA graphs, in which the profiler can't
tell them apart."""


@dataclass
class Runner:
    """A call that can be repeated: of a compiled program, or of a function as it is.

    Parameters
    ----------
    call : callable
        The executable or the function.
    positional, named : tuple, dict
        Its arguments.
    donated : tuple of (int, int or None)
        Leaves of the arguments that a call consumes, each with the leaf of the result that replaces
        it at the next call; None if none does: then it is copied before every call.
    compiled : object or None
        The executable.
    seconds : float
        Time of tracing and compiling.
    calls : tuple of PallasKernel
        Its Pallas kernels, as traced.
    lowered : Lowered or None
        What it was compiled from, if it was compiled here.
    given : bool
        Whether the executable is the reader's own, so that its options can't change.
    copies : bool
        Whether donated arguments are copied first, so that the caller's stay valid.
    """

    call: Callable[..., Any]
    positional: tuple[Any, ...]
    named: Mapping[str, Any]
    donated: tuple[tuple[int, int | None], ...] = ()
    compiled: Any = None
    seconds: float = 0.0
    name: str = "function"
    calls: tuple[PallasKernel, ...] = ()
    lowered: Lowered | None = None
    given: bool = False
    copies: bool = True
    notes: list[str] = field(default_factory=list)
    _leaves: list[Any] = field(default_factory=list)
    _fresh: bool = False
    _tree: Any = None

    def __post_init__(self) -> None:
        import jax

        self._leaves, self._tree = jax.tree.flatten((self.positional, dict(self.named)))
        self._spent = {leaf: self._leaves[leaf] for leaf, back in self.donated if back is None}
        for leaf, _ in self.donated if self.copies else ():
            self._leaves[leaf] = _copied(self._leaves[leaf])

    def _once(self) -> Any:
        """Call it, and replace consumed arguments by results."""
        import jax

        positional, named = jax.tree.unflatten(self._tree, self._leaves)
        out = self.call(*positional, **named)
        if self.donated:
            results = jax.tree.leaves(out)
            for leaf, back in self.donated:
                if back is not None:
                    self._leaves[leaf] = results[back]
        return out

    def run(self, calls: int) -> float:
        """Return the seconds of so many calls, queued and then awaited.

        Raises
        ------
        CannotRun
            It fails; if for want of memory, the message says what fills it.
        """
        import jax

        try:
            calls = self._refreshed(calls)
            begun = perf_counter()
            for _ in range(calls):
                out = self._once()
            jax.block_until_ready(out)
            self._fresh = False
            return (perf_counter() - begun) / calls
        except Exception as error:
            message = f"{self.name} failed where it ran: {reason(error)}"
            if "RESOURCE_EXHAUSTED" in str(error) and self.compiled is not None:
                platform = platform_of(device_of(self.compiled))
                alive = buffers_at_peak(parse(self.compiled.as_text()), platform)
                message += f"\n{listing(alive)}"
            raise CannotRun(message) from error

    def _refreshed(self, calls: int) -> int:
        """Copy the donated arguments whose place no result takes, and return how many calls run.

        Then it is one call at a time. Outside of what is timed and traced: the copies aren't its
        own.
        """
        import jax

        if not self._spent:
            return calls
        if not self._fresh:
            for leaf, original in self._spent.items():
                self._leaves[leaf] = _copied(original)
            jax.block_until_ready([self._leaves[leaf] for leaf in self._spent])
            self._fresh = True
        return 1

    @property
    def alone(self) -> bool:
        """Whether its calls can't be queued: each needs fresh copies of its donated arguments."""
        return bool(self._spent)

    def traced(self, runs: int, calls: int, folder: str | None) -> tuple[Trace, list[float]]:
        """Return the trace of so many runs of so many calls each, and their times by the clock.

        Raises
        ------
        CannotProfile
            The profiler doesn't work here, or has no room.
        CannotRun
            The function fails.
        """
        import jax

        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with tempfile.TemporaryDirectory(prefix="roofline-trace-") as spare:
            where = Path(folder) if folder is not None else Path(spare)
            times = []
            try:
                where.mkdir(parents=True, exist_ok=True)
                with quiet():
                    jax.profiler.start_trace(str(where), profiler_options=options)
                try:
                    self.run(calls)  # the first one after the start is slow
                    for number in range(runs):
                        self._refreshed(calls)
                        with jax.profiler.StepTraceAnnotation(RUN, step_num=number):
                            times.append(self.run(calls))
                finally:
                    with quiet():
                        jax.profiler.stop_trace()
            except RooflineError:
                raise
            except Exception as error:
                message = f"the profiler can't trace into {where}: {reason(error)}"
                raise CannotProfile(message) from error
            return read_trace(where), times


def compiled_runner(
    fn: Any,
    arguments: Arguments,
    jit: Mapping[str, Any],
    options: Mapping[str, Any],
    consume: bool = False,
) -> Runner:
    """Return a runner of a function, or of an executable, compiled for this device.

    `jit` are options of `jax.jit` for a plain function, `options` the compiler's. Unless donated
    arguments may be consumed, copies are donated.

    Raises
    ------
    CannotTrace, CannotCompile
        JAX can't trace it with these arguments, or the compiler refuses it.
    BadType
        Options for a function that is jitted or compiled already.
    """
    name = function_name(fn)
    begun = perf_counter()
    given, seconds = is_compiled(fn), 0.0
    compiled = fn
    notes: list[str] = []
    calls: tuple[PallasKernel, ...] = ()
    known = None
    if given:
        _check_executable(fn, name)
    else:
        known = lower(fn, arguments, jit, advice=AS_IT_IS)
        compiled, arguments = executable_of(known, options), known.arguments
        seconds = perf_counter() - begun
        calls, notes = known.calls, list(futile_notes(known))
        notes += captured_notes(known, seconds)
        if is_of_nnx(fn):
            notes.append(
                "the executable is timed: nnx.jit's own work in Python before each call isn't in it"
            )
    positional, named = _dynamic(compiled, arguments, name)
    return Runner(
        compiled,
        positional,
        named,
        donated=_donated(compiled, positional, named),
        compiled=compiled,
        seconds=seconds,
        name=name,
        calls=calls,
        lowered=known,
        given=given,
        copies=not consume,
        notes=notes,
    )


AS_IT_IS = ". It needs values while it is traced: run it as it is with jit=False"


def _check_executable(compiled: Any, name: str) -> None:
    """Raise for an executable of another library, or for another device than the one here."""
    if not hasattr(compiled, "in_tree"):
        module = type(compiled).__module__.partition(".")[0]
        raise BadType(f"{name} is an executable of {module}: give the function that it was made of")
    target, here = device_of(compiled), first_device()
    if target.platform != here.platform:
        raise BadValue(
            f"the executable was compiled for {chip_key(target)}, and here is "
            f"{chip_key(here)}: give chip={chip_key(target)!r}, and nothing runs"
        )


def _dynamic(compiled: Any, arguments: Arguments, name: str) -> tuple[tuple[Any, ...], Any]:
    """Return the arguments that the executable takes: static ones are inside it already."""
    import jax

    wanted = compiled.in_tree
    positional, named = arguments.positional, dict(arguments.named)
    if jax.tree.structure((positional, named)) == wanted:
        return positional, named
    kept = tuple(value for value in positional if _is_dynamic(value))
    kept_named = {key: value for key, value in named.items() if _is_dynamic(value)}
    for choice in ((kept, kept_named), (kept, named), (positional, kept_named)):
        if jax.tree.structure(choice) == wanted:
            return choice
    raise BadType(
        f"{name} was compiled for other arguments, or which of them are static can't be told from "
        "their types: bind those first, jax.jit(functools.partial(fn, axis=1))"
    )


def _is_dynamic(value: Any) -> bool:
    import jax

    leaves = jax.tree.leaves(value)
    return all(hasattr(leaf, "dtype") or isinstance(leaf, float | complex) for leaf in leaves)


def _donated(
    compiled: Any, positional: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[int, int | None], ...]:
    """Return the leaves that a call consumes, each with the result that reuses its memory.

    As JAX pairs them: each result takes the first donated argument of its shape and type.
    """
    import jax

    infos = jax.tree.leaves(compiled.args_info, is_leaf=lambda info: hasattr(info, "donated"))
    leaves = jax.tree.leaves((positional, dict(named)))
    donated = [n for n, info in enumerate(infos) if info.donated and n < len(leaves)]
    results = results_of(compiled) if donated else []  # an old JAX's pmap doesn't know its own
    pairs: dict[int, int] = {}
    for number, result in enumerate(results):
        for leaf in donated:
            info = infos[leaf]
            same = tuple(info.shape) == tuple(result.shape) and info.dtype == result.dtype
            if same and leaf not in pairs:
                pairs[leaf] = number
                break
    return tuple((leaf, pairs.get(leaf)) for leaf in donated)


def _copied(leaf: Any) -> Any:
    import jax.numpy as jnp

    try:
        return jnp.array(leaf, copy=True)
    except Exception as error:
        if "RESOURCE_EXHAUSTED" in str(error) or isinstance(error, MemoryError):
            raise CannotRun(
                "no memory for a copy of the donated arguments, which a call uses up: give the "
                "originals away with consume=True"
            ) from error
        raise


def run_counts(call: float, seconds: float, queue: int | None, cpu: bool) -> tuple[int, int]:
    """Return the number of runs that take about so many `seconds`, and of queued calls in each.

    `call` are the seconds of one call, roughly. Without a `queue` that is one call on a CPU, the
    host itself, and elsewhere about 20 ms of calls.
    """
    if queue is None:
        queue = 1 if cpu else min(max(math.ceil(0.02 / call), 1), 16)
    runs = int(seconds / max(call * queue, 1e-9))
    return min(max(runs, 4), 40), queue


AGREE = 0.03
"""Share of a call by which its rows may differ from the clock before more runs are taken."""

_PARTS = 3
"""Number of rounds that share the requested runs."""

_MOST = 4
"""Most runs, as a multiple of the requested ones, until the two clocks agree."""


class TimedRuns(NamedTuple):
    """Seconds of a call without the profiler and with it, and the trace."""

    plain: tuple[float, ...]
    traced: tuple[float, ...]
    trace: Trace


def run_in_turn(
    runner: Runner, runs: int, traced: int, queue: int, seconds: float, folder: str | None = None
) -> TimedRuns:
    """Return runs without the profiler and with it, in turn, until the two agree.

    Other load on a machine changes from one second to the next, and should affect both clocks
    alike: a round is a third of the runs without the profiler and a third of those with it. If
    typical runs with it still differ by more than `AGREE` from the median without, more rounds
    follow.

    Parameters
    ----------
    runner : Runner
        The call to repeat.
    runs, traced : int
        How many to take, without the profiler and with it.
    queue : int
        Calls in each.
    seconds : float
        No round begins after three times that.
    folder : str, optional
        Where to save the trace: then there is one round.
    """
    begun = perf_counter()
    parts = 1 if folder is not None else _PARTS
    clock = [runner.run(queue) for _ in range(max(runs // (2 * parts), 1))]
    profiled: list[float] = []
    traces: list[Trace] = []
    while True:
        trace, times = runner.traced(max(traced // parts, 2), queue, folder)
        traces.append(trace)
        profiled += times
        clock += [runner.run(queue) for _ in range(max(runs // parts, 2))]
        goal = statistics.median(clock)
        near = statistics.fmean(profiled[n] for n in typical_runs(profiled, goal))
        late = perf_counter() - begun > 3 * seconds
        agree = len(traces) >= parts and abs(near / goal - 1) <= AGREE
        if folder is not None or late or agree or len(traces) == _MOST * parts:
            return TimedRuns(tuple(clock), tuple(profiled), concatenated(traces))
