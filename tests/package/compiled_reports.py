"""Reports of what the tests compile, each compiled once a process."""

from functools import cache

import pytest
from compiled_suite import CHIPS, SUITE

from roofline import xla

MISSING = {chip: xla.can_compile(chip) for chip in CHIPS}


per_chip = pytest.mark.parametrize("chip", CHIPS)
"""For a test of every chip."""


def needs(chip):
    """Skip the test where the compiler for this chip is not here."""
    if MISSING[chip] is not None:
        pytest.skip(f"NOT TESTED for {chip}: {MISSING[chip]}")


@cache
def report_of(name, chip):
    """Compile a kernel of the suite, once a session."""
    needs(chip)
    fn, args, options = SUITE[name].call
    return xla.analyze(fn, *args, chip=chip, **options)
