"""Roofline analysis for people who write kernels: predict, compile, measure.

>>> import roofline_helpers as rh
>>> roof = rh.chip("v7x").roofline("bf16")
>>> job = rh.work.matmul(600, 600, 600, "bf16")
>>> round(roof.ridge), round(job.intensity), roof.bound(job.intensity)
(313, 200, 'memory')
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roofline_helpers import (
        ask,
        compiled,
        dtypes,
        evidence,
        explain,
        hardware,
        kernels,
        lab,
        measure,
        models,
        network,
        plot,
        published,
        roofline,
        serving,
        training,
        work,
    )
    from roofline_helpers._checks import BadType, BadValue, RooflineError, UnknownName
    from roofline_helpers.compiled import analyze, cost_analysis
    from roofline_helpers.hardware import Chip, all_chips, chip, chips
    from roofline_helpers.judge import check
    from roofline_helpers.published import scoreboard
    from roofline_helpers.roofline import Roofline
    from roofline_helpers.show import si, table
    from roofline_helpers.verdicts import gain, verdict
    from roofline_helpers.work import Work, fuse, total

__version__ = "0.1.0"

__all__ = [
    "BadType",
    "BadValue",
    "Chip",
    "Roofline",
    "RooflineError",
    "UnknownName",
    "Work",
    "all_chips",
    "analyze",
    "ask",
    "check",
    "chip",
    "chips",
    "compiled",
    "cost_analysis",
    "dtypes",
    "evidence",
    "explain",
    "fuse",
    "gain",
    "hardware",
    "kernels",
    "lab",
    "measure",
    "models",
    "network",
    "plot",
    "published",
    "roofline",
    "scoreboard",
    "serving",
    "si",
    "table",
    "total",
    "training",
    "verdict",
    "work",
]

# Everything is imported when it is first used: a test run that has the pytest plugin, and a command
# that only prints help, pay for nothing
_FROM = {
    "BadType": "_checks",
    "BadValue": "_checks",
    "Chip": "hardware",
    "Roofline": "roofline",
    "RooflineError": "_checks",
    "UnknownName": "_checks",
    "Work": "work",
    "all_chips": "hardware",
    "analyze": "compiled",
    "check": "judge",
    "chip": "hardware",
    "chips": "hardware",
    "cost_analysis": "compiled",
    "fuse": "work",
    "gain": "verdicts",
    "scoreboard": "published",
    "si": "show",
    "table": "show",
    "total": "work",
    "verdict": "verdicts",
}


def __getattr__(name: str) -> Any:
    if name in _FROM:
        value = getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
        globals()[name] = value
        return value
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
