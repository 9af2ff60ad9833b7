"""Serving under load against sums by hand: Little's law, memory that is full, separate workers."""

from dataclasses import replace

import pytest

import roofline_helpers as rh
from roofline import serving
from roofline.serving import loads

LLAMA = {"model": "llama-3-8b", "hardware": "h100", "inputs": 1000, "outputs": 201, "server": 0.0}


def served(concurrency, **asked):
    return serving.load(**{**LLAMA, "concurrency": concurrency, **asked})


def step(**asked):
    reached = {"reached": True, "law": True}
    return serving.step("llama-3-8b", "h100", **reached, **asked)


def test_one_request_reads_its_prompt_and_then_decodes_alone():
    alone = served(1)
    assert alone.first_token == pytest.approx(step(phase="prefill", context=1000).seconds)
    assert alone.time_per_token == pytest.approx(step(context=1100).seconds)
    assert alone.rate == pytest.approx(1 / (alone.first_token + 200 * alone.time_per_token))
    mixture = served(1, model="qwen3-30b-a3b")  # later than its prompt takes, as measured
    assert mixture.first_token == pytest.approx(1.3 * mixture.worker.prompt)
    spread = served(1, workers=4)  # three have nothing to do
    assert spread.rate == pytest.approx(alone.rate)
    assert spread.batch * 4 == pytest.approx(alone.batch)
    assert served(1, server=0.5).first_token == pytest.approx(alone.first_token + 0.5)


def test_a_mixture_s_prompts_are_late_and_its_server_is_not():
    first = served(1, model="qwen3-30b-a3b", server=0.5).first_token
    assert first == pytest.approx(0.5 + served(1, model="qwen3-30b-a3b").first_token)


def test_an_engine_is_filled_before_another_one_is_needed():
    sizes = {"inputs": 8192, "outputs": 1025}
    (full,) = serving.service.answer("llama-3-8b", "h100", [], (20.0, {}), 1, **sizes).loads
    assert full.concurrency == full.worker.most
    assert not full.waiting


def test_each_token_waits_for_the_prompts_of_those_that_come_meanwhile():
    many = served(32)
    prompt = step(phase="prefill", context=1000).seconds
    decoding = step(context=1100, batch=round(many.batch)).seconds
    pauses = many.batch * 31 / 32 * prompt / 200
    assert many.time_per_token == pytest.approx(decoding + pauses, rel=1e-3)
    # of the 32 requests the others decode while one is read, or waits
    assert many.batch + many.rate * many.first_token == pytest.approx(32, rel=1e-3)
    assert served(64, workers=2).rate == pytest.approx(2 * many.rate)


@pytest.mark.parametrize("concurrency", [1, 7, 64, 500, 5000])
@pytest.mark.parametrize("readers", [None, serving.Readers(1), serving.Readers(3)])
def test_requests_are_rate_times_time(concurrency, readers):
    load = served(concurrency, readers=readers, workers=2)
    seconds = load.first_token + 200 * load.time_per_token
    assert load.rate * seconds == pytest.approx(concurrency, rel=2e-3)


def test_what_does_not_fit_waits_and_the_first_token_says_so():
    full = served(1, inputs=8192, outputs=1025)
    capacity = rh.chip("h100").memory["hbm"].capacity.value
    reading = step(phase="prefill", context=8192).memory.activations
    pages = 0.92 * capacity - step(context=8704).memory.weights - reading
    most = int(pages / (8704 * 131072))  # a token's keys and values: 2 · 32 · 8 · 128 · 2 bytes
    assert full.worker.most == most
    all_in, queued = (served(n, inputs=8192, outputs=1025) for n in (most, 2 * most))
    assert (all_in.waiting, queued.waiting) == (0, most)
    assert queued.rate == pytest.approx(all_in.rate)
    assert queued.time_per_token == pytest.approx(all_in.time_per_token)
    assert queued.first_token == pytest.approx(all_in.first_token + most / all_in.rate)
    with pytest.raises(rh.BadValue, match="give more chips"):
        serving.load("llama-3-70b", "h100", concurrency=1, inputs=1000, outputs=100)


def test_prompts_that_come_all_at_once_wait_for_half_of_them():
    steady, once = served(32), served(32, rounds=1)
    prompt = steady.worker.prompt
    assert once.first_token == pytest.approx(prompt * 33 / 2)
    pauses = steady.time_per_token - steady.step_seconds
    assert once.time_per_token == pytest.approx(steady.step_seconds + pauses / 2)
    tenth = served(32, rounds=10).first_token
    assert tenth == pytest.approx(0.9 * steady.first_token + 0.1 * once.first_token)


@pytest.mark.parametrize(("budget", "steps"), [(1000, 1.5), (250, 4.5)])
def test_a_prompt_s_chunks_run_between_steps_of_which_one_is_half_done(budget, steps):
    two = served(2, outputs=20_001, budget=budget)  # their prompts hardly ever meet
    waited = two.first_token - two.worker.prompt
    assert waited == pytest.approx(steps * two.step_seconds, rel=0.02)
    rarely = served(2, outputs=20_001, budget=budget, polled=21)  # half of 21 steps, not of one
    assert rarely.first_token - two.first_token == pytest.approx(10 * two.step_seconds, rel=0.02)
    alone = served(1, budget=budget)
    assert alone.first_token == pytest.approx(alone.worker.prompt)


