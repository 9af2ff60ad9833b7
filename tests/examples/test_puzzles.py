"""examples/puzzles: each solution passes the judge of its puzzle in notebooks/puzzles.ipynb."""

import nbformat
import pytest

from tools import books

pytest.importorskip("jax", reason="JAX is not installed: no kernel can run")


def test_every_solution_passes_where_what_the_notebook_has_only_moves_too_much(monkeypatch):
    from examples.puzzles import solutions
    from roofline.testing import judge

    found = {}
    first = {}
    real = judge.judge

    def solved(start, *args, **task):
        found[start.__name__] = real(getattr(solutions, start.__name__), *args, **task)
        [small] = task["also"]
        generous = {"hbm_bytes": 1e9, "least": 0}
        first[start.__name__] = real(start, *small, expected=task["expected"], **generous)

    monkeypatch.setattr(judge, "judge", solved)
    cells = nbformat.read(books.ROOT / "notebooks/puzzles.ipynb", as_version=4).cells[2:]
    shared = {}
    for cell in (cell for cell in cells if cell.cell_type == "code"):
        exec(cell.source, shared)
        assert all("too many" in output.text for output in cell.outputs)
    assert len(found) == 8
    assert [words for words in found.values() if not words.startswith("passes: ")] == []
    assert [words for words in first.values() if not words.startswith("passes: ")] == []
