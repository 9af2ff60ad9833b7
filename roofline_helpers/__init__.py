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
        chips as chips,
        device as device,
        evidence as evidence,
        kernels as kernels,
        models as models,
        network as network,
        pages as pages,
        plot as plot,
        roofline as roofline,
        serving as serving,
        training as training,
        validation as validation,
        work as work,
        xla as xla,
    )
    from roofline_helpers.chips import Chip as Chip, all_chips as all_chips, chip as chip
    from roofline_helpers.common.checks import (
        BadType as BadType,
        BadValue as BadValue,
        RooflineError as RooflineError,
        UnknownName as UnknownName,
    )
    from roofline_helpers.common.dtypes import BITS as BITS, nbytes as nbytes
    from roofline_helpers.common.show import si as si, table as table
    from roofline_helpers.device.explain import explain as explain
    from roofline_helpers.evidence import gain as gain, verdict as verdict
    from roofline_helpers.evidence.typical import typical as typical
    from roofline_helpers.validation import scoreboard as scoreboard
    from roofline_helpers.roofline import Roofline as Roofline
    from roofline_helpers.work import Work as Work, fuse as fuse, total as total
    from roofline_helpers.xla import analyze as analyze

__version__ = "0.1.0"

# Imports are lazy, so that the pytest plugin and a command that only prints help stay fast
_ROOMS = """
    chips device evidence kernels models network pages plot roofline serving training validation
    work xla
""".split()
_FROM = {
    "chips": ["Chip", "all_chips", "chip"],
    "common.checks": ["BadType", "BadValue", "RooflineError", "UnknownName"],
    "common.dtypes": ["BITS", "nbytes"],
    "common.show": ["si", "table"],
    "device": ["explain"],
    "evidence": ["gain", "typical", "verdict"],
    "roofline": ["Roofline"],
    "validation": ["scoreboard"],
    "work": ["Work", "fuse", "total"],
    "xla": ["analyze"],
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
