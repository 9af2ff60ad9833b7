"""Sphinx extension: a script file for the interactive pieces of the pages.

A notebook's output carries its script along, so that it works alone. On the site the script stands
once, in ``interactive/ask-HASH.js`` for questions and ``interactive/lab-HASH.js`` where a page has
more: the browser keeps it, and no page has an inline script. Pictures inside a piece become files.

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
        log.warning("%s: <%s> was made with another script: run tools/restamp.py", pagename, old)

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


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("html-page-context", lift)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
