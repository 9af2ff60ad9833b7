"""Several devices in one trace: waiting for the slowest, moving bytes, sums that are sliced."""

import math
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from test_diagnosis_findings import H200

from roofline.diagnosis.devices import rows_of_devices, with_waits
from roofline.diagnosis.explain import Task
from roofline.diagnosis.explanation import Explanation
from roofline.diagnosis.findings import Case, findings
from roofline.diagnosis.findings.devices import skew
from roofline.diagnosis.modelled import modelled_case
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow
from roofline.diagnosis.trace import Event, Span, Trace
from roofline.xla.lower import Arguments

STRAGGLER = """HloModule jit_f, is_scheduled=true, num_partitions=4
%sum (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %c = bf16[] add(%a, %b)
}
ENTRY %main (x: bf16[4096,4096], w: bf16[4096,4096]) -> bf16[4096,4096] {
  %x = bf16[4096,4096]{1,0} parameter(0)
  %w = bf16[4096,4096]{1,0} parameter(1)
  %dot.1 = bf16[4096,4096]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %tanh.2 = bf16[4096,4096]{1,0} tanh(%dot.1)
  ROOT %psum.3 = bf16[4096,4096]{1,0} all-reduce(%tanh.2), channel_id=1, GROUPS, to_apply=%sum
}
"""
ALL = "replica_groups={{0,1,2,3}}"
PAIRS = "replica_groups={{0,1},{2,3}}"


def run_of(turns, calls=4, slower=1.0, moving=168e-6):
    """Return calls in which each device multiplies so often, 219 µs each, before an all-reduce.

    Those are the times of `F11` on four H200s. The last device's kernels take `slower` times as
    long; the groups of devices that share an all-reduce are pairs if they end apart.
    """
    planes = {f"/device:GPU:{n}": [] for n in range(len(turns))}
    runs, now = [], 1.0
    for _ in range(calls):
        ready = []
        for number, events in enumerate(planes.values()):
            layer = 219e-6 * (slower if number == len(turns) - 1 else 1.0)
            for turn in range(turns[number]):
                start = now + turn * layer
                events.append(Event("dot.1", "jit_f", start, start + 0.9 * layer, "s"))
                events.append(Event("tanh.2", "jit_f", start + 0.9 * layer, start + layer, "s"))
            ready.append(now + turns[number] * layer)
        end = max(ready) + moving
        jitter = random.Random(0)
        for begins, events in zip(ready, planes.values(), strict=True):
            label = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
            ended = end + 2e-6 * jitter.random()
            events.append(Event("psum.3", "jit_f", begins, ended, "s", label))
        runs.append(Span("run", now, end + 2e-6))
        now = end + 10e-6
    return Trace("gpu", planes, runs, [], Path("made.xplane.pb"))


def program(groups=ALL):
    return {"jit_f": Program(STRAGGLER.replace("GROUPS", groups), "gpu")}


def joined_rows(trace, groups=ALL):
    return rows_of_devices(trace, program(groups), H200, 1)


def explanation(trace):
    task = Task(None, Arguments((), {}), ())
    seconds = tuple(run.seconds for run in trace.runs)
    run = Explanation("f", (), "gpu", "NVIDIA H200", "trace", seconds, traced=seconds)
    return task.of_run(run, trace, program(), "h200")


@pytest.mark.parametrize("slow", range(4))
def test_a_straggler_is_no_slow_network(slow):
    why = explanation(run_of([8 if n == slow else 1 for n in range(4)]))
    first = why.findings[0]
    assert first.cause == "skew"
    assert first.seconds == pytest.approx(7 * 219e-6, rel=0.01)
    assert f"device {slow} arrives last by 1.53 ms" in first.evidence
    assert "its kernels take 1.75 ms, here 219 µs" in first.evidence
    assert "runs 8 times there, 1 here" in first.evidence
    rows = {row.name: row.seconds for row in why.rows}
    assert rows["psum.3"] == pytest.approx(169e-6, rel=0.02)
    assert rows[f"waiting for device {slow}"] == first.seconds
    table = why.table(by="device")
    assert list(table["is last at"]) == [n == slow for n in range(4)]
    assert list(table["waiting ms"] > 1) == [n != slow for n in range(4)]
    assert table["exchanges ms"].to_numpy() == pytest.approx(0.169, rel=0.02)
    parts = table.drop(columns="is last at").sum(axis=1)
    assert parts.to_numpy() == pytest.approx(1e3 * why.wall, rel=0.01)
    bars = {bar.name: bar.seconds for bar in why.waterfall}
    assert bars["waiting for the slowest device"] == first.seconds
    text = why.describe()
    assert re.findall(r'"row">(/device:GPU:\d)<', why._repr_html_()) == list(table.index)
    assert "measured all-reduces of 33.6 MB over 4 GPUs take 172 µs by NCCL" in text


