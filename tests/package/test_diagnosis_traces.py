"""Traces from elsewhere: real ones of an H200, plain ones of this CPU, made up and broken ones."""

import math
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.profiler import ProfileData

import roofline
import roofline_helpers as rh
from roofline import cli
from roofline.diagnosis import CannotProfile, explain
from roofline.diagnosis.ceilings import Ceilings
from roofline.diagnosis.explain import dtypes
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import BETWEEN, join
from roofline.diagnosis.trace import Event, Span, Trace, programs_in, read_trace
from roofline.diagnosis.trace_steps import named, prepared


@pytest.fixture(scope="module")
def scan(recorded):
    return recorded("h200-scan", 3)


def test_kernels_of_a_gpu_have_their_line_and_their_roof(scan):
    assert scan.device == "NVIDIA H200"
    first, second = scan.kernels[:2]
    for product in (first, second):
        assert product.launches == 3
        assert product.flops == 3 * 2 * 4096 * 4096 * 14336
        assert product.source.endswith("explain_sample.py:14")
        assert product.kernel.scope == "mlp"
    published = 2 * 4096 * 4096 * 14336 * 3 / 989.4e12
    assert first.least == pytest.approx(published, rel=0.01)
    assert first.kernel.matmul == (4096, 14336, 4096)
    assert "measured matmuls like 4,096 × 14,336 × 4,096 in bf16" in scan.describe()


def test_what_runs_inside_an_asynchronous_fusion_is_found(scan):
    slices = [row for row in scan.rows if row.name.startswith("fusion-start")]
    assert len(slices) == 2
    for row in slices:  # a layer's weights read and written, in each of three turns
        assert row.bytes == 3 * 2 * 4096 * 14336 * 2
    causes = {finding.cause: finding for finding in scan.findings}
    assert set(causes["scan-copy"].kernels) == {row.name for row in slices}
    copies, gaps = causes["scan-copy"], [row for row in scan.rows if row.name == BETWEEN]
    beside = copies.seconds - sum(row.seconds for row in slices)  # the gap after each copy
    assert 0 < beside < sum(gap.seconds for gap in gaps)


def test_only_programs_that_ran_say_which_peaks_count(traces):
    trace = read_trace(traces / "h200-scan.xplane.pb")
    ran = {name: p for name, p in programs_in(trace).items() if "stacked" in name}
    text = ran["jit_stacked"].source.replace("bf16", "f32")
    other = {name: Program(text, "gpu") for name in ("jit_other", "jit_other(9)")}
    assert dtypes({**ran, **other}, trace) == ["bf16"]
    assert dtypes({**ran, "jit_stacked": Program(text, "gpu")}, trace) == ["bf16", "fp32"]


def test_a_loop_of_calls_shows_transfers_and_the_host(recorded):
    why = recorded("h200-loop")
    transfers = {row.name: row.launches for row in why.rows if row.kind == "transfer"}
    assert transfers == {"MemcpyH2D": 1, "MemcpyD2H": pytest.approx(1)}
    assert why.findings[0].cause == "host"
    assert why.findings[0].seconds > 0.9 * why.wall
    named = {row.program.split("(")[0] for row in why.rows if row.kernel.name}
    assert {"jit_stage", "jit__lambda", "jit_convert_element_type"} <= named


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "no such file or folder"), (b"", "no event of a device"), (b"\xff" * 100, "no trace")],
)
def test_what_is_no_trace_says_so(tmp_path, content, reason):
    file = tmp_path / "x.xplane.pb"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CannotProfile, match=reason):
        roofline.explain(file)


# --- what others record: loops that only queue their steps, many devices, graphs, no program ------


def test_kernels_in_cuda_graphs_get_their_instructions_back(traces):
    trace = read_trace(traces / "h200-scan.xplane.pb")
    programs = programs_in(trace)
    hidden = [
        replace(event, op="command_buffer_1", label=event.label or event.op)
        for event in trace.events
    ]
    graphs = replace(trace, devices={trace.device: hidden})
    found = named(graphs, programs).events
    fused = [(a, b) for a, b in zip(trace.events, found, strict=True) if b.label == a.op]
    assert len(fused) > 80
    assert all(a.op == b.op for a, b in fused)
    trace, notes = prepared(graphs, programs)
    assert "complete steps" in notes[0]
    rows, notes = join(trace, programs, Ceilings(), 3)
    assert any(row.name.startswith("nvjet") for row in rows)
    assert "xla_gpu_enable_command_buffer" in notes[0]


def loop_of_steps(devices=2, steps=6):
    """Return steps of 10 s that a host has queued within the first second.

    A matmul takes 4 s, and so does an exchange that begins in its middle; 1 s after the exchange
    a kernel of 2 s runs, followed by a sum on its own stream. The second device computes slower.
    """
    planes = {}
    for device in range(devices):
        kernels = [
            ("fusion.1", 0.0, 4.0 + device, "compute"),
            ("all-gather-start.2", 2.0, 6.0, "exchange"),
            ("fusion.3", 7.0, 9.0 - device, "compute"),
            ("all-reduce.4", 9.0, 9.5, "compute"),
        ]
        planes[f"/device:GPU:{device}"] = [
            Event(op, "jit_step", 5 + 10 * n + start, 5 + 10 * n + end, line)
            for n in range(steps)
            for op, start, end, line in kernels
        ][1:]  # recording began within a step
    marked = [Span("train", 0.2 * n, 0.2 * n + 0.1) for n in range(50)]
    return Trace("gpu", planes, marked, [], Path("loop.xplane.pb"))


