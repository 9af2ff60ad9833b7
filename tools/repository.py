"""Write the repository's address where it belongs, or take it out again.

The one place is ``repository: url:`` in ``_config.yml``; everything else follows from it: links
of the site, badges of the README, the citation, the package's links, the first code cell of every
notebook. Without an address nothing points anywhere. ::

    python -m tools.repository https://github.com/OWNER/REPOSITORY
    python -m tools.repository --unset
    python -m tools.repository            # stamp again with the address that is set

Pages and buttons name the branch. What notebooks install doesn't move with it: the tag or commit of
``--ref``, or the commit that was checked out when the address was set.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tools import books
from tools.notebooks import run as notebooks

GITHUB = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?/?")
LOCAL = re.compile(r"(?:git\+)?file:///[^\s\"'@#]+")
REF = re.compile(r"[\w][\w./-]*")
PIN = re.compile(r"^  # notebooks install ([0-9a-f]{40})$", re.MULTILINE)

SETUP_HERE = """\
# The book's package: an environment made by `make lab` in a clone has it
import importlib.util

if importlib.util.find_spec("roofline_helpers") is None:
    raise ModuleNotFoundError(
        "This notebook needs the package roofline_helpers, which comes with the "
        "book. In a clone of it run `make lab` and open the notebook there, or run "
        "`pip install 'PATH[plots]'`, where PATH is the clone's top folder."
    )
"""
SETUP_FROM = """\
# The book's package: there already in a clone, installed here where it is missing
import importlib.util

if importlib.util.find_spec("roofline_helpers") is None:
    %pip install --quiet "roofline_helpers[plots] @ {source}"
"""


class Address:
    """The repository's address, the branch or tag that readers get, the commit they install."""

    def __init__(self, url: str, ref: str = "main", pin: str | None = None) -> None:
        url = url.strip()
        github = GITHUB.fullmatch(url)
        if github is None and LOCAL.fullmatch(url) is None:
            raise ValueError(
                f"not an address this book can point to: {url!r}. Allowed: "
                "https://github.com/OWNER/REPOSITORY, or file:///PATH for a trial"
            )
        if REF.fullmatch(ref) is None:
            raise ValueError(f"not a branch, tag or commit: {ref!r}")
        self.ref, self.pin = ref, pin
        self.slug = f"{github[1]}/{github[2]}" if github else None
        self.url = f"https://github.com/{self.slug}" if self.slug else url.removeprefix("git+")

    @property
    def source(self) -> str:
        """What pip installs from."""
        return f"git+{self.url}@{self.pin or self.ref}"

    @property
    def site(self) -> str:
        """Where GitHub shows the built book; empty for an address that is not on GitHub."""
        owner, _, name = (self.slug or "").partition("/")
        return f"https://{owner.lower()}.github.io/{name}/" if name else ""


def setup_cell(address: Address | None) -> str:
    """Return the source of every notebook's first code cell."""
    text = SETUP_FROM.format(source=address.source) if address else SETUP_HERE
    return text.rstrip("\n")


def current(root: Path) -> Address | None:
    """Return the address that ``_config.yml`` holds, None where it is unset."""
    text = (root / "_config.yml").read_text("utf-8")
    config: dict[str, Any] = yaml.safe_load(text)
    pin = PIN.search(text)
    repository = config.get("repository") or {}
    url = repository.get("url")
    return Address(url, repository.get("branch", "main"), pin[1] if pin else None) if url else None


def checked_out(root: Path) -> str | None:
    """Return the commit that is checked out in ``root``, None where that is no repository."""
    command = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", "HEAD"]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def between(text: str, name: str, lines: list[str], path: str) -> str:
    """Return ``text`` with ``lines`` between the marks ``name:start`` and ``name:end``."""
    pattern = re.compile(
        rf"^([^\n]*\b(?<!-){name}:start[^\n]*\n)(.*?)^([^\n]*\b(?<!-){name}:end)",
        re.DOTALL | re.MULTILINE,
    )
    body = "".join(f"{line}\n" for line in lines)
    changed, count = pattern.subn(lambda match: match[1] + body + match[3], text)
    if count != 1:
        raise ValueError(f"{path}: {count} pairs of marks {name}:start and {name}:end, not one")
    return changed


