"""Conclusions of the chapter can-you-trust-a-roofline: each test would refute one."""

import pytest
from conclusions import path, prose

import page_board
import roofline
import roofline_helpers as rh
from roofline import validation
from tools.notebooks import run as notebooks


def test_fp8_steps_on_h100s_agreed_better_with_the_wrong_ceiling():
    """What their prediction gained from a ceiling with a transpose in it wasn't knowledge."""
    ceilings = page_board.fp8_ceilings().values()
    board = roofline.scoreboard()
    chosen = board[(board.chip == "h100") & (board.type == "fp8") & (board.kind == "dense")]
    better = {"NeMo": [0, 0], "mlcommons": [0, 0]}
    for key, row in chosen.iterrows():
        one = validation.published_step(str(key))
        assert isinstance(one, validation.PublishedStep)
        wrong, now = (page_board.with_fp8(one, rate) for rate in ceilings)
        assert now.seconds == pytest.approx(row["predicted s"], rel=1e-6)
        assert now.seconds < wrong.seconds
        [source] = [name for name in better if name in row.source]
        nearer = abs(wrong.seconds / one.seconds - 1) < abs(now.seconds / one.seconds - 1)
        better[source] = [better[source][0] + nearer, better[source][1] + 1]
    assert better == {"NeMo": [2, 5], "mlcommons": [1, 9]}
    first = chosen.index[chosen.source.str.contains("NeMo")]
    nearer = roofline.scoreboard(law=True).error[chosen.index].abs() < chosen.error.abs()
    assert (nearer[first].sum(), nearer.sum()) == (4, 4 + 5)


def test_no_part_of_a_dense_step_costs_most_on_every_chip():
    """The last chapter, by its own cell that takes a published step apart."""
    cells = notebooks.load(path("can-you-trust-a-roofline")).cells
    [cell] = [cell for cell in cells if cell.id == "parts"]
    names = {}
    exec(cell.source, names)
    shares = {}
    for one in validation.steps():
        if isinstance(one, validation.PublishedStep) and not one.model.experts:
            own = shares.setdefault(one.chip, {})
            for part, share in list(names["parts"](one).items())[1:]:
                own[part] = own.get(part, 0.0) + share
    largest = {chip: max(own, key=lambda part: own[part]) for chip, own in shares.items()}
    assert set(largest.values()) == {
        *("computed a second time", "ceilings below the peak", "exposed network"),
        "not predicted",
    }


def test_mixtures_err_more_than_dense_models_and_to_the_fast_side():
    board = roofline.scoreboard(law=True)
    mixed = board.kind.str.startswith("mixture")
    off = board.error.abs()
    assert off[mixed].median() > 2 * off[~mixed].median()
    assert (board.error[mixed] < 0).mean() > 0.8
    gpu = board.chip.map(lambda key: rh.chip(key).kind) == "gpu"
    medians = [100 * board.error[mixed & here].median() for here in (gpu, ~gpu)]
    for median in medians:
        assert f"{-median:.0f}%" in prose("can-you-trust-a-roofline")


def test_training_steps_err_to_the_fast_side_but_dense_ones_on_h100s():
    board, before = roofline.scoreboard(law=True), roofline.scoreboard()
    assert (board.error[board.step == "training"] < 0).mean() == pytest.approx(0.8, abs=0.03)
    dense = (board.step == "training") & (board.kind == "dense")
    h100 = board.error[dense & (board.chip == "h100")]
    assert ((h100 > 0).sum(), len(h100)) == (11, 15)
    assert h100.median() == pytest.approx(0.056, abs=0.005)
    gpu = board.chip.map(lambda key: rh.chip(key).kind) == "gpu"
    mixed = board.kind != "dense"
    left = [
        board.error[rows].abs().median() / before.error[rows].abs().median()
        for rows in (gpu & dense, gpu & mixed)
    ]
    assert left == pytest.approx([0.35, 0.91], abs=0.05)
