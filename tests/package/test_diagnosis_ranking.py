"""How causes get their seconds and their order: rows made up here, results worked out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from roofline import xla
from roofline.diagnosis import Explanation
from roofline.diagnosis.ceilings import Ceilings, Roofs
from roofline.diagnosis.findings import Case, Finding, detect, findings, kernels
from roofline.diagnosis.findings.causes import Claim
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import (
    BEFORE,
    BETWEEN,
    GAP,
    HOST,
    LOOP,
    TRANSFER,
    WAIT,
    Bar,
    TimedRow,
    grouped,
    join,
    waterfall,
    with_program,
)
from roofline.diagnosis.trace import Event, Span, Trace

HERE = Ceilings(measured=Roofs(reached={"fp32": 1e11, "hbm": 1e10, "vector": 2e10}))


def row(name, seconds, reachable=None, limit="hbm", **how):
    """Return a kernel with a role and a line of its own."""
    source = how.pop("source", f"m.py:{name}")
    kernel = xla.Row(name, role=name, source=source, read={"hbm": 8 * ord(name[0])})
    times = {"seconds": seconds, "busy": seconds, "reachable": reachable, "least": reachable}
    return TimedRow(name, limit=limit, kernel=kernel, **(times | how))


def case_of(*rows, **how):
    return Case(rows, {}, HERE, "cpu", **({"wall": 1.0} | how))


def told(found):
    return [
        (f.cause, round(f.seconds, 9), " ".join(f.kernels), f.source, round(f.share, 9))
        for f in found
    ]


def test_what_no_cause_explains_is_ranked_with_what_many_lose_last() -> None:
    """Losses from a twentieth of the call on, the longest kernel, and a line's kernels once."""
    rows = (
        row("a", 0.30, 0.27),
        row("b", 0.19, 0.05, "matrix"),
        row("c", 0.09, 0.03, "vector", source="m.py:c"),
        row("d", 0.06, 0.03, "vector"),
        row("e", 0.05, 0.02, "matrix"),
        row("f", 0.08, 0.01, "vector", source="m.py:c"),
        TimedRow(BETWEEN, GAP, 0.07),
        TimedRow(BEFORE, HOST, 0.11),
    )
    found = findings(case_of(*rows, unsteady=0.12))  # so that the host is no cause
    assert told(found) == [
        ("below-roof", 0.14, "b", "m.py:b", 0.19),
        ("below-roof", 0.13, "c f", "m.py:c", 0.17),
        ("idle", 0.11, "", "", 0.11),
        ("idle", 0.07, "", "", 0.07),
        ("memory-bound", 0.03, "a", "m.py:a", 0.3),
        ("many-kernels", 0.09, "a d e", "", 0.09),
    ]
    assert [f.evidence for f in found] == [
        "b takes 19% of the call and reaches 26% of its roof, bound by its arithmetic: "
        "3.8 times what is normal (reached ceilings)",
        "c takes 9% of the call and reaches 33% of its roof, bound by its arithmetic: "
        "3.0 times what is normal (reached ceilings), and 1 more like it",
        "no kernel runs for 11% of the call, between calls",
        "no kernel runs for 7% of the call, between iterations and kernels",
        "a takes 30% of the call and reaches 90% of its roof",
        "3 kernels together lose 9% of the call, none much of it",
    ]


