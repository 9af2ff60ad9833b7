"""The committed records say what the compiler says now, and the notebooks use all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roofline_helpers import compiled
from roofline_helpers.compiled import targets
from tools import books
from tools.notebooks import records

NAMING = [path for path in books.notebooks() if records.recorded_by(path)]
LIVE = pytest.mark.skipif(
    compiled.can_compile("v6e") is not None,
    reason=f"NO LIVE COMPILATION HERE, records unchecked: {compiled.can_compile('v6e')}",
)


@LIVE
def test_records_are_what_the_compiler_says_now(
    fresh: Callable[[Path], Any], recorded: Path
) -> None:
    for path in NAMING:
        fresh(path)
    assert records.differing(recorded) == [], "look, then `make records`"


@LIVE
def test_a_changed_record_is_found(tmp_path: Path) -> None:
    for path in records.KEPT.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    victim = sorted(tmp_path.glob("*.json"))[0]
    changed = victim.read_text("utf-8").replace('"vector":', '"vector": 1', 1)
    victim.write_text(changed, "utf-8")
    extra = tmp_path / "invented.v6e.json"
    extra.write_text("{}", "utf-8")
    assert records.differing(tmp_path) == sorted([victim.name, extra.name])


def test_every_record_can_be_read() -> None:
    found = compiled.records()
    assert len(found) == len(list(records.KEPT.glob("*.json"))) > 0
    assert all(report.origin == "record" and report.kernels for report in found.values())


@pytest.mark.parametrize("path", NAMING, ids=[path.stem for path in NAMING])
def test_named_records_exist(path: Path) -> None:
    names = set(re.findall(r'record=\\"([\w-]+)\\"', path.read_text("utf-8")))
    kept = {name for name, _ in compiled.records()}
    assert names <= kept


def test_readers_without_a_compiler_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.USE, raising=False)
    monkeypatch.setattr(targets, "can_compile", lambda chip=None: "no compiler in this test")
    name, chip = next(iter(compiled.records()))
    with pytest.warns(compiled.RecordUsed, match="no compiler in this test"):
        report = compiled.analyze(lambda x: x, 1.0, chip=chip, record=name)
    assert report.origin == "record"
    with pytest.raises(compiled.NoCompiler, match="no record 'unheard-of'"):
        compiled.analyze(lambda x: x, 1.0, chip=chip, record="unheard-of")
