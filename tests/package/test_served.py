"""Served points as others measured them: what they may be, and how far off the predictions are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas
import pytest

from roofline import network, serving, validation
from roofline.serving.service import COMPARED, DENSE, MIXTURE, SPREAD, WIDEST, widened
from roofline.validation import loads
from roofline.validation.rivals import by_kind

EVERY = 3


@pytest.fixture(scope="module")
def judged() -> pandas.DataFrame:
    """Every third engine's points, which take seconds."""
    points = validation.served(EVERY)
    return points[points.refused == ""]


def test_a_point_is_predicted_as_its_benchmark_ran_it() -> None:
    points = validation.points()
    one = points[(points.model == "llama-3-70b") & (points.chip == "h200") & (points.tensor == 8)]
    one = one[(one.inputs == 1024) & (one.outputs == 1024) & (one.concurrency == 64)].iloc[0]
    fp8 = {"weights": "fp8", "activations": "fp8", "cache": "fp8"}
    hardware = network.topology("h200", 8, ceilings="reached")
    by_hand = serving.load(
        *("llama-3-70b", hardware, {"tensor": 8}),
        **{"concurrency": 64, "inputs": 922, "outputs": 922, "rounds": 10, "reserve": 0.1, **fp8},
    )
    point = {str(name): value for name, value in one.dropna().items()}
    assert loads._loads(point, [64])[0].first_token == by_hand.first_token
    compared = loads._compared(one, by_hand)
    cycle = (one.first_ms + one.token_ms * 921) / 1e3
    assert compared["tokens/s per chip"][0] == pytest.approx(64 * 922 / cycle / 8)
    weights = by_hand.worker.decode.memory.weights
    assert compared["time per token"][2] == pytest.approx(2 * weights / 4.8e12)


def test_aims_are_met(judged: pandas.DataFrame) -> None:
    error = judged.error.abs()
    median = error.groupby([judged.kind, judged.apart, judged.quantity]).median()
    assert median[DENSE, False, "time per token"] < 0.12
    assert median[MIXTURE, False, "time per token"] < 0.20
    assert median[MIXTURE, True, "time per token"] < 0.20
    assert median[MIXTURE, False, "first token"] < 0.22
    for kind in (DENSE, MIXTURE):
        assert median[kind, False, "tokens/s per chip"] < 0.15


def test_eight_of_ten_points_lie_in_their_kind_s_range(judged: pandas.DataFrame) -> None:
    ratio = judged.published / judged.predicted
    for (kind, apart, quantity), own in ratio.groupby([judged.kind, judged.apart, judged.quantity]):
        if (kind, apart, quantity) in SPREAD:
            low, high = SPREAD[kind, apart, quantity]
            share = own.between(low, high).mean()
            assert 0.74 <= share <= (0.97 if apart else 0.92), (
                kind,
                quantity,
            )  # eight of ten that were left out
            assert low <= 1 <= high or high / low > WIDEST  # a prediction lies in its own range


def test_no_judged_point_beats_its_bound(judged: pandas.DataFrame) -> None:
    points = judged[judged.quantity == "time per token"]
    assert len(points) > 400
    assert (points.published > points.bound).all()


def test_a_rule_with_a_factor_is_judged_on_recipes_that_gave_it_nothing() -> None:
    rows: Callable[..., dict[str, Any]] = lambda model, published: {  # noqa: E731
        **{
            "what": "a kind",
            "inside": True,
            "chip": "h100",
            "model": model,
            "type": "bf16",
            "date": "2026-01-01",
        },
        **{"published s": published, "predicted s": 1.1, "rule of thumb s": 0.5},
    }
    table = pandas.DataFrame([rows("one", 1.0), rows("other", 2.0)])
    line = by_kind(table).loc["a kind"]
    assert line["median error"] == pytest.approx((0.1 + 0.45) / 2)
    assert line["rule of thumb"] == pytest.approx((0.5 + 0.75) / 2)
    # each gets the other's factor: 0.5 · 4 of 1, and 0.5 · 2 of 2
    assert line["with one factor per chip"] == pytest.approx((1.0 + 0.5) / 2)
    assert line["skill"]


def test_points_rest_on_kernels_of_their_chip_but_for_a_tenth() -> None:
    points = validation.points()
    for chip in ("b200", "gb200", "h200"):
        own = points[(points.chip == chip) & (points.weights == "fp8 in blocks")]
        point = {str(name): value for name, value in own.iloc[0].dropna().items()}
        (load,) = loads._loads(point, [1])
        rests = load.worker.decode.rests
        assert 0 < rests["another chip"] < COMPARED
        assert widened(load.worker.decode) == 1
        low, best, high = serving.ranges(load)["time per token"]
        assert low
        assert high
        assert best
        assert (low / best, high / best) == pytest.approx(SPREAD[MIXTURE, False, "time per token"])
