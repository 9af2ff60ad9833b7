"""What became slower, kernel by kernel: real noise of an H200, planted changes, others' files."""

import gzip
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jax.profiler import ProfileData

from roofline import cli
from roofline.diagnosis import CannotProfile, Explanation, compare, explain, ladder
from roofline.diagnosis.ceilings import ceilings_of
from roofline.diagnosis.rows import TimedRow, family_of, join
from roofline.diagnosis.trace import Event, Trace, programs_in, read_trace
from roofline.diagnosis.trace_steps import prepared
from roofline.diagnosis.upgrade import _half


def told(trace: Trace, runs: slice, change: Callable[[Event], Event] | None = None) -> Explanation:
    """Return some runs of a trace as an explanation, each event changed."""
    programs = programs_in(trace)
    trace, _ = prepared(trace, programs)
    events = [change(event) if change else event for event in trace.events]
    trace = replace(trace, runs=trace.runs[runs], devices={trace.device: events})
    rows, _ = join(trace, programs, ceilings_of("NVIDIA H200", ["bf16"]), 1)
    seconds = tuple(run.seconds for run in trace.runs)
    return Explanation("step", (), "gpu", "NVIDIA H200", "trace", runs=seconds, rows=rows)


NAMES = ["cudnn", "logits", "loop", "scan", "step-scan", "step"]


@pytest.mark.parametrize("name", NAMES)
def test_two_halves_of_one_profile_are_the_same_but_for_noise(traces: Path, name: str) -> None:
    """Here an H200 gets warm between the halves, and single runs differ by 9%."""
    trace = read_trace(traces / f"h200-{name}.xplane.pb")
    prepared_trace, _ = prepared(trace, programs_in(trace))
    half = len(prepared_trace.runs) // 2
    for first, second in ((slice(half), slice(half, None)), (slice(0, None, 2), slice(1, None, 2))):
        upgrade = compare(told(trace, first), told(trace, second))
        assert [pair for pair in upgrade.pairs if pair.verdict != "same"] == []
        assert not upgrade


def test_a_kernel_that_changes_is_found_by_its_line(traces: Path) -> None:
    trace = read_trace(traces / "h200-step.xplane.pb")
    before = told(trace, slice(None))
    slow = max(before.kernels, key=lambda row: row.seconds)  # of all layers
    layers = {row.name for row in before.rows if family_of(row) == family_of(slow)}

    def changed(event: Event) -> Event:
        end = event.start + 0.7 * event.seconds
        return replace(event, end=end) if event.op in layers else event

    after = told(trace, slice(None), changed)
    for pair, verdict in ((compare(before, after), "faster"), (compare(after, before), "slower")):
        [found] = [kernel for kernel in pair.pairs if kernel.verdict != "same"]
        assert (found.line, found.verdict) == (slow.source, verdict)
        times = found.after / found.before
        assert times == pytest.approx(0.7 if verdict == "faster" else 1 / 0.7, rel=0.02)
    table = compare(before, after).table()
    assert table.loc["the call", "after ms"] == pytest.approx(1e3 * before.wall)


def test_a_lower_clock_counts_to_no_kernel(traces: Path) -> None:
    trace = read_trace(traces / "h200-step.xplane.pb")
    before = told(trace, slice(None))
    longer = dict.fromkeys(("seconds", "busy", "low", "high"), 1.2)
    rows = [
        replace(row, **{name: factor * getattr(row, name) for name, factor in longer.items()})
        if row.kind == "kernel"
        else row
        for row in before.rows
    ]
    upgrade = compare(before, replace(before, rows=tuple(rows)))
    assert upgrade.common == pytest.approx(1.2)
    assert {pair.verdict for pair in upgrade.pairs} == {"same"}
    assert any("nearly every kernel takes 1.200 times as long" in str(p) for p in upgrade.parts())


@pytest.mark.parametrize(
    ("kind", "before", "after", "verdict"),
    [
        ("kernel", 0.300, 0.314, "same"),  # 4.5% of it
        ("kernel", 0.300, 0.3155, "same"),  # 4.9% of the longer time, 5.2% of the shorter
        ("kernel", 0.300, 0.3165, "slower"),  # 5.2% of the longer time
        ("kernel", 0.030, 0.035, "slower"),  # 0.5% of the call of 1 s
        ("kernel", 0.010, 0.0115, "same"),  # 0.15%
        ("kernel", 0.0, 0.003, "new"),
        ("gap", 0.100, 0.115, "same"),  # 1.5%
        ("gap", 0.100, 0.130, "slower"),
        ("gap", 0.130, 0.100, "faster"),
    ],
)
def test_a_small_share_of_the_call_is_noise_and_of_gaps_a_larger_one(
    kind: str, before: float, after: float, verdict: str
) -> None:
    sides = [
        [TimedRow("it", kind, *[seconds] * 4)] if seconds else [] for seconds in (before, after)
    ]
    [pair] = compare(*map(call_of, sides)).pairs
    assert (pair.verdict, pair.change) == (verdict, pytest.approx(after - before))


