"""Explain: why is this function slow? Predicted, compiled and measured, kernel by kernel.

    import roofline_helpers as rh
    why = rh.explain(step, weights, batch)   # runs it here
    why                                      # rows, waterfall, named causes
    why.save("why.html")                     # one file to send on

The room itself can be called: `rh.explain(…)` is `rh.explain.explain(…)`.

One file a topic: `running` compiles and runs, `trace` and `protos` read what the profiler wrote,
`timeline` says who has each instant, `program` is the compiled program as a graph, `rows` joins
these under the `ceilings`, `waterfall` and `findings` draw conclusions; `display`, `page` and
`pictures` show them, `record` and `loading` keep them, `ladder` holds
several of one job, `command` is the command line.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from roofline_helpers.explain.ceilings import Roofs
from roofline_helpers.explain.explaining import explain
from roofline_helpers.explain.explanation import Energy, Explanation
from roofline_helpers.explain.findings import CAUSES, Cause, Check, Finding, causes
from roofline_helpers.explain.loading import committed, load, loads
from roofline_helpers.explain.record import SCHEMA
from roofline_helpers.explain.rows import Row
from roofline_helpers.explain.running import CannotRun
from roofline_helpers.explain.trace import CannotProfile
from roofline_helpers.explain.waterfall import Bar

__all__ = [
    "explain",
    "Explanation",
    "Row",
    "Bar",
    "Finding",
    "Cause",
    "Check",
    "CAUSES",
    "causes",
    "Roofs",
    "Energy",
    "load",
    "loads",
    "committed",
    "CannotProfile",
    "CannotRun",
    "SCHEMA",
]


class _Room(types.ModuleType):
    """This room: a module that can be called."""

    def __call__(self, *args: Any, **options: Any) -> Explanation:
        return explain(*args, **options)


sys.modules[__name__].__class__ = _Room
