"""The clock: seconds of one call of a JAX function, or of anything that can be launched."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import get_clock_info, perf_counter
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from roofline.measure.machine import last_cache, on_cpu
from roofline.xla.compiler import executable_of
from roofline.xla.lower import (
    Arguments,
    function_name,
    is_compiled,
    lower,
    trace_function,
    tracing_errors,
    without_objects,
)
from roofline_helpers.common.checks import BadType, BadValue, RooflineError, needed, shown, single
from roofline_helpers.measured.record import Timing

# --- The clock -----------------------------------------------------------------------------------

UNSTABLE = 0.10
"""Quartiles further apart than this share of the median get a note."""

DRIFT = 0.05
"""A drift from the first to the last third of the samples above this share gets a note."""

SECONDS = ("low", "q1", "median", "q3", "high")
"""Fields of a timing in seconds."""

MOST_CALLS = 100_000
"""Calls that one sample may queue."""


class CannotRun(RooflineError, RuntimeError):
    """The function failed where it was traced, compiled or called.

    Examples
    --------
    >>> issubclass(CannotRun, RooflineError)
    True
    """


class Launchable(Protocol):
    """A program that can be launched many times and awaited once.

    Examples
    --------
    >>> class Nothing:
    ...     def launch(self, calls): pass
    ...     def wait(self): pass
    >>> program: Launchable = Nothing()
    >>> clock(program, seconds=0.01).repeats >= 3
    True
    """

    def launch(self, calls: int) -> None:
        """Start `calls` calls, without waiting for them."""

    def wait(self) -> None:
        """Wait until every call has ended."""


def clock(
    program: Launchable, *, seconds: float = 0.5, warm: float = 0.0, begun: float | None = None
) -> Timing:
    """Return the seconds of one call of a launchable program.

    Parameters
    ----------
    program : Launchable
        A JAX function (`jax_program`), or another framework's.
    seconds : float
        About how long to measure: 3 to 30 samples, each of as many calls as fill 10 ms on a CPU and
        60 ms elsewhere, where launch and wait take 0.2 ms; or 1000 ticks of the clock if longer.
    warm : float
        Seconds to run before the first sample: a chip at its power limit takes a while to settle.
    begun : float, optional
        `perf_counter()` when compiling began, for `Timing.compile`.

    Raises
    ------
    BadType, BadValue
        Seconds that aren't a positive number.

    Examples
    --------
    >>> class Nothing:
    ...     def launch(self, calls): pass
    ...     def wait(self): pass
    >>> clock(Nothing(), seconds=0.01).median < 1e-3
    True
    """
    budget = single("seconds", seconds)
    begun = perf_counter() if begun is None else begun
    program.launch(1)
    program.wait()
    compiled = perf_counter() - begun
    # Two samples at least that don't count: allocators, clocks and caches reach their steady state
    calls, took = 1, _sample(program, 1)
    enough = max(0.01 if on_cpu() else 0.06, 1000 * _tick())
    while took < enough and calls < MOST_CALLS:
        wanted = math.ceil(1.2 * calls * enough / max(took, _tick()))
        calls = min(wanted, 20 * calls, MOST_CALLS)
        took = _sample(program, calls)
    ready = perf_counter() + single("warm", warm, zero=True)
    while perf_counter() < ready:
        took = _sample(program, calls)
    count = max(3, min(30, math.ceil(budget / took)))
    samples = [_sample(program, calls) for _ in range(count)]
    return summary([sample / calls for sample in samples], calls, compiled)


def _sample(program: Launchable, calls: int) -> float:
    begun = perf_counter()
    program.launch(calls)
    program.wait()
    return max(perf_counter() - begun, _tick())


def _tick() -> float:
    return get_clock_info("perf_counter").resolution


def summary(samples: Sequence[float], calls: int = 1, compiled: float = 0.0) -> Timing:
    """Return the summary of samples, in seconds a call, in the order they were taken.

    Raises
    ------
    BadValue
        No sample, or one that isn't a positive finite number.

    Examples
    --------
    >>> summary([2e-6, 3e-6, 2.2e-6]).median
    2.2e-06
    """
    values = [single("a sample", sample) for sample in samples]
    if not values:
        raise BadValue("at least one sample is needed, got none")
    median = statistics.median(values)
    q1, q3 = (float(np.quantile(values, q)) for q in (0.25, 0.75))
    third = max(len(values) // 3, 1)
    drift = statistics.median(values[-third:]) / statistics.median(values[:third]) - 1
    notes = []
    if len(values) >= 3 and (q3 - q1) / median > UNSTABLE:
        notes.append(f"unstable: quartiles {100 * (q3 - q1) / median:.0f}% apart")
    if len(values) >= 6 and abs(drift) > DRIFT:
        faster = "slower" if drift > 0 else "faster"
        notes.append(f"drifting: {100 * abs(drift):.0f}% {faster} at the end")
    return Timing(
        median=median,
        low=min(values),
        q1=q1,
        q3=q3,
        high=max(values),
        repeats=len(values),
        calls=calls,
        compile=compiled,
        drift=drift,
        notes=tuple(notes),
    )


def reason(error: Exception) -> str:
    """Return the first line of an error, which has the reason, and what it introduces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    goes_on = bool(lines) and lines[0].endswith(":")
    text = " ".join(lines[: 2 if goes_on else 1])
    if "RESOURCE_EXHAUSTED" in text or isinstance(error, MemoryError):
        return f"not enough memory ({text[:120]})"
    return f"{type(error).__name__}: {text[:500]}".removesuffix(": ")


