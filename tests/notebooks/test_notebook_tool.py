"""tools/notebooks/run.py: what it keeps, what it refuses, and that a failed run changes nothing."""

from base64 import b64decode
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tools.notebooks import pictures
from tools.notebooks import run as notebooks


def write(path: Path, *sources: str, tags: list[str] | None = None) -> Path:
    code = nbformat.v4.new_code_cell
    cells = [code(source, metadata={"tags": tags} if tags else {}) for source in sources]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    path.write_text(notebooks.dump(nbformat.v4.new_notebook(cells=cells)), "utf-8")
    return path


def outputs(path: Path) -> list[Any]:
    return [cell.outputs for cell in notebooks.load(path).cells]


def test_machine_values_stay_until_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", "import time\n\ntime.time_ns()", tags=[notebooks.MACHINE])
    notebooks.execute_all([path], refresh=False)
    first = outputs(path)
    notebooks.execute_all([path], refresh=False)
    assert outputs(path) == first
    notebooks.execute_all([path], refresh=True)
    assert outputs(path) != first


def test_what_the_site_folds_is_folded_elsewhere_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path / "a.ipynb", "import matplotlib.pyplot as plt\n\nplt.show()")
    notebook = notebooks.load(path)
    (cell,) = notebook.cells
    written = cell.source
    cell.metadata = {"tags": ["hide-input"], "mystnb": {"figure": {"name": "fig-a"}}}
    folded = notebooks.normalise(notebook)
    assert folded.cells[0].source == f"# @title Code of the figure\n{written}"
    assert folded.cells[0].metadata["cellView"] == "form"
    assert folded.cells[0].metadata["jupyter"] == {"source_hidden": True}
    assert notebooks.normalise(folded) == folded
    folded.cells[0].metadata["tags"] = []
    (opened,) = notebooks.normalise(folded).cells
    assert opened.source == written
    assert opened.metadata == {"mystnb": {"figure": {"name": "fig-a"}}}


def test_a_picture_keeps_the_size_that_it_is_shown_with(tmp_path: Path) -> None:
    draw = """import matplotlib.pyplot as plt
import roofline_helpers as rh

rh.plot.use_style()
plt.figure(figsize=(3, 2))
plt.plot([1, 2])
plt.show()"""
    path = write(tmp_path / "a.ipynb", draw)
    notebooks.execute_all([path], refresh=False)
    [[picture]] = outputs(path)
    wide, high = pictures.pixels(b64decode(picture.data["image/png"])).shape[1::-1]
    assert picture.metadata == {"image/png": {"width": wide // 2, "height": high // 2}}
    assert 290 < wide // 2 < 320  # 3 inches


def test_a_failing_cell_changes_no_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path / "good.ipynb", "1 + 1")
    bad = write(tmp_path / "bad.ipynb", "x = 1", "x / 0")
    before = good.read_bytes(), bad.read_bytes()
    with pytest.raises(notebooks.Refused) as error:
        notebooks.execute_all([good, bad], refresh=False)
    assert (good.read_bytes(), bad.read_bytes()) == before
    for part in ("bad.ipynb", "code cell 2", "ZeroDivisionError", "x / 0"):
        assert part in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.ipynb", "good.ipynb"]


UNFIT = {
    "stderr": ("import sys; print('careful', file=sys.stderr)", "stderr"),
    "a path": ("print('/home/ada/book/x.py')", "path"),
    "an address": ("object()", "run to run"),
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_cannot_be_committed_is_refused(what: str, tmp_path: Path) -> None:
    source, reason = UNFIT[what]
    path = write(tmp_path / "a.ipynb", "x = 1", source)
    before = path.read_bytes()
    with pytest.raises(notebooks.Refused, match=rf"(?s)a\.ipynb, code cell 2.*{reason}"):
        notebooks.execute_all([path], refresh=False)
    assert path.read_bytes() == before
