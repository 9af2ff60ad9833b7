"""Instruments and labs in a real browser: their numbers are those of Python."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from labs import Shown, again, card, cards, fill, rate
from playwright.sync_api import expect

import roofline_helpers as rh
from roofline_helpers import serving
from roofline_helpers.lab.shared import first_compute_bound
from roofline_helpers.serving import LLAMA_3_8B
from roofline_helpers.show import significant


def wall_settings() -> list[dict[str, Any]]:
    """Return a setting of each chip; from one to the next one side of the product changes."""
    chosen, sides, settings = random.Random(5), {"m": 512, "n": 512, "k": 512}, []
    for chip, side in zip(rh.all_chips(), itertools.cycle("mnk"), strict=False):
        sides = {**sides, side: round(10 ** chosen.uniform(0, 5))}
        dtype = chosen.choice([*chip.matrix, *chip.vector])
        settings.append({"chip": chip.key, "dtype": dtype, "changed": side, **sides})
    return settings


def test_cards_of_the_memory_wall_are_those_of_python(shown: Shown) -> None:
    host = shown("memory-wall")
    host.get_by_label("Achieved (TFLOP/s)").fill("7")
    settings = wall_settings()
    typed = []
    for setting in settings:
        side = setting["changed"]
        fields = {"Chip": setting["chip"], "Data type": setting["dtype"]}
        typed.append({**fields, side.upper(): str(setting[side])})
    for setting, shown_there in zip(settings, fill(host, typed), strict=True):
        roof = rh.chip(setting["chip"]).roofline(setting["dtype"])
        job = rh.work.matmul(setting["m"], setting["n"], setting["k"], setting["dtype"])
        top = roof.attainable(job.intensity)
        assert shown_there["arithmetic intensity"] == f"{significant(job.intensity)} FLOP/byte"
        assert shown_there["attainable"] == rate(top)
        assert shown_there["regime"] == f"{roof.bound(job.intensity)}-bound"
        share = float(shown_there["share of the peak, at most"].removesuffix(" %")) / 100
        assert share == pytest.approx(top / roof.peak, rel=0.06)
        efficiency = shown_there["achieved of the roof"]
        if roof.efficiency(7e12, job.intensity) < 0.99:
            assert float(efficiency.removesuffix(" %")) == pytest.approx(
                100 * roof.efficiency(7e12, job.intensity), rel=0.06
            )


def design_settings() -> list[dict[str, Any]]:
    chosen = random.Random(11)
    settings = []
    for chip in ("h100", "v5e", "v6e", "orin-nx", "b200", "t4", "mi300x", "h200"):
        half = rh.chip(chip).half
        weights = chosen.choice([half, "int8", "int4"])
        settings.append(
            {
                "chip": chip,
                "model": chosen.choice(serving.MODELS),
                "chips": str(chosen.choice(serving.chip_counts(LLAMA_3_8B, chip))),
                "phase": chosen.choice(["decode", "prefill"]),
                "batch": chosen.choice([1, 3, 16]),
                "context": chosen.choice([512, 2048, 4000]),
                "format": f"{weights}/{half}",
                "cache": chosen.choice([half, "fp8"]),
                "fusion": chosen.choice(list(serving.STRATEGIES)),
                "attention": chosen.choice(["naive", "flash"]),
                "latency": chosen.choice([20, 300]),
                "ceilings": chosen.choice(["published", "reached"]),
                "floor": chosen.choice(["with", "without"]),
                "between": chosen.choice(["travels", "stays"]),
                "kept": chosen.choice([0, 10]),
            }
        )
    return settings


def design_texts(setting: dict[str, Any]) -> tuple[dict[str, str], list[str], list[str], int]:
    """Cards, texts that are said, texts that are not, and rows of the design lab, by Python."""
    weights, activations = setting["format"].split("/")
    asked = {name: setting[name] for name in ("phase", "context", "cache", "fusion", "attention")}
    asked |= {"weights": weights, "activations": activations}
    asked |= {"reached": setting["ceilings"] == "reached", "floor": setting["floor"] == "with"}
    asked |= {"resident": setting["between"] == "stays", "reserve": setting["kept"] / 100}
    asked |= {"chips": int(setting["chips"])}
    one = serving.step(setting["model"], setting["chip"], batch=setting["batch"], **asked)
    needed = one.memory.total + one.memory.reserve
    several = one.setting.chips > 1
    each = " of each chip" if several else ""
    present = [
        f"Memory{each}: {rh.si(needed, 'B')} of {rh.si(one.memory.capacity, 'B')}.",
        f"KV cache {rh.si(one.memory.cache, 'B')}",
    ]
    when = "time per token" if setting["phase"] == "decode" else "time to the first token"
    if one.fits:
        cards = {"tokens per second": significant(one.tokens_per_second)}
        cards[when] = rh.si(one.seconds, "s")
        absent = ["Out of memory"]
        if several:
            present.append(
                f"{significant(one.tokens_per_second / one.setting.chips)} tokens/s a chip"
            )
            present.append(f"all-reduces {rh.si(one.comms, 's')}")
    else:
        cards, absent = {"tokens per second": "–", when: "–"}, []
        present.append(f"Out of memory: {rh.si(needed, 'B')} needed")
        present += [f"Batch {one.largest_batch():,}"] if one.largest_batch() else []
        present += [f"{one.fewest_chips()} chips"] if one.fewest_chips() else []
    if setting["phase"] == "prefill":  # the target is one of a token
        return (
            cards,
            present,
            [*absent, "Best batch within", "No batch fits and meets"],
            len(one.kernels) + several,
        )
    latency = setting["latency"] / 1e3
    best = serving.best_batch(setting["model"], setting["chip"], latency=latency, **asked)
    present.append(
        f"{best.setting.batch:,}, {significant(best.tokens_per_second)} tokens/s."
        if best
        else "No batch fits and meets"
    )
    return cards, present, absent, len(one.kernels) + several


def test_cards_of_the_design_are_those_of_python(shown: Shown) -> None:
    host = shown("design")
    problems = []
    for setting in design_settings():
        again(host, "design", setting)
        wanted, present, absent, rows = design_texts(setting)
        text, shown_there = host.locator(".act").inner_text(), cards(host)
        wrong = [name for name, value in wanted.items() if shown_there.get(name) != value]
        wrong += [one for one in present if one not in text] + [
            one for one in absent if one in text
        ]
        count = host.locator("details table tbody tr").count()
        wrong += [f"{count} rows of {rows}"] if count != rows else []
        problems += [f"{setting['chip']}: {one}" for one in wrong]
    assert not problems, "\n".join(problems)


def test_a_chip_of_one_s_own_runs_the_chain_and_serves(shown: Shown) -> None:
    host = shown("chain", {"chip": "own", "peak": 500, "memory": 2000, "bc": "yes"})
    apart = rh.work.fusion_chain(65536, 4096, "bf16")
    two = [apart[0], rh.fuse(*apart[1:3]), apart[3]]
    assert card(host, "least time") == rh.si(rh.total(*two).bytes / 2e12, "s")
    own = {"chip": "own", "peak": 500, "memory": 2000, "room": 100, "attention": "flash"}
    host = shown("design", {**own, "batch": 4, "fusion": "epilogue"})
    h100 = rh.chip("h100")

    def figures(of_chip: Any, value: float) -> Any:
        return {name: replace(each, value=value) for name, each in of_chip.items()}

    memory = h100.memory["hbm"]
    hbm = replace(
        memory,
        bandwidth=replace(memory.bandwidth, value=2e12),
        capacity=replace(memory.capacity, value=100e9),
    )
    mine = replace(
        h100, matrix=figures(h100.matrix, 5e14), vector={}, memory={**h100.memory, "hbm": hbm}
    )
    one = serving.step(LLAMA_3_8B, mine, batch=4, fusion="epilogue", floor=False)
    assert card(host, "time per token") == rh.si(one.seconds, "s")
    expect(host).to_contain_text(f"of {rh.si(100e9, 'B')}.")
    expect(host.get_by_label("Your links (GB/s)")).to_be_hidden()
    host.get_by_label("Chips that share it").select_option("4")
    host.get_by_label("Your links (GB/s)").fill("100")
    host.get_by_label("A sum waits (µs)").fill("30")
    each = 30e-6 + 2 * 3 / 4 * 4 * 4096 * 2 / 100e9
    shared = one.but(chips=4)
    assert card(host, "time per token") == rh.si(shared.seconds - shared.comms + 64 * each, "s")
    assert "link=100" in host.page.evaluate("location.hash")
    host.get_by_label("Chip", exact=True).select_option("t4")
    expect(host.get_by_label("Chips that share it").locator("option")).to_have_count(1)


def test_the_chain_counts_as_python_does(shown: Shown) -> None:
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


def test_the_ridges_are_those_of_python(shown: Shown) -> None:
    host = shown("ridges")
    host.get_by_label("Data type").select_option("fp8")
    host.get_by_label("Matmul of size N").fill("900")
    text = host.locator("table").inner_text()
    assert "no fp8" not in text
    host.get_by_label("Chip 2").select_option("a100-80gb")
    assert "no fp8" in host.locator("table").inner_text()
    roof = rh.chip("v7x").roofline("fp8")
    job = rh.work.matmul(900, 900, 900, "fp8")
    row = host.locator("tbody tr").filter(has_text="TPU v7x").inner_text()
    assert significant(roof.ridge) in row
    assert f"{first_compute_bound(roof, 'fp8'):,}" in row
    assert f"{roof.bound(job)}-bound" in row
