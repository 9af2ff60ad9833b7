"""The clock: what is refused, what is noted of doubtful times, and that times are possible ones.

Times themselves are never held against a constant: this machine may be busy.
"""

import math
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from measure_suite import numbers

from roofline import measure
from roofline.measure import CannotRun, timing
from roofline.measure.timing import JaxProgram, jax_program, summary, unused_arguments
from roofline_helpers.common.checks import BadType, BadValue
from roofline_helpers.measured.record import Timing


def quick(fn, *args, **options):
    return measure.time(fn, *args, seconds=0.005, **options)


# --- time(): what it refuses ----------------------------------------------------------------------


def test_a_result_that_does_not_depend_on_the_inputs_is_refused():
    hidden = jax.jit(lambda x: (jnp.ones(8), x + 1))
    for fn in (lambda x: 2.0, lambda x: jnp.ones(1000), lambda x: hidden(x)[0]):
        with pytest.raises(BadValue, match="depend"):
            quick(fn, numbers())


def test_dependence_through_control_flow_is_seen():
    for fn in (
        lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y + x, jnp.zeros_like(x)),
        lambda x: jax.lax.cond(x[0] > 0, lambda: jnp.ones(2), lambda: jnp.zeros(2)),
        lambda x: hidden_sum(x),
        jax.nn.softmax,
    ):
        assert unused_arguments(fn, (numbers(),)) == []


def hidden_sum(x):
    return jax.jit(lambda y: (jnp.ones(8), y.sum()))(x)[1]


def test_bad_arguments():
    with pytest.raises(BadType, match="got 3"):
        measure.time(3, numbers())
    with pytest.raises(BadType, match="at least one array"):
        quick(lambda: jnp.ones(3))
    with pytest.raises(BadType, match="inplace"):
        quick(lambda x: x.sum(), numbers(), inplace=True)
    for seconds in (0, -1, math.nan):
        with pytest.raises(BadValue, match="seconds"):
            measure.time(lambda x: x + 1, numbers(), seconds=seconds)


# --- time(): what it does -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"donate": False}, {"cold": False}, {"inplace": True}], ids=str
)
def test_every_way_of_timing_gives_a_possible_time(options):
    begun = perf_counter()
    result = quick(lambda x: x * 0.5 + 0.5, numbers(2**16), **options)
    took = perf_counter() - begun
    assert 0 < result.low <= result.q1 <= result.median <= result.q3 <= result.high
    assert result.high * result.calls < took
    assert 0 < result.compile < took
    assert result.repeats >= 3


def test_the_callers_arrays_are_left_alone():
    x = numbers()
    quick(lambda x: x * 0.5, x, inplace=True)
    quick(lambda x: x * 0.5, x)
    assert float(x[999]) == 999.0
    donating = jax.jit(lambda x: x * 0.5, donate_argnums=0).lower(x).compile()
    with pytest.raises(CannotRun, match=r"deleted|donated"):
        quick(donating, x, cold=False)
    assert float(x[999]) == 999.0
    host = np.arange(8.0, dtype=np.float32)
    quick(lambda x: x + 1, host)
    assert host[7] == 7.0


class Fake:
    """A program whose calls take the times given, on a clock of its own."""

    def __init__(self, seconds, monkeypatch):
        self.seconds, self.now, self.calls = list(seconds), 0.0, 0
        self.launches: list[int] = []
        monkeypatch.setattr(timing, "perf_counter", lambda: self.now)

    def launch(self, calls):
        for n in range(calls):
            self.now += self.seconds[min(self.calls + n, len(self.seconds) - 1)]
        self.calls += calls
        self.launches.append(calls)

    def wait(self):
        self.now += 1e-6


def test_the_clock_runs_until_the_queue_is_empty(monkeypatch):
    class Queue(Fake):
        """Its calls only run while they are awaited, as on an accelerator."""

        queued = 0

        def launch(self, calls):
            self.queued += calls

        def wait(self):
            super().launch(self.queued)
            self.queued = 0

    result = measure.timing.clock(Queue([0.02], monkeypatch), seconds=0.2)
    assert (result.low, result.high) == pytest.approx((0.02, 0.02))


def test_what_is_awaited_is_the_last_call_s_result(monkeypatch):
    awaited = []
    program = jax_program(lambda x: x + 1, (numbers(),))
    monkeypatch.setattr(jax, "block_until_ready", awaited.append)
    program.launch(2)
    program.wait()
    assert [result is program.result for result in awaited] == [True]


