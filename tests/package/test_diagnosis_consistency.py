"""What an explanation says against itself: roofs beaten, clocks that disagree."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from test_diagnosis_findings import H200

import roofline_helpers as rh
from roofline.diagnosis import Explanation, display, ladder
from roofline.diagnosis.answer import answer
from roofline.diagnosis.ceilings import Ceilings
from roofline.diagnosis.doubts import consistency_notes, slowed
from roofline.diagnosis.explain import diagnosed
from roofline.diagnosis.findings import Case, Finding
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import GAP, HOST, KERNEL, TimedRow, in_graphs, with_program
from roofline.diagnosis.trace import Event, Span, Trace
from roofline.xla.arrays import memory_notes
from roofline.xla.buffers import buffers_at_peak
from roofline.xla.hlo import parse
from roofline_helpers.common.show import si

EXPLAIN = sys.modules["roofline.diagnosis.explain"]


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


def test_a_profiler_that_slows_a_call_is_said_first_and_shares_are_withheld(
    decode_step: Explanation, tmp_path: Path
) -> None:
    reason = slowed(trace("gpu", 60), (1.29e-3, 1.3e-3, 1.28e-3), (14.2e-3,), 2)
    assert "11.0 times as long (14.2 ms instead of 1.29 ms)" in reason
    assert "30 events in each" in reason
    assert slowed(trace("gpu"), (1.29e-3,), (2.5e-3,), 1) == ""
    slow = replace(decode_step, withheld=reason, findings=())
    told = answer(slow)
    assert told[0] == "No cause of lost time found in the compiled program."
    assert told[1].startswith(f"The call takes {si(slow.wall, 's')} by the clock; as compiled it")
    assert told[2] == f"T{reason[1:]}."
    facts = dict(display.facts(slow))
    launches = sum(row.launches for row in slow.kernels)
    assert facts["launches"] == f"{launches:,.0f} of 1 program a call"
    assert set(slow.table()["share"]) == {None}
    text = slow.describe() + slow._repr_html_()
    assert "%" not in text.partition("BY KERNEL")[2].partition("slower when profiled")[0]
    assert "pip install matplotlib" not in slow.save(tmp_path / "why.html").read_text()


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [((0.5, 0.24), 1), ((0.5, 0.26), 0), ((0.29, 0.1), 0), ((0.31, 0.1), 1), ((0.9,), 1)],
    ids=["one dominates", "two compete", "none is large", "large enough", "alone"],
)
def test_on_a_busy_cpu_only_a_cause_that_dominates_is_named(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], kept: int
) -> None:
    found = tuple(Finding("transfer", loss, ("k",), "") for loss in seconds)
    monkeypatch.setattr(EXPLAIN, "findings", lambda case: found)
    case = Case((), {}, Ceilings(), "cpu", 1.0)
    run = Explanation("f", (), "cpu", "a CPU", "measured", (1.0,))
    why = diagnosed(run, case, (), busy="this machine is too busy")
    assert len(why.findings) == kept
    assert why.withheld == ("" if kept else "this machine is too busy")
    assert why.notes == (("this machine is too busy",) if kept else ())
    assert ("too busy" in answer(why)[-1]) == ("shares withheld" in repr(why)) == (not kept)
    assert "1 s by the clock" in " ".join(why.describe().split())


@pytest.mark.parametrize(("loss", "kept"), [(0.71, True), (0.69, False)])
def test_a_busy_cpu_makes_no_kernel_many_times_as_long(
    monkeypatch: pytest.MonkeyPatch, loss: float, kept: bool
) -> None:
    """What only is slow leads where other programs can't be why, not causes beside it."""
    found = (Finding("below-roof", loss, ("k",), ""), Finding("reordered", 0.1, ("k",), ""))
    monkeypatch.setattr(EXPLAIN, "findings", lambda case: found)
    case = Case((), {}, Ceilings(), "cpu", 1.0)
    run = Explanation("f", (), "cpu", "a CPU", "measured", (1.0,))
    why = diagnosed(run, case, (), busy="this machine is too busy")
    assert why.findings == (found[:1] if kept else ())


