"""The build: a warning, a broken link, a missing page fails it."""

from __future__ import annotations

import base64
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image

from tools import books, repository
from tools.site import check_site

ALT = "A line that rises to the right and then stays level."
FILLER = "A page needs words to count as one that somebody has written. " * 5
FRAME = (
    '<div><style scoped>td {color: red}</style><table border="1" class="dataframe"><thead>'
    '<tr style="text-align: right;"><th></th><th>GB/s</th></tr></thead>'
    "<tbody><tr><th>H100</th><td>3,350</td></tr></tbody></table></div>"
)


def png() -> str:
    file = io.BytesIO()
    Image.new("RGB", (120, 80), "white").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def notebook() -> str:
    """A notebook with an open cell, a folded one with a figure, and a question without code."""
    asked = (
        """<roofline-ask data-kind="question" data-json='{"a":"b"}'><p>Why?"""
        f'</p><img alt="A slope" src="data:image/png;base64,{png()}"></roofline-ask>\n'
        '<script type="module" data-roofline>start()</script>'
    )
    shown = {"html": FRAME, "figure": png(), "question": asked}
    mimes = {"html": "text/html", "figure": "image/png", "question": "text/html"}
    cells = [nbformat.v4.new_markdown_cell(f"# Cells\n\n{FILLER}")]
    for name, data in shown.items():
        cell = new_code_cell(f"# the code of the {name}\nx = 1", id=name, execution_count=1)
        cell.outputs = [new_output("display_data", {mimes[name]: data})]
        if name != "html":
            cell.metadata["tags"] = ["remove-input" if name == "question" else "hide-input"]
        cells.append(cell)
    cells[2].metadata["mystnb"] = {
        "image": {"alt": ALT},
        "figure": {"caption": "A roof.", "name": "fig-a"},
    }
    language = {"name": "python", "pygments_lexer": "ipython3"}
    return nbformat.writes(new_notebook(cells=cells, metadata={"language_info": language}))


