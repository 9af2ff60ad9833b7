"""Conclusions of the chapter serving-under-load: each test would refute one."""

from typing import Any

import pytest

import roofline


def on_v6e(**asked: Any) -> roofline.serving.Load:
    place = roofline.network.topology("v6e", "2x4", ceilings="reached")
    usual = {"inputs": 1000, "outputs": 1000}
    return roofline.serving.load("llama-3-70b", place, {"tensor": 8}, **{**usual, **asked})


def test_users_that_do_not_fit_change_the_time_to_the_first_token_alone() -> None:
    some, many = (on_v6e(concurrency=n) for n in (256, 512))
    assert some.worker.most < 256
    assert (many.time_per_token, many.rate) == (some.time_per_token, some.rate)
    assert many.first_token - some.first_token == pytest.approx(256 / many.rate)
    assert many.first_token > 400 * on_v6e(concurrency=192).first_token


def test_half_of_served_points_are_near_also_on_gb200s() -> None:
    rows = roofline.validation.served(3)
    rows = rows[rows.refused == ""]
    kinds = roofline.validation.kinds()
    for quantity in ("time per token", "tokens/s per chip"):
        assert kinds["median error"][f"{quantity}, dense"] < 0.105
        assert kinds["median error"][f"{quantity}, mixtures"] < 0.135
    near = kinds[kinds.index.str.contains("token") & ~kinds.index.str.contains("apart|first")]
    assert (near["with one factor per chip"] > 3 * near["median error"]).all()
    rows = rows[(rows.quantity == "time per token") & rows.kind.str.startswith("mixture")]
    token = rows[rows.chip == "gb200"].error
    assert len(token) == 10
    assert kinds.skill[kinds.index.str.contains("token") & (kinds.rows >= 10)].all()
    assert token.abs().median() < 0.055
    assert kinds["median error"]["first token, mixtures, prompts apart"] > 0.4
