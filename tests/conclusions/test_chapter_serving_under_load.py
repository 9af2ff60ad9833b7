"""Conclusions of the chapter serving-under-load: each test would refute one."""

from functools import cache
from typing import Any

import numpy as np
import pandas
import pytest

import roofline
import roofline_helpers as rh


def on_v6e(**asked: Any) -> roofline.serving.Load:
    place = roofline.network.topology("v6e", "2x4", ceilings="reached")
    usual = {"inputs": 1000, "outputs": 1000}
    return roofline.serving.load("llama-3-70b", place, {"tensor": 8}, **{**usual, **asked})


def test_of_64_sequences_all_reduces_take_longer_than_caches_for_latency() -> None:
    step = on_v6e(concurrency=64).worker.decode.but(batch=64, context=1500)
    (cached,) = (kernel for kernel in step.kernels if "attention" in kernel.name)
    (summed,) = step.exchanges
    assert cached.launches * cached.work.bytes > 10 * summed.count * 2 * summed.collective.nbytes
    assert step.comms > cached.total
    assert summed.collective.latency > 0.6 * summed.collective.seconds
    assert step.seconds < 1.4 * step.but(batch=1).seconds


def test_users_that_do_not_fit_change_the_time_to_the_first_token_alone() -> None:
    some, many = (on_v6e(concurrency=n) for n in (256, 512))
    assert some.worker.most < 256
    assert (many.time_per_token, many.rate) == (some.time_per_token, some.rate)
    assert many.first_token - some.first_token == pytest.approx(256 / many.rate)
    assert many.first_token > 400 * on_v6e(concurrency=192).first_token


def test_chunks_shorten_pauses_and_small_ones_lengthen_the_mean() -> None:
    whole, eighths, small = (
        on_v6e(concurrency=32, inputs=8000, budget=budget) for budget in (8000, 1000, 250)
    )
    pauses = [load.worker.prompt / load.worker.chunks for load in (whole, eighths)]
    assert pauses[1] == pytest.approx(pauses[0] / 8, rel=0.1)
    assert 1 < eighths.time_per_token / whole.time_per_token < 1.05
    assert small.time_per_token / whole.time_per_token > 1.2
    apart = on_v6e(concurrency=32, inputs=8000, readers=roofline.serving.Readers(1))
    assert apart.time_per_token == apart.step_seconds < 0.7 * whole.time_per_token
    assert apart.per_chip == pytest.approx(77.7, abs=0.1)
    assert whole.per_chip == pytest.approx(101, abs=0.5)
    reads = apart.worker.decode.but(phase="prefill", batch=1, context=8000).seconds
    assert 1 - apart.rate * reads == pytest.approx(0.43, abs=0.01)


def test_three_steps_of_a_small_draft_take_half_of_one_of_the_model() -> None:
    large = on_v6e(concurrency=1).worker.decode.but(context=1500)
    small = large.but(model="llama-3-8b")
    assert 3 * small.seconds == pytest.approx(large.seconds / 2, rel=0.02)
    ahead = roofline.serving.speculative(large, small, draft_tokens=3, acceptance=0.6)
    assert ahead.tokens == pytest.approx(2.18, abs=0.005)


@cache
def served_points() -> pandas.DataFrame:
    """Points that aren't doubtful, with the speed of a user and the tokens per second of a GPU."""
    table = roofline.validation.points()
    table = table[table.doubt.isna() & table.workers.notna()]
    readers = table[["readers", "reader_tensor", "reader_data"]].fillna(0).prod(axis=1)
    outputs = table.outputs * (1 - 0.1 * (table.source == "InferenceX"))
    seconds = (table.first_ms + table.token_ms * (outputs - 1)) / 1e3
    return table.assign(
        apart=table.readers.notna(),
        user=1e3 / table.token_ms,
        type=table.weights.fillna(table.experts).fillna("bf16"),
        per_gpu=table.concurrency
        * outputs
        / seconds
        / (table.workers * table.tensor * table.data + readers),
    )


def gain(model: str, column: str, old: str, new: str) -> pandas.Series:
    """Return times as fast per token, of pairs that differ in nothing else."""
    table = served_points()
    same = ["chip", "type", "engine", "inputs", "outputs", "tensor", "data", "concurrency"]
    same.remove(column)
    table = table[(table.model == model) & ~table.apart]
    speed = table.pivot_table("user", index=same, columns=column)
    return (speed[new] / speed[old]).dropna()


def test_predicted_fronts_are_low_for_slow_users_and_high_for_fast_ones() -> None:
    table = served_points()
    table = table[(table.model == "llama-3-70b") & (table.engine == "vllm")]
    table = table[(table.type == "fp8") & (table.inputs == 1024) & (table.outputs == 1024)]
    ours = roofline.validation.compare(table).set_index(["point", "quantity"]).predicted
    off, ends = {}, {}
    for chip, own in table.groupby("chip"):
        loads = []
        for n in sorted(own.tensor.unique()):
            place = roofline.network.topology(chip, int(n), ceilings="reached")
            loads += roofline.serving.curve(
                *("llama-3-70b", place, {"tensor": int(n)}),
                **{"concurrency": [4, 8, 16, 32, 64], "inputs": 922, "outputs": 922},
                **{"weights": "fp8", "activations": "fp8", "cache": "fp8"},
            )
        front = sorted((load.per_user, load.per_chip) for load in roofline.serving.pareto(loads))
        users, rates = np.array(front).T
        ends[chip] = users[-1]
        own = own.sort_values("user", ascending=False)
        outer = own[own.per_gpu == own.per_gpu.cummax()]
        predicted = np.exp(np.interp(outer.user.astype(float), users, np.log(rates)))
        off[chip] = pandas.Series((outer.per_gpu / predicted).to_numpy(float), outer.user)
        if chip == "h100":
            slower = [1 / (ours[i, "time per token"] * outer.user[i]) - 1 for i in outer.index]
            assert max(slower) == pytest.approx(0.137, abs=0.01)
    for chip in ("h200", "b200"):
        slow = off[chip][off[chip].index < 45]
        assert ((slow > 1.15) & (slow < 1.25)).all()
    assert off["h100"][off["h100"].index.to_series().between(60, 80)].between(0.65, 0.75).all()
    assert off["h100"][off["h100"].index > 85].between(0.45, 0.52).all()
    fast = pandas.concat([one[one.index > 45] for one in off.values()])
    assert (fast < 1).mean() > 0.6
    assert off["b200"].index.max() == pytest.approx(158, abs=0.5)
    assert ends["b200"] == pytest.approx(145, abs=0.5)


