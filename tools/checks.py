"""Run checks one after another, with the time that each takes; the last lines name what failed.

Wall time is what people wait for; processor time, of all processes, tells more on a busy machine.

python -m tools.checks lint       linter, formatter, types, spelling
python -m tools.checks quick      those, and the package's quick tests
python -m tools.checks            those, the site, all tests, each notebook executed once
python -m tools.checks thorough   all compiled anew, all points and pages, notebooks as in Colab
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import books, programs

PYTEST = ["-m", "pytest", "-q"]
# Two processes; tests that share something expensive stay together
TWO = ["-n", "2", "--dist", "loadgroup"]
FAILED_TO = "ROOFLINE_FAILED_TO"  # conftest.py: a file that names the tests that fail
Stage = tuple[str, list[str]]

LINT: list[Stage] = [
    ("ruff check", ["-m", "ruff", "check", "--quiet"]),
    ("ruff format", ["-m", "ruff", "format", "--check", "--quiet"]),
    ("mypy", ["-m", "mypy", "--no-error-summary"]),
    ("codespell", ["-m", "codespell_lib"]),
]
QUICK: Stage = ("quick tests", [*PYTEST, *TWO, "-m", "not slow", "tests/package"])
BOOK: Stage = ("book", ["-m", "tools.site.build", "--clean"])
TESTS: Stage = ("tests", [*PYTEST, *TWO, "--doctest-modules", "roofline_helpers", "tests"])
NBVAL: Stage = (
    "notebooks, strict nbval",
    [*PYTEST, "-n", "2", "--dist", "loadscope", "--nbval", "--nbval-cell-timeout=600", "notebooks"],
)
STAGES: dict[str, list[Stage]] = {
    "lint": LINT,
    "quick": [*LINT, QUICK],
    "all": [*LINT, BOOK, TESTS],
    "thorough": [*LINT, BOOK, NBVAL, TESTS],
}
THOROUGH = {"ROOFLINE_THOROUGH": "1", "ROOFLINE_PROGRAMS": "live"}


def processor_time() -> float:
    """Return the seconds that ended processes have computed, of all that were started from here."""
    spent = os.times()
    return spent.children_user + spent.children_system


def run(stages: list[Stage], environment: dict[str, str]) -> list[str]:
    """Run each stage, failed or not before it; return the names of those that failed."""
    failed = []
    for name, arguments in stages:
        begun, computed = time.perf_counter(), processor_time()
        # nbval holds the committed outputs against the records of compilations, and
        # tests/notebooks/test_compiled_records.py holds those against what the compiler says
        use = {"ROOFLINE_USE": "record"} if "--nbval" in arguments else {}
        command = [sys.executable, *arguments]
        if subprocess.run(command, cwd=books.ROOT, env={**environment, **use}).returncode:
            failed.append(name)
        verdict = "FAILED" if name in failed else "ok"
        taken = f"{time.perf_counter() - begun:.1f} s"
        print(
            f"== {name}: {verdict}, {taken} ({processor_time() - computed:.0f} s of processors)",
            flush=True,
        )
    return failed


def main() -> int:
    """Read the command line and run."""
    which = " ".join(sys.argv[1:]) or "all"
    if which not in STAGES:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        names, missed = Path(folder) / "failed", Path(folder) / "missed"
        noted = {FAILED_TO: str(names), programs.MISSED_TO: str(missed)}
        environment = {**os.environ, **(THOROUGH if which == "thorough" else {}), **noted}
        # Without bytecode every process would compile this package, and its tests, for itself
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        failed = run(STAGES[which], environment)
        print(programs.missed_in(missed) if missed.is_file() else "", end="", file=sys.stderr)
        if failed:
            print(f"failed: {', '.join(failed)}", file=sys.stderr)
            print(names.read_text("utf-8") if names.is_file() else "", end="", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
