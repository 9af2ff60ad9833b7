"""The command line: ``roofline …``, which is ``python -m roofline_helpers …``.

    roofline analyze model.py:step --chip v6e    what XLA makes of a function, kernel by kernel
    roofline explain model.py:step               where its time goes on this device
    roofline measure --out mine.json             this device's ceilings
    roofline chip v6e h200                       published figures, side by side
    roofline compare before.json after.json      what changed between two reports
    roofline doctor                              what this machine can do, and what to install

It exits with 0; with 1 where something can't be done or, of `compare`, where something changed;
with 2 for a wrong command line. ``--json`` prints the result for programs.

One file a topic: `entry` (the words), `programs` (analyze, compare), `chips`, `machine` (doctor),
`tables` (drawn by rich). JAX is imported by the commands that need it.
"""

from roofline_helpers.command.entry import main

__all__ = ["main"]