# --- by hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "options", "launches"),
    [
        # 2 µs a call, 1 µs to wait: twenty times as many calls until 10 ms are near, a fifth more
        ({"on_cpu": True, "tick": 1e-9}, {"seconds": 0.1}, [1, 1, 20, 400, 5993, *[5993] * 9]),
        ({"on_cpu": True, "tick": 1e-9}, {"seconds": 1.0}, [1, 1, 20, 400, 5993, *[5993] * 30]),
        # three samples at least; 30 ms of warming before are three more
        (
            {"on_cpu": True, "tick": 1e-9},
            {"seconds": 0.01, "warm": 0.03},
            [1, 1, 20, 400, 5993, *[5993] * 6],
        ),
        # 60 ms on an accelerator; 1,000 ticks of a coarse clock, in 100,000 calls at most
        ({"on_cpu": False, "tick": 1e-9}, {"seconds": 0.1}, [1, 1, 20, 400, 8000, *[35998] * 4]),
        ({"on_cpu": True, "tick": 1e-3}, {"seconds": 0.5}, [1, 1, 20, 400, 8000, *[100_000] * 4]),
    ],
)
def test_a_clock_s_calls(monkeypatch, call, options, launches):
    fake = Fake([2e-6], monkeypatch)
    monkeypatch.setattr(timing, "on_cpu", lambda: call["on_cpu"])
    monkeypatch.setattr(timing, "_tick", lambda: call["tick"])
    result = timing.clock(fake, **options)
    assert fake.launches == launches
    assert result.calls == launches[-1]
    assert result.median == pytest.approx((launches[-1] * 2e-6 + 1e-6) / launches[-1])
    assert result.compile == pytest.approx(3e-6)


def test_a_summary_whole():
    seven = summary([1.0, 1.2, 1.1, 1.5, 2.0, 1.4, 1.3], 5, 0.25)
    assert seven == Timing(
        *(1.3, 1.0, pytest.approx(1.15), pytest.approx(1.45), 2.0, 7, 5, 0.25),
        drift=pytest.approx(1.35 / 1.1 - 1),
        notes=(
            "unstable: quartiles 23% apart",
            "drifting: 23% slower at the end",
        ),
    )
    ninety = [100, 100, 100, 94, 94, 94]  # 6 of 97 apart
    assert summary(ninety).notes == ("drifting: 6% faster at the end",)
    assert summary(ninety[:5]).notes == ()  # too few to see a drift
    assert summary([1, 2]).notes == ()  # or to be unstable
    assert summary([8, 8, 8, 9, 9]).notes == ("unstable: quartiles 12% apart",)
    for wrong in ([], [1.0, -1.0], [1.0, math.inf]):
        with pytest.raises(BadValue):
            summary(wrong)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("\n  first \n second"), "ValueError: first"),
        (TypeError("first:\n  second\n third"), "TypeError: first: second"),
        (KeyError(), "KeyError"),
        (MemoryError("x" * 200), f"not enough memory ({'x' * 120})"),
        (RuntimeError("RESOURCE_EXHAUSTED: 9 GB"), "not enough memory (RESOURCE_EXHAUSTED: 9 GB)"),
        (ValueError("y" * 600), f"ValueError: {'y' * 500}"),
    ],
)
def test_an_error_s_reason(error, said):
    assert timing.reason(error) == said


def test_arguments_that_are_not_used():
    x = numbers()
    trees = ((), x, {"a": x, "b": x}, x, (x, x))
    assert unused_arguments(lambda _, x, y, z, w: x + y["b"], trees) == [3, 4]
    for fn, said in (
        (lambda *_: (), "no result to wait for"),
        (lambda *args: (args[1], args[3]), "hands its arguments back"),
    ):
        with pytest.raises(BadValue, match=said):
            unused_arguments(fn, trees)


@pytest.mark.parametrize(
    ("mode", "taken"),
    [
        ("plain", [("a", 1), ("b", 2), ("c", 3), ("a", 1), ("b", 2)]),
        ("donate", [("s", "a", 1), (0, "b", 2), (1, "c", 3), (2, "a", 1), (3, "b", 2)]),
        ("inplace", [("s", 1), (0, 1), (1, 1), (2, 1), (3, 1)]),
    ],
)
def test_arguments_take_turns_and_results_are_handed_on(mode, taken):
    calls = []

    def call(*args):
        calls.append(args)
        return len(calls) - 1

    program = timing.JaxProgram(call, [("a", 1), ("b", 2), ("c", 3)], "s", mode)
    for count in (4, 1):
        program.launch(count)
    assert calls == taken
    assert program.result == 4


@pytest.mark.parametrize(
    ("options", "sets"),
    [({}, 5), ({"cold": False}, 1), ({"inplace": True}, 1), ({"cache": 1e6}, 32)],
)
def test_sets_of_arguments_fill_twice_the_last_cache(monkeypatch, options, sets):
    cache = options.pop("cache", 900)
    monkeypatch.setattr(timing, "last_cache", lambda: cache)
    monkeypatch.setattr(timing, "_compile", lambda fn, sets, mode: JaxProgram(fn, sets, None, mode))
    program = jax_program(lambda x, y: x + 1, (numbers(75), numbers(25)), **options)  # 400 bytes
    assert len(program.sets) == sets
    assert program.notes == ("argument 1 isn't used",)
