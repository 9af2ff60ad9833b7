"""Conclusions of the chapter mixtures-of-experts: each test would refute one."""

from functools import cache
from typing import Any

import pytest
from conclusions import kept, path, prose

import roofline
import roofline_helpers as rh
from roofline import network
from tools.notebooks import run as notebooks


@cache
def chapter_of_experts() -> dict[str, Any]:
    """Functions and constants of the chapter's own cells, which these tests call again."""
    names: dict[str, Any] = {}
    wanted = ("imports", "models", "kernels", "compile", "busiest", "loads-drawn", "loads")
    for cell in notebooks.load(path("mixtures-of-experts")).cells:
        if cell.id.removeprefix("me-") in wanted:
            exec(cell.source, names)
    return names


def test_sixteen_tokens_wake_two_thirds_of_qwens_experts_and_read_far_more_than_one() -> None:
    draw = chapter_of_experts()["np"].random.default_rng(1)
    woken = [
        len({*draw.random((16, 128)).argsort(1)[:, :8].ravel().tolist()}) / 128 for _ in range(400)
    ]
    model = rh.models.model("qwen3-235b")
    assert model.experts is not None
    assert sum(woken) / len(woken) == pytest.approx(model.experts.chosen_by(16), abs=0.01)
    stored = model.expert_layers * model.experts.count * model.experts.expert(model.d_model)
    rest = model.active_matrices - stored * model.experts.active / model.experts.count
    read = {t: rest + stored * model.experts.chosen_by(t) for t in (1, 64, 1024)}
    assert read[1] == pytest.approx(model.active_matrices)
    assert read[64] > 10 * read[1]
    assert read[1024] < 1.03 * read[64]


def test_measured_experts_bend_at_about_half_the_rows_of_the_ridge() -> None:
    names = chapter_of_experts()
    measured, corners = names["measured"], {}
    took = measured("h200", "bf16")
    assert took[1024] / took[16] == pytest.approx(1.255, abs=0.01)
    for chip, dtype in (("h200", "bf16"), ("b200", "bf16"), ("b200", "fp8"), ("b200", "nvfp4")):
        took = measured(chip, dtype)
        before, after = took[2048] / took[256], took[16384] / took[4096]
        assert before < 1.35, (chip, dtype)  # of eight times the work
        assert 3.5 < after < 4.1, (chip, dtype)  # of four times
        corners[chip, dtype] = took[16] / took[16384] * 1024  # rows
        ridge = rh.chip(chip).roofline("bf16").ridge
        assert 0.4 < corners[chip, dtype] / ridge < 0.61, (chip, dtype)
    assert corners["h200", "bf16"] == pytest.approx(124, abs=1)
    assert corners["h200", "bf16"] * 16 == pytest.approx(1983, abs=2)
    read = names["job"](16, "bf16").bytes / measured("h200", "bf16")[16]
    assert read / rh.chip("h200").roofline("bf16").bandwidth == pytest.approx(0.92, abs=0.01)


def test_grouped_kernels_reach_a_third_to_a_half_of_the_peak() -> None:
    names = chapter_of_experts()
    shares = {}
    for chip, types in names["CHIPS"].items():
        for dtype, kind in types.items():
            rate = names["job"](16384, kind).flops / names["measured"](chip, dtype)[16384]
            shares[chip, dtype] = rate / rh.chip(chip).roofline(kind).peak
    assert all(0.33 < share < 0.56 for share in shares.values())
    assert shares["h200", "bf16"] == pytest.approx(0.55, abs=0.01)
    assert shares["b200", "bf16"] == pytest.approx(0.46, abs=0.01)
    assert shares["b200", "nvfp4"] == pytest.approx(0.34, abs=0.01)
    dense = rh.measured.table("matmul").query(
        "chip == 'h200' and dtype == 'bf16' and m == 16384 and n == 2048 and k == 4096"
    )
    flops = 2 * 16384 * 2048 * 4096
    peak = rh.chip("h200").peak("bf16").value
    assert flops / dense.seconds.item() / peak == pytest.approx(0.8, abs=0.03)


def test_the_gradient_by_the_weights_of_a_ragged_dot_is_dense_on_a_tpu() -> None:
    needed = 2 * 128 * 128 * 4096 * 1536
    weights = 2 * 128 * 4096 * 1536
    reports = {
        name: kept()[f"experts-{name}", "v6e"]
        for way in ("ragged", "megablox")
        for name in (f"{way}-forward", f"{way}-by_rows", f"{way}-by_weights")
    }
    ratios = {name: report.flops / needed for name, report in reports.items()}
    assert ratios.pop("ragged-by_weights") > 128
    assert all(ratio == pytest.approx(1, rel=1e-4) for ratio in ratios.values())
    forward, rows = (reports[f"ragged-{name}"].hbm_bytes for name in ("forward", "by_rows"))
    assert rows - forward == pytest.approx(2 * weights, rel=0.001)  # read and written, transposed
    slow, fast = (reports[f"{way}-by_weights"].time_at_most for way in ("ragged", "megablox"))
    assert slow > 20 * fast


