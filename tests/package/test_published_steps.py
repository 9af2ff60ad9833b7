"""Published training steps: each row's own arithmetic, its bound, and the errors of all."""

from __future__ import annotations

import math
from statistics import median

import numpy
import pandas
import pytest
from row_by_row import row_by_row

import roofline_helpers as rh
from roofline_helpers import published, serving
from roofline_helpers.published import PublishedDecode, PublishedStep
from roofline_helpers.training.step import MATRIX_SIDE, SLICES
from roofline_helpers.xla.report import at_reached
from tools.evidence import predictions

ALL = published.steps()
ROWS = [one for one in ALL if isinstance(one, PublishedStep)]


@pytest.fixture(scope="module")
def board() -> pandas.DataFrame:
    return rh.scoreboard()


def test_decode_steps_are_predicted_too(board: pandas.DataFrame) -> None:
    decode = board[board.step == "decode"]
    assert (decode.error.abs() < 0.20).all()
    assert decode.error.abs().mean() < decode["rule of thumb error"].abs().mean()


def test_prompts_of_others_are_what_the_mean_has_above_the_median() -> None:
    for one in (each for each in ALL if isinstance(each, PublishedDecode)):
        place = one.reached.place
        prompt = serving.on_slice(one.model, place, phase="prefill", context=1000)
        predicted = one.reached.seconds + one.batch * prompt.seconds / 1000
        assert one.seconds < one.mean
        assert predicted == pytest.approx(one.mean, rel=0.13)


def test_each_row_s_own_figures_agree() -> None:
    row_by_row(ROWS, own_figures_agree)


def own_figures_agree(one: PublishedStep) -> None:
    chips, printed = one.place.chips, one.printed
    if "tokens" in printed and "seconds" in printed:
        assert printed["tokens"] * one.seconds * chips == pytest.approx(
            one.batch * one.seq, rel=0.006
        )
    if "tflops" in printed and one.count != "own":
        rate = one.flops / one.seconds / chips / 1e12
        assert printed["tflops"] == pytest.approx(rate, rel=0.023)
        if "tokens" in printed:  # by the count that it names, and not by the other
            others = {
                count: one.published.model_flops(causal=count) / one.seconds / chips / 1e12
                for count in ("halved", "whole")
            }
            near = min(others, key=lambda count: abs(others[count] - printed["tflops"]))
            assert near == one.count
    peak = one.place.flops(one.published.setting.dtype) / chips
    assert printed.get("tflops", 0.0) * 1e12 < peak
    assert one.url.startswith("https://github.com/")


LAYER = "decoder_layer_input"
KEPT = {
    "llama-3.1-70b": {LAYER, "context", "query_proj", "key_proj", "value_proj"},
    "llama-3.1-405b": {LAYER, "mlpwo", "key_proj", "value_proj"},
    "llama-3.1-405b-fp8": {LAYER},
    "deepseek-v3": {LAYER},
    "qwen3-235b": {LAYER},
    "gpt-oss-120b": {LAYER, "mlpwo"},
}
"""What Ironwood recipes keep for the backward pass: "device" or "offload" in run_recipe.sh."""
MADE_OF = {
    "qkv": {"query_proj", "key_proj", "value_proj"},
    "attention": {"context"},
    "output": {"out_proj"},
    "up": {"mlpwi_0", "mlpwi_1"},
}
"""MaxText's names of what each product leaves."""


def test_what_a_recipe_does_not_keep_is_computed_again() -> None:
    own = [one for one in ROWS if one.chip == "v7x"]
    for one in own:
        recipe = max((name for name in KEPT if name in one.key), key=len)
        again = tuple(name for name, results in MADE_OF.items() if not results <= KEPT[recipe])
        if one.model.experts and "mlpwo" not in KEPT[recipe]:
            again += ("down",)  # the router's gradient needs the experts' results
        assert one.published.setting.recompute == again, one.key
    assert len(own) == 16