def call_of(rows: Sequence[TimedRow]) -> Explanation:
    """Return a call of a second."""
    setting = "step", (), "gpu", "NVIDIA H200", "trace"
    return Explanation(*setting, runs=(1.0,) * 5, rows=tuple(rows))


@pytest.mark.parametrize(("after", "verdict"), [(0.127, "same"), (0.130, "slower")])
def test_a_change_within_twice_the_spread_of_both_sides_is_noise(
    after: float, verdict: str
) -> None:
    """Half of 20 ms between the quartiles of each side: twice √2 · 10 ms, 28.3 ms."""
    sides = [[TimedRow("it", "kernel", s, s, s - 0.01, s + 0.01)] for s in (0.1, after)]
    [pair] = compare(*map(call_of, sides)).pairs
    assert (pair.verdict, pair.spread) == (verdict, pytest.approx(0.01 * 2**0.5))


@pytest.mark.parametrize(
    ("kernels", "longer", "times", "common"),
    [
        (10, 9, 1.2, 1.2),
        (10, 8, 1.2, 1.2),
        (10, 7, 1.2, 1.0),
        (10, 1, 1.2, 1.0),
        (5, 5, 0.7, 0.7),
        (4, 4, 1.2, 1.0),  # too few to tell
        (10, 10, 1.03, 1.03),
        (10, 10, 1.02, 1.0),
    ],
)
def test_a_clock_is_another_one_where_four_in_five_kernels_say_so(
    kernels: int, longer: int, times: float, common: float
) -> None:
    before, after = (
        [
            TimedRow(name, "kernel", *[0.05 * (factor if n < longer else 1)] * 4)
            for n, name in enumerate("abcdefghij"[:kernels])
        ]
        for factor in (1.0, times)
    )
    gap = TimedRow("between kernels", "gap", *[0.1] * 4)  # which no clock lengthens
    upgrade = compare(call_of([*before, gap]), call_of([*after, gap]))
    assert upgrade.common == pytest.approx(common)
    assert [pair.verdict for pair in upgrade.pairs if pair.what == gap.title] == ["same"]
    slower = sum(pair.verdict == "slower" for pair in upgrade.pairs)
    assert slower == (0 if common != 1 or times < 1.05 else longer)


@pytest.mark.parametrize(
    ("runs", "after", "verdict"),
    [
        (3, 0.32, "slower"),
        (2, 0.32, "same"),
        (2, 0.335, "slower"),
        (2, 0.27, "same"),
        (2, 0.265, "faster"),
    ],
)
def test_few_runs_leave_twice_as_much_to_noise(runs: int, after: float, verdict: str) -> None:
    sides = [call_of([TimedRow("it", "kernel", *[seconds] * 4)]) for seconds in (0.3, after)]
    [pair] = compare(sides[0], replace(sides[1], runs=(1.0,) * runs)).pairs
    assert pair.verdict == verdict


def test_the_spread_of_many_runs_is_that_of_their_quartiles() -> None:
    assert _half([1, 6, 2, 4, 5, 3]) == 2.5  # of six, all
    assert _half([1, 6, 2, 7, 4, 5, 3]) == 1.5


