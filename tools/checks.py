"""Run checks, with the time that each takes; the last lines name what failed.

Wall time is what people wait for; processor time, of all processes, tells more on a busy machine.
The site is built, and the linters run, while the tests do: what needs the site waits for it.

python -m tools.checks lint       linter, formatter, types, spelling
python -m tools.checks quick      those, and the package's quick tests
python -m tools.checks            those, the site, all tests, each notebook executed once
python -m tools.checks thorough   all built and compiled anew, all points and pages, notebooks as
                                  in Colab

What is kept from one run to the next (types, the site, executed notebooks, pictures) is kept with
a hash of all that it was made of, and made again where that has changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tools import books, programs

PYTEST = ["-m", "pytest", "-q"]
# What executes notebooks for nbval takes a second to import, in each process
NO_NBVAL = ["-p", "no:nbval"]
# Two processes; tests that share something expensive stay together, in the order of tests/conftest
TWO = ["-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder"]
FAILED_TO = "ROOFLINE_FAILED_TO"  # conftest.py: a file that names the tests that fail
Stage = tuple[str, list[str]]
Lanes = tuple[list[Stage], ...]

LINT: list[Stage] = [
    ("ruff check", ["-m", "ruff", "check", "--quiet"]),
    ("ruff format", ["-m", "ruff", "format", "--check", "--quiet"]),
    ("mypy", ["-m", "mypy", "--no-error-summary"]),
    ("codespell", ["-m", "codespell_lib"]),
]
QUICK: Stage = ("quick tests", [*PYTEST, *NO_NBVAL, *TWO, "-m", "not slow", "tests/package"])
BOOK: Stage = ("book", ["-m", "tools.site.build"])
ANEW: Stage = ("book", [*BOOK[1], "--clean"])
TESTS: Stage = (
    "tests",
    [*PYTEST, *NO_NBVAL, *TWO, "--doctest-modules", "roofline_helpers", "tests"],
)
NBVAL: Stage = (
    "notebooks, strict nbval",
    [*PYTEST, "-n", "2", "--dist", "loadscope", "--nbval", "--nbval-cell-timeout=600", "notebooks"],
)
SHOWN = [QUICK, TESTS, NBVAL]  # print as they go; what the others say comes when they end
# Steps, one after another; the lists of a step run at once
STAGES: dict[str, list[Lanes]] = {
    "lint": [(LINT,)],
    "quick": [(LINT,), ([QUICK],)],
    "all": [([TESTS], [BOOK, *LINT])],
    "thorough": [(LINT, [ANEW]), ([NBVAL],), ([TESTS],)],
}
THOROUGH = {"ROOFLINE_THOROUGH": "1", "ROOFLINE_PROGRAMS": "live"}


class Done(NamedTuple):
    """How a stage went: whether it passed, what it printed (if that was kept), and its times."""

    name: str
    passed: bool
    text: str
    wall: float
    computed: float

    def tell(self) -> None:
        """Print it."""
        verdict = "ok" if self.passed else "FAILED"
        times = f"{self.wall:.1f} s ({self.computed:.0f} s of processors)"
        print(f"{self.text}== {self.name}: {verdict}, {times}", flush=True)


def run(stage: Stage, environment: Mapping[str, str], keep: bool) -> Done:
    """Run one stage; `keep` what it prints, or let it print."""
    name, arguments = stage
    # nbval holds the committed outputs against the records of compilations, and
    # tests/notebooks/test_compiled_records.py holds those against what the compiler says
    use = {"ROOFLINE_USE": "record"} if "--nbval" in arguments else {}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        printed = file if keep else None
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=books.ROOT,
            env={**environment, **use},
            stdout=printed,
            stderr=subprocess.STDOUT if keep else None,
        )
        _, status, used = os.wait4(process.pid, 0)  # with what its own children have computed
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - begun
        file.seek(0)
        text = file.read()
    return Done(name, process.returncode == 0, text, wall, used.ru_utime + used.ru_stime)


def run_all(stages: list[Lanes], environment: Mapping[str, str]) -> list[str]:
    """Run each stage, failed or not before it; return the names of those that failed."""
    failed = []

    def along(lane: list[Stage]) -> None:
        for stage in lane:
            done = run(stage, environment, keep=stage not in SHOWN)
            done.tell()
            failed.extend([] if done.passed else [done.name])

    for lanes in stages:
        with ThreadPoolExecutor() as pool:
            for each in [pool.submit(along, lane) for lane in lanes]:
                each.result()
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
        failed = run_all(STAGES[which], environment)
        print(programs.missed_in(missed) if missed.is_file() else "", end="", file=sys.stderr)
        if failed:
            print(f"failed: {', '.join(failed)}", file=sys.stderr)
            print(names.read_text("utf-8") if names.is_file() else "", end="", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
