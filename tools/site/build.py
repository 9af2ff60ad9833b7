"""Build the site into ``_build/html`` and check it: ``python -m tools.site.build [FOLDER]``.

Every build starts from nothing, so no page is older than what it is made of. A warning or a broken
link fails, and leaves no site behind.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools import books
from tools.site import check_site

STRICT = ["-W", "-n", "--keep-going", "-q"]


def remove(out: Path) -> None:
    """Remove what Jupyter Book has made in a folder."""
    for name in ("html", ".doctrees", ".jupyter_cache"):
        shutil.rmtree(out / name, ignore_errors=True)


def build(root: Path) -> int:
    """Build and check the book whose ``_config.yml`` is in ``root``; return the exit status."""
    begun = time.perf_counter()
    out = root / "_build"
    out.mkdir(exist_ok=True)
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two builds of one book wait for each other
        remove(out)
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONHASHSEED": "0"}
        start = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
        command = [*start, "build", str(root), "--path-output", str(root), *STRICT]
        if subprocess.run(command, cwd=root, env=environment).returncode:
            problems = ["The book was not built: see the warnings above."]
        else:
            problems = check_site.check(out / "html", books.pages(root))
        if problems:
            remove(out)
            print("\n".join(problems), file=sys.stderr)
            return 1
    print(f"{len(books.pages(root))} pages in {time.perf_counter() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).resolve() if sys.argv[1:] else books.ROOT))
