"""The pytest plugin: the fixture `roofline` and the option ``--roofline-update``.

It imports nothing of this package until a test asks for the fixture.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from roofline.testing.budget import Budget

PROPERTY = "roofline"
"""The key of a test report's `user_properties` that holds the fate of its baselines."""

OPTION = "--roofline-update"
OTHER_COMPILER = "roofline_other_compiler"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes baselines, and what to do with another compiler's programs."""
    group = parser.getgroup("roofline", "performance budgets (roofline_helpers)")
    group.addoption(OPTION, action="store_true", help="write the baselines of `roofline` anew")
    parser.addini(
        OTHER_COMPILER,
        "a program that changed, by another compiler than its baseline's: fail (default) or xfail",
        default="fail",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check the setting."""
    if config.getini(OTHER_COMPILER) not in ("fail", "xfail"):
        wrong = config.getini(OTHER_COMPILER)
        raise pytest.UsageError(f"{OTHER_COMPILER} must be fail or xfail, got {wrong!r}")


@pytest.fixture
def roofline(request: pytest.FixtureRequest) -> Budget:
    """Compile a function for a chip and compare it with limits, or with its baseline.

    ``roofline(fn, *args, chip="v6e")`` compares with the committed baseline, which
    ``pytest --roofline-update`` writes; ``hbm_bytes="<= 1.2 GB"``, ``flops``, ``seconds``,
    ``exposed="<= 5%"``, ``memory``, ``kernels`` and ``fits=True`` are limits.
    """
    from roofline.testing.budget import Budget

    node, config = request.node, request.config
    test = node.nodeid.partition("::")[2] or node.name
    return Budget(
        node.path,
        test,
        f"pytest {OPTION} '{node.nodeid}'",
        update=config.getoption(OPTION),
        strict=config.getini(OTHER_COMPILER) == "fail",
        properties=node.user_properties,
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what became of baselines; those of other processes are in their reports."""
    counts: Counter[str] = Counter()
    for report in itertools.chain(*terminalreporter.stats.values()):
        if getattr(report, "when", "") == "call":  # setup and teardown name the properties again
            counts.update(fate for name, fate in report.user_properties if name == PROPERTY)
    if counts:
        summary = ", ".join(f"{count} {fate}" for fate, count in counts.items())
        terminalreporter.write_line(f"roofline baselines: {summary}")
