"""The front page's waterfall, and the summary's table of causes, are what the package has."""

from __future__ import annotations

import re

import pytest

import page_figures
import page_numbers
from roofline_helpers.device import CAUSES
from roofline_helpers.device.findings import Cause
from tools import books
from tools.notebooks import run as notebooks


def test_the_front_page_s_waterfall_is_the_record_s() -> None:
    steps, why = page_figures.waterfall(), page_figures.slow_step()
    assert sum(steps.values()) == pytest.approx(why.wall)
    assert steps[page_figures.HAND] == why.hand
    assert min(steps.values()) > 0
    copies = [row.least for row in why.kernels if row.what.endswith("of cache[0][0]")]
    assert 0.9 < sum(copies) / steps[page_figures.BYTES] < 1


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
    "ragged": "ragged_dot",
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
