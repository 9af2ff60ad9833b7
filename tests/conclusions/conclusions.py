"""What tests of conclusions read: pages, outputs and compiled records."""

from functools import cache
from pathlib import Path

from roofline import xla
from tools import books
from tools.notebooks import run as notebooks

PAGES = books.pages()


def path(name):
    return books.ROOT / f"notebooks/{name}.ipynb"


@cache
def kept():
    return {**xla.records()}


def prose(name):
    """A page's text: its Markdown, and a notebook's captions and alt texts."""
    path = next(books.ROOT / f"{page}.md" for page in PAGES if Path(page).name == name)
    if path.is_file():
        return path.read_text("utf-8")
    cells = notebooks.load(path.with_suffix(".ipynb")).cells
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    for cell in cells:
        made = cell.metadata.get("mystnb", {})
        texts += [
            made.get("figure", {}).get("caption", ""),
            made.get("image", {}).get("alt", ""),
        ]
    return "\n\n".join(texts)


@cache
def outputs(name):
    """Return what a chapter's cells show as text, before any answer."""
    cells = notebooks.load(books.ROOT / f"notebooks/{name}.ipynb").cells
    made = [one for cell in cells for one in cell.get("outputs", [])]
    return "\n".join(
        str(one.get("text", "") or one.get("data", {}).get("text/plain", "")) for one in made
    )
