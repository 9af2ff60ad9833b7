"""Conclusions of the chapter serving-under-load: each test would refute one."""

import dataclasses
import decimal
import math

import pytest

import roofline
import roofline_helpers as rh


def on_v6e(**asked):
    place = roofline.network.topology("v6e", "2x4", ceilings="reached")
    usual = {"inputs": 1000, "outputs": 1000}
    return roofline.serving.load("llama-3-70b", place, {"tensor": 8}, **{**usual, **asked})


def test_users_that_do_not_fit_change_the_time_to_the_first_token_alone():
    some, many = (on_v6e(concurrency=n) for n in (256, 512))
    assert some.worker.most < 256
    assert (many.time_per_token, many.rate) == (some.time_per_token, some.rate)
    assert many.first_token - some.first_token == pytest.approx(256 / many.rate)
    assert many.first_token > 400 * on_v6e(concurrency=192).first_token


def test_half_of_served_points_are_near_also_on_gb200s():
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


def test_small_chunks_slow_the_mean_only_if_they_read_the_weights_by_themselves():
    whole, small = (on_v6e(concurrency=32, inputs=8000, budget=n) for n in (8000, 250))
    decode = small.worker.decode.but(batch=round(small.batch))
    caches = sum(kernel.total for kernel in decode.kernels if "attention" in kernel.name)
    joined = small.worker.prompt / small.worker.chunks + caches
    assert joined == pytest.approx(34e-3, abs=5e-4)
    assert joined < whole.time_per_token < small.time_per_token / 1.2


def test_with_many_sequences_a_small_draft_gains_if_its_guesses_are_accepted():
    large = rh.models.model("llama-3-70b")
    host = roofline.network.topology("v6e", 8, ceilings="reached")
    target, draft = (
        roofline.serving.step(model, host, {"tensor": 8}, batch=160, context=1500)
        for model in (large, dataclasses.replace(large, layers=1))
    )
    for acceptance, gain in {0.6: 1.27, 0.4: 0.95, 0.3: 0.83}.items():
        ahead = roofline.serving.speculative(target, draft, draft_tokens=3, acceptance=acceptance)
        assert target.seconds / ahead.time_per_token == pytest.approx(gain, abs=0.03)


@pytest.mark.parametrize(("busy", "late"), [(0.5, 2.0), (0.8, 5.2), (0.9, 10.4), (0.95, 20.6)])
def test_one_first_token_of_a_hundred_is_so_late_if_prompts_come_at_random(busy, late):
    """By Crommelin's formula for one server with a fixed service and random arrivals (1932)."""
    place = roofline.network.topology("v6e", "2x4", ceilings="reached")
    apart = on_v6e(concurrency=32, inputs=8000, readers=roofline.serving.Readers(1))
    assert apart.readers is not None
    read = apart.readers.prompt
    whole = roofline.serving.step(
        "llama-3-70b", place, {"tensor": 8}, phase="prefill", context=8000
    )
    assert read == pytest.approx(whole.seconds)

    def within(seconds):
        """The share of prompts that have been read after so many seconds."""
        with decimal.localcontext(prec=80):
            waits = (decimal.Decimal(seconds) - decimal.Decimal(read)) / decimal.Decimal(read)
            rate = decimal.Decimal(busy)  # arrivals while one is read
            terms = (
                (-rate * (waits - k)) ** k / math.factorial(k) * (rate * (waits - k)).exp()
                for k in range(int(waits) + 1)
            )
            return float((1 - rate) * sum(terms))

    assert within(0.97 * late) < 0.99 < within(1.03 * late)


def test_a_guessed_token_gains_least_where_it_wakes_the_most_experts():
    model = rh.models.model("deepseek-v3")
    host = roofline.network.topology("h200", 8, ceilings="reached")
    draft = roofline.serving.speculation.own_module(model)
    asked = {"weights": "fp8", "activations": "fp8", "law": True, "context": 1500}
    gain = {}
    for users in (1, 8, 16, 64, 256):
        target, ahead = (
            roofline.serving.step(one, host, {"tensor": 8}, batch=users, **asked)
            for one in (model, draft)
        )
        guess = roofline.serving.speculative(target, ahead, draft_tokens=1, acceptance=0.85)
        gain[users] = target.seconds / guess.time_per_token
    assert max(gain[8], gain[16]) < 1.45 < 1.5 < min(gain[1], gain[64], gain[256])
    assert model.experts is not None
    woken = {n: model.experts.chosen_by(2 * n) - model.experts.chosen_by(n) for n in gain}
    assert sorted(woken, key=woken.__getitem__)[-2:] == [8, 16]
