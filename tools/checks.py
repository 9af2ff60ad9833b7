"""Run the checks of ``make test`` one after another, with the time that each takes.

python -m tools.checks          everything
python -m tools.checks lint     linter, formatter, types, spelling
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tools import books

PYTEST = ["-m", "pytest", "-q"]
TWO = ["-n", "2", "--dist"]
LINT = [
    ("ruff check", ["-m", "ruff", "check", "--quiet"]),
    ("ruff format", ["-m", "ruff", "format", "--check", "--quiet"]),
    ("mypy", ["-m", "mypy", "--no-error-summary"]),
    ("codespell", ["-m", "codespell_lib"]),
]
REST = [
    ("book", ["-m", "tools.site.build", "--clean"]),
    # Two processes: a notebook's cells stay together, and so do tests that share executed notebooks
    (
        "notebooks, strict nbval",
        [*PYTEST, *TWO, "loadscope", "--nbval", "--nbval-cell-timeout=120", "notebooks"],
    ),
    ("tests", [*PYTEST, *TWO, "loadgroup", "--doctest-modules", "roofline_helpers", "tests"]),
]


def run(stages: list[tuple[str, list[str]]]) -> list[str]:
    """Run each stage, failed or not before it; return the names of those that failed."""
    failed = []
    for name, arguments in stages:
        begun = time.perf_counter()
        # nbval holds the committed outputs against the records of compilations, and
        # tests/notebooks/test_compiled_records.py holds those against what the compiler says now
        use = {"ROOFLINE_USE": "record"} if "--nbval" in arguments else {}
        command, environment = [sys.executable, *arguments], {**os.environ, **use}
        if subprocess.run(command, cwd=books.ROOT, env=environment).returncode:
            failed.append(name)
        # pytest says its own time, and its summary ends the output where all went well
        if arguments[:2] != PYTEST[:2] or name in failed:
            verdict = "FAILED" if name in failed else "ok"
            print(f"== {name}: {verdict}, {time.perf_counter() - begun:.1f} s", flush=True)
    return failed


def main() -> int:
    """Read the command line and run."""
    lint_only = sys.argv[1:] == ["lint"]
    if sys.argv[1:] and not lint_only:
        print(__doc__, file=sys.stderr)
        return 2
    failed = run(LINT if lint_only else LINT + REST)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