@pytest.mark.parametrize("name", ["training", "prefill"])
def test_ordinary_steps_dont_beat_what_good_kernels_reach(name: str) -> None:
    """On an H200, whose sustained matmuls are slower than a step's."""
    sustained = rh.chip("h200").roofline("bf16", reached=True).peak
    fastest = 0.0
    for step in ladder.committed()[name].steps:
        why = step.why
        faster = sum(max((row.reachable or 0.0) - row.seconds, 0.0) for row in why.rows)
        assert faster <= 0.02 * why.wall
        assert why.least < why.expected.seconds <= why.expected.high
        bars = {bar.name: bar.seconds for bar in why.waterfall}
        reached = bars["the compiled program"] + bars["ceilings as reached"]
        assert reached == pytest.approx(why.expected.seconds, rel=1e-4)
        narrow = (row.rate for row in why.kernels if row.kernel.matrix_types == ("bf16",))
        fastest = max([fastest, *(rate or 0.0 for rate in narrow)])
    assert fastest > 1.1 * sustained


# --- by function, and memory ----------------------------------------------------------------------


def test_a_step_is_told_by_function_first(recorded: Callable[..., Explanation]) -> None:
    why = recorded("h200-logits")
    table = why.table(by="function")
    assert list(table.index[:4]) == ["loss", "mlp", "attention", "optimizer"]
    assert table["ms"].sum() == pytest.approx(1e3 * why.covered)
    where = {row.name: row.kernel.source.function for row in why.rows if row.kernel.source}
    scoped = {row.name: row.kernel.scope or where.get(row.name) for row in why.rows}
    rows = [row for row in why.rows if scoped[row.name] == "loss"]
    assert table.loc["loss", "ms"] == pytest.approx(1e3 * sum(row.seconds for row in rows))
    assert table.loc["loss", "lost ms"] == pytest.approx(1e3 * sum(row.lost for row in rows))
    back = sum(row.seconds for row in rows if row.kernel.step == "backward")
    assert table.loc["loss", "backward ms"] == pytest.approx(1e3 * back)
    text, page = why.describe(), why._repr_html_()
    assert text.index("optimizer") < text.rindex("cuBLAS matmul of loss")
    causes = [finding.cause for finding in why.findings]
    assert causes[-1] == "many-kernels", "what many kernels lose together is no one change"
    assert page.index("By function") < page.index("By kernel")
    unrolled, scan = (
        recorded(name).table(by="function") for name in ("h200-step", "h200-step-scan")
    )
    assert list(scan.index[:2]) == list(unrolled.index[:2]) == ["mlp", "attention"]


def test_memory_that_donation_saves_and_the_largest_array_are_named(
    recorded: Callable[..., Explanation],
) -> None:
    notes = " ".join(recorded("h200-logits").notes)
    states = 2 + 4 + 4  # bytes of a weight and its moments
    weights = 65536 * 2048 + 2 * (4 * 2048**2 + 3 * 2048 * 8192)
    assert f"{si(states * weights, 'B')} of memory could be saved" in notes
    assert "24 arguments (w['d'] and others" in notes
    assert "the largest array that isn't returned is f32[4,2048,65536], 2.15 GB" in notes
    assert "record_traces.py:269" in notes
    text = STATE.replace("ALIASED", "input_output_alias={ {0}: (0, {}, may-alias) }, ")
    for program, saved in ((STATE.replace("ALIASED", ""), "537 MB"), (text, "403 MB")):
        module = parse(program)
        (note,) = memory_notes(module, buffers_at_peak(module, "gpu"))
        assert note.startswith(saved)


STATE = """HloModule update, ALIASEDis_scheduled=true
ENTRY %main (a: WIDE, b: WIDE, c: WIDE, d: WIDE) -> WIDE {
  %a = f32[32768,1024]{1,0} parameter(0)
  %b = f32[32768,1024]{1,0} parameter(1)
  %c = f32[32768,1024]{1,0} parameter(2)
  %d = f32[32768,1024]{1,0} parameter(3)
  %w = f32[32768,1024]{1,0} negate(%a)
  %x = f32[32768,1024]{1,0} negate(%b)
  %y = f32[32768,1024]{1,0} negate(%c)
  %z = f32[32768,1024]{1,0} negate(%d)
  ROOT %t = (WIDE, WIDE, WIDE, WIDE) tuple(%w, %x, %y, %z)
}
""".replace("WIDE", "f32[32768,1024]{1,0}")


