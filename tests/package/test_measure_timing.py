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
from roofline.measure.timing import jax_program, summary, unused_arguments
from roofline_helpers.common.checks import BadType, BadValue


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


def test_short_kernels_are_repeated_until_the_clock_can_tell(monkeypatch):
    fake = Fake([2e-6], monkeypatch)
    result = measure.timing.clock(fake, seconds=0.1)
    assert result.calls * 2e-6 >= 0.01
    assert result.median == pytest.approx(2e-6, rel=1e-3)
    assert fake.launches[-1] == result.calls


def test_drift_and_instability_are_noted():
    assert summary([1.0] * 12).notes == ()
    assert summary([1.0, 1.02, 0.99, 1.01, 1.0, 0.98]).notes == ()
    (note,) = summary([1.0 + 0.01 * n for n in range(12)]).notes
    assert note == "drifting: 8% slower at the end"
    notes = summary([1.0, 2.0] * 6).notes
    assert any(note.startswith("unstable: quartiles") for note in notes)
    with pytest.raises(BadValue):
        summary([])
    with pytest.raises(BadValue, match="-1"):
        summary([1.0, -1.0])


def test_what_is_awaited_is_the_last_call_s_result(monkeypatch):
    awaited = []
    program = jax_program(lambda x: x + 1, (numbers(),))
    monkeypatch.setattr(jax, "block_until_ready", awaited.append)
    program.launch(2)
    program.wait()
    assert [result is program.result for result in awaited] == [True]
