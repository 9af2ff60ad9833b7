"""The example repository of performance tests: what is planted is found, and nothing else."""

import importlib.util
import sys

import pytest

from roofline import xla
from tools import books, programs

pytest.importorskip("jax", reason="JAX is not installed: nothing can be compiled")

FOLDER = books.ROOT / "examples/roofline-tests"
SAID = {
    "lost donation": ["hbm_bytes <= 64 kB: it is 134 MB", "memory <= 70 MB"],
    "float32 upcast": ["scores (", "HBM 268 MB → 537 MB", "expected"],
    "broken fusion": ["scores (", "HBM 268 MB → 403 MB", "new: "],
    "reshaped layout": ["heads (", "3 kernels → 4", "change of layout of heads"],
    "recomputation switched on": ["(recomputed)", "appeared"],
    "resharding that gathers": ["all-gather along model came in", "2 kernels → 3"],
    "unrolled loop": ["mlp (", "kernels → "],
    "constant baked in": ["scores (", "the program and its constants"],
}
"""What the failure of each regression has to say."""


def _planted():
    spec = importlib.util.spec_from_file_location("planted", FOLDER / "planted.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted"] = module  # its dataclass asks for it
    spec.loader.exec_module(module)
    return module


planted = _planted()
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Take kept programs, and no plugin of pytest but ours: others are slow to load."""
    if xla.can_compile("v6e") is not None:
        pytest.skip(f"NOT TESTED: {xla.can_compile('v6e')}")
    monkeypatch.setattr(programs.compiler, "compile_ahead", programs.ahead)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "roofline.testing.plugin")


def test_nothing_changed():
    outcomes, words = planted.run(None)
    assert set(outcomes.values()) == {"passed"}, words
    assert len(outcomes) == 4


@pytest.mark.parametrize("change", planted.REGRESSIONS, ids=lambda each: each.name)
def test_a_regression_is_noticed_and_named(change):
    outcomes, words = planted.run(change, change.test)
    assert outcomes == {change.test: "failed"}, words
    for part in SAID[change.name]:
        assert part in words


@pytest.mark.parametrize("change", planted.REFACTORINGS, ids=lambda each: each.name)
def test_a_refactoring_is_not_minded(change):
    outcomes, words = planted.run(change, change.test)
    assert outcomes == {change.test: "passed"}, words
