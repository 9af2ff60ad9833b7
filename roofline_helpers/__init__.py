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
        ask as ask,
        benchmarks as benchmarks,
        compiled as compiled,
        dtypes as dtypes,
        evidence as evidence,
        explain as explain,
        hardware as hardware,
        kernels as kernels,
        lab as lab,
        measure as measure,
        models as models,
        network as network,
        plot as plot,
        published as published,
        roofline as roofline,
        serving as serving,
        training as training,
        work as work,
    )
    from roofline_helpers._checks import (
        BadType as BadType,
        BadValue as BadValue,
        RooflineError as RooflineError,
        UnknownName as UnknownName,
    )
    from roofline_helpers.benchmarks import typical as typical
    from roofline_helpers.compiled import analyze as analyze, cost_analysis as cost_analysis
    from roofline_helpers.hardware import (
        Chip as Chip,
        all_chips as all_chips,
        chip as chip,
        chips as chips,
    )
    from roofline_helpers.judge import check as check
    from roofline_helpers.published import scoreboard as scoreboard
    from roofline_helpers.roofline import Roofline as Roofline
    from roofline_helpers.show import si as si, table as table
    from roofline_helpers.verdicts import gain as gain, verdict as verdict
    from roofline_helpers.work import Work as Work, fuse as fuse, total as total

__version__ = "0.1.0"

# Everything is imported when it is first used: a test run that has the pytest plugin, and a command
# that only prints help, pay for nothing
_ROOMS = """
    ask benchmarks compiled dtypes evidence explain hardware kernels lab measure models network plot
    published roofline serving training work
""".split()
_FROM = {
    "_checks": ["BadType", "BadValue", "RooflineError", "UnknownName"],
    "benchmarks": ["typical"],
    "compiled": ["analyze", "cost_analysis"],
    "hardware": ["Chip", "all_chips", "chip", "chips"],
    "judge": ["check"],
    "published": ["scoreboard"],
    "roofline": ["Roofline"],
    "show": ["si", "table"],
    "verdicts": ["gain", "verdict"],
    "work": ["Work", "fuse", "total"],
}
_ROOM_OF = {name: room for room, names in _FROM.items() for name in names}

__all__ = sorted([*_ROOMS, *_ROOM_OF])


def __getattr__(name: str) -> Any:
    if name in _ROOM_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
