"""Execute and normalise the book's notebooks.

    python -m tools.notebooks.run execute [NOTEBOOK ...] [--refresh]

Two runs of ``execute`` leave no difference: ids stay, no times and no paths are kept, and a cell
tagged ``nbval-ignore-output`` keeps its committed output while its source is unchanged
(``--refresh`` takes the new one). Nothing is written unless every notebook ran.
"""

import argparse
import copy
import io
import os
import re
import struct
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from PIL import Image

from tools import books
from tools.notebooks import pictures

SETUP_ID = "setup"
FOLDS = {"hide-cell", "hide-input", "remove-cell", "remove-input"}  # tags of cells without code
PAGES = {"exercises": "Exercises", "question": "Question"}  # the rest: instruments and labs
SETUP_TITLE = "Install what is missing"
TITLE = re.compile(r"^# @title .*\n+")
MACHINE = "nbval-ignore-output"  # tag of the cells whose values depend on the machine
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
SECONDS = 600  # for one cell, as in `make test`
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}
# What differs from one run or one machine to the next
PATHS = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|Users|private|var|work|content|opt)/[\w./-]+")
TEMPORARY = re.compile(r"ipykernel_\d+|\b0x[0-9a-f]{8,}\b")
SCRIPT = re.compile(r'(?s)\n<script type="module" data-roofline>.*?</script>')  # of a question
PNG_START = b"\x89PNG\r\n\x1a\n"
SEEN = 3.0  # of 255 in a block of pixels: a picture with fewer colours may differ by less
PNG_NOTES = {b"tEXt", b"iTXt", b"zTXt", b"tIME"}


class Refused(Exception):
    """A notebook that did not run, or wrote what cannot be committed."""


def load(path: Path) -> Any:
    """Read a notebook."""
    return nbformat.read(path, as_version=4)


def dump(notebook: Any) -> str:
    """Return a notebook's file text, the same for the same content."""
    text: str = nbformat.writes(notebook, version=4)
    return text.rstrip("\n") + "\n"


def plain_png(data: str) -> str:
    """Return a base64 PNG without its notes, such as the name of the software that drew it.

    In 256 colours, which take a third of the bytes, where nobody sees a difference.
    """
    raw = b64decode(data)
    if not raw.startswith(PNG_START):
        raise Refused("an output that calls itself image/png is none")
    kept, place = [PNG_START], len(PNG_START)
    while place < len(raw):
        (length,) = struct.unpack(">I", raw[place : place + 4])
        if raw[place + 4 : place + 8] not in PNG_NOTES:
            kept.append(raw[place : place + 12 + length])
        place += 12 + length
    plain = b"".join(kept)
    if Image.open(io.BytesIO(plain)).mode == "P":  # it has few colours already
        return b64encode(plain).decode()
    few = pictures.in_few_colours(plain)
    same = pictures.worst_block(pictures.pixels(plain), pictures.pixels(few)) < SEEN
    return b64encode(few if same else plain).decode()


def output_text(output: Any) -> str:
    """Return all the text of one output, pictures left out."""
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return "\n".join(output.traceback)
    parts = [value for kind, value in output.data.items() if not kind.startswith("image/")]
    return "\n".join(str(part) for part in parts)


def setup(notebook: Any) -> Any:
    """Return the setup cell, a notebook's first code cell.

    Raises
    ------
    ValueError
        That isn't it.
    """
    first = next((cell for cell in notebook.cells if cell.cell_type == "code"), None)
    if first is None or first.get("id") != SETUP_ID:
        raise ValueError(f"the first code cell's id is not {SETUP_ID!r}, as in other chapters")
    return first


def fold(cell: Any) -> None:
    """Fold a code cell in Colab and JupyterLab if its tags fold it on the site, or open it.

    Colab shows a form's title in place of its code, JupyterLab its first line: the same.
    """
    cell.source = TITLE.sub("", cell.source)
    if FOLDS & set(cell.metadata.get("tags", [])):
        title = "Code of the figure" if "figure" in cell.metadata.get("mystnb", {}) else "Code"
        if called := re.search(r"(?:rh\.pages|roofline\.labs)\.(\w+)\(", cell.source):
            title = PAGES.get(called[1], "Instrument")
        if cell.id == SETUP_ID:
            title = SETUP_TITLE
        cell.source = f"# @title {title}\n{cell.source}"
        cell.metadata |= {"cellView": "form", "jupyter": {"source_hidden": True}}


def sizes(output: Any) -> dict[str, Any]:
    """Return an output's metadata that is kept: how large its picture is shown, in pixels."""
    told = output.metadata.get("image/png", {})
    size = {side: told[side] for side in ("width", "height") if side in told}
    return {"image/png": size} if size else {}


