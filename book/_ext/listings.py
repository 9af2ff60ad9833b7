"""Sphinx extension: the search index and ``sitemap.xml``."""

import json
import re
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from sphinx.application import Sphinx
from sphinx.search.en import english_stopwords, js_porter_stemmer

SILENT = "script, style, svg, button, .cell_input, .headerlink, .section-number"
HEADING = re.compile("h[1-4]")


def plain(part: Tag | None) -> str:
    """Return an element's text in one line."""
    return " ".join(part.get_text(" ").split()) if part else ""


def sections(page: str) -> list[tuple[str, str, str]]:
    """Return anchor, heading and text, without code, of each section of a page's HTML.

    A term of the glossary is a section of its own.
    """
    soup = BeautifulSoup(page, "html.parser")
    for one in soup.select(SILENT):
        one.decompose()
    soup.smooth()
    found = []
    for section in reversed(soup.select("article section")):  # inner ones before outer ones
        section.extract()
        heading = section.find(HEADING)
        title = plain(heading.extract()) if isinstance(heading, Tag) else ""
        terms = [(term, term.find_next_sibling("dd")) for term in section.select(".glossary > dt")]
        found += [(str(term["id"]), plain(term), plain(meaning)) for term, meaning in terms[::-1]]
        for glossary in section.select(".glossary"):
            glossary.extract()
        found.append((str(section.get("id", "")), title, plain(section)))
    return found[::-1]


def search_index(site: Path, names: list[str]) -> str:
    """Return the search page's data: sections (address, page, heading, text), stems, stop words."""
    rows = []
    for name in names:
        found = sections((site / f"{name}.html").read_text("utf-8"))
        for number, (anchor, title, text) in enumerate(found):
            rows.append([f"{name}.html" + f"#{anchor}" * bool(number), found[0][1], title, text])
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    stops = json.dumps(sorted(english_stopwords))
    return (
        f"{js_porter_stemmer}\nwindow.searchStops = {stops};\nwindow.searchIndex = [\n{body}\n];\n"
    )


def sitemap(app: Sphinx, names: list[str]) -> str:
    """Return the addresses of all pages, as search engines take them."""
    places = [f"{name}.html".removeprefix(f"{app.config.root_doc}.html") for name in names]
    urls = "".join(f"<url><loc>{app.config.html_baseurl}{place}</loc></url>\n" for place in places)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{urls}</urlset>\n'


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the lists once the pages are written."""
    if error is not None or app.builder.name != "html":
        return
    site, names = Path(app.outdir), sorted(app.env.found_docs)
    (site / "_static/search-index.js").write_text(search_index(site, names), "utf-8")
    if app.config.html_baseurl:
        (site / "sitemap.xml").write_text(sitemap(app, names), "utf-8")


def no_index(app: Sphinx) -> None:
    """Have Sphinx make no search index: the search page has its own, and looks through that."""
    if app.builder.name == "html":
        app.builder.search = False


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx: before all is packed."""
    app.connect("builder-inited", no_index)
    app.connect("build-finished", finish, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