def test_steps_of_a_loop_that_only_queues_them_are_those_of_the_device():
    trace, (which, idle, exchanges) = prepared(loop_of_steps(), {})
    assert [run.end - run.start for run in trace.runs] == pytest.approx([10] * len(trace.runs))
    assert len(trace.runs) % 2 == 1
    assert "from one start of jit_step to the next" in which
    # 1.5 s of 10 by the union, though kernels' own times add up to more than the step
    assert "/device:GPU:0 is idle for 15.0% of these steps" in idle
    assert "all 2 devices for 15.0% to 25.0%" in idle
    # 4 s of the all-gather and 0.5 s of the all-reduce; 2 s and 0.5 s nothing else runs
    assert "4.5 s of a step, and 2.5 s of that nothing else runs" in exchanges
    assert "11% of their time is on the stream of the other kernels" in exchanges
    rows = {row.name: row for row in join(trace, {}, Ceilings(), 1)[0]}
    assert rows["all-gather-start.2"].seconds == pytest.approx(2)
    assert rows["all-gather-start.2"].busy == pytest.approx(4)
    assert rows["fusion.1"].seconds == pytest.approx(4)
    assert math.fsum(row.seconds for row in rows.values()) == pytest.approx(10)


TPU = """planes { name: "%s"
  event_metadata { key: 1 value { id: 1 name: "jit_step(77)" } }
  event_metadata { key: 2 value { id: 2 name: "%%fusion.3 = bf16[8]{0} fusion(%%p), kind=kLoop" } }
  event_metadata { key: 3 value { id: 3 name: "%%copy-start.1 = (bf16[8]) copy-start(%%p)" } }
  lines { name: "XLA Modules" events { metadata_id: 1 offset_ps: 0 duration_ps: 9000000 }
                              events { metadata_id: 1 offset_ps: 10000000 duration_ps: 9000000 } }
  lines { name: "XLA Ops" events { metadata_id: 2 offset_ps: 0 duration_ps: 4000000 }
                          events { metadata_id: 2 offset_ps: 10000000 duration_ps: 4000000 } }
  lines { name: "Async XLA Ops" events { metadata_id: 3 offset_ps: 1000000 duration_ps: 5000000 }
                          events { metadata_id: 3 offset_ps: 11000000 duration_ps: 5000000 } } }
"""
"""As JAX 0.10 writes it on a v6e: another line than that of the instructions has their program."""


def test_instructions_of_a_tpu_belong_to_the_program_that_runs(tmp_path):
    names = ("/device:TPU:0", "/device:TPU:1", "/device:TPU:0 SparseCore 0")
    text = "".join(TPU % name for name in names)
    file = tmp_path / "host.xplane.pb"
    file.write_bytes(ProfileData.text_proto_to_serialized_xspace(text))
    trace = read_trace(tmp_path)
    assert list(trace.devices) == list(names[:2])
    assert {(e.op, e.program, e.number) for e in trace.events} == {
        ("fusion.3", "jit_step", 77),
        ("copy-start.1", "jit_step", 77),
    }
    why = explain(tmp_path)
    assert why.wall == pytest.approx(10e-6)
    seconds = {row.name: row.seconds for row in why.rows}
    assert seconds["fusion.3"] == pytest.approx(4e-6)
    assert seconds["copy-start.1"] == pytest.approx(2e-6)  # 3 of its 5 µs are hidden


def matmuls(x):
    for _ in range(8):
        x = jnp.tanh(x @ x)
    return x


ROOF = rh.Roofline(1e11, 1e10)


def test_a_plain_trace_has_the_rows_of_a_live_run(tmp_path, capsys):
    x = jnp.full((64, 64), 1e-3)
    run = jax.jit(matmuls)
    run(x).block_until_ready()
    with jax.profiler.trace(str(tmp_path)):
        for _ in range(12):
            run(x).block_until_ready()
    plain = explain(tmp_path)
    live = explain(matmuls, x, ceilings=ROOF, queue=1, progress=False)
    assert "11 complete steps" in plain.notes[0]
    read, ran = ({r.name: r for r in why.rows if r.kind == "kernel"} for why in (plain, live))
    assert read.keys() == ran.keys()
    for name, row in read.items():
        for field in ("flops", "bytes", "source", "title", "launches"):
            assert getattr(row, field) == getattr(ran[name], field)
    assert cli.main(["explain", str(tmp_path)]) == 0
    assert "11 complete steps" in capsys.readouterr().out


def test_steps_that_are_found_have_the_seconds_of_marked_runs(traces):
    trace = read_trace(traces / "h200-scan.xplane.pb")  # six marked runs of three calls each
    programs = programs_in(trace)
    found, _ = prepared(replace(trace, runs=[]), programs)
    assert len(found.runs) == 3 * len(trace.runs) - 1  # nothing ends the last call

    def seconds(runs):
        rows = join(replace(trace, runs=runs), programs, Ceilings(), 1)[0]
        return {row.name: row.busy for row in rows if row.kind == "kernel"}

    in_calls, in_runs = seconds(found.runs), seconds(trace.runs)
    assert {name: 3 * busy for name, busy in in_calls.items()} == pytest.approx(in_runs, rel=0.03)
    assert sum(in_calls.values()) * 3 == pytest.approx(sum(in_runs.values()), rel=0.01)
