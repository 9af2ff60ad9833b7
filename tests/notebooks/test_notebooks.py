"""The notebooks' contract, as far as reading the files shows it (nbval and pictures: elsewhere)."""

import functools
import re

import pytest

from tools import books, repository
from tools.notebooks import run as notebooks

ALL = books.notebooks()
IDS = [path.stem for path in ALL]
WIDE = 72  # characters of a line

# Colab and JupyterLab show these raw
RAW = re.compile(r":::|```\{|\{(cite|ref|numref|doc|term|eq|math|download)(:\w+)?\}`|\{\{")

pytestmark = pytest.mark.parametrize("path", ALL, ids=IDS)


@functools.cache
def load(path):
    """Read a notebook, for all tests that look at it and change nothing."""
    return notebooks.load(path)


def code_cells(path):
    return [cell for cell in load(path).cells if cell.cell_type == "code"]


def prose(path):
    cells = load(path).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def has_picture(cell):
    return any("image/png" in output.get("data", {}) for output in cell.outputs)


def test_is_as_make_notebooks_leaves_it(path):
    assert notebooks.check([path]) == []


def lines(cell):
    return [line for line in cell.source.split("\n") if line.strip()]


def test_cells_fit_the_page(path):
    wide = {
        cell.id: line
        for cell in code_cells(path)
        for line in lines(cell)
        if len(line) > WIDE and cell.id != notebooks.SETUP_ID
    }
    assert not wide, f"lines of more than {WIDE} characters: {wide}"


def test_pictures_have_alt_text_caption_and_name(path):
    problems = []
    for cell in code_cells(path):
        if not has_picture(cell):
            continue
        meta = cell.metadata.get("mystnb", {})
        alt = meta.get("image", {}).get("alt", "")
        figure = meta.get("figure", {})
        if len(alt) < 40:
            problems.append(f"{cell.id}: alt text of {len(alt)} characters: {alt!r}")
        if re.search(r"\.(png|svg|jpe?g)\s*$", alt) or re.match(
            r"\s*(an? |the )?(image|plot|picture|figure|graph|chart) of\b", alt, re.IGNORECASE
        ):
            problems.append(f"{cell.id}: alt text says what it is, not what it shows: {alt!r}")
        if len(figure.get("caption", "")) < 20:
            problems.append(f"{cell.id}: no caption: {figure.get('caption')!r}")
        if not re.fullmatch(r"fig-[a-z0-9-]+", figure.get("name", "")):
            problems.append(f"{cell.id}: no name fig-…: {figure.get('name')!r}")
    assert not problems, "\n".join(problems)


def test_first_code_cell_is_the_setup_cell(path):
    first = code_cells(path)[0]
    assert first.id == notebooks.SETUP_ID
    assert first.source == repository.setup_cell(repository.current(books.ROOT))
    assert first.metadata.get("tags") == ["remove-cell"]
    assert first.outputs == []


def test_markdown_reads_the_same_everywhere(path):
    raw = RAW.findall(prose(path))
    assert not RAW.search(prose(path)), f"shown raw in Colab: {raw}"
