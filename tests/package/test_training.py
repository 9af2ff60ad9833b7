"""Training steps: counts by hand, exchanges by hand, bounds, and published steps."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roofline_helpers as rh
from roofline import network as net
from roofline import serving, training
from roofline.training.step import GROUPED, matrix_rate
from roofline_helpers import models
from roofline_helpers.measured.tables import table

LLAMA = models.model("llama-3-70b")
approx = pytest.approx


def llama(chip="v5p", shape="4x4x4", mesh=None, **options):
    topology = net.topology(chip, shape, ceilings=options.pop("ceilings", "published"))
    setting = {"batch": 256, "seq": 8192, **options}
    return training.step("llama-3-70b", topology, mesh or {"fsdp": topology.members}, **setting)


def exchanged(step):
    """Count and bytes of each exchange."""
    return {(e.role, e.purpose): (e.count, e.collective.nbytes) for e in step.exchanges}


# --- FLOPs ----------------------------------------------------------------------------------------


def test_flops_are_six_a_weight_and_token_with_attention_by_the_mask():
    step = llama(recompute="none")
    tokens = 256 * 8192
    weights = LLAMA.matrices + 128256 * 8192
    pairs = 256 * 8192 * 8193 // 2
    assert step.model_flops() == 6 * tokens * weights + 3 * 80 * 4 * 64 * 128 * pairs
    assert step.model_flops(causal="whole") > step.model_flops()
    assert (step.flops, step.recomputed_flops) == (step.model_flops(), 0)


def test_recomputation_is_a_forward_pass_but_for_the_last_product():
    full, some, none = (llama(recompute=name) for name in ("full", ["up"], "none"))
    tokens = 256 * 8192
    forward = 2 * tokens * LLAMA.matrices + 256 * LLAMA.attention_flops(8192)
    assert full.recomputed_flops == forward - 2 * tokens * 80 * 8192 * 28672
    assert some.recomputed_flops == 2 * tokens * 80 * 2 * 8192 * 28672
    assert full.compute > some.compute > none.compute
    assert full.memory.activations < some.memory.activations < none.memory.activations


# --- exchanges ------------------------------------------------------------------------------------

LAYER = LLAMA.attention_parameters + LLAMA.dense_parameters
VOCABULARY = 128256 * 8192


def test_sharded_weights_are_gathered_twice_and_gradients_scattered_once():
    step = llama()
    assert exchanged(step) == {
        ("fsdp", "weights of a layer"): (160, 2 * LAYER),
        ("fsdp", "weights of a matrix of the vocabulary"): (4, 2 * VOCABULARY),
        ("fsdp", "gradients of a layer"): (80, 2 * LAYER),
        ("fsdp", "gradients of a matrix of the vocabulary"): (2, 2 * VOCABULARY),
    }
    assert all(exchange.hidden for exchange in step.exchanges)
    assert llama(microbatches=4).hidden == approx(4 * step.hidden)


def test_whole_weights_are_added_up_once():
    step = llama(mesh={"data": 64}, microbatches=4)
    assert exchanged(step) == {
        ("data", "gradients of a layer"): (80, 2 * LAYER),
        ("data", "gradients of a matrix of the vocabulary"): (2, 2 * VOCABULARY),
    }
    both = llama(mesh={"data": 4, "fsdp": 16})
    assert exchanged(both)["data", "gradients of a layer"] == (80, 2 * LAYER / 16)


def test_split_widths_gather_and_scatter_around_each_block():
    step = llama(mesh={"fsdp": 16, "tensor": 4}, recompute="none")
    activations = 2 * 8192 * 256 * 8192 / 16
    counts = exchanged(step)
    assert counts["tensor", "activations gathered"] == (320, activations)
    assert counts["tensor", "sums scattered"] == (320, activations)
    assert counts["fsdp", "weights of a layer"] == (160, 2 * LAYER / 4)
    recomputed = exchanged(llama(mesh={"fsdp": 16, "tensor": 4}))
    assert recomputed["tensor", "activations gathered"] == (480, activations)
    assert step.exposed > 0
    assert [e.hidden for e in step.exchanges if e.role == "tensor"] == [False, False]


def test_experts_exchange_tokens_and_context_exchanges_keys():
    cube = net.topology("v5p", "4x4x4")
    mixture = models.model("mixtral-8x7b")
    setting = {"batch": 64, "seq": 4096, "recompute": "none"}
    step = training.step(mixture, cube, {"fsdp": 8, "expert": 8}, **setting)
    tokens = 64 * 4096 / 64
    counts = exchanged(step)
    routed = counts["expert", "tokens to experts and back"]
    assert routed == (4 * 32, 2 * tokens * 2 * 4096 * 8)
    attention = mixture.attention_parameters
    experts = mixture.expert_parameters() / 8
    assert counts["fsdp", "weights of a layer's experts"] == (64, 2 * experts)
    assert counts["fsdp", "weights of a layer's attention"] == (64, 2 * attention)
    # which all devices of the expert axis have alike, so that they add up its gradients
    assert counts["data", "gradients of a layer's attention"] == (32, 2 * attention / 8)
    assert ("data", "gradients of a layer's experts") not in counts
    others = mixture.parameters - 32 * mixture.expert_parameters()
    assert step.memory.weights == approx(4 * (others + 32 * experts) / 8)
    alone = training.step(mixture, cube, {"fsdp": 64}, **setting)
    assert ("fsdp", "weights of a layer of experts") in exchanged(alone)
    long = llama(mesh={"fsdp": 16, "context": 4}, batch=16, seq=131072)
    assert exchanged(long)["context", "keys and values"] == (160, 2 * 2048 * 131072)


def test_stages_pass_activations_on_and_wait():
    step = llama(mesh={"pipeline": 4, "fsdp": 16}, microbatches=8)
    assert step.bubble == 3 / 8
    head = 6 * 256 * 8192 * 8192 * 128256  # on the last of four stages, of 20 layers each
    pairs = 2 * 80 * 4 * 8192 * 256 * 8192 * 8193 / 2  # attention: half the matrix unit, seven
    alone = step.flops + pairs / 4
    assert step.fullest == approx(4 * (alone / 4 + head * 3 / 4) / alone, rel=1e-3)
    assert step.compute == approx(llama().compute * 11 / 8 * step.fullest)
    # a layer's input of 16 bits; four of eight microbatches are on their way at the first stage
    assert step.memory.activations == 2 * 20 * 8192 * (256 * 8192 / 16) * 4 / 8
    # no bubble: some schedules fill it
    assert step.least_seconds == approx(llama().least_seconds)
    counts = exchanged(step)
    passed = counts["pipeline", "activations to the next stage"]
    assert passed == (16, 2 * 256 * 8192 / 16 / 8 * 8192)
    assert counts["fsdp", "weights of a layer"] == (2 * 20 * 8, 2 * LAYER)


def test_weights_may_stay_whole_over_positions():
    mesh = {"data": 4, "context": 2, "tensor": 8}
    whole = llama(mesh=mesh, sharded=["fsdp"])
    assert {exchange.role for exchange in whole.exchanges} == {"data", "tensor", "context"}
    assert exchanged(whole)["data", "gradients of a layer"] == (80, 2 * LAYER / 8)
    added = next(e for e in whole.exchanges if e.role == "data")
    assert added.collective.devices == 8
    assert whole.memory.weights == 2 * llama(mesh=mesh).memory.weights


def test_attention_s_products_by_hand():
    # two products forward, five backward, two more where the forward pass is done again; heads of
    # 128 fill half of a matrix unit of 256
    pairs = 256 * LLAMA.attention_flops(8192) / 2
    for chip, shape, filled in (("v5p", "4x4x4", 1.0), ("v6e", "8x8", 0.5), ("h100", 64, 1.0)):
        for recompute, products in ((["attention"], 9), ([], 7)):
            step = llama(chip, shape, recompute=recompute)
            others = step.flops - pairs * (8 if recompute else 6)
            peak = step.setting.topology.flops()
            expected = others / peak + products * pairs / filled / peak
            assert step.compute == approx(expected)


def test_passes_over_activations_by_hand():
    tokens = 256 * 8192 / 64
    layer = 2 * 4 * 8192 + 2 * (64 + 8) * 128 + 3 * 28672  # residuals and norms, rotation, gate
    step = llama(recompute="none")
    nbytes = 2 * tokens * (3 * 80 * layer + 3 * 128256)
    assert step.elementwise == approx(nbytes / 2765e9)
    cube, setting = net.topology("v5p", "4x4x4"), {"batch": 64, "seq": 4096, "recompute": "none"}
    mixture = training.step("mixtral-8x7b", cube, {"fsdp": 64}, **setting)
    layer = 8 * 4096 + 2 * (32 + 8) * 128 + 3 * 2 * 14336 + 2 * (1 + 2) * 4096
    nbytes = 2 * 4096 * (3 * 32 * layer + 3 * 32000)
    assert mixture.elementwise == approx(nbytes / 2765e9)


# --- memory ---------------------------------------------------------------------------------------


def test_memory_by_hand():
    step = llama(weights="bf16", recompute="full")
    held = LLAMA.parameters / 64
    memory = (step.memory.weights, step.memory.gradients, step.memory.moments)
    assert memory == (2 * held, 4 * held, 8 * held)
    assert step.memory.activations == 2 * 80 * 8192 * 256 * 8192 / 64
    assert step.fits == (step.memory.total <= rh.chip("v5p").memory["hbm"].capacity.value)
    assert llama(mesh={"data": 64}).memory.weights == 4 * LLAMA.parameters
    assert llama(mesh={"fsdp": 16, "tensor": 4}).memory.weights == approx(4 * held)


# --- time -----------------------------------------------------------------------------------------

MESHES = [
    {"fsdp": 64},
    {"data": 64},
    {"data": 4, "fsdp": 16},
    {"fsdp": 16, "tensor": 4},
    {"pipeline": 4, "fsdp": 16},
    {"fsdp": 8, "context": 2, "tensor": 4},
]


@settings(max_examples=40)
@given(
    mesh=st.sampled_from(MESHES),
    chip=st.sampled_from(["v4", "v5p", "v7x"]),
    batch=st.sampled_from([256, 512, 1024]),
    recompute=st.sampled_from(list(training.setting.RECOMPUTE)),
    ceilings=st.sampled_from(list(net.CEILINGS)),
)
def test_the_bound_is_least_and_the_sum_most(mesh, chip, batch, recompute, ceilings):
    step = llama(
        chip, mesh=mesh, batch=batch, recompute=recompute, ceilings=ceilings, microbatches=4
    )
    assert step.least_seconds <= step.seconds * (1 + 1e-9)
    assert step.seconds <= step.serial * (1 + 1e-9)
    assert sum(step.waterfall().values()) == approx(step.seconds)
    assert 0 < step.mfu <= 1
    published = llama(chip, mesh=mesh, batch=batch, recompute=recompute, microbatches=4)
    assert published.least_seconds <= step.least_seconds * (1 + 1e-9)
    assert published.seconds <= step.seconds * (1 + 1e-9)


def slower(topology, part, by):
    """The topology with a slower part."""

    def less(figures):
        return {name: replace(figure, value=figure.value / by) for name, figure in figures.items()}

    chip, axes = topology.chip, topology.axes
    if part == "peak":
        reached = replace(chip.reached, matrix=less(chip.reached.matrix))
        chip = replace(chip, matrix=less(chip.matrix), reached=reached)
    elif part == "memory":
        reached = replace(chip.reached, streams=less(chip.reached.streams))
        hbm = replace(chip.memory["hbm"], **less({"bandwidth": chip.memory["hbm"].bandwidth}))
        chip = replace(chip, memory={**chip.memory, "hbm": hbm}, reached=reached)
    elif part == "rings":
        axes = tuple(replace(axis, kind="line") for axis in axes)
    else:
        axes = tuple(
            replace(axis, protocols=tuple(replace(p, rate=p.rate / by) for p in axis.protocols))
            for axis in axes
        )
    return replace(topology, chip=chip, axes=axes)


@given(
    mesh=st.sampled_from([*MESHES, {"fsdp": 32, "tensor": 2}, {"data": 2, "fsdp": 4, "tensor": 8}]),
    chip=st.sampled_from(["v4", "v5p", "v7x"]),
    part=st.sampled_from(["peak", "memory", "rings", "links"]),
    by=st.floats(1, 8),
    ceilings=st.sampled_from(list(net.CEILINGS)),
    recompute=st.sampled_from(list(training.setting.RECOMPUTE)),
)
def test_fewer_links_or_a_slower_chip_make_no_step_faster(
    mesh, chip, part, by, ceilings, recompute
):
    topology = net.topology(chip, "4x4x4", ceilings=ceilings)
    setting = {"batch": 256, "seq": 8192, "recompute": recompute}
    hardware = topology, slower(topology, part, by)
    step, later = (training.step(LLAMA, on, mesh, **setting) for on in hardware)
    for name in ("seconds", "least_seconds", "serial"):
        assert getattr(later, name) >= getattr(step, name) * (1 - 1e-9)
    axes = {"data": 8, "tensor": 8}
    served, slow = (serving.step(LLAMA, on, axes, batch=64, context=8192) for on in hardware)
    for name in ("seconds", "least_seconds"):
        assert getattr(slow, name) >= getattr(served, name) * (1 - 1e-9)
    longer = training.step(LLAMA, topology, mesh, **{**setting, "batch": 512})
    assert longer.seconds > step.seconds
    assert longer.least_seconds >= step.least_seconds


def test_a_bound_counts_a_token_once_for_each_host():
    # Megatron-Bridge: 256 B200, 3,328 tokens/s of a GPU; this bound was 26.2 s
    topology, mesh = net.topology("b200", 256), {"pipeline": 8, "expert": 32}
    setting = {"batch": 4096, "seq": 4096, "microbatches": 128}
    narrow = training.step("deepseek-v3", topology, mesh, dtype="fp8", **setting)
    published = 4096 * 4096 / 256 / 3328
    assert narrow.least_seconds < published
    wide = training.step("deepseek-v3", topology, mesh, **setting)
    assert [axis.network for axis in wide.setting.mesh["expert"]] == ["nvlink", "nic"]
    between, inside = (e for e in wide.exchanges if e.role == "expert")
    # 4 of 8 groups, two on a host: in 40 of 70 draws one of a host's is among them, in 15 both
    hosts = 4 * (40 / 70 * (1 - 0.75**8) + 15 / 70 * (1 - 0.5**8))
    copies = hosts * 0.75  # 2.18 other hosts, not 6 copies
    passes = 5 * 58 / 8
    assert wide.least_seconds == approx(
        passes * 4096 * 4096 / 32 * 7168 * 2 * copies / 50e9, rel=0.02
    )
    assert wide.least_seconds < published
    assert between.count * between.collective.transfer == approx(wide.least_seconds, rel=0.02)
    assert inside.collective.transfer < 0.11 * between.collective.transfer


# --- one layer ------------------------------------------------------------------------------------


def cut(chip, tensor, tokens, **options):
    topology = net.topology(chip)
    mesh = topology.mesh({"fsdp": topology.chips // tensor, "tensor": tensor})
    return training.layer(
        topology, mesh, tokens=tokens, **{"d_model": 8192, "d_ff": 28672, **options}
    )


def test_a_layer_by_hand():
    layer = cut("v5e", 16, 512)  # an axis of 16 each: two links of 50 GB/s, 15/16 of the bytes
    assert layer.flops == 4 * 512 * 8192 * 28672
    assert layer.products == approx(layer.flops / 197e12)
    assert layer.gathers == approx(2 * 2 * 8192 * 28672 / 16 * 15 / 16 / 100e9)
    assert layer.sums == approx(2 * 2 * 512 * 16 * 8192 * 15 / 16 / 100e9)
    assert (layer.bound, layer.seconds) == ("sums", layer.sums)
    assert layer.attainable == approx(layer.flops / layer.sums)


@pytest.mark.parametrize("chip", ["v5e", "v6e", "h200"])
def test_a_layer_is_bound_as_the_thresholds_say(chip):
    topology = net.topology(chip)
    least = training.least_tokens(topology, topology.fast)
    assert cut(chip, 1, 0.999 * least).bound == "weights"
    assert cut(chip, 1, 1.001 * least).bound == "compute"
    chips = topology.chips
    width = 28672 * chips / training.most_tensor(topology, topology.fast, 28672)
    assert cut(chip, chips, 64, d_ff=0.999 * width).bound == "sums"
    for tokens in (64, 4096):  # whatever the batch
        assert cut(chip, chips, tokens, d_ff=1.001 * width).bound == "compute"


def test_experts_must_be_wide():
    cube = net.topology("v5p", "4x4x4")
    # V / 8 over a link of the ring, there and back, for 6 F FLOPs an element
    ring = net.topology("v5p", "16x16x16")
    four = training.least_width(cube, cube["x"])
    assert four == approx(459e12 / 100e9 / 3)
    assert training.least_width(ring, ring["x"]) == approx(4 * four)
    # 4 x 4 and 4 x 4 x 4 need what a ring of 4 needs: the longest axis counts
    assert training.least_width(cube, cube["x", "y", "z"]) == approx(four)
    assert training.least_width(ring, ring["x", "y"]) == approx(4 * four)
    host = net.topology("h200", 8)
    wide = training.least_width(host, host.fast)
    assert wide == approx(989.4e12 / 450e9 * 7 / 8 * 2 / 3, rel=2e-3)


def test_a_token_is_sent_once_to_each_chip_that_has_some_of_its_experts():
    # of 8 draws among 4 chips, all that are met at least once, by counting all 4⁸ ways
    met = sum(len(set(experts)) for experts in product(range(4), repeat=8)) / 4**8
    cube = net.topology("v5p", "4x4x4")
    all_experts = training.least_width(cube, cube["x"])
    assert training.least_width(cube, cube["x"], active=8) == approx(all_experts * met / 8)
    assert training.least_width(cube, cube["x"], active=1) == approx(all_experts)
    with pytest.raises(rh.BadValue, match="active"):
        training.least_width(cube, cube["x"], active=0)


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (lambda: llama(mesh={"shards": 64}), rh.UnknownName, "data, pipeline, fsdp"),
        (lambda: llama(sharded=["tensor"]), rh.UnknownName, "fsdp, context"),
        (lambda: llama(sharded="fsdp"), rh.BadType, "'fsdp'"),
        (lambda: llama(shape="8x8x8", mesh={"tensor": 512}), rh.BadValue, "64 heads"),
        (lambda: llama(recompute="some"), rh.UnknownName, "none, attention, full"),
        (lambda: llama(batch=8), rh.BadValue, "batch=64, or 8 groups with context=8"),
        (lambda: llama(batch=64, microbatches=2), rh.BadValue, "batch=128, or microbatches=1"),
        (lambda: llama(batch=96), rh.BadValue, "batch=128, or 32 groups with context=2"),
        (lambda: llama(mesh={"fsdp": 6.4}), rh.BadValue, "fsdp.*6.4"),
        (lambda: mixtral(capacity=1.25, tile=512), rh.BadValue, "capacity or tile"),
        (
            lambda: training.step("llama-3-70b", "v5p", {}, batch=1, seq=1),
            rh.BadType,
            "topology.*v5p",
        ),
    ],
)
def test_what_no_step_is_refused(asked, error, words):
    with pytest.raises(error, match=words):
        asked()


# --- mixtures of experts --------------------------------------------------------------------------


def deepseek(chip="b200", **options):
    """On 32 GPUs, with their experts over all of them, unless a mesh says otherwise."""
    setting = {"mesh": {"expert": 32}, "batch": 512, "seq": 4096, "microbatches": 16, **options}
    gpus = math.prod(setting["mesh"].values())
    hosts = net.topology(chip, gpus, ceilings="reached")
    return training.step("deepseek-v3", hosts, recompute="none", **setting)


def test_experts_exchange_behind_another_microbatch_if_tokens_leave_the_host():
    step, waits = deepseek(), deepseek(overlap=False)
    assert step.exposed == 0 < waits.exposed
    sent = waits.exposed - max(0.0, waits.exposed - step.compute - step.elementwise)
    assert waits.seconds - step.seconds == approx(sent)
    assert step.overlapped == (step.seconds, waits.seconds)
    assert "evenly" in repr(step)
    inside = {"data": 4, "expert": 8}
    assert deepseek(mesh=inside).exposed > 0 == deepseek(mesh=inside, overlap=True).exposed
    assert deepseek(mesh=inside, batch=32, microbatches=1).overlapped[0] > 0
    assert deepseek("gb200").exposed > 0  # one NVLink domain
    with pytest.raises(rh.BadValue, match="another microbatch"):
        deepseek(batch=32, microbatches=1, overlap=True)


def grouped_on_one_gpu():
    """Measured grouped matmuls in bf16, with the rows of an expert and the FLOP/s."""
    kept = table("grouped_matmul").query("dtype == 'bf16' and local_experts == experts")
    rows = kept.tokens * kept.top_k
    return kept.assign(
        rows=rows / kept.experts, rate=6 * rows * kept.hidden * kept.inter / kept.seconds
    )


def test_the_busiest_experts_compute_and_receive_more():
    even, twice = (deepseek(law=True, overlap=False, imbalance=load) for load in (1, 2))
    here = grouped_on_one_gpu().query("chip == 'b200'")
    sizes = here.rows.clip(upper=1024) / 1024, here.hidden / 7168, here.inter / 2048
    apart = sum(np.log(size).abs() for size in sizes).sort_values(kind="stable")
    routed = training.mixture.all_routed(even.setting) / 32
    rate = here.rate[apart.index[:9]].median()
    assert twice.compute - even.compute == approx(routed / rate, rel=1e-3)
    assert twice.exposed == approx(2 * even.exposed, rel=0.02)  # starts aren't longer
    with pytest.raises(rh.BadValue, match="over the mean"):
        deepseek(imbalance=0.5)
    deepseek(imbalance=32)  # all tokens to the same 8 of 256
    with pytest.raises(rh.BadValue, match="from 1 to 32"):
        deepseek(imbalance=33)
    with pytest.raises(rh.BadValue, match="in int8 were measured on a100-80gb"):
        _ = deepseek("a100-80gb", mesh={"expert": 8}, dtype="int8", law=True).compute


@pytest.mark.parametrize("chip", ["b200", "gb200", "gb300"])
@pytest.mark.parametrize(("model", "mesh"), [("llama-3-8b", "data"), ("qwen3-30b", "expert")])
def test_mxfp8_writes_what_it_multiplies_twice(chip, model, mesh):
    host = net.topology(chip, 8, ceilings="reached")
    setting = {"batch": 64, "seq": 4096, "recompute": "none", "law": True}
    fp8, mx = (training.step(model, host, {mesh: 8}, dtype=t, **setting) for t in ("fp8", "mxfp8"))
    assert mx.compute >= fp8.compute  # of two ways to scale experts' fp8 the faster
    if model == "llama-3-8b":
        inputs, gradients = 3 * 4096 + 14336, 6144 + 2 * 4096 + 2 * 14336
        written = 32 * (inputs + gradients) * 8.25 / 8
        rate = host.chip.roofline("bf16", reached=True).bandwidth
        assert mx.elementwise - fp8.elementwise == approx(written * 8 * 4096 / rate)
    assert mx.seconds > fp8.seconds


def test_sums_over_replicas_wait_for_the_last_microbatch():
    setting = {"mesh": {"data": 64}, "seq": 512, "recompute": "none"}
    stages = {**setting, "mesh": {"pipeline": 2, "data": 32}}
    once, often = (llama("h100", 64, microbatches=n, **setting) for n in (1, 4))
    summed = sum(e.seconds for e in often.exchanges)
    busy = often.compute + often.elementwise
    assert often.waterfall()["exchanges beyond compute"] == approx(summed - busy / 4)
    grouped = llama("h100", 64, microbatches=4, interleave=2, **stages)  # two of four at last
    summed = sum(e.seconds for e in grouped.exchanges if e.role == "data")
    busy = grouped.compute + grouped.elementwise
    assert grouped.waterfall()["exchanges beyond compute"] == approx(summed / 2 - busy / 6)
    half = once.waterfall()["exchanges beyond compute"]  # weights, behind the forward third
    assert half == approx(summed / 2 - (once.compute + once.elementwise) / 3)


def mixtral(**options):
    setting = {"batch": 3072, "seq": 4096, "recompute": ["attention", "up", "down"], **options}
    pod = net.topology("v6e", ceilings=setting.pop("ceilings", "published"))
    return training.step("mixtral-8x7b", pod, {"fsdp": 256}, **setting)


def test_seats_that_stay_empty_and_masks_are_computed():
    tokens, layers, model, inner = 3072 * 4096, 32, 4096, 14336
    products = 2 * tokens * layers * 2 * 3 * model * inner  # two experts of three matrices
    mask = 2 * tokens * (1.25 * 2 * 4096) * model * layers
    step = mixtral(capacity=1.25)
    assert step.routing_flops == 0.25 * 4 * products + 6 * mask
    assert step.flops == step.model_flops() + step.recomputed_flops + step.routing_flops
    assert step.model_flops() == mixtral().model_flops()
    assert step.compute > mixtral().compute


def test_a_tile_between_two_experts_is_computed_for_both():
    tokens = 3072 * 4096
    products = 2 * tokens * 32 * 2 * 3 * 4096 * 14336
    rows = 12 * 4096 * 2 / 8  # of one expert on a device
    step = mixtral(tile=512)
    assert step.routing_flops == approx(512 / rows * 4 * products)
    assert mixtral(tile=512, microbatches=2).routing_flops == approx(2 * step.routing_flops)


def test_grouped_matmuls_reach_half_of_a_dense_one_s_rate_on_gpus():
    many = grouped_on_one_gpu().query("rows >= 512").groupby("chip").rate.median()
    dense = {chip: rh.measured.law("matmul", chip, "bf16").compute for chip in many.index}
    shares = [many[c] / n / rh.chip(c).peak("bf16", "matrix").value for c, n in dense.items()]
    assert np.quantile(shares, [0, 0.5, 1]) == approx([0.40, GROUPED, 0.73], abs=0.005)
    small, large = (mixtral(tile=tile, ceilings="reached") for tile in (512, 1024))
    rate = 256 * matrix_rate(small.setting.topology, "bf16")
    padding = large.routing_flops - small.routing_flops
    assert large.compute - small.compute == approx(padding / GROUPED / rate)


# --- by the laws of measured kernels --------------------------------------------------------------


def on_gpus(mesh, **options):
    host = net.topology("h100", 8, ceilings="reached")
    setting = {"batch": 128, "seq": 8192, "recompute": "none", **options}
    return training.step("llama-3-8b", host, mesh, **setting)


def test_products_take_what_their_laws_say():
    step = on_gpus({"fsdp": 8}, law=True)
    rows = 128 * 8192 // 8
    law = rh.measured.law("matmul", "h100", "bf16")
    sides = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    forward = sum(law.seconds(rh.work.matmul(rows, n, k)) for n, k in sides) * 32
    forward += law.seconds(rh.work.matmul(rows, 128256, 4096))
    job = rh.work.flash_attention(16, 8192, 8192, 32, 128, 8, causal=True)
    attention = rh.measured.law("prefill_attention", "h100", "bf16").seconds(job) * 32
    assert step.compute == approx(3 * forward + 3.5 * attention, rel=1e-3)
    recomputed = on_gpus({"fsdp": 8}, law=True, recompute="attention")
    assert recomputed.compute - step.compute == approx(attention, rel=1e-6)


# --- limits, from both sides ----------------------------------------------------------------------

SMALL = models.Decoder("small", 6, 384, 12, 4, 64, 1000, 5003)
EXPERTS = models.layers.Experts(count=10, active=4, d_ff=640)
ROUTED = replace(SMALL, name="routed", experts=EXPERTS)


@pytest.mark.parametrize(
    ("model", "role", "largest", "parts"),
    [
        (SMALL, "pipeline", 6, "6 layers"),
        (SMALL, "tensor", 12, "12 heads"),
        (SMALL, "context", 9, "9 positions"),
        (SMALL, "expert", 1, "1 experts"),
        (ROUTED, "expert", 10, "10 experts"),
    ],
)
def test_a_role_has_as_many_devices_as_there_are_parts(model, role, largest, parts):
    if role == "expert" and largest > 1:  # each device of it has sequences of its own
        with pytest.raises(rh.BadValue, match=r"10 groups .* batch=10, or 5 groups with context=2"):
            training.step(model, net.topology("gb200", 10), {role: 10}, batch=5, seq=9)
    for devices in (largest, largest + 1):
        place, most = net.topology("gb200", devices), devices <= largest
        setting = {"batch": 2 * devices, "seq": 9}
        if most:
            training.step(model, place, {role: devices}, **setting)
        else:
            with pytest.raises(rh.BadValue, match=f"over {devices} devices: .* has {parts}"):
                training.step(model, place, {role: devices}, **setting)


@pytest.mark.parametrize(
    ("chip", "options", "hidden"),
    [
        ("h100", {"microbatches": 2}, True),  # over two hosts
        ("h100", {"microbatches": 1}, False),
        ("h100", {"microbatches": 2, "overlap": False}, False),
        ("gb200", {"microbatches": 2}, False),  # one domain
        ("gb200", {"microbatches": 2, "overlap": True}, True),
    ],
)
def test_when_another_microbatch_hides_what_experts_exchange(chip, options, hidden):
    place, mesh = net.topology(chip, 10), {"expert": 10}
    for load, fits in ((0.99, False), (1, True), (2.5, True), (2.51, False)):
        asked = {"batch": 20, "seq": 9, "imbalance": load, **options}
        if fits:
            setting = training.step(ROUTED, place, mesh, **asked).setting
            assert setting.overlaps == hidden
            assert setting.rows_of_an_expert == 18 / options["microbatches"] * 10 * 4 / 10
        else:
            with pytest.raises(rh.BadValue, match=r"from 1 to 2\.5"):
                training.step(ROUTED, place, mesh, **asked)


@pytest.mark.parametrize(
    ("capacity", "said"),
    [
        (20, ""),
        (19, "gradients and moments are split over the replicas too"),
        (11, "gradients and moments are split over the replicas too"),  # 3/4 of 12 are less
        (10.9, "both are moved"),
        (6, "both are moved"),
        (5.9, ""),  # nothing helps
    ],
)
def test_what_would_make_a_step_fit(capacity, said):
    memory = training.memory.TrainingMemory(3, 4, 8, 5, capacity, replicas=4)
    assert (memory.total, memory.fits) == (20, capacity >= 20)
    assert memory.unless.startswith(said)
    assert bool(memory.unless) == bool(said)
    alone = replace(memory, replicas=1, capacity=15)
    assert alone.unless.startswith("activations wait")


@pytest.mark.parametrize(
    ("parts", "bound", "seconds"),
    [
        ((5, 4, 3, False), "compute", 5),
        ((4, 4, 3, False), "compute", 4),
        ((3, 4, 4, False), "weights", 4),
        ((3, 4, 6, False), "sums", 6),
        ((5, 4, 3, True), "weights", 7),  # in turn
        ((7, 4, 3, True), "compute", 7),
    ],
)
def test_what_bounds_a_layer(parts, bound, seconds):
    layer = training.Layer(42, *parts)
    assert (layer.bound, layer.seconds, layer.attainable) == (bound, seconds, 42 / seconds)


@pytest.mark.parametrize(
    ("chip", "shape", "options", "wide", "narrow"),
    [
        # 450 GB/s n / (n - 1) over 989 TFLOP/s: of 28672 14.9 and of 9000 4.7 at 8, 5.5 at 4
        ("h100", 16, {}, 8, 4),
        # 50 GB/s n / (n - 1) a link over 197 TFLOP/s: a line of 8 has one link, 8.3 and 2.6, a ring
        # of 16 two, 15.5; a square of 4 has two, 6.1
        ("v5e", "8x16", {}, 8, 4),
        ("v6e", "4x8", {"slices": 2}, 4, 1),
        ("v7x", "4x4x4", {"cores": True}, 2, 2),  # inside a chip
    ],
)
def test_the_largest_group_that_splits_a_width(chip, shape, options, wide, narrow):
    place = net.topology(chip, shape, **options)
    found = [training.largest_tensor(place, width) for width in (28672, 9000)]
    assert found == [wide, narrow]


def test_a_width_has_a_part_for_each_chip():
    assert cut("v5e", 16, 512, d_ff=16).flops == 4 * 512 * 8192 * 16
    with pytest.raises(rh.BadValue, match="16 chips can't split a width of 15"):
        cut("v5e", 16, 512, d_ff=15)


def test_stages_wait_for_the_slowest_hop_and_must_send_over_the_fastest():
    place = net.topology("v6e", "4x4", slices=4)
    deep = replace(SMALL, layers=8)
    step = training.step(deep, place, {"pipeline": 8, "fsdp": 8}, batch=8, seq=9000)
    [hop] = [exchange for exchange in step.exchanges if exchange.role == "pipeline"]
    [must] = hop.least
    assert [axis.network for axis in (hop.collective.axes[0], must.axes[0])] == ["dcn", "ici"]
    assert (hop.collective.nbytes, must.nbytes) == (2 * 9000 * 384, 9000 * 384)


def test_dense_feed_forwards_beside_experts_are_gathered_with_them():
    mixer = models.layers.attention(384, 12, 4, 64)
    block = models.layers.Block(mixer, (models.layers.FeedForward(1000), EXPERTS))
    both = replace(ROUTED, blocks=(block,) * 6)
    step = training.step(both, net.topology("gb200", 10), {"fsdp": 10}, batch=10, seq=9)
    attention = 384 * (12 + 2 * 4) * 64 + 12 * 64 * 384
    weights = attention + 3 * 384 * 1000 + 10 * 3 * 384 * 640 + 384 * 10
    assert exchanged(step)["fsdp", "weights of a layer of experts"] == (12, 2 * weights)


def test_a_tiny_step_takes_what_its_update_does():
    step = training.step(SMALL, net.topology("h100", 1), {"data": 1}, batch=1, seq=1)
    # fp32 weights and both moments are read and written, a gradient read
    assert step.update == approx(SMALL.parameters * (8 + 4 + 16) / 3350e9)
    assert step.least_seconds == step.update


def test_experts_without_a_gate_have_one_matrix_up_and_one_down():
    plain = replace(ROUTED, gated=False, experts=replace(EXPERTS, gated=False))
    setting = training.step(plain, net.topology("h100", 1), {"data": 1}, batch=3, seq=9).setting
    flops = [training.mixture.routed(setting, product) for product in ("up", "down")]
    assert flops == [2 * 27 * 6 * 4 * 384 * 640] * 2
