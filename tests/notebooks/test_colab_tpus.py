"""Every JAX function that the book runs compiles for v5e and v6e, the TPUs that Colab lends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from executed import grouped

from roofline_helpers import compiled
from tools import books
from tools.notebooks import inside, once

RUNS_JAX = [path for path in books.notebooks() if once.runs_jax(json.loads(path.read_bytes()))]


@pytest.mark.skipif(
    compiled.can_compile("v6e") is not None,
    reason=f"NO TPU COMPILER HERE: {compiled.can_compile('v6e')}",
)
@pytest.mark.parametrize("path", grouped(RUNS_JAX))
def test_what_the_book_runs_compiles_for_colabs_tpus(path: Path) -> None:
    run = once.run(path)
    assert run.failed == []
    assert len(run.done) >= len(inside.CHIPS)
