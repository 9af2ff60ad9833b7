"""Every JAX function that the book runs compiles for v5e and v6e, the TPUs that Colab lends.

Each notebook is executed with a `jax.jit` that remembers what it was asked to trace; a cell at the
end compiles all of it for both chips.
"""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from roofline_helpers import compiled
from tools import books
from tools.notebooks import run as notebooks

CHIPS = ("v5e", "v6e")
# Functions that no TPU program can hold, with the reason
EXCUSED = {"through_python": "calls Python on the host, which a topology does not have"}
RUNS_JAX = [path for path in books.notebooks() if "jax.jit(" in path.read_text("utf-8")]

REMEMBER = """
import sys

import jax

_seen, _jit = {}, jax.jit


class _Remembered:
    def __init__(self, fn, options):
        self.fn, self.options, self.jitted = fn, options, _jit(fn, **options)

    def _note(self, args):
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), args)
        name = getattr(self.fn, "__name__", repr(self.fn))
        _seen[name, str(shapes), str(self.options)] = self.fn, shapes, self.options

    def __call__(self, *args):
        self._note(args)
        return self.jitted(*args)

    def lower(self, *args):
        self._note(args)
        return self.jitted.lower(*args)


def _jit_of_the_book(fn, **options):
    mine = sys._getframe(1).f_globals.get("__name__") == "__main__"  # not a library's own calls
    return _Remembered(fn, options) if mine else _jit(fn, **options)


jax.jit = _jit_of_the_book
"""

COMPILE = """
import json

from roofline_helpers import compiled

jax.jit = _jit
_done, _failed = [], []
for (name, _, _), (fn, shapes, options) in _seen.items():
    for chip in {chips}:
        if name in {excused}:
            continue
        try:
            report = compiled.analyze(fn, *shapes, chip=chip, strict=True, **options)
            _done.append([name, chip, len(report.kernels)])
        except Exception as error:
            _failed.append([name, chip, str(shapes)[:200], f"{{type(error).__name__}}: {{error}}"])
print(json.dumps({{"done": _done, "failed": _failed}}))
"""


@pytest.mark.skipif(
    compiled.can_compile("v6e") is not None,
    reason=f"NO TPU COMPILER HERE: {compiled.can_compile('v6e')}",
)
@pytest.mark.parametrize("path", RUNS_JAX, ids=[path.stem for path in RUNS_JAX])
def test_what_the_book_runs_compiles_for_colabs_tpus(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    last = COMPILE.format(chips=CHIPS, excused=tuple(EXCUSED))
    notebook.cells.insert(0, nbformat.v4.new_code_cell(REMEMBER))
    notebook.cells.append(nbformat.v4.new_code_cell(last))
    copy = tmp_path / path.name
    nbformat.write(notebook, copy)
    use = {compiled.USE: "record"}  # what the notebook compiles itself is tested elsewhere
    done = notebooks.execute(copy, environment=use)
    said = json.loads(done.cells[-1].outputs[0].text)
    assert said["failed"] == []
    assert len(said["done"]) >= len(CHIPS)
