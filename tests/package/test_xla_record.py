"""Reports as records: what is kept is what is shown, and a record takes the compiler's place."""

import warnings

import jax.numpy as jnp
import pytest
from compiled_programs import spec
from compiled_reports import needs, report_of

from roofline import xla
from roofline.xla import analysis, compiler, targets
from roofline.xla.compiler import DoesNotFit
from roofline_helpers.common.show import si


def test_a_record_says_the_same():
    for name in ("layernorm", "sharded-matmul", "scan-100", "attention", "pallas"):
        report = report_of(name, "v6e")
        stored = xla.Report.from_json(report.to_json())
        assert stored == report, name
        assert (stored.describe(), stored._repr_html_()) == (
            report.describe(),
            report._repr_html_(),
        )
        assert (report.origin, stored.origin) == ("compiled", "record")
        assert stored.to_json() == report.to_json()


def test_a_record_takes_the_compilers_place(tmp_path, monkeypatch):
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
    with pytest.warns(analysis.RecordUsed, match="'tanh'.*v6e.*no compiler here"):
        shown = xla.analyze(jnp.tanh, x, chip="v6e", record="tanh")
    assert (str(shown), shown.origin) == (str(live), "record")
    with pytest.raises(xla.NoCompiler, match=r"no compiler here$"):
        xla.analyze(jnp.tanh, x, chip="v6e", record="tanh", use="compiler")


OLD = "INTERNAL: Unsupported version: expected <= 7 but got 8\nThe MLIR operation involved:\n  "
OLD += '"builtin.module"() <{sym_name = "tanh"}> ({\n  long\n})'


@pytest.mark.parametrize("where", ["compile", "topology"])
def test_a_record_stands_in_for_a_compiler_that_refuses(tmp_path, monkeypatch, where):
    x = spec(256, 256)
    monkeypatch.delenv(analysis.USE, raising=False)
    monkeypatch.delenv(analysis.RECORD_TO, raising=False)
    monkeypatch.setattr(analysis, "can_compile", lambda chip: None)
    monkeypatch.setattr(analysis, "RECORDS", tmp_path)
    live = report_of("layernorm", "v6e")
    (tmp_path / "old.v6e.json").write_text(live.to_json(), "utf-8")

    def refuse(*_):
        raise RuntimeError(OLD)

    if where == "compile":
        monkeypatch.setattr(compiler, "compile_ahead", refuse)
    else:
        monkeypatch.setattr(targets, "_topology", refuse)
    monkeypatch.setattr(compiler, "other_libtpu", lambda: ["pip install 'libtpu==1'"])
    with pytest.warns(analysis.RecordUsed, match="'old'.*v6e.*expected <= 7") as told:
        shown = xla.analyze(jnp.tanh, x, chip="v6e", record="old")
    assert shown == live
    assert len(told) == 1
    assert "builtin" not in str(told[0].message)
    assert told[0].filename == __file__
    kind = xla.CannotCompile if where == "compile" else xla.NoCompiler
    for how in ({}, {"record": "old", "use": "compiler"}, {"record": "other"}):
        with pytest.raises(kind, match="expected <= 7 but got 8") as caught:
            xla.analyze(jnp.tanh, x, chip="v6e", **how)
        assert "builtin" not in str(caught.value)
        assert str(caught.value).endswith("pip install 'libtpu==1'") == (where == "compile")


def test_a_program_that_differs_from_its_record_says_so(tmp_path, monkeypatch):
    needs("v6e")
    monkeypatch.delenv(analysis.USE, raising=False)
    monkeypatch.setattr(analysis, "RECORDS", tmp_path)
    stored = report_of("layernorm", "v6e")
    (tmp_path / "small.v6e.json").write_text(stored.to_json(), "utf-8")
    x = spec(256, 256)
    with pytest.warns(analysis.RecordDiffers) as told:
        live = xla.analyze(jnp.tanh, x, chip="v6e", record="small")
    [text] = [str(warning.message) for warning in told]
    assert live.origin == "compiled"
    assert text.startswith("'small' for v6e: 1 kernel, 262 kB of HBM traffic")
    assert f"{si(stored.hbm_bytes, 'B')} of HBM traffic" in text.partition("the record by")[2]


def test_the_cure_is_the_libtpu_that_jax_is_made_for(monkeypatch):
    pin = 'libtpu==0.0.23; extra == "tpu"'
    for needed, here, expected in (
        (pin, "0.0.21.1", "pip install 'libtpu==0.0.23'"),
        (pin, "0.0.23", None),
        (pin, "0.0.230", "pip install 'libtpu==0.0.23'"),
        ('libtpu==0.0.42.*; extra == "tpu"', "0.0.42.1", None),
        ('libtpu==0.0.42.*; extra == "tpu"', "0.0.43", "pip install 'libtpu==0.0.42.*'"),
    ):
        lines = ["numpy>=2", needed]
        monkeypatch.setattr(targets.importlib.metadata, "version", lambda _, here=here: here)
        monkeypatch.setattr(targets.importlib.metadata, "requires", lambda _, lines=lines: lines)
        advice = list(targets.other_libtpu())
        assert len(advice) == (expected is not None), here
        assert not advice or expected in advice[0]


def test_a_refusal_takes_the_compilers_place_too(tmp_path, monkeypatch):
    message = (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 48.50G of 31.25G hbm."
    )
    monkeypatch.setattr(analysis, "can_compile", lambda chip: None)
    monkeypatch.setattr(analysis, "RECORDS", tmp_path)

    def refuse(*_, **__):
        raise DoesNotFit(message)

    monkeypatch.setattr(analysis, "report_of", refuse)
    monkeypatch.setenv(analysis.RECORD_TO, str(tmp_path))
    monkeypatch.delenv(analysis.USE, raising=False)
    with pytest.raises(xla.DoesNotFit):
        xla.analyze(jnp.tanh, spec(8), chip="v6e", record="big")
    assert [path.name for path in tmp_path.iterdir()] == ["big.v6e-refused.json"]
    assert xla.records() == {}
    monkeypatch.setattr(analysis, "report_of", lambda *_, **__: pytest.fail("it compiled"))
    with pytest.raises(xla.DoesNotFit, match=r"Used 48\.50G") as caught:
        xla.analyze(jnp.tanh, spec(8), chip="v6e", record="big", use="record")
    assert (caught.value.needed, caught.value.capacity) == (48.5 * 2**30, 31.25 * 2**30)
