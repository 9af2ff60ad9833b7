"""Make the pictures of the prose pages and the README again, where they have changed.

    python -m tools.site.pictures

A copy is the checked output of a notebook's cell itself, so it cannot differ from what that draws.
``book/_ext/page_promises.py`` draws the page of promises out of its record, and
``book/_ext/page_figures.py`` runs the front page's program, where there is a compiler for it.
"""

import sys
from base64 import b64decode

from tools import books
from tools.notebooks import run as notebooks

sys.path.append(str(books.ROOT / "book/_ext"))  # where Sphinx finds it, too
from page_figures import EXPLAINED, explained
from page_promises import picture as promised
from roofline.xla import can_compile

LAST = "notebooks/can-you-trust-a-roofline.ipynb"
COPIES = {
    "book/images/distance.png": ("notebooks/limitations.ipynb", "fig-distance"),
    "book/images/decode-first.png": (
        "notebooks/decode-step-made-fast.ipynb",
        "fig-decode-first",
    ),
    "book/images/scoreboard-errors.png": (LAST, "fig-step-errors"),
}


def picture(notebook: str, name: str) -> bytes:
    """Return the PNG that a notebook's cell with this figure name has drawn.

    Raises
    ------
    LookupError
        No such figure in that notebook, or it was not executed.
    """
    for cell in notebooks.load(books.ROOT / notebook).cells:
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if figure.get("name") == name:
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    return b64decode(output["data"]["image/png"])
    raise LookupError(f"{notebook} has no drawn figure named {name!r}")


def copies() -> dict[str, bytes]:
    """Return what each copy should hold: what the notebooks' cells have drawn."""
    return {name: picture(*source) for name, source in COPIES.items()}


if __name__ == "__main__":
    for name, content in copies().items():
        (books.ROOT / name).write_bytes(content)
    promised().savefig(
        books.ROOT / "book/images/promises.png", dpi=200, metadata={"Software": None}
    )
    if can_compile("v6e") is None:
        explained().save(EXPLAINED)
