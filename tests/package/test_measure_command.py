"""Measuring: a case that fails, the last cache, and what the command writes and never destroys."""

import json
from types import SimpleNamespace

import jax
import pytest
from measure_suite import case, record, run

import roofline_helpers as rh
from roofline import measure
from roofline.cli import main
from roofline.measure.machine import last_cache
from roofline.measure.workloads import kernel_cases, matmul_case, memory_cases
from roofline_helpers import measured


def few(quick=False):
    small = [*memory_cases(2**14)[:2], matmul_case(32, 32, 32, "fp32")]
    return [*small, *kernel_cases(16, 16)[:1]]


@pytest.fixture
def recorded(monkeypatch):
    """Let the command find a record at once, where what it does with one is the question."""
    monkeypatch.setattr(measure, "run", lambda *_, command, **__: record(command=command))


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure.workloads, "cases", few)
    out = tmp_path / "a.json"
    assert (
        main(["measure", "--quick", "--out", str(out), "--picture", str(tmp_path / "a.png")]) == 0
    )
    printed = capsys.readouterr()
    assert "memory ceiling" in printed.out
    assert printed.err == ""  # progress is for terminals
    kept = measure.load(out)
    assert kept.command == "roofline measure --quick --out a.json --picture a.png"
    assert out.with_suffix(".png").read_bytes()[1:4] == b"PNG"


def test_the_command_destroys_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "run", lambda *_, **__: pytest.fail("it measured"))
    foreign = tmp_path / "x.json"
    broken = tmp_path / "y.json"
    foreign.write_text('{"schema": "other/1"}', "utf-8")
    broken.write_text(json.dumps({"schema": measured.record.SCHEMA}), "utf-8")
    before = {file: file.read_bytes() for file in (foreign, broken)}
    for out, says in (
        (tmp_path / "a.png", "--out must end in .json, got 'a.png'"),
        (foreign, "another kind: 'other'"),
        (broken, "missing required field `device`"),
    ):
        assert main(["measure", "--out", str(out)]) == (1 if out.exists() else 2)
        assert says in capsys.readouterr().err
    assert {file: file.read_bytes() for file in before} == before


def test_a_case_that_fails_does_not_take_the_others_with_it():
    def fails(x):
        raise RuntimeError("no such unit on this device")

    record = run(
        case("good"),
        case("bad", fails),
        case("huge", needs=1e15),
        case("empty", fn=None, make=lambda: 1 / 0),
        case("also good"),
    )
    errors = {sample.name: sample.error for sample in record.samples}
    assert errors["good"] is None
    assert errors["also good"] is None
    assert "no such unit" in str(errors["bad"])
    assert "not enough memory: needs 1 PB" in str(errors["huge"])
    assert "ZeroDivisionError" in str(errors["empty"])
    assert "no such unit" in record.table().to_string()


@pytest.mark.parametrize(
    ("platform", "kind", "size"),
    [
        ("gpu", "NVIDIA H100 80GB HBM3", rh.chip("h100").memory["l2"].capacity.value),
        ("tpu", "TPU v5 lite", rh.chip("v5e").memory["vmem"].capacity.value),
        ("gpu", "Unheard-of 9000", 128 * 2**20),
    ],
)
def test_the_last_cache_is_the_chip_table_s(monkeypatch, platform, kind, size):
    device = SimpleNamespace(platform=platform, device_kind=kind)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert last_cache() == size
