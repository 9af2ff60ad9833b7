"""The serving model against figures worked out by hand, bounds, and its own parts."""

import pytest
from serving_suite import CHIPS, llama

import roofline_helpers as rh
from roofline import serving
from roofline.serving.elsewhere import ELSEWHERE, law_elsewhere
from roofline.serving.strategies import STRATEGIES
from roofline_helpers.models import LLAMA_3_8B

# --- a step against what can be worked out by hand ------------------------------------------------


def test_decode_of_one_sequence_takes_as_long_as_weights_and_cache_take_to_read():
    embedding = 2 * LLAMA_3_8B.vocabulary * LLAMA_3_8B.d_model  # one row of it is read
    seconds, bounds, least = {}, {}, {}
    for chip in CHIPS:
        step = llama(chip, floor=False)
        read = step.memory.weights - embedding + step.memory.cache
        seconds[chip] = step.seconds
        least[chip] = read / rh.chip(chip).roofline(rh.chip(chip).half).bandwidth
        bounds[chip] = step.least_seconds
    assert seconds == pytest.approx(least, rel=0.005)
    assert bounds == pytest.approx(least, rel=0.005)
    assert {chip for chip in CHIPS if seconds[chip] <= least[chip]} == set()


@pytest.mark.parametrize("phase", serving.setting.PHASES)
def test_no_step_beats_its_roofs(phase):
    for chip in CHIPS:
        step = llama(chip, phase=phase, batch=4, context=1024, fusion="epilogue")
        assert 0 < step.mfu <= 1, chip
        assert step.but(context=10**6, batch=1).mfu <= 1, chip  # softmax isn't the matrix unit's
        assert step.bytes / step.seconds <= step.kernels[0].roof.bandwidth * (1 + 1e-12), chip
        for kernel in step.kernels:
            roof, job = kernel.roof, kernel.work
            least = max(job.matrix_flops / roof.peak, job.bytes / roof.bandwidth)
            assert kernel.seconds >= least, (chip, kernel.name)  # the vector unit may take longer


def bytes_by_hand(batch, context, fusion, attention):
    """Bytes of a decode step in bf16, tensor by tensor."""
    layers, vocabulary = 32, 128256
    d, q, kv, ff = 4096, 4096, 1024, 14336
    row = 2 * batch  # bytes of one column
    projections = 2 * (d * (q + 2 * kv) + q * d + d * 2 * ff + ff * d)
    projections += row * (d + q + 2 * kv + q + d + d + 2 * ff + ff + d)
    rope = row * (2 * (q + kv) + 128)
    append = row * 4 * kv
    flash = 2 * batch * context * 2 * kv + row * 2 * q
    naive = flash + 4 * row * 32 * context  # scores and probabilities, written and read
    norm = 2 * row * d + 2 * d
    add = 3 * row * d
    swiglu = 3 * row * ff
    layer = projections + rope + append + (naive if attention == "naive" else flash)
    layer += 2 * norm + 2 * add + swiglu
    once = 4 * batch + 2 * row * d + norm + 2 * vocabulary * d + row * (d + vocabulary)
    saved = {
        "none": 0,
        # k once written and read; each sum read by the norm after it; the last sum not written
        "pointwise": layers * (2 * row * kv) + 2 * layers * row * d + row * d,
        # q, k, v of the product; turned k; both sums' summands; g and u
        "epilogue": layers * row * (2 * q + 6 * kv + 2 * 2 * d + 2 * 2 * ff),
    }
    return layers * layer + once - saved[fusion]


@pytest.mark.parametrize("fusion", STRATEGIES)
@pytest.mark.parametrize("attention", serving.setting.ATTENTION)
@pytest.mark.parametrize(("batch", "context"), [(1, 1), (64, 2048), (3, 777)])
def test_bytes_of_a_decode_step_by_hand(fusion, attention, batch, context):
    step = llama(batch=batch, context=context, fusion=fusion, attention=attention)
    assert step.bytes == bytes_by_hand(batch, context, fusion, attention)


@pytest.mark.parametrize("phase", serving.setting.PHASES)
def test_matrix_flops_are_two_per_weight_and_token_and_those_of_attention(phase):
    step = llama(phase=phase, batch=3, context=500)
    rows, new = (3, 1) if phase == "decode" else (1500, 500)
    seen = new * (2 * 500 - new + 1) // 2
    wanted = 2 * rows * LLAMA_3_8B.matrices + 2 * 3 * LLAMA_3_8B.vocabulary * 4096
    wanted += 32 * 4 * 3 * 32 * 128 * seen
    assert sum(k.launches * k.work.matrix_flops for k in step.kernels) == wanted


# --- what changes do ------------------------------------------------------------------------------


def test_a_column_begun_needs_a_scale_too():
    scales = [serving.layer.scales((300, 7), kind, 128) for kind in ("int8", "int4", "fp8")]
    assert scales == [2 * 7, 2 * 7 * 3, 0]


def test_narrow_types_save_bytes_of_what_they_are_the_type_of():
    kv = 32 * 2 * 4 * 1024  # elements that a token of each sequence adds; they are written too
    for chip in CHIPS:
        wide = llama(chip, batch=4)
        weights = wide.but(weights="int4")
        cache = wide.but(cache="int8")
        # 4 of 16 bits stay, and a scale of 16 for 128 weights
        saved = LLAMA_3_8B.matrices * (12 - 16 / 128) / 8
        assert wide.bytes - weights.bytes == saved, chip
        assert wide.memory.weights - weights.memory.weights == saved, chip
        assert wide.bytes - cache.bytes == kv * (2048 + 1), chip
        assert wide.memory.cache == 2 * cache.memory.cache, chip
        assert (weights.flops, weights.peak) == (wide.flops, wide.peak), chip
        assert weights.seconds < wide.seconds > cache.seconds, chip