@pytest.mark.parametrize(
    ("wall", "unsteady", "compiling", "causes"),
    [
        (2.19, 0.0, 0.0, ["host"]),  # a twentieth of the call
        (2.21, 0.0, 0.0, []),
        (1.0, 0.11, 0.0, ["host"]),
        (1.0, 0.12, 0.0, ["idle"]),  # calls differ by more: no cause, and still a bar
        (1.0, 0.0, 0.07, ["compiling"]),  # of the host's time, so the rest is too little
        (1.0, 0.0, 0.04, ["host", "compiling"]),
    ],
)
def test_the_host_s_time(wall, unsteady, compiling, causes) -> None:
    host = TimedRow(BEFORE, HOST, 0.11)
    found = findings(case_of(host, wall=wall, unsteady=unsteady, compiling=compiling))
    assert [finding.cause for finding in found] == causes


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        # low 0.4 + 8, high 5.8 + 8, and of 3 s between 7 launches what 5 launches had beside them
        ({}, (12 + 15 / 7, 8.4 + 15 / 7, 20.0)),
        ({"more": 2.5}, (14.5, 14.5 / 1.5, 20.0)),
        ({"sure": 0.25}, (12 + 15 / 7, (12 + 15 / 7) / 4, 20.0)),
        ({"known": False}, (12.0, None, None)),
    ],
)
def test_what_a_claim_gets_and_what_it_saves(monkeypatch, claim, expected) -> None:
    """The kernel that goes away takes its gaps along; what is left of the other may vary."""
    monkeypatch.setattr(Case, "spread", lambda case, row: (0.7, 1.6))
    rows = row("a", 10.0, launches=2.0), row("b", 8.0, launches=5.0), TimedRow(BETWEEN, GAP, 3.0)
    parts = (rows[0], 4.0), (rows[1], 9.0)  # of the second there are 8 s
    made = Claim("read-in-part", parts, "seen", **({"source": "m.py:9", "known": True} | claim))
    monkeypatch.setattr(detect, "_DETECTORS", (lambda case: iter([made]),))
    found = findings(case_of(*rows, wall=20.0))[0]
    seconds, low, high = expected
    assert (found.seconds, found.share) == pytest.approx(
        (seconds, min((18 + seconds - 12) / 20, 1))
    )
    assert found.saves == (low and pytest.approx((min(low, seconds / 1.5), high)))
    rest = replace(found, seconds=0.0, share=0.0, saves=None)
    known = made.known
    checked = "the time model" if known else ""
    assert rest == Finding(
        "read-in-part", 0.0, ("a", "b"), "seen", "m.py:9", checked=checked, known=known
    )


def test_claims_of_a_line_are_one_finding_of_the_kind_that_costs_most(monkeypatch) -> None:
    """The rest beside it, if it is of another kind and a tenth as much; others by their loss."""
    rows = [row(name, 0.6 if name == "e" else 1.0) for name in "abcdef"]

    def claim(cause, n, seconds, evidence="", **how):
        return Claim(cause, ((rows[n], seconds),), evidence, **({"source": "m.py:1"} | how))

    made = [
        claim("one-hot", 0, 0.5, "first"),
        claim("read-in-part", 1, 0.95, "second", known=True, remedy="take less"),
        claim("one-hot", 2, 0.9, "third", remedy="index"),
        claim("layout-copy", 4, 0.13, "fourth"),  # less than a tenth of the zeros
        claim("sort", 5, 0.041, "fifth", source="m.py:7"),
        claim("sort", 5, 0.039, "sixth", source="m.py:8"),  # less than a hundredth of the call
        claim("layout-copy", 3, 0.16, "seventh", source=""),  # of its kernel's line
    ]
    monkeypatch.setattr(detect, "_DETECTORS", (lambda case: iter(made),))
    found = findings(case_of(*rows, wall=4.0))
    assert told(f for f in found if f.named) == [
        ("one-hot", 2.48, "a b c e", "m.py:1", 0.9),
        ("layout-copy", 0.16, "d", "m.py:d", 0.25),
        ("sort", 0.041, "f", "m.py:7", 0.25),
    ]
    evidence = "third, and 1 more like it; besides, values are computed that nobody reads"
    assert (found[0].evidence, found[0].advice, found[0].known) == (evidence, "index", False)
    made[1] = claim("read-in-part", 1, 1.0, "second", known=True, remedy="take less")
    made[2] = claim("one-hot", 2, 0.35, "third", known=True, remedy="index")
    found = findings(case_of(*rows, wall=4.0))  # most is known: what isn't doesn't count
    assert told(found[:1]) == [("read-in-part", 1.35, "a b c e", "m.py:1", 0.9)]
    assert found[0].saves == pytest.approx((1.35 / 1.5, 1.35 * 1.5))


