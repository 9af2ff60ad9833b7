"""Instruments and labs in a real browser: their numbers are those of Python."""

import random

import pytest
from browser import violations
from labs import card, cards, fill, rate, said
from playwright.sync_api import expect

import roofline_helpers as rh
from roofline import labs, serving
from roofline.labs.briefs import BRIEFS, COUNTED, judge
from roofline.labs.labs import ROWS, SIDES, TIMED, goal_cost, timed
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.common.show import significant
from roofline_helpers.models import LLAMA_3_8B


def wall_settings():
    """Return a setting of each chip, with sides in turn."""
    chosen, settings = random.Random(5), []
    for chip in rh.all_chips():
        n, k = (chosen.choice(SIDES) for _ in range(2))
        dtype = chosen.choice([*chip.matrix, *chip.vector])
        m = chosen.choice(ROWS)
        settings.append(
            {
                "chip": chip.key,
                "dtype": dtype,
                "m": m,
                "n": n,
                "k": k,
            }
        )
    same = {"dtype": "bf16", "m": 64, "n": 8192, "k": 8192}
    return [*settings, *({**same, "chip": chip} for chip in TIMED), {**same, "chip": "v6e"}]


def test_cards_of_the_memory_wall_are_those_of_python(shown):
    host = shown("memory-wall")
    settings, typed = wall_settings(), []
    for setting in settings:
        fields = {"Chip": setting["chip"], "Data type": setting["dtype"]}
        sides = {name: str(setting[name.lower()]) for name in "NK"}
        typed.append({**fields, **sides, "M (tokens)": str(setting["m"])})
    found = 0
    for setting, shown_there in zip(settings, fill(host, typed), strict=True):
        chip = setting["chip"]
        dtype = setting["dtype"]
        shape = setting["m"], setting["n"], setting["k"]
        roof = rh.chip(chip).roofline(dtype)
        job = rh.work.matmul(*shape, dtype, out="bf16" if BITS[dtype] < 16 else dtype)
        top = roof.attainable(job.intensity)
        assert shown_there["arithmetic intensity"] == f"{significant(job.intensity)} FLOP/byte"
        assert shown_there["attainable"] == rate(top)
        assert shown_there["regime"] == f"{roof.bound(job.intensity)}-bound"
        share = float(shown_there["share of the peak, at most"].removesuffix("%")) / 100
        assert share == pytest.approx(top / roof.peak, rel=0.06)
        if shown_there["measured time"] != "–":
            found += 1
            seconds = timed(chip, dtype, *shape)
            efficiency = roof.without_floor().efficiency(job.flops / seconds, job)
            assert shown_there["measured time"] == rh.si(float(f"{seconds:.3g}"), "s")
            assert float(shown_there["measured of the roof"].removesuffix("%")) == pytest.approx(
                100 * efficiency, rel=0.06
            )
        assert (shown_there["measured time"] != "–") >= (setting in settings[-4:-1])
    assert found >= 3


@pytest.mark.parametrize(
    ("chip", "weights", "batch", "phase"),
    [
        ("h100", "int8", 16, "decode"),
        ("v6e", "bf16", 3, "decode"),
        ("b200", "bf16", 1, "prefill"),
    ],
)
def test_cards_of_the_design_are_those_of_python(shown, chip, weights, batch, phase):
    setting = {"chip": chip, "format": f"{weights}/bf16", "batch": batch, "phase": phase}
    rest = {"context": 2048, "cache": "bf16", "fusion": "epilogue", "attention": "flash"}
    host = shown("design", {**setting, **rest, "counted": "reached"})
    step = serving.step(
        LLAMA_3_8B, chip, batch=batch, phase=phase, weights=weights, **rest, **COUNTED["reached"]
    )
    when = "time per token" if phase == "decode" else "time to the first token"
    wanted = {
        "tokens per second": significant(step.tokens_per_second),
        when: rh.si(step.seconds, "s"),
    }
    assert wanted.items() <= cards(host).items()


