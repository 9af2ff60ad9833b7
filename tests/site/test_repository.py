"""The repository's address is kept in one place, and everything else follows from it."""

from __future__ import annotations

import re
import shutil
import subprocess
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


def test_notebooks_install_the_commit_that_was_checked_out(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(copy)
    for command in ("init -q", "add -A", "commit -q -m one"):
        who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", "-C", str(copy), *who, *command.split()], check=True)
    commit = repository.checked_out(copy)

    def stamped(*arguments: str) -> str:
        command = ["repository.py", "--root", str(copy), *arguments]
        monkeypatch.setattr("sys.argv", command)
        assert repository.main() == 0
        cells = notebooks.load(books.notebooks(copy)[0]).cells
        return str(next(cell.source for cell in cells if cell.cell_type == "code"))

    assert commit is not None
    assert f"@{commit}" in stamped(URL)
    assert "branch: main" in (copy / "_config.yml").read_text("utf-8")
    assert f"@{commit}" in stamped()
    assert "@v1.0" in stamped(URL, "--ref", "v1.0")
    assert f"@{commit}" in stamped(URL)
    stamped("--unset")
    shutil.rmtree(copy / ".git")
    assert content(copy) == before


def test_a_local_address_sets_no_link_of_the_site(copy: Path) -> None:
    repository.stamp(copy, Address("git+file:///some/where"))
    assert "html_theme_options: {}" in (copy / "_config.yml").read_text("utf-8")
    first = next(iter(books.notebooks(copy)))
    assert "git+file:///some/where@main" in first.read_text("utf-8")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "roofline",
        "http://github.com/a/b",
        "https://github.com/a",
        "https://github.com/a/b/tree/main",
        "https://gitlab.com/a/b",
        "git@github.com:a/b.git",
        'https://github.com/a/b" --index-url x',
        "https://github.com/a/b\nhttps://github.com/c/d",
        "file://relative",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="Allowed"):
        Address(url)


@pytest.mark.parametrize("ref", ["", "-x", "a b", 'main"', "a;b"])
def test_other_branches_are_refused(ref: str) -> None:
    with pytest.raises(ValueError, match="not a branch"):
        Address(URL, ref)


def test_a_lost_mark_is_an_error_and_changes_nothing(copy: Path) -> None:
    path = copy / "README.md"
    path.write_text(path.read_text("utf-8").replace("repository:end", ""), "utf-8")
    before = content(copy)
    with pytest.raises(ValueError, match=r"README\.md"):
        repository.stamp(copy, Address(URL))
    assert content(copy) == before


def test_the_built_site_has_a_colab_button_only_with_an_address(site: Path) -> None:
    address = repository.current(books.ROOT)
    wanted = address is not None and address.slug is not None
    for path in books.notebooks():
        page = site / path.relative_to(books.ROOT).with_suffix(".html")
        assert ("colab.research.google.com" in page.read_text("utf-8")) is wanted, page.name
