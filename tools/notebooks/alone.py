"""Run notebooks as Colab does: each alone in an empty folder, with the Python that runs this.

    python tools/notebooks/alone.py NOTEBOOK ...

Nothing of the repository but the notebook is there, and its first cell installs the package from
where `tools.repository` has said. Where that hasn't, a cell before it does, as the first cell tells
its reader to. Fails where a cell raises, or where that replaced another
package. Needs nbclient and ipykernel only, so that it runs in an environment that is not the
book's.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

PIP = [sys.executable, "-m", "pip"]
ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300  # for one cell


def others() -> set[str]:
    """Return what is installed besides the package, each with its version."""
    command = [*PIP, "freeze", "--exclude", "roofline_helpers"]
    return {*subprocess.check_output(command, text=True).splitlines()}


def main() -> None:
    """Run each notebook, and compare what is installed."""
    before = others()
    for path in map(Path, sys.argv[1:]):
        # Each one meets an environment without the package, as its reader does
        subprocess.run([*PIP, "uninstall", "--quiet", "--yes", "roofline_helpers"], check=True)
        notebook = nbformat.read(path, as_version=4)
        if any("OWNER/NAME" in cell.source for cell in notebook.cells):
            install = nbformat.v4.new_code_cell(f"%pip install --quiet {ROOT}")
            notebook.cells.insert(0, install)
        with tempfile.TemporaryDirectory() as folder:
            place = {"metadata": {"path": folder}}
            NotebookClient(notebook, timeout=SECONDS, resources=place).execute()
        print(f"{path.name}: ran alone", flush=True)
    if replaced := before - others():
        sys.exit(f"replaced: {', '.join(sorted(replaced))}")


if __name__ == "__main__":
    main()