def test_what_a_scan_costs_is_within_what_is_promised(recorded: Callable[..., Explanation]) -> None:
    """Its slices, its stacks and their zeros: unrolled, the same step took 7.24 ms less."""
    (scan,) = (f for f in recorded("h200-step-scan").findings if f.cause == "scan-copy")
    low, high = scan.saves
    assert low < (101.19 - 93.95) * 1e-3 < high
    roles = {recorded("h200-step-scan").row(name).title for name in scan.kernels}
    assert {"slice of w['d']", "update in place (backward)", "broadcast (backward)"} <= roles
    unrolled = recorded("h200-step")
    causes = {finding.cause for finding in unrolled.findings}
    assert "scan-copy" not in causes
    assert "attention" not in causes  # cuDNN's already; its norms are kernels called softmax


# --- what a run says without its profile ----------------------------------------------------------


def test_in_cuda_graphs_kernels_keep_their_time_and_gaps_get_what_the_clock_leaves() -> None:
    kernel = TimedRow("k", KERNEL, 4e-3, 4e-3, 4e-3, 4e-3)
    gap, host = (TimedRow(kind, kind, s, s, s, s) for kind, s in ((GAP, 8e-3), (HOST, 2e-3)))
    for wall, gaps in ((6e-3, 1.6e-3), (14e-3, 8e-3), (20e-3, 8e-3), (3e-3, 0.0)):
        rows = in_graphs((kernel, gap, host), wall)
        assert [row.seconds for row in rows] == pytest.approx([4e-3, gaps, gaps / 4])
        assert rows[1].busy == rows[1].high == rows[1].seconds
    assert in_graphs((kernel,), 1e-3) == (kernel,)


def test_an_array_is_named_that_a_reader_can_do_without_and_no_result():
    wide, thin = "f32[32768,4096]{1,0}", "f32[32768]{0}"

    def largest(lines):
        module = parse(
            "HloModule m\n\n%add () -> f32[] {\n  %a = f32[] parameter(0)\n"
            "  %b = f32[] parameter(1)\n  ROOT %s = f32[] add(%a, %b)\n}\n\n"
            f"ENTRY %main () -> f32[] {{\n  %x = {thin} parameter(0)\n  %z = f32[] constant(0)\n"
            f"  %w = {wide} {lines}\n}}"
        )
        return memory_notes(module, buffers_at_peak(module, "gpu"))

    wider, gathered = (f"{op}(%x), dimensions={{0}}" for op in ("broadcast", "all-gather"))
    summed = f"%r = {thin} reduce(%w, %z), dimensions={{1}}, to_apply=%add"
    [note] = largest(f"{wider}\n  ROOT {summed}")
    assert note.startswith("the largest array that isn't returned is f32[32768,4096], 537 MB")
    assert largest(f"{wider}\n  {summed}\n  ROOT %t = ({thin}, {wide}) tuple(%r, %w)") == []
    assert largest(f"{gathered}\n  ROOT {summed}") == []


ONE_HOT = """HloModule looked_up, is_scheduled=true
ENTRY %main (t: bf16[32000,512], i: s32[64]) -> bf16[64,512] {
  %t = bf16[32000,512]{1,0} parameter(0)
  %i = s32[64]{0} parameter(1)
  %wide = s32[64,32000]{1,0} broadcast(%i), dimensions={0}
  %row = s32[64,32000]{1,0} iota(), iota_dimension=1
  %same = pred[64,32000]{1,0} compare(%wide, %row), direction=EQ
  %hot = bf16[64,32000]{1,0} convert(%same)
  ROOT %y = bf16[64,512]{1,0} dot(%hot, %t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_a_run_whose_shares_are_withheld_names_what_its_program_has_in_vain():
    """A one-hot lookup under a profiler that slows it: the cause needs no clock."""
    program = Program(ONE_HOT, "gpu")
    name = program.module.name
    rows = tuple(
        with_program(TimedRow(one, KERNEL, 1e-5, launches=1.0, program=name), program, H200)
        for one in program.rows
    )
    case = Case(rows, {name: program}, H200, "gpu", 1e-3)
    run = Explanation("f", (), "gpu", "NVIDIA H200", "measured", (1e-3,), withheld="it is slowed")
    why = diagnosed(run, case, ())
    assert why.findings[0].cause == "one-hot"
    change, how, clock, withheld = answer(why)
    assert "one-hot" in change
    assert (how, withheld) == ("Index the table: table[indices].", "It is slowed.")
    assert clock.startswith("The call takes 1 ms by the clock")
    assert "of the time that its programs are expected to take" in why.describe().replace("\n", " ")
    assert dict(display.facts(why))["launches"] == f"{len(rows)} of 1 program a call"
