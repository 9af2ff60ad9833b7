"""Check a built site as a browser meets it: pages, links, fragments, pictures, requests."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools import books

# Sphinx's own pages: no page of ours, but their links must hold too
GENERATED = {"genindex", "search", "py-modindex"}
SHORTEST = 40  # words a page must have to count as written
FILE_NAME = re.compile(r"\.(png|jpe?g|svg|gif|webp)\s*$", re.IGNORECASE)
CSS_URL = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])([^"')\s]+)""")
MODULE = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["'](https?:[^"']+|//[^"']+)["']""")


@dataclass
class Page:
    """What one HTML file asks for and offers."""

    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)  # fetched by the browser without a click
    images: list[tuple[str, str | None]] = field(default_factory=list)
    words: int = 0
    headings: int = 0


class Reader(HTMLParser):
    """Collects a :class:`Page` from HTML text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.depth = 0  # inside <article>
        self.silent: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take ids, links and requests from one tag."""
        got = dict(attrs)
        page = self.page
        if got.get("id"):
            page.ids.append(str(got["id"]))
        if tag == "a" and got.get("href") is not None:
            page.links.append(str(got["href"]))
        if tag == "link" and got.get("href"):
            relation = str(got.get("rel"))
            if any(word in relation for word in ("stylesheet", "icon", "preload", "prefetch")):
                page.loads.append(str(got["href"]))
            if "preconnect" in relation:
                page.loads.append(str(got["href"]))
        if tag in {"script", "iframe", "embed", "audio", "video", "source", "track", "input"}:
            if got.get("src"):
                page.loads.append(str(got["src"]))
            if tag == "script" and got.get("type") in {None, "module", "text/javascript"}:
                self.silent = tag
        if tag == "object" and got.get("data"):
            page.loads.append(str(got["data"]))
        if tag == "img":
            page.images.append((str(got.get("src") or ""), got.get("alt")))
        for part in str(got.get("srcset") or "").split(","):
            if part.strip():
                page.loads.append(part.split()[0])
        if got.get("style"):
            page.loads += CSS_URL.findall(str(got["style"]))
        if tag in {"script", "style"}:
            self.silent = tag
        if tag == "article":
            self.depth += 1
        if tag == "h1" and self.depth:
            self.page.headings += 1

    def handle_endtag(self, tag: str) -> None:
        """Leave a script, a style or the article."""
        if tag == self.silent:
            self.silent = None
        if tag == "article":
            self.depth -= 1

    def handle_data(self, data: str) -> None:
        """Count the article's words; look for requests inside styles and module scripts."""
        if self.silent == "style":
            self.page.loads += CSS_URL.findall(data)
        elif self.silent == "script":
            self.page.loads += MODULE.findall(data)
        elif self.depth:
            self.page.words += len(data.split())


def read(path: Path) -> Page:
    """Read one HTML file."""
    reader = Reader()
    reader.feed(path.read_text("utf-8"))
    reader.close()
    return reader.page


def outside(address: str) -> bool:
    """Tell whether the browser would leave the site for ``address``."""
    return address.startswith("//") or urlsplit(address).scheme in {"http", "https", "ws", "wss"}


def target(site: Path, page: Path, address: str) -> tuple[Path, str] | None:
    """Return the file and the fragment that an internal address means, None for an outside one."""
    parts = urlsplit(address)
    if parts.scheme or address.startswith("//"):
        return None
    name = unquote(parts.path)
    if not name:
        return page, unquote(parts.fragment)
    base = site if name.startswith("/") else page.parent
    path = Path((base / name.lstrip("/")).resolve())
    return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)


def check_page(site: Path, path: Path, read_pages: dict[Path, Page], written: bool) -> list[str]:
    """Return what is wrong with one page; ``written`` where it is one of the book's own."""
    page = read_pages[path]
    name = path.relative_to(site).as_posix()
    problems = []
    if written and (page.words < SHORTEST or page.headings != 1):
        problems.append(
            f"{name}: {page.words} words under {page.headings} main headings: no written page"
        )
    for twice in sorted({one for one in page.ids if page.ids.count(one) > 1}):
        problems.append(f"{name}: the id {twice!r} is there twice")
    for address in sorted(set(page.links)):
        reached = target(site, path, address)
        if reached is None:
            continue
        file, fragment = reached
        if not file.is_relative_to(site) or not file.is_file():
            problems.append(f"{name}: link to {address!r}: no such file")
        elif fragment and file.suffix == ".html" and fragment not in set(read_pages[file].ids):
            problems.append(f"{name}: link to {address!r}: no such place on that page")
    for address in sorted(set(page.loads) | {source for source, _ in page.images}):
        if address.startswith("data:"):
            continue
        reached = target(site, path, address)
        if outside(address) or reached is None:
            problems.append(f"{name}: asks the network for {address!r}")
        elif not reached[0].is_file():
            problems.append(f"{name}: loads {address!r}: no such file")
    if not written:
        return problems
    for source, alt in page.images:
        if alt is None:
            problems.append(f"{name}: picture {source!r} has no alt text")
        elif FILE_NAME.search(alt) or (alt and alt == Path(source).name):
            problems.append(f"{name}: picture {source!r} has a file name for its alt text")
        elif not alt.strip() and not source.endswith("logo.svg"):
            problems.append(f"{name}: picture {source!r} has an empty alt text")
    return problems


def check_styles(site: Path) -> list[str]:
    """Return what the style sheets ask for and do not get on the site."""
    problems = []
    for path in sorted(site.rglob("*.css")):
        for address in sorted(set(CSS_URL.findall(path.read_text("utf-8", errors="replace")))):
            if address.startswith(("data:", "#")) or address == "none":
                continue
            if outside(address):
                problems.append(f"{path.relative_to(site)}: asks the network for {address!r}")
    return problems


def check(site: Path, names: list[str]) -> list[str]:
    """Return every problem of the site that lies in ``site``, one line each.

    Parameters
    ----------
    site : Path
        The folder of ``index.html``.
    names : list of str
        The pages that must be there, without suffix; an HTML file that is not among them, nor one
        of Sphinx's own, is a problem too.
    """
    site = site.resolve()
    index = site / "index.html"
    if not index.is_file() or not index.read_text("utf-8").strip():
        return [f"{index}: missing or empty"]
    problems = [f"{name}.html: missing" for name in names if not (site / f"{name}.html").is_file()]
    paths = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    read_pages = {path: read(path) for path in paths}
    for path in paths:
        name = path.relative_to(site).with_suffix("").as_posix()
        if name not in names and name not in GENERATED and name != "index":
            problems.append(f"{name}.html: not in the table of contents")
        # index.html may be a redirect to the first page: then it is checked as that page
        problems += check_page(site, path, read_pages, written=name in names)
    return problems + check_styles(site)


def main() -> int:
    """Check the built site and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, nargs="?", default=books.ROOT / "_build/html")
    site = parser.parse_args().site
    problems = check(site, books.pages())
    print("\n".join(problems) or f"{site}: no problem found")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
