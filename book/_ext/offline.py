"""Sphinx extension: one archive of the finished site, which opens from disk.

In a page, a line with ``data-online`` is for the site alone: the link to the archive itself, and
what a browser refuses to load early from disk.
"""

import zipfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ARCHIVE = "roofline-analysis.zip"  # as the frame links to it
ONLINE = "data-online"
UNREAD = ("objects.inv", ".buildinfo")  # for other books, and for Sphinx's next build


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
            if not path.is_file() or path == target or name in UNREAD:
                continue
            entry = zipfile.ZipInfo(f"{target.stem}/{name}", (2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, content_of(path))


def finish(app: Sphinx, error: Exception | None) -> None:
    """Pack."""
    if error is None and app.builder.name == "html":
        site = Path(app.outdir)
        archive(site, site / "_static" / ARCHIVE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx: the last to look at the finished site."""
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
