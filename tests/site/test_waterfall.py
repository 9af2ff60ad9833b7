"""The front page's waterfall, and the summary's table of causes, are what the package has."""

from __future__ import annotations

import re

import page_numbers
import pytest
from page_figures import slow_step

from roofline_helpers.explain import CAUSES
from tools import books
from tools.site import waterfall


def test_the_picture_shows_the_record() -> None:
    assert waterfall.differing() == [], "run python -m tools.site.waterfall"


@pytest.mark.parametrize("theme", waterfall.PICTURES)
def test_the_picture_needs_no_style_sheet_and_has_every_bar(theme: str) -> None:
    drawn = waterfall.picture(theme)
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
