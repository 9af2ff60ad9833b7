"""Sphinx extension: what stands in the pages made light, reachable and safe, and what lies beside.

Pages: figures get their size, wait below the fold, and have a version for dark pages; folded code
says what it hides; wide tables scroll inside themselves; no inline style is left, so that the
content security policy needs no exception. Beside them: search index, social cards, site map,
``robots.txt``, ``llms.txt``, one archive of everything to read offline.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sphinx.application import Sphinx

import cards
from theme import OFFLINE, PLAIN

TAG = re.compile(r"<[a-zA-Z][^<>]*>")
STYLE = re.compile(r'\s(?:style|border|align|valign)="[^"]*"')
FOLD = re.compile(
    r'<details class="admonition hide (?:above|below)-input">\s*<summary[^>]*>\s*'
    r'<p class="collapsed admonition-title">(.*?)</p>\s*<p class="expanded.*?</p>\s*</summary>',
    re.DOTALL,
)
FOLD_SAYS = {
    "Show code cell content": "Set-up code",
    "Show code cell source": "Code",
    "Show code cell output": "Output",
    "Show code cell outputs": "Output",
}
DROPDOWN = re.compile(
    r'<div class="([^"]*\bdropdown\b[^"]*)">\s*<p class="admonition-title">(.*?)</p>', re.DOTALL
)
HEADERLINK = re.compile(r'<a class="headerlink" href="([^"]*)" title="[^"]*">[^<]*</a>')
# Half of a page's elements: parts of code and of signatures that look like what is around them
_ALIKE = "|".join(filter(None, (*PLAIN, "colon", "sig-paren", "default_value")))
UNSEEN = re.compile(f'<span class="(?:{_ALIKE})">([^<]*)</span>')
EMPTY_HEAD = re.compile(r"<th\b[^<>]*>\s*(?:<p>\s*</p>)?\s*</th>")  # above a column of names
NO_HEAD = re.compile(r"<thead>\s*<tr[^<>]*>\s*(?:<td></td>\s*)+</tr>\s*</thead>")
IMAGE = re.compile(r'<img\b[^>]*\bsrc="((?:\.\./)*_images/([^"]+\.png))"[^>]*/?>')
FRAME = re.compile(r'<table\b[^<>]*class="dataframe".*?</table>', re.DOTALL)
ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
NUMBER = re.compile(r"[-−+~≈]?\d|[–-]$|(?:nan|NaN|inf|∞)$")
LONG = 44  # characters of a cell that may break
DARK, LIGHT = (0x12, 0x16, 0x1C), (0xE4, 0xE8, 0xEE)  # ground and ink of dark pages (book.css)
BRIGHT = 0.68  # lightness of full colours on dark pages, about
SHARP = 2  # pixels of a picture to a pixel of the page


def folded(found: re.Match[str]) -> str:
    """Return a fold whose summary says what is inside."""
    return f'<details class="fold"><summary>{FOLD_SAYS.get(found[1], found[1])}</summary>'


def sized(app: Sphinx, body: str) -> str:
    """Give every picture its size and its dark version; let those below the first wait."""
    sources = {name: path for path, (_, name) in app.env.images.items()}
    count = 0

    def put(found: re.Match[str]) -> str:
        nonlocal count
        address, name = found[1], found[2]
        # What no page names as its source is a picture inside an interactive piece
        here = sources.get(name)
        path = Path(app.srcdir) / here if here else Path(app.outdir) / "_images" / name
        if not path.is_file():
            return found[0]
        with Image.open(path) as picture:
            width, height = (round(side / SHARP) for side in picture.size)
        kept = re.sub(r'\s(?:width|height|loading|decoding)="[^"]*"', "", found[0]).rstrip("/> ")
        wait = ' loading="lazy" decoding="async"' if count else ""
        count += 1
        dark = f"{address.removesuffix('.png')}.dark.png"
        return (
            f'<picture><source data-dark srcset="{dark}" media="(prefers-color-scheme: dark)">'
            f'{kept} width="{width}" height="{height}"{wait}></picture>'
        )

    return IMAGE.sub(put, body)


def aligned(found: re.Match[str]) -> str:
    """Mark the columns of numbers in a data frame, and cells that are long enough to wrap."""
    table = found[0]
    rows = [
        re.findall(r"<t[dh]\b[^<>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in ROW.findall(table)
    ]
    rows = [row for row in rows if row]
    head = len(ROW.findall(table.partition("</thead>")[0])) if "</thead>" in table else 0
    numbers = set()
    for column in range(max(map(len, rows), default=0)):
        cells = [row[column].strip() for row in rows[head:] if len(row) > column]
        if cells and all(NUMBER.match(cell) for cell in cells if cell) and any(cells):
            numbers.add(column)

    def mark(row: re.Match[str]) -> str:
        column = -1

        def cell(one: re.Match[str]) -> str:
            nonlocal column
            column += 1
            text = re.sub(r"<[^>]+>", "", one[3])
            name = "number" if column in numbers else "long" if len(text) > LONG else ""
            return f"<{one[1]}{one[2]}" + (f' class="{name}"' if name else "") + f">{one[3]}<"

        return re.sub(r"<(t[dh])\b([^<>]*)>(.*?)<(?=/t[dh]>)", cell, row[0], flags=re.DOTALL)

    return ROW.sub(mark, table)


def polished(app: Sphinx, body: str) -> str:
    """Return a page's content without what the frame can't carry."""
    body = re.sub(r"<style scoped>.*?</style>\s*", "", body, flags=re.DOTALL)
    body = FOLD.sub(folded, body)
    body = re.sub(r'<span class="pre">([^<]*)</span>', r"\1", body)
    body = UNSEEN.sub(r"\1", body)
    body = re.sub(r' role="(?:doc-biblioentry|list)"', "", body)  # not allowed there, or deprecated
    body = HEADERLINK.sub(
        r'<a class="headerlink" href="\1" tabindex="-1" aria-hidden="true">#</a>', body
    )
    # Not inside scripts: those hold data of their own
    parts = re.split(r"(<script\b.*?</script>)", body, flags=re.DOTALL)
    for i in range(0, len(parts), 2):
        parts[i] = TAG.sub(lambda tag: STYLE.sub("", tag[0]), parts[i])
        parts[i] = FRAME.sub(aligned, parts[i])
        parts[i] = NO_HEAD.sub("", EMPTY_HEAD.sub("<td></td>", parts[i]))
        parts[i] = parts[i].replace("<table", '<div class="scroll"><table')
        parts[i] = parts[i].replace("</table>", "</table></div>")
    return sized(app, "".join(parts))


def polish(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Polish one page."""
    if context.get("body"):
        context["body"] = polished(app, context["body"])


