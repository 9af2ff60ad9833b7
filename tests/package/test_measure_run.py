"""Running the cases: failures, deadlines, interruptions, notes, progress."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from measure_suite import case, run

from roofline_helpers import measure
from roofline_helpers.measure import Record

jax = pytest.importorskip("jax")


def test_a_record_names_device_versions_date_and_command() -> None:
    record = run(case("a"), passes=2)
    assert record.device["platform"] == "cpu"
    assert record.software["jax"] == jax.__version__
    assert record.host["cores"] >= 1
    assert record.command
    assert record.date[:2] == "20"
    assert record.date.endswith("Z")
    assert len(record.sample("a").passes) == 2
    assert record.complete


def test_a_case_that_fails_does_not_take_the_others_with_it() -> None:
    def fails(x: Any) -> Any:
        raise RuntimeError("no such unit on this device")

    record = run(
        case("good"),
        case("bad", fails),
        case("huge", needs=1e15),
        case("empty", fn=None, make=lambda: 1 / 0),
        case("also good"),
    )
    errors = {each.name: each.error for each in record.samples}
    assert errors["good"] is None
    assert errors["also good"] is None
    assert "no such unit" in str(errors["bad"])
    assert "not enough memory: needs 1 PB" in str(errors["huge"])
    assert "ZeroDivisionError" in str(errors["empty"])
    assert "no such unit" in record.table().to_string()


def test_a_case_that_fails_later_keeps_its_first_pass() -> None:
    made = case("a")
    arguments = iter([made.make()])
    record = run(case("a", make=lambda: next(arguments)), passes=2)
    (sample,) = record.samples
    assert (len(sample.passes), sample.error) == (1, None)
    assert sample.notes[-1].startswith("failed in a later pass: StopIteration")


def test_the_time_that_is_up_is_noted() -> None:
    record = run(case("a"), case("b"), passes=2, deadline=1e-9)
    assert any("4 measurements left out" in note for note in record.notes)
    assert not any(each.passes for each in record.samples)


def test_an_interrupted_run_keeps_what_there_was(tmp_path: Path) -> None:
    def stop(number: int, record: Record) -> Record:
        raise KeyboardInterrupt

    kept = tmp_path / "kept.json"
    run(case("earlier")).save(kept)
    before = kept.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        run(case("later"), partial=kept.with_suffix(".partial"), between=stop)
    assert kept.read_bytes() == before


def test_what_there_is_so_far_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "so far.json"
    run(case("a"), passes=2, partial=path, between=lambda number, record: record)
    loaded = measure.load(path)
    assert not loaded.complete
    assert len(loaded.sample("a").passes) == 2


def test_a_busy_machine_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    assert any("busy machine: load 99.0" in note for note in run(case("a")).notes)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert run(case("a")).notes == ()
