"""The words of the command line, and what each of them runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from roofline_helpers import __version__

SCRIPT = "SCRIPT.py:FUNCTION"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after the command. By default those that it was started with.

    Examples
    --------
    >>> main(["chip", "v6e"])  # doctest: +SKIP
    0
    >>> main(["compare", "a.json", "b.json"])  # no such files: standard error says so
    2
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["explain"]:
        from roofline_helpers.explain import command

        return command.main(words[1:])
    if words[:1] == ["measure"]:
        from roofline_helpers import measure

        return measure.main(words)
    options = _parser().parse_args(words)  # before anything is imported: help is quick
    from roofline_helpers._checks import RooflineError

    try:
        return _run(options)
    except (RooflineError, OSError) as error:
        print(f"{options.command}: {error}", file=sys.stderr)
        return 2 if options.command == "compare" else 1
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace) -> int:
    if options.command == "chip":
        from roofline_helpers.command import chips

        return chips.compared(options.names, json=options.json)
    if options.command == "doctor":
        from roofline_helpers.command import machine

        return machine.doctor(json=options.json)
    from roofline_helpers.command import programs

    if options.command == "compare":
        return programs.compared(options.before, options.after, json=options.json)
    return programs.analyzed(
        options.what,
        chip=options.chip,
        topology=options.topology,
        turns=options.turns,
        by=options.by,
        out=options.out,
        json=options.json,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="roofline",
        description="Roofline analysis: predict, compile, measure.",
        epilog="Exit status: 0; 1 where it can't be done, or where compare finds a change; "
        "2 for a wrong command line, or a file that compare can't read.",
    )
    parser.add_argument("--version", action="version", version=f"roofline_helpers {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    analyze = commands.add_parser("analyze", help="what XLA makes of a function, for any TPU")
    analyze.add_argument("what", metavar=SCRIPT, help="returns what to compile, and its arguments")
    analyze.add_argument("--chip", help="v4, v5e, v5p, v6e, v7x, or a slice such as v6e-8")
    analyze.add_argument("--topology", help="layout of the chips, for instance 4x4x4")
    analyze.add_argument(
        "--turns", metavar="LOOP=N", action="append", default=[], help="of a loop that doesn't say"
    )
    analyze.add_argument("--by", help="list groups of kernels: scope, line or role")
    analyze.add_argument("--out", metavar="FILE.json", help="also write the report, for compare")
    commands.add_parser("explain", help="where a function's time goes on this device, and why")
    commands.add_parser("measure", help="find this device's ceilings, and place kernels")
    chip = commands.add_parser("chip", help="published figures of chips, side by side")
    chip.add_argument("names", metavar="CHIP", nargs="*", help="v6e, h200, …; without, all names")
    compare = commands.add_parser("compare", help="what changed between two reports")
    compare.add_argument("before", metavar="BEFORE.json", help="of analyze --out, or a baseline")
    compare.add_argument("after", metavar="AFTER.json")
    doctor = commands.add_parser("doctor", help="what this machine can do, and what to install")
    for each in (analyze, chip, compare, doctor):
        each.add_argument("--json", action="store_true", help="print the result for programs")
    return parser
