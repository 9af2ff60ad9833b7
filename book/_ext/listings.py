"""Sphinx extension: the search index and ``sitemap.xml``."""

import html
import json
import re
import tomllib
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag
from sphinx.application import Sphinx
from sphinx.search.en import english_stopwords, js_porter_stemmer

SILENT = "script, style, svg, button, .cell_input, .headerlink, .section-number"
HEADING = re.compile("h[1-4]")
DESCRIBED = re.compile('<meta name="description" content="([^"]*)">')
APART = "figure, table, li, .cell_output, [data-kind], .about"  # what isn't running prose
SENTENCE = re.compile(r".{30,250}?[.?!:](?=\s|$)|.{1,250}(?=\s|$)", re.DOTALL)


def plain(part: Tag | None) -> str:
    """Return an element's text in one line."""
    return " ".join(part.get_text(" ").split()) if part else ""


def lead(part: Tag | None) -> str:
    """Return the first sentence of an element's prose, empty where it has none."""
    told = (plain(p) for p in (part or Tag(name="p")).find_all("p") if not p.css.closest(APART))
    first = next((text for text in told if len(text) > 30), "")
    found = SENTENCE.match(first)
    return found[0] if found else ""


def sections(page: str) -> list[tuple[str, str, str, str]]:
    """Return anchor, heading, text without code and first sentence of a page's sections, from HTML.

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
        found += [(str(t["id"]), plain(t), plain(dd), lead(dd)) for t, dd in terms[::-1]]
        for glossary in section.select(".glossary"):
            glossary.extract()
        found.append((str(section.get("id", "")), title, plain(section), lead(section)))
    return found[::-1]


def search_index(site: Path, names: list[str], synonyms: dict[str, list[str]]) -> str:
    """Return the search page's data: stems, stop words, sections.

    For its first sentence a page has its description.
    A section is its address, its page, its heading, its text, its first sentence, and what readers
    call it: by address, `synonyms`. Where the section is gone, its page is called so.
    """
    rows = []
    for name in names:
        page = (site / f"{name}.html").read_text("utf-8")
        told, found = DESCRIBED.search(page), sections(page)
        for number, (anchor, title, text, first) in enumerate(found):
            address = f"{name}.html" + f"#{anchor}" * bool(number)
            first = first if number or told is None else html.unescape(told[1])
            rows.append([address, found[0][1], title, text, first, synonyms.get(address, [])])
    places = {row[0]: row for row in rows}
    for address, asked in synonyms.items():
        page = address.partition("#")[0]
        if address not in places and page in places:
            places[page][-1] = [*places[page][-1], *asked]
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
    asked = Path(app.srcdir) / "book/synonyms.toml"
    synonyms = tomllib.loads(asked.read_text("utf-8")) if asked.exists() else {}
    (site / "_static/search-index.js").write_text(search_index(site, names, synonyms), "utf-8")
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