def test_equal_devices_have_no_skew():
    why = explanation(run_of([3] * 4))
    assert "skew" not in {finding.cause for finding in why.findings}
    assert why.table(by="device")["waiting ms"].to_numpy() == pytest.approx(0.0, abs=1e-3)
    assert why.rows[0].program == "jit_f"


def test_uneven_work_is_named_though_no_exchange_shows_who_waits():
    trace = run_of([8, 1, 1, 1])
    alone = {
        plane: [event for event in events if event.op != "psum.3"]
        for plane, events in trace.devices.items()
    }
    why = explanation(replace(trace, devices=alone))
    found = {finding.cause: finding for finding in why.findings}
    assert found["skew"].seconds == pytest.approx((8 - 11 / 4) * 219e-6, rel=0.01)
    assert "device 0 is busy longest, 1.15 ms more than the mean" in found["skew"].evidence
    assert "its kernels take 1.75 ms, on device 1 219 µs" in found["skew"].evidence
    even = {plane: events[:2] * 4 for plane, events in alone.items()}
    causes = {f.cause for f in explanation(replace(trace, devices=even)).findings}
    assert "skew" not in causes


def test_only_devices_of_one_group_wait_for_one_another():
    trace = run_of([4, 1, 1, 1])
    within = joined_rows(trace, PAIRS)
    waits = {time.number: time.waiting for time in within.times}
    assert waits[1] == pytest.approx(3 * 219e-6, rel=0.01)
    assert waits[2] == waits[3] == 0.0
    assert {time.number: time.waiting > 0 for time in joined_rows(trace).times}[3]
    # also where the profiler names what an asynchronous exchange runs, and not the exchange
    renamed = {
        plane: [replace(event, op=event.op.replace("psum.3", "inner.4")) for event in events]
        for plane, events in trace.devices.items()
    }
    known = {"jit_f": replace(program(PAIRS)["jit_f"], wrapped={"inner.4": "psum.3"})}
    times = rows_of_devices(replace(trace, devices=renamed), known, H200, 1).times
    assert [time.waiting for time in times] == [waits[time.number] for time in times]


def test_what_is_parted_adds_up_and_a_permute_stays_whole():
    trace = run_of([8, 1, 2, 1])
    apart = with_waits(trace, program())
    for plane, events in trace.devices.items():
        parts = apart.devices[plane]
        assert math.fsum(e.seconds for e in parts) == pytest.approx(
            math.fsum(e.seconds for e in events)
        )
    text = STRAGGLER.replace("GROUPS", "source_target_pairs={{0,1},{1,2},{2,3},{3,0}}")
    text = text.replace("all-reduce(", "collective-permute(").replace(", to_apply=%sum", "")
    assert with_waits(trace, {"jit_f": Program(text, "gpu")}) == trace


SLICED = """HloModule jit_step, is_scheduled=true, num_partitions=4
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}
%update (p: f32[8192,8192], w: bf16[2048,8192], i: s32[]) -> bf16[2048,8192] {
  %p = f32[8192,8192]{1,0} parameter(0)
  %half = f32[8192,8192]{1,0} negate(%p)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  %mine = f32[2048,8192]{1,0} dynamic-slice(%half, %i, %zero), dynamic_slice_sizes={2048,8192}
  %w = bf16[2048,8192]{1,0} parameter(1)
  %wide = f32[2048,8192]{1,0} convert(%w)
  %new = f32[2048,8192]{1,0} add(%wide, %mine)
  ROOT %out = bf16[2048,8192]{1,0} convert(%new)
}
ENTRY %main (x: f32[8192,8192], w: bf16[2048,8192], i: s32[]) -> (bf16[2048,8192]) {
  %x = f32[8192,8192]{1,0} parameter(0)
  %w.1 = bf16[2048,8192]{1,0} parameter(1)
  %i.1 = s32[] parameter(2)
  %g = f32[8192,8192]{1,0} all-reduce(%x), channel_id=1, replica_groups={{0,1,2,3}}, to_apply=%sum
  %f = bf16[2048,8192]{1,0} fusion(%g, %w.1, %i.1), kind=kLoop, calls=%update
  ROOT %t = (bf16[2048,8192]{1,0}) tuple(%f)
}
"""
HALF = "  %half = f32[8192,8192]{1,0} negate(%p)\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (SLICED, True),
        (SLICED.replace("slice(%half", "slice(%p").replace(HALF, ""), True),
        (SLICED.replace("tuple(%f)", "tuple(%f, %g)"), False),  # the whole sum is returned too
    ],
    ids=["after arithmetic", "alone", "returned too"],
)
def test_a_sum_that_every_device_slices_is_a_missing_reduce_scatter(text, named):
    case = modelled_case(Program(text, "gpu"), H200)
    found = {finding.cause: finding for finding in findings(case)}
    assert ("all-reduce-sliced" in found) == named
    if named:
        exchange = next(row for row in case.rows if row.name == "g")
        assert found["all-reduce-sliced"].seconds == pytest.approx(0.5 * exchange.seconds)
        assert "of f32[8192,8192] on 4 devices" in found["all-reduce-sliced"].evidence


