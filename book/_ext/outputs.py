"""Sphinx extension: notebook cells on the page: what is folded, and the HTML that a cell has made.

A fold says what it hides. The code of a question says its answer, so it is in the notebook and not
on the page. HTML outputs lose what the content security policy refuses, their tables get aligned
columns of numbers and a box to scroll in, and pictures inside them become files.
"""

import hashlib
import re
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from bs4.dammit import EntitySubstitution
from bs4.formatter import HTMLFormatter
from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.osutil import relative_uri

import table_widths
from figures import Picture
from translator import REFUSED

SUMMARIES = {
    "Show code cell content": "Set-up code",
    "Show code cell source": "Code",
    "Show code cell output": "Output",
    "Show code cell outputs": "Output",
}
TITLE = re.compile(r'"# @title [^"]*\\n",\s*')  # what Colab and JupyterLab show of folded code
INLINE_PICTURE = "data:image/png;base64,"
WRITTEN = HTMLFormatter(EntitySubstitution.substitute_xml, void_element_close_prefix="")


def texts(row: Sequence[Tag]) -> list[str]:
    """Return the text of each cell."""
    return [cell.get_text().strip() for cell in row]


def fit(table: Tag) -> None:
    """Mark columns of numbers, and what a phone shows the table as."""
    rows = [row.find_all(["th", "td"]) for row in table.find_all("tr")]
    head = [row.find_all(["th", "td"]) for row in table.select("thead tr")]
    body = rows[len(head) :]
    for column in range(max(map(len, rows), default=0)):
        cells = [texts(row)[column] for row in body if len(row) > column]
        if table_widths.is_numbers(cells, names=column == 0):
            for row in rows:
                if len(row) > column:
                    row[column]["class"] = "number"
    if len(head) != 1:
        return
    look = table_widths.narrow_look(texts(head[0]), [texts(row) for row in body])
    if look:
        table["class"] = f"{table.get('class', '')} {look}".strip()
    if look == "cards":
        for row in body:
            for name, cell in zip(texts(head[0])[1:], row[1:], strict=True):
                cell["data-name"] = name


def lift_picture(image: Tag, builder: Builder, docname: str) -> None:
    """Make a file of a picture that is written into the page."""
    data = b64decode(str(image["src"]).removeprefix(INLINE_PICTURE))
    name = f"_images/ask-{hashlib.sha256(data).hexdigest()[:16]}.png"
    path = Path(builder.outdir) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    picture = Picture.of(path)
    if picture is not None:
        address = relative_uri(builder.get_target_uri(docname), name)
        markup = picture.markup(address, str(image.get("alt", "")), wait=True)
        image.replace_with(BeautifulSoup(markup, "html.parser"))


def cleaned(html: str, builder: Builder, docname: str) -> str:
    """Return a piece of HTML as the frame can carry it."""
    soup = BeautifulSoup(html, "html.parser", multi_valued_attributes=None)
    for one in soup.select("style, script[data-roofline]"):
        one.decompose()
    for one in soup.find_all(True):
        for name in REFUSED & set(one.attrs):
            del one[name]
    for image in soup.select(f'img[src^="{INLINE_PICTURE}"]'):
        lift_picture(image, builder, docname)
    for link in soup.select('a[href$=".ipynb"]'):  # a chapter is a page here
        link["href"] = str(link["href"]).removesuffix("ipynb") + "html"
    for table in soup.find_all("table"):
        fit(table)
        for cell in table.find_all("th"):
            if not cell.get_text().strip():
                cell.name = "td"
        table.wrap(soup.new_tag("div", attrs={"class": "scroll"}))
    return soup.decode(formatter=WRITTEN)


def is_part(node: nodes.Node, part: str) -> bool:
    """Tell what of a notebook's cell a node is: ``cell_code``, ``cell_code_output``."""
    return isinstance(node, nodes.container) and node.get("nb_element") == part


def gather_folds(document: nodes.document) -> None:
    """Leave no fold alone: code that shows nothing goes to what it prepares.

    A fold that holds what its cell has made, as evidence does, shows something and stays.
    That is the next fold, or what is below the next question. The first cell, which imports, waits
    for the first fold. Code that open code follows stays where it is. The code of a question and of
    what is below it is below both: a question comes first.
    """
    cells = [one for one in document.findall(nodes.container) if is_part(one, "cell_code")]
    waiting: list[nodes.Node] = []
    for at, cell in enumerate(cells):
        fold = next(cell.findall(HideCodeCellNode), None)
        if fold is None:
            continue
        fold.insert(0, waiting)
        waiting = []
        if any('data-kind="question"' in raw.astext() for raw in cell.findall(nodes.raw)):
            cell.remove(fold)
            cell.append(fold)
        following = cells[at + 1] if at + 1 < len(cells) else None
        if following is None or any(is_part(one, "cell_code_output") for one in cell.findall()):
            continue
        if all(is_part(one, "cell_code_output") for one in following):
            following.append(fold)
        elif at == 0 or any(following.findall(HideCodeCellNode)):
            waiting = list(fold.children)
        else:
            fold["prompt_show"] = "Code used below"
            continue
        cell.parent.remove(cell)


class Outputs(SphinxPostTransform):  # type: ignore[misc]
    """Cleans the HTML of the page's outputs."""

    default_priority = 210  # after myst-nb has chosen and folded
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Go through the page's cells."""
        gather_folds(self.document)
        for cell in self.document.findall(nodes.container):
            if cell.get("nb_element") != "cell_code":
                continue
            for raw in list(cell.findall(nodes.raw)):
                html = cleaned(raw.astext(), self.app.builder, self.env.docname)
                raw.replace_self(nodes.raw("", html, **raw.attributes))


def without_titles(app: Sphinx, docname: str, source: list[str]) -> None:
    """Take the titles of folded cells out of a notebook: here the fold itself says what it is."""
    source[0] = TITLE.sub("", source[0])


def open_fold(translator: Any, node: HideCodeCellNode) -> None:
    """Open a fold whose summary says what is inside."""
    prompt = node["prompt_show"]
    made = any("<table" in raw.astext() for raw in node.findall(nodes.raw))
    named = translator.encode(SUMMARIES.get(prompt, prompt))
    summary = "Table" if made and prompt in SUMMARIES else named  # a title of its own stays
    translator.body.append(f'<details class="fold"><summary>{summary}</summary>\n')


def close_fold(translator: Any, node: HideCodeCellNode) -> None:
    """Close it."""
    translator.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx; myst-nb is set up before."""
    app.connect("source-read", without_titles)
    app.add_post_transform(Outputs)
    app.add_node(HideCodeCellNode, html=(open_fold, close_fold), override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
