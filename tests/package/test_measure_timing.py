"""The clock: what is refused, what is noted of doubtful times, and that times are possible ones.

Times themselves are never held against a constant: this machine may be busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from measure_suite import numbers

from roofline_helpers import measure
from roofline_helpers._checks import BadType, BadValue
from roofline_helpers.measure import CannotTime, programs, timing
from roofline_helpers.measure.dependence import unused_arguments

jax = pytest.importorskip("jax")
jnp = jax.numpy


def quick(fn: Callable[..., Any], *args: Any, **options: Any) -> measure.Timing:
    return measure.time(fn, *args, seconds=0.005, **options)


# --- time(): what it refuses ----------------------------------------------------------------------


def test_a_function_that_returns_nothing_is_refused() -> None:
    for fn in (lambda x: None, lambda x: (), lambda x: {"a": []}):
        with pytest.raises(BadValue, match="returns nothing"):
            quick(fn, numbers())


def test_a_result_that_does_not_depend_on_the_inputs_is_refused() -> None:
    hidden = jax.jit(lambda x: (jnp.ones(8), x + 1))
    for fn in (
        lambda x: 2.0,
        lambda x: jnp.ones(1000),
        lambda x: jnp.zeros_like(x),
        lambda x: jnp.ones(x.shape) @ jnp.ones(x.shape),
        lambda x: hidden(x)[0],
        lambda x: jax.jit(lambda y: jnp.ones(3))(x),
    ):
        with pytest.raises(BadValue, match="doesn't depend on any argument"):
            quick(fn, numbers())


def test_a_function_that_hands_its_arguments_back_is_refused() -> None:
    for fn in (lambda x: x, lambda x: (x, x), lambda x: {"x": x, "n": 3}):
        with pytest.raises(BadValue, match="hands its arguments back"):
            quick(fn, numbers())


def test_dependence_through_control_flow_is_seen() -> None:
    for fn in (
        lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y + x, jnp.zeros_like(x)),
        lambda x: jax.lax.cond(x[0] > 0, lambda: jnp.ones(2), lambda: jnp.zeros(2)),
        lambda x: hidden_sum(x),
        jax.nn.softmax,
    ):
        assert unused_arguments(fn, (numbers(),)) == []


def hidden_sum(x: Any) -> Any:
    return jax.jit(lambda y: (jnp.ones(8), y.sum()))(x)[1]


def test_an_unused_argument_is_noted() -> None:
    result = quick(lambda x, y, z: x + z, numbers(), numbers(), numbers())
    assert "argument 1 isn't used" in result.notes


def test_bad_arguments() -> None:
    with pytest.raises(BadType, match="must be a function"):
        measure.time(3, numbers())  # type: ignore[arg-type]
    with pytest.raises(BadType, match="at least one array"):
        quick(lambda: jnp.ones(3))
    with pytest.raises(BadType, match="at least one array"):
        quick(lambda x: x * 2, 3.0)
    with pytest.raises(BadType, match="inplace needs a result like the first"):
        quick(lambda x: x.sum(), numbers(), inplace=True)
    for seconds in (0, -1, math.nan):
        with pytest.raises(BadValue, match="seconds must be"):
            measure.time(lambda x: x + 1, numbers(), seconds=seconds)
    with pytest.raises(BadValue, match=r"repeats must be a whole number from 1 .*got 2\.5"):
        measure.clock(measure.jax_program(lambda x: x + 1, (numbers(),)), repeats=2.5)


def test_a_function_that_fails_says_why() -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError("on purpose")

    with pytest.raises(CannotTime, match=r"couldn't trace it: ZeroDivisionError: on purpose"):
        quick(fails, numbers())
    with pytest.raises(CannotTime, match="couldn't trace it"):
        quick(lambda x: float(x[0]) + x, numbers())
    with pytest.raises(CannotTime, match="couldn't trace it"):
        quick(lambda x, y: x @ y, numbers(3), numbers(4))
    with pytest.raises(CannotTime, match=r"couldn't compile it.*no_such_option"):
        quick(lambda x: x + 1, numbers(), compiler_options={"no_such_option": True})


def test_failures_while_it_runs_say_why() -> None:
    def interrupted(*_: Any) -> Any:
        raise MemoryError("RESOURCE_EXHAUSTED: out of memory")

    program = programs.JaxProgram(interrupted, [(numbers(),)], None, "plain")
    with pytest.raises(CannotTime, match="not enough memory"):
        program.launch(1)


# --- time(): what it does -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"jit": False}, {"donate": False}, {"cold": False}, {"inplace": True}],
    ids=str,
)
def test_every_way_of_timing_gives_a_possible_time(options: dict[str, Any]) -> None:
    begun = perf_counter()
    result = quick(lambda x: x * 0.5 + 0.5, numbers(2**16), **options)
    took = perf_counter() - begun
    assert 0 < result.low <= result.q1 <= result.median <= result.q3 <= result.high
    assert result.high * result.calls < took
    assert 0 < result.compile < took
    assert result.repeats >= 3
    assert "a call" in repr(result)


def test_what_is_awaited_is_the_last_call_s_result(monkeypatch: pytest.MonkeyPatch) -> None:
    awaited: list[Any] = []
    program = measure.jax_program(lambda x: x + 1, (numbers(),))
    monkeypatch.setattr(jax, "block_until_ready", awaited.append)
    program.launch(2)
    program.wait()
    assert [each is program.result for each in awaited] == [True]


def test_the_callers_arrays_are_left_alone() -> None:
    x = numbers()
    quick(lambda x: x * 0.5, x, inplace=True)
    quick(lambda x: x * 0.5, x)
    assert float(x[999]) == 999.0
    with pytest.raises(CannotTime, match=r"when it was called: .*(deleted|donated)"):
        quick(jax.jit(lambda x: x * 0.5, donate_argnums=0), x, jit=False, cold=False)
    assert float(x[999]) == 999.0
    host = np.arange(8.0, dtype=np.float32)
    quick(lambda x: x + 1, host)
    assert host[7] == 7.0


def test_results_go_into_the_memory_of_the_last_call() -> None:
    program = measure.jax_program(lambda x: x + 1, (numbers(2**20),))
    program.launch(2)
    program.wait()
    first = program.result.unsafe_buffer_pointer()
    program.launch(1)
    program.wait()
    assert program.result.unsafe_buffer_pointer() == first
    assert program.xla_bytes == 2 * 4 * 2**20


def test_small_inputs_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "last_cache", lambda: 2**20)
    args = (jnp.zeros(2**17, jnp.float32) + 1,)  # half of that cache: 4 sets are twice the cache
    for sets, arguments, options in ((4, args, {}), (1, args, {"cold": False})):
        assert len(measure.jax_program(lambda x: x + 1, arguments, **options).sets) == sets
    assert len(measure.jax_program(lambda x: x + 1, (numbers(4),)).sets) == 32


class Fake:
    """A program whose calls take the times given, on a clock of its own."""

    def __init__(self, seconds: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds, self.now, self.calls = list(seconds), 0.0, 0
        self.launches: list[int] = []
        monkeypatch.setattr(timing, "perf_counter", lambda: self.now)

    def launch(self, calls: int) -> None:
        for n in range(calls):
            self.now += self.seconds[min(self.calls + n, len(self.seconds) - 1)]
        self.calls += calls
        self.launches.append(calls)

    def wait(self) -> None:
        self.now += 1e-6


def test_the_clock_runs_until_the_queue_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    class Queue(Fake):
        """Its calls only run while they are awaited, as on an accelerator."""

        queued = 0

        def launch(self, calls: int) -> None:
            self.queued += calls

        def wait(self) -> None:
            super().launch(self.queued)
            self.queued = 0

    result = measure.clock(Queue([0.02], monkeypatch), seconds=0.2)
    assert (result.low, result.high) == pytest.approx((0.02, 0.02))


def test_first_calls_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    result = measure.clock(Fake([5.0, 0.5, 0.02], monkeypatch), seconds=0.2)
    assert result.compile == pytest.approx(5.0)
    assert result.median == pytest.approx(0.02, rel=1e-3)
    assert result.high == pytest.approx(0.02, rel=1e-3)


def test_short_kernels_are_repeated_until_the_clock_can_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Fake([2e-6], monkeypatch)
    result = measure.clock(fake, seconds=0.1)
    assert result.calls * 2e-6 >= 0.01
    assert result.median == pytest.approx(2e-6, rel=1e-3)
    assert fake.launches[-1] == result.calls


def test_the_device_is_looked_at_once_while_it_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, seen = Fake([0.02], monkeypatch), []
    measure.clock(fake, seconds=0.2, probe=lambda: seen.append(fake.calls))
    assert seen == [fake.calls]


def test_drift_and_instability_are_noted() -> None:
    assert measure.summary([1.0] * 12).notes == ()
    assert measure.summary([1.0, 1.02, 0.99, 1.01, 1.0, 0.98]).notes == ()
    (note,) = measure.summary([1.0 + 0.01 * n for n in range(12)]).notes
    assert note == "drifting: 8 % slower at the end"
    notes = measure.summary([1.0, 2.0] * 6).notes
    assert any(note.startswith("unstable: quartiles") for note in notes)
    with pytest.raises(BadValue, match="at least one sample"):
        measure.summary([])
    with pytest.raises(BadValue, match="a sample must be"):
        measure.summary([1.0, -1.0])
