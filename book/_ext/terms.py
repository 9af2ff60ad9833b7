"""Sphinx extension: a page's first mention of a glossary term leads there, with its definition.

The definition stands in the link's ``data-card``; ``book/_static/site.js`` shows it on hover and on
focus. Without a script the link remains.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

GLOSSARY = "book/glossary"
LEFT_OUT = {GLOSSARY, "index", "book/api", "book/bibliography", "book/chips", "book/departures"}
COMMON = {
    "bound",
    "chip",
    "dense",
    "peak",
    "decode",
    "tile",
    "work",
}  # plain words nearly everywhere
CLOSED: tuple[type, ...] = (nodes.reference, nodes.literal, nodes.Titular, nodes.math, nodes.raw)
CLOSED += (nodes.caption, addnodes.pending_xref, nodes.table, nodes.block_quote, nodes.strong)
LINK = re.compile(r'<a class="([^"]*)" href="([^"]*glossary\.html#(term-[^"]+))"')


def definitions(app: Sphinx) -> dict[str, tuple[str, str]]:
    """Return anchor and definition of each term of the glossary."""
    known: dict[str, tuple[str, str]] | None = getattr(app, "roofline_terms", None)
    if known is None:
        known = {}
        if GLOSSARY in app.env.found_docs:
            for item in app.env.get_doctree(GLOSSARY).findall(nodes.definition_list_item):
                said = " ".join(item.next_node(nodes.definition).astext().split())
                for term in item.findall(nodes.term):
                    if term["ids"]:
                        known[term.astext()] = (term["ids"][0], said)
        app.roofline_terms = known
    return known


def pattern(terms: list[str]) -> re.Pattern[str] | None:
    """Return what finds the longest of some terms, also in the plural; case counts in acronyms."""
    parts = []
    for term in sorted(terms, key=len, reverse=True):
        exact = any(letter.isupper() for letter in term)
        word = re.escape(term) if exact else f"(?i:{re.escape(term)})"
        parts.append(rf"{word}s?")
    return re.compile(rf"(?<![\w/·.-])(?:{'|'.join(parts)})(?![\w/·-])") if parts else None


def link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link the first mention of each term in a page's paragraphs."""
    if docname in LEFT_OUT or app.builder.format != "html":
        return
    known = definitions(app)
    left = {term.lower(): term for term in known if term not in COMMON}
    home = app.builder.get_relative_uri(docname, GLOSSARY) if known else ""
    for paragraph in list(doctree.findall(nodes.paragraph)):
        for text in list(paragraph.findall(nodes.Text)):
            above = text.parent
            while above is not None and not isinstance(above, CLOSED):
                above = above.parent
            find = pattern(list(left.values()))
            found = find.search(text.astext()) if find and above is None else None
            if not found:
                continue
            word = found[0]
            term = left.get(word.lower()) or left.get(word.lower().removesuffix("s"))
            if term is None:
                continue
            del left[term.lower()]
            said = text.astext()
            reference = nodes.reference(
                "", word, internal=True, refuri=f"{home}#{known[term][0]}", classes=["term"]
            )
            pieces = [nodes.Text(said[: found.start()]), reference, nodes.Text(said[found.end() :])]
            text.parent.replace(text, pieces)


def give_cards(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Write its definition into every link to a term."""
    if pagename == GLOSSARY or not context.get("body"):
        return
    said = dict(definitions(app).values())

    def card(found: re.Match[str]) -> str:
        classes = found[1] if "term" in found[1].split() else f"{found[1]} term"
        text = said.get(found[3])
        data = f' data-card="{escape(text)}"' if text else ""
        return f'<a class="{classes}" href="{found[2]}"{data}'

    context["body"] = LINK.sub(card, context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("doctree-resolved", link, priority=900)
    app.connect("html-page-context", give_cards, priority=800)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
