"""The build: a warning, a broken link, a missing page fails it, also the second time."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools import books, repository
from tools.site import check_site

FILLER = "A page needs words to count as one that somebody has written. " * 5
Build = Callable[[], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A book of three pages with this book's settings, extensions and style."""
    root = tmp_path / "small"
    shutil.copytree(
        books.ROOT / "book",
        root / "book",
        ignore=lambda folder, names: [
            name
            for name in names
            if name == "__pycache__" or (Path(folder).name == "book" and name.endswith(".md"))
        ],
    )
    config = (books.ROOT / "_config.yml").read_text("utf-8")
    (root / "_config.yml").write_text(config, "utf-8")
    (root / "book/references.bib").write_text("", "utf-8")
    numbers = 'def numbers():\n    return {"ridge": "217", "table": "| a |\\n| - |\\n| 5 |"}\n'
    (root / "book/_ext/page_numbers.py").write_text(numbers, "utf-8")
    toc = "format: jb-book\nroot: index\nchapters:\n  - file: book/one\n  - file: book/two\n"
    (root / "_toc.yml").write_text(toc, "utf-8")
    (root / "index.md").write_text(f"# Small\n\n{FILLER}\n\n[one](book/one.md)\n", "utf-8")
    one = "## Part\n\nThe ridge is {{ ridge }} and $x^2$.\n\n{{ table }}\n"
    (root / "book/one.md").write_text(f"# One\n\n{FILLER}\n\n{one}", "utf-8")
    (root / "book/two.md").write_text(f"# Two\n\n{FILLER}\n\n[part](one.md#part)\n", "utf-8")
    return root


@pytest.fixture
def build(small: Path) -> Build:
    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tools.site.build", "--root", str(small)]
        return subprocess.run(command, cwd=books.ROOT, capture_output=True, text=True)

    return run


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text("utf-8") + "\n" + text + "\n", "utf-8")


def test_a_sound_book_is_built_and_a_rebuild_is_quick(small: Path, build: Build) -> None:
    done = build()
    assert done.returncode == 0, done.stdout + done.stderr
    page = (small / "_build/html/book/one.html").read_text("utf-8")
    assert "The ridge is 217" in page
    assert "<td><p>5</p></td>" in page
    assert "<math" in page
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in page
    assert not re.search(r"thebe|bootstrap|fontawesome|mathjax\b", page, re.IGNORECASE)
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert build().returncode == 0
    done = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.ru_utime - begun.ru_utime < 10


def test_with_an_address_the_pages_say_where_they_stand(small: Path, build: Build) -> None:
    path = small / "_config.yml"
    text = path.read_text("utf-8")
    address = repository.Address("https://github.com/Some-One/Guide")
    for mark, lines in repository.config_blocks(address).items():
        text = repository.between(text, mark, lines, "_config.yml")
    path.write_text(text, "utf-8")
    done = build()
    assert done.returncode == 0, done.stdout + done.stderr
    site, base = small / "_build/html", "https://some-one.github.io/Guide/"
    page = (site / "book/one.html").read_text("utf-8")
    assert f'<link rel="canonical" href="{base}book/one.html">' in page
    assert f'<meta property="og:image" content="{base}_static/cards/book-one.png">' in page
    assert 'href="https://github.com/Some-One/Guide/issues"' in page
    places = re.findall("<loc>(.*?)</loc>", (site / "sitemap.xml").read_text("utf-8"))
    assert places == [base, f"{base}book/one.html", f"{base}book/two.html"]
    assert f"Sitemap: {base}sitemap.xml" in (site / "robots.txt").read_text("utf-8")
    assert f"]({base}book/two.html)" in (site / "llms.txt").read_text("utf-8")


def test_without_an_address_they_point_nowhere(small: Path, build: Build) -> None:
    assert build().returncode == 0
    site = small / "_build/html"
    everything = "".join(
        path.read_text("utf-8") for path in site.rglob("*") if path.suffix in {".html", ".txt"}
    )
    assert not re.search(r"github\.(?:com|io)|colab", everything.replace("github.com/stipub", ""))
    assert not (site / "sitemap.xml").exists()


