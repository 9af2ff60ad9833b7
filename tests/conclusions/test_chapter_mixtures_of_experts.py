"""Conclusions of the chapter mixtures-of-experts: each test would refute one."""

from functools import cache
from typing import Any

import pytest
from conclusions import path, prose

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
        assert row["sglang 0.5.9"] < predicted < 1.19 * row["sglang 0.5.9"]
        most = 1.04 if sequences == 64 else 1.001
        assert 0.84 * row["trtllm"] < predicted < most * row["trtllm"]
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
    assert 1.7 * first[1] < first[0] < 2 * first[1]
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