IRONWOOD = {
    **{"llama-3.1-70b": 6, "llama-3.1-405b": 2, "deepseek-v3": 4, "qwen3-235b": 2},
    **{"gpt-oss-120b": 2, "gemma-4": 5, "wan-2.1": 1},
}
"""Rows of training/ironwood/README.md, by model."""
MEGATRON = {
    "h100": {14451, 1602, 292, 5630, 5275, 1575},
    "b200": {30624, 661, 2139, 8213, 9299, 3269},
    "gb200": {31508, 4312, 813, 3139, 4018, 15876, 23766, 4916},
    "gb300": {37556, 4520, 999, 3848, 4357, 18347, 28934, 6131},
}
"""Tokens a second and GPU on Megatron-Bridge's page, release 25.11."""
LEFT_OUT = {
    "h100": {5630, 1575},  # contradicts itself; experts among tensor parallel pairs
    "b200": {2139},  # predicts a second token
    "gb200": {813, 3139, 4018, 4916},  # 256: no network between domains is published
    "gb300": {999, 3848, 4357, 6131},
}


def test_what_the_cited_pages_have_is_here_or_left_out() -> None:
    """A row that is neither fails; the files say why each is left out."""
    ironwood = [one.key for one in ROWS if one.chip == "v7x"]
    here = {model: sum(model in key for key in ironwood) for model in IRONWOOD}
    assert {model for model in IRONWOOD if here[model] != IRONWOOD[model]} == {"gemma-4", "wan-2.1"}
    for chip, tokens in MEGATRON.items():
        own = {one.printed.get("tokens") for one in ROWS if one.chip == chip}
        assert tokens - own == LEFT_OUT[chip]


def test_nothing_beats_its_bound() -> None:
    assert [one.key for one in ALL if one.published.bound >= one.seconds] == []


def test_the_prediction_beats_the_rule_of_thumb(board: pandas.DataFrame) -> None:
    off, rule = board.error.abs(), board["rule of thumb error"].abs()
    assert off.median() < 0.20
    assert off.median() < rule.median()
    assert off.quantile(0.9) < rule.quantile(0.9)
    dense = board[board.kind == "dense"]
    assert dense.error.abs().median() < 0.16
    assert (dense.error.abs() < 0.30).mean() > 0.75
    # what a mixture loses in routing, small products and imbalance is not in the model
    mixtures = board[board.kind == "mixture of experts"]
    assert list(mixtures.index[mixtures.error >= 0]) == ["b200-256-deepseek-v3-fp8"]


def test_laws_of_kernels_predict_gpus_better_but_for_two_rows(board: pandas.DataFrame) -> None:
    """Dense rows twice as well. At an H200's power limit products are slower than their law."""
    by_law = rh.scoreboard(law=True)
    has = by_law.error != board.error
    assert sorted(by_law.chip[has].unique()) == ["b200", "b300", "gb200", "gb300", "h100", "h200"]
    off, before = by_law.error[has].abs(), board.error[has].abs()
    oss = off[["h100-64-gpt-oss-120b", "gb200-64-gpt-oss-120b", "gb300-64-gpt-oss-120b"]]
    assert oss.max() < 0.2  # as the reason of its row on v7x says
    worse = off.index[off > before + 0.05]
    assert list(worse) == ["h200-256-llama-3.1-70b", "b200-256-deepseek-v3-fp8"]
    slow = off.index[by_law.error[has] > 0.1]
    assert list(slow) == ["b200-256-deepseek-v3-fp8", "mlperf-b200-64-gpt-3-175b-fp8"]
    dense = board.kind[has] == "dense"
    assert off[dense].median() < 0.12 < 0.29 < before[dense].median()
    assert off[~dense].median() < 0.40 < 0.60 < before[~dense].median()


def test_rows_that_came_after_the_model_are_predicted_well(board: pandas.DataFrame) -> None:
    """They were read when the model had landed, and nothing of it was changed after."""
    own = board.source.str.contains("mlcommons|JAX-Toolbox")
    by_law = rh.scoreboard(law=True)[own].error.abs()
    assert len(by_law) == 23
    assert by_law.median() < 0.10 < 0.18 < board[own].error.abs().median()
    assert board[own]["rule of thumb error"].abs().median() > 0.27
    assert (by_law < 0.30).sum() == 22