def ran(seconds, launches=2.0, idle=1.0, names="k"):
    """Return the rows of a device: each of these kernels, a sum over devices, and idle time."""
    times = [TimedRow(n, "kernel", seconds, seconds, launches=launches, program="p") for n in names]
    exchange = TimedRow("all-reduce.1", "kernel", 50.0, 50.0, program="p")
    return [*times, exchange, TimedRow("", "gap", idle), TimedRow("", "host", 2 * idle)]


@pytest.mark.parametrize(
    ("slow", "why"),
    [
        (ran(5), "its kernels take 5 s, here 3 s; k takes 2.5 s there and 1.5 s here, launched as"),
        (ran(5, 2.1), "its kernels take 5 s, here 3 s; k takes 2.38 s there and 1.5 s here"),
        (ran(5, 2.2), "its kernels take 5 s, here 3 s; k runs 2.2 times there, 2 here"),
        (ran(2.5, names="kn"), "its kernels take 5 s, here 3 s; n runs 2 times there, 0 here"),
        (ran(5, idle=1.6), "its kernels take 5 s"),
        (ran(5, idle=1.7), "it idles 2.1 s longer, so its host launches late"),
        ([], "its kernels aren't in this trace"),
    ],
)
@pytest.mark.parametrize(("often", "at"), [(1.0, ""), (2.0, " at 2 exchanges, in all")])
def test_why_a_device_arrives_last(slow, why, often, at):
    waits = TimedRow("waiting for device 3", "wait", 6.0, launches=often)
    case = Case((*ran(3), waits), {}, H200, "gpu", 100.0, by_device={"3": tuple(slow), "0": ()})
    (claim,) = skew(case)
    assert claim.evidence.startswith(f"device 3 arrives last{at} by 6 s: {why}")


@pytest.mark.parametrize(
    ("wall", "waited", "names", "found"),
    [
        (79, 0, ["k", "k", "k"], True),  # 8 s, and 4 of a mean
        (81, 0, ["k", "k", "k"], False),
        (79, 3.9, ["k", "k", "k"], True),
        (79, 4.0, ["k", "k", "k"], False),  # what waits is told of each exchange
        (79, 0, ["abk", "klm", "abl"], True),
        (79, 0, ["abkc", "klmn", "abkc"], False),  # half of the rows: another program
    ],
)
def test_uneven_devices(wall, waited, names, found):
    seconds = [8 / len(names[0]), 1 / len(names[1]), 3 / len(names[2])]
    rows = (tuple(ran(took, names=each)) for took, each in zip(seconds, names, strict=True))
    waits = TimedRow("waiting for device 9", "wait", waited)
    case = Case((waits,), {}, H200, "gpu", wall, by_device=dict(zip("789", rows, strict=True)))
    uneven = [claim for claim in skew(case) if not claim.parts]
    assert [claim.more for claim in uneven] == [pytest.approx(4)] * found
    said = "device 7 is busy longest, 4 s more than the mean: its kernels take 8 s, on device 8 1 s"
    assert all(claim.evidence.startswith(said) for claim in uneven)
    assert not list(skew(replace(case, rows=(), by_device={"7": case.by_device["7"]})))


# --- what four H200s recorded, see data/traces/README.md ------------------------------------------


def test_a_recorded_sum_that_is_sliced_is_a_missing_reduce_scatter(recorded):
    why = recorded("h200x4-sliced", 4)
    found = {finding.cause: finding for finding in why.findings}
    assert "of bf16[8192,8192] on 4 devices" in found["all-reduce-sliced"].evidence
    row = why.row("all-reduce-start")
    assert found["all-reduce-sliced"].seconds == pytest.approx(row.seconds / 2)
    assert row.kernel.collective.bytes_out == 2 * 8192**2  # not its operand's bytes too
    assert "skew" not in {finding.cause for finding in why.findings[:3]}
