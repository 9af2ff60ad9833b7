"""The committed records can be read, and the notebooks name none that is missing.

`make thorough` compares them with what the compiler says now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roofline_helpers import compiled
from roofline_helpers.compiled import stand_ins, targets
from tools import books
from tools.notebooks import records

NAMING = [path for path in books.notebooks() if records.recorded_by(path)]


def test_a_changed_record_is_found(tmp_path: Path) -> None:
    for path in records.made_each_time():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    victim = sorted(tmp_path.glob("*.json"))[0]
    changed = victim.read_text("utf-8").replace('"vector":', '"vector": 1', 1)
    victim.write_text(changed, "utf-8")
    extra = tmp_path / "invented.v6e.json"
    extra.write_text("{}", "utf-8")
    assert records.differing(tmp_path) == sorted([victim.name, extra.name])
    extra.unlink()
    victim.unlink()
    assert records.differing(tmp_path) == [victim.name]  # left over


def test_every_record_can_be_read() -> None:
    reports = compiled.records()
    refused = list(records.KEPT.glob(f"*{stand_ins.REFUSED}.json"))
    assert len(reports) == len(list(records.KEPT.glob("*.json"))) - len(refused) > 0
    assert all(report.origin == "record" and report.kernels for report in reports.values())
    texts = [path.read_text("utf-8") for path in records.KEPT.glob("*.json")]
    assert not any("stack_frame_id" in text for text in texts), "it depends on who called"


def test_named_records_exist() -> None:
    kept = {name for name, _ in compiled.records()}
    missing = {
        path.stem: set(re.findall(r'record=\\"([\w-]+)\\"', path.read_text("utf-8"))) - kept
        for path in NAMING
    }
    assert not any(missing.values()), missing


def test_readers_without_a_compiler_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.USE, raising=False)
    monkeypatch.setattr(targets, "can_compile", lambda chip=None: "no compiler in this test")
    name, chip = next(iter(compiled.records()))
    with pytest.warns(compiled.RecordUsed, match="no compiler in this test"):
        report = compiled.analyze(lambda x: x, 1.0, chip=chip, record=name)
    assert report.origin == "record"
    with pytest.raises(compiled.NoCompiler, match="no record 'unheard-of'"):
        compiled.analyze(lambda x: x, 1.0, chip=chip, record="unheard-of")
