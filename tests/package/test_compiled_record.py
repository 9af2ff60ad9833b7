"""Reports as records: what is kept is what is shown, and a record takes the compiler's place."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compiled_reports import jax, needs, report_of, spec

from roofline_helpers import compiled
from roofline_helpers.compiled import analysis, record, stand_ins, targets
from roofline_helpers.compiled.compiling import DoesNotFit
from roofline_helpers.hlo import Collective, Row

jnp = jax.numpy


def test_a_record_says_the_same() -> None:
    for name in ("layernorm", "sharded-matmul", "scan-100", "attention", "pallas"):
        report = report_of(name, "v6e")
        again = compiled.Report.from_json(report.to_json())
        assert again == report, name
        assert (str(again), again._repr_html_()) == (str(report), report._repr_html_())
        assert (report.origin, again.origin) == ("compiled", "record")
        assert again.to_json() == report.to_json()


def test_the_file_of_a_bad_record_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "folder", lambda: tmp_path)
    (tmp_path / "tanh.v6e.json").write_text("{}", "utf-8")
    with pytest.raises(compiled.BadRecord, match=r"tanh\.v6e\.json: no record"):
        compiled.records()


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
        raise DoesNotFit(message)

    monkeypatch.setattr(analysis.Request, "report", refuse)
    with compiled.recording(tmp_path), pytest.raises(compiled.DoesNotFit):
        compiled.analyze(jnp.tanh, spec(8), chip="v6e", record="big")
    assert [path.name for path in tmp_path.iterdir()] == ["big.v6e-refused.json"]
    assert compiled.records() == {}
    monkeypatch.setattr(analysis.Request, "report", lambda _: pytest.fail("it compiled"))
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
    monkeypatch.setenv(compiled.USE, "whole")
    with compiled.recording(tmp_path):
        assert compiled.analyze(jnp.tanh, spec(256, 256), **options).origin == "compiled"
    monkeypatch.delenv(compiled.USE)
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
