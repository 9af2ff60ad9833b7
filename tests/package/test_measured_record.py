"""Records: ceilings out of samples, files, and the committed ones."""

import math
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


def test_a_record_in_words():
    three = (*MADE.samples[:3], replace(MADE.samples[3], passes=()))
    words = "JAX 0.10.2, 2026-01-02T03:04:05Z"
    assert repr(MADE) == f"<Invented 1: 20 of 20 cases, {words}>"
    partly = replace(MADE, samples=three, complete=False)
    assert repr(partly) == f"<Invented 1: 3 of 4 cases, {words}, incomplete>"


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
    assert MADE.roofline("int8").vector == roof.vector  # other work is done in fp32
    with pytest.raises(UnknownName, match="fp64"):
        MADE.roofline("fp64")


def test_a_sample_s_figures_by_hand():
    passes = [measured.Timing(t, t / 2, t * 0.9, t * 1.3, 2 * t, 5, 7) for t in (2e-3, 5e-3, 3e-3)]
    sample = measured.Sample(
        *("copy", "memory", "pallas", "fp32", 6e9, 4e9, 12e9),
        passes=(replace(passes[0], notes=("unstable: a", "b")), *passes[1:]),
        counters={"dram_read": 5.0, "dram_written": 2.0},
        notes=("b", "drifting: c"),
        runs=(2e-3, 3e-3, 5e-3, 4e-3),
        network=9e9,
    )
    assert passes[0].spread == pytest.approx(0.4)
    assert (passes[0].compile, passes[0].drift) == (0, 0)
    assert repr(sample.passes[0]) == (
        "2 ms a call (1.8 ms to 2.6 ms, 5 samples of 7 calls); unstable: a; b"
    )
    assert [sample.seconds, sample.spread, sample.run_spread] == pytest.approx([3e-3, 1, 3 / 3.5])
    assert [sample.rate, sample.bandwidth, sample.intensity] == pytest.approx([2e12, 4e12, 0.5])
    assert sample.dram_bytes == 7
    assert math.isnan(replace(sample, runs=(1.0,)).run_spread)
    assert replace(sample, runs=(2.0, 4.0)).run_spread == pytest.approx(2 / 3)
    assert sample._cells(between=False) == {
        **{"": "copy (pallas)", "type": "fp32", "time": "3 ms", "GB/s": pytest.approx(4000)},
        **{"GFLOP/s": pytest.approx(2000), "FLOP/byte": 0.5, "note": "b, c, a"},
    }
    assert sample._cells(between=True)["link GB/s"] == pytest.approx(3000)
    unmeasured = replace(sample, passes=(), error="refused", source="jax")._cells(between=False)
    assert [*unmeasured.values()] == ["copy", "fp32", None, None, None, 0.5, "refused, b, c"]


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
    newest = replace(here, date="2026-03-01", notes=("hot",))
    three = {"twin": twin, "newest": newest, "old": replace(twin, date="2025-09-01")}
    monkeypatch.setattr(module, "device_records", lambda: three)
    assert measure.same_device(here) == newest
    seen = replace(MADE, device=here.device, host=here.host, notes=("busy",))
    assert module.report(seen).splitlines()[1:9] == [
        "memory ceiling: 14 GB/s",  # the fastest stream
        *(f"compute ceiling, {name}: {n} TFLOP/s" for n, name in enumerate(seen.peaks, 1)),
        "vector ceiling, fp32: 500 GFLOP/s",
        "the book's record of this device, 2026-03-01: 14 GB/s, 1 TFLOP/s fp32, 2 TFLOP/s bf16, "
        "3 TFLOP/s int8",
        "note: busy",
        "",
    ]
    assert measure.same_device(replace(here, device={**here.device, "name": "other"})) is None
    assert measure.same_device(replace(here, host={**here.host, "cores": 999})) is None
    with pytest.raises(BadType, match="must be a Record"):
        measure.same_device("h100")
