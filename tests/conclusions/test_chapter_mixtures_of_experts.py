"""Conclusions of the chapter mixtures-of-experts: each test would refute one."""

import pytest
from conclusions import kept

import roofline
import roofline_helpers as rh
from roofline import network, training


def test_a_served_mixture_is_predicted_between_two_engines():
    points = roofline.validation.points()
    asked = {"model": "deepseek-v3", "chip": "h200", "tensor": 8, "outputs": 8192}
    for column, value in {**asked, "expert_widths": 8}.items():
        points = points[points[column] == value]
    points = points[points.readers.isna() & points.doubt.isna()]
    table = points.pivot(index="concurrency", columns="engine", values="token_ms")
    host = network.topology("h200", 8, ceilings="reached")
    for sequences, row in table.iterrows():
        step = roofline.serving.step(
            "deepseek-v3",
            host,
            {"tensor": 8},
            batch=sequences,
            context=round(0.9 * (1024 + 8192 / 2)),
            weights="fp8",
            activations="fp8",
            law=True,
        )
        predicted = 1e3 * step.seconds
        assert row["sglang 0.5.9"] < predicted < 1.19 * row["sglang 0.5.9"]
        most = 1.04 if sequences == 64 else 1.001
        assert 0.84 * row["trtllm"] < predicted < most * row["trtllm"]
    few = table.loc[4]
    assert few["trtllm"] / few["sglang 0.5.9"] == pytest.approx(4 / 3, abs=0.02)


def test_uneven_loads_cost_whole_experts_wherever_they_compute():
    """In every column of the record: five chips, all their types, two power laws."""
    names = ("layout", "load", "chip", "dtype")
    table = rh.measured.table("uneven_experts").astype(dict.fromkeys(names, str))
    table = table[table.chip.isin(["h100", "h200", "b200", "b300", "gb200"])]
    times = table.pivot_table(
        index=["layout", "tokens", "chip", "dtype"], columns="load", values="seconds"
    )
    ratio = (times["power law 1.2"] / times["even"]).dropna()
    whole, cut = ratio["whole experts"], ratio["width cut"]
    assert max(whole.loc[16:128].max(), cut.loc[16:128].max()) < 1 + 1 / 8
    assert max(whole.loc[16:128].median(), cut.loc[16:128].median()) < 1
    few = {n: max(whole.loc[n].median(), cut.loc[n].median()) for n in (2, 4, 8)}
    assert few == pytest.approx({2: 1.13, 4: 1.20, 8: 1}, abs=0.06)
    assert 1.1 < whole.loc[512:1024].median() < 1.2
    assert (whole.loc[2048:].min(), whole.loc[2048:].max()) == pytest.approx((1.26, 3.44), abs=0.01)
    assert 1.05 < cut.loc[2048:].median() < 1.1
    assert 1.7 < cut.loc[2048:].max() < 1.75


def test_which_layout_sends_less_depends_on_the_all_reduce_and_the_type():
    whole = 2 * 7 / 8 * network.distinct(8, 8) / 8
    assert 1 + 1 / 8 < whole < 2 * 7 / 8
    ring = network.topology("h200", 8, ceilings="reached")["nvlink"]
    switch = network.topology("h200", 8, ceilings="reached", multicast=True)["nvlink"]
    table = rh.measured.table("expert_exchange")
    table = table.query("chip == 'h200' and hidden == 7168 and experts == 256 and top_k == 8")
    fastest = table.groupby(["op", "tokens"], observed=True).seconds.min()
    for tokens in (64, 1024, 8192):
        out, back = (fastest[op, tokens // 8] for op in ("dispatch", "combine"))
        nbytes = tokens * 7168 * 2
        cut = network.all_reduce(nbytes, ring).seconds
        added = network.all_reduce(nbytes, switch, algorithm="nvls").seconds
        assert added < out + back < cut
        assert 0.65 < 2 * back / cut < 1.05


def test_a_least_width_is_one_of_prefill_and_of_an_axis():
    cube, pod = network.topology("v5p", "4x4x4"), network.topology("v5p", "16x16x16")
    assert training.least_width(cube, cube["x", "y"]) < 2048 < training.least_width(pod, pod["x"])
    host = network.topology("h200", 8, ceilings="reached")
    asked = {
        "batch": 256,
        "context": 1500,
        "weights": "fp8",
        "activations": "fp8",
        "law": True,
    }
    step = roofline.serving.step("deepseek-v3", host, {"expert": 8}, **asked)
    (experts,) = (kernel for kernel in step.kernels if kernel.name == "experts")
    assert experts.total > 5 * step.comms


def test_a_ragged_exchange_stays_one_instruction():
    kinds = [one.collective.kind for one in kept()["experts-dispatch", "v6e"].exchanges]
    assert kinds.count("ragged-all-to-all") == 1
    assert len(kinds) == 2
    (padded,) = kept()["experts-padded", "v6e"].exchanges
    row = 7168 * 2
    assert padded.collective.bytes_in == 2 * 1024 * 8 * row


def test_the_split_of_qwen_hardly_matters_for_64_users_and_the_type_does():
    host = network.topology("h200", 8, ceilings="reached")
    asked = {"batch": 64, "context": 4000, "law": True}
    narrow = {"weights": "fp8", "activations": "fp8"}
    kinds = [("bf16", {}), ("fp8", narrow)]
    ms = {
        (name, way): roofline.serving.step("qwen3-235b", host, {way: 8}, **asked, **types).seconds
        for name, types in kinds
        for way in ("tensor", "expert")
    }
    for name in ("bf16", "fp8"):
        assert abs(ms[name, "expert"] / ms[name, "tensor"] - 1) < 0.06
    assert ms["fp8", "tensor"] < 0.78 * ms["bf16", "tensor"]


def test_one_user_of_eight_gpus_gains_from_guesses_though_their_bytes_lose():
    host = network.topology("h200", 8, ceilings="reached")
    model = rh.models.model("qwen3-235b")
    narrow = {"weights": "fp8", "activations": "fp8"}
    asked = {"context": 1500, "law": True, **narrow}
    gain = {}
    for users in (1, 4, 64):
        step = roofline.serving.step(model, host, {"tensor": 8}, batch=users, **asked)
        gain[users] = sum(0.6**n for n in range(4)) * step.seconds / step.but(new=4).seconds
        if users == 1:
            read = model.matrix_flops() / 2 / host.chips / host.chip.memory["hbm"].bandwidth.value
            assert step.seconds > 10 * read
    assert 1.5 < gain[4] < min(gain[1], gain[64])
