"""Sphinx extension: the book's own frame around its pages, in place of Jupyter Book's theme.

Templates lie in ``book/_templates``, style sheet and scripts in ``book/_static``; what a page needs
to be found and shared (description, minutes, a reason to read on) in ``book/pages.toml``. The
theme's handlers are taken out, with its 2 MB of scripts and fonts and the live-code loader that
names a CDN. Assets get a hash in their names, so that no reader mixes old and new ones.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES
from sphinx.application import Sphinx
from sphinx.config import Config

OTHERS = tuple(
    "sphinx_thebe sphinx_book_theme pydata_sphinx_theme sphinx_copybutton sphinx_togglebutton "
    "sphinx_comments".split()
)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'"
)
ASSETS = ("theme.js", "site.js", "search.js", "stix-two-math.woff2", "book.css")
PLAIN = ("", "n", "p", "w", "py", "nx")  # tokens in the colour of the text: no element of their own
OFFLINE = "roofline-analysis.zip"

_STROKES = {
    "menu": '<path d="M4 6h16M4 12h16M4 18h16"/>',
    "search": '<circle cx="11" cy="11" r="6"/><path d="m16 16 4 4"/>',
    "list": '<path d="M9 6h11M9 12h11M9 18h11M4.5 6h.01M4.5 12h.01M4.5 18h.01"/>',
    "light": '<circle cx="12" cy="12" r="4"/><path d="M12 2v3M12 19v3M2 12h3M19 12h3M4.9 4.9 7 7'
    'M17 17l2.1 2.1M4.9 19.1 7 17M17 7l2.1-2.1"/>',
    "dark": '<path d="M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z"/>',
    "auto": '<circle cx="12" cy="12" r="9"/><path d="M12 3a9 9 0 0 1 0 18Z" fill="currentColor"/>',
    "down": '<path d="M12 4v11m-5-5 5 5 5-5M5 20h14"/>',
    "play": '<path d="M7 4.5v15l12-7.5Z"/>',
}


def take_over(app: Sphinx, config: Config) -> None:
    """Disconnect the theme's handlers; keep what the book's address says; set our templates."""
    for listeners in app.events.listeners.values():
        listeners[:] = [
            one
            for one in listeners
            if not getattr(one.handler, "__module__", "").startswith(OTHERS)
        ]
    options = config.html_theme_options
    # Where none is set, Jupyter Book's own stands there; tools/repository.py sets both or none
    url = options.get("repository_url") if options.get("use_repository_button") else ""
    github = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+)", url or "")
    if github and not config.html_baseurl:
        config.html_baseurl = f"https://{github[1].lower()}.github.io/{github[2]}/"
    ref = options.get("repository_branch") or "main"
    config.html_context = {
        **config.html_context,
        "repository": url or "",
        "colab_of": f"https://colab.research.google.com/github/{github[1]}/{github[2]}/blob/{ref}/"
        if github
        else "",
    }
    config.html_theme, config.html_theme_options = "basic", {}
    config.templates_path = ["book/_templates"]
    config.html_css_files, config.html_js_files = [], []


def code_colours(light: str = "a11y-high-contrast-light", dark: str = "a11y-dark") -> str:
    """Return CSS for highlighted code in both themes, one rule a token."""
    one, two = get_style_by_name(light), get_style_by_name(dark)
    rules = []
    for token, short in STANDARD_TYPES.items():
        first, second = one.style_for_token(token), two.style_for_token(token)
        if short not in PLAIN and first["color"] and second["color"]:
            weight = ";font-weight:600" if first["bold"] else ""
            colour = f"light-dark(#{first['color']},#{second['color']})"
            rules.append((f"{colour}{weight}", f".highlight .{short}"))
    together: dict[str, list[str]] = {}
    for body, selector in rules:
        together.setdefault(body, []).append(selector)
    return "\n".join(f"{','.join(names)}{{color:{body}}}" for body, names in together.items())


def read_assets(app: Sphinx) -> None:
    """Read style sheet, scripts and font; give each a name with a hash of its content."""
    folder = Path(app.srcdir) / "book/_static"
    names: dict[str, str] = {}
    contents: dict[str, bytes] = {}
    for name in ASSETS:
        content = (folder / name).read_bytes()
        if name == "book.css":
            css = content.decode("utf-8").replace(
                "stix-two-math.woff2", names["stix-two-math.woff2"]
            )
            css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL) + code_colours()
            content = re.sub(r"\s*\n\s*", "\n", css).encode()
        stem, suffix = name.rsplit(".", 1)
        names[name] = f"{stem}.{hashlib.sha256(content).hexdigest()[:8]}.{suffix}"
        contents[names[name]] = content
    app.roofline_assets = contents
    app.roofline_names = {name: f"_static/{hashed}" for name, hashed in names.items()}
    with (Path(app.srcdir) / "book/pages.toml").open("rb") as file:
        app.roofline_pages = tomllib.load(file)


def plain(title: str) -> str:
    """Return a title without markup and section number."""
    title = re.sub(r'<span class="section-number">.*?</span>', "", title)
    text = re.sub(r"<[^>]+>", "", title)
    for name, sign in (
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", '"'),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ):
        text = text.replace(name, sign)
    return text.strip()


def first_words(doctree: nodes.document | None, longest: int = 160) -> str:
    """Return the beginning of a page's first paragraphs, for a page without a description."""
    if doctree is None:
        return ""
    said = " ".join(one.astext() for one in list(doctree.findall(nodes.paragraph))[:4])
    said = " ".join(said.removeprefix("What you’ll learn").split())
    return said if len(said) <= longest else said[: longest - 2].rsplit(" ", 1)[0] + " …"


