"""What an explanation says against itself: roofs beaten, clocks that disagree."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import pytest

import roofline_helpers as rh
from roofline_helpers.device import ladder
from roofline_helpers.device.explain import consistency_notes, undiagnosed
from roofline_helpers.device.rows import GAP, KERNEL, TimedRow
from roofline_helpers.device.trace import Event, Span, Trace

EXPLAIN = sys.modules["roofline_helpers.device.explain"]


def trace(platform: str, launches: int = 6) -> Trace:
    """Return a trace of two runs, each of so many launches."""
    events = [Event(f"k.{n}", "jit_f", n, n + 0.5, "1") for n in range(2 * launches)]
    runs = [Span("run", 0, launches), Span("run", launches, 2 * launches)]
    return Trace(platform, {"0": events}, runs, [], Path("x"))


def test_a_beaten_roof_is_noted() -> None:
    slow = TimedRow("slow", KERNEL, 1.0, reachable=0.9)
    fast = TimedRow("fast", KERNEL, 0.5, reachable=1.0)
    gap = TimedRow("gap", GAP, 9.0)
    assert consistency_notes([slow, gap]) == ()
    (note,) = consistency_notes([slow, fast, gap])
    assert note.startswith("1 of 2 kernels, 500 ms of the call, run more than 1.2 times as fast")


def test_a_profiler_that_slows_a_call_is_said_first_and_shares_are_withheld() -> None:
    reason = undiagnosed(trace("gpu", 60), (1.29e-3, 1.3e-3, 1.28e-3), (14.2e-3,), 2)
    assert "11.0 times as long (14.2 ms instead of 1.29 ms)" in reason
    assert "30 launches in each" in reason
    assert undiagnosed(trace("gpu"), (1.29e-3,), (2.5e-3,), 1) == ""
    why = next(step.why for step in ladder.committed()["decode"].steps if step.why)
    slowed = replace(why, withheld=reason, findings=())
    assert slowed.describe().splitlines()[1].startswith("no diagnosis: the profiler makes a call")
    assert set(slowed.table()["share"]) == {None}
    text = slowed.describe() + slowed._repr_html_()
    assert "%" not in text.partition("\n\n")[2].partition("nothing explains it")[0]
    assert "From the roof to the clock" not in text
    assert "the largest loss first" not in text


@pytest.mark.parametrize(
    ("platform", "others", "plain", "says"),
    [
        ("cpu", False, (10, 10.5, 11), ""),
        ("cpu", False, (10, 13, 14), "half of the calls take 1.30 times the fastest"),
        ("cpu", True, (10, 10.5, 11), "load 9.0 on 2 cores"),
        ("gpu", True, (10, 13, 14), ""),  # its clock is its own
    ],
)
def test_a_busy_cpu_has_no_diagnosis(
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    others: bool,
    plain: tuple[float, ...],
    says: str,
) -> None:
    notes = iter(["busy machine: load 9.0 on 2 cores"] if others else [])
    monkeypatch.setattr(EXPLAIN, "busy", lambda: notes)
    reason = undiagnosed(trace(platform), plain, plain, 1)
    assert says in reason
    assert bool(reason) == bool(says)


def test_a_withheld_diagnosis_has_no_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EXPLAIN, "undiagnosed", lambda *given: "this machine is too busy")
    roof = rh.Roofline(1e11, 1e10)
    why = rh.explain(jnp.sin, jnp.ones(2**16), ceilings=roof, seconds=0.05, progress=False)
    assert why.findings == ()
    assert "no diagnosis: this machine is too busy" in why.describe()
    assert "no diagnosis" in repr(why)
