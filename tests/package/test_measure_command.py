"""The command ``python -m roofline_helpers measure``: what it writes and never destroys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from measure_suite import record

from roofline_helpers import measure
from roofline_helpers.measure import Case, command, running

jax = pytest.importorskip("jax")


def few(quick: bool = False) -> list[Case]:
    small = [*measure.memory_cases(2**14)[:2], measure.matmul_case(32, 32, 32, "fp32")]
    return [*small, *measure.kernel_cases(16, 16)[:1]]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command find a record at once, where what it does with one is the question."""
    monkeypatch.setattr(command, "run", lambda *_, command, **__: record(command=command))


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "cases", few)
    out = tmp_path / "a.json"
    assert measure.main(["measure", "--quick", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "memory ceiling" in printed.out
    assert printed.err == ""  # progress is for terminals
    kept = measure.load(out)
    assert kept.command == "python -m roofline_helpers measure --quick --out a.json"
    assert out.with_suffix(".png").read_bytes()[1:4] == b"PNG"


def test_an_interrupted_command_leaves_the_earlier_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a.json"
    before = record().save(out).read_bytes()
    monkeypatch.setattr(command, "cases", few)

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "clock", stop)
    assert measure.main(["measure", "--quick", "--out", str(out)]) == 130
    assert "is as it was" in capsys.readouterr().err
    assert out.read_bytes() == before


def test_the_command_destroys_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "run", lambda *_, **__: pytest.fail("it measured"))
    foreign, broken = tmp_path / "x.json", tmp_path / "y.json"
    foreign.write_text('{"schema": "other/1"}', "utf-8")
    broken.write_text(json.dumps({"schema": measure.SCHEMA}), "utf-8")
    before = {file: file.read_bytes() for file in (foreign, broken)}
    for out, says in (
        (tmp_path / "a.png", "--out must end in .json, got 'a.png'"),
        (tmp_path, "it is a folder"),
        (foreign, "another kind: 'other'"),
        (broken, "lacks 'device'"),
    ):
        assert measure.main(["measure", "--out", str(out)]) == 1
        assert says in capsys.readouterr().err
    assert {file: file.read_bytes() for file in before} == before

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command.tempfile, "TemporaryFile", full)
    assert measure.main(["measure", "--out", str(tmp_path / "z.json")]) == 1
    assert "can't be written: No space left" in capsys.readouterr().err


def test_a_machine_without_a_device_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> Any:
        raise RuntimeError("no backend\nand a long trace")

    monkeypatch.setattr(jax, "devices", none)
    assert measure.main(["measure"]) == 1
    assert capsys.readouterr().err == "JAX finds no device: no backend\n"


def test_a_wrong_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ([], ["measur"], ["measure", "--passes", "0"], ["measure", "--passes", "x"]):
        with pytest.raises(SystemExit, match="2"):
            measure.main(wrong)
    missing = tmp_path / "no folder" / "a.json"
    assert measure.main(["measure", "--out", str(missing)]) == 1
    assert "there is no folder" in capsys.readouterr().err
