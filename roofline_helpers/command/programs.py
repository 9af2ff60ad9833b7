"""``roofline analyze`` and ``roofline compare``: compiled programs, and changes between two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from roofline_helpers import records
from roofline_helpers._checks import BadValue, name_of, shown
from roofline_helpers.command import tables
from roofline_helpers.compiled import Report, analyze, display, record
from roofline_helpers.explain import command

WAYS = ("scope", "line", "role")


def analyzed(
    what: str,
    *,
    chip: str | None,
    topology: str | None,
    turns: Sequence[str],
    by: str | None,
    out: str | None,
    json: bool,
) -> int:
    """Compile what a script's function returns, and print the report."""
    if by is not None:
        name_of("--by", by, WAYS)
    if out is not None and Path(out).suffix != ".json":
        raise BadValue(f"--out must end in .json, got {shown(out)}")
    fn, args, kwargs = command.made(what)
    stated = command.turns(turns)
    report = analyze(fn, *args, chip=chip, topology=topology, turns=stated, **kwargs)
    if out is not None:
        records.write(out, report.to_json())
    if json:
        print(report.to_json(), end="")
        return 0
    _show(report, by)
    if out is not None:
        tables.console().print(f"written: {out}")
    return 0


def _show(report: Report, by: str | None) -> None:
    screen = tables.console()
    screen.print(display.title(report), style="bold")
    screen.print(tables.pairs(display.summary(report)))
    listed = display.tables(report) if by is None else [display.groups_listed(report.groups(by))]
    for head, rows, below in listed:
        screen.print()
        screen.print(tables.table(head, rows))
        if below:
            screen.print(below)
    for note in report.notes:
        screen.print(f"note: {note}")
    screen.print(f"({display.compiled_by(report)})")


def compared(before: str, after: str, *, json: bool) -> int:
    """Print what changed from one report's file to another's; return 1 where something did."""
    reports = [Report(**record.load(path)) for path in (before, after)]
    difference = reports[0].diff(reports[1])
    if json:
        changes = [asdict(change) for change in difference.changes]
        data = {
            "changes": changes,
            "seconds": difference.seconds,
            "compilers": difference.compilers,
        }
        tables.as_json(data | {"same_compiler": difference.same_compiler})
        return int(bool(difference))
    head, *lines = str(difference).splitlines()
    screen = tables.console()
    screen.print(head, style="bold")
    for line in lines:
        screen.print(line)
    return int(bool(difference))
