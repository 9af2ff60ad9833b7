"""Instruments and labs in a real browser: their numbers are those of Python."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from labs import Shown, card, cards, fill, rate

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


@pytest.mark.parametrize(
    ("chip", "weights", "batch", "phase"),
    [("h100", "int8", 16, "decode"), ("v6e", "bf16", 3, "decode"), ("b200", "bf16", 1, "prefill")],
)
def test_cards_of_the_design_are_those_of_python(
    shown: Shown, chip: str, weights: str, batch: int, phase: str
) -> None:
    setting = {"chip": chip, "format": f"{weights}/bf16", "batch": batch, "phase": phase}
    rest = {"context": 2048, "cache": "bf16", "fusion": "epilogue", "attention": "flash"}
    how = {"kept": 0, "ceilings": "reached", "floor": "with", "between": "travels"}
    host = shown("design", {**setting, **rest, **how})
    one = serving.step(
        LLAMA_3_8B, chip, batch=batch, phase=phase, weights=weights, reached=True, **rest
    )
    when = "time per token" if phase == "decode" else "time to the first token"
    wanted = {
        "tokens per second": significant(one.tokens_per_second),
        when: rh.si(one.seconds, "s"),
    }
    assert wanted.items() <= cards(host).items()


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
