"""Sphinx extension: a script file for the interactive pieces of the pages.

A cell's output brings its script along when the cell is executed; a committed notebook has none. On
the site the script is once, in ``interactive/ask-HASH.js`` for questions and
``interactive/instrument-HASH.js``, ``lab-HASH.js``, ``mfu-HASH.js``,
``judging-HASH.js`` or ``riddle-HASH.js`` where a
page has more: the browser keeps it, and no page has an inline script.

Prose pages take their pieces from ``page_questions.py``; what is inside
stands below them::

    :::{ask} first-kernel
    The memory takes {{ add_ratio }} times as long.
    :::
"""

import hashlib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import outputs
from page_questions import questions
from roofline.labs.javascript import LAB, RIDDLE
from roofline.labs.judging import JUDGING
from roofline.labs.mfu import MFU
from roofline_helpers.pages.element import ASK, Bundle, script
from roofline_helpers.pages.instruments import INSTRUMENT


def address(bundle: Bundle) -> str:
    """Return the script's place on the site: its name has its hash, so that it may be kept."""
    code = script(bundle).encode()
    return f"interactive/{bundle.name}-{hashlib.sha256(code).hexdigest()[:8]}.js"


def load(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Have a page with interactive pieces load the one script that it needs."""
    body = context.get("body") or ""
    bundles = (LAB, RIDDLE, MFU, JUDGING, INSTRUMENT, ASK)
    bundle = next((bundle for bundle in bundles if f"<roofline-{bundle.name} " in body), None)
    if bundle is None:
        return
    path = Path(app.outdir) / address(bundle)
    path.parent.mkdir(exist_ok=True)
    path.write_text(script(bundle), "utf-8")
    context["interactive"] = context["pathto"](address(bundle), 1)


class Ask(SphinxDirective):  # type: ignore[misc]
    """A piece of ``page_questions.py``, and below it what is inside."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the piece and the nodes of what is inside."""
        known = questions()
        name = self.arguments[0]
        if name not in known:
            raise self.error(f"no question {name!r}: there are {', '.join(sorted(known))}")
        below = nodes.container(classes=["then"])
        self.state.nested_parse(self.content, self.content_offset, below)
        html = outputs.cleaned(known[name].markup(), self.env.app.builder, self.env.docname)
        return [nodes.raw("", html, format="html"), *([below] if self.content else [])]


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.add_directive("ask", Ask)
    app.connect("html-page-context", load)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