def test_the_term_for_slices_is_the_median_of_the_published_sweeps() -> None:
    sweeps: dict[object, dict[float, float]] = {}
    for one in (each for each in ROWS if each.place.chip.key in MATRIX_SIDE):
        slices = one.place.chips / math.prod(one.place.shape)
        alone = one.by_law.seconds - one.by_law.scale
        sweeps.setdefault((one.chip, one.model.name, one.shape, one.dtype), {})[slices] = (
            one.seconds / alone
        )
    growths = {}
    for key, sweep in sweeps.items():
        first = sweep[min(sweep)]
        x = numpy.log2(numpy.array(list(sweep)) / min(sweep))
        if x.any():
            y = numpy.array(list(sweep.values())) / first - 1
            growths[key] = (x @ y) / (x @ x)
    assert len(growths) == 15
    assert median(growths.values()) == pytest.approx(SLICES, abs=5e-4)
    # It is no better known than this: without v5p's sweeps, and without v5e's
    for chip, known in (("v5p", 0.023), ("v5e", 0.045)):
        rest = [growth for key, growth in growths.items() if key[0] != chip]
        assert median(rest) == pytest.approx(known, abs=1e-3)


def test_a_row_opens_into_what_it_is_made_of() -> None:
    one = published.published_step("v7x-64-llama-3.1-70b")
    assert isinstance(one, PublishedStep)
    assert sum(one.reached.waterfall().values()) == pytest.approx(one.reached.seconds)
    with pytest.raises(rh.UnknownName, match=r"Nearest: 'v7x-64-llama-3\.1-70b'"):
        published.published_step("v7x-64-llama-3.1-71b")


# --- accepted predictions -------------------------------------------------------------------------


def test_every_prediction_is_the_one_that_was_accepted() -> None:
    changed = predictions.differing(predictions.kept(), predictions.now())
    assert not changed, "\n".join(
        [*changed, "if meant: python -m tools.evidence.predictions --update"]
    )


# --- XLA's own programs ---------------------------------------------------------------------------

COMPILED = [one for one in ROWS if one.recipe is not None]


def test_a_dense_step_and_a_mixture_were_compiled() -> None:
    assert "v6e-8-llama-3.1-8b" in {one.key for one in COMPILED}
    assert published.published_step("v6e-8-mistral-7b").compiled is None


@pytest.mark.parametrize("one", COMPILED, ids=lambda one: one.key)
def test_a_program_does_what_its_recipe_asks_for(one: PublishedStep) -> None:
    if one.program is None or one.compiled is None:
        assert one.refused is not None
        return
    program, members = one.program, one.place.members
    assert program.devices == members
    assert dict(program.mesh)["fsdp"] == one.mesh["fsdp"]
    assert program.memory is not None
    # the report's sum doesn't say which temporaries are in the host's memory
    fits = program.memory.total <= one.place.chip.memory["hbm"].capacity.value
    assert fits or (one.recipe or {}).get("offload")
    # attention's backward pass works its scores out again, which recomputation doesn't count
    assert 1.0 <= program.flops * members / one.reached.flops < 1.3
    assert one.published.bound < one.compiled.seconds
    assert sum(one.compiled.waterfall().values()) == pytest.approx(one.compiled.seconds)
    assert (one.compiled.fed > 0) == (one.chip == "v6e")  # a v7x has the bytes for its products
    assert one.compiled.seconds > (program.time_at_roof or 0)
    assert one.reached.seconds < one.compiled.seconds  # what is done besides
    assert abs(one.compiled.seconds / one.seconds - 1) < published.LARGE
    assert program.notes[-1].startswith("compiling took ")


def test_a_matrix_unit_half_filled_slows_only_kernels_of_attention() -> None:
    [one] = [one for one in COMPILED if one.key == "v6e-8-llama-3.1-8b"]
    assert one.program is not None
    whole, half = (at_reached(one.program, filled=share) for share in (1.0, 0.5))
    assert half.attention == pytest.approx(2 * whole.attention, rel=0.01)
    assert (half.compute, half.memory) == (whole.compute, whole.memory)
    assert half.fed == whole.fed
    with pytest.raises(rh.BadValue, match="filled"):
        at_reached(one.program, filled=0)
