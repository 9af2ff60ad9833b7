"""Sphinx extension: a script file for the interactive pieces of the pages.

A notebook's output carries its script along, so that it works alone. On the site the script stands
once, in ``interactive/ask-HASH.js`` for questions and ``interactive/lab-HASH.js`` where a page has
more: the browser keeps it, and no page has an inline script. Pictures inside a piece become files.

A piece made with an older script than the package's is a warning, which fails the build.

Prose pages take their pieces from ``page_questions.py``; what stands inside is what they unlock::

    :::{ask} first-kernel
    The memory takes {{ add_ratio }} times as long.
    :::
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from page_questions import questions
from roofline_helpers import ask

INLINE = re.compile(r'\s*<script type="module" data-roofline>.*?</script>', re.DOTALL)
PIECE = re.compile(r"<(roofline-(?:ask|lab)-[0-9a-f]{8})\b")
PICTURE = re.compile(r'<img src="data:image/png;base64,([A-Za-z0-9+/=]+)"')
log = logging.getLogger(__name__)


def code(bundle: str) -> str:
    """Return a site's script: that of the labs also knows the elements of questions."""
    names = list(ask.BUNDLES) if bundle == "lab" else [bundle]
    return ask.script(bundle, [ask.tag(one) for one in names])


def address(bundle: str) -> str:
    """Return the script's place on the site: its name has its hash, so that it may be kept."""
    return f"interactive/{bundle}-{hashlib.sha256(code(bundle).encode()).hexdigest()[:8]}.js"


def lift(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Take scripts and pictures out of a page's interactive pieces, and ask for the one file."""
    body = context.get("body")
    if not body or not PIECE.search(body):
        return
    tags = set(PIECE.findall(body))
    used = {one.split("-")[1] for one in tags}
    for old in sorted(tags - {ask.tag(one) for one in used}):
        log.warning(
            "%s: <%s> was made with another script: run tools/notebooks/restamp.py", pagename, old
        )

    def file(match: re.Match[str]) -> str:
        data = b64decode(match[1])
        name = f"_images/ask-{hashlib.sha256(data).hexdigest()[:16]}.png"
        path = Path(app.outdir) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return f'<img loading="lazy" src="{context["pathto"](name, 1)}"'

    context["body"] = PICTURE.sub(file, INLINE.sub("", body))
    bundle = "lab" if "lab" in used else "ask"
    source = context["pathto"](address(bundle), 1)
    path = Path(app.outdir) / address(bundle)
    path.parent.mkdir(exist_ok=True)
    path.write_text(code(bundle), "utf-8")
    context["metatags"] = (
        f'{context.get("metatags", "")}\n<meta name="roofline-site" content="1">'
        f'\n<script defer src="{source}"></script>'
    )


class Ask(SphinxDirective):  # type: ignore[misc]
    """A question of ``page_questions.py``, and in it what an answer unlocks."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the question's HTML around the nodes of what stands inside."""
        pieces = questions()
        name = self.arguments[0]
        if name not in pieces:
            raise self.error(f"no question {name!r}: there are {', '.join(sorted(pieces))}")
        piece = pieces[name]
        if bool(piece.then) != bool(self.content):
            raise self.error(f"{name}: then= in page_questions.py and a body belong together")
        head, _, tail = (
            piece.markup().partition(piece.then)
            if piece.then
            else (
                piece.markup(),
                "",
                "",
            )
        )
        inside = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, inside)
        raw = [nodes.raw("", text, format="html") for text in (head, tail)]
        return [raw[0], *inside.children, raw[1]]


def note(app: Sphinx, config: Config) -> None:
    """Make the questions part of the configuration, so that a changed one re-reads the pages."""
    markup = {name: piece.markup() for name, piece in questions().items()}
    config.ask_questions = hashlib.sha256(repr(markup).encode()).hexdigest()


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.add_config_value("ask_questions", "", "env", str)
    app.add_directive("ask", Ask)
    app.connect("config-inited", note)
    app.connect("html-page-context", lift)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
