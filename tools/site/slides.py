"""Make slides and a teacher's answer key out of the built site.

python -m tools.site.slides     writes _build/slides.html and _build/answers.html

A chapter's slides are its title with what it teaches, each of its figures, and its take-away; above
each stands the section that it is from, a link to it. Arrow keys turn them, and what is taller than
the screen gets smaller. The key has every question with its answer. Both open offline, beside
_build/html, and can be printed.
"""

from pathlib import Path

from bs4 import BeautifulSoup, Tag

from tools import books

HERE = Path(__file__).parent


def place(part: Tag, page: str) -> str:
    """Return a link to the section that a part of a page is from: "5. Fusion · Four ways"."""
    section = part if part.name == "section" else part.find_parent("section")
    above = part.find_previous("h1"), part.find_previous(["h1", "h2"])
    names = dict.fromkeys(one.get_text() for one in above if one)
    anchor = f"#{section['id']}" if section is not None and section.get("id") else ""
    return f'<p class="where"><a href="{page}{anchor}">{" · ".join(names)}</a></p>'


def parts(site: Path, name: str) -> tuple[str, str]:
    """Return a page's slides and its questions with their answers, as HTML for site's parent."""
    page = BeautifulSoup((site / f"{name}.html").read_text("utf-8"), "html.parser")
    for one in page.select("script, button, a.headerlink, picture > source"):
        one.decompose()
    for one in page.select("article a"):
        one.unwrap()
    for one in page.select("article img"):
        one["src"] = f"{site.name}/" + str(one["src"]).removeprefix("../")
        one.attrs.pop("loading", None)
    for one in page.select("article picture"):
        one.unwrap()
    for one in page.select("roofline-ask details"):
        one["open"] = ""
    asked = page.select("roofline-ask")
    for ask in asked:
        ask.name, ask.attrs = "div", {}
    ends = [h2.parent for h2 in page.select("article h2") if "Take-away" in h2.get_text()]
    pieces = [one for one in (*page.select("article figure"), *ends) if one is not None]
    address = f"{site.name}/{name}.html"
    goals = page.select_one("article ul")
    ahead = len(goals.find_all_previous("figure")) if goals else 0  # goals speak of these
    slides = []
    for one in pieces:
        told = place(one, address)
        one.name = "div" if one.name == "section" else one.name  # a slide is the section
        slides.append(f"{told}{one}")
    slides.insert(ahead, f"{page.h1}{goals}")
    shown = "".join(f'<section class="slide">{slide}</section>' for slide in slides)
    key = f'<section class="key">{page.h1}{"".join(map(str, asked))}</section>'
    return shown, key if asked else ""


def write(site: Path, pages: list[str]) -> None:
    """Write both files next to the folder of the site."""

    def read(kind: str) -> str:
        return (HERE / f"slides.{kind}").read_text("utf-8")

    sheet = BeautifulSoup((site / "index.html").read_text("utf-8"), "html.parser")
    [style] = [str(one["href"]) for one in sheet.select('link[rel="stylesheet"]')]
    book = sheet.h1.get_text().removesuffix("#") if sheet.h1 else "Slides"
    head = '<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8">'
    head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f'<link rel="stylesheet" href="{site.name}/{style}"><style>{read("css")}</style>'
    first = f'<section class="slide"><h1>{book}</h1><p>Arrow keys turn the slides.</p></section>'
    shown, keys = zip(*(parts(site, page) for page in pages), strict=True)
    for name, content in (("slides", (first, *shown)), ("answers", keys)):
        script = f"<script>{read('js')}</script>" if name == "slides" else ""
        title = f"<title>{book}: {name}</title>"
        body = f"{head}{title}<main>{''.join(content)}</main>{script}</html>"
        site.with_name(f"{name}.html").write_text(body, "utf-8")


if __name__ == "__main__":
    write(books.ROOT / "_build/html", [f"notebooks/{path.stem}" for path in books.notebooks()])
