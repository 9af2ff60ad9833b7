"""The scoreboard's page prints what the package predicts; its constants are the package's."""

from __future__ import annotations

import re

import pytest

import page_board
import roofline_helpers as rh
from roofline_helpers import published
from roofline_helpers.evidence import files
from tools import books
from tools.evidence import constants

PAGE = (books.ROOT / "book/scoreboard.md").read_text("utf-8")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return page_board.board()


def test_the_page_uses_every_text(texts: dict[str, str]) -> None:
    assert set(re.findall(r"\{\{ (\w+) \}\}", PAGE)) == set(texts)


def test_every_row_opens_into_parts_that_add_up_to_its_prediction(texts: dict[str, str]) -> None:
    lines = texts["board_table"].split("\n")[2:]
    assert len(lines) == len(published.steps()) == int(texts["board_rows"])
    for one in published.steps():
        assert sum(page_board.waterfall(one).values()) == pytest.approx(one.by_law.seconds)
    assert all(line.count("<summary>") == 1 for line in lines)


def test_skill_is_as_the_page_says() -> None:
    """A better model makes this fail, and the page change."""
    rows = page_board.frame()
    trained = rows[rows.step == "training"]
    dense = rows[rows.what == "dense"]
    every = published.rivals.skill(trained)
    some = published.rivals.skill(dense)
    chip = "a factor a chip"
    alone = ("as it is", "median")
    for name in ("median", "nine in ten"):
        assert every[chip, name].idxmin() == "the model"
        assert some.loc["the model", (chip, name)] < some.loc["the envelope", (chip, name)]
    assert some.loc["the bound", (chip, "median")] < 1.25 * some.loc["the model", (chip, "median")]
    nine = some[chip, "nine in ten"]
    assert nine["the model without laws"] < nine["the model"]
    board = rh.scoreboard(law=True)
    slow = board.index[(board.kind == "mixture of experts") & (board.error > 0)]
    assert list(slow) == ["b200-256-deepseek-v3-fp8"]
    assert nine["the bound"] > 1.5 * nine["the model"]
    assert min(every.loc["the model", alone], some.loc["the model", alone]) > 0.12
    assert every[alone].idxmin() == some[alone].idxmin() == "the model"


def test_ranges_hold_for_four_of_five_recipes_that_are_left_out() -> None:
    rows = page_board.frame()
    for what in ("dense", "experts"):
        known = published.rivals.ratios(rows[rows.what == what], "law s")
        assert 0.75 < page_board._covered(known) < 0.9


def test_where_nobody_published_a_stream_the_prediction_has_the_data_sheet_s(
    texts: dict[str, str],
) -> None:
    rows = page_board.frame()
    for key in rows.chip.unique():
        chip = rh.chip(key)
        assert (chip.name in texts["board_streamless"]) == (chip.reached.stream() is None)


def test_the_worst_are_the_worst_and_each_has_its_reason(texts: dict[str, str]) -> None:
    worst = published.worst()
    off = rh.scoreboard(law=True).error.abs()
    assert off[worst[0].key] == off.max()
    assert len({(one.chip, one.model.name, one.dtype) for one in worst}) == 5
    assert all(len(one.why) > 100 for one in worst)
    assert texts["board_worst"].count("\n\n") == 4


def test_the_constants_are_those_of_the_package() -> None:
    kept = files.load("constants")
    now = {name: table[key] for name, table, key in constants.constants()}
    now |= {name: getattr(constants.STEP, key) for key, name in constants.STEPS.items()}
    assert {name: row["value"] for name, row in kept["without"].items()} == now
    assert sum(not name.startswith(page_board.PUBLISHED) for name in now) == 10
    assert constants.errors() == kept["all"], "run python -m tools.evidence.constants"
