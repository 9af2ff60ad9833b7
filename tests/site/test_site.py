"""The build: a warning, a broken link, a missing page fails it."""

import base64
import io
import os
import re
import shutil
import subprocess
import sys
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


def png():
    file = io.BytesIO()
    Image.new("RGB", (120, 80), "white").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def notebook():
    """A notebook with an open cell, a folded one with a figure, and a question without code."""
    asked = (
        """<roofline-ask data-kind="question" data-json='{"a":"b"}'><p>Why?"""
        f'</p><img alt="A slope" src="data:image/png;base64,{png()}"></roofline-ask>\n'
        '<script type="module" data-roofline>start()</script>'
    )
    shown = {"html": FRAME, "figure": png(), "question": asked, "numbers": FRAME}
    tags = {"figure": "hide-input", "question": "remove-input", "numbers": "hide-cell"}
    cells = [nbformat.v4.new_markdown_cell(f"# Cells\n\n{FILLER}")]
    for name, data in shown.items():
        source = f"# @title Code\n# the code of the {name}\nx = 1"
        cell = new_code_cell(source, id=name, execution_count=1)
        cell.outputs = [
            new_output("display_data", {"image/png" if name == "figure" else "text/html": data})
        ]
        if name in tags:
            cell.metadata["tags"] = [tags[name]]
        cells.append(cell)
    cells[2].metadata["mystnb"] = {
        "image": {"alt": ALT},
        "figure": {"caption": "A roof.", "name": "fig-a"},
    }
    language = {"name": "python", "pygments_lexer": "ipython3"}
    return nbformat.writes(new_notebook(cells=cells, metadata={"language_info": language}))


class Book:
    """A book of four pages with this book's settings, extensions and theme."""

    def __init__(self, root):
        self.root, self.site = root, root / "_build/html"

        def left_out(folder, names):
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
        (root / "index.md").write_text(
            f"# Small\n\n{FILLER}\n\n[one](book/one.md)\n\n(cite)=\n## Cite\n", "utf-8"
        )
        one = "## Part\n\nThe ridge is {{ ridge }} and $x^2$.\n\n{{ table }}\n"
        (root / "book/one.md").write_text(f"# One\n\n{FILLER}\n\n{one}", "utf-8")
        (root / "book/two.md").write_text(f"# Two\n\n{FILLER}\n\n[part](one.md#part)\n", "utf-8")
        (root / "book/cells.ipynb").write_text(notebook(), "utf-8")

    def build(self, **environment):
        """Build it, not as GitHub does if not asked to; return exit status and what was said."""
        command = [sys.executable, "-m", "tools.site.build", str(self.root)]
        here = {**os.environ, "GITHUB_REPOSITORY": "", **environment}
        done = subprocess.run(command, cwd=books.ROOT, capture_output=True, text=True, env=here)
        return done.returncode, done.stdout + done.stderr

    @contextmanager
    def changed(self, edits):
        """Change files while the block runs."""
        before = {name: (self.root / name).read_text("utf-8") for name in edits}
        for name, edit in edits.items():
            (self.root / name).write_text(edit(before[name]), "utf-8")
        yield
        for name, text in before.items():
            (self.root / name).write_text(text, "utf-8")


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The small book. A test that changes its files puts them back; the site is as it left it."""
    return Book(tmp_path_factory.mktemp("small") / "book")


@pytest.fixture(scope="module")
def built(book):
    """The small book's site as it is built, which no test changes."""
    status, printed = book.build()
    assert status == 0, printed
    return Path(shutil.copytree(book.site, book.root.parent / "built"))


def page(site, name):
    return (site / f"{name}.html").read_text("utf-8")


# --- what the pages have --------------------------------------------------------------------------


def test_numbers_formulas_and_tables_are_on_the_page(built):
    text = page(built, "book/one")
    assert "The ridge is 217" in text
    assert "<td><p>5</p></td>" in text
    assert '<div class="scroll"><table' in text
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in text


def test_a_fold_says_what_it_hides_and_a_question_does_not_show_its_code(built):
    text = page(built, "book/cells")
    for what in ("Code", "Table"):
        assert text.count(f'<details class="fold"><summary>{what}</summary>') == 1
    assert "the code of the html" in text
    assert "the code of the figure" in text
    assert "the code of the question" not in text
    assert "@title" not in text