# --- Unused arguments: XLA leaves out work that the result doesn't need --------------------------


def unused_arguments(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[int]:
    """Return the arguments that the result doesn't need; refuse a function that needs none."""
    import jax
    from jax.interpreters.partial_eval import dce_jaxpr

    sizes = [len(jax.tree.leaves(arg)) for arg in args]
    if not any(hasattr(leaf, "nbytes") for leaf in jax.tree.leaves(args)):
        raise BadType(
            "at least one array is needed among the arguments: XLA would fold the result into a "
            "constant"
        )
    with tracing_errors(fn):
        traced = trace_function(fn, Arguments(args), {})[0].jaxpr.jaxpr
    if not traced.outvars:
        raise BadValue("the function returns nothing: there is no result to wait for")
    _, needed = dce_jaxpr(traced, [True] * len(traced.outvars))
    if not any(needed):
        raise BadValue("the result doesn't depend on any argument: nothing to time")
    arguments = {id(var) for var in traced.invars}
    if all(id(var) in arguments or hasattr(var, "val") for var in traced.outvars):
        raise BadValue("the function hands its arguments back as they are: nothing to time")
    ends = list(itertools.accumulate(sizes, initial=0))
    spans = itertools.pairwise(ends)
    free = [high > low and not any(needed[low:high]) for low, high in spans]
    return [n for n, unused in enumerate(free) if unused]


# --- JAX functions as launchable programs --------------------------------------------------------


def time(
    fn: Callable[..., Any],
    *args: Any,
    cold: bool = True,
    donate: bool = True,
    inplace: bool = False,
    seconds: float = 0.5,
    **named: Any,
) -> Timing:
    """Return the seconds that one call of a JAX function takes on the default device.

    Parameters
    ----------
    fn : callable
        The function, without side effects: it runs many times. It is compiled with `jax.jit`; an
        executable is timed as it is, on copies of the arguments, and must not donate one.
    *args, **named : arrays, numbers, or pytrees of them
        NumPy arrays are moved to the device first.
    cold : bool
        Whether copies of the arguments take turns, together twice the last cache (32 sets at most).
        False lets small arguments stay in the cache.
    donate : bool
        Whether each call writes into the memory of the results before. False asks for fresh memory
        at each call, as a bare loop would.
    inplace : bool
        Whether the result, which must be like the first argument, replaces it at the next call.
    seconds : float
        About how long to measure, after compiling and warm-up.

    Raises
    ------
    BadValue
        Nothing to time: no result, or one that depends on no argument, or hands it back unchanged.
    BadType
        Not a function; no array among the arguments, or one on several devices; `inplace` with a
        result unlike it.
    CannotRun
        JAX couldn't trace, compile or run it, and why.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> time(lambda x: x + 1, jnp.zeros(1000), seconds=0.01).median < 1
    True
    >>> time(lambda x: 2.0, jnp.zeros(1000))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    roofline_helpers.common.checks.BadValue: the result doesn't depend on any argument...
    """
    needed("timing", "jax")
    begun = perf_counter()
    program = jax_program(fn, args, named, cold=cold, donate=donate, inplace=inplace)
    timing = clock(program, seconds=seconds, begun=begun)
    return replace(timing, notes=(*timing.notes, *program.notes))


class JaxProgram:
    """A compiled JAX function with its arguments and its spare buffers.

    Parameters
    ----------
    call : callable
        The executable or the function.
    sets : list of tuple
        Arguments, used in turn.
    spare : pytree of arrays
        The first buffers for a result; None in mode "plain".
    mode : {"plain", "donate", "inplace"}
        How a call gets the last result: not at all, as memory to write into, or in place of the
        first argument.
    """

    def __init__(self, call: Any, sets: list[Any], spare: Any, mode: str) -> None:
        self.call, self.sets, self.result = call, sets, spare
        self.notes: tuple[str, ...] = ()
        self._mode, self._turn = mode, 0

    def launch(self, calls: int) -> None:
        """Queue the calls, each on the next set of arguments."""
        call, out, sets, turn = self.call, self.result, self.sets, self._turn
        if self._mode == "inplace":
            sets = [sets[0][1:]]
        try:
            for n in range(calls):
                args = sets[(turn + n) % len(sets)]
                out = call(*args) if self._mode == "plain" else call(out, *args)
        except Exception as error:
            raise CannotRun(f"it failed when it was called: {reason(error)}") from error
        self.result, self._turn = out, (turn + calls) % len(sets)

    def wait(self) -> None:
        """Return when the last call has ended."""
        import jax

        try:
            jax.block_until_ready(self.result)
        except Exception as error:
            raise CannotRun(f"it failed while it ran: {reason(error)}") from error


def jax_program(
    fn: Callable[..., Any],
    args: Sequence[Any],
    named: Mapping[str, Any] = MappingProxyType({}),
    *,
    cold: bool = True,
    donate: bool = True,
    inplace: bool = False,
) -> JaxProgram:
    """Return a JAX function and its arguments as a program that `clock` can time.

    Parameters and errors as in `time`.

    Examples
    --------
    >>> jax_program(lambda x: x + 1, [1.0]).launch()  # doctest: +SKIP
    """
    import jax

    if not callable(fn):
        raise BadType(f"the first argument must be a function, got {shown(fn)}")
    executable = is_compiled(fn)
    if named:
        fn, args = _with_dict(fn), (*args, dict(named))
    try:
        args = tuple(jax.tree.map(_on_device, tuple(args)))
    except (TypeError, ValueError) as error:
        raise BadType(f"JAX can't take these arguments: {reason(error)}") from error
    leaves = [leaf for leaf in jax.tree.leaves(args) if isinstance(leaf, jax.Array)]
    for leaf in leaves:
        if len(leaf.devices()) > 1:
            raise BadType(
                f"arguments must lie on one device, got {leaf.dtype}{list(leaf.shape)} on "
                f"{len(leaf.devices())}: a program over several devices can't be timed here"
            )
    if not executable:
        with tracing_errors(fn):
            fn, taken = without_objects(fn, Arguments(args, {}), {})
        args = taken.positional
    unused = [] if executable else unused_arguments(fn, args)
    size = sum(leaf.nbytes for leaf in leaves) if cold and not inplace else 0
    # together twice the last cache, but 32 sets at most
    turns = min(max(math.ceil(2 * last_cache() / size), 1), 32) if size else 1
    try:
        # an executable may donate: the caller's own arrays are not given away
        first = jax.tree.map(_copied, args) if executable else args
        sets = [first, *(jax.tree.map(_copied, args) for _ in range(turns - 1))]
        if executable:
            program = JaxProgram(fn, sets, None, "plain")
        else:
            mode = "inplace" if inplace else "donate" if donate else "plain"
            program = _compile(fn, sets, mode)
    except RooflineError:
        raise
    except Exception as error:
        raise CannotRun(f"JAX couldn't compile it: {reason(error)}") from error
    if unused:
        numbers = ", ".join(str(n) for n in unused)
        program.notes = (f"argument {numbers} isn't used",)
    return program


def _with_dict(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes its keyword arguments as a dict, after all others."""

    def call(*args: Any) -> Any:
        return fn(*args[:-1], **args[-1])

    call.__name__ = function_name(fn)
    return call


def _compile(fn: Callable[..., Any], sets: list[Any], mode: str) -> JaxProgram:
    import jax
    import jax.numpy as jnp

    def into(spare: Any, *args: Any) -> Any:
        del spare  # it is donated: XLA writes the result into its memory
        return fn(*args)

    args = sets[0]
    out = jax.eval_shape(fn, *args)
    jitted, spare, operands = fn, None, args
    if mode == "inplace":
        like = jax.eval_shape(lambda first: first, args[0])
        if like != out:
            raise BadType(f"inplace needs a result like the first argument, got {shown(out)}")
        jitted = jax.jit(fn, donate_argnums=0)
        spare = jax.tree.map(_copied, args[0])  # the caller's own array is not given away
    elif mode == "donate":
        jitted = jax.jit(into, donate_argnums=0, keep_unused=True)
        spare = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), out)
        operands = (spare, *args)
    compiled = executable_of(lower(jitted, Arguments(operands), {}))
    return JaxProgram(compiled, sets, spare, mode)


def _on_device(leaf: Any) -> Any:
    import jax

    return jax.device_put(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf


def _copied(leaf: Any) -> Any:
    return leaf.copy() if hasattr(leaf, "copy") else leaf