def normalise(notebook: Any) -> Any:
    """Return the notebook as it is committed.

    Ids stay where they are unique; metadata is what the book uses (kernel, tags, alt
    texts and captions, sizes of pictures) and what folds code elsewhere; code cells count
    from 1; links have their chapters' numbers; pictures carry no notes, and questions no script:
    executed, they bring it, and the site has its own.
    """
    result = copy.deepcopy(notebook)
    result.nbformat, result.nbformat_minor = 4, 5
    result.metadata = nbformat.from_dict(
        {"kernelspec": dict(KERNEL), "language_info": {"name": "python"}}
    )
    taken: set[str] = set()
    count = 0
    for cell in result.cells:
        cell.source = "\n".join(line.rstrip() for line in cell.source.rstrip().split("\n"))
        if "id" not in cell or cell.id in taken:
            cell.id = nbformat.v4.new_code_cell().id
        taken.add(cell.id)
        metadata = {key: cell.metadata[key] for key in ("tags", "mystnb") if cell.metadata.get(key)}
        if "tags" in metadata:
            metadata["tags"] = sorted(set(metadata["tags"]))
        cell.metadata = nbformat.from_dict(metadata)
        cell.pop("attachments", None)
        if cell.cell_type == "markdown":
            cell.source = books.numbered(cell.source)
        if cell.cell_type != "code":
            continue
        fold(cell)
        count += 1
        if cell.execution_count is not None:
            cell.execution_count = count
        for output in cell.outputs:
            if "metadata" in output:
                output.metadata = nbformat.from_dict(sizes(output))
            if output.output_type == "execute_result":
                output.execution_count = count
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = plain_png(output.data["image/png"])
            if "text/html" in output.get("data", {}):
                output.data["text/html"] = SCRIPT.sub("", output.data["text/html"])
    return result


def refuse_unfit(notebook: Any, name: str) -> None:
    """Raise where an output cannot be committed: on stderr, an error, a path, an address."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for count, cell in enumerate(code, start=1):
        for output in cell.outputs:
            text = output_text(output)
            why = None
            if output.output_type == "stream" and output.name == "stderr":
                why = f"wrote to stderr:\n{text}"
            elif output.output_type == "error":
                why = f"raised:\n{text}"
            elif match := PATHS.search(text):
                why = f"printed a path of this machine: {match[0]}"
            elif match := TEMPORARY.search(text):
                why = f"printed what changes from run to run: {match[0]}"
            if why:
                raise Refused(f"{name}, code cell {count}: {why}\n--- the cell\n{cell.source}")


def keep_machine_values(fresh: Any, committed: Any) -> None:
    """Put committed outputs back into cells that depend on the machine and did not change."""
    before = {cell.get("id"): cell for cell in committed.cells if cell.cell_type == "code"}
    for cell in fresh.cells:
        old = before.get(cell.get("id"))
        if (
            cell.cell_type == "code"
            and MACHINE in cell.metadata.get("tags", [])
            and old is not None
            and old.source.rstrip() == cell.source.rstrip()
            and old.execution_count is not None
        ):
            cell.outputs = copy.deepcopy(old.outputs)


def execute(
    path: Path, environment: Mapping[str, str] | None = None, seconds: int = SECONDS
) -> Any:
    """Run a notebook from its first cell in a fresh kernel; return it, the file untouched.

    The kernel's environment is this process's, with ``ENVIRONMENT`` and then ``environment``.

    Raises
    ------
    Refused
        Where a cell fails or takes longer than ``seconds``: file, cell number, source and error.
    """
    notebook = load(path)
    begun: list[Any] = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        timeout=seconds,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_execute=lambda cell, cell_index: begun.append(cell),
    )
    try:
        with patch.dict(os.environ, {**ENVIRONMENT, **(environment or {})}):
            client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        what = getattr(error, "ename", None)
        reason = f"{what}: {error.evalue}" if what else str(error).strip()
        where = f"{path.name}, code cell {len(begun)}"
        raise Refused(f"{where}: {reason}\n--- the cell\n{begun[-1].source}") from error
    return notebook


def execute_all(paths: list[Path], refresh: bool) -> int:
    """Execute, normalise and write the notebooks; nothing is written where one fails."""
    from roofline import storage  # needs msgspec, which Colab lacks

    texts = {}
    for path in paths:
        begun = time.perf_counter()
        committed = load(path)
        fresh = execute(path)
        if not refresh:
            keep_machine_values(fresh, committed)
        fresh = normalise(fresh)
        refuse_unfit(fresh, path.name)
        text = dump(fresh)
        changed = "changed" if text != path.read_text("utf-8") else "as committed"
        texts[path] = text
        print(f"{path.name:34}{time.perf_counter() - begun:6.1f} s  {changed}", flush=True)
    for path, text in texts.items():
        storage.write(path, text)
    return 0


def check(paths: list[Path]) -> list[str]:
    """Return which notebooks are not as ``execute`` leaves them, and why; runs nothing."""
    problems = []
    for path in paths:
        notebook = load(path)
        try:
            refuse_unfit(notebook, path.name)
        except Refused as error:
            problems.append(str(error))
        if dump(normalise(notebook)) != path.read_text("utf-8"):
            problems.append(f"{path.name}: not normalised; `make notebooks` does it")
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        if empty := [cell.id for cell in code if cell.execution_count is None]:
            problems.append(f"{path.name}: cells never executed: {', '.join(empty)}")
    return problems


def number_pages() -> None:
    """Write the chapters' numbers into the links of the pages that are no notebooks."""
    for page in books.pages():
        path = books.ROOT / f"{page}.md"
        if path.is_file():
            path.write_text(books.numbered(path.read_text("utf-8")), "utf-8")


def main() -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("execute")
    one.add_argument("notebooks", nargs="*", type=Path, help="default: all of _toc.yml")
    one.add_argument("--refresh", action="store_true", help="take new machine values too")
    options = parser.parse_args()
    try:
        paths = [path.resolve() for path in options.notebooks] or books.notebooks()
        if not options.notebooks:
            number_pages()
        return execute_all(paths, options.refresh)
    except (Refused, FileNotFoundError) as error:
        print(f"\nnotebooks: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
