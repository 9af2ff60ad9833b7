"""What a reading of the chapters after the eighth found wrong, against programs and records."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import roofline_helpers as rh
from roofline_helpers import compiled
from roofline_helpers.ask.bank import ChoiceEntry, bank
from tools import books
from tools.notebooks import run as notebooks

LENGTHS = (128, 256, 512, 1024)
ATTENTION: dict[str, Any] = {"batch": 4, "heads": 32, "head_dim": 128}


@cache
def text(name: str) -> str:
    """Return a chapter's prose, its figures' captions and alt texts."""
    cells = notebooks.load(books.ROOT / f"notebooks/{name}.ipynb").cells
    prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
    drawn = [str(cell.metadata.get("mystnb", "")) for cell in cells]
    return "\n".join([*prose, *drawn])


@cache
def kept() -> dict[tuple[str, str], Any]:
    return {**compiled.records()}


def tail(report: Any) -> float:
    """Return a report's cycles over its roof."""
    return float(report.cycle_seconds / report.time_at_roof)


def options(key: str) -> tuple[Any, ...]:
    entry = bank()[key].entry
    assert isinstance(entry, ChoiceEntry)
    return tuple(entry.options)


# --- exponentials ---------------------------------------------------------------------------------


def test_cycles_do_not_show_exponentials() -> None:
    """The control: sums and maxima without an exponential are farther from the roof."""
    above = {name: tail(kept()[f"control-{name}", "v6e"]) for name in ("sum", "max", "exp-sum")}
    assert min(above["sum"], above["max"]) > 2 * above["exp-sum"] > 4
    (right,) = (one.text for one in options("yf-cycles") if one.right)
    assert "no exponential" in right


def test_nothing_is_diagnosed_from_cycles() -> None:
    page = text("your-function")
    assert "bound by the vector unit" not in page
    assert "whichever is larger" not in page
    assert "max(kernel.roof_seconds" not in str(notebooks.load(path("your-function")))


# --- where attention's scores are -----------------------------------------------------------------


@pytest.mark.parametrize(("chip", "stays"), [("v5e", 512), ("v6e", 512), ("v7x", 256)])
def test_short_scores_stay_on_the_chip(chip: str, stays: int) -> None:
    for length in LENGTHS:
        least = rh.work.flash_attention(q_len=length, **ATTENTION).bytes
        travels = rh.total(*rh.work.naive_attention(q_len=length, **ATTENTION)).bytes
        moved = kept()[f"attention-{length}", chip].hbm_bytes
        assert (moved < 1.6 * least) == (length <= stays), length
        assert (moved > 0.7 * travels) == (length > stays), length


def test_attention_is_memory_bound_only_from_some_length_on() -> None:
    page = text("attention")
    assert "memory-bound at every length" not in page
    assert "128 tokens the roof doubles" not in page


# --- Pallas, Triton, lengths, SparseCores ---------------------------------------------------------


def test_pallas_has_two_ways_to_a_gpu() -> None:
    assert "Triton, through which Pallas compiles" not in text("fused-kernel")
    assert "Mosaic GPU" in text("fused-kernel")
    assert "second backend" not in text("fusion-measured")


def test_attention_s_lengths_have_an_end() -> None:
    """Keys and values of one head, held twice, fill VMEM where the compiler refuses the kernel."""
    assert "any lengths" not in text("fused-attention")
    for chip, refused in {"v5e": 131072, "v6e": 131072, "v7x": 65536}.items():
        vmem = rh.chip(chip).per_device().memory["vmem"].capacity.value
        assert 2 * 2 * refused * 128 * 2 >= vmem > 2 * 2 * refused // 2 * 128 * 2
        assert str(refused) in text("fused-attention")


def test_v7x_is_not_alone_with_sparsecores() -> None:
    assert "v7x has units of its own" not in text("compiler-fusion")


# --- figures of more than they hold ---------------------------------------------------------------


def test_no_stall_is_claimed_without_a_counter() -> None:
    story = next(p for p in text("fusion-measured").split("\n\n") if "waits for its threads" in p)
    assert "no counter of stalls was read" in story


def test_the_gap_that_the_copy_engine_closes_is_a_range() -> None:
    said = [one.feedback for one in options("fm-tma")]
    assert not any("{closed" in one for one in said)
    assert any("{least:.0%}" in one and "{most:.0%}" in one for one in said)


def test_both_write_streams_are_shown() -> None:
    source = str(notebooks.load(path("measure")))
    assert '("read", "write", "copy", "triad")' in source


def test_five_charts_are_one() -> None:
    cells = notebooks.load(path("compiler-fusion")).cells
    assert sum("rh.plot.traffic(" in cell.source for cell in cells) == 1


# --- the design lab -------------------------------------------------------------------------------


def test_launches_gain_more_than_a_narrow_cache_and_bytes_do_not() -> None:
    plain: dict[str, Any] = {"fusion": "none", "attention": "naive"}
    today = rh.serving.step(rh.serving.LLAMA_3_8B, "h100", batch=8, context=2048, **plain)
    fused = {"fusion": "epilogue", "attention": "flash"}

    def gain(start: Any, **change: Any) -> float:
        return float(start.but(**change).tokens_per_second / start.tokens_per_second)

    assert gain(today, **fused) > gain(today, cache="int8") > 1.03
    bare = today.but(floor=False)
    assert gain(bare, **fused) < 1.03 < gain(bare, cache="int8")
    assert "fused kernels don't" not in text("lab-design-challenge")


def test_the_wall_keeps_its_ratio_until_it_is_asked() -> None:
    """The share of the roof is no output in view, but what a question unlocks."""
    cells = notebooks.load(path("lab-memory-wall")).cells
    shown = [str(o.get("text", "")) for c in cells for o in c.get("outputs", [])]
    assert not any("55%" in one for one in shown)


# --- what is quoted is what is there --------------------------------------------------------------


def test_quoted_triton_is_the_example_s() -> None:
    example = (books.ROOT / "examples/torch_chain.py").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text("fused-kernel"), re.DOTALL)
    assert len(blocks) >= 5
    assert [block for block in blocks if block not in example] == []


def test_quoted_changes_are_the_ladder_s() -> None:
    folder = books.ROOT / "examples/llama_decode"
    example = "".join((folder / name).read_text("utf-8") for name in ("model.py", "steps.py"))
    blocks = re.findall(r"```python\n(.*?)```", text("decode-step-made-fast"), re.DOTALL)
    assert len(blocks) >= 5
    assert [block for block in blocks if bare(block) not in bare(example)] == []


def bare(code: str) -> str:
    """Return code without its indentation: what is quoted begins at the left."""
    return "".join(f"{line.strip()}\n" for line in code.splitlines())


def path(name: str) -> Path:
    return books.ROOT / f"notebooks/{name}.ipynb"
