"""The page on how the book is built: its picture is of the code's imports, its files are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import books
from tools.site import layers

PAGE = books.ROOT / "book/how-this-is-built.md"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of three rooms: top imports middle, middle imports base."""
    folder = tmp_path / layers.PACKAGE
    (folder / "top").mkdir(parents=True)
    (folder / "__init__.py").write_text("from .middle import x\n", "utf-8")
    (folder / "base.py").write_text("import math\n", "utf-8")
    (folder / "middle.py").write_text(
        "from .base import y\n\n\ndef f():\n    import jax\n", "utf-8"
    )
    (folder / "top/__init__.py").write_text("from .part import z\n", "utf-8")
    (folder / "top/part.py").write_text("from ..middle import x\nfrom .. import base\n", "utf-8")
    return tmp_path


def test_the_picture_shows_what_the_code_imports_now() -> None:
    assert layers.differing() == [], "run python -m tools.site.layers"


def test_rooms_their_imports_and_libraries_are_found(package: Path) -> None:
    graph, libraries = layers.rooms(package)
    assert graph == {"base": set(), "middle": {"base"}, "top": {"base", "middle"}}
    assert libraries == {"base": set(), "middle": {"jax"}, "top": set()}
    assert layers.levels(graph) == {"base": 0, "middle": 1, "top": 2}
    assert layers.needed(graph) == [("middle", "base"), ("top", "middle")]


def test_a_new_import_changes_the_picture(package: Path) -> None:
    before = layers.drawing("light", package)
    base = package / layers.PACKAGE / "base.py"
    base.write_text("if TYPE_CHECKING:\n    from .middle import X\n", "utf-8")
    assert layers.drawing("light", package) == before, "what runs imports nothing more"
    (package / layers.PACKAGE / "top/part.py").write_text("from .. import base\n", "utf-8")
    assert layers.drawing("light", package) != before


def test_a_circle_is_refused(package: Path) -> None:
    (package / layers.PACKAGE / "base.py").write_text("from .top import z\n", "utf-8")
    with pytest.raises(ValueError, match=r"base imports top imports (base|middle imports base)"):
        layers.drawing("light", package)


def test_the_files_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"`([\w./-]+)`", PAGE.read_text("utf-8")))
    paths = {name for name in named if "/" in name or name.startswith("_")} | {"notebooks", "book"}
    assert len(paths) > 15
    missing = [
        name
        for name in paths
        if not (books.ROOT / name).exists() and not (books.ROOT / f"{name}.py").is_file()
    ]
    assert missing == []


def test_modules_and_targets_that_the_page_says_to_run_exist() -> None:
    text = PAGE.read_text("utf-8")
    makefile = (books.ROOT / "Makefile").read_text("utf-8")
    for target in set(re.findall(r"`make (\w+)`", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for module in set(re.findall(r"`python -m ([\w.]+)`", text)):
        assert (books.ROOT / f"{module.replace('.', '/')}.py").is_file(), module
