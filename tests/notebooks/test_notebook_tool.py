"""tools/notebooks/run.py: what it keeps, what it refuses, and that a failed run changes nothing."""

import nbformat
import pytest

from tools.notebooks import run as notebooks


def write(path, *sources, tags=None):
    code = nbformat.v4.new_code_cell
    cells = [code(source, metadata={"tags": tags} if tags else {}) for source in sources]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    path.write_text(notebooks.dump(nbformat.v4.new_notebook(cells=cells)), "utf-8")
    return path


def test_a_failing_cell_changes_no_file(tmp_path, capfd):
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
def test_what_cannot_be_committed_is_refused(what, tmp_path):
    source, reason = UNFIT[what]
    path = write(tmp_path / "a.ipynb", "x = 1", source)
    before = path.read_bytes()
    with pytest.raises(notebooks.Refused, match=rf"(?s)a\.ipynb, code cell 2.*{reason}"):
        notebooks.execute_all([path], refresh=False)
    assert path.read_bytes() == before
