"""Records: ceilings out of samples, tables and pictures, files, and several records as one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measure_suite import record, timed

from roofline_helpers import device
from roofline_helpers.common.checks import BadType, BadValue, UnknownName
from roofline_helpers.common.records import BadRecord
from roofline_helpers.device import record as module
from roofline_helpers.device.record import combine, merge
from roofline_helpers.device.timing import summary

pytest.importorskip("jax")
MADE = record()


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    loaded = device.load(MADE.save(tmp_path / "a.json"))
    assert loaded == MADE
    assert loaded.complete
    assert loaded.bandwidth == MADE.bandwidth


def test_ceilings_are_the_best_of_their_samples() -> None:
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
    assert (roof.origin, roof.bandwidth) == ("measured", MADE.bandwidth)
    assert roof.vector == MADE.vector_peaks["fp32"] == pytest.approx(5e11)
    with pytest.raises(UnknownName, match="fp64"):
        MADE.roofline("fp64")
    with pytest.raises(UnknownName, match="Nearest"):
        MADE.sample("read 16 KiB fp33")
    with pytest.raises(UnknownName, match="group"):
        MADE.group("nonsense")
    with pytest.raises(BadRecord, match="no memory ceiling"):
        _ = replace(MADE, samples=()).bandwidth


def test_a_doubtful_ceiling_says_so() -> None:
    kinds = (("memory", {"bytes": 1.0}), ("compute", {"flops": 1.0}), ("vector", {"flops": 1.0}))
    steady, shaky = summary([2.0] * 6), summary([1.0, 2.0] * 3)
    samples = [
        replace(timed(f"{name} {n}", group=name, **counts), passes=(result,))
        for name, counts in kinds
        for n, result in enumerate((steady, shaky))
    ]
    lines = device.report(record(*samples)).splitlines()
    for start in ("memory ceiling: ", "compute ceiling, fp32: ", "vector ceiling, fp32: "):
        (line,) = [line for line in lines if line.startswith(start)]
        assert line.endswith("/s; unstable: quartiles 67 % apart")
    assert "unstable" not in device.report(record(*samples[::2]))


DAMAGED: dict[str, Callable[[Any], Any]] = {
    "the record lacks 'device'; it has schema, ": lambda data: data.pop("device"),
    "samples[0].bytes: expected `float` > 0.0, got -1 (int)": (
        lambda data: data["samples"][0].update(bytes=-1)
    ),
    "an older record: version 0": lambda data: data.update(schema="roofline_helpers.measured/0"),
}


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for message, damage in DAMAGED.items():
        data = json.loads(json.dumps(MADE.to_dict()))
        damage(data)
        path.write_text(json.dumps(data), "utf-8")
        with pytest.raises(BadRecord) as caught:
            device.load(path)
        assert str(caught.value).startswith(f"{path}: {message}")


# --- the committed ones ---------------------------------------------------------------------------


def test_committed_records_can_be_read() -> None:
    for name, each in device.measured().items():
        assert each.complete, name
        assert each.bandwidth > 0
        assert each.peaks
        assert each.command.startswith("python ")
        assert "--out /" not in each.command
        assert [sample.name for sample in each.samples if not sample.passes] == []


def test_the_committed_record_of_the_same_device_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    h100 = device.measured()["h100"]
    assert device.beside(replace(MADE, device=h100.device)) == h100
    another = {**h100.device, "kind": "NVIDIA H100 PCIe"}
    assert device.beside(replace(MADE, device=another)) is None
    # every CPU calls itself "cpu": the processor and the cores must be the same
    here = replace(MADE, device=device.device_facts(), host=device.host_facts())
    twin = replace(here, date="2026-01-01")
    monkeypatch.setattr(module, "measured", lambda: {"twin": twin})
    assert device.beside(here) == device.beside() == twin
    assert device.beside(replace(here, device={**here.device, "name": "other"})) is None
    assert device.beside(replace(here, host={**here.host, "cores": 999})) is None
    with pytest.raises(BadType, match="must be a Record"):
        device.beside("h100")  # type: ignore[arg-type]


# --- several as one -------------------------------------------------------------------------------


def test_runs_are_combined(tmp_path: Path) -> None:
    first = record(timed("a", 1.0, 3.0), timed("b", error="no"), notes=("one",))
    second = record(timed("a", 2.2, counters={"kernels": 1}), timed("b", 5.0))
    joined = combine([first, second])
    a, b = joined.samples
    assert (a.runs, len(a.passes), a.counters) == ((2.0, 2.2), 3, {"kernels": 1})
    assert a.between == pytest.approx(0.2 / 2.1)
    assert (b.runs, b.error, b.notes) == ((5.0,), None, ("failed in one run: no",))
    assert math.isnan(b.between)
    assert "one" in joined.notes
    assert device.load(joined.save(tmp_path / "two.json")) == joined
    other = replace(first, device={**first.device, "kind": "another"})
    for wrong, says in (([], "at least one record"), ([first, other], "of one device")):
        with pytest.raises(BadValue, match=says):
            combine(wrong)


def test_records_are_merged() -> None:
    older = record(
        timed("kept", 1.0),
        timed("again", 2.0),
        timed("fails now", 3.0),
        date="2026-01-01T00:00:00Z",
        software={"jax": "0.1"},
    )
    failed = timed("fails now", error="no memory")
    again, new, late = timed("again", 4.0), timed("new", 5.0), timed("no time left")
    newer = record(failed, again, new, late)
    merged = merge(older, newer)
    dates = {each.name: each.date for each in merged.samples}
    assert dates == {"kept": older.date, "again": None, "fails now": older.date, "new": None}
    assert [each.seconds for each in merged.samples] == [1.0, 4.0, 3.0, 5.0]
    assert "measured again: no memory" in merged.samples[2].notes[0]
    assert f"samples dated {older.date} were measured with jax 0.1" in merged.notes
    assert merged.date == newer.date
    with pytest.raises(BadValue, match="of one device"):
        merge(replace(older, device={**older.device, "kind": "another"}), newer)
