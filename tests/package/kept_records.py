"""Reports of committed records, for tests that need one and not the compiler."""

from __future__ import annotations

from roofline_helpers.compiled import Report, stand_ins


def kept_report(name: str, chip: str) -> Report:
    """Return the report of one committed record."""
    report = stand_ins.find(name, chip)
    assert report is not None, f"no record {name!r} for {chip}"
    return report
