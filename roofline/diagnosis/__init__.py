"""Why is this function slow? Predicted, compiled and measured, kernel by kernel.

::

    import roofline
    why = roofline.explain(step, weights, batch)  # runs it here
    why                                           # the answer, named causes, rows, waterfall
    why.save("why.html")                          # one file to send on; .md for an issue
    roofline.analyze(step, weights, batch, chip="v6e")  # compiled for a chip that isn't here

One file per topic: `explain` (the call), `runner` (runs with and without the profiler), `trace` and
`trace_steps` (the profiler's file), `program` (the compiled program as a graph), `rows` and
`devices` (trace and program merged, under the `ceilings`), `modelled` (`analyze`: causes in what
only was compiled), `findings` (causes), `doubts` (what speaks against a run), `explanation` (the
result and its record), `ladder` (several versions of one job), `upgrade` (what became slower),
`foreign` (others' profiles); `answer` says it in words, `display`, `page` and `pictures` show it.
"""

from __future__ import annotations

from roofline.diagnosis.explain import explain
from roofline.diagnosis.explanation import Explanation, load_explanation
from roofline.diagnosis.modelled import analyze
from roofline.diagnosis.trace import CannotProfile
from roofline.diagnosis.upgrade import Upgrade, compare

__all__ = [
    "analyze",
    "explain",
    "Explanation",
    "load_explanation",
    "compare",
    "Upgrade",
    "CannotProfile",
]
