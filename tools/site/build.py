"""Build the site into ``_build/html`` and check it. A warning or a broken link fails, every time.

Sphinx reads again only what has changed, and a warning is said only when a page is read. So a build
that failed, or was interrupted, or was made by other tools leaves nothing behind to start from.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools import books
from tools.site import check_site


def fingerprint(root: Path) -> str:
    """Return a hash of what shapes every page and is no page: settings, extensions, assets."""
    names = [
        "_config.yml",
        "_toc.yml",
        "requirements.txt",
        "tools/site/build.py",
        "book/pages.toml",
    ]
    names += ["book/glossary.md"]  # its definitions stand on other pages too
    paths = [root / name for name in names]
    paths += sorted((root / "book/_ext").glob("*.py"))
    paths += sorted((root / "book/_templates").glob("*.html"))
    paths += sorted((root / "roofline_helpers/assets").glob("*.js"))
    # Sphinx copies these only when a page has changed
    paths += sorted(path for path in (root / "book/_static").rglob("*") if path.is_file())
    digest = hashlib.sha256(sys.version.encode())
    for path in paths:
        digest.update(path.name.encode() + b"\0")
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def build(root: Path, clean: bool = False) -> int:
    """Build and check the book that lies in ``root``; return the exit status."""
    begun = time.perf_counter()
    out = root / "_build"
    state = out / "good"  # exists only after a build that passed, with the fingerprint in it
    mark = fingerprint(root)
    if clean or not state.is_file() or state.read_text("utf-8") != mark:
        shutil.rmtree(out, ignore_errors=True)
    state.unlink(missing_ok=True)

    start = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", start, "build", str(root)]
    command += ["--path-output", str(root), "-W", "-n", "--keep-going", "-q"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=root, env=environment)
    if done.returncode != 0:
        shutil.rmtree(out, ignore_errors=True)
        print("\nThe book was not built: see the warnings above.", file=sys.stderr)
        return done.returncode

    problems = check_site.check(out / "html", books.pages(root))
    if problems:
        shutil.rmtree(out, ignore_errors=True)
        print("\n".join(problems), file=sys.stderr)
        print(f"\nThe site has {len(problems)} problem(s) and was removed.", file=sys.stderr)
        return 1
    state.write_text(mark, "utf-8")
    pages = len(books.pages(root))
    print(f"{pages} pages built and checked in {time.perf_counter() - begun:.0f} s")
    return 0


def main() -> int:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=books.ROOT, help="the folder of _config.yml")
    parser.add_argument("--clean", action="store_true", help="start from nothing")
    given = parser.parse_args()
    return build(given.root.resolve(), given.clean)


if __name__ == "__main__":
    sys.exit(main())