def config_blocks(address: Address | None) -> dict[str, list[str]]:
    """Return what is between the marks of ``_config.yml``: the address, and what the site needs."""
    plain = ["    html_theme_options: {}"]
    if address is None:
        return {"repository": [], "site": plain}
    block = ["repository:", f"  url: {address.url}", f"  branch: {address.ref}"]
    block += [f"  # notebooks install {address.pin}"] if address.pin else []
    if not address.slug:
        return {"repository": block, "site": plain}
    site = [f"    html_baseurl: {address.site}", "    html_theme_options:"]
    site += [f"      repository_url: {address.url}", f"      repository_branch: {address.ref}"]
    return {"repository": block, "site": site}


def readme_block(address: Address | None, root: Path) -> list[str]:
    """Return the README's badges."""
    if address is None or address.slug is None:
        return []
    first = books.notebooks(root)[0].relative_to(root).as_posix()
    colab = "https://colab.research.google.com"
    return [
        f"[![Tests]({address.url}/actions/workflows/test.yml/badge.svg)]"
        f"({address.url}/actions/workflows/test.yml)",
        f"[![Open in Colab]({colab}/assets/colab-badge.svg)]"
        f"({colab}/github/{address.slug}/blob/{address.ref}/{first})",
        f"[Read the book]({address.site})",
    ]


def texts(root: Path, address: Address | None) -> dict[Path, str]:
    """Return the stamped text of every file that holds the address, notebooks included."""
    stamped = {}

    def put(name: str, blocks: dict[str, list[str]]) -> None:
        path = root / name
        text = path.read_text("utf-8")
        for mark, lines in blocks.items():
            text = between(text, mark, lines, name)
        stamped[path] = text

    put("_config.yml", config_blocks(address))
    put("README.md", {"repository": readme_block(address, root)})
    put("CITATION.cff", {"repository": [f"repository-code: {address.url}"] if address else []})
    urls = ["[project.urls]", f'Repository = "{address.url}"'] if address else []
    put("pyproject.toml", {"repository": urls})
    for path in books.notebooks(root):
        notebook = notebooks.load(path)
        cell = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
        if cell is None or cell.get("id") != notebooks.SETUP_ID:
            raise ValueError(
                f"{path.relative_to(root)}: the first code cell is not the setup cell "
                f"(its id is {notebooks.SETUP_ID!r}); `tools/notebooks/run.py new` makes one"
            )
        cell.source = setup_cell(address)
        stamped[path] = notebooks.dump(notebook)
    return stamped


def stamp(root: Path, address: Address | None) -> list[Path]:
    """Stamp every file, all or none; return the ones that changed."""
    changed = {
        path: text for path, text in texts(root, address).items() if path.read_text("utf-8") != text
    }
    for path, text in changed.items():
        path.write_text(text, "utf-8")
    return list(changed)


def main() -> int:
    """Read the command line and stamp."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("url", nargs="?", help="https://github.com/OWNER/REPOSITORY")
    parser.add_argument("--ref", help="branch, tag or commit that readers get (default: main)")
    parser.add_argument("--unset", action="store_true", help="take the address out again")
    parser.add_argument("--is", dest="wanted", metavar="URL", help="only check that it is this")
    parser.add_argument("--root", type=Path, default=books.ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        if options.unset and options.url:
            raise ValueError("either an address or --unset, not both")
        if options.url is not None and not options.url.strip():
            raise ValueError(
                "no address given. Say `make repository URL=https://github.com/OWNER/REPOSITORY`, "
                "or `make repository URL=--unset` to take it out"
            )
        address = None if options.unset else current(options.root)
        if options.wanted:
            if address is None:
                raise ValueError("no address is set: `make repository URL=…` first")
            if address.url.lower() != Address(options.wanted).url.lower():
                raise ValueError(f"the address set is {address.url}, not {options.wanted}")
            return 0
        if options.url:
            address = Address(options.url, options.ref or "main")
            if address.slug and not options.ref:
                address.pin = checked_out(options.root)
        elif address and options.ref:
            address = Address(address.url, options.ref)
        changed = stamp(options.root.resolve(), address)
    except (ValueError, FileNotFoundError) as error:
        print(f"repository: {error}", file=sys.stderr)
        return 2
    names = ", ".join(path.relative_to(options.root.resolve()).as_posix() for path in changed)
    print(f"repository: {address.url if address else 'unset'}; changed: {names or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
