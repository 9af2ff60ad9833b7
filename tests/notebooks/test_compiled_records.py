"""The committed records can be read.

`make thorough` compares them with what the compiler says now."""

import pytest

from roofline import xla
from roofline.diagnosis.modelled import found_in
from roofline.xla import analysis
from roofline.xla.analysis import REFUSED
from tools.notebooks import records


def test_every_record_can_be_read():
    reports = xla.records()
    refused = list(records.COMPILED.glob(f"*{REFUSED}.json"))
    assert len(reports) == len(list(records.COMPILED.glob("*.json"))) - len(refused) > 0
    assert all(report.origin == "record" and report.kernels for report in reports.values())
    texts = [path.read_text("utf-8") for path in records.COMPILED.glob("*.json")]
    assert not any("stack_frame_id" in text for text in texts), "it depends on who called"


def test_a_record_s_program_is_only_its_entry_and_names_no_causes_anew():
    reports = [report for report in xla.records().values() if report.text]
    assert reports
    assert all(found_in(report) is report for report in reports)


def test_readers_without_a_compiler_are_told(monkeypatch):
    monkeypatch.delenv(analysis.USE, raising=False)
    monkeypatch.setattr(analysis, "can_compile", lambda chip=None: "no compiler in this test")
    name, chip = next(iter(xla.records()))
    with pytest.warns(analysis.RecordUsed, match="no compiler in this test"):
        report = xla.analyze(lambda x: x, 1.0, chip=chip, record=name)
    assert report.origin == "record"
    with pytest.raises(xla.NoCompiler, match="no record 'unheard-of'"):
        xla.analyze(lambda x: x, 1.0, chip=chip, record="unheard-of")
