"""Sphinx extension: registers the theme in ``book/theme``, gives its templates what they ask for.

``_config.yml`` lists every extension of the build, so Jupyter Book's own theme, live code, copy and
toggle buttons and comments are never loaded. One thing is left that Jupyter Book gives no setting
for: it always sets ``comments_config``, which is declared here so that Sphinx knows the name.
"""

import functools
import hashlib
import os
import re
import textwrap
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config

import chapters
import figures
from translator import PLAIN_TOKENS, BookTranslator

INSTALLS = re.compile(r'else \\"https://github\.com/([\w.-]+/[\w.-]+)/archive/([\w./-]+)\.zip\\"')
FOLDER = Path(__file__).resolve().parents[1] / "theme"


def code_colours(light: str = "a11y-high-contrast-light", dark: str = "a11y-dark") -> str:
    """Return CSS for highlighted code in light and dark pages, one rule a colour."""
    one, two = get_style_by_name(light), get_style_by_name(dark)
    rules: dict[str, list[str]] = {}
    for token, short in STANDARD_TYPES.items():
        first, second = one.style_for_token(token), two.style_for_token(token)
        if short not in PLAIN_TOKENS and first["color"] and second["color"]:
            weight = ";font-weight:600" if first["bold"] else ""
            colour = f"light-dark(#{first['color']},#{second['color']}){weight}"
            rules.setdefault(colour, []).append(f".highlight .{short}")
    return "\n".join(f"{','.join(names)}{{color:{body}}}" for body, names in rules.items())


def take_address(app: Sphinx, config: Config) -> None:
    """Let pages that are built on GitHub say where they are, and link to their repository."""
    if slug := os.environ.get("GITHUB_REPOSITORY"):
        owner, _, name = slug.lower().partition("/")
        folder = "" if name == f"{owner}.github.io" else f"{slug.partition('/')[2]}/"
        config.html_baseurl = f"https://{owner}.github.io/{folder}"
        config.html_theme_options = {"repository_url": f"https://github.com/{slug}"}


def colab_address(app: Sphinx, pagename: str) -> str | None:
    """Return where Colab opens a page's notebook, None where that would install nothing."""
    path = Path(app.env.doc2path(pagename))
    installed = INSTALLS.search(path.read_text("utf-8")) if path.suffix == ".ipynb" else None
    if installed is None:
        return None
    return f"https://colab.research.google.com/github/{installed[1]}/blob/{installed[2]}/{pagename}.ipynb"


def repository_links(app: Sphinx, pagename: str) -> dict[str, str]:
    """Return where a page's file is edited, and where Binder runs a notebook.

    Nothing where the build knows no repository. A notebook is edited as one, not as its JSON.
    """
    home = app.config.html_theme_options.get("repository_url", "")
    path = app.env.doc2path(pagename, base=False)
    if not home:
        return {}
    if not path.endswith(".ipynb"):
        return {"edit": f"{home}/edit/main/{path}"}
    slug = urlsplit(home).path
    return {
        "edit": f"https://github.dev{slug}/blob/main/{path}",
        "binder": f"https://mybinder.org/v2/gh{slug}/HEAD?urlpath=lab/tree/{path}",
    }


def give_colours(app: Sphinx) -> None:
    """Let the theme's style sheet, a template, take its computed colours by name."""
    if app.builder.format == "html":
        app.builder.templates.environment.globals.update(
            code_colours=code_colours(),
            dark_ground=f"#{bytes(figures.DARK).hex()}",
            dark_ink=f"#{bytes(figures.LIGHT).hex()}",
        )


@functools.cache
def fingerprint(path: Path) -> str:
    """Return eight digits that change with a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8]


def sections(app: Sphinx, name: str, doctree: nodes.document | None) -> list[tuple[str, str, str]]:
    """Return anchor, number and title of each section right below the page's title."""
    numbers = app.env.toc_secnumbers.get(name, {})
    tops = [] if doctree is None else [one for one in doctree if isinstance(one, nodes.section)]
    rows = []
    for part in (part for top in tops for part in top if isinstance(part, nodes.section)):
        anchor = part["ids"][0]
        number = ".".join(map(str, numbers.get(f"#{anchor}", ())))
        rows.append((anchor, number and f"{number}.", part.next_node(nodes.title).astext()))
    return rows


def contents(app: Sphinx) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each part of the book: its caption, and name and title (HTML) of its pages, in order.

    Sphinx's own ``toctree`` copies the sections of all pages anew for every page.
    """
    builder, titles = app.builder, app.env.titles
    parts = []
    for tree in app.env.get_doctree(app.config.root_doc).findall(addnodes.toctree):
        names = [name for _, name in tree["entries"]]
        pages = [(name, builder.render_partial(titles[name])["title"]) for name in names]
        parts.append((tree["caption"] or "", pages))
    return parts


def card(app: Sphinx, doctree: nodes.document | None) -> str | None:
    """Return the address of the picture that a shared link shows.

    It is the page's first figure, or else the front page's.
    """
    pages = [one for one in (doctree, app.env.get_doctree(app.config.root_doc)) if one is not None]
    names = [Path(image["uri"]).name for page in pages for image in page.findall(nodes.image)]
    first = next((name for name in names if name.endswith(".png")), None)
    return f"{app.config.html_baseurl}_images/{first}" if first else None


def beginning(heading: str, doctree: nodes.document | None) -> str:
    """Return what describes a page that says nothing of itself: its title and first paragraph."""
    text = next((p.astext() for p in doctree.findall(nodes.paragraph)), "") if doctree else ""
    return textwrap.shorten(f"{heading}: {text}", 160, placeholder=" …")


def fill(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Give a page's template what it asks for."""
    pages = chapters.about(Path(app.srcdir))
    title = app.env.titles.get(pagename)
    heading = (
        title.astext()
        if title
        else {"genindex": "Index", "404": "No such page"}.get(pagename, pagename.title())
    )

    def asset(name: str) -> str:
        """Address a file of the theme so that no reader mixes an old one with a new one."""
        path = Path(app.outdir) / "_static" / name
        return f"{context['pathto'](f'_static/{name}', 1)}?v={fingerprint(path)}"

    if pagename == "404" and app.config.html_baseurl:  # it is shown at any address
        root, relative = urlsplit(app.config.html_baseurl).path, context["pathto"]
        context |= {"content_root": root, "pathto": lambda *names: root + relative(*names)}
    if not hasattr(app.builder, "book_contents"):  # the same on every page
        app.builder.book_contents = contents(app)
    following = app.env.collect_relations().get(pagename, (None, None, None))[2]
    context.update(
        asset=asset,
        colab=colab_address(app, pagename) if doctree else None,
        **(repository_links(app, pagename) if doctree else {}),
        contents=app.builder.book_contents,
        has_changes="book/changes" in app.env.found_docs,
        heading=heading,
        description=pages.get(pagename, {}).get("description") or beginning(heading, doctree),
        reason=pages.get(following, {}).get("why") if context.get("next") else None,
        sections=sections(app, pagename, doctree),
        card=card(app, doctree) if app.config.html_baseurl else None,
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the theme and its translator."""
    app.add_config_value("comments_config", {}, "")
    app.add_html_theme("roofline", str(FOLDER))
    app.set_translator("html", BookTranslator)
    app.connect("config-inited", take_address)
    app.connect("builder-inited", give_colours)
    app.connect("html-page-context", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
