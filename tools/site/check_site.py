"""Check a built site as a browser meets it: pages, links, fragments, pictures, requests."""

import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag

# Sphinx's own pages: no page of ours, but their links must hold too
GENERATED = {"genindex", "search", "py-modindex", "404"}
SAMPLES = "samples"  # reports of explain, each a page of its own
SHORTEST = 40  # words a page must have to count as written
FILE_NAME = re.compile(r"\.(png|jpe?g|svg|gif|webp)\s*$", re.IGNORECASE)
CSS_URL = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])([^"')\s]+)""")
MODULE = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["'](https?:[^"']+|//[^"']+)["']""")
# What the browser fetches without a click: elements and their attribute
LOADS = {
    "link:is([rel~=stylesheet], [rel~=icon], [rel~=preload], [rel~=prefetch], [rel~=preconnect])": (
        "href"
    ),
    "script, iframe, embed, audio, video, source, track, input, img": "src",
    "object": "data",
}


def loads(page: BeautifulSoup) -> set[str]:
    """Return the addresses that a page fetches by itself."""
    found = {
        str(one[name])
        for where, name in LOADS.items()
        for one in page.select(where)
        if one.get(name)
    }
    for one in page.select("[srcset]"):
        found |= {part.split()[0] for part in str(one["srcset"]).split(",") if part.strip()}
    for one in page.select("[style]"):
        found |= {*CSS_URL.findall(str(one["style"]))}
    for one in page.find_all(["style", "script"]):
        find = CSS_URL if one.name == "style" else MODULE
        found |= {*find.findall(one.get_text())}
    return {address for address in found if not address.startswith("data:")}


def target(site: Path, page: Path, address: str, root: str = "/") -> tuple[Path, str] | None:
    """Return the file and the fragment that an internal address means, None for an outside one.

    `root` is where the site will lie on its server.
    """
    parts = urlsplit(address)
    if parts.scheme or address.startswith("//"):
        return None
    name = unquote(parts.path)
    if not name:
        return page, unquote(parts.fragment)
    base = site if name.startswith(root) else page.parent
    path = Path((base / name.removeprefix(root)).resolve())
    return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)


def unwritten(page: BeautifulSoup) -> list[str]:
    """Return what one of the book's own pages lacks: a text, a heading, words for a picture."""
    article = page.article or Tag(name="article")
    words = len(article.get_text(" ").split())
    heads = len(article.find_all("h1"))
    problems = []
    if words < SHORTEST or heads != 1:
        problems.append(f"{words} words under {heads} main headings: no written page")
    for image in page.find_all("img"):
        source = str(image.get("src"))
        alt = image.get("alt")
        if alt is None:
            problems.append(f"picture {source!r} has no alt text")
        elif FILE_NAME.search(str(alt)) or (alt and alt == Path(source).name):
            problems.append(f"picture {source!r} has a file name for its alt text")
        elif not str(alt).strip() and not source.endswith("logo.svg"):
            problems.append(f"picture {source!r} has an empty alt text")
    return problems


def check_page(
    site: Path, path: Path, page: BeautifulSoup, ids: dict[Path, Counter[str]]
) -> list[str]:
    """Return what is wrong with a page's ids, its links and what it loads."""
    written = str(page.html.get("data-content_root")) if page.html else ""
    root = written if written.startswith("/") else "/"
    problems = [f"the id {one!r} is there twice" for one, count in ids[path].items() if count > 1]
    for address in sorted({str(one["href"]) for one in page.select("a[href]")}):
        reached = target(site, path, address, root)
        if reached is None:
            continue
        file, fragment = reached
        if not file.is_relative_to(site) or not file.is_file():
            problems.append(f"link to {address!r}: no such file")
        elif fragment and file.suffix == ".html" and fragment not in ids[file]:
            problems.append(f"link to {address!r}: no such place on that page")
    for address in sorted(loads(page)):
        reached = target(site, path, address, root)
        if reached is None:
            problems.append(f"asks the network for {address!r}")
        elif not reached[0].is_file():
            problems.append(f"loads {address!r}: no such file")
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
    pages = {path: BeautifulSoup(path.read_text("utf-8"), "html.parser") for path in paths}
    ids = {path: Counter(str(one["id"]) for one in pages[path].select("[id]")) for path in paths}
    for path, page in pages.items():
        name = path.relative_to(site).with_suffix("").as_posix()
        if name not in {*names, *GENERATED, "index"} and path.parent != site / SAMPLES:
            problems.append(f"{name}.html: not in the table of contents")
        found = check_page(site, path, page, ids) + (unwritten(page) if name in names else [])
        problems += [f"{name}.html: {problem}" for problem in found]
    for path in sorted(site.rglob("*.css")):
        for address in sorted({*CSS_URL.findall(path.read_text("utf-8", errors="replace"))}):
            if address.startswith("//") or urlsplit(address).scheme in {"http", "https"}:
                problems.append(f"{path.relative_to(site)}: asks the network for {address!r}")
    return problems
