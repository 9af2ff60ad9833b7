"""Notebooks say where they install the package from, once somebody has said it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools import books, repository
from tools.notebooks import run as notebooks

URL = "https://github.com/someone/roofline-guide"
SOME = 3  # notebooks of the copy: the shortest ones


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Some notebooks in a folder of their own, without an address."""
    (tmp_path / "notebooks").mkdir()
    contents = ["format: jb-book", "root: index", "chapters:"]
    for path in sorted(books.notebooks(), key=lambda one: one.stat().st_size)[:SOME]:
        shutil.copy(path, tmp_path / "notebooks")
        contents.append(f"  - file: notebooks/{path.stem}")
    (tmp_path / "_toc.yml").write_text("\n".join(contents) + "\n", "utf-8")
    repository.stamp(tmp_path, None)
    return tmp_path


def test_all_notebooks_of_this_repository_agree() -> None:
    source = repository.setup_cell(repository.current(books.ROOT))
    cells = [notebooks.setup(notebooks.load(path)).source for path in books.notebooks()]
    assert {*cells} == {source}


def test_an_address_reaches_every_notebook_and_goes_again(copy: Path) -> None:
    paths = books.notebooks(copy)
    before = [path.read_bytes() for path in paths]
    problems = notebooks.check(paths)
    assert repository.current(copy) is None
    repository.stamp(copy, repository.source(f"{URL}.git", "v1"))
    assert repository.current(copy) == f"{URL}@v1"
    for path in paths:
        first = notebooks.setup(notebooks.load(path))
        assert f'%pip install --quiet "roofline_helpers[plots] @ git+{URL}@v1"' in first.source
    assert notebooks.check(paths) == problems
    repository.stamp(copy, None)
    assert [path.read_bytes() for path in paths] == before
