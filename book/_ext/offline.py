"""Sphinx extension: the finished site without what no page refers to, and one archive of it.

In a page, a line with ``data-online`` is for the site alone: the link to the archive itself, and
what a browser refuses to load early from disk.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ARCHIVE = "roofline-analysis.zip"
ONLINE = "data-online"
# Named by no page: the search page's data are written last, licences have to be there
KEPT = ("logo.svg", "search-index.js", ARCHIVE, "*LICENSE*")
STATIC = re.compile(r'_static/([^"\'?#\s)]+)')
IN_STYLES = re.compile(r'url\(["\']?([^"\')?#]+)')
INVENTORY = "objects.inv"  # for other books that refer to this one


def prune(site: Path) -> None:
    """Remove from ``_static`` whatever no page refers to: files of Sphinx and its extensions."""
    static = site / "_static"
    wanted = {path for pattern in KEPT for path in static.glob(pattern)}
    for page in site.rglob("*.html"):
        if static not in page.parents:
            wanted |= {static / name for name in STATIC.findall(page.read_text("utf-8"))}
    for sheet in [path for path in wanted if path.suffix == ".css" and path.is_file()]:
        names = IN_STYLES.findall(sheet.read_text("utf-8"))
        wanted |= {(sheet.parent / name).resolve() for name in names}
    for path in sorted(static.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in wanted:
            path.unlink()
    (site / ".buildinfo").unlink(missing_ok=True)  # for Sphinx's own next build


def content_of(path: Path) -> bytes:
    """Return a file as the archive has it."""
    content = path.read_bytes()
    if path.suffix != ".html":
        return content
    lines = content.decode("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if ONLINE not in line).encode("utf-8")


def archive(site: Path, target: Path) -> None:
    """Pack the site into one file that opens from disk; the same site gives the same bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in sorted(site.rglob("*")):
            name = path.relative_to(site).as_posix()
            if not path.is_file() or path == target or "/cards/" in name or name == INVENTORY:
                continue
            entry = zipfile.ZipInfo(f"{target.stem}/{name}", (2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, content_of(path))


def name_archive(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Tell the template how the archive is called."""
    context["offline"] = ARCHIVE


def finish(app: Sphinx, error: Exception | None) -> None:
    """Prune and pack."""
    if error is None and app.builder.name == "html":
        site = Path(app.outdir)
        prune(site)
        archive(site, site / "_static" / ARCHIVE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx: the last to look at the finished site."""
    app.connect("html-page-context", name_archive)
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
