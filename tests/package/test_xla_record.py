"""Reports as records: what is kept is what is shown, and a record takes the compiler's place."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from compiled_reports import jax, needs, report_of, spec

from roofline_helpers import xla
from roofline_helpers.xla import analysis
from roofline_helpers.xla.compiler import DoesNotFit

jnp = jax.numpy


def test_a_record_says_the_same() -> None:
    for name in ("layernorm", "sharded-matmul", "scan-100", "attention", "pallas"):
        report = report_of(name, "v6e")
        again = xla.Report.from_json(report.to_json())
        assert again == report, name
        assert (again.describe(), again._repr_html_()) == (report.describe(), report._repr_html_())
        assert (report.origin, again.origin) == ("compiled", "record")
        assert again.to_json() == report.to_json()


def test_a_record_takes_the_compilers_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("v6e")
    x = spec(256, 256)
    monkeypatch.setenv(analysis.RECORD_TO, str(tmp_path))
    monkeypatch.delenv(analysis.USE, raising=False)
    live = xla.analyze(jnp.tanh, x, chip="v6e", record="tanh")
    assert [path.name for path in tmp_path.iterdir()] == ["tanh.v6e.json"]
    monkeypatch.setattr(analysis, "RECORDS", tmp_path)
    assert list(xla.records()) == [("tanh", "v6e")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert xla.analyze(jnp.tanh, x, chip="v6e", record="tanh").origin == "compiled"
        asked = xla.analyze(jnp.tanh, x, chip="v6e", record="tanh", use="record")
    assert (asked, asked.origin) == (live, "record")
    monkeypatch.setattr(analysis, "can_compile", lambda chip: "no compiler here")
    with pytest.warns(analysis.RecordUsed, match="record 'tanh' for TPU v6e.*no compiler here"):
        shown = xla.analyze(jnp.tanh, x, chip="v6e", record="tanh")
    assert (str(shown), shown.origin) == (str(live), "record")
    with pytest.raises(xla.NoCompiler, match=r"no compiler here$"):
        xla.analyze(jnp.tanh, x, chip="v6e", record="tanh", use="compiler")


def test_a_refusal_takes_the_compilers_place_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 48.50G of 31.25G hbm."
    )
    monkeypatch.setattr(analysis, "can_compile", lambda chip: None)
    monkeypatch.setattr(analysis, "RECORDS", tmp_path)

    def refuse(*_: Any) -> None:
        raise DoesNotFit(message)

    monkeypatch.setattr(analysis, "report_of", refuse)
    monkeypatch.setenv(analysis.RECORD_TO, str(tmp_path))
    monkeypatch.delenv(analysis.USE, raising=False)
    with pytest.raises(xla.DoesNotFit):
        xla.analyze(jnp.tanh, spec(8), chip="v6e", record="big")
    assert [path.name for path in tmp_path.iterdir()] == ["big.v6e-refused.json"]
    assert xla.records() == {}
    monkeypatch.setattr(analysis, "report_of", lambda *_: pytest.fail("it compiled"))
    with pytest.raises(xla.DoesNotFit, match=r"Used 48\.50G") as caught:
        xla.analyze(jnp.tanh, spec(8), chip="v6e", record="big", use="record")
    assert (caught.value.needed, caught.value.capacity) == (48.5 * 2**30, 31.25 * 2**30)