def test_a_dense_ragged_matmul_costs_up_to_125_times_a_batched_one() -> None:
    took = {}
    for case in roofline.evidence.load("grouped")["cases"]:
        if (case["experts"], case["load"]) == (128, "equal"):
            took[case["mode"], case["tokens"]] = {
                way: sorted(run["seconds"])[len(run["seconds"]) // 2]
                for way, run in case["ways"].items()
                if "seconds" in run
            }
            assert case["roof"] < 1.05 * took[case["mode"], case["tokens"]]["batched"]
    large = {key: ways for key, ways in took.items() if key[1] in (1024, 16384)}
    assert len(large) == 6
    ratios = [
        min(ways["ragged_dot"], ways["ragged_dot, no kernel"]) / ways["batched"]
        for ways in large.values()
        if "ragged_dot" in ways
    ]
    assert len(ratios) == 4
    assert f"up to {max(ratios):.0f} times as long" in prose("mixtures-of-experts")
    assert all(min(ways, key=lambda way: ways[way]) == "batched" for ways in large.values())
    record = rh.measured.device_records()["h200"]
    combine = "combine by {} Qwen3-235B-A22B, 8192 tokens"
    scatter, gather = (record.sample(combine.format(way)).seconds for way in ("scatter", "gather"))
    assert f"{scatter / gather:.0f} times as long as reading" in prose("mixtures-of-experts")


def test_experts_of_deepseek_are_wide_enough_inside_a_host_and_not_across() -> None:
    small, large = (roofline.network.topology("v5p", shape) for shape in ("4x4x4", "16x16x16"))
    least = roofline.training.least_width
    assert round(least(small, small["x"])) == round(least(small, small.fast)) == 1530
    assert least(small, small["x"], active=8) < 2048 < least(large, large["x"], active=8)
    host, hosts = (roofline.network.topology("h200", count) for count in (8, 64))
    assert least(host, host.fast) < 2048 < 2 * least(host, host.fast)  # at half of the rates
    assert 2 * least(host, host.fast, active=8) < 2048
    assert least(host, host.fast) < 2048 < 10_000 < least(hosts, hosts.axes, active=8)
    # with at most four hosts for a token, the dispatch alone takes longer than the arithmetic
    width, links = 7168, rh.chip("h200").links
    sent = 4096 * 4 * 7 / 8 * width / float(links["nic"])
    assert sent > 4096 * 8 * 6 * width * 2048 / rh.chip("h200").peak("fp8").value


def test_exchanges_of_experts_take_twice_what_links_need_or_a_fixed_cost() -> None:
    table = rh.measured.table("expert_exchange")
    for column, value in {"chip": "h200", "hidden": 7168, "experts": 256, "top_k": 8}.items():
        table = table[table[column] == value]
    took = table.set_index(["mode", "op", "tokens"]).seconds.to_dict()
    copies = {"low latency": 8.0, "throughput": network.distinct(8, 8)}
    nvlink = float(rh.chip("h200").links["nvlink"])
    for mode, sent in copies.items():
        for op, width in (("dispatch", 1), ("combine", 2)):
            links = sent * 7 / 8 * 7168 * width * 1024 / nvlink
            assert 1.8 < took[mode, op, 1024] / links < 2.2, (mode, op)
    eight, single = (
        sum(took["low latency", op, count] for op in ("dispatch", "combine")) for count in (8, 1)
    )
    assert eight == pytest.approx(27e-6, abs=1e-6)
    assert single > 0.85 * eight
    shares = {"dispatch": ("fp8", 0.53), "combine": ("bf16", 0.5)}
    for op, (dtype, share) in shares.items():
        law = rh.measured.law(f"{op}, low latency", "h200", dtype)
        assert law.start == pytest.approx(10e-6, abs=0.5e-6)
        assert (law.memory, law.law.median) == pytest.approx((share, 0.05), abs=0.01)


def test_whole_experts_send_less_and_wait_for_the_busiest_while_tokens_are_few() -> None:
    cut, whole = 2 * 7 / 8, 2 * 7 / 8 * roofline.network.distinct(8, 8) / 8
    assert whole / cut == pytest.approx(2 / 3, abs=0.02)
    busiest = chapter_of_experts()["busiest"]
    assert busiest(8) == pytest.approx(1.45, abs=0.05)
    assert busiest(128) < 1.02
    host = network.topology("h200", 8, ceilings="reached")
    took = {
        (way, batch): roofline.serving.step(
            "deepseek-v3",
            host,
            {way: 8},
            batch=batch,
            context=1500,
            weights="fp8",
            activations="fp8",
            law=True,
        ).seconds
        for way in ("tensor", "expert")
        for batch in (8, 512)
    }
    assert took["tensor", 8] < took["expert", 8]
    assert took["expert", 512] < took["tensor", 512]


def test_the_fullest_device_is_nearer_to_the_mean_than_the_fullest_expert() -> None:
    names = chapter_of_experts()
    rows = names["loads"](0.5, seed=3)
    expert, eight, many = (
        rows.max() / rows.mean(),
        names["slowest"](rows, 8),
        names["slowest"](rows, 64),
    )
    assert 1.2 < eight < 1.35
    assert eight < many < expert
    even, uneven = (sum((names["loads"](s, 64, n) > 0).mean() for n in range(20)) for s in (0, 1))
    assert uneven < 0.9 * even


def test_measured_layouts_of_experts_and_what_uneven_loads_cost_them() -> None:
    rows = rh.measured.table("uneven_experts").set_index(
        ["chip", "dtype", "layout", "load", "tokens"]
    )
    took = rows.seconds.to_dict()
    cut, whole = "width cut", "whole experts"
    assert (
        0.8
        < took["h200", "bf16", cut, "even", 16384] / took["h200", "bf16", whole, "even", 16384]
        < 1
    )
    narrow = [took["b200", "nvfp4", way, "even", 16384] for way in (whole, cut)]
    assert narrow[0] / narrow[1] == pytest.approx(1 / 2, abs=0.03)

    def longer(layout: str, tokens: int) -> float:
        even, uneven = (
            took["h200", "bf16", layout, load, tokens] for load in ("even", "power law 1.2")
        )
        return uneven / even

    assert longer("one GPU", 32) == pytest.approx(5 / 6, abs=0.02)
    assert longer(whole, 32) < 1
    assert longer(whole, 16384) == pytest.approx(1.63, abs=0.01)
    assert longer(cut, 16384) < 1.1
    # the layout that is ahead with even loads is ahead with uneven ones, too
    for chip, dtype, even, uneven in (("h200", "bf16", -0.15, -0.75), ("b200", "fp8", 0.41, 0.11)):
        for load, saved in (("even", even), ("power law 1.2", uneven)):
            times = [took[chip, dtype, way, load, 16384] for way in (whole, cut)]
            assert 1 - times[0] / times[1] == pytest.approx(saved, abs=0.01), (chip, load)


def test_a_served_mixture_is_predicted_between_two_engines() -> None:
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
        assert row["sglang 0.5.9"] < predicted < 1.14 * row["sglang 0.5.9"]
        assert 0.79 * row["trtllm"] < predicted < 1.02 * row["trtllm"]
    few = table.loc[4]
    assert few["trtllm"] / few["sglang 0.5.9"] == pytest.approx(4 / 3, abs=0.02)


def test_kinds_of_predictions_of_mixtures() -> None:
    kinds = roofline.validation.kinds()["median error"]
    served, trained = (
        [kinds[f"{what}, {kind}"] for kind in ("mixtures", "dense")]
        for what in ("time per token", "training")
    )
    assert served[0] < 1.6 * served[1]
    first = [kinds[f"first token, {kind}"] for kind in ("mixtures", "dense")]
    assert f"{100 * first[0]:.0f}%" in prose("mixtures-of-experts")
    assert first[0] > 2 * first[1]
    assert trained[0] > max(0.25, 2 * trained[1])
    for error in served:
        assert f"{100 * error:.0f}%" in prose("mixtures-of-experts")


def test_mixtures_err_more_than_dense_models_and_to_the_fast_side() -> None:
    board = roofline.scoreboard(law=True)
    mixed = board.kind.str.startswith("mixture")
    off = board.error.abs()
    assert off[mixed].median() > 2 * off[~mixed].median()
    assert (board.error[mixed] < 0).mean() > 0.8
    gpu = board.chip.map(lambda key: rh.chip(key).kind) == "gpu"
    medians = [100 * board.error[mixed & here].median() for here in (gpu, ~gpu)]
    for median in medians:
        assert f"{-median:.0f}%" in prose("mixtures-of-experts")


def test_a_quarter_more_rows_on_the_fullest_gpu_cost_a_training_step_an_eighth() -> None:
    row = roofline.validation.published_step("b200-256-qwen3-235b-fp8")
    assert isinstance(row, roofline.validation.PublishedStep)
    assert dict(row.mesh)["expert"] == 8
    even, uneven = (
        roofline.training.step(
            row.model,
            row.by_law.setting.topology,
            row.mesh,
            batch=row.batch,
            seq=row.seq,
            law=True,
            imbalance=imbalance,
            **row.setting,
        ).seconds
        for imbalance in (1, 1.27)
    )
    assert uneven / even == pytest.approx(1.125, abs=0.01)