@pytest.mark.parametrize(
    ("platform", "seconds", "reachable", "measured", "slow"),
    [
        ("cpu", 4.0, 2.0, True, True),  # half of it lost
        ("cpu", 4.0, 2.01, True, False),
        ("cpu", 4.0, None, True, False),
        ("cpu", 30e-6, 1e-6, False, False),  # twice the floor of three launches
        ("cpu", 31e-6, 1e-6, False, True),
        ("gpu", 35e-6, 1e-6, False, False),
        ("gpu", 37e-6, 1e-6, False, True),
        ("tpu", 19e-6, 1e-6, False, True),
        ("tpu", 24e-6, 1e-5, False, False),  # two and a half times the roof
        ("tpu", 26e-6, 1e-5, False, True),
    ],
)
def test_a_slow_kernel(platform, seconds, reachable, measured, slow) -> None:
    one = row("a", seconds, reachable, launches=3.0)
    case = replace(case_of(one, measured=measured), platform=platform)
    assert case.slow(one) is slow


def test_kernels_that_count_and_the_gaps_between_all() -> None:
    program = Program("HloModule m", "cpu")

    def kernel(name, seconds, **work):
        made = xla.Row(name, **({"operations": {"add": 1}} | work))
        return TimedRow(name, seconds=seconds, launches=ord(name) - 96.0, program="m", kernel=made)

    rows = (
        kernel("a", 1e-4),
        kernel("b", 0.9e-4),  # next to nothing
        kernel("c", 0.0, read={"host": 8}),
        kernel("d", 0.5, operations={}),
        replace(kernel("e", 0.5), program="another"),
        replace(kernel("f", 0.03), kind=LOOP),
        replace(kernel("g", 0.06), kind=TRANSFER),
        TimedRow(BETWEEN, GAP, 0.12, launches=9.0),
        TimedRow(BEFORE, HOST, 0.24),
    )
    case = Case(rows, {"m": program}, HERE, "cpu", 1.0)
    assert [one.name for one in case.kernels] == ["a", "c"]
    assert case.row(rows[2], "a") is rows[0]
    assert case.row(rows[4], "a") is None
    assert case.gap == pytest.approx((0.03 + 0.12) / (1 + 2 + 3 + 4 + 5))


def event(op, start, end, line="1", label="", program="jit_f", **how):
    return Event(op, program, start, end, line, label, **how)


def test_rows_of_a_trace_from_its_typical_runs() -> None:
    """Of four runs of two calls each, the two nearest to the median; quartiles of all."""
    events, runs, now = [], [], 0.0
    for stretch in (1.0, 2.0, 4.0, 9.0):
        events += [
            event("a", now + 1.0, now + 1.0 + stretch),
            event("b", now + 2.0 + stretch, now + 2.0 + 3 * stretch),
        ]
        end = now + 5.0 + 3 * stretch
        runs.append(Span("run", now, end))
        now = end + 1.0
    trace = Trace("gpu", {"0": events}, runs, [], Path("x"))
    rows, notes = join(trace, {}, HERE, 2)
    assert [(r.name, r.kind, r.seconds, r.busy, r.low, r.high, r.launches) for r in rows] == [
        # chosen are the stretches 2 and 4; busy by the quartiles of 1, 2, 4, 9, halved
        ("a", "kernel", 1.5, 1.5, 0.875, 2.625, 0.5),
        ("b", "kernel", 3.0, 3.0, 1.75, 5.25, 0.5),
        ("before the first kernel", "host", 0.5, 0.5, 0.5, 0.5, 0.5),
        ("waiting for the host", "host", 0.5, 0.5, 0.5, 0.5, 0.5),
        ("after the last kernel", "host", 1.5, 1.5, 1.5, 1.5, 0.5),
    ]
    assert notes == ()
    typical = join(trace, {}, HERE, 2, typical=15.0)[0]  # the runs of 17 and 32 s
    assert [r.seconds for r in typical[:2]] == [(4 + 9) / 4, (4 + 9) / 2]


@pytest.mark.parametrize(("gap", "name"), [(19e-6, BETWEEN), (21e-6, "waiting for the host")])
def test_a_long_gap_is_the_host_s(gap, name) -> None:
    events = [event("a", 0.0, 1e-3), event("a", 1e-3 + gap, 2e-3)]
    trace = Trace("gpu", {"0": events}, [Span("run", 0.0, 2e-3)], [], Path("x"))
    rows, _ = join(trace, {}, HERE, 1)
    assert [(r.name, r.launches) for r in rows] == [("a", 2.0), (name, 1.0)]
    assert rows[1].seconds == pytest.approx(gap)


