"""Make slides and a teacher's answer key out of the built site.

python -m tools.site.slides     writes _build/slides.html and _build/answers.html

A chapter's slides are its title with what it teaches, each of its figures, and its take-away; the
key has every question with its answer. Both open offline, beside _build/html, and can be printed.
"""

from pathlib import Path

from bs4 import BeautifulSoup

from tools import books

STYLE = """html { scroll-snap-type: y proximity } main { max-width: none }
section { break-after: page; scroll-snap-align: start; padding: 4vh 8vw }
.slide { min-height: 92vh } .slide h1, .slide h2 { border: 0; margin: 0 0 4vh }
.slide li, .slide figcaption { font-size: 1.4rem; max-width: none; margin: 0.6rem 0 }
.slide img { width: auto; height: 62vh; max-width: 100%; object-fit: contain }
.key > div { break-inside: avoid; margin: 2rem 0 } @page { size: A4 landscape; margin: 10mm }"""


def parts(site: Path, name: str) -> tuple[str, str]:
    """Return a page's slides and its questions with their answers, as HTML for site's parent."""
    page = BeautifulSoup((site / f"{name}.html").read_text("utf-8"), "html.parser")
    for one in page.select("script, a.headerlink, picture > source"):
        one.decompose()
    for one in page.select("article a"):
        one.unwrap()
    for one in page.select("article img"):
        one["src"] = f"{site.name}/" + str(one["src"]).removeprefix("../")
        one.attrs.pop("loading", None)
    for one in page.select("roofline-ask details"):
        one["open"] = ""
    asked = page.select("roofline-ask")
    for ask in asked:
        ask.name, ask.attrs = "div", {}
    ends = [h2.parent for h2 in page.select("article h2") if "Take-away" in h2.get_text()]
    slides = [f"{page.h1}{page.select_one('article ul')}", *page.select("article figure"), *ends]
    shown = "".join(f'<section class="slide">{slide}</section>' for slide in slides)
    key = f'<section class="key">{page.h1}{"".join(map(str, asked))}</section>'
    return shown, key if asked else ""


def write(site: Path, pages: list[str]) -> None:
    """Write both files next to the folder of the site."""
    sheet = BeautifulSoup((site / "index.html").read_text("utf-8"), "html.parser")
    [style] = [str(one["href"]) for one in sheet.select('link[rel="stylesheet"]')]
    head = '<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8">'
    head += f'<link rel="stylesheet" href="{site.name}/{style}"><style>{STYLE}</style>'
    contents = zip(*(parts(site, page) for page in pages), strict=True)
    for name, content in zip(("slides", "answers"), contents, strict=True):
        body = f"{head}<title>{name}</title><main>{''.join(content)}</main></html>"
        site.with_name(f"{name}.html").write_text(body, "utf-8")


if __name__ == "__main__":
    write(books.ROOT / "_build/html", [f"notebooks/{path.stem}" for path in books.notebooks()])
