"""The files that the model's claims rest on are those that its tools make today."""

from __future__ import annotations

import pytest

import roofline_helpers as rh
from roofline_helpers import BadType, UnknownName, evidence
from roofline_helpers.compiled import can_compile
from tools.evidence import residency, verdicts


def test_the_sweep_of_verdicts_is_the_present_one() -> None:
    """On some chips, since all take a quarter of a minute."""
    kept = evidence.load("verdicts")
    rows, moves = kept["depend"], verdicts.moved()
    for key in ("v5e", "v7x", "h100", "h200", "mi300x"):
        ours = [row for row in rows if row["chip"] == key and row not in moves]
        assert ours == verdicts.sweep((rh.chip(key),)), "run tools.evidence.verdicts"
    assert [row for row in rows if row in moves] == moves
    assert kept["asked"] > 60 * len(rh.all_chips())


def test_the_sweep_finds_what_the_book_got_wrong() -> None:
    h100 = evidence.verdicts("matmul 256×8192×8192", "h100")
    assert h100["on"].tolist() == ["ceilings", "ceilings"]  # its bound, and what an H200 is worth
    assert evidence.verdicts("matmul 256×8192×8192", "h200").empty
    fused = evidence.verdicts("fused kernels in decode", "h100")
    assert fused["on"].tolist() == ["floor"]
    assert evidence.verdicts("an 8-bit cache", "h100").empty  # gains in each case
    scores = evidence.verdicts("naive attention 4×32×512×64", "v5e")
    assert scores["on"].tolist() == ["between"]
    assert set(evidence.verdicts()["chip"]) <= {chip.key for chip in rh.all_chips()}


def test_bad_arguments() -> None:
    with pytest.raises(UnknownName, match=r"file of evidence 'verdict'.*Nearest: 'verdicts'"):
        evidence.load("verdict")
    with pytest.raises(BadType):
        evidence.load(3)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="chip"):
        evidence.verdicts(chip="h1000")


@pytest.mark.parametrize(("chip", "length"), [("v5e", 512), ("v6e", 768)])
def test_scores_are_placed_as_the_file_says(chip: str, length: int) -> None:
    pytest.importorskip("jax")
    why = can_compile(chip)
    if why:
        pytest.skip(f"the placement of scores was NOT compiled again: {why}")
    assert residency.hbm_bytes(chip, length) == evidence.residency()[chip][str(length)]