def oklab(rgb: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return sRGB colours (0 to 1) in Oklab: lightness, green to red, blue to yellow."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(linear @ np.array(_TO_CONES).T)
    return np.asarray(cones @ np.array(_TO_LAB).T)


def srgb(lab: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return Oklab colours in sRGB, 0 to 1; what lies outside is clipped."""
    cones = (lab @ np.linalg.inv(np.array(_TO_LAB)).T) ** 3
    linear = np.clip(cones @ np.linalg.inv(np.array(_TO_CONES)).T, 0, 1)
    curve = 1.055 * linear ** (1 / 2.4) - 0.055
    return np.asarray(np.where(linear <= 0.0031308, linear * 12.92, curve))


_TO_CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
_TO_LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def darkened(palette: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return colours for a dark page: white becomes its ground, black its ink, hues stay.

    Lightness is turned around on Oklab's scale, so that what stood out still does. Full colours,
    those of lines and markers, stay bright: they have to stand out from black now.
    """
    lab = oklab(palette / 255)
    ground, ink = oklab(np.array([DARK, LIGHT]) / 255)
    light = 1 - np.clip(1 - lab[:, :1], 0, 1) ** 0.75  # a little brighter: thin lines on black
    turned = ground * light + ink * (1 - light)
    turned[:, 1:] += lab[:, 1:]
    chroma = np.hypot(lab[:, 1], lab[:, 2])
    full = np.clip((chroma - 0.07) / 0.06, 0, 1)
    bright = BRIGHT + 0.6 * (turned[:, 0] - 0.5)
    turned[:, 0] += full * np.clip(bright - turned[:, 0], 0, None)
    return np.asarray(np.round(srgb(turned) * 255).astype(np.uint8))


def figures(site: Path, store: Path) -> None:
    """Make every picture of the pages small, and write its dark version beside it.

    256 colours are enough for a plot: the dark version has the same pixels and other colours.
    """
    store.mkdir(parents=True, exist_ok=True)
    for path in sorted((site / "_images").glob("*.png")):
        if path.name.endswith(".dark.png"):
            continue
        content = path.read_bytes()
        kept = [store / f"{hashlib.sha256(content).hexdigest()[:16]}{end}" for end in ("", ".dark")]
        if not all(one.is_file() for one in kept):
            with Image.open(io.BytesIO(content)) as picture:
                if picture.mode == "P":  # made by an earlier build
                    small = picture.copy()
                else:
                    ground = Image.new("RGBA", picture.size, "white")
                    flat = Image.alpha_composite(ground, picture.convert("RGBA")).convert("RGB")
                    small = flat.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            small.save(kept[0], "PNG", optimize=True)
            palette = np.array(small.getpalette()).reshape(-1, 3)
            small.putpalette(darkened(palette).ravel().tolist())
            small.save(kept[1], "PNG", optimize=True)
        shutil.copyfile(kept[0], path)
        shutil.copyfile(kept[1], path.with_name(f"{path.stem}.dark.png"))


class Sections(HTMLParser):
    """Collects anchor, heading and text of each section of a page's article, without code."""

    VOID = frozenset({"img", "br", "hr", "input", "source", "col", "link", "meta", "wbr"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, list[str], list[str]]] = []
        self.open: list[str] = []  # what each open element is for us
        self.sections: list[int] = []
        self.heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a section or a heading, or begin to skip."""
        got = dict(attrs)
        names = (got.get("class") or "").split()
        role = ""
        if tag in {"script", "style", "svg", "button"} or {"cell_input", "headerlink"} & {*names}:
            role = "skip"
        elif tag == "article":
            role = "article"
        elif "section-number" in names:
            role = "skip"
        elif tag == "section" and "article" in self.open:
            role = "section"
            self.found.append((got.get("id") or "", [], []))
            self.sections.append(len(self.found) - 1)
        elif tag in {"h1", "h2", "h3", "h4"}:
            role = "heading"
        if tag not in self.VOID:
            self.open.append(role)

    def handle_endtag(self, tag: str) -> None:
        """Close what was opened."""
        if tag not in self.VOID and self.open and self.open.pop() == "section":
            self.sections.pop()

    def handle_data(self, data: str) -> None:
        """Give text to the section that it stands in."""
        if self.sections and "skip" not in self.open and data.strip():
            _, heading, text = self.found[self.sections[-1]]
            (heading if "heading" in self.open else text).append(data)


def search_index(site: Path, names: list[str]) -> str:
    """Return the script that holds what the search page looks through."""
    rows = []
    for name in names:
        reader = Sections()
        reader.feed((site / f"{name}.html").read_text("utf-8"))
        page = " ".join("".join(reader.found[0][1]).split()) if reader.found else name
        for number, (anchor, heading, text) in enumerate(reader.found):
            title = " ".join("".join(heading).split())
            where = f"{name}.html" + (f"#{anchor}" if number else "")
            rows.append([where, page, title, " ".join(" ".join(text).split())])
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f"window.searchIndex = [\n{body}\n];\n"


def beside(app: Sphinx, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file for machines."""
    base = app.config.html_baseurl
    title = app.config.html_title
    yield "_static/search-index.js", search_index(Path(app.outdir), names)
    sitemap = f"Sitemap: {base}sitemap.xml\n" if base else ""
    yield "robots.txt", f"User-agent: *\nAllow: /\n{sitemap}"
    home = app.config.root_doc
    if base:
        places = [f"{base}{'' if name == home else name + '.html'}" for name in names]
        urls = "".join(f"<url><loc>{place}</loc></url>\n" for place in places)
        space = "http://www.sitemaps.org/schemas/sitemap/0.9"
        yield (
            "sitemap.xml",
            f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="{space}">\n{urls}</urlset>\n',
        )
    pages = app.roofline_pages
    lines = [
        f"# {app.config.html_title}",
        "",
        f"> {pages.get(home, {}).get('description', '')}",
        "",
    ]
    lines += [
        "Numbers on these pages are computed from the book's package, roofline_helpers, or were",
        "measured and recorded with device and date. Chapters are executed notebooks; their",
        "sources lie under _sources.",
        "",
        "## Pages",
        "",
    ]
    for name in names:
        said = pages.get(name, {}).get("description", "")
        heading = app.env.titles[name].astext() if name in app.env.titles else title
        lines.append(f"- [{heading}]({base}{name}.html)" + (f": {said}" if said else ""))
    yield "llms.txt", "\n".join(lines) + "\n"


def prune(site: Path) -> None:
    """Remove from ``_static`` whatever no page refers to: the theme's and the extensions' files."""
    static = site / "_static"
    wanted = {static / "logo.svg", static / "search-index.js", static / OFFLINE}
    wanted |= {*static.glob("*LICENSE*")}
    for page in site.rglob("*.html"):
        if static not in page.parents:
            for name in re.findall(r'_static/([^"\'?#\s)]+)', page.read_text("utf-8")):
                wanted.add(static / name)
    for sheet in [path for path in wanted if path.suffix == ".css" and path.is_file()]:
        for name in re.findall(r'url\(["\']?([^"\')?#]+)', sheet.read_text("utf-8")):
            wanted.add((sheet.parent / name).resolve())
    for path in sorted(static.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in wanted:
            path.unlink()
    # Without it Sphinx writes every page each time: each one names all others in its lists
    (site / ".buildinfo").unlink(missing_ok=True)


def archive(site: Path, target: Path) -> None:
    """Pack the site into one file that opens from disk; the same site gives the same bytes."""
    # Not in the archive: the link to it, and what a browser refuses to load early from disk
    link = re.compile(
        rf'<li><a href="[^"]*{re.escape(OFFLINE)}".*?</li>|<link rel="preload"[^<>]*>\n?'
    )
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in sorted(site.rglob("*")):
            name = path.relative_to(site).as_posix()
            beside = "/cards/" in name or name in {"searchindex.js", "objects.inv"}
            if not path.is_file() or path == target or beside:
                continue
            content = path.read_bytes()
            if path.suffix == ".html":
                content = link.sub("", content.decode("utf-8")).encode("utf-8")
            entry = zipfile.ZipInfo(f"{target.stem}/{name}", (2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, content)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write everything that isn't a page."""
    if error is not None or app.builder.name != "html":
        return
    site = Path(app.outdir)
    for name, content in app.roofline_assets.items():
        (site / "_static" / name).write_bytes(content)
    names = [name for name in _reading_order(app) if (site / f"{name}.html").is_file()]
    figures(site, site.parent / ".figures")
    for name, text in beside(app, names):
        (site / name).write_text(text, "utf-8")
    folder = site / "_static/cards"
    folder.mkdir(exist_ok=True)
    for name in names:
        page = (site / f"{name}.html").read_text("utf-8")
        cards.write(
            folder / f"{name.replace('/', '-')}.png",
            cards.Card.of_page(page, site, app.config.html_title),
        )
    prune(site)
    archive(site, site / "_static" / OFFLINE)


def _reading_order(app: Sphinx) -> list[str]:
    order = [app.config.root_doc]
    relations = app.env.collect_relations()
    while (following := relations.get(order[-1], (None, None, None))[2]) and following not in order:
        order.append(following)
    return order


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx: the last to look at a page and at the finished site."""
    app.connect("html-page-context", polish, priority=900)
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