def test_layers_of_one_kernel_are_one_row() -> None:
    def layer(number, seconds, **how):
        kernel = xla.Row(
            f"k{number}",
            role=f"matmul of layer_{number}",
            op_name="jit(f)/jvp(g)/dot",
            read={"hbm": 8},
            source="m.py:3",
        )
        kernel = replace(kernel, **how)
        times = {"low": seconds / 2, "high": 2 * seconds, "launches": 3.0, "inside": 2.0}
        times |= {"least": seconds / 4, "reachable": seconds / 3}
        return TimedRow(f"k{number}", seconds=seconds, busy=1.5 * seconds, kernel=kernel, **times)

    rows = layer(1, 6.0), layer(2, 12.0), layer(3, 1.0, read={"hbm": 9})
    first, other = grouped(rows)
    assert other is rows[2]
    times = {"seconds": 18.0, "busy": 27.0, "low": 9.0, "high": 36.0, "launches": 6.0}
    times |= {"inside": 4.0, "least": 4.5, "reachable": 6.0, "kernels": 2}
    assert first == replace(rows[0], **times)
    for change in (
        {"source": "m.py:4"},
        {"op_name": "jit(f)/transpose(jvp(g))/dot"},
        {"written": {"hbm": 9}},
    ):
        assert len(grouped((rows[0], layer(2, 12.0, **change)))) == 2
    assert grouped((rows[0], replace(rows[1], least=None)))[0].least is None
    assert len(grouped([replace(one, kind=LOOP) for one in rows])) == 3


def test_bars_in_their_order() -> None:
    """A bar for each of the five largest losses, then the others', then what no kernel takes."""
    losses = (0.3, 0.7, 0.1, 0.5, 0.2, 0.6, 0.4)
    kernels = [row(f"k{n}", 1 + loss, 1.0) for n, loss in enumerate(losses)]
    rows = [*kernels, row("bare", 0.25), row("fast", 0.5, 0.75)]
    idle = {LOOP: 0.01, TRANSFER: 0.02, WAIT: 0.03, GAP: 0.04, HOST: 0.05}
    rows += [TimedRow(kind, kind, seconds) for kind, seconds in idle.items()]
    rows[0] = replace(rows[0], least=0.9)
    bars = waterfall(rows, 11.5, 8.0)
    assert [(bar.name, round(bar.seconds, 9), bar.row) for bar in bars] == [
        ("counted by hand", 8.0, ""),
        ("counted in kernels without a roof", -0.35, ""),
        ("ceilings as reached", 0.1, ""),
        *((f"k{n}", losses[n], f"k{n}") for n in (1, 5, 3, 6, 0)),
        ("2 other kernels", 0.3, ""),
        ("faster than the roof", -0.25, ""),
        ("kernels without a roof", 0.25, ""),
        ("loops", 0.01, ""),
        ("transfers", 0.02, ""),
        ("waiting for the slowest device", 0.03, ""),
        ("gaps between kernels", 0.04, ""),
        ("the host", 0.05, ""),
        ("nothing explains it", 0.8, ""),
    ]
    for hand, name in ((None, "the compiled program"), (1.0, "the compiled program needs more")):
        assert waterfall(kernels, 9.0, hand)[-8].name == name
    less = waterfall(kernels, 9.0, 8.0)
    assert less[1].name == "the compiled program needs less"
    assert waterfall(kernels[:6], 8.0)[-2].name == "1 other kernel"
    assert waterfall(kernels[:6], 8.0)[-1] == Bar("slower when profiled", pytest.approx(-0.4))


def test_what_an_explanation_adds_up() -> None:
    rows = (
        row("a", 0.30, 0.27),
        replace(row("b", 0.50, 0.25), least=0.2),
        row("c", 0.06),
        TimedRow(BETWEEN, GAP, 0.04),
    )
    why = Explanation("f", (), "gpu", "NVIDIA H200", "trace", (1.4, 1.1, 0.8, 0.9), rows)
    assert (why.wall, why.covered, why.unexplained) == pytest.approx((1.0, 0.9, 0.1))
    assert [one.name for one in why.groups] == ["b", "a", "c", BETWEEN]
    assert [one.name for one in why.kernels] == ["b", "a", "c"]
    assert (why.least, why.roofless) == pytest.approx((0.47, 0.06))
    assert replace(why, runs=(1.21,)).roofless == 0.0  # less than a twentieth
    unpublished = (replace(rows[0], least=None), *rows[1:])
    assert (replace(why, rows=unpublished).least, replace(why, rows=rows[2:]).least) == (None, None)
    assert (why.chip.key, replace(why, platform="cpu").chip) == ("h200", None)


