"""Sphinx extension: what the site has for machines: search index, social cards, ``sitemap.xml``,
``robots.txt``, ``llms.txt``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import cards
import chapters

INTRODUCTION = """\
Numbers on these pages are computed from the book's package, roofline_helpers, or were
measured and recorded with device and date. Chapters are executed notebooks; their
sources lie under _sources."""


class Reading(HTMLParser):
    """Collects a page's sections (anchor, heading, text without code) and its first figure."""

    VOID = frozenset({"img", "br", "hr", "input", "source", "col", "link", "meta", "wbr"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, list[str], list[str]]] = []
        self.open: list[str] = []  # what each open element is for us
        self.sections: list[int] = []
        self.figure: str | None = None
        self.glue = False  # where a word may break, it goes on

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a section or a heading, or begin to skip."""
        got = dict(attrs)
        names = (got.get("class") or "").split()
        role = ""
        if tag in {"script", "style", "svg", "button"} or {"cell_input", "headerlink"} & {*names}:
            role = "skip"
        elif tag == "article":
            role = "article"
        elif "section-number" in names:
            role = "skip"
        elif tag == "section" and "article" in self.open:
            role = "section"
            self.found.append((got.get("id") or "", [], []))
            self.sections.append(len(self.found) - 1)
        elif tag in {"h1", "h2", "h3", "h4"}:
            role = "heading"
        elif tag == "img" and "_images/" in (got.get("src") or ""):
            picture = str(got["src"])  # a drawing can't be put on a card
            self.figure = self.figure or (picture if picture.endswith(".png") else None)
        self.glue = tag == "wbr"
        if tag not in self.VOID:
            self.open.append(role)

    def handle_endtag(self, tag: str) -> None:
        """Close what was opened."""
        if tag not in self.VOID and self.open and self.open.pop() == "section":
            self.sections.pop()

    def handle_data(self, data: str) -> None:
        """Give text to the section that it is in."""
        if self.sections and "skip" not in self.open and data.strip():
            _, heading, text = self.found[self.sections[-1]]
            parts = heading if "heading" in self.open else text
            parts.append(parts.pop() + data if self.glue and parts else data)
        self.glue = False


def read(site: Path, name: str) -> Reading:
    """Read a built page."""
    reading = Reading()
    reading.feed((site / f"{name}.html").read_text("utf-8"))
    return reading


def search_index(readings: dict[str, Reading]) -> str:
    """Return the script that holds what the search page looks through."""
    rows = []
    for name, reading in readings.items():
        page = " ".join("".join(reading.found[0][1]).split()) if reading.found else name
        for number, (anchor, heading, text) in enumerate(reading.found):
            title = " ".join("".join(heading).split())
            where = f"{name}.html" + (f"#{anchor}" if number else "")
            rows.append([where, page, title, " ".join(" ".join(text).split())])
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f"window.searchIndex = [\n{body}\n];\n"


def llms(app: Sphinx, names: list[str]) -> str:
    """Return ``llms.txt``: what the book is, and a line for each page."""
    pages = chapters.about(Path(app.srcdir))
    described = {name: pages.get(name, {}).get("description", "") for name in names}
    lines = [f"# {app.config.html_title}", "", f"> {described[names[0]]}", ""]
    lines += [INTRODUCTION, "", "## Pages", ""]
    for name in names:
        link = f"- [{app.env.titles[name].astext()}]({app.config.html_baseurl}{name}.html)"
        lines.append(f"{link}: {described[name]}" if described[name] else link)
    return "\n".join(lines) + "\n"


def addresses(app: Sphinx, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file that lists the pages."""
    base = app.config.html_baseurl
    yield "llms.txt", llms(app, names)
    if not base:
        yield "robots.txt", "User-agent: *\nAllow: /\n"
        return
    yield "robots.txt", f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n"
    places = [f"{base}{'' if name == app.config.root_doc else name + '.html'}" for name in names]
    urls = "".join(f"<url><loc>{place}</loc></url>\n" for place in places)
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="{space}">\n'
    yield "sitemap.xml", f"{head}{urls}</urlset>\n"


def card_name(pagename: str) -> str:
    """Return the place of a page's social card on the site."""
    return f"_static/cards/{pagename.replace('/', '-')}.png"


def name_card(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Tell a page's head where its card is: its full address, where the book has one."""
    if pagename in app.env.found_docs:
        place = card_name(pagename)
        base = app.config.html_baseurl
        context["card"] = f"{base}{place}" if base else context["pathto"](place, 1)


def card_of(app: Sphinx, name: str, figure: str | None) -> cards.Card:
    """Return a page's card: its number, its title and its first figure."""
    site = Path(app.outdir)
    picture = (site / name).parent / figure if figure else None
    number = app.env.toc_secnumbers.get(name, {}).get("")
    label = f"Chapter {'.'.join(map(str, number))}" if number else ""
    return cards.Card(app.config.html_title, label, app.env.titles[name].astext(), picture)


def reading_order(app: Sphinx) -> list[str]:
    """Return the site's pages in the order of its table of contents."""
    order = [app.config.root_doc]
    relations = app.env.collect_relations()
    while (following := relations.get(order[-1], (None, None, None))[2]) and following not in order:
        order.append(following)
    return [name for name in order if name in app.env.found_docs]


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write everything that is no page, once the pages are written."""
    if error is not None or app.builder.name != "html":
        return
    site = Path(app.outdir)
    readings = {name: read(site, name) for name in reading_order(app)}
    (site / "_static/search-index.js").write_text(search_index(readings), "utf-8")
    for file, text in addresses(app, list(readings)):
        (site / file).write_text(text, "utf-8")
    for name, reading in readings.items():
        cards.write(site, card_name(name), card_of(app, name, reading.figure))


def no_index(app: Sphinx) -> None:
    """Have Sphinx make no search index: the search page has its own, and looks through that."""
    if app.builder.name == "html":
        app.builder.search = False


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx: after the pictures are made, before all is packed."""
    app.connect("builder-inited", no_index)
    app.connect("html-page-context", name_card)
    app.connect("build-finished", finish, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
