"""The clock: seconds of one call of anything that can be launched many times and awaited once."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import get_clock_info, perf_counter
from typing import Protocol

import numpy as np

from roofline_helpers._checks import BadValue, RooflineError, single, whole
from roofline_helpers.records import Count, Natural, Positive
from roofline_helpers.show import si

UNSTABLE = 0.10
"""Quartiles further apart than this share of the median are noted."""

DRIFT = 0.05
"""A last third of the samples that is slower or faster than the first by more is noted."""

RISING = ("low", "q1", "median", "q3", "high")
"""Figures of a timing, in the order in which none is less than the one before."""

ROUNDING = 1e-9
"""Share by which rounding may bring one of them below the one before."""

MOST_CALLS = 100_000
"""Calls that one sample may queue."""


class CannotTime(RooflineError, RuntimeError):
    """The function failed where it was traced, compiled or called.

    Examples
    --------
    >>> issubclass(CannotTime, RooflineError)
    True
    """


@dataclass(frozen=True)
class Timing:
    """Seconds of one call, from repeated samples of many calls each.

    Parameters
    ----------
    median, low, q1, q3, high : float
        Of the samples, in seconds a call; low and high are the extremes, q1 and q3 the quartiles.
    repeats, calls : int
        Samples taken, and calls in each.
    compile : float
        Seconds of what goes before: tracing, compiling and the first call.
    drift : float
        Median of the last third of the samples over that of the first third, minus 1.
    notes : tuple of str
        What makes the result doubtful; empty if nothing does.

    Raises
    ------
    BadValue
        The quartiles do not lie between the extremes, or the median not between the quartiles.

    Examples
    --------
    >>> timing = summary([2e-6, 2e-6, 4e-6], calls=10)
    >>> timing.median, timing.repeats
    (2e-06, 3)
    """

    median: Positive
    low: Positive
    q1: Positive
    q3: Positive
    high: Positive
    repeats: Count
    calls: Count
    compile: Natural = 0.0
    drift: float = 0.0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rising = {name: getattr(self, name) for name in RISING}
        values = list(rising.values())
        if any(b < a * (1 - ROUNDING) for a, b in pairwise(values)):
            shown = ", ".join(f"{name} {value!r}" for name, value in rising.items())
            raise BadValue(f"seconds of a timing must rise from low to high, got {shown}")

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        return (self.q3 - self.q1) / self.median

    def __repr__(self) -> str:
        text = f"{si(self.median, 's')} a call ({si(self.q1, 's')} to {si(self.q3, 's')}, "
        text += f"{self.repeats} samples of {self.calls} calls)"
        return "; ".join([text, *self.notes])


class Program(Protocol):
    """Something that can be launched many times and awaited once.

    Examples
    --------
    >>> class Nothing:
    ...     def launch(self, calls): pass
    ...     def wait(self): pass
    >>> program: Program = Nothing()
    >>> clock(program, seconds=0.01, repeats=3).repeats
    3
    """

    def launch(self, calls: int) -> None:
        """Start `calls` calls, without waiting for them."""

    def wait(self) -> None:
        """Return when every call that was started has ended."""


def clock(
    program: Program,
    *,
    seconds: float = 0.5,
    repeats: int = 30,
    least: float | None = None,
    warm: float = 0.0,
    begun: float | None = None,
    probe: Callable[[], None] | None = None,
) -> Timing:
    """Return the seconds of one call of anything that can be launched and awaited.

    Parameters
    ----------
    program : Program
        Has `launch(calls)` and `wait()`: a JAX function (`jax_program`), or another framework's.
    seconds : float
        About how long to measure. At least 3 samples are taken, however long a call takes.
    repeats : int
        Samples at most.
    least : float, optional
        Seconds that one sample takes at least: calls are repeated until it does. By default
        10 ms on a CPU and 60 ms elsewhere, where the first launch and the last wait of a sample
        take some 0.2 ms together; or 1000 ticks of the clock if those are longer.
    warm : float
        Seconds to run before the first sample, in addition to the few calls that are always made:
        a chip at its power limit takes that long to settle on its clock.
    begun : float, optional
        `perf_counter()` when compiling began, for `Timing.compile`.
    probe : callable, optional
        Called once while the device is still busy with the last sample.

    Raises
    ------
    BadType, BadValue
        Seconds that aren't a positive number; repeats that aren't a whole number from 1.

    Examples
    --------
    >>> class Nothing:
    ...     def launch(self, calls): pass
    ...     def wait(self): pass
    >>> clock(Nothing(), seconds=0.01, repeats=3).median < 1e-3
    True
    """
    budget, most = single("seconds", seconds), whole("repeats", repeats)
    begun = perf_counter() if begun is None else begun
    program.launch(1)
    program.wait()
    compiled = perf_counter() - begun
    # Two samples at least that don't count: allocators, clocks and caches reach their steady state
    calls, took = 1, _sample(program, 1)
    ticks = 1000 * _tick()
    enough = max(_least() if least is None else single("least", least), ticks)
    while took < enough and calls < MOST_CALLS:
        wanted = math.ceil(1.2 * calls * enough / max(took, _tick()))
        calls = min(wanted, 20 * calls, MOST_CALLS)
        took = _sample(program, calls)
    ready = perf_counter() + single("warm", warm, zero=True)
    while perf_counter() < ready:
        took = _sample(program, calls)
    count = max(3, min(most, math.ceil(budget / took)))
    samples = [_sample(program, calls, probe if n == count - 1 else None) for n in range(count)]
    return summary([each / calls for each in samples], calls, compiled)


def _sample(program: Program, calls: int, probe: Callable[[], None] | None = None) -> float:
    begun = perf_counter()
    program.launch(calls)
    if probe is not None:
        probe()
    program.wait()
    return max(perf_counter() - begun, _tick())


def _least() -> float:
    import jax

    return 0.01 if jax.default_backend() == "cpu" else 0.06


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
    values = [single("a sample", each) for each in samples]
    if not values:
        raise BadValue("at least one sample is needed, got none")
    median = statistics.median(values)
    q1, q3 = (float(np.quantile(values, q)) for q in (0.25, 0.75))
    third = max(len(values) // 3, 1)
    drift = statistics.median(values[-third:]) / statistics.median(values[:third]) - 1
    notes = []
    if len(values) >= 3 and (q3 - q1) / median > UNSTABLE:
        notes.append(f"unstable: quartiles {100 * (q3 - q1) / median:.0f} % apart")
    if len(values) >= 6 and abs(drift) > DRIFT:
        faster = "slower" if drift > 0 else "faster"
        notes.append(f"drifting: {100 * abs(drift):.0f} % {faster} at the end")
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
    """Return the first line of an error, which is the part that says something."""
    text = str(error).strip().split("\n")[0] or type(error).__name__
    if "RESOURCE_EXHAUSTED" in text or isinstance(error, MemoryError):
        return f"not enough memory ({text[:120]})"
    return f"{type(error).__name__}: {text[:300]}"