def test_a_row_s_work_and_rates() -> None:
    work = xla.Flops(matrix=5, vector=3, transcendentals=1)
    kernel = xla.Row("k", "dot", flops=work, read={"hbm": 8}, written={"hbm": 4})
    one = TimedRow("k", seconds=3.0, busy=4.0, launches=2.0, kernel=kernel, reachable=1.25)
    assert (one.matrix_flops, one.flops, one.bytes, one.lost) == (10, 16, 24, 1.75)
    assert (one.bandwidth, one.rate) == (6, 4)
    idle = replace(one, busy=0.0, reachable=None)
    assert (idle.bandwidth, idle.rate, idle.lost) == (None, None, 3)
    untold = replace(kernel, flops=replace(work, unknown=("a call",)))
    assert (replace(one, kernel=untold).flops, replace(one, kernel=untold).rate) == (None, None)


def test_a_loop_that_runs_as_one_kernel_has_the_work_of_its_turns() -> None:
    """Six turns of two kernels, and seven questions whether there is another."""
    text = """HloModule m
%more (c: f32[1000]) -> pred[] {
  c = f32[1000] parameter(0)
  ROOT p = pred[] custom-call(c), custom_call_target="ask"
}
%turn (c: f32[1000]) -> f32[1000] {
  c = f32[1000] parameter(0)
  t = f32[500] slice(c), slice={[0:500]}
  ROOT u = f32[1000] concatenate(t, t), dimensions={0}, AT
}
ENTRY %main (x: f32[1000]) -> f32[1000] {
  x = f32[1000] parameter(0)
  ROOT w = f32[1000] while(x), condition=%more, body=%turn, COUNT
}"""
    at = 'metadata={op_name="f/cat" source_file="m.py" source_line=4}'
    text = text.replace("AT\n", f"{at}\n").replace(
        "COUNT", 'backend_config={"known_trip_count":{"n":"6"}}'
    )
    one = with_program(TimedRow("w", seconds=1e-3), Program(text, "cpu"), HERE)
    assert (one.inside, one.title, one.source) == (19, "loop around concatenation of f", "m.py:4")
    read, written = 6 * (2000 + 2000) + 7 * 4000, 6 * (2000 + 4000)
    assert (one.kernel.read_bytes, one.kernel.written_bytes) == (read, written)
    assert (one.reachable, one.limit) == (pytest.approx((read + written) / 1e10), "hbm")


@pytest.mark.parametrize(
    ("seconds", "roof", "measured", "changes", "lost"),
    [
        # 20 steps of each of 1,000 take 1 µs, which is half of a measured kernel's time or more
        (1.9, 1.2, True, {}, [0.7]),
        (2.1, 1.2, True, {}, []),
        (1.9, 1.3, True, {}, []),  # and it takes half as long again as its roof
        (7.9, 3.1, False, {}, [4.8]),
        (8.1, 3.1, False, {}, []),
        (7.9, 3.2, False, {}, []),
        (1.9, 1.2, True, {"operations": {"tanh": 1, "reduce": 1}}, []),
        (1.9, 1.2, True, {"flops": xla.Flops(matrix=1, transcendentals=1000)}, []),
        (1.9, 1.2, True, {"flops": xla.Flops(vector=1000)}, []),
    ],
)
def test_transcendental_functions_that_slow_a_kernel_down(
    seconds, roof, measured, changes, lost
) -> None:
    work = {"flops": xla.Flops(transcendentals=500), "operations": {"tanh": 1, "convert": 2}}
    made = xla.Row("k", **(work | changes))
    times = {"seconds": 1e-6 * seconds, "reachable": 1e-6 * roof, "launches": 2.0}
    rows = (TimedRow("k", program="m", kernel=made, **times),)
    programs = {"m": Program("HloModule m", "cpu")}
    case = Case(rows, programs, HERE, "cpu", 1e-5, measured=measured)
    found = [claim.parts[0][1] for claim in kernels.transcendentals(case)]
    assert found == [pytest.approx(1e-6 * one) for one in lost]
