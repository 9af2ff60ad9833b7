"""Print the whole book into one PDF, and link it from every page of the built site.

python -m tools.site.pdf        writes _build/html/roofline-analysis.pdf (needs Chromium)

The chapters and the reference pages follow each other as on the site, without folded code and
without the package's reference, which nobody reads on paper. Answers stand below their questions.
"""

import os
import re
from html import escape
from pathlib import Path

from bs4 import BeautifulSoup, Tag

from tools import books
from tools.site import chrome

NAME = "roofline-analysis.pdf"
LEFT_OUT = "book/api"  # the package, with the pages below it
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


def key(name: str) -> str:
    """Return the id of a page in the document."""
    return name.replace("/", "-")


def placed(address: str, name: str) -> str:
    """Return what an address on a page is called in the one document."""
    if re.match(r"[a-z]+:", address):
        return address
    path, _, anchor = address.partition("#")
    page = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else f"{name}.html"
    target = page.removesuffix(".html")
    if target == page:
        return page
    if target.startswith(LEFT_OUT):
        return f"#{key(name)}"
    return f"#{key(target)}" + (f"-{anchor}" if anchor else "")


def article(page: BeautifulSoup, name: str) -> Tag:
    """Return a page's article, with ids and links that hold in one document.

    Raises
    ------
    LookupError
        The page has none.
    """
    body = page.find("article")
    if not isinstance(body, Tag):
        raise LookupError(f"{name}.html has no article")
    for one in body.select("script, details.fold, picture > source, a.headerlink"):
        one.decompose()
    for one in body.find_all("details"):
        one["open"] = ""
    for one in body.find_all(True):
        one.attrs.pop("loading", None)
        for attribute in {"id", "for"} & set(one.attrs):
            one[attribute] = f"{key(name)}-{one[attribute]}"
        for attribute in {"href", "src"} & set(one.attrs):
            one[attribute] = placed(str(one[attribute]), name)
    body["id"] = key(name)
    return body


def document(site: Path, names: list[str]) -> str:
    """Return the whole book as one page."""
    pages = {
        name: BeautifulSoup((site / f"{name}.html").read_text("utf-8"), "html.parser")
        for name in ["index", *names]
    }
    title = pages["index"].title
    sheet = pages["index"].select_one('link[rel="stylesheet"]')
    if title is None or sheet is None:
        raise LookupError("index.html has no title or no style sheet")
    articles = {name: article(pages[name], name) for name in names}
    heads = {name: one.h1.get_text() if one.h1 else name for name, one in articles.items()}
    entries = "".join(
        f'<li><a href="#{key(name)}">{escape(head)}</a></li>' for name, head in heads.items()
    )
    cover = f'<section class="cover"><h1>{title.get_text()}</h1><p>Text and figures CC BY 4.0, code'
    cover += " Apache-2.0. Folded code and the package's reference are on the site and in the"
    cover += " notebooks.</p></section>"
    return (
        f'<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">'
        f"<title>{title.get_text()}</title>{sheet}"
        f"<style>{STYLE}</style></head><body><main>{cover}"
        f'<nav class="toc" style="break-before: page"><h2>Contents</h2><ul>{entries}</ul></nav>'
        f"{''.join(map(str, articles.values()))}</main></body></html>"
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
    count = 0
    for path in site.rglob("*.html"):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        offline = [at for at, line in enumerate(lines) if "data-online" in line and ".zip" in line]
        if offline and not any(NAME in line for line in lines):
            up = "../" * (len(path.relative_to(site).parts) - 1)
            lines.insert(offline[0] + 1, f'    <li><a href="{up}{NAME}">Book as PDF</a></li>\n')
            path.write_text("".join(lines), "utf-8")
        count += any(NAME in line for line in lines)
    return count


def main() -> None:
    """Print and link."""
    site = books.ROOT / "_build/html"
    target = site / NAME
    printed(site, target, [name for name in books.pages() if not name.startswith(LEFT_OUT)])
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB, linked from {linked(site)} pages")


if __name__ == "__main__":
    main()