class Book:
    """A book of four pages with this book's settings, extensions and theme."""

    def __init__(self, root: Path) -> None:
        self.root, self.site = root, root / "_build/html"

        def left_out(folder: str, names: list[str]) -> list[str]:
            pages = Path(folder).name == "book"
            return [n for n in names if n == "__pycache__" or (pages and n.endswith(".md"))]

        shutil.copytree(books.ROOT / "book", root / "book", ignore=left_out)
        shutil.copy(books.ROOT / "_config.yml", root)
        (root / "book/references.bib").write_text("", "utf-8")
        numbers = 'def numbers():\n    return {"ridge": "217", "table": "| a |\\n| - |\\n| 5 |"}\n'
        (root / "book/_ext/page_numbers.py").write_text(numbers, "utf-8")
        toc = ["format: jb-book", "root: index", "chapters:"]
        toc += [f"  - file: book/{name}" for name in ("one", "two", "cells")]
        (root / "_toc.yml").write_text("\n".join(toc) + "\n", "utf-8")
        (root / "index.md").write_text(f"# Small\n\n{FILLER}\n\n[one](book/one.md)\n", "utf-8")
        one = "## Part\n\nThe ridge is {{ ridge }} and $x^2$.\n\n{{ table }}\n"
        (root / "book/one.md").write_text(f"# One\n\n{FILLER}\n\n{one}", "utf-8")
        (root / "book/two.md").write_text(f"# Two\n\n{FILLER}\n\n[part](one.md#part)\n", "utf-8")
        (root / "book/cells.ipynb").write_text(notebook(), "utf-8")

    def build(self) -> tuple[int, str]:
        """Build it; return the exit status and what was said."""
        command = [sys.executable, "-m", "tools.site.build", str(self.root)]
        done = subprocess.run(command, cwd=books.ROOT, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    @contextmanager
    def changed(self, edits: dict[str, Callable[[str], str]]) -> Iterator[None]:
        """Change files while the block runs."""
        before = {name: (self.root / name).read_text("utf-8") for name in edits}
        for name, edit in edits.items():
            (self.root / name).write_text(edit(before[name]), "utf-8")
        yield
        for name, text in before.items():
            (self.root / name).write_text(text, "utf-8")


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    """The small book. A test that changes its files puts them back; the site is as it left it."""
    return Book(tmp_path_factory.mktemp("small") / "book")


@pytest.fixture(scope="module")
def built(book: Book) -> Path:
    """The small book's site as it is built, which no test changes."""
    status, printed = book.build()
    assert status == 0, printed
    return Path(shutil.copytree(book.site, book.root.parent / "built"))


def page(site: Path, name: str) -> str:
    return (site / f"{name}.html").read_text("utf-8")


# --- what the pages have --------------------------------------------------------------------------


def test_numbers_formulas_and_tables_are_on_the_page(built: Path) -> None:
    text = page(built, "book/one")
    assert "The ridge is 217" in text
    assert "<td><p>5</p></td>" in text
    assert '<div class="scroll"><table' in text
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in text


def test_nothing_of_jupyter_books_own_theme_is_left(built: Path) -> None:
    names = re.compile(r"thebe|bootstrap|fontawesome|mathjax\b|copybutton|togglebutton", re.I)
    for path in built.rglob("*"):
        assert not names.search(path.name)
        if path.suffix == ".html":
            assert not names.search(path.read_text("utf-8"))


def test_a_fold_says_what_it_hides_and_a_question_does_not_show_its_code(built: Path) -> None:
    text = page(built, "book/cells")
    assert text.count('<details class="fold"><summary>Code</summary>') == 1
    assert "the code of the html" in text
    assert "the code of the figure" in text
    assert "the code of the question" not in text


def test_outputs_carry_no_style_and_no_script_and_their_pictures_are_files(built: Path) -> None:
    text = page(built, "book/cells")
    assert '<div class="scroll"><table class="dataframe"><thead><tr><td></td>' in text
    assert '<th class="number">GB/s</th>' in text
    assert "<style" not in text
    assert "start()" not in text
    assert "base64" not in text
    assert re.search(r'<script defer src="\.\./interactive/ask-[0-9a-f]{8}\.js">', text)
    pictures = BeautifulSoup(text, "html.parser").select("article picture")
    images = [one.img for one in pictures]
    assert [image["alt"] for image in images] == [ALT, "A slope"]
    assert [image.get("loading") for image in images] == [None, "lazy"]
    for one in pictures:
        assert (one.img["width"], one.img["height"]) == ("60", "40")
        for address in (one.img["src"], one.source["srcset"]):
            assert (built / "book" / str(address)).is_file()


def test_without_an_address_they_point_nowhere(built: Path) -> None:
    paths = [path for path in built.rglob("*") if path.suffix in {".html", ".txt"}]
    everything = "".join(path.read_text("utf-8") for path in paths)
    assert not re.search(r"github\.(?:com|io)|colab", everything.replace("github.com/stipub", ""))
    assert not (built / "sitemap.xml").exists()


def test_an_emptied_or_wordless_page_is_noticed(book: Book, built: Path, tmp_path: Path) -> None:
    copy = tmp_path / "html"
    shutil.copytree(built, copy)
    names = books.pages(book.root)
    assert check_site.check(copy, names) == []
    bare = "<article><h1>Two</h1></article>"
    for text in (re.sub("(?s)<article>.*</article>", bare, page(built, "book/two")), ""):
        (copy / "book/two.html").write_text(text, "utf-8")
        assert "no written page" in "\n".join(check_site.check(copy, names))
    (copy / "index.html").write_text("", "utf-8")
    assert "missing or empty" in check_site.check(copy, names)[0]


# --- building again -------------------------------------------------------------------------------


def test_with_an_address_the_pages_say_where_they_are(book: Book) -> None:
    address = repository.Address("https://github.com/Some-One/Guide")

    def stamped(text: str) -> str:
        for mark, lines in repository.config_blocks(address).items():
            text = repository.between(text, mark, lines, "_config.yml")
        return text

    with book.changed({"_config.yml": stamped}):
        status, printed = book.build()
        assert status == 0, printed
    base, text = "https://some-one.github.io/Guide/", page(book.site, "book/one")
    assert f'<link rel="canonical" href="{base}book/one.html">' in text
    assert f'<link rel="canonical" href="{base}">' in page(book.site, "index")
    assert f'<meta property="og:image" content="{base}_static/cards/book-one.png">' in text
    assert 'href="https://github.com/Some-One/Guide/issues"' in text
    colab = "https://colab.research.google.com/github/Some-One/Guide/blob/main/book/cells.ipynb"
    assert f'href="{colab}"' in page(book.site, "book/cells")
    places = re.findall("<loc>(.*?)</loc>", (book.site / "sitemap.xml").read_text("utf-8"))
    assert places == [base, *(f"{base}book/{name}.html" for name in ("one", "two", "cells"))]
    assert f"Sitemap: {base}sitemap.xml" in (book.site / "robots.txt").read_text("utf-8")
    assert f"]({base}book/two.html)" in (book.site / "llms.txt").read_text("utf-8")


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
LOGO = "theme/static/logo.svg"
SHEET = "book/theme/static/book.css.jinja"
PROBLEMS = {
    "raw link to no page": ("book/two.md", '<a href="four.html">gone</a>', "four.html"),
    "raw link to no place": ("book/two.md", '<a href="one.html#no-such">x</a>', "no-such"),
    "no alt text": ("book/two.md", '<img src="../_static/logo.svg">', "no alt text"),
    "file name as alt": ("book/one.md", f"![logo.svg]({LOGO})", "has a file name"),
    "script": ("book/two.md", '<script src="https://a.example/x.js"></script>', "a.example"),
    "module": (
        "book/two.md",
        '<script type="module">import x from "https://b.example/x.js";</script>',
        "b.example",
    ),
    "frame": ("book/two.md", '<iframe src="//c.example/x"></iframe>', "c.example"),
    "font": (SHEET, '@import url("https://d.example/x.css");', "d.example"),
    "import": (SHEET, '@import "https://e.example/x.css";', "e.example"),
    "id twice": ("book/two.md", '<b id="b1">a</b> <b id="b1">b</b>', "'b1' is there twice"),
}


def appended(broken: dict[str, tuple[str, str, str]]) -> dict[str, Callable[[str], str]]:
    """Edits that append each text to its file."""
    edits = {}
    for name in {name for name, _, _ in broken.values()}:
        texts = [text for file, text, _ in broken.values() if file == name]
        edits[name] = lambda text, texts=texts: "\n".join([text, *texts]) + "\n"
    return edits


@pytest.mark.parametrize("broken", [WARNINGS, PROBLEMS], ids=["warnings", "problems"])
def test_whatever_is_broken_is_said_and_fails(
    broken: dict[str, tuple[str, str, str]], book: Book
) -> None:
    with book.changed(appended(broken)):
        status, printed = book.build()
        assert status != 0, printed
        lines = printed.splitlines()
        if broken is WARNINGS:
            lines = [line for line in lines if re.search("WARNING|ERROR", line)]
        output = "\n".join(lines)
        assert [what for what, (_, _, sign) in broken.items() if sign not in output] == []
        assert not (book.site / "index.html").exists()
