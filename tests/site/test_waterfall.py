"""The front page's waterfall, and the summary's table of causes, are what the package has."""

from __future__ import annotations

import re

import pytest

import page_numbers
from page_figures import slow_step
from roofline_helpers.explain import CAUSES, Cause
from tools import books
from tools.notebooks import run as notebooks
from tools.site import pictures


def test_the_picture_shows_the_record() -> None:
    for name, content in pictures.waterfalls().items():
        same = (books.ROOT / name).read_bytes() == content
        assert same, f"{name}: run python -m tools.site.pictures"


@pytest.mark.parametrize("kind", pictures.WATERFALLS.values(), ids=str)
def test_the_picture_needs_no_style_sheet_and_has_every_bar(kind: tuple[str, bool]) -> None:
    drawn = pictures.waterfall(*kind)
    assert "var(" not in drawn
    used = set(re.findall(r'<rect[^>]* class="(\w+)"', drawn))
    assert used <= set(re.findall(r"\.(\w+)\{fill", drawn))
    assert drawn.count("<rect") == len(slow_step().waterfall) + 1
    assert len(drawn) < 6000  # it is on the front page


def test_every_cause_is_in_the_summary_with_a_chapter_of_the_book() -> None:
    table = page_numbers.numbers()["cause_table"]
    rows = re.findall(r"^\| (.*) \| (.*) \| \[\]\(\.\./(.*)\.ipynb\) \|$", table, re.MULTILINE)
    expected = [(cause.title.lower(), cause.advice, cause.chapter) for cause in CAUSES.values()]
    assert [(title.lower(), advice, chapter) for title, advice, chapter in rows] == expected
    toc = (books.ROOT / "_toc.yml").read_text("utf-8")
    chapters = set(re.findall(r"file: (\S+)", toc))
    assert {chapter for _, _, chapter in expected} <= chapters
    assert "{{ cause_table }}" in (books.ROOT / "book/summary.md").read_text("utf-8")


TAUGHT = {
    "layout-copy": "order|layout",
    "reshape": "reshape that changes",
    "relaid-weights": "laid out anew",
    "scan-copy": "scan",
    "carry-copy": "jnp.take",
    "growing-carry": "concatenate",
    "not-donated": "donat",
    "fresh-results": "clears each new page",
    "float32": "fp32|float32",
    "float64": "float64",
    "unfused": "fus",
    "split-reduction": "row",
    "scores": "scores",
    "logits": "logits",
    "attention": "cuDNN|flash",
    "recomputed": "jax.checkpoint",
    "gather": "gather",
    "sort": "top_k",
    "one-hot": "one-hot",
    "small-product": "Padding",
    "vector-product": "einsum",
    "short-kernels": "launches",
    "tail": "wave",
    "host": "host",
    "dispatch": "host",
    "transfer": "Transfers",
    "compiling": "Compiling",
    "communication": "all-gather",
    "below-roof": "above their roof",
    "memory-bound": "fusion",
    "compute-bound": "matrix unit",
    "vector-bound": "exponential|erf|elementwise",
    "depends": "no verdict, unless both ends",
    "launch-bound": "launch",
    "no-roof": "ceilings",
}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.key)
def test_the_chapter_of_a_cause_is_about_it(cause: Cause) -> None:
    cells = notebooks.load(books.ROOT / f"{cause.chapter}.ipynb").cells
    text = "\n".join(cell.source for cell in cells)
    assert re.search(TAUGHT[cause.key], text)
