"""Try what a release is made of: ``python tools/release.py FOLDER [vX.Y.Z]``.

The wheel and the sdist in the folder are installed, each alone in a fresh environment, and asked
for a chip, a roofline and a record. It fails where one doesn't work, where the package is larger
than it may be, or where the versions in the repository and the tag aren't the same. It needs no
other package.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 4_000_000
"""Bytes of a wheel or an sdist."""

ASK = """
import roofline_helpers as rh
assert rh.chip("v6e").roofline("bf16").bound(rh.work.matmul(8192, 8192, 8192, "bf16")) == "compute"
assert rh.compiled.records()
assert "site-packages" in rh.__file__, rh.__file__
print(rh.__version__)
"""


def versions() -> dict[str, str]:
    """Return the version that each file of the repository states."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    versions = {"pyproject.toml": str(project["version"])}
    for name, form in (
        ("roofline_helpers/__init__.py", r'^__version__ = "(.+)"$'),
        ("CITATION.cff", r"^version: (.+)$"),
    ):
        match = re.search(form, (ROOT / name).read_text("utf-8"), re.MULTILINE)
        versions[name] = match[1] if match else "none"
    return versions


def tried(file: Path, folder: Path) -> str:
    """Install a file alone in a fresh environment; return the version that it says it is."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([python, "-m", "pip", "install", *quiet, str(file)], check=True)
    subprocess.run([str(folder / "bin" / "roofline"), "chip", "v6e"], check=True, cwd=folder)
    done = subprocess.run([python, "-c", ASK], check=True, cwd=folder, capture_output=True)
    return done.stdout.decode().strip()


def main() -> int:
    """Read the command line, and try each file."""
    if not 2 <= len(sys.argv) <= 3:
        print(__doc__, file=sys.stderr)
        return 2
    files = sorted(path for path in Path(sys.argv[1]).iterdir() if path.suffix in (".whl", ".gz"))
    stated = versions()
    tag = sys.argv[2] if len(sys.argv) == 3 else ""
    if len({*stated.values(), *([tag.removeprefix("v")] if tag else [])}) > 1:
        print(f"versions differ: {stated}{f', tag {tag}' if tag else ''}", file=sys.stderr)
        return 1
    if {path.suffix for path in files} != {".whl", ".gz"}:
        print(f"a wheel and an sdist are needed, got {[p.name for p in files]}", file=sys.stderr)
        return 1
    for path in files:
        size = path.stat().st_size
        if size > LARGEST:
            print(f"{path.name}: {size:,} bytes, at most {LARGEST:,}", file=sys.stderr)
            return 1
        with tempfile.TemporaryDirectory() as folder:
            print(f"{path.name}: {size:,} bytes, works as {tried(path, Path(folder) / 'alone')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
