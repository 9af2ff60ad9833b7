"""Print the whole book into one PDF, and link it from every page of the built site.

python -m tools.site.pdf        writes _build/html/roofline-analysis.pdf (needs Chromium)

The chapters and the reference pages follow each other as on the site, without folded code and
without the package's reference, which nobody reads on paper. Answers stand below their questions.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from playwright.sync_api import Error

from tools import books
from tools.site import chrome

NAME = "roofline-analysis.pdf"
LEFT_OUT = {"book/api"}
FOOTER = (
    '<div style="width:100%;font:8px sans-serif;text-align:center;color:#666">'
    '<span class="pageNumber"></span></div>'
)
STYLE = """
article { break-before: page; }
h1 { border: 0; font-size: 22pt; }
nav.toc { display: block !important; }
nav.toc li { margin: 0.2rem 0; }
.cover { padding-top: 35vh; }
.cover h1 { font-size: 34pt; }
picture source { display: none; }
img { max-width: 80%; }
"""


def article(site: Path, name: str) -> str:
    """Return a page's article, with ids and links that hold in one document."""
    text = (site / f"{name}.html").read_text("utf-8")
    found = re.search(r"<article>(.*)</article>", text, re.DOTALL)
    if not found:
        raise LookupError(f"{name}.html has no article")
    body = re.sub(r"<script\b.*?</script>", "", found[1], flags=re.DOTALL)
    body = re.sub(r'<details class="fold">.*?</details>', "", body, flags=re.DOTALL)
    body = re.sub(r"<source\b[^<>]*>", "", body).replace(' loading="lazy"', "")
    body = re.sub(r'<a class="headerlink".*?</a>', "", body)
    body = re.sub(r"<details(?![^>]*\bopen\b)", "<details open", body)
    here = (site / name).parent

    def place(address: str) -> str:
        if re.match(r"[a-z]+:", address):
            return address
        path, _, anchor = address.partition("#")
        page = (here / path).resolve().relative_to(site.resolve()) if path else Path(f"{name}.html")
        if page.suffix != ".html":
            return page.as_posix()
        target = page.with_suffix("").as_posix()
        if target in LEFT_OUT:
            return f"#{key(name)}"
        return f"#{key(target)}" + (f"-{anchor}" if anchor else "")

    body = re.sub(r'\bid="([^"]+)"', lambda one: f'id="{key(name)}-{one[1]}"', body)
    body = re.sub(r'\bfor="([^"]+)"', lambda one: f'for="{key(name)}-{one[1]}"', body)
    body = re.sub(r'\b(href|src)="([^"]+)"', lambda one: f'{one[1]}="{place(one[2])}"', body)
    return f'<article id="{key(name)}">{body}</article>'


def key(name: str) -> str:
    """Return the id of a page in the document."""
    return name.replace("/", "-")


def document(site: Path, names: list[str]) -> str:
    """Return the whole book as one page."""
    home = (site / "index.html").read_text("utf-8")
    title = re.search(r"<title>(.*?)</title>", home)
    sheet = re.search(r'<link rel="stylesheet" href="([^"]+)"', home)
    if not title or not sheet:
        raise LookupError("index.html has no title or no style sheet")
    parts = [article(site, name) for name in names]
    heads = [re.search(r"<h1>(.*?)</h1>", part, re.DOTALL) for part in parts]
    entries = "".join(
        f'<li><a href="#{key(name)}">{re.sub("<[^>]+>", "", head[1]) if head else name}</a></li>'
        for name, head in zip(names, heads, strict=True)
    )
    cover = f'<section class="cover"><h1>{title[1]}</h1><p>Text and figures CC BY 4.0, code'
    cover += " Apache-2.0. Folded code and the package's reference are on the site and in the"
    cover += " notebooks.</p></section>"
    return (
        f'<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">'
        f'<title>{title[1]}</title><link rel="stylesheet" href="{sheet[1]}">'
        f"<style>{STYLE}</style></head><body><main>{cover}"
        f'<nav class="toc" style="break-before: page"><h2>Contents</h2><ul>{entries}</ul></nav>'
        f"{''.join(parts)}</main></body></html>"
    )


def printed(site: Path, target: Path, names: list[str]) -> None:
    """Print the book."""
    page_file = site / "printed.html"
    page_file.write_text(document(site, names), "utf-8")
    try:
        with chrome.launched() as browser:
            page = browser.new_context(java_script_enabled=False, offline=True).new_page()
            page.goto(page_file.as_uri())
            page.pdf(
                path=target,
                format="A4",
                margin={"top": "18mm", "bottom": "18mm", "left": "18mm", "right": "18mm"},
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=FOOTER,
                print_background=True,
                outline=True,
                tagged=True,
            )
    finally:
        page_file.unlink()


def linked(site: Path) -> int:
    """Add the PDF to every page's list, below the offline copy; return how many pages have it."""
    offline = re.compile(r'(<li><a href="((?:\.\./)*)_static/[^"]*\.zip".*?</li>)')
    count = 0
    for path in site.rglob("*.html"):
        text = path.read_text("utf-8")
        if NAME not in text:
            text = offline.sub(rf'\1\n    <li><a href="\2{NAME}">Book as PDF</a></li>', text)
            path.write_text(text, "utf-8")
        count += NAME in text
    return count


def main() -> int:
    """Print and link."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--site", type=Path, default=books.ROOT / "_build/html")
    site = parser.parse_args().site.resolve()
    target = site / NAME
    try:
        printed(site, target, [name for name in books.pages() if name not in LEFT_OUT])
    except (Error, FileNotFoundError) as error:
        print(f"no PDF: {error}", file=sys.stderr)
        return 1
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB, linked from {linked(site)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
