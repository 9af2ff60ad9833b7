"""A file of one's own steps: what is read, what is predicted, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import roofline_helpers as rh
from roofline_helpers import validation
from roofline_helpers.cli import main

OURS = """[[row]]
id = "ours"
chip = "h100"
shape = 8
model = "llama-3-8b"
batch = 128
seq = 8192
mesh = {fsdp = 8}
dtype = "fp8"
recompute = "none"
microbatches = 16
tokens = 14451
"""
DECODE = """[[row]]
id = "decode"
chip = "v6e"
shape = "2x4"
model = "llama-3-70b"
batch = 64
context = 1500
"""


def file(folder: Path, text: str) -> Path:
    path = folder / "steps.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_row_is_predicted_as_the_board_s_row(tmp_path: Path) -> None:
    found = validation.predict(file(tmp_path, OURS + DECODE))
    row = rh.scoreboard(law=True).loc["h100-8-llama-3-8b-fp8"]
    ours = found.loc["ours"]
    assert ours["bound s"] == pytest.approx(row["bound s"])
    assert ours["predicted s"] == pytest.approx(row["predicted s"], rel=0.01)
    assert ours["measured s"] == pytest.approx(row["published s"])
    assert ours["error"] == pytest.approx(ours["predicted s"] / ours["measured s"] - 1)
    assert ours["low s"] < ours["measured s"] < ours["high s"]
    decode = found.loc["decode"]
    known = validation.published_step("v6e-8-llama-3.3-70b-decode-64")
    assert decode["predicted s"] == known.reached.seconds
    assert decode[["low s", "high s", "measured s", "error"]].isna().all()


def test_the_command_prints_and_gives_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(file(tmp_path, OURS + DECODE))
    assert main(["predict", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["step", "ours", "decode"]
    assert lines[2].split()[-1] == "–"
    assert main(["predict", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["decode"]["error"] is None
    assert data["ours"]["low s"] < data["ours"]["high s"]
    assert main(["predict", str(tmp_path / "none.toml")]) == 2
    assert "none.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (OURS.replace("model", "models"), ["row 1 (ours)", "Nearest: 'model'"]),
        (OURS + OURS.replace("fsdp", "fdsp"), ["row 2", "Nearest: 'fsdp'"]),
        (OURS.replace("seq", "#").replace("mesh", "#"), ["seq, mesh missing"]),
        ("row = [", ["not TOML"]),
        ("", ["none.toml: No such file"]),
    ],
    ids=("field", "axis", "missing", "file", "none"),
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, parts: list[Any]) -> None:
    with pytest.raises(rh.RooflineError) as caught:
        validation.predict(file(tmp_path, text) if text else tmp_path / "none.toml")
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)
