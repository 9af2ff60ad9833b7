"""Sphinx extension: a page's first mention of a glossary term leads there, with its definition.

The definition is the link's title, which browsers show on hover and screen readers read out.
"""

import re
from functools import cache
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

GLOSSARY = "book/glossary"
LEFT_OUT = {GLOSSARY, "index", "book/api", "book/bibliography", "book/chips", "book/departures"}
# Plain words nearly everywhere
COMMON = set("bound chip decode dense grid law peak recipe scale slice tile work".split())
CLOSED: tuple[type, ...] = (
    nodes.reference,
    nodes.literal,
    nodes.Titular,
    nodes.math,
    nodes.raw,
)
CLOSED += (nodes.caption, addnodes.pending_xref, nodes.table, nodes.block_quote, nodes.strong)


@cache
def definitions(app: Sphinx) -> dict[str, tuple[str, str]]:
    """Return anchor and definition of each term of the glossary."""
    known = {}
    if GLOSSARY in app.env.found_docs:
        for item in app.env.get_doctree(GLOSSARY).findall(nodes.definition_list_item):
            meaning = " ".join(item.next_node(nodes.definition).astext().split())
            for term in item.findall(nodes.term):
                if term["ids"]:
                    known[term.astext()] = (term["ids"][0], meaning)
    return known


@cache
def pattern(terms: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return what finds the longest of some terms, also in the plural; case counts in acronyms."""
    parts = []
    for term in sorted(terms, key=len, reverse=True):
        exact = any(letter.isupper() for letter in term)
        word = re.escape(term) if exact else f"(?i:{re.escape(term)})"
        parts.append(rf"{word}s?")
    return re.compile(rf"(?<![\w/·.-])(?:{'|'.join(parts)})(?![\w/·-])") if parts else None


def link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link the first mention of each term in a page's paragraphs, and give links definitions."""
    if app.builder.format != "html" or docname == GLOSSARY:
        return
    known = definitions(app)
    home = f"{app.builder.get_relative_uri(docname, GLOSSARY)}#" if known else ""
    if docname not in LEFT_OUT and not docname.startswith("book/api/"):
        left = {term.lower(): term for term in known if term not in COMMON}
        for paragraph in list(doctree.findall(nodes.paragraph)):
            for text in list(paragraph.findall(nodes.Text)):
                link_first(text, left, {term: f"{home}{known[term][0]}" for term in known})
    meanings = {f"{home}{anchor}": meaning for anchor, meaning in known.values()}
    for reference in doctree.findall(nodes.reference):
        meaning = meanings.get(reference.get("refuri", ""))
        if meaning:
            reference["reftitle"] = meaning
            if "term" not in reference["classes"]:
                reference["classes"].append("term")


def link_first(
    text: nodes.Text,
    left: dict[str, str],
    addresses: dict[str, str],
) -> None:
    """Link the first term in a text that is still to be linked, and take it from ``left``."""
    above = text.parent
    while above is not None and not isinstance(above, CLOSED):
        above = above.parent
    find = pattern(tuple(left.values())) if above is None else None
    match = find.search(text.astext()) if find else None
    if not match:
        return
    word = match[0]
    term = left.get(word.lower()) or left.get(word.lower().removesuffix("s"))
    if term is None:
        return
    del left[term.lower()]
    reference = nodes.reference("", word, internal=True, refuri=addresses[term])
    whole = text.astext()
    pieces = [nodes.Text(whole[: match.start()]), reference, nodes.Text(whole[match.end() :])]
    text.parent.replace(text, pieces)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("doctree-resolved", link, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
