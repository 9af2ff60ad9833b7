"""Runs and windows: how many are taken, which count, and how traces of them become one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from roofline.diagnosis.explain import _compiling
from roofline.diagnosis.program import Program
from roofline.diagnosis.runner import Runner, compiled_runner, run_counts, run_in_turn
from roofline.diagnosis.trace import (
    Event,
    Span,
    Trace,
    _Thunks,
    concatenated,
    find_trace,
    is_exchange,
    is_transfer,
    typical_runs,
    union,
)
from roofline.diagnosis.trace_steps import _exchanges, _leaves, named, prepared
from roofline.xla.lower import Arguments


def event(name: str, start: float, end: float, **facts: str) -> Event:
    return Event(name, "jit_f", start, end, "a stream", **facts)


def made(
    events: dict[str, list[Event]], runs: list[Span], host: tuple[Span, ...] | list[Span] = ()
) -> Trace:
    return Trace("gpu", events, runs, list(host), Path("a.xplane.pb"))


@pytest.mark.parametrize(
    ("call", "seconds", "queue", "cpu", "runs"),
    [
        (0.03, 1.0, None, False, (33, 1)),
        (0.007, 0.5, None, False, (23, 3)),  # 21 ms of calls
        (0.0009, 0.3, None, False, (20, 16)),  # and no more than 16 of them
        (0.001, 9.0, None, False, (40, 16)),
        (0.03, 0.5, None, True, (16, 1)),
        (0.004, 0.05, None, True, (12, 1)),
        (0.5, 1.0, None, False, (4, 1)),
        (0.01, 1.2, 7, False, (17, 7)),
        (0.01, 1.2, 7, True, (17, 7)),
    ],
)
def test_runs_take_the_seconds_that_are_asked_for(
    call: float, seconds: float, queue: int | None, cpu: bool, runs: tuple[int, int]
) -> None:
    assert run_counts(call, seconds, queue, cpu) == runs


@pytest.mark.parametrize(
    ("seconds", "goal", "chosen"),
    [
        ([5, 1, 4, 9, 3.2, 3], 3.9, [2, 4, 0]),  # of means 2.4, 3.4, 4.07 and 6, the nearest first
        ([5, 1, 4, 9, 3.2, 3], 0, [1, 5, 4]),
        ([5, 1, 4, 9, 3.2, 3], 99, [3, 0, 2]),
        ([2, 7, 3], 6, [1]),
        ([2], 6, [0]),
    ],
)
def test_the_half_of_the_runs_nearest_the_goal_is_typical(
    seconds: list[float], goal: float, chosen: list[int]
) -> None:
    assert typical_runs(seconds, goal) == chosen


def test_what_runs_at_once_counts_once() -> None:
    times = (0, 3), (1, 2), (2.5, 6), (8, 9.5)
    events = [event("k", start, end) for start, end in times]
    assert union(events) == 7.5
    assert union(events, 1.5, 8.25) == 4.75
    assert union(events, 6.25, 7) == 0


def test_traces_follow_one_another() -> None:
    """The second begins where all of the first has ended: its events, its runs, its host."""
    first = made({"a": [event("x", 1, 4)]}, [Span("run", 1, 5)], [Span("c", 2, 7)])
    second = made(
        {"a": [event("y", 2, 3)], "b": [event("z", 1, 6)]}, [Span("run", 1, 2)], [Span("d", 3, 4)]
    )
    third = made({"b": [event("w", 0.5, 1)]}, [])
    whole = concatenated([first, second, third])
    assert whole.devices == {
        "a": [event("x", 1, 4), event("y", 9, 10)],
        "b": [event("z", 8, 13), event("w", 13.5, 14)],
    }
    assert whole.runs == [Span("run", 1, 5), Span("run", 8, 9)]
    assert whole.host == [Span("c", 2, 7), Span("d", 10, 11)]
    assert first.devices == {"a": [event("x", 1, 4)]}


def test_a_cpu_s_work_ends_at_its_mark_or_where_the_next_begins() -> None:
    begun = [(event("a", 0, 1), 1), (event("c", 6, 6.5), 3), (event("b", 2, 2.5), 2)]
    thunks = _Thunks(begun, {1: 1.75, 2: 6.75})
    assert thunks.ended() == [event("a", 0, 1.75), event("b", 2, 6), event("c", 6, 6.5)]


def test_the_host_compiles_for_so_many_seconds_of_each_call() -> None:
    runs = [Span("run", 1, 5), Span("run", 6, 9)]
    host = [Span("c", 0.5, 2), Span("c", 1, 1.5), Span("c", 4, 7), Span("c", 5, 6), Span("c", 8, 9)]
    assert _compiling(made({}, runs, host), 3) == (0.5 + 3 + 1) / 6
    assert _compiling(made({}, []), 3) == 0


@pytest.mark.parametrize(
    ("profiled", "folder", "seconds", "rounds"),
    [
        (1.029, None, 9, 3),
        (1.031, None, 9, 12),
        (0.971, None, 9, 3),
        (0.969, None, 9, 12),
        (1.5, "kept", 9, 1),
        (1.0, None, 0, 1),
    ],
)
def test_rounds_are_taken_until_both_clocks_agree(
    profiled: float, folder: str | None, seconds: float, rounds: int
) -> None:
    """Of 24 runs without the profiler and 15 with it a round has a third, before it a sixth."""
    asked: list[object] = []

    def traced(runs: int, calls: int, folder: str | None) -> tuple[Trace, list[float]]:
        asked.append((runs, calls, folder))
        return made({"a": [event("x", 0, 1)]}, []), [profiled] * runs

    runner = SimpleNamespace(run=lambda calls: asked.append(calls) or 1.0, traced=traced)
    timed = run_in_turn(runner, 24, 15, 6, seconds, folder)  # type: ignore[arg-type]
    before, share, traces = (12, 24, 15) if folder else (4, 8, 5)
    assert asked == [*[6] * before, *[(traces, 6, folder), *[6] * share] * rounds]
    assert timed.plain == (1.0,) * (before + share * rounds)
    assert timed.traced == (profiled,) * (traces * rounds)
    assert len(timed.trace.events) == rounds


def test_a_result_takes_the_place_of_the_first_donated_argument_like_it() -> None:
    """Two alike, one of another type, and one that no result replaces: it is copied each time."""

    def step(kept: jax.Array, x: jax.Array, y: jax.Array, n: jax.Array, wide: jax.Array) -> object:
        return n + 1, wide.sum() + x, y + kept

    x, wide = jnp.ones(3), jnp.ones((2, 3))
    arguments = Arguments((jnp.zeros(3), x, 2 * x, jnp.arange(3), wide), {})
    runner = compiled_runner(step, arguments, {"donate_argnums": (1, 2, 3, 4)}, {})
    assert runner.donated == ((1, 1), (2, 2), (3, 0), (4, None))
    assert runner.alone
    assert [runner.run(5) > 0, runner.run(1) > 0] == [True, True]
    assert runner._leaves[1].tolist() == [13, 13, 13]  # 1 and twice 6: a call each
    assert runner._leaves[3].tolist() == [2, 3, 4]
    assert not wide.is_deleted()


def test_as_many_calls_are_queued_as_are_asked_for() -> None:
    seen: list[float] = []
    runner = Runner(lambda x, y: seen.append(x - y), (5,), {"y": 2})
    assert not runner.alone
    assert runner.run(7) > 0
    assert seen == [3] * 7


def test_the_device_that_is_busy_longest_is_explained_or_the_first_that_nearly_is() -> None:
    def busy(**seconds: float) -> Trace:
        return made({name: [event("k", 0, took)] for name, took in seconds.items()}, [])

    assert busy(b=9.85, a=10, c=5).device == "b"
    assert busy(b=9.75, a=10, c=5).device == "a"
    assert replace(busy(b=9.85, a=10, c=5), chosen="c").events == [event("k", 0, 5)]


def test_the_newest_trace_of_a_folder_is_read(tmp_path: Path) -> None:
    files = [tmp_path / name / "host.xplane.pb" for name in ("b", "c", "a")]
    for at, file in zip((200, 300, 100), files, strict=True):
        file.parent.mkdir()
        file.touch()
        os.utime(file, (at, at))
    assert find_trace(tmp_path) == files[1]
    assert find_trace(files[0]) == files[0]


@pytest.mark.parametrize(
    ("op", "label", "exchange", "transfer"),
    [
        ("all-reduce.1", "", True, False),
        ("fusion.1", "ncclDevKernel_AllGather", True, False),
        ("", "RcclKernel", True, False),
        ("async-collective-start", "", True, False),
        ("fusion.2", "a kernel", False, False),
        ("", "MemcpyH2D", False, True),
        ("", "MemcpyP2P", False, True),
        ("", "MemcpyD2D", False, False),
        ("copy.1", "MemcpyD2H", False, False),
    ],
)
def test_exchanges_and_transfers_are_known_by_their_names(
    op: str, label: str, exchange: bool, transfer: bool
) -> None:
    assert is_exchange(op, label) == exchange
    assert is_transfer(event(op, 0, 1, label=label)) == transfer


ONCE = [event("a", 1, 2), event("b", 2.5, 4)]
OFTEN = [
    event(name, 10 * n + start, 10 * n + start + 1)
    for n in range(6)
    for name, start in (("a", 0), ("b", 4))
]
MARKED, FOUND = "as they are marked", "from one start of jit_f to the next"
ALL = "which is all of it: none is marked, and none repeats"


@pytest.mark.parametrize(
    ("events", "marked", "told"),
    [
        (ONCE, [], f"1 complete step on a, {ALL}, of 3 s to 3 s: rows are of the 1"),
        (ONCE, [(0.5, 5)], f"1 complete step on a, {MARKED}, of 4.5 s to 4.5 s: rows are of the 1"),
        (OFTEN, [], f"5 complete steps on a, {FOUND}, of 10 s to 10 s: rows are of the 2"),
        (OFTEN[:-2], [], f"3 complete steps on a, {FOUND}, of 10 s to 10 s: rows are of the 1"),
        (
            OFTEN,  # marked when the host queued them
            [(n, n + 0.5) for n in range(6)],
            f"5 complete steps on a, {FOUND}, of 10 s to 10 s: rows are of the 2",
        ),
        (
            OFTEN,
            [(10 * n - 0.5, 10 * n + 8) for n in range(6)],
            f"6 complete steps on a, {MARKED}, of 8.5 s to 8.5 s: rows are of the 3",
        ),
    ],
)
def test_steps_are_those_that_are_marked_or_repeat(
    events: list[Event], marked: list[tuple[float, float]], told: str
) -> None:
    runs = [Span("step", start, end) for start, end in marked]
    _, notes = prepared(made({"a": events}, runs), {})
    assert notes[0] == f"{told} nearest the median"


def on(line: str, name: str, start: float, end: float) -> Event:
    return replace(event(name, start, end), line=line)


def test_what_only_contains_kernels_of_its_line_is_none() -> None:
    events = [on("s", "while", 0, 10), on("s", "a", 1, 3), on("t", "b", 2, 5), on("s", "c", 4, 10)]
    assert _leaves([*events, on("s", "d", 11, 12)]) == [*events[1:], on("s", "d", 11, 12)]


def test_exchanges_of_several_steps_are_told_as_a_mean_and_what_hides_them() -> None:
    events = [on("s", "a", 0, 4), on("s", "all-reduce", 4, 6), on("t", "all-gather", 5, 9)]
    events += [on("s", "b", 6, 7), on("s", "a", 10, 12), on("s", "all-reduce", 12, 15)]
    [told] = _exchanges(events, [Span("step", 0, 10), Span("step", 10, 20)])
    assert told.startswith("exchanges take 4 s of a step, and 3.5 s of that nothing else runs")
    assert "; 56% of their time" in told  # 5 of 9 s


@pytest.mark.parametrize(
    ("op", "label", "program", "found"),
    [
        ("x", "fusion_3", "jit_f", ("x", "jit_f", None)),
        ("command_buffer", "fusion_3", "jit_f", ("fusion.3", "jit_f", None)),
        ("", "fusion_3", "", ("fusion.3", "jit_f", None)),
        ("", "fusion_3.kd", "jit_f", ("fusion.3", "jit_f", None)),
        ("", "fusion_4", "", ("fusion.4", "jit_g", 7)),
        ("", "fusion_3", "jit_g", ("", "jit_g", None)),
        ("", "inner_1", "", ("inner.1", "jit_f", None)),
        ("", "both_2", "", ("", "", None)),  # either program's
        ("", "both_2", "jit_f", ("both.2", "jit_f", None)),
        ("command_buffer", "others", "jit_f", ("", "jit_f", None)),
    ],
)
def test_kernels_of_a_graph_are_known_by_their_names(
    op: str, label: str, program: str, found: tuple[str, str, int | None]
) -> None:
    text = "HloModule m\nENTRY %e (x: f32[8]) -> f32[8] {\n  x = f32[8] parameter(0)\n"
    text += "  both.2 = f32[8] tanh(x)\n  ROOT fusion.NUMBER = f32[8] negate(both.2)\n}"
    first = Program(text.replace("NUMBER", "3"), "gpu", wrapped={"inner.1": "both.2"})
    programs = {"jit_f": first, "jit_g(7)": Program(text.replace("NUMBER", "4"), "gpu")}
    ran = [event("f", 0, 1), replace(event("g", 1, 2), program="jit_g", number=7)]
    one = replace(event(op, 2, 3, label=label), program=program)
    trace = made({"a": ran, "b": [one]}, [])
    (known,) = named(trace, programs).devices["b"]
    assert (known.op, known.program, known.number) == found
    assert named(replace(trace, platform="tpu"), programs).devices["b"] == [one]
