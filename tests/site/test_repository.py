"""The repository's address is kept in one place, and everything else follows from it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tools import books, repository
from tools.notebooks import run as notebooks
from tools.repository import Address

URL = "https://github.com/someone/roofline-guide"
NAMES = ["_config.yml", "README.md", "CITATION.cff", "pyproject.toml"]
SOME = 3  # notebooks of the copy: the shortest ones


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that hold the address, in a folder of their own, without one."""
    for name in NAMES:
        shutil.copy(books.ROOT / name, tmp_path / name)
    (tmp_path / "notebooks").mkdir()
    contents = ["format: jb-book", "root: index", "chapters:"]
    for path in sorted(books.notebooks(), key=lambda one: one.stat().st_size)[:SOME]:
        shutil.copy(path, tmp_path / "notebooks")
        contents.append(f"  - file: notebooks/{path.stem}")
    (tmp_path / "_toc.yml").write_text("\n".join(contents) + "\n", "utf-8")
    repository.stamp(tmp_path, None)
    assert len(books.notebooks(tmp_path)) == SOME
    return tmp_path


def content(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_all_places_of_this_repository_agree() -> None:
    stamped = repository.texts(books.ROOT, repository.current(books.ROOT))
    off = [path.name for path, text in stamped.items() if path.read_text("utf-8") != text]
    assert not off, f"`make repository` puts these right: {off}"


def test_without_an_address_nothing_points_anywhere(copy: Path) -> None:
    assert repository.current(copy) is None
    address = re.compile(r"github\.com/(?!OWNER/)|colab\.research|github\.io|git\+")
    for name, raw in content(copy).items():
        text = raw.decode("utf-8")
        if name.endswith(".ipynb"):
            cells = notebooks.load(copy / name).cells
            text = next(cell.source for cell in cells if cell.cell_type == "code")
        assert not address.search(text), name


@pytest.mark.parametrize("url", [URL, f"{URL}.git", f"{URL}/"])
def test_an_address_reaches_every_place(copy: Path, url: str) -> None:
    before = notebooks.check(books.notebooks(copy))
    repository.stamp(copy, Address(url))
    config = (copy / "_config.yml").read_text("utf-8")
    assert f"url: {URL}\n" in config
    assert f"repository_url: {URL}\n" in config
    assert "html_baseurl: https://someone.github.io/roofline-guide/\n" in config
    assert f'Repository = "{URL}"' in (copy / "pyproject.toml").read_text("utf-8")
    assert f"repository-code: {URL}" in (copy / "CITATION.cff").read_text("utf-8")
    readme = (copy / "README.md").read_text("utf-8")
    assert "/github/someone/roofline-guide/blob/main/notebooks/" in readme
    for path in books.notebooks(copy):
        first = next(cell for cell in notebooks.load(path).cells if cell.cell_type == "code")
        assert f'%pip install --quiet "roofline_helpers[plots] @ git+{URL}@main"' in first.source
    assert notebooks.check(books.notebooks(copy)) == before


def test_stamping_twice_changes_nothing_and_unset_gives_the_bytes_back(copy: Path) -> None:
    before = content(copy)
    assert repository.stamp(copy, Address(URL, "v1"))
    stamped = content(copy)
    assert repository.stamp(copy, repository.current(copy)) == []
    assert content(copy) == stamped
    repository.stamp(copy, Address("https://github.com/another/name"))
    repository.stamp(copy, None)
    assert content(copy) == before


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://github.com/a/b",
        "https://github.com/a/b/tree/main",
        "https://gitlab.com/a/b",
        'https://github.com/a/b" --index-url x',
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="Allowed"):
        Address(url)


def test_the_built_site_has_a_colab_button_only_with_an_address(site: Path) -> None:
    address = repository.current(books.ROOT)
    wanted = address is not None and address.slug is not None
    for path in books.notebooks():
        page = site / path.relative_to(books.ROOT).with_suffix(".html")
        assert ("colab.research.google.com" in page.read_text("utf-8")) is wanted, page.name
