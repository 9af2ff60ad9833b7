"""What fits on one chip and on several, and what it costs to share a model."""

from dataclasses import replace
from itertools import product

import pytest
from serving_suite import CHIPS, llama

import roofline
import roofline_helpers as rh
from roofline import serving
from roofline.serving import best_batch
from roofline.serving.strategies import STRATEGIES
from roofline_helpers.models import LLAMA_3_8B

# --- memory, and what would fit -------------------------------------------------------------------


@pytest.mark.parametrize("phase", serving.setting.PHASES)
def test_the_largest_batch_and_context_fit_and_one_more_does_not(phase):
    wrong = []
    for chip, (attention, cache) in product(CHIPS, (("flash", None), ("naive", "int8"))):
        step = llama(chip, phase=phase, batch=3, context=900, attention=attention, cache=cache)
        most = {"batch": step.largest_batch(), "context": step.largest_context()}
        for argument, largest in most.items():
            fits = largest == 0 or step.but(**{argument: largest}).fits
            if not fits or step.but(**{argument: largest + 1}).fits:
                wrong.append((chip, attention, argument, largest))
    assert wrong == []


def test_narrower_types_come_by_the_bits_that_they_leave_out():
    step = serving.step("Llama 3.1 8B", "v5e", context=8192)
    types = [(each.setting.weights, each.setting.cache) for each in step.narrower()]
    assert types == [
        *(("bf16", "int8"), ("int8", "bf16"), ("bf16", "int4"), ("int4", "bf16")),
        *(("int8", "int8"), ("int8", "int4"), ("int4", "int8"), ("int4", "int4")),
    ]


@pytest.mark.parametrize("phase", serving.setting.PHASES)
def test_the_best_batch_is_the_one_that_trying_all_finds(phase):
    tried = [llama("h100", phase=phase, batch=b, context=6000) for b in range(1, 100)]
    for latency in (0.004, 0.0055, 0.008, 0.05, 10):
        good = [step for step in tried if step.fits and step.seconds <= latency]
        best = best_batch(LLAMA_3_8B, "h100", latency=latency, phase=phase, context=6000)
        assert best == max(good, key=lambda step: step.tokens_per_second, default=None)


def test_what_fits_is_held_against_what_software_can_allocate():
    """Not against the printed figure: an Orin NX has no room for one sequence."""
    batches = {key: llama(key).largest_batch() for key in ("h100", "h200", "b200", "a100-40gb")}
    assert batches == {"h100": 256, "h200": 498, "b200": 652, "a100-40gb": 98}
    orin = llama("orin-nx")
    assert orin.largest_batch() == 0
    assert orin.memory.total > orin.memory.capacity > orin.memory.weights


def test_what_the_runtime_keeps_is_not_there_for_sequences():
    kept = llama("h100", reserve=0.1)
    assert kept.memory.reserve == 0.1 * kept.memory.capacity
    assert kept.largest_batch() == 224 < llama("h100").largest_batch()
    left = 0.9 * kept.memory.capacity - kept.memory.total
    assert kept.memory.room == pytest.approx(left, rel=1e-12)
    assert llama("h100").memory.room - left == pytest.approx(kept.memory.reserve, rel=1e-12)


# --- several chips --------------------------------------------------------------------------------


@pytest.mark.parametrize("ceilings", roofline.network.CEILINGS)
def test_chips_of_a_host_are_its_topology_split_by_tensor(ceilings):
    topology, options = roofline.network.topology("mi300x", 4, ceilings=ceilings), {"batch": 64}
    reached = ceilings == "reached"
    chips = serving.step("llama-3-70b", "mi300x", chips=4, reached=reached, **options)
    on_mesh = serving.step("llama-3-70b", topology, {"tensor": 4}, **options)
    assert (chips.exchanges, chips.memory) == (on_mesh.exchanges, on_mesh.memory)
    assert chips.seconds == on_mesh.seconds


@pytest.mark.parametrize("fusion", STRATEGIES)
@pytest.mark.parametrize("phase", serving.setting.PHASES)
def test_all_chips_together_do_the_work_of_one_and_each_its_norms(fusion, phase):
    setting = {"phase": phase, "fusion": fusion, "batch": 2, "context": 512}
    one_chip, four_chips = (
        serving.step("llama-3-8b", "h100", chips=chips, **setting) for chips in (1, 4)
    )

    def flops(step, unit):
        return sum(k.launches * getattr(k.work, f"{unit}_flops") for k in step.kernels)

    assert 4 * flops(four_chips, "matrix") == flops(one_chip, "matrix")
    rows = one_chip.setting.tokens * one_chip.setting.model.d_model
    row_costs = rh.total(
        rh.work.rmsnorm(one_chip.setting.tokens, one_chip.setting.model.d_model)
    ).flops
    whole = 65 * row_costs + 64 * rows  # all norms and residuals: they stay whole
    assert 4 * (flops(four_chips, "vector") - whole) == flops(one_chip, "vector") - whole
    for kernel in four_chips.kernels:  # nothing waits for the sum inside a kernel
        assert not {"output projection", "down projection"} & set(kernel.ops[:-1])


def test_the_fewest_chips_that_have_room():
    large = serving.step("llama-3-70b", "h100", batch=8, reserve=0.1)
    assert [large.but(batch=n).fewest_chips() for n in (8, 64, 2048)] == [2, 4, 0]
    assert serving.step("llama-3-70b", "l4").fewest_chips() == 0
    on_slice = serving.step("llama-3-70b", "v5p-16", batch=8)
    assert (on_slice.fits, on_slice.fewest_chips()) == (True, 2)
    assert on_slice.but(hardware="h100") == serving.step("llama-3-70b", "h100", batch=8)
    assert serving.tensor_parallel.chip_counts("llama-3-8b", "l4") == [1]
    assert serving.tensor_parallel.chip_counts("llama-3-8b", "gb200") == [1, 2, 4, 8]
    mixtral = rh.models.model("mixtral-8x7b")
    odd = replace(mixtral, experts=replace(mixtral.experts, d_ff=7), d_ff=2048)
    assert serving.tensor_parallel.chip_counts(odd, "h100") == [1]


@pytest.mark.parametrize(
    ("asked", "error", "names"),
    [
        (lambda: llama(reserve=1), rh.BadValue, "reserve.*1"),
        (lambda: llama(chips=0), rh.BadValue, "chips.*0"),
        (lambda: llama(chips=3), rh.BadValue, "8 KV heads: 3"),
        (lambda: llama("t4", chips=2), rh.UnknownName, "T4.*h100"),
        (lambda: rh.verdict(llama(chips=2)), rh.BadValue, "chips=1"),
    ],
)
def test_chips_that_cannot_share_are_refused(asked, error, names):
    with pytest.raises(error, match=names):
        asked()