def test_outputs_carry_no_style_and_no_script_and_their_pictures_are_files(built):
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


def test_an_emptied_or_wordless_page_is_noticed(book, built, tmp_path):
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


def test_with_an_address_the_pages_say_where_they_are(book):
    slug = "Some-One/Guide"
    install = repository.source("https://github.com/Some-One/Guide")

    def stamped(text):
        cells = nbformat.reads(text, 4)
        cells.cells.append(new_code_cell(repository.setup_cell(install), id="setup"))
        return str(nbformat.writes(cells))

    with book.changed({"book/cells.ipynb": stamped}):
        status, printed = book.build(GITHUB_REPOSITORY=slug)
        assert status == 0, printed
    base = "https://some-one.github.io/Guide/"
    text = page(book.site, "book/one")
    assert f'<link rel="canonical" href="{base}book/one.html">' in text
    assert f'<link rel="canonical" href="{base}">' in page(book.site, "index")
    [report] = re.findall('href="(https://github.com/Some-One/Guide/issues/new[^"]*)"', text)
    assert "book/one.html" in report
    colab = "https://colab.research.google.com/github/Some-One/Guide/blob/main/book/cells.ipynb"
    cells = page(book.site, "book/cells")
    assert f'href="{colab}"' in cells
    assert re.search(rf'<meta property="og:image" content="{base}_images/[0-9a-f]+\.png">', cells)
    assert f'href="https://github.dev/{slug}/blob/main/book/cells.ipynb"' in cells
    assert (
        f'href="https://mybinder.org/v2/gh/{slug}/HEAD?urlpath=lab/tree/book/cells.ipynb"' in cells
    )
    assert f'href="https://github.com/{slug}/edit/main/book/one.md"' in text
    lost = page(book.site, "404")  # at any address
    assert {one[:7] for one in re.findall(r'(?:href|src)="(.*?)"', lost)} == {
        "/Guide/",
        "https:/",
        "#main-c",
    }
    places = re.findall("<loc>(.*?)</loc>", (book.site / "sitemap.xml").read_text("utf-8"))
    names = ("cells", "one", "two")
    assert places == [*(f"{base}book/{name}.html" for name in names), base]


# What Sphinx warns of: (file, text to append, what is said)
WARNINGS = [
    ("book/two.md", "{nonsense}`x`", "nonsense"),
    ("book/two.md", "[gone](three.md)", "three.md"),
    ("book/two.md", "It is {{ no_such_number }}.", "no_such_number"),
    ("book/two.md", r"It is $\nosuchcommand{x}$.", "nosuchcommand"),
    ("_toc.yml", "  - file: book/three", "three"),
]
# What only the built pages show: (file, HTML or CSS to append, what is said)
PAGE = "book/two.html"
SHEET = "_static/book.css"
PROBLEMS = [
    (PAGE, '<a href="four.html">gone</a>', "four.html"),
    (PAGE, '<a href="one.html#no-such">x</a>', "no-such"),
    (PAGE, '<img src="../_static/logo.svg">', "no alt text"),
    (PAGE, '<script src="https://a.example/x.js"></script>', "a.example"),
    (SHEET, '@import url("https://d.example/x.css");', "d.example"),
    (PAGE, '<b id="b1">a</b> <b id="b1">b</b>', "'b1' is there twice"),
]


def test_what_only_the_built_pages_show_is_said(book, built, tmp_path):
    copy = shutil.copytree(built, tmp_path / "html")
    for file, text, _ in PROBLEMS:
        with (copy / file).open("a", encoding="utf-8") as page:
            page.write(text)
    said = "\n".join(check_site.check(copy, books.pages(book.root)))
    assert [sign for _, _, sign in PROBLEMS if sign not in said] == []


def test_what_sphinx_warns_of_fails_the_build(book):
    edits = {}
    for name in {name for name, _, _ in WARNINGS}:
        texts = [text for file, text, _ in WARNINGS if file == name]
        edits[name] = lambda text, texts=texts: "\n".join([text, *texts]) + "\n"
    with book.changed(edits):
        status, printed = book.build()
    assert status != 0, printed
    said = "\n".join(line for line in printed.splitlines() if re.search("WARNING|ERROR", line))
    assert [sign for _, _, sign in WARNINGS if sign not in said] == []
    assert not (book.site / "index.html").exists()
