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

from roofline_helpers import dtypes, hardware, roofline, work
from roofline_helpers._checks import BadType, BadValue, RooflineError, UnknownName
from roofline_helpers.hardware import Chip, all_chips, chip, chips
from roofline_helpers.judge import check
from roofline_helpers.roofline import Roofline
from roofline_helpers.show import si, table
from roofline_helpers.verdicts import gain, verdict
from roofline_helpers.work import Work, fuse, total

if TYPE_CHECKING:
    from roofline_helpers import (
        ask,
        compiled,
        evidence,
        explain,
        kernels,
        lab,
        measure,
        models,
        network,
        plot,
        published,
        serving,
        training,
    )
    from roofline_helpers.compiled import analyze, cost_analysis
    from roofline_helpers.published import scoreboard

__version__ = "0.1.0"

# Modules that are imported when first used: they load Matplotlib or JAX, or a catalogue
_LATER = (
    "ask",
    "compiled",
    "evidence",
    "explain",
    "kernels",
    "lab",
    "measure",
    "models",
    "network",
    "plot",
    "published",
    "serving",
    "training",
)

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


# Functions of those modules that everybody calls
_FUNCTIONS = {"analyze": "compiled", "cost_analysis": "compiled", "scoreboard": "published"}


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(f"{__name__}.{_FUNCTIONS[name]}"), name)
    if name in _LATER:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