def test_a_brief_is_scored_and_its_best_design_shown(shown):
    host = shown("design")
    log = host.locator("tbody tr").filter(has_text="Brief 2")
    host.get_by_label("Batch", exact=True).fill("9")
    host.get_by_label("Brief", exact=True).select_option("mixture")
    host.page.wait_for_timeout(900)  # a setting is kept when it has rested
    expect(log).to_have_count(0)  # the start isn't what the reader said
    assert host.get_by_label("Batch", exact=True).input_value() == "8"
    expect(host.get_by_label("Phase")).to_be_hidden()
    assert card(host, "score") == "0 of 100"
    host.get_by_label("Chip", exact=True).select_option("b200")
    expect(log).to_have_count(2)
    expect(log.first).to_contain_text("B200 SXM, decode, batch 8")
    assert cards(host)["chips, per hour"] == "$6.00"
    host.get_by_role("button", name="Show the best known design").click()
    assert card(host, "score") == "100 of 100"
    brief = BRIEFS["mixture"]
    cost = judge(brief, brief.best).cost
    assert cards(host)["per million tokens"] == f"${significant(cost)}"
    host.get_by_role("slider", name="Batch").press("ArrowLeft")  # one sequence fewer costs more
    assert host.get_by_label("Batch", exact=True).input_value() == str(brief.best["batch"] - 1)
    assert 95 < float(card(host, "score").removesuffix(" of 100")) < 100
    host.get_by_label("Brief", exact=True).select_option("free")
    assert said(host).startswith("Llama 3 8B on NVIDIA H100 SXM, decode, batch 8, 2,048")
    host.get_by_role("button", name="Report to print or hand in").click()
    report = host.locator("pre").filter(has_text="Lab report")
    expect(report).to_contain_text("Brief 2: a mixture of experts: score 0 of 100, missed: dollars")
    expect(report).to_contain_text("Then the best known design was shown.")
    expect(report).to_contain_text("KV cache = 2 · 32 layers")
    expect(report).to_contain_text("First answer:")


def test_the_goal_of_the_wall_is_scored_as_python_does(shown):
    host = shown("memory-wall")
    host.get_by_role("slider", name="N, slider", exact=True).press("ArrowRight")
    assert host.get_by_label("N", exact=True).input_value() == "8320"  # between measured shapes
    assert card(host, "measured time") == "–"
    assert "8,320" in said(host)
    host.get_by_role("button", name="Take the goal").click()
    expect(host.get_by_label("Task")).to_be_focused()
    expect(host.get_by_label("N", exact=True)).to_be_hidden()
    every = [(c, t, m) for c in TIMED for t in TIMED[c] for m in ROWS]
    times = labs.memory_wall().data["measured"]["times"]
    costs = [goal_cost(times, *kernel) for kernel in every]
    asked = [{"Chip": c, "Data type": t, "M (tokens)": str(m)} for c, t, m in every]
    scores = [float(values["score"].removesuffix(" of 100")) for values in fill(host, asked)]
    assert scores == pytest.approx([100 * min(costs) / cost for cost in costs], rel=6e-3)
    assert max(scores) == 100
    assert sum(score == 0 for score in scores) > len(scores) / 4
    host.get_by_label("M (tokens)", exact=True).fill("65")  # between the measured ones
    assert card(host, "per billion tokens") == "–"
    expect(host.locator(".result")).to_contain_text("take a power of two")
    assert violations(host.page) == []


def test_the_chain_counts_as_python_does(shown):
    host = shown("chain")
    apart = rh.work.fusion_chain(65536, 4096, "bf16")
    assert card(host, "bytes") == rh.si(rh.total(*apart).bytes, "B")
    for label in ("LayerNorm + GELU", "GELU + dropout", "dropout + add"):
        host.get_by_label(label).select_option("yes")
    fused = rh.fuse(*apart)
    assert card(host, "bytes") == rh.si(fused.bytes, "B")
    assert card(host, "least time") == rh.si(rh.chip("v7x").roofline().time(fused), "s")
    assert card(host, "four kernels ÷ yours") == "2.5× the bytes"
    host.get_by_label("GELU + dropout").select_option("no")
    two = rh.total(rh.fuse(*apart[:2]), rh.fuse(*apart[2:]))
    assert card(host, "bytes") == rh.si(two.bytes, "B")
