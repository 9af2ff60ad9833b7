"""Sphinx extension: a script file for the interactive pieces of the pages.

A notebook's output carries its script along, so that it works alone. On the site the script is
once, in ``interactive/ask-HASH.js`` for questions, ``interactive/lab-HASH.js`` where a page has
more, and ``interactive/paste-HASH.js`` on the page for a reader's own kernel: the browser keeps it,
and no page has an inline script.

A piece made with an older script than the package's is a warning, which fails the build.

Prose pages take their pieces from ``page_questions.py``; what is inside is what they unlock::

    :::{ask} first-kernel
    The memory takes {{ add_ratio }} times as long.
    :::
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import outputs
from page_questions import questions
from roofline_helpers import ask

log = logging.getLogger(__name__)


def code(bundle: str) -> str:
    """Return a site's script: each knows the elements of questions, too."""
    return ask.script(bundle, [ask.tag(one) for one in dict.fromkeys(("ask", bundle))])


def address(bundle: str) -> str:
    """Return the script's place on the site: its name has its hash, so that it may be kept."""
    return f"interactive/{bundle}-{hashlib.sha256(code(bundle).encode()).hexdigest()[:8]}.js"


def load(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Have a page with interactive pieces load the one script that it needs."""
    tags = set(outputs.PIECE.findall(context.get("body") or ""))
    if not tags:
        return
    used = {one.split("-")[1] for one in tags}
    for old in sorted(tags - {ask.tag(one) for one in used}):
        log.warning(
            "%s: <%s> was made with another script: run tools/notebooks/restamp.py", pagename, old
        )
    bundle = ask.widest(used)
    path = Path(app.outdir) / address(bundle)
    path.parent.mkdir(exist_ok=True)
    path.write_text(code(bundle), "utf-8")
    context["interactive"] = context["pathto"](address(bundle), 1)


class piece(nodes.General, nodes.Element):  # type: ignore[misc]  # Sphinx's naming of nodes
    """An interactive piece; its children are what an answer unlocks."""


def open_piece(translator: Any, node: piece) -> None:
    """Write a piece up to what it unlocks."""
    html = outputs.cleaned(node["markup"], translator.builder, translator.builder.current_docname)
    if node["then"] and node["then"] not in html:
        raise ValueError(f"a question's markup lacks its placeholder {node['then']!r}")
    head, _, tail = html.partition(node["then"]) if node["then"] else (html, "", "")
    translator.body.append(head)
    translator.context.append(tail)


def close_piece(translator: Any, node: piece) -> None:
    """Write the rest of it."""
    translator.body.append(translator.context.pop())


class Ask(SphinxDirective):  # type: ignore[misc]
    """A question of ``page_questions.py``, and in it what an answer unlocks."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the question around the nodes of what is inside."""
        known = questions()
        name = self.arguments[0]
        if name not in known:
            raise self.error(f"no question {name!r}: there are {', '.join(sorted(known))}")
        if bool(known[name].then) != bool(self.content):
            raise self.error(f"{name}: then= in page_questions.py and a body belong together")
        node = piece("", markup=known[name].markup(), then=known[name].then)
        self.state.nested_parse(self.content, self.content_offset, node)
        return [node]


def note(app: Sphinx, config: Config) -> None:
    """Make the questions part of the configuration, so that a changed one re-reads the pages."""
    markup = {name: piece.markup() for name, piece in questions().items()}
    config.ask_questions = hashlib.sha256(repr(markup).encode()).hexdigest()


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.add_config_value("ask_questions", "", "env", str)
    app.add_directive("ask", Ask)
    app.add_node(piece, html=(open_piece, close_piece))
    app.connect("config-inited", note)
    app.connect("html-page-context", load)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
