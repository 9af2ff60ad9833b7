"""A file of one's own steps: what is read, what is predicted, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import roofline_helpers as rh
from roofline_helpers import published
from roofline_helpers.cli import main

HEAD = "id,chip,shape,model,batch,seq,mesh,dtype,recompute,microbatches,context,tokens\n"
OURS = "ours,h100,8,llama-3-8b,128,8192,fsdp=8,fp8,none,16,,14451\n"
DECODE = "decode,v6e,2x4,llama-3-70b,64,,,,,,1500,\n"


def file(folder: Path, text: str, name: str = "steps.csv") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_a_line_is_predicted_as_the_board_s_row(tmp_path: Path) -> None:
    found = published.predict(file(tmp_path, HEAD + OURS + DECODE))
    row = rh.scoreboard(law=True).loc["h100-8-llama-3-8b-fp8"]
    ours = found.loc["ours"]
    assert ours["bound s"] == pytest.approx(row["bound s"])
    assert ours["predicted s"] == pytest.approx(row["reached s"], rel=0.01)
    assert ours["measured s"] == pytest.approx(row["published s"])
    assert ours["error"] == pytest.approx(ours["predicted s"] / ours["measured s"] - 1)
    assert ours["low s"] < ours["measured s"] < ours["high s"]
    decode = found.loc["decode"]
    known = published.published_step("v6e-8-llama-3.3-70b-decode-64")
    assert decode["predicted s"] == known.reached.seconds
    assert decode[["low s", "high s", "measured s", "error"]].isna().all()


def test_the_command_prints_and_gives_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(file(tmp_path, HEAD + OURS + DECODE))
    assert main(["predict", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["step", "ours", "decode"]
    assert lines[2].split()[-1] == "–"
    assert main(["predict", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["decode"]["error"] is None
    assert data["ours"]["low s"] < data["ours"]["high s"]
    assert main(["predict", str(tmp_path / "none.csv")]) == 1
    assert "none.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("a.csv", HEAD.replace("model", "models") + OURS, ["row 1 (ours)", "Nearest: 'model'"]),
        ("a.csv", HEAD + OURS + OURS.replace("fsdp=8", "fdsp=8"), ["row 2", "Nearest: 'fsdp'"]),
        ("a.csv", HEAD + OURS.replace("8192,fsdp=8", ","), ["seq, mesh missing"]),
        ("a.toml", "row = [", ["no TOML"]),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str, parts: list[Any]) -> None:
    with pytest.raises(rh.RooflineError) as caught:
        published.predict(file(tmp_path, text, name))
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)
