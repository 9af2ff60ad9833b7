"""Reports of committed records, for tests that need one and not the compiler."""

from __future__ import annotations

import functools

from roofline.diagnosis import Explanation, ladder
from roofline.xla.analysis import find_record


def kept_report(name, chip):
    """Return the report of one committed record."""
    report = find_record(name, chip)
    assert report is not None, f"no record {name!r} for {chip}"
    return report


@functools.cache
def step_of(name: str, rung: int, **setting: object) -> Explanation:
    """Return the explanation of one rung of a committed ladder, by its place in it."""
    why = LADDERS()[name].select(**setting)[rung].why
    assert why is not None
    return why


LADDERS = functools.cache(ladder.committed)
