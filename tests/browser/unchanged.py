"""Pages that were found sound need not be looked at again: not until something of them changes."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from tools import books

FOLDER = books.ROOT / "_build/sound"
PICTURE = re.compile(r"_images/[\w.-]+")
EVERYWHERE = ("_static/*.css", "_static/*.js", "_static/*.svg", "_static/*.woff2", "interactive/*")
SEARCH = "_static/search-index.js"  # differs with each word of the book; read only by the search


@dataclass(frozen=True)
class Sound:
    """Which pages of a site were found sound, and by what.

    Attributes
    ----------
    site : Path
        The built site.
    by : str
        What looks: its sources, its browser. What another one found does not count.
    folder : Path
        Where it is noted, a file a page.
    """

    site: Path
    by: str
    folder: Path = FOLDER

    def key(self, name: str) -> str:
        """Return a hash of all that a page is made of, and of what looks at it."""
        html = (self.site / f"{name}.html").read_bytes()
        styles = {one for pattern in EVERYWHERE for one in self.site.glob(pattern)}
        if name != "search":
            styles.discard(self.site / SEARCH)
        pictures = {self.site / one for one in PICTURE.findall(html.decode("utf-8"))}
        digest = hashlib.sha256(f"{self.by}\0".encode() + html)
        for path in sorted(styles | pictures):
            content = path.read_bytes() if path.is_file() else b"missing"
            digest.update(f"{path.relative_to(self.site)} {len(content)}\0".encode() + content)
        return digest.hexdigest()

    def __contains__(self, name: str) -> bool:
        """Return whether a page was found sound as it is now."""
        note = self._note(name)
        return note.is_file() and note.read_text("ascii") == self.key(name)

    def add(self, name: str) -> None:
        """Note that a page is sound as it is now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._note(name).write_text(self.key(name), "ascii")

    def _note(self, name: str) -> Path:
        return self.folder / f"{name.replace('/', '-')}.sha256"