def test_the_command_compares_what_ran(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ladder.committed()["decode"].steps
    files = []
    for step in (steps[0], steps[3]):
        files.append(str(step.why.save(tmp_path / f"{len(files)}.json")))
    assert cli.main(["compare", *files]) == 1
    assert "a call became" in capsys.readouterr().out
    assert cli.main(["compare", files[0], files[0]]) == 0
    capsys.readouterr()
    profile = str(traces / "h200-scan.xplane.pb")
    assert cli.main(["compare", profile, profile, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {kernel["verdict"] for kernel in data["kernels"]} == {"same"}
    report = str(Path(cli.__file__).parent / "data/compiled/attention.v6e.json")
    assert cli.main(["compare", report, files[0]]) == 2
    assert "compared, or two explanations or profiles" in capsys.readouterr().err


# --- what others wrote ----------------------------------------------------------------------------

KINETO = {"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": [], "with_stack": 0}
CHROME = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": []}


def database(table: str) -> Callable[[Path], Any]:
    def write(file: Path) -> None:
        with sqlite3.connect(file) as made:
            made.execute(f"create table {table}(x int)")

    return write


def compressed(data: Any) -> bytes:
    return gzip.compress(json.dumps(data).encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("host.1.pt.trace.json", json.dumps(KINETO, indent=2).encode(), "PyTorch's profiler"),
        ("trace.json.gz", compressed(KINETO), "PyTorch's profiler"),
        ("trace.json.gz", compressed(CHROME), "Chrome or Perfetto trace.*xplane.pb"),
        ("run.perfetto-trace", b"\n\x10" + b"a" * 16, "Chrome or Perfetto trace"),
        ("report1.nsys-rep", b"\x01\x02", "Nsight Systems.*without Nsight"),
        ("report1.sqlite", database("CUPTI_ACTIVITY_KIND_KERNEL"), "Nsight Systems"),
        ("kernels.ncu-rep", b"NVR\0", "Nsight Compute"),
        ("results.db", database("rocpd_kernelapi"), "AMD's tools"),
        ("vm.kernel_stats.pb", b"\xff\xff", "XProf.*xplane.pb"),
        ("memory.prof", compressed({}), "profile of memory"),
        ("module_1.hlo", b"HloModule jit_f", "program's text.*roofline.analyze"),
        ("why.json", b'{"schema": "roofline.explained/2"}', "record of explain.*compare"),
    ],
)
def test_profiles_of_others_are_named_with_what_to_do(
    tmp_path: Path, name: str, content: Any, said: str
) -> None:
    file = tmp_path / name
    if callable(content):
        content(file)
    else:
        file.write_bytes(content)
    for path in (file, tmp_path):
        with pytest.raises(CannotProfile, match=said):
            explain(path)


AMD = """planes { name: "/device:GPU:0"
  event_metadata { key: 1 value { id: 1 name: "Cijk_Ailk_Bljk_BBS" } }
  lines { name: "Stream #1(Kernel)"
    events { metadata_id: 1 offset_ps: 0 duration_ps: 4000000 }
    events { metadata_id: 1 offset_ps: 10000000 duration_ps: 4000000 }
    events { metadata_id: 1 offset_ps: 20000000 duration_ps: 4000000 } }
  %s }"""
"""As XLA's collector for ROCm writes a plane: without the name of the device."""


@pytest.mark.parametrize(
    ("minor", "memory", "clock", "device"),
    [
        (4, 206141652992, 2100000, "AMD Instinct MI300X"),
        (4, 274861129728, 2100000, "AMD Instinct MI325X"),
        (5, 309220868096, 2200000, "AMD Instinct MI350X"),
        (5, 309220868096, 2400000, "AMD Instinct MI355X"),
        (0, 68702699520, 1700000, "AMD Instinct MI250X"),
    ],
)
def test_a_gpu_of_amd_is_known_by_its_facts(
    tmp_path: Path, minor: int, memory: int, clock: int, device: str
) -> None:
    facts = {"compute_cap_major": 9, "compute_cap_minor": minor, "memory_size": memory}
    facts["clock_rate"] = clock
    stats = 'stat_metadata { key: 9 value { id: 9 name: "device_vendor" } }\n'
    stats += 'stats { metadata_id: 9 str_value: "AMD" }\n'
    for number, (name, value) in enumerate(facts.items(), 1):
        stats += f'stat_metadata {{ key: {number} value {{ id: {number} name: "{name}" }} }}\n'
        stats += f"stats {{ metadata_id: {number} uint64_value: {value} }}\n"
    file = tmp_path / "amd.xplane.pb"
    file.write_bytes(ProfileData.text_proto_to_serialized_xspace(AMD % stats))
    why = explain(file)
    assert why.device == device
    assert why.roofs.published["hbm"] > 0


def test_a_wrong_folder_is_said(tmp_path):
    with pytest.raises(CannotProfile, match="it is empty"):
        explain(tmp_path)
    (tmp_path / "plugins/profile/2026_11_28").mkdir(parents=True)
    with pytest.raises(CannotProfile, match=r"stop_trace\(\) was never called"):
        explain(tmp_path)
    (tmp_path / "model.py").write_text("x = 1", "utf-8")
    with pytest.raises(CannotProfile, match=r"no \*.xplane.pb in it, among 1 file\. jax"):
        explain(tmp_path)
    for name in ("a.ncu-rep", "b.ncu-rep", "c.nsys-rep", "d.ncu-rep"):
        (tmp_path / name).write_bytes(b"\x01\x02")
    with pytest.raises(CannotProfile, match=r"in it, but .*Nsight Compute.* and 2 more: "):
        explain(tmp_path)
    made_of_it = tmp_path / "vm.kernel_stats.pb"
    made_of_it.write_bytes(b"\xff\xff")
    (beside := tmp_path / "vm.xplane.pb").write_bytes(b"")
    with pytest.raises(CannotProfile, match=f"the same run is in {beside}: give that"):
        explain(made_of_it)