def test_a_changed_number_changes_its_page(small: Path, build: Build) -> None:
    assert build().returncode == 0
    numbers = small / "book/_ext/page_numbers.py"
    numbers.write_text(numbers.read_text("utf-8").replace("217", "218"), "utf-8")
    assert build().returncode == 0
    assert "The ridge is 218" in (small / "_build/html/book/one.html").read_text("utf-8")


def test_a_page_that_leaves_the_contents_leaves_the_site(small: Path, build: Build) -> None:
    assert build().returncode == 0
    toc = small / "_toc.yml"
    toc.write_text(toc.read_text("utf-8").replace("  - file: book/two\n", ""), "utf-8")
    assert build().returncode == 0
    assert not (small / "_build/html/book/two.html").exists()


# What Sphinx warns of, and what only the built pages show: (file, text to append, what is said)
WARNINGS = {
    "unknown role": ("book/two.md", "{nonsense}`x`", "nonsense"),
    "link to no page": ("book/two.md", "[gone](three.md)", "three.md"),
    "link to no place": ("book/two.md", "[gone](one.md#nowhere)", "nowhere"),
    "unknown number": ("book/two.md", "It is {{ no_such_number }}.", "no_such_number"),
    "no picture": ("book/two.md", "![A slope](gone.png)", "gone.png"),
    "unknown formula": ("book/two.md", r"It is $\nosuchcommand{x}$.", "nosuchcommand"),
    "unknown citation": ("book/two.md", "{cite}`nobody2020`", "nobody2020"),
    "no page": ("_toc.yml", "  - file: book/three", "three"),
}
PROBLEMS = {
    "raw link to no page": ("book/two.md", '<a href="four.html">gone</a>', "four.html"),
    "raw link to no place": ("book/two.md", '<a href="one.html#no-such">x</a>', "no-such"),
    "no alt text": ("book/two.md", '<img src="../_static/logo.svg">', "no alt text"),
    "file name as alt": ("book/one.md", "![logo.svg](_static/logo.svg)", "has a file name"),
    "script": ("book/two.md", '<script src="https://a.example/x.js"></script>', "a.example"),
    "module": (
        "book/two.md",
        '<script type="module">import x from "https://b.example/x.js";</script>',
        "b.example",
    ),
    "frame": ("book/two.md", '<iframe src="//c.example/x"></iframe>', "c.example"),
    "font": ("book/_static/book.css", '@import url("https://d.example/x.css");', "d.example"),
    "import": ("book/_static/book.css", '@import "https://e.example/x.css";', "e.example"),
    "id twice": ("book/two.md", '<b id="b1">a</b> <b id="b1">b</b>', "'b1' stands there twice"),
}


@pytest.mark.parametrize("broken", [WARNINGS, PROBLEMS], ids=["warnings", "problems"])
def test_whatever_is_broken_is_said_and_fails_each_time(
    broken: dict[str, tuple[str, str, str]], small: Path, build: Build
) -> None:
    for name, text, _ in broken.values():
        append(small / name, text)
    for _ in range(2):
        done = build()
        assert done.returncode != 0, done.stdout
        said = done.stdout + done.stderr
        assert [what for what, (_, _, sign) in broken.items() if sign not in said] == []
        assert not (small / "_build/html/index.html").exists()


@pytest.mark.parametrize("one", ["unknown role", "no page", "raw link to no place"])
def test_one_broken_thing_is_enough(one: str, small: Path, build: Build) -> None:
    name, text, sign = {**WARNINGS, **PROBLEMS}[one]
    append(small / name, text)
    done = build()
    assert done.returncode != 0
    assert sign in done.stdout + done.stderr


@pytest.mark.parametrize(("name", "text"), [("book/two.md", "# Two\n"), ("index.md", "")])
def test_a_page_without_words_fails(name: str, text: str, small: Path, build: Build) -> None:
    (small / name).write_text(text, "utf-8")
    assert build().returncode != 0


def test_a_warning_after_a_good_build_fails_each_time(small: Path, build: Build) -> None:
    assert build().returncode == 0
    append(small / "book/two.md", "{nonsense}`x`")
    assert build().returncode != 0
    assert build().returncode != 0


def test_an_emptied_site_is_noticed(small: Path, build: Build) -> None:
    assert build().returncode == 0
    site, names = small / "_build/html", books.pages(small)
    assert check_site.check(site, names) == []
    (site / "index.html").write_text("", "utf-8")
    assert check_site.check(site, names) != []
