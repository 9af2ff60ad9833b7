"""Published training steps: each row's own arithmetic, its bound, and the errors of all."""

from statistics import median

import numpy
import pytest
from row_by_row import row_by_row

import roofline
from roofline import validation
from roofline.training.step import SLICES
from roofline.validation import PublishedStep
from tools import accepted, predictions

ALL = validation.steps()
ROWS = [step for step in ALL if isinstance(step, PublishedStep)]


@pytest.fixture(scope="module")
def board():
    return roofline.scoreboard()


def test_decode_steps_are_predicted_too(board):
    decode = board[board.step == "decode"]
    assert (decode.error.abs() < 0.20).all()
    assert decode.error.abs().mean() < decode["rule of thumb error"].abs().mean()


def test_each_row_s_own_figures_agree():
    row_by_row(ROWS, own_figures_agree)


def own_figures_agree(step):
    chips = step.topology.chips
    assert step.topology.ceilings == "published"
    printed = step.printed
    if "tokens" in printed and "seconds" in printed:
        tokens = printed["tokens"] * step.seconds * chips
        assert tokens == pytest.approx(step.batch * step.seq, rel=0.006)
    if "tflops" in printed and step.count != "own":
        rate = step.flops / step.seconds / chips / 1e12
        assert printed["tflops"] == pytest.approx(rate, rel=0.023)
        if "tokens" in printed:  # by the count that it names, and not by the other
            others = {
                count: step.published.model_flops(causal=count) / step.seconds / chips / 1e12
                for count in ("halved", "whole")
            }
            near = min(others, key=lambda count: abs(others[count] - printed["tflops"]))
            assert near == step.count
    peak = step.topology.flops(step.published.setting.dtype) / chips
    assert printed.get("tflops", 0.0) * 1e12 < peak
    assert step.url.startswith("https://github.com/")


LAYER = "decoder_layer_input"
SAVED_FOR_BACKWARD = {
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


def test_what_a_recipe_does_not_keep_is_computed_again():
    ironwood = [step for step in ROWS if step.chip == "v7x"]
    for step in ironwood:
        recipe = max((name for name in SAVED_FOR_BACKWARD if name in step.key), key=len)
        recomputed = tuple(
            name for name, results in MADE_OF.items() if not results <= SAVED_FOR_BACKWARD[recipe]
        )
        if step.model.experts and "mlpwo" not in SAVED_FOR_BACKWARD[recipe]:
            recomputed += ("down",)  # the router's gradient needs the experts' results
        assert step.published.setting.recompute == recomputed, step.key
    assert len(ironwood) >= 16


def test_nothing_beats_its_bound():
    assert [step.key for step in ALL if step.published.least_seconds >= step.seconds] == []


def test_the_prediction_beats_the_rule_of_thumb(board):
    off = board.error.abs()
    rule = board["rule of thumb error"].abs()
    assert off.median() < 0.20
    assert off.median() < rule.median()
    assert off.quantile(0.9) < rule.quantile(0.9)
    dense = board[board.kind == "dense"]
    assert dense.error.abs().median() < 0.16
    assert (dense.error.abs() < 0.30).mean() > 0.75
    # what a mixture loses in routing, small products and imbalance is not in the model
    mixtures = board[board.kind == "mixture of experts"]
    assert mixtures.error.max() < 0.1


def test_the_term_for_slices_is_the_median_of_the_published_sweeps():
    sweeps = {}
    for step in (row for row in ROWS if row.topology.chip.kind == "tpu"):
        slices = step.topology.slices
        alone = step.by_law.seconds - step.by_law.scale
        sweeps.setdefault((step.chip, step.model.name, step.shape, step.dtype), {})[slices] = (
            step.seconds / alone
        )
    growths = {}
    for key, sweep in sweeps.items():
        first = sweep[min(sweep)]
        x = numpy.log2(numpy.array(list(sweep)) / min(sweep))
        if x.any():
            y = numpy.array(list(sweep.values())) / first - 1
            growths[key] = (x @ y) / (x @ x)
    assert len(growths) >= 15
    assert median(growths.values()) == pytest.approx(SLICES, abs=5e-4)
    # It is no better known than this: without v5p's sweeps, and without v5e's
    for chip, known in (("v5p", 0.023), ("v5e", 0.045)):
        rest = [growth for key, growth in growths.items() if key[0] != chip]
        assert median(rest) == pytest.approx(known, abs=1e-3)


# --- accepted predictions -------------------------------------------------------------------------


def test_every_prediction_is_the_one_that_was_accepted():
    changed = predictions.differing(predictions.kept(), predictions.now())
    hint = "if meant: python -m tools.predictions --update"
    assert not changed, "\n".join([*changed, hint])


@pytest.mark.parametrize("name", accepted.WITH_BOARD)
def test_tables_of_predictions_are_those_that_were_accepted(name):
    assert accepted.changed(name) == []


# --- XLA's own programs ---------------------------------------------------------------------------

COMPILED = [step for step in ROWS if step.recipe is not None]


@pytest.mark.parametrize("step", COMPILED, ids=lambda step: step.key)
def test_a_program_does_what_its_recipe_asks_for(step):
    if step.program is None or step.compiled is None:
        assert step.refused is not None, f"no record: python -m measurements.recipes {step.key}"
        return
    program = step.program
    members = step.topology.members
    assert program.devices == members
    assert dict(program.mesh)["fsdp"] == step.mesh["fsdp"]
    # the report's sum doesn't say which temporaries are in the host's memory
    fits = program.memory.total <= step.topology.chip.memory["hbm"].capacity.value
    assert fits or (step.recipe or {}).get("offload")
    # attention's backward pass works its scores out again, which recomputation doesn't count
    assert 1.0 <= program.flops * members / step.reached.flops < 1.3
    seconds = sum(step.compiled.values())
    assert step.published.least_seconds < seconds
    # a v7x has the bytes for its products
    assert (step.compiled["matmuls that wait for memory"] > 0) == (step.chip == "v6e")
    assert seconds > (program.time_at_roof or 0)
    assert step.reached.seconds < seconds  # what is done besides
    assert abs(seconds / step.seconds - 1) < validation.LARGE
    assert program.notes[-1].startswith("compiling took ")


def test_where_a_published_step_doesn_t_fit_it_is_said_what_its_recipe_does():
    for step in ROWS:
        memory = step.published.memory
        assert memory.fits != bool(memory.unless), step.key
    split = validation.published_step("mlperf-h100-512-gpt-3-175b-fp8").published
    memory = split.memory
    assert memory.unless in split._facts()["memory"]
    spread = (memory.gradients + memory.moments) / split.setting.size("data")
    assert memory.weights + memory.activations + spread <= memory.capacity < memory.total
