"""What changed between two reports, on records: no compiler is needed."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from kept_records import kept_report

from roofline.xla import Flops, Row
from roofline.xla.changes import Changes, _difference
from roofline.xla.compiler import MemoryStats
from roofline.xla.kernel import line_of
from roofline.xla.metadata import SourceLine
from roofline.xla.report import Report
from roofline_helpers.chips import assumed_floor
from roofline_helpers.common.show import si

REPORT = kept_report("chain-xla", "v6e")


def test_code_that_moved_is_no_change():
    rows = tuple(
        replace(row, op_name=row.op_name.replace(")/", ")/elsewhere/", 1), role=f"{row.role} now")
        for row in REPORT.rows
    )
    moved = replace(REPORT, rows=rows)
    assert moved.groups().keys() != REPORT.groups().keys()
    assert not REPORT.diff(moved)
    grown = replace(moved, rows=tuple(replace(row, launches=3 * row.launches) for row in rows))
    changes = REPORT.diff(grown)
    assert {change.kind for change in changes.changes} >= {"appeared", "gone"}
    assert len(repr(changes)) < 200
    assert len(repr(changes).splitlines()) == 2
    assert len(changes.describe().splitlines()) == 1 + len(changes.changes)


@pytest.mark.parametrize(
    ("name", "chip"), [("whole-v6e-8-llama-3_1-8b", "v6e"), ("fuse-chain", "v6e")]
)
def test_a_baseline_holds_what_is_compared_and_no_more(name, chip):
    report = kept_report(name, chip)
    back = Report.from_json(text := report.to_json(brief=True))
    assert not back.diff(report)
    assert back.groups().keys() == report.groups().keys()
    assert back.time_at_roof == report.time_at_roof
    moved = tuple(
        replace(row, name=f"{row.name}.7", source=row.source and replace(row.source, line=99))
        for row in report.rows
    )
    assert replace(report, rows=moved).to_json(brief=True) == text


def test_the_line_of_many_kernels_is_that_which_takes_longest_in_all():
    times = {"a.py:1": 5e-6, "b.py:2": 4e-6, "": 20e-6, "b.py:3": 1e-6}
    kernels = [
        SimpleNamespace(work=SimpleNamespace(source=s), roof_seconds=t) for s, t in times.items()
    ]
    again = SimpleNamespace(work=SimpleNamespace(source="b.py:2"), roof_seconds=2e-6)
    assert line_of([*kernels, again]) == "b.py:2"


PRODUCT = Row("k", "fusion", "dot", flops=Flops(7e9, 3e8), read={"hbm": 6_000_000})
GREW = "outside of any function: grew"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"launches": 3}, "; HBM 6 MB → 18 MB; FLOPs 7.3 GFLOP → 21.9 GFLOP; new: dot"),
        ({"flops": Flops(9e9, 3e8)}, "; FLOPs 7.3 GFLOP → 9.3 GFLOP; new: dot"),
        ({"flops": Flops(7e9, 5e8)}, "; FLOPs 7.3 GFLOP → 7.5 GFLOP; new: dot"),
        ({"read": {"hbm": 9_000_000}}, "; HBM 6 MB → 9 MB; new: dot"),
        ({"read": {"hbm": 6_000_000, "vmem": 5000}}, "; VMEM 0 B → 5 kB; new: dot"),
        ({"role": "matmul"}, None),
        ({"name": "k.7", "cycles": 9, "opcode": "dot"}, None),
    ],
)
def test_a_kernel_is_the_same_if_its_work_is(changes, told):
    before = replace(REPORT, rows=(PRODUCT,))
    listed = before.diff(replace(REPORT, rows=(replace(PRODUCT, **changes),))).changes
    texts = [str(change).partition("; expected")[0] for change in listed]
    assert texts == ([] if told is None else [f"{GREW}{told}"])


def test_a_change_is_told_at_its_line_in_the_new_code():
    old = replace(PRODUCT, source=SourceLine("old.py", 3))
    new = replace(PRODUCT, source=SourceLine("new.py", 5), launches=3)
    changes = replace(REPORT, rows=(old,)).diff(replace(REPORT, rows=(new,))).changes
    assert [change.line for change in changes] == ["new.py:5"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (2e-3, 2.0019e-3, "nothing changed"),
        (2e-3, 2.0021e-3, "nothing changed: 2 ms expected became 2 ms (+0.1%)"),
        (2e-3, 1.9979e-3, "nothing changed: 2 ms expected became 2 ms (-0.1%)"),
        (2e-3, 3e-3, "nothing changed: 2 ms expected became 3 ms (+50.0%)"),
        (2e-3, None, "nothing changed"),
        (0.0, 3e-3, "nothing changed"),
    ],
)
def test_a_time_is_told_if_it_changed_by_a_thousandth(before, after, told):
    assert Changes((), (before, after), ("x", "x")).describe() == told


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [(198, 200, []), (197, 200, ["HBM 197 B → 200 B"]), (200, 198, []), (0, 2, ["HBM 0 B → 2 B"])],
)
def test_a_hundredth_is_a_difference(before, after, told):
    assert _difference("HBM", (before, after), "B") == told


def test_an_unrolled_loop_is_called_one():
    looped = replace(REPORT, rows=tuple(replace(row, launches=4) for row in REPORT.rows))
    unrolled = replace(REPORT, rows=REPORT.rows * 4)
    changes = looped.diff(unrolled).changes
    assert {change.kind for change in changes} == {"unrolled"}
    assert all("unrolled, 4 iterations: " in change.text for change in changes)
    assert [change.seconds for change in changes] == pytest.approx([0] * len(changes))
    assert {change.kind for change in unrolled.diff(looped).changes} == {"rolled"}


def test_memory_and_donation_are_seen():
    memory = MemoryStats(arguments=10**9, results=10**9, aliased=10**9)
    before = replace(REPORT, memory=memory)
    (change,) = before.diff(replace(before, memory=replace(memory, aliased=0))).changes
    assert str(change) == "donation lost: 1 GB is copied each call; memory 1 GB → 2 GB at most"
    assert not before.diff(replace(before, memory=replace(memory, temporaries=10**6)))
    rows = tuple(replace(row, launches=3 * row.launches) for row in REPORT.rows)
    after = replace(before, rows=rows, memory=replace(memory, aliased=0))
    assert [change.kind for change in before.diff(after).changes][:2] == ["memory", "grew"]


def test_more_launches_have_a_cost():
    halves = [
        replace(
            row,
            read={level: n // 2 for level, n in row.read.items()},
            written={level: n // 2 for level, n in row.written.items()},
            flops=row.flops * 0.5,
        )
        for row in REPORT.rows
        for _ in range(2)
    ]
    changes = REPORT.diff(replace(REPORT, rows=tuple(halves))).changes
    assert {change.kind for change in changes} == {"split"}
    floor = si(assumed_floor("tpu"), "s")
    assert all(f"more launches of {floor} or longer" in change.text for change in changes)
