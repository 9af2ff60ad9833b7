"""Reports as records: what is kept is what is shown, and a record takes the compiler's place."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compiled_reports import for_v6e, jax, needs, report_of, spec
from kept_records import kept_report

from roofline_helpers import compiled
from roofline_helpers._checks import BadValue
from roofline_helpers.compiled import analysis, record, stand_ins, targets
from roofline_helpers.compiled.compiling import refused
from roofline_helpers.hlo import Collective, Row

jnp = jax.numpy
pytestmark = for_v6e


def test_a_record_says_the_same() -> None:
    for name in ("layernorm", "sharded-matmul", "scan-100", "attention", "pallas"):
        report = report_of(name, "v6e")
        again = compiled.Report.from_json(report.to_json())
        assert again == report, name
        assert (str(again), again._repr_html_()) == (str(report), report._repr_html_())
        assert (report.origin, again.origin) == ("compiled", "record")
        assert again.to_json() == report.to_json()


def test_records_that_can_not_be_read() -> None:
    report = kept_report("attention", "v6e")
    good = json.loads(report.to_json())
    first, *others = good["rows"]

    def without(key: str) -> dict[str, Any]:
        return {k: v for k, v in good.items() if k != key}

    def with_row(**changes: Any) -> dict[str, Any]:
        return {**good, "rows": [*others, {**first, **changes}]}

    last = len(others)
    changed: dict[str, Any] = {
        "no record: it must be a JSON object": [1],
        "another kind: 'other' ('other/7')": {**good, "schema": "other/7"},
        "the record lacks 'rows'; it has schema, ": without("rows"),
        "the record has an unknown member 'colour'": {**good, "colour": 1},
        "notes: expected `array`, got 'one' (str)": {**good, "notes": "one"},
        "devices: expected `int` >= 1, got 0 (int)": {**good, "devices": 0},
        "xla.flops: expected `float`, got '7' (str)": {**good, "xla": {"bytes": 1, "flops": "7"}},
        "rows[0] lacks 'opcode'; it has name": {**good, "rows": [{"name": "a"}]},
        f"rows[{last}] has an unknown member 'colour'": with_row(colour=1),
        f"rows[{last}].cycles: expected `int | null`, got 'many' (str)": with_row(cycles="many"),
        f"rows[{last}].flops has an unknown member 'units'": with_row(flops={"units": 1}),
        f"rows[{last}].read.hbm: expected `int`, got None (NoneType)": with_row(
            read={"vmem": 1, "hbm": None}
        ),
    }
    for message, data in changed.items():
        with pytest.raises(compiled.BadRecord) as caught:
            compiled.Report.from_json(json.dumps(data))
        assert message in str(caught.value)
    with pytest.raises(compiled.BadRecord, match="it is not JSON"):
        compiled.Report.from_json("no json")
    assert compiled.Report.from_json(json.dumps(good)) == report


def test_the_file_of_a_bad_record_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "folder", lambda: tmp_path)
    (tmp_path / "tanh.v6e.json").write_text("{}", "utf-8")
    with pytest.raises(compiled.BadRecord, match=r"tanh\.v6e\.json: no record"):
        compiled.records()


def test_a_record_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with compiled.recording(tmp_path):
        compiled.analyze(jnp.tanh, spec(8), record="tanh")
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with compiled.recording(tmp_path), pytest.raises(OSError, match="No space left"):
        compiled.analyze(jnp.sin, spec(8), record="tanh")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [before]
    monkeypatch.setattr(jax, "jit", lambda *_: pytest.fail("it compiled"))
    monkeypatch.setenv(compiled.RECORD_TO, str(tmp_path / "nowhere"))
    with pytest.raises(BadValue, match="ROOFLINE_RECORD_TO must name a folder that is there"):
        compiled.analyze(jnp.tanh, spec(8), record="tanh")


def test_a_record_takes_the_compilers_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("v6e")
    x = spec(256, 256)
    with compiled.recording(tmp_path):
        live = compiled.analyze(jnp.tanh, x, chip="v6e", record="tanh")
    assert [path.name for path in tmp_path.iterdir()] == ["tanh.v6e.json"]
    monkeypatch.setattr(stand_ins, "folder", lambda: tmp_path)
    assert list(compiled.records()) == [("tanh", "v6e")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled.analyze(jnp.tanh, x, chip="v6e", record="tanh").origin == "compiled"
        asked = compiled.analyze(jnp.tanh, x, chip="v6e", record="tanh", use="record")
    assert (asked, asked.origin) == (live, "record")
    monkeypatch.setattr(targets, "can_compile", lambda chip: "no compiler here")
    with pytest.warns(compiled.RecordUsed, match="record 'tanh' for TPU v6e.*no compiler here"):
        shown = compiled.analyze(jnp.tanh, x, chip="v6e", record="tanh")
    assert (str(shown), shown.origin) == (str(live), "record")
    with pytest.raises(compiled.NoCompiler, match=r"no compiler here$"):
        compiled.analyze(jnp.tanh, x, chip="v6e", record="tanh", use="compiler")


def test_a_refusal_takes_the_compilers_place_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 48.50G of 31.25G hbm."
    )
    monkeypatch.setattr(targets, "can_compile", lambda chip: None)
    monkeypatch.setattr(stand_ins, "folder", lambda: tmp_path)

    def refuse(_: Any) -> None:
        raise refused(message)

    monkeypatch.setattr(analysis._Task, "report", refuse)
    with compiled.recording(tmp_path), pytest.raises(compiled.DoesNotFit):
        compiled.analyze(jnp.tanh, spec(8), chip="v6e", record="big")
    assert [path.name for path in tmp_path.iterdir()] == ["big.v6e-refused.json"]
    assert compiled.records() == {}
    monkeypatch.setattr(analysis._Task, "report", lambda _: pytest.fail("it compiled"))
    with pytest.raises(compiled.DoesNotFit, match=r"Used 48\.50G") as caught:
        compiled.analyze(jnp.tanh, spec(8), chip="v6e", record="big", use="record")
    assert (caught.value.needed, caught.value.capacity) == (48.5 * 2**30, 31.25 * 2**30)


def test_what_takes_minutes_is_compiled_only_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("v6e")
    monkeypatch.setattr(stand_ins, "folder", lambda: tmp_path)
    options: dict[str, Any] = {"chip": "v6e", "record": "tanh", "use": "record"}
    with pytest.raises(compiled.NoCompiler, match="no record 'tanh'"):
        compiled.analyze(jnp.tanh, spec(256, 256), **options)
    monkeypatch.setenv(compiled.WHOLE, "compiler")
    with compiled.recording(tmp_path):
        assert compiled.analyze(jnp.tanh, spec(256, 256), **options).origin == "compiled"
    monkeypatch.delenv(compiled.WHOLE)
    assert compiled.analyze(jnp.tanh, spec(256, 256), **options).origin == "record"


def test_records_of_large_meshes_leave_out_who_is_in_which_group() -> None:
    pod = Collective("a", "all-gather", 1, 128, 128, (tuple(range(128)),), axis="fsdp")
    for exchange, kept in (
        (pod, None),
        (replace(pod, axis=None), pod.groups),
        (replace(pod, groups=((0, 1),)), ((0, 1),)),
    ):
        stored = record._unusual(Row("a", "all-gather", collective=exchange))["collective"]
        assert stored["groups"] == kept


def test_committed_records_are_what_the_compiler_says_now() -> None:
    """Rebuilding is the chapters' business: here, that each can be read and shown."""
    for (name, chip), report in compiled.records().items():
        assert (report.origin, report.target) == ("record", chip), name
        assert str(report)
