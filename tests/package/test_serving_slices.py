"""Serving on slices: shares of a device, exchanges, bounds, and published steps."""

from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roofline_helpers as rh
from roofline import network as net
from roofline import serving
from roofline.serving import ROLES, speculative
from roofline_helpers import models

LLAMA = models.model("llama-3-70b")
SLICE = net.topology("v6e", "2x4")
INT8 = {"weights": "int8", "vocabulary": "int8", "cache": "int8"}


def llama(mesh=None, chip="v6e", shape="2x4", **options):
    topology = net.topology(chip, shape, ceilings=options.pop("ceilings", "published"))
    return serving.step("llama-3-70b", topology, mesh, **options)


def total(step, name, count):
    """Sum a count over all runs of the kernels of a name."""
    kernels = [kernel for kernel in step.kernels if kernel.name == name]
    return sum(kernel.launches * getattr(kernel.work, count) for kernel in kernels)


def test_shares_of_a_device_by_hand():
    step = llama({"context": 2, "tensor": 4}, batch=32, context=4096)
    assert step.memory.weights == pytest.approx(2 * LLAMA.parameters / 8, rel=3e-4)
    assert step.memory.cache == 32 * 4096 * 327680 / 8
    copied = llama({"tensor": 16}, shape="4x4", batch=32, context=4096)
    assert copied.memory.cache == step.memory.cache  # twice in all: 16 devices, 8 key heads
    for role in ("batch", "context"):
        half = llama({role: 2, "tensor": 8}, shape="4x4", batch=32, context=4096)
        assert half.memory.cache == step.memory.cache / 2
        # without "tensor" beyond the KV heads, none of their matrices is there twice
        assert copied.memory.weights - half.memory.weights == 80 * 8192 * 128 * 2
        attention = total(half, "flash attention", "matrix_flops")
        assert attention == 2 * 32 * 2 * 64 * 128 * 80 * 4096 / 16
    alone = llama({"batch": 2, "tensor": 8}, shape="4x4", batch=1, context=4096)
    assert alone.memory.cache == 4096 * 327680 / 8  # a sequence isn't split by "batch"
    replicas = llama({"data": 2, "tensor": 4}, batch=32, context=4096)
    assert replicas.memory.weights == pytest.approx(2 * LLAMA.parameters / 4, rel=3e-4)
    assert replicas.memory.cache == step.memory.cache
    fed = total(step, "gate+up projection", "flops") + total(step, "down projection", "flops")
    assert fed == 2 * 32 * 80 * LLAMA.dense_parameters / 8
    attention = total(step, "flash attention", "matrix_flops")
    assert attention == 2 * 32 * 2 * 64 * 128 * 80 * 4096 / 8


def test_exchanges_by_hand():
    step = llama(batch=64)
    [sums] = step.exchanges
    summed = sums.collective
    assert (sums.count, summed.nbytes, summed.kind) == (160, 64 * 8192 * 2, "all-reduce")
    assert step.comms == sums.seconds
    _, parts = llama({"context": 2, "tensor": 4}, batch=64).exchanges
    assert parts.purpose == "parts of attention"
    assert parts.collective.nbytes == 64 * 64 * 130 / 4 * 2
    _, turned = llama({"batch": 2, "tensor": 4}, batch=64).exchanges
    assert (turned.count, turned.collective.kind) == (160, "all-to-all")
    # there q, k and v of 64 sequences, back what attention returns: 64, 8, 8 and 64 heads of 128
    assert turned.count * turned.collective.nbytes == 80 * 64 * (64 + 8 + 8 + 64) * 128 * 2 / 4
    _, prompt = llama({"context": 2, "tensor": 4}, phase="prefill", context=1000).exchanges
    assert prompt.collective.kind == "all-to-all"
    assert prompt.collective.nbytes == 1000 * 2 * 1024 * 2 / 4
    mixture = serving.step("mixtral-8x7b", net.topology("v6e", "2x4"), {"expert": 8}, batch=64)
    [routed] = mixture.exchanges
    moved = routed.collective
    assert (routed.count, moved.kind, moved.nbytes) == (64, "all-to-all", 8 * 2 * 4096 * 2 * 8)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_the_fastest_layout_that_fits_is_found(phase):
    topology = net.topology("v6e", "4x4", ceilings="reached")
    for model, batch, context in (
        ("llama-3-70b", 128, 1500),
        ("llama-3-70b", 2, 100_000),
        ("mixtral-8x7b", 64, 1500),
    ):
        options = {"phase": phase, "batch": batch, "context": context}
        best = serving.step(model, topology, **options)
        tried = []
        for sizes in product((1, 2, 4, 8, 16), repeat=len(ROLES)):
            mesh = dict(zip(ROLES, sizes, strict=True))
            with suppress(rh.BadValue):
                tried.append(serving.step(model, topology, mesh, **options))
        assert best.fits
        assert best.seconds == min(step.seconds for step in tried if step.fits)
        assert serving.step(model, topology, best.setting.mesh, **options).seconds == best.seconds
        assert best.but(batch=1).setting.mesh == best.setting.mesh


