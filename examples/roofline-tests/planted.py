"""Changes to model.py that its tests have to notice, and some that they must not.

python planted.py        apply one after another, run the tests, print a table

Each is a piece of model.py and what takes its place. model.py itself stays as it is.
"""

import contextlib
import io
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Planted:
    """One change: what takes the place of what, and the test that it concerns."""

    name: str
    test: str
    edits: dict[str, str]

    def applied(self, text: str) -> str:
        for old, new in self.edits.items():
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: {old!r} is {text.count(old)} times in model.py")
            text = text.replace(old, new)
        return text


REGRESSIONS = [
    Planted(
        "lost donation",
        "test_append",
        {"donate_argnums=0)\ndef append": "donate_argnums=())\ndef append"},
    ),
    Planted(
        "float32 upcast",
        "test_attention",
        {"q, k) / HEAD**0.5": 'q, k, preferred_element_type="float32") / HEAD**0.5'},
    ),
    Planted(
        "broken fusion",
        "test_attention",
        {"weights, v)": "jax.lax.optimization_barrier(weights), v)"},
    ),
    Planted(
        "reshaped layout",
        "test_attention",
        {
            'k = (x @ layer["k"]).reshape(batch, length, HEADS, HEAD)': 'k = (x @ layer["k"])'
            ".reshape(batch, length, HEAD, HEADS).swapaxes(2, 3)"
        },
    ),
    Planted(
        "recomputation switched on",
        "test_train_step",
        {"scan(feed_forward,": "scan(jax.checkpoint(feed_forward),"},
    ),
    Planted(
        "resharding that gathers",
        "test_sharded_layer",
        {'P("data", "model")': 'P("data", None)'},
    ),
    Planted(
        "unrolled loop",
        "test_train_step",
        {"x, params)\n    with": "x, params, unroll=True)\n    with"},
    ),
    Planted(
        "constant baked in",
        "test_attention",
        {"jnp.arange(length)[None, :] - jnp": "np.arange(length)[None, :] - np"},
    ),
]

REFACTORINGS = [
    Planted(
        "einsum for a product",
        "test_attention",
        {'v = (x @ layer["v"])': 'v = jnp.einsum("bld,dk->blk", x, layer["v"])'},
    ),
    Planted(
        "another name",
        "test_train_step",
        {
            'named_scope("mlp")': 'named_scope("feed_forward")',
            "def feed_forward(x, layer)": "def residual(x, layer)",
            "scan(feed_forward,": "scan(residual,",
        },
    ),
    Planted(
        "comments, and lines that move",
        "test_sharded_layer",
        {"def sharded_layer": "# Tokens are rows here.\n\n\ndef sharded_layer"},
    ),
    Planted(
        "a comprehension for tree.map",
        "test_train_step",
        {
            "jax.tree.map(lambda p, g: p - RATE * g, params, gradients)": (
                "{name: p - RATE * gradients[name] for name, p in params.items()}"
            )
        },
    ),
    Planted(
        "three lines become a loop",
        "test_attention",
        {
            """        q = (x @ layer["q"]).reshape(batch, length, HEADS, HEAD)
        k = (x @ layer["k"]).reshape(batch, length, HEADS, HEAD)
        v = (x @ layer["v"]).reshape(batch, length, HEADS, HEAD)
""": """        q, k, v = (
            (x @ layer[name]).reshape(batch, length, HEADS, HEAD)
            for name in ("q", "k", "v")
        )
"""
        },
    ),
]


# Parts of pytest that a run inside a run does without: one collects garbage for a quarter of it
LEFT_OUT = ["-p", "no:cacheprovider", "-p", "no:unraisableexception"]


class _Heard:
    """What pytest said of each test."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.words: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.location[2]] = report.outcome
            if report.longrepr is not None:
                self.words.append(str(report.longrepr))


def run(planted: Planted | None, *tests: str) -> tuple[dict[str, str], str]:
    """Run tests on a changed model; return the outcome of each, and what failures say."""
    path = HERE / "model.py"
    text = path.read_text("utf-8")
    module = types.ModuleType("model")
    module.__file__ = str(path)
    changed = text if planted is None else planted.applied(text)
    before = {name: sys.modules.pop(name, None) for name in ("model", "shapes", "test_rooflines")}
    sys.modules["model"] = module
    sys.path.insert(0, str(HERE))
    heard = _Heard()
    try:
        exec(compile(changed, str(path), "exec"), vars(module))
        file = str(HERE / "tests" / "test_rooflines.py")
        ids = [f"{file}::{test}" for test in tests] or [file]
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main(["-q", "-s", *LEFT_OUT, *ids], plugins=[heard])
    finally:
        sys.path.remove(str(HERE))
        for name, old in before.items():
            sys.modules.pop(name, None)
            if old is not None:
                sys.modules[name] = old
    return heard.outcomes, "\n".join(heard.words)


def main() -> int:
    wrong = 0
    for kind, wanted, changes in (
        ("regression", "failed", REGRESSIONS),
        ("refactoring", "passed", REFACTORINGS),
    ):
        for change in changes:
            outcomes, words = run(change)
            others = {name for name, said in outcomes.items() if said != "passed"} - {change.test}
            right = outcomes.get(change.test) == wanted and not others
            wrong += not right
            print(f"{kind:<12} {change.name:<30} {change.test:<20} {outcomes.get(change.test)}")
            print("".join(f"    {line}\n" for line in words.splitlines()[1:6]), end="")
    print("as it should be" if not wrong else f"{wrong} are not as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
