"""Write into every notebook's first cell where it installs the package from, or take that out.

    python -m tools.repository https://github.com/OWNER/NAME [--ref TAG]
    python -m tools.repository --unset

Only notebooks that are opened alone, as in Colab, need it: without an address they install the
package from the clone that they lie in, and the pages have no Colab button. The site itself needs
no address to be kept: a build on GitHub takes it from ``GITHUB_REPOSITORY``.
"""

import argparse
import re
from pathlib import Path

from tools import books
from tools.notebooks import run as notebooks

ADDRESS = re.compile(r"(?:https://github\.com/[\w.-]+/[\w.-]+?|file:///[^\s\"'@#]+?)(?:\.git)?/?")
REF = re.compile(r"\w[\w./-]*")
INSTALLED = re.compile(r'else "(.*)"')

# With an address, and without. What is around the notebook goes first: a clone's reader may have
# changed it. JAX is left as it is where there is one.
FROM = """\
if not find_spec("roofline_helpers"):
    book = ".." if isdir("../roofline_helpers") else "{source}"
    %pip install --quiet {{book}}"""
HERE = """\
if not find_spec("roofline_helpers"):
    if not isdir("../roofline_helpers"):
        raise SystemExit(
            "The book's package isn't here. Open this notebook in a clone of its repository, or run"
            " %pip install https://github.com/OWNER/NAME/archive/main.zip first: OWNER/NAME is"
            " the repository that you have this notebook from."
        )
    %pip install --quiet .."""
SETUP = f"""\
# @title {notebooks.SETUP_TITLE}
from importlib.util import find_spec
from os.path import isdir

{{install}}
if not (find_spec("jax") and find_spec("seaborn")):
    %pip install --quiet jax seaborn"""


def source(url: str, ref: str = "main") -> str:
    """Return what pip installs: an archive, which has no history, or a folder for a trial.

    Raises
    ------
    ValueError
        Not the address of a repository, or no branch, tag or commit.
    """
    if not ADDRESS.fullmatch(url.strip()):
        allowed = "https://github.com/OWNER/NAME, or file:///PATH for a trial"
        raise ValueError(f"not an address this book can point to: {url!r}. Allowed: {allowed}")
    if not REF.fullmatch(ref):
        raise ValueError(f"not a branch, tag or commit: {ref!r}")
    place = url.strip().removesuffix("/").removesuffix(".git")
    return place if place.startswith("file:") else f"{place}/archive/{ref}.zip"


def setup_cell(source: str | None) -> str:
    """Return the source of every notebook's first code cell."""
    install = FROM.format(source=source) if source else HERE
    return SETUP.format(install=install)


def current(root: Path) -> str | None:
    """Return what the first notebook installs from, None where it installs nothing."""
    first = notebooks.setup(notebooks.load(books.notebooks(root)[0]))
    found = INSTALLED.search(first.source)
    return found[1] if found else None


def stamp(root: Path, source: str | None) -> None:
    """Write the first code cell of all notebooks."""
    for path in books.notebooks(root):
        notebook = notebooks.load(path)
        notebooks.setup(notebook).source = setup_cell(source)
        path.write_text(notebooks.dump(notebook), "utf-8")


def main() -> None:
    """Read the command line and stamp."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("url", nargs="?", help="https://github.com/OWNER/NAME")
    parser.add_argument("--ref", default="main", help="branch, tag or commit (default: main)")
    parser.add_argument("--unset", action="store_true", help="take the address out again")
    options = parser.parse_args()
    if bool(options.url) == options.unset:
        parser.error("say `make repository URL=https://github.com/OWNER/NAME`, or URL=--unset")
    try:
        stamp(books.ROOT, None if options.unset else source(options.url, options.ref))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
