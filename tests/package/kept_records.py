"""Reports of committed records, for tests that need one and not the compiler."""

from roofline.xla.analysis import find_record


def kept_report(name, chip):
    """Return the report of one committed record."""
    report = find_record(name, chip)
    assert report is not None, f"no record {name!r} for {chip}"
    return report