def test_experts_whole_or_cut_on_the_devices_of_a_group():
    types = dict.fromkeys(("weights", "vocabulary", "cache"), "fp8")
    host, options = net.topology("h200", 8), {"batch": 64, "context": 4096, **types}
    cut, whole, apart = (
        serving.step("deepseek-v3", host, mesh, expert_widths=widths, **options)
        for mesh, widths in (({"tensor": 8}, None), ({"tensor": 8}, 1), ({"expert": 8}, 1))
    )
    an_expert = 3 * 7168 * 2048
    share = 58 * 256 * an_expert / 8
    for step in (cut, whole, apart):
        assert step.memory.weights > share
        busy = 1 - (1 - 8 / 256) ** 64  # all experts of the group, by all of its tokens
        read = total(step, "experts' gate+up", "bytes") + total(step, "experts' down", "bytes")
        assert read == pytest.approx(busy * share, rel=0.05)
    assert cut.memory.weights == whole.memory.weights
    # attention's matrices are whole on each device there, and so are the shared experts
    mixing = 61 * (128 * (192 * 1536 + 256 * 512 + 128 * 7168)) * 7 / 8
    dense = (58 * an_expert + 3 * 3 * 7168 * 18432 + 2 * 7168 * 129280) * 7 / 8
    assert apart.memory.weights - cut.memory.weights == pytest.approx(mixing + dense, rel=1e-3)
    assert [e.collective.kind for e in cut.exchanges] == ["all-reduce"]
    assert [e.collective.kind for e in whole.exchanges] == ["all-reduce"]
    assert [e.collective.kind for e in apart.exchanges] == ["all-to-all"]
    shared = serving.step("deepseek-v3", host, {"expert": 8}, expert_widths=8, **options)
    gathered, scattered = (exchange.collective for exchange in shared.exchanges)
    assert (gathered.kind, scattered.kind) == ("all-gather", "reduce-scatter")
    assert gathered.nbytes == 64 * 7168 * 2
    found = serving.step("deepseek-v3", host, expert_widths=1, **options)
    assert found.setting.expert_widths == 1
    assert found.seconds <= min(whole.seconds, apart.seconds)


def test_latent_attention_by_hand():
    host = net.topology("h200", 1)
    step = serving.step("deepseek-v3", host, batch=16, context=4096, weights="bf16")
    pairs = 61 * 16 * 128 * 4096
    assert total(step, "latent attention", "matrix_flops") == 2 * pairs * (2 * 512 + 64)
    assert total(step, "absorb keys", "matrix_flops") == 2 * 61 * 16 * 128 * 128 * 512
    flops = 2 * 16 * (step.setting.model.active_matrices + 7168 * 129280)
    attention = total(step, "latent attention", "matrix_flops")
    assert step.matrix_flops - attention == pytest.approx(flops, rel=1e-9)
    assert step.memory.weights == pytest.approx(2 * step.setting.model.parameters, rel=1e-5)


@pytest.mark.parametrize(("context", "chosen"), [(1024, 1024), (4096, 2048)])
def test_an_indexer_chooses_no_more_keys_than_there_are(context, chosen):
    host, mesh = net.topology("h200", 8), {"tensor": 8}
    step = serving.step("deepseek-v3.2", host, mesh, batch=16, context=context)
    (best,) = [kernel.work for kernel in step.kernels if kernel.name == "top keys"]
    assert best.writes["chosen keys"] == 16 * chosen * 4
    assert best.reads["index scores"] == 16 * context * 4


def test_a_mixture_takes_the_laws_of_its_kernels():
    types = {"weights": "nvfp4", "activations": "nvfp4", "projections": "bf16"}
    laws = {}
    for chip in ("b300", "gb300"):
        host = net.topology(chip, 4, ceilings="reached")
        options = {"batch": 64, "context": 4096, "law": True, **types}
        step = serving.step("deepseek-v3", host, {"tensor": 4}, expert_widths=1, **options)
        laws[chip] = {kernel.name: kernel.law for kernel in step.kernels if kernel.law}
    families = {name: (law.family, law.dtype) for name, law in laws["b300"].items()}
    assert families["experts"] == ("grouped_matmul", "nvfp4")
    assert families["latent attention"] == ("decode_mla", "bf16")
    assert families["shared gate+up projection"] == ("matmul", "nvfp4")
    assert families["output projection"] == ("matmul", "bf16")
    assert laws["gb300"] == laws["b300"]  # the same GPU
    (experts,) = (kernel for kernel in step.kernels if kernel.name == "experts")
    busy = 64 * (1 - (1 - 8 / 256) ** 64)
    assert experts.work.reads["W experts"] == pytest.approx(busy * 3 * 7168 * 2048 * 4.5 / 8)
    assert not {"permute", "unpermute"} & {kernel.name for kernel in step.kernels}  # inside


