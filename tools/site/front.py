"""Copy the pictures that README and front page show out of the executed notebooks.

    python -m tools.site.front          write them
    python -m tools.site.front check    say which differ

They are the checked outputs themselves, so they cannot differ from what a cell draws.
"""

from __future__ import annotations

import sys
from base64 import b64decode

from tools import books
from tools.notebooks import run as notebooks

COPIES = {"book/images/rooflines.png": ("notebooks/hardware-comparison.ipynb", "fig-compare-tpus")}


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


def differing() -> list[str]:
    """Return the copies that are missing or differ from the notebook's output."""
    paths = {name: books.ROOT / name for name in COPIES}
    return [
        name
        for name, path in paths.items()
        if not path.is_file() or path.read_bytes() != picture(*COPIES[name])
    ]


def main() -> int:
    """Write the copies, or check them."""
    stale = differing()
    if sys.argv[1:] == ["check"]:
        print("\n".join(f"{name} differs: run `make notebooks`" for name in stale))
        return 1 if stale else 0
    for name in stale:
        (books.ROOT / name).write_bytes(picture(*COPIES[name]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
