"""Sphinx extension: one script file for the interactive pieces of every page.

A notebook's output carries its script along, so that it works alone. On the site the script stands
once, in ``interactive/lab-HASH.js``, and each page with such a piece asks for it: the browser keeps
it, and the site needs no inline script. Pictures inside a piece become files for the same reason.

A piece made with an older script than the package's is a warning, which fails the build.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from roofline_helpers import ask

INLINE = re.compile(r'\s*<script type="module" data-roofline>.*?</script>', re.DOTALL)
PIECE = re.compile(r"<(roofline-(?:ask|lab)-[0-9a-f]{8})\b")
PICTURE = re.compile(r'<img src="data:image/png;base64,([A-Za-z0-9+/=]+)"')
log = logging.getLogger(__name__)


def bundles() -> list[str]:
    """Return the bundles whose files the package has."""
    folder = Path(ask.__file__).parent / "assets"
    return [
        name
        for name, files in ask.BUNDLES.items()
        if all((folder / one).is_file() for one in files)
    ]


def code() -> str:
    """Return the site's script: everything, for the elements of each bundle."""
    have = bundles()
    return ask.script("lab" if "lab" in have else "ask", [ask.tag(one) for one in have])


def address() -> str:
    """Return the script's place on the site: its name has its hash, so that it may be kept."""
    return f"interactive/lab-{hashlib.sha256(code().encode()).hexdigest()[:8]}.js"


def lift(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Take scripts and pictures out of a page's interactive pieces, and ask for the one file."""
    body = context.get("body")
    if not body or not PIECE.search(body):
        return
    known = {ask.tag(one) for one in bundles()}
    for old in sorted(set(PIECE.findall(body)) - known):
        log.warning("%s: <%s> was made with another script: run tools/restamp.py", pagename, old)

    def file(match: re.Match[str]) -> str:
        data = b64decode(match[1])
        name = f"_images/ask-{hashlib.sha256(data).hexdigest()[:16]}.png"
        path = Path(app.outdir) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return f'<img loading="lazy" src="{context["pathto"](name, 1)}"'

    context["body"] = PICTURE.sub(file, INLINE.sub("", body))
    source = context["pathto"](address(), 1)
    context["metatags"] = (
        f'{context.get("metatags", "")}\n<meta name="roofline-site" content="1">'
        f'\n<script defer src="{source}"></script>'
    )


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the script."""
    if error is None and app.builder.format == "html":
        path = Path(app.outdir) / address()
        path.parent.mkdir(exist_ok=True)
        path.write_text(code(), "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("html-page-context", lift)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
