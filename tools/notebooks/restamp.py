"""Put the package's present script into the interactive outputs of the committed notebooks.

An output carries the script that brings it to life. After a change to ``roofline_helpers/assets``
this writes the new one into every notebook, and executes nothing; ``--check`` only says where an
old one is left. Notebooks may be named; all of ``_toc.yml`` are meant if none is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from roofline_helpers import ask
from tools import books
from tools.notebooks import run as notebooks

TAG = re.compile(rf"roofline-({'|'.join(ask.BUNDLES)})-[0-9a-f]{{8}}\b")
SCRIPT = re.compile(r'<script type="module" data-roofline>.*?</script>', re.DOTALL)


def stamped(html: str) -> str:
    """Return an output's HTML with the present script and element names."""
    markup = SCRIPT.sub("", html)
    bundles = sorted(set(TAG.findall(markup)))
    if not bundles:
        return html
    code = ask.script(ask.widest(bundles), [ask.tag(one) for one in bundles])
    tags = TAG.sub(lambda match: ask.tag(match[1]), markup)
    return f"{tags.rstrip()}\n{ask.opening()}\n{code}</script>"


def restamp(path: Path, write: bool = True) -> bool:
    """Bring one notebook up to date; return whether it was not."""
    notebook = notebooks.load(path)
    old = False
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            html = output.get("data", {}).get("text/html", "")
            if SCRIPT.search(html) and stamped(html) != html:
                old, output["data"]["text/html"] = True, stamped(html)
    if old and write:
        notebooks.write({path: notebooks.dump(notebook)})
    return old


def main() -> int:
    """Read the command line and do what it says."""
    arguments = sys.argv[1:]
    check = "--check" in arguments
    named = [Path(one) for one in arguments if one != "--check"]
    old = [path.name for path in named or books.notebooks() if restamp(path, write=not check)]
    print(f"{'old' if check else 'renewed'}: {', '.join(old) or 'none'}")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
