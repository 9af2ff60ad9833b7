"""Pictures that take long to make, kept from build to build, a clean one too."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

FOLDER = ".pictures"  # in the site's folder; tools/site/build.py leaves it there


def kept(site: Path, code: str, made_of: bytes, make: Callable[[], list[bytes]]) -> list[bytes]:
    """Return files that were made before of the same, by the same code, or make them.

    Parameters
    ----------
    site : Path
        The site that they are for.
    code : str
        The file of the code that makes them.
    made_of : bytes
        Whatever else they depend on.
    make : callable
        Makes them: ten at most.
    """
    mark = hashlib.sha256(Path(code).read_bytes() + b"\0" + made_of).hexdigest()
    folder = site.parent / FOLDER / mark
    if not folder.is_dir():
        part = folder.with_suffix(".part")
        part.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(make()):
            (part / str(number)).write_bytes(content)
        part.rename(folder)  # all or nothing
    return [path.read_bytes() for path in sorted(folder.iterdir())]
