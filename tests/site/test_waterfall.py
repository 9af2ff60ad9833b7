"""The front page's waterfall, and the summary's table of causes, are what the package has."""

from __future__ import annotations

import re

import pytest

import page_figures
import page_numbers
from roofline.diagnosis.findings import CAUSES
from tools import books


def test_the_front_page_s_waterfall_is_the_record_s() -> None:
    steps = page_figures.waterfall()
    why = page_figures.slow_step()
    assert sum(steps.values()) == pytest.approx(why.wall)
    assert steps[page_figures.HAND] == why.hand
    assert min(steps.values()) > 0
    copies = [row.least for row in why.kernels if row.title.endswith("of cache[0][0]")]
    assert 0.9 < sum(copies) / steps[page_figures.BYTES] < 1


def test_lost_time_has_one_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    why, drawn = page_figures.slow_step(), []
    monkeypatch.setattr(page_figures.pictures, "draw_bars", lambda _, bars, __: drawn.append(bars))
    monkeypatch.setattr(page_figures.plt.Axes, "set_xlim", lambda *_, **__: None)
    page_figures.draw_waterfall()
    why.plot()
    front, own = ({name: colour for name, _, colour in bars} for bars in drawn)
    lost = {front[page_figures.BYTES], front[page_figures.KERNELS], front[page_figures.REST]}
    assert lost == {
        own[bar.name] for bar in why.waterfall if bar.name in ("the host", "gaps between kernels")
    }
    assert lost == {page_figures.rh.plot.PALETTE["lost"]}


def test_every_cause_is_in_the_summary_with_a_chapter_of_the_book() -> None:
    table = page_numbers.numbers()["cause_table"]
    rows = re.findall(r"^\| (.*) \| (.*) \| \[\]\(\.\./(.*)\.ipynb\) \|$", table, re.MULTILINE)
    expected = [(cause.title.lower(), cause.advice, cause.chapter) for cause in CAUSES.values()]
    assert [(title.lower(), advice, chapter) for title, advice, chapter in rows] == expected
    toc = (books.ROOT / "_toc.yml").read_text("utf-8")
    chapters = set(re.findall(r"file: (\S+)", toc))
    assert {chapter for _, _, chapter in expected} <= chapters
    assert "{{ cause_table }}" in (books.ROOT / "book/summary.md").read_text("utf-8")
