"""The scoreboard's page prints what the package predicts; its constants are the package's."""

import pytest

import page_board
import roofline
from roofline import evidence as files
from roofline import validation
from roofline.serving.service import DENSE, MIXTURE
from roofline.validation.board import training_range
from roofline.validation.rivals import ratios
from tools import constants


@pytest.fixture(scope="module")
def texts():
    return page_board.board()


def test_every_row_is_there_and_what_a_prediction_is_made_of_adds_up(texts):
    lines = texts["board_table"].split("\n")[2:]
    assert len(lines) == len(validation.steps()) == int(texts["board_rows"])
    for one in validation.worst():
        assert sum(page_board.waterfall(one).values()) == pytest.approx(one.by_law.seconds)


def test_the_model_beats_the_envelope_but_on_two_chips(texts):
    """A better model makes this fail, and the page change."""
    rows = page_board.frame()
    off, rule = rows.error.abs(), rows["rule of thumb error"].abs()
    assert off.median() < 0.5 * rule.median()
    dense = rows.what == "dense"
    ours, theirs = (each[dense].groupby(rows.chip).median() for each in (off, rule))
    assert set(ours.index[ours > theirs]) == {"v4", "v6e"}
    assert int(texts["board_recipes_median"][:-1]) > 12  # the aim
    chips = rows.chip.isin(["v5p", "v7x"]) & (rows.what == "experts") & (rows.type == "bf16")
    assert ((rows.error[chips].abs() < 0.1).sum(), chips.sum()) == (5, 8)


def test_kinds_are_as_the_page_says(texts):
    kinds = validation.kinds(every=page_board.EVERY)
    many = kinds[kinds.rows >= 10]
    assert list(many.index[~many.skill]) == ["training, dense"]
    assert texts["board_no_skill"].startswith("training, dense (")
    first = kinds.loc["first token, mixtures, prompts apart"]
    assert first["rule of thumb"] > first["median error"] > 0.4
    served = kinds[~kinds.index.str.startswith("training") & (kinds.rows >= 20)]
    assert served["in range"].between(0.74, 0.97).all()
    assert first["signed"] < -0.3
    points = validation.points()
    assert points.doubt.dropna().nunique() == texts["board_left_out"].count("\n") - 1


def test_laws_meet_their_aims_where_the_page_says(texts):
    lines = [line.strip("| ").split(" | ") for line in texts["board_laws"].split("\n")[2:]]
    assert [lines[i][-1] for i in (0, 1, 3)] == ["8%", "11%", "8%"]  # bf16, fp8, nvfp4
    met = [name for name, *cells in lines if int(cells[-2][:-1]) < 15]
    assert met == ["matmul, bf16", "grouped matmul, fp8 in blocks", "all-to-all, fp16"]


@pytest.mark.parametrize("kind", [DENSE, MIXTURE])
def test_ranges_hold_for_four_of_five_recipes_that_are_left_out(kind):
    rows = roofline.scoreboard(law=True)
    known = ratios(rows[(rows.step == "training") & (rows.kind == kind)])
    inside, below = 0, 0
    for recipe in known.index:
        low, high = training_range(kind, recipe[0], recipe)
        assert low <= 1 <= high < 4 * low
        inside += low <= known[recipe] <= high
        below += known[recipe] < low
    assert 0.75 < inside / len(known) < 0.95
    assert below / len(known) > 0.02 or kind == MIXTURE  # not shifted upwards


def test_the_worst_are_the_worst_and_each_has_its_reason(texts):
    worst = validation.worst()
    off = roofline.scoreboard(law=True).error.abs()
    assert off[worst[0].key] == off.max()
    assert len({(one.chip, one.model.name, one.dtype) for one in worst}) == 5
    assert all(len(one.why) > 100 for one in worst)
    assert texts["board_worst"].count("\n\n") == 4


def test_the_constants_are_those_of_the_package():
    kept = files.load("constants")
    now = {name: table[key] for name, table, key in constants.constants()}
    now |= {name: getattr(constants.STEP, key) for key, name in constants.STEPS.items()}
    assert {name: row["value"] for name, row in kept["without"].items()} == now
    assert sum(not name.startswith(page_board.PUBLISHED) for name in now) == 11
    assert constants.errors() == kept["all"], "run python -m tools.constants"


def test_the_laws_of_xla_s_kernels_hold_as_the_page_says(texts):
    lines = [line.strip("| ").split(" | ") for line in texts["board_kernel_laws"].split("\n")[2:]]
    widths = {kind: float(cells[5]) for kind, *cells in lines}
    for known in ("stream", "transpose", "attention"):
        assert widths[known] < 2 < 0.3 * widths["atomics"]
    inside, error = (int(texts[f"board_kernels_{name}"][:-1]) for name in ("inside", "error"))
    assert 78 <= inside <= 90
    assert error < 15
    moved = {kind: [int(cells[n][:-1]) for n in (1, 2, 6, 7)] for kind, *cells in lines}
    assert max(moved["matmul"][2:]) < 1.5 * max(moved["matmul"][:2])
    assert max(moved["pivots"][2:]) > 2 * max(moved["pivots"][:2])
