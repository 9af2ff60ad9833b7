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
from roofline_helpers.lab.design import TODAY
from roofline_helpers.show import significant
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


TOLD = {
    "attention": (
        "written once and read twice",
        "writes its scores to VMEM",
        "levels off: at great",
    ),
    "compiler-fusion": ("Softmax: three times", "Mean, variance, result: three", "counts eight"),
    "your-function": ("three kernels of attention, which do few FLOPs", "cause of anything"),
    "fused-kernel": ("the same four tensors, three times",),
    "fusion-measured": (
        "Fusion pays there only",
        "little to gain from its epilogue",
        "bytes predicted the gain",
    ),
    "fused-attention": ("seven products in place of five", "climb with the length"),
    "lab-design-challenge": ("Decode reads all weights for a handful",),
}
"""Of each chapter, words from paragraphs that answer a question."""


@cache
def everything(name: str) -> str:
    """Return what `text` has, and what the chapter's questions say."""
    data = books.ROOT / f"roofline_helpers/data/questions/{name}.toml"
    return text(name) + data.read_text("utf-8")


@cache
def outputs(name: str) -> str:
    """Return what a chapter's cells show as text, before any answer."""
    cells = notebooks.load(books.ROOT / f"notebooks/{name}.ipynb").cells
    made = [one for cell in cells for one in cell.get("outputs", [])]
    return "\n".join(
        str(one.get("text", "") or one.get("data", {}).get("text/plain", "")) for one in made
    )


@cache
def locked(name: str) -> str:
    """Return what a chapter's questions say around what they unlock, on one line."""
    entries = [asked.entry for asked in bank().values() if asked.chapter == name]
    return " ".join(" ".join(f"{entry.above} {entry.below}".split()) for entry in entries)


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
    assert "what its threads wait for, and none was made" in text("fusion-measured")
    assert not re.search(
        r"reduces it twice|programs fill in|during the waits", everything("fusion-measured")
    )


def test_a_clock_is_held_against_ceilings_that_were_reached() -> None:
    """Of attention the ratio by those is the clock's within a tenth; by published ones it isn't."""
    for name in ("attention", "fused-attention"):
        assert "a factor of four to five" not in everything(name)
    record = rh.measure.measured()["h100"]
    naive, flash = (
        record.sample(f"{kind} attention 2×16×8192×128 bf16", source).seconds
        for kind, source in (("naive", "jax"), ("flash", "torch"))
    )

    def by_roof(reached: bool | str) -> float:
        roof = rh.chip("h100").roofline("bf16", reached=reached)
        size = ATTENTION | {"q_len": 8192}
        fused = rh.work.flash_attention(**size)
        return float(roof.time(*rh.work.naive_attention(**size)) / roof.time(fused))

    assert abs(naive / flash / by_roof(reached="copy") - 1) < 0.1
    assert by_roof(reached=False) > 1.3 * naive / flash


def test_one_yardstick_counts_what_is_needed() -> None:
    """PyTorch's ten tensors op by op are no better use of the memory than four in one kernel."""
    shown = outputs("fused-kernel")
    (row,) = (line for line in shown.splitlines() if line.startswith("PyTorch, op by op"))
    record = rh.measure.measured()["h200"]
    needed = 4 * 65536 * 4096 * 2
    taken = record.sample("chain op by op 65536×4096 bf16", "torch").seconds
    share = needed / taken / record.streams["copy"]
    assert abs(float(row.split()[-3]) - share) < 1e-3 < 0.45 - share


def test_nothing_tells_before_it_is_asked() -> None:
    """Paragraphs that answer the question above them are what it unlocks."""
    shown = {name: text(name) + outputs(name) for name in TOLD}
    assert [
        (n, words) for n, all_of_it in TOLD.items() for words in all_of_it if words in shown[n]
    ] == []
    assert [
        n for n, all_of_it in TOLD.items() for words in all_of_it if words not in locked(n)
    ] == []


def test_the_gap_that_the_copy_engine_closes_is_a_range() -> None:
    feedback = [one.feedback for one in options("fm-tma")]
    assert not any("{closed" in one for one in feedback)
    assert any("{least:.0%}" in one and "{most:.0%}" in one for one in feedback)


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


def test_the_design_lab_s_python_has_the_settings_of_the_page() -> None:
    cells = notebooks.load(path("lab-design-challenge")).cells
    (source,) = (cell.source for cell in cells if "server = {" in cell.source)
    told: dict[str, Any] = {"rh": rh}
    exec(source, told)
    step = rh.serving.step(rh.serving.LLAMA_3_8B, "h100", **TODAY)
    assert told["today"].seconds == step.seconds
    assert told["today"].memory.reserve == step.memory.reserve
    story = significant(step.tokens_per_second)
    assert f"{story} tokens per second" in outputs("lab-design-challenge")


def test_the_wall_keeps_its_ratio_until_it_is_asked() -> None:
    """The share of the roof is no output in view, but what a question unlocks."""
    cells = notebooks.load(path("lab-memory-wall")).cells
    shown = [str(o.get("text", "")) for c in cells for o in c.get("outputs", [])]
    assert not any("55%" in one for one in shown)


# --- what the sources have ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "compiler-fusion": ("kInput", "kOutput", "TorchInductor", "TVM"),
        "your-function": ("## Decide", "cycles per ns"),
        "fused-kernel": ("autograd.Function", "Module", "persistent", "split-K"),
        "fusion-measured": ("TORCH_LOGS", "## Ten patterns", "## Small sizes", "tl.store"),
        "fused-attention": ("dS = P", "## The gradient"),
        "hardware-comparison": ('rh.chip("v7x").roofline("fp8")',),
        "misconceptions": ("distance to its own ceiling",),
        "arithmetic-intensity": ("count it as one",),
    }.items(),
)
def test_what_a_reader_of_the_sources_looks_for_is_there(name: str, words: tuple[str, ...]) -> None:
    cells = notebooks.load(path(name)).cells
    there = text(name) + outputs(name) + "".join(cell.source for cell in cells)
    assert [one for one in words if one not in there] == []


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
