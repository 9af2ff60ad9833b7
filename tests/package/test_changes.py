"""What changed between two reports, on records: no compiler is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofline_helpers import compiled
from roofline_helpers.compiled import Memory, stand_ins


def kept() -> compiled.Report:
    report = stand_ins.find("chain-xla", "v6e")
    assert report is not None
    return report


def test_code_that_moved_is_no_change() -> None:
    report = kept()
    rows = tuple(
        replace(row, op_name=row.op_name.replace(")/", ")/elsewhere/", 1), role=f"{row.role} now")
        for row in report.rows
    )
    moved = replace(report, rows=rows)
    assert {group.name for group in moved.groups()} != {group.name for group in report.groups()}
    assert not report.diff(moved)
    grown = replace(moved, rows=tuple(replace(row, launches=3 * row.launches) for row in rows))
    assert {change.kind for change in report.diff(grown).changes} >= {"appeared", "gone"}


def test_an_unrolled_loop_is_called_one() -> None:
    report = kept()
    looped = replace(report, rows=tuple(replace(row, launches=4) for row in report.rows))
    unrolled = replace(report, rows=report.rows * 4)
    changes = looped.diff(unrolled).changes
    assert {change.kind for change in changes} == {"unrolled"}
    assert all("unrolled, 4 turns: " in change.text for change in changes)
    assert [change.seconds for change in changes] == pytest.approx([0] * len(changes))
    assert {change.kind for change in unrolled.diff(looped).changes} == {"rolled"}


def test_memory_and_donation_are_seen() -> None:
    memory = Memory(arguments=10**9, results=10**9, aliased=10**9)
    before = replace(kept(), memory=memory)
    (change,) = before.diff(replace(before, memory=replace(memory, aliased=0))).changes
    assert (change.kind, change.place) == ("memory", "memory")
    assert change.text.startswith("1 GB → 2 GB at most")
    assert change.text.endswith("donated arguments are kept")
    assert not before.diff(replace(before, memory=replace(memory, temporaries=10**6)))


def test_another_target_or_other_arguments_are_said() -> None:
    before = kept()
    other = replace(before, arguments=("f32[8]",), topology="4x4")
    changed = {change.place: change.text for change in before.diff(other).changes}
    assert set(changed) == {"arguments", "topology"}
    assert changed["arguments"].endswith("→ f32[8]")