def test_a_queue_with_one_server():
    assert loads._response(2.0, 10.0, 1) == pytest.approx(2.0)  # nobody before it
    assert loads._response(2.0, 10.0, 100) == pytest.approx(190, rel=0.01)  # it never rests
    # R = s + s · others / (R + Z) · (R − s / 2), a user that is served half waits
    seconds = loads._response(2.0, 10.0, 4)
    assert seconds == pytest.approx(2 + 2 * 3 / (seconds + 10) * (seconds - 1))


def test_chunks_and_a_prefix_cache():
    whole = served(1, inputs=4096)
    chunked = served(1, inputs=4096, budget=1024)
    assert (whole.worker.chunks, chunked.worker.chunks) == (1, 4)
    parts = [step(phase="prefill", context=n) for n in (1024, 4096)]
    attention = [sum(k.total for k in part.kernels if "attention" in k.name) for part in parts]
    assert attention[0] > 0
    apart = 4 * (parts[0].seconds - attention[0])
    assert chunked.worker.prompt == pytest.approx(apart + attention[1])
    # three quarters are there: what is read are 1,024 tokens, and their attention to all 4,096
    cached = served(1, inputs=4096, cached=0.75).worker.prompt
    assert cached == pytest.approx(apart / 4 + attention[1] * (1 - 0.75**2))


def test_separate_workers():
    readers = serving.Readers(2, "h100", rate=50e9)
    apart = served(16, readers=readers, workers=3)
    assert apart.chips == 5
    assert apart.time_per_token == pytest.approx(step(context=1100, batch=5).seconds, rel=0.01)
    assert apart.transfer == pytest.approx(1000 * 131072 / 50e9)
    one = served(1, readers=readers)
    assert one.first_token == pytest.approx(one.worker.prompt + one.transfer)
    # so many requests that the prompts' worker never rests
    busy = served(500, readers=serving.Readers(1), workers=4)
    assert busy.rate == pytest.approx(1 / busy.worker.prompt, rel=0.01)
    four = served(1, readers=serving.Readers(1, "h100", chips=4, rate=50e9))
    assert four.transfer == pytest.approx(one.transfer)  # one chip takes it all
    with pytest.raises(rh.BadValue, match="rate of a cache"):
        served(1, hardware="mi300x", workers=8, readers=serving.Readers(1))


def test_speculation_divides_a_round_by_its_tokens():
    drafts = {"draft": "llama-3.2-1b", "draft_tokens": 2, "acceptance": 0.5}
    round_ = step(context=1100, new=3).seconds
    small = serving.step("llama-3.2-1b", "h100", context=1100, reached=True, law=True).seconds
    assert served(1, **drafts).time_per_token == pytest.approx((round_ + 2 * small) / 1.75)


def test_a_draft_s_weights_and_cache_take_memory_too():
    draft = {"draft": "llama-3.2-1b", "draft_tokens": 3, "acceptance": 0.5}
    alone, both = served(1).worker, served(1, **draft).worker
    one = rh.models.model("llama-3.2-1b")
    assert alone.room - both.room == pytest.approx(2 * one.parameters, rel=1e-3)
    models = rh.models.model("llama-3-8b"), one
    caches = [decoder.cache_bytes(1100, "bf16") for decoder in models]
    fewer = alone.most * caches[0] - both.most * sum(caches)
    assert fewer == pytest.approx(2 * one.parameters, abs=sum(caches))


def test_the_front_keeps_what_nothing_beats_in_both():
    # tokens per second of a user, requests per second of the chip
    points = [(50, 4.0), (100, 1.0), (20, 4.0), (80, 2.0), (70, 1.5), (50, 3.0)]
    loads = [replace(served(1), time_per_token=1 / user, rate=rate) for user, rate in points]
    assert serving.pareto(loads) == [loads[1], loads[3], loads[0]]
    measured = serving.curve(**{**LLAMA, "concurrency": [1, 16, 2000, 4000]})
    assert serving.pareto(measured) == measured[:3]  # more than fit only wait


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"outputs": 1}, "outputs must be at least 2"),
        ({"cached": 1.0}, "below 1"),
        ({"concurrency": 0}, "concurrency"),
        ({"budget": 0}, "budget"),
        ({"context": 3}, "context"),
    ],
)
def test_what_can_not_be_is_refused(asked, said):
    with pytest.raises((rh.RooflineError, TypeError), match=said):
        served(**{"concurrency": 1, **asked})


def test_a_model_s_own_module_drafts():
    sizes = {"chips": 8, "concurrency": 4, "inputs": 1024, "outputs": 1024}
    alone = serving.load("deepseek-v3", "h200", **sizes)
    twice = {"draft": "own", "draft_tokens": 1, "acceptance": 0.85}
    own = serving.load("deepseek-v3", "h200", **sizes, **twice)
    # 1.85 tokens a step, which reads more experts and has a layer and a head more
    assert 1.1 < alone.time_per_token / own.time_per_token < 1.85
    drafts = own.worker.draft
    assert drafts
    # README_WEIGHTS.md of deepseek-ai/DeepSeek-V3: 11.5 B beside embedding and head
    assert drafts.setting.model.matrices == pytest.approx(11.5e9, rel=0.01)
    with pytest.raises(rh.BadValue, match=r"Llama 3 8B isn't known to ship.*num_nextn"):
        serving.load("llama-3-8b", "h200", concurrency=4, inputs=8, outputs=8, **twice)
