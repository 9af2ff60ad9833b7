"""Run notebooks as Colab does: each alone in an empty folder, with the Python that runs this.

Nothing of the repository but the notebook is there, and its first cell installs the package from
``--source``. Fails where a cell raises, or where JAX or NumPy are other versions afterwards. Needs
nbclient and ipykernel only, so that it runs in an environment that is not the book's.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HELD = ("jax", "jaxlib", "numpy", "matplotlib", "pandas", "seaborn")
UNINSTALL = ["-m", "pip", "uninstall", "--quiet", "--yes", "roofline_helpers"]
ASK = (
    "import json; from importlib.metadata import distribution as d, version as v;"
    "print(json.dumps({'versions': {n: v(n) for n in %r}, 'package': v('roofline_helpers'),"
    "'from': json.loads(d('roofline_helpers').read_text('direct_url.json') or '{}')}))"
)


def versions() -> dict[str, str]:
    """Return the versions that must not change, of those that are there."""
    there = {}
    for name in HELD:
        try:
            there[name] = version(name)
        except PackageNotFoundError:
            continue
    return there


def run_alone(path: Path, source: str | None, seconds: int) -> None:
    """Run one notebook in a folder of its own."""
    notebook = nbformat.read(path, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    if source:
        first.source = (
            "import importlib.util\n\n"
            'if importlib.util.find_spec("roofline_helpers") is None:\n'
            f'    %pip install --quiet "roofline_helpers[plots] @ {source}"'
        )
    elif re.search(r'%pip install .*"roofline_helpers\[plots\] @ git\+', first.source) is None:
        raise SystemExit(f"{path.name}: its first cell installs nothing: not stamped")
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(
            notebook, timeout=seconds, kernel_name="python3", resources=resources
        )
        client.execute()


def main() -> int:
    """Read the command line, run each notebook and compare versions."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument(
        "--source", help="install the package from here, not from the stamped address"
    )
    parser.add_argument("--seconds", type=int, default=300, help="for one cell")
    options = parser.parse_args()
    before = versions()
    for path in options.notebooks:
        # Each one meets an environment without the package, as its reader does
        subprocess.run([sys.executable, *UNINSTALL], check=True)
        run_alone(path, options.source, options.seconds)
        print(f"{path.name}: ran alone", flush=True)
    # Asked of a new interpreter: this one has looked before the installation
    ask = ASK % (tuple(before),)
    answer = subprocess.check_output([sys.executable, "-c", ask], text=True)
    after = json.loads(answer)
    print(json.dumps(after))
    if after["versions"] != before:
        print(f"replaced: {before} became {after['versions']}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
