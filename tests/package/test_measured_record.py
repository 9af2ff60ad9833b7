"""Records: ceilings out of samples, files, and the committed ones."""

from dataclasses import replace

import pytest
from measure_suite import record, timed

from roofline import measure
from roofline.measure import machine
from roofline.measure import report as module
from roofline_helpers import measured
from roofline_helpers.common.checks import BadType, UnknownName

MADE = record()


def test_a_record_comes_back_as_it_was(tmp_path):
    loaded = measure.load(measure.save(MADE, tmp_path / "a.json"))
    assert loaded == MADE
    assert loaded.complete
    assert loaded.bandwidth == MADE.bandwidth


def test_ceilings_are_the_best_of_their_samples():
    assert MADE.streams == pytest.approx(
        {
            "read": 2e9,
            "write": 4e9,
            "copy": 6e9,
            "scale": 8e9,
            "scale in place": 10e9,
            "add": 12e9,
            "triad": 14e9,
        }
    )
    assert MADE.bandwidth == pytest.approx(14e9)
    assert MADE.sample("copy 16 KiB fp32").bandwidth == MADE.streams["copy"]
    another = timed("copy 16 KiB fp32", 1e-12, group="memory", source="torch")
    assert replace(MADE, samples=(*MADE.samples, another)).streams == MADE.streams
    assert MADE.peaks == pytest.approx({"fp32": 1e12, "bf16": 2e12, "int8": 3e12})
    roof = MADE.roofline("fp32")
    assert roof.bandwidth == MADE.bandwidth
    assert roof.vector == MADE.vector_peaks["fp32"] == pytest.approx(5e11)
    with pytest.raises(UnknownName, match="fp64"):
        MADE.roofline("fp64")


# --- the committed ones ---------------------------------------------------------------------------


def test_committed_records_can_be_read():
    for name, kept in measured.device_records().items():
        assert kept.complete, name
        assert kept.bandwidth > 0
        assert kept.peaks
        assert kept.command.startswith("python ")
        assert "--out /" not in kept.command
        assert [sample.name for sample in kept.samples if not sample.passes] == []


def test_the_committed_record_of_the_same_device_is_found(monkeypatch):
    h100 = measured.device_records()["h100"]
    assert measure.same_device(replace(MADE, device=h100.device)) == h100
    another = {**h100.device, "kind": "NVIDIA H100 PCIe"}
    assert measure.same_device(replace(MADE, device=another)) is None
    # every CPU calls itself "cpu": the processor and the cores must be the same
    here = replace(MADE, device=machine.device_facts(), host=machine.host_facts())
    twin = replace(here, date="2026-01-01")
    monkeypatch.setattr(module, "device_records", lambda: {"twin": twin})
    assert measure.same_device(here) == twin
    assert measure.same_device(replace(here, device={**here.device, "name": "other"})) is None
    assert measure.same_device(replace(here, host={**here.host, "cores": 999})) is None
    with pytest.raises(BadType, match="must be a Record"):
        measure.same_device("h100")