def test_narrow_activations_double_the_rate_of_products_where_the_chip_has_it():
    wide = llama(phase="prefill")
    narrow = wide.but(weights="fp8", activations="fp8")
    alone = wide.but(weights="fp8", activations="bf16")
    assert wide.but(weights="fp8").seconds == narrow.seconds  # as engines do it
    assert narrow.peak == 1979e12
    by_name = {kernel.name: kernel for kernel in narrow.kernels}
    assert by_name["gate+up projection"].work.dtype == "fp8"
    assert by_name["LM head"].work.dtype == by_name["flash attention"].work.dtype == "bf16"
    assert narrow.seconds < 0.65 * alone.seconds
    # compute-bound: bytes don't count
    assert alone.seconds == pytest.approx(wide.seconds, rel=0.01)


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "error", "names"),
    [
        ({"chip": "h1000"}, rh.UnknownName, "h100"),
        ({"batch": 2.5}, rh.BadValue, "batch.*2.5"),
        ({"weights": "fp64"}, rh.UnknownName, "bf16, fp8, int8, int4"),
        ({"activations": "fp8"}, rh.BadValue, "fp8 with bf16"),
        (
            {"chip": "a100-40gb", "weights": "int4", "activations": "int4"},
            rh.BadValue,
            "got int4 with int4 weights",
        ),
    ],
)
def test_a_bad_setting_is_refused(setting, error, names):
    with pytest.raises(error, match=names):
        llama(**setting)


# --- for the page ---------------------------------------------------------------------------------


def test_a_step_s_ceilings_floor_and_residency():
    plain = llama(batch=8, fusion="none", attention="naive", floor=False)
    floored, reached = plain.but(floor=True), plain.but(reached=True)
    stays = plain.but(resident=True)
    floor = float(rh.chip("h100").floor or 0)
    assert min(kernel.seconds for kernel in floored.kernels) == floor
    assert min(kernel.seconds for kernel in plain.kernels) < floor
    assert reached.kernels[0].roof == rh.chip("h100").roofline(reached=True).without_floor()
    moved = {kernel.name: kernel.work for kernel in stays.kernels}
    assert (moved["softmax"].bytes, moved["softmax"].others["l2"]) == (0, 2 * 8 * 32 * 2048 * 2)
    assert moved["QKV projection"].reads.keys() == {"W qkv"}  # x and the rest stay
    assert moved["Q·Kᵀ"].reads.keys() == {"K cache"}
    assert stays.memory == plain.memory
    prompt = plain.but(phase="prefill", context=2048, resident=True)
    scores = {k.name: k.work for k in prompt.kernels}["softmax"]
    assert scores.bytes > 0  # too large for the cache


@pytest.mark.parametrize("batch", [1, 4, 64])
def test_a_mixture_reads_the_experts_that_its_tokens_choose(batch):
    types = {"weights": "fp8", "activations": "bf16"}
    step = serving.step("mixtral-8x7b", "h200", batch=batch, fusion="none", **types)
    kernels = {kernel.name: kernel for kernel in step.kernels}
    matmuls = [kernels["experts' gate+up"], kernels["experts' down"]]
    an_expert = 3 * 4096 * 14336
    used = 8 * (1 - 0.75**batch)  # each token leaves an expert alone three times in four
    read = sum(size for k in matmuls for name, size in k.work.reads.items() if name[0] == "W")
    assert read == pytest.approx(used * an_expert, abs=2)
    flops = sum(k.launches * k.work.flops for k in matmuls)
    assert flops == 32 * batch * 2 * 2 * an_expert  # two experts a token
    assert kernels["router"].work.reads["W router"] == 2 * 8 * 4096  # never narrow
    assert kernels["permute"].work.writes["n2, permuted"] == 2 * 2 * batch * 4096
    assert step.memory.weights == pytest.approx(46.7e9, rel=0.01)


def test_kernels_that_were_measured_on_other_gpus_take_their_laws():
    decode = serving.step("llama-3-8b", "l4", batch=16, law=True, reached=True)
    assert decode.rests["another chip"] > 0.9
    assert decode.has_laws
    assert 0.2 < decode.missed < 1
    assert decode.seconds > decode.but(law=False).seconds
    widened = serving.step(
        "llama-3-8b", "h100", batch=16, weights="fp8", activations="bf16", law=True, reached=True
    )
    (kernel,) = [k for k in widened.kernels if k.name == "gate+up projection"]
    assert kernel.law
    assert (kernel.law.dtype, kernel.law.library) == ("int8 weights", ELSEWHERE)
    assert law_elsewhere(kernel.work, "v6e") is None
    assert law_elsewhere(kernel.work, "mi300x") is None
    own = serving.step("llama-3-8b", "h100", batch=16, law=True, reached=True)
    assert (own.rests["another chip"], own.missed) == (0, 0)
    tpu = serving.step("qwen3-32b", "v7x", weights="fp8", law=True, reached=True)
    assert tpu.rests["none"] > 0.9
    assert not tpu.has_laws