def sections_of(app: Sphinx, name: str, doctree: nodes.document | None) -> list[tuple[str, ...]]:
    """Return anchor, number and title of each section right below the page's title."""
    if doctree is None:
        return []
    numbers = app.env.toc_secnumbers.get(name, {})
    found: list[tuple[str, ...]] = []
    for top in doctree.children:
        if isinstance(top, nodes.section):
            for part in top.children:
                if isinstance(part, nodes.section):
                    anchor = part["ids"][0]
                    number = ".".join(map(str, numbers.get(f"#{anchor}", ())))
                    found.append(
                        (anchor, number and f"{number}.", part.next_node(nodes.title).astext())
                    )
    return found


def cite_address(app: Sphinx, pagename: str, context: dict[str, Any]) -> str | None:
    """Return where the page stands that says how to cite the book, None where no page does."""
    page, anchor = app.env.get_domain("std").anonlabels.get("cite", (None, ""))
    if page is None:
        return None
    return f"#{anchor}" if page == pagename else f"{context['pathto'](page)}#{anchor}"


def fill(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Give the template what it asks for."""
    about = app.roofline_pages.get(pagename, {})
    title = plain(context.get("title") or pagename)
    book = app.config.html_title
    short = book.split(":")[0]
    home = pagename == app.config.root_doc
    written = pagename in app.env.found_docs
    base = app.config.html_baseurl
    card = f"_static/cards/{pagename.replace('/', '-')}.png"
    following = context.get("next")
    notebook = written and Path(app.env.doc2path(pagename)).suffix == ".ipynb"
    beyond = app.env.collect_relations().get(pagename, (None, None, None))[2] if written else None
    context.update(
        project=book,
        assets=app.roofline_names,
        icons=_STROKES,
        policy=POLICY,
        written=written,
        plain_title=book if home else title,
        full_title=book if home else f"{title} · {short}",
        description=about.get("description") or first_words(doctree) or f"{title}: {book}",
        reason=app.roofline_pages.get(beyond, {}).get("why") if following else None,
        sections=sections_of(app, pagename, doctree),
        canonical=f"{base}{'' if home else pagename + '.html'}" if base and written else None,
        card=(f"{base}{card}" if base else context["pathto"](card, 1)) if written else None,
        source=f"_sources/{pagename}.ipynb" if notebook else None,
        colab=f"{context['colab_of']}{pagename}.ipynb"
        if notebook and context["colab_of"]
        else None,
        offline=f"_static/{OFFLINE}",
        cite=cite_address(app, pagename, context),
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx."""
    app.connect("config-inited", take_over, priority=900)
    app.connect("builder-inited", read_assets)
    app.connect("html-page-context", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
