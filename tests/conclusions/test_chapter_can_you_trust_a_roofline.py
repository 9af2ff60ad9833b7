"""Conclusions of the chapter can-you-trust-a-roofline: each test would refute one."""

from typing import Any

import pytest
from conclusions import path, prose

import page_board
import roofline
import roofline_helpers as rh
from roofline import validation
from tools.notebooks import run as notebooks


def test_fp8_steps_on_h100s_agreed_better_with_the_wrong_ceiling() -> None:
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


def test_times_of_measured_kernels_halve_the_error_on_gpus() -> None:
    boards = [roofline.scoreboard(law=law) for law in (False, True)]
    gpus = boards[0].chip.map(lambda key: rh.chip(key).kind) == "gpu"
    before, now = (board.error[gpus].abs().median() for board in boards)
    assert now < 0.55 * before
    mixed = boards[1].kind == "mixture of experts"
    assert boards[1].error[mixed].median() < -1 / 4
    assert boards[1].error.max() < 0.2
    unsaid = boards[1].unsaid[boards[1].unsaid != ""]
    assert list(unsaid.mode()) == ["recomputation"]
    assert len(unsaid) < len(boards[1]) / 4


def test_no_part_of_a_dense_step_costs_most_on_every_chip() -> None:
    """The last chapter, by its own cell that takes a published step apart."""
    cells = notebooks.load(path("can-you-trust-a-roofline")).cells
    [cell] = [cell for cell in cells if cell.id == "parts"]
    names: dict[str, Any] = {}
    exec(cell.source, names)
    shares: dict[str, dict[str, float]] = {}
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


def test_the_worst_rows_are_predicted_too_fast() -> None:
    board = roofline.scoreboard(law=True)
    assert board.error[[one.key for one in roofline.validation.worst()]].max() < -1 / 3


def test_kinds_of_predictions_of_mixtures() -> None:
    kinds = roofline.validation.kinds()["median error"]
    served, trained = (
        [kinds[f"{what}, {kind}"] for kind in ("mixtures", "dense")]
        for what in ("time per token", "training")
    )
    assert served[0] < 1.6 * served[1]
    first = [kinds[f"first token, {kind}"] for kind in ("mixtures", "dense")]
    assert 1.5 * first[1] < first[0] < 2 * first[1]
    assert trained[0] > max(0.25, 2 * trained[1])
    for error in (*served, first[0]):
        assert f"{100 * error:.0f}%" in prose("can-you-trust-a-roofline")


def test_mixtures_err_more_than_dense_models_and_to_the_fast_side() -> None:
    board = roofline.scoreboard(law=True)
    mixed = board.kind.str.startswith("mixture")
    off = board.error.abs()
    assert off[mixed].median() > 2 * off[~mixed].median()
    assert (board.error[mixed] < 0).mean() > 0.8
    gpu = board.chip.map(lambda key: rh.chip(key).kind) == "gpu"
    medians = [100 * board.error[mixed & here].median() for here in (gpu, ~gpu)]
    for median in medians:
        assert f"{-median:.0f}%" in prose("can-you-trust-a-roofline")


def test_a_booking_by_the_count_is_too_short_and_the_range_holds_it() -> None:
    board = roofline.scoreboard(law=True)
    dense = board[(board.kind == "dense") & (board.step == "training")]
    ratio = dense["published s"] / dense["predicted s"]
    recipes = ratio.groupby([dense.chip, dense.model, dense.type]).median()
    low, high = recipes.quantile([0.1, 0.9])
    assert (low, high) == pytest.approx((0.95, 1.35), abs=0.01)
    booked = board.loc["v6e-32-llama-3.1-70b"]
    assert booked["predicted s"] / booked["published s"] == pytest.approx(0.74, abs=0.01)
    inside = ((recipes >= low) & (recipes <= high)).mean()
    assert 0.75 < inside < 0.85


def test_training_steps_err_to_the_fast_side_but_dense_ones_on_h100s() -> None:
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
