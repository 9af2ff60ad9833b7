"""Chapters follow each other, and their first ones' code runs as it stands."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from conclusions import PAGES, path, prose

import roofline_helpers as rh
from roofline_helpers.pages.questions import bank
from tools import books
from tools.notebooks import run as notebooks

CHAPTERS = [path.stem for path in books.notebooks()]


def test_pages_call_chapters_by_their_numbers():
    """`make notebooks` writes them, into links only: what has no link would stay when they move."""
    for page in PAGES:
        text = prose(Path(page).name)
        assert books.numbered(text) == text, f"{page}: `make notebooks` writes the numbers"
        assert not re.search(r"(?<!\[)\b[Cc]hapters?\s\d", text), page
    for key, asked in bank().items():
        assert not re.search(r"\b[Cc]hapters?\s\d", str(asked.entry)), key


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_needs_only_what_came_before_and_leads_to_what_comes_next(name):
    order = [Path(page).name for page in PAGES]
    text = prose(name)
    needs = re.search(r"\*\*What you need:?\*\*:?(.*)", text)
    assert needs, f"{name} has no paragraph that begins with **What you need:**"
    for linked in re.findall(r"\]\((?:[\w./-]*/)?([\w-]+)\.(?:ipynb|md)", needs[1]):
        assert order.index(linked) < order.index(name), f"{name} needs {linked}"
    after = re.search(r"^Next: \[.*?\]\((?:[\w./-]*/)?([\w-]+)\.(?:ipynb|md)", text, re.MULTILINE)
    assert after
    if name != "self-test":  # the last one leads to the summary
        assert after[1] == order[order.index(name) + 1]


@pytest.mark.parametrize("closed", [notebooks.FOLDS, notebooks.FOLDS - {"hide-input"}])
@pytest.mark.parametrize("name", CHAPTERS[:4])
def test_who_types_the_code_in_view_can_run_it(monkeypatch, name, closed):
    """Also with the folded cells, but never with those that the page doesn't have."""
    monkeypatch.setattr(rh.pages, "question", lambda *_, **__: None)  # it reads IPython's names
    cells = [cell for cell in notebooks.load(path(name)).cells if cell.cell_type == "code"]
    typed = [cell.source for cell in cells if not closed & set(cell.metadata.get("tags", []))]
    with plt.rc_context():
        exec("\n".join(typed), {})
        plt.close("all")
