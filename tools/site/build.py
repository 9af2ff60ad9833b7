"""Build the site into ``_build/html`` and check it. A warning or a broken link fails, every time.

Sphinx reads again only what has changed, and a warning is said only when a page is read. So a build
that failed, or was interrupted, or was made by other tools leaves nothing behind to start from. A
site that was made of exactly what is here is checked again, not built. Two builds of one book wait
for each other.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tools import books
from tools.site import check_site

KEPT = {".pictures", "executed", "lock"}  # book/_ext/kept.py, tools/notebooks/once.py, here
STRICT = ["-W", "-n", "--keep-going", "-q"]
# Sphinx keeps nearly all that it makes: looking for garbage as often as usual is a sixth of a build
START = """
import gc
from jupyter_book.cli.main import main
gc.freeze()
gc.set_threshold(200_000, 10, 100)
main()
"""


def digest(paths: Iterable[Path]) -> str:
    """Return a hash of files' names and contents; a missing file counts, too."""
    made = hashlib.sha256(sys.version.encode())
    for path in paths:
        made.update(path.name.encode() + b"\0")
        made.update(path.read_bytes() if path.is_file() else b"")
    return made.hexdigest()


def files(folder: Path, pattern: str = "**/*") -> list[Path]:
    """Return a folder's files in order, without those that Python makes."""
    paths = sorted(path for path in folder.glob(pattern) if path.is_file())
    return [path for path in paths if path.suffix != ".pyc"]


def frame(root: Path) -> str:
    """Return a hash of what shapes every page and is no page: settings, extensions, theme."""
    names = ["_config.yml", "_toc.yml", "requirements.txt", "book/pages.toml"]
    names += ["book/glossary.md"]  # its definitions appear on other pages too
    paths = [root / name for name in names] + [Path(__file__)]
    paths += files(root / "book/_ext", "*.py") + files(root / "book/theme")
    return digest(paths + files(root / "roofline_helpers/assets"))


def sources(root: Path) -> str:
    """Return a hash of what the pages are made of: texts, pictures, notebooks, the package."""
    paths = [root / "index.md", *files(root / "book", "*.*"), *files(root / "book/images")]
    return digest(
        [*paths, *files(root / "notebooks", "*.ipynb"), *files(root / "roofline_helpers")]
    )


def remove(out: Path) -> None:
    """Remove what was built; what is found again by what it is made of stays."""
    for path in out.glob("*"):
        if path.name in KEPT:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def jupyter_book(arguments: list[str]) -> int:
    """Run Jupyter Book in a process of its own; return its exit status."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", START, *arguments]
    return subprocess.run(command, cwd=arguments[1], env=environment).returncode


def build(root: Path, clean: bool = False, run: Callable[[list[str]], int] = jupyter_book) -> int:
    """Build and check the book whose ``_config.yml`` is in ``root``; return the exit status.

    ``run`` runs Jupyter Book with these arguments and returns its exit status.
    """
    out = root / "_build"
    out.mkdir(exist_ok=True)
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build(root, out, clean, run)


def _build(root: Path, out: Path, clean: bool, run: Callable[[list[str]], int]) -> int:
    """Build it, with the folder ``out`` to itself."""
    begun = time.perf_counter()
    state = out / "good"  # exists only after a build that passed, with both hashes in it
    kept = state.read_text("utf-8").split() if state.is_file() else ["", ""]
    made_of = [frame(root), sources(root)]
    names = books.pages(root)
    if not clean and kept == made_of and not check_site.check(out / "html", names):
        print(f"{len(names)} pages: nothing has changed, and nothing is wrong")
        return 0
    if clean or kept[0] != made_of[0]:
        remove(out)
    state.unlink(missing_ok=True)

    status = run(["build", str(root), "--path-output", str(root), *STRICT])
    if status != 0:
        remove(out)
        print("\nThe book was not built: see the warnings above.", file=sys.stderr)
        return status

    problems = check_site.check(out / "html", names)
    if problems:
        remove(out)
        print("\n".join(problems), file=sys.stderr)
        print(f"\nThe site has {len(problems)} problem(s) and was removed.", file=sys.stderr)
        return 1
    state.write_text("\n".join(made_of), "utf-8")
    print(f"{len(names)} pages built and checked in {time.perf_counter() - begun:.0f} s")
    return 0


def main() -> int:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=books.ROOT, help="the folder of _config.yml")
    parser.add_argument("--clean", action="store_true", help="start from nothing")
    arguments = parser.parse_args()
    return build(arguments.root.resolve(), arguments.clean)


if __name__ == "__main__":
    sys.exit(main())