def test_newer_chips_serve_faster_but_less_than_their_memory_is() -> None:
    memory = {c: rh.chip(c).memory["hbm"].bandwidth.value for c in ("h100", "h200", "b200", "b300")}
    for model, old, new in (
        ("llama-3-70b", "h100", "h200"),
        ("llama-3-70b", "h200", "b200"),
        ("deepseek-v3", "h200", "b200"),
    ):
        assert 1.15 < gain(model, "chip", old, new).median() < 0.95 * memory[new] / memory[old]
    assert memory["b300"] == memory["b200"]
    assert gain("minimax-m2.5", "chip", "b200", "b300").median() == pytest.approx(1, abs=0.03)


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


def test_fp4_pays_on_few_gpus_and_for_mixtures_and_an_engine_s_months_as_much_as_a_chip() -> None:
    by_size = gain("llama-3-70b", "type", "fp8", "nvfp4").groupby("tensor").median()
    assert by_size.is_monotonic_decreasing
    assert by_size[1] > 1.2
    assert by_size[8] == pytest.approx(0.97, abs=0.005)
    for mixture in ("deepseek-v3", "minimax-m2.5"):
        assert gain(mixture, "type", "fp8 in blocks", "nvfp4").median() > by_size[1]
    months = gain("deepseek-v3", "engine", "sglang", "sglang 0.5.9").median()
    assert months > 1.1
    assert months == pytest.approx(gain("llama-3-70b", "chip", "h100", "h200").median(), rel=0.05)


def test_prompts_apart_pay_for_slow_tokens_in_fp8_and_a_domain_of_72_for_every_user() -> None:
    table = served_points()
    table = table[(table.model == "deepseek-v3") & (table.inputs == 8192)]
    table = table[table.outputs == 1024]

    def best(chip: str, dtype: str, apart: bool, speed: int) -> float:
        own = table[(table.chip == chip) & (table.type == dtype) & (table.apart == apart)]
        return float(own.per_gpu[own.user >= speed].max())

    known = table[table.chip.isin(["h200", "b200"])]
    ours = roofline.validation.compare(known).pivot(
        index="point", columns="quantity", values="predicted"
    )

    def served(chip: str, dtype: str, apart: bool) -> float:
        own = known[(known.chip == chip) & (known.type == dtype) & (known.apart == apart)]
        rows = ours.loc[own.index]
        return float(rows["tokens/s per chip"][1 / rows["time per token"] >= 20].max())

    keys = [("h200", "fp8 in blocks"), ("b200", "fp8 in blocks"), ("b200", "nvfp4")]
    measured = dict(zip(keys, (1.48, 2.54, 0.87), strict=True))
    predicted = dict(zip(keys, (1.51, 3.09, 1.11), strict=True))
    for chip, dtype in keys:
        slow, fast = (
            best(chip, dtype, True, speed) / best(chip, dtype, False, speed) for speed in (20, 45)
        )
        assert slow == pytest.approx(measured[chip, dtype], abs=0.01)
        assert served(chip, dtype, True) / served(chip, dtype, False) == pytest.approx(
            predicted[chip, dtype], abs=0.01
        )
        assert slow > fast < 0.8
    for dtype in ("fp8 in blocks", "nvfp4"):
        own = table[table.engine.str.startswith("sglang 0.5.8") & table.apart]
        own = own[own.type == dtype]
        few, domain = (
            own.loc[own.per_gpu[own.chip == chip].idxmax()] for chip in ("b200", "gb200")
        )
        assert domain.tensor * domain.data == 4 * few.tensor * few.data == 32
        assert domain.user > 1.45 * few.user
        gain = {"fp8 in blocks": 2.29, "nvfp4": 1.10}[dtype]
        assert domain.per_gpu / few.per_gpu == pytest.approx(gain, abs=0.01)
        pair = roofline.validation.compare(
            roofline.validation.points().loc[[few.name, domain.name]]
        )
        speed = 1 / pair[pair.quantity == "time per token"].set_index("point").predicted
        assert 1.3 < speed[domain.name] / speed[few.name] < 1.4
        rates = pair[pair.quantity == "tokens/s per chip"].set_index("point")
        gain = {"fp8 in blocks": 1.33, "nvfp4": 0.96}[dtype]
        ratio = rates.predicted[domain.name] / rates.predicted[few.name]
        assert ratio == pytest.approx(gain, abs=0.01)
        rate = rates.loc[few.name]
        assert (rate.published / rate.predicted < 0.6) == (dtype != "nvfp4")