@pytest.mark.parametrize(("chip", "count", "dtype"), [("h200", 8, "fp8"), ("gb200", 32, "nvfp4")])
def test_experts_on_gpus_exchange_by_what_was_measured(chip, count, dtype):
    table = rh.measured.table("expert_exchange")
    sizes = {"chip": chip, "hidden": 7168, "experts": 256, "top_k": 8, "tokens": 128, "gpus": count}
    for name, value in sizes.items():
        table = table[table[name] == value]
    fastest = table.groupby("op", observed=True).seconds.min()
    gpus = net.topology(chip, count, ceilings="reached")
    types = {"weights": dtype, "activations": dtype}
    for mesh in ({"expert": count}, {"expert": count // 2, "tensor": 2}):
        asked = {"batch": 128 * count, "law": True, "expert_widths": 1, **types}
        step = serving.step("deepseek-v3", gpus, mesh, **asked)
        (sent,) = (transfer for transfer in step.exchanges if transfer.role == "expert")
        assert sent.seconds == pytest.approx(58 * fastest.sum(), rel=0.15)
    for alone in ({"law": False}, {"hardware": net.topology(chip, 128, ceilings="reached")}):
        step = step.but(**{"mesh": {"expert": 128 if "hardware" in alone else count}, **alone})
        (sent,) = (transfer for transfer in step.exchanges if transfer.role == "expert")
        assert sent.collective.phases[0].algorithm != "measured"


def test_models_of_every_kind_can_be_served():
    host = net.topology("h200", 8)
    for model in models.catalogue().values():
        mesh = {"expert": 8} if model.experts and model.experts.count % 8 == 0 else {"tensor": 8}
        for phase in ("decode", "prefill"):
            step = serving.step(model, host, mesh, phase=phase, batch=8, context=1024, **INT8)
            assert 0 < step.least_seconds <= step.seconds
    gemma = serving.step("gemma-3-12b", net.topology("v6e", 1), batch=4, context=32768)
    whole = 4 * 32768 * models.model("gemma-3-12b").cache_per_token()
    assert gemma.memory.cache < whole / 4  # local layers keep 1024


@settings(max_examples=40)
@given(
    batch=st.integers(1, 512),
    context=st.integers(1, 16384),
    mesh=st.sampled_from(
        [{"tensor": 8}, *({n: 2, "tensor": 4} for n in ("data", "batch", "context"))]
    ),
    ceilings=st.sampled_from(list(net.CEILINGS)),
)
def test_more_sequences_take_longer_and_no_step_beats_its_bound(batch, context, mesh, ceilings):
    step = llama(mesh, batch=batch, context=context, ceilings=ceilings)
    more = step.but(batch=2 * batch)
    assert step.least_seconds <= step.seconds <= more.seconds
    assert step.memory.total < more.memory.total or batch < step.setting.size("data", "batch")
    assert more.tokens_per_second >= step.tokens_per_second * (1 - 1e-9)
    reached = llama(mesh, batch=batch, context=context, ceilings="reached")
    assert step.seconds <= reached.seconds * (1 + 1e-9)


def test_speculation_by_the_paper_s_formula():
    names, slice_ = ("llama-3-70b", "llama-3-8b"), net.topology("v6e", "2x4")
    target, draft = (serving.step(name, slice_, batch=4, context=2048) for name in names)
    round_ = speculative(target, draft, draft_tokens=4, acceptance=0.8)
    assert round_.tokens == pytest.approx(1 + 0.8 + 0.8**2 + 0.8**3 + 0.8**4)
    assert round_.seconds == 4 * draft.seconds + target.but(new=5).seconds
    assert round_.time_per_token < target.seconds
    assert speculative(target, draft, draft_tokens=3, acceptance=0).tokens == 1
    assert speculative(target, draft, draft_tokens=3, acceptance=1).tokens == 4


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (lambda: llama({"tensor": 4}), rh.BadValue, "4 members"),
        (lambda: llama({"fsdp": 8}), rh.UnknownName, "data, expert, batch, context, tensor"),
        (lambda: serving.step("llama-3-70b", "v6e", {"tensor": 8}), rh.BadType, "topology.*v6e"),
        (lambda: llama(chips=2), rh.BadValue, "chips=2"),
        (
            lambda: serving.step("mixtral-8x7b", SLICE, {"expert": 8}, expert_widths=3),
            rh.BadValue,
            "expert_widths=3: 8 devices",
        ),
        (lambda: llama(reached=True), rh.BadValue, "ceilings='reached'"),
        (lambda: rh.verdict(llama()), rh.BadValue, "hardware=CHIP"),
        (lambda: serving.step("llama-3-8b", "h100", context=2, new=4), rh.BadValue, "new=4"),
        (lambda: speculative(llama(), llama(), draft_tokens=2, acceptance=1.5), rh.BadValue, "1.5"),
    ],
)
def test_what_no_step_is_refused(asked, error, words):
    with pytest.raises(error, match=words):
        asked()


def test_the_chips_of_a_slice_may_be_said_again_and_no_others():
    of_slice = serving.step("llama-3-8b", "v5e-16", batch=16)
    assert serving.step("llama-3-8b", "v5e-16", batch=16, chips=16).seconds == of_slice.seconds
    with pytest.raises(rh.BadValue, match="16 chips"):
        serving.step("llama-3-8b", "v5e-16", batch=16, chips=4)
