"""What each constant of the network and of the reached matrix rate is worth.

    python -m tools.evidence.constants    write roofline_helpers/data/evidence/constants.json

Each is taken away in turn, as if the vendor's figure were reached, and the published steps and the
measured collectives are predicted anew.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import roofline_helpers as rh
from roofline_helpers import published
from roofline_helpers.published import board
from tools.evidence import keep

TOPOLOGY: Any = importlib.import_module("roofline_helpers.network.topology")
STEP: Any = importlib.import_module("roofline_helpers.training.step")
SHARES = ("efficiency", "copied", "reduced", "small_efficiency")
NVLINK = 450e9  # byte/s one way of an H100, whose channels the rates to one peer are


def reached() -> dict[str, Any]:
    """Return what of a network was reached: the file's own tables, which are changed in place."""
    own: dict[str, Any] = TOPOLOGY._data()["reached"]
    return own


def constants() -> Iterator[tuple[str, MutableMapping[str, Any], str]]:
    """Yield each constant of the network: its name, its table, its key."""
    tables = reached()
    places = {**tables, "nvlink.b200": tables["nvlink"]["b200"]}
    for place, table in places.items():
        for key, value in table.items():
            if isinstance(value, float | int):
                yield f"{place}.{key}", table, key


def without(name: str, key: str) -> float | None:
    """Return what replaces a constant; None where another chip's does."""
    if name.startswith("nvlink.b200"):
        return None
    if key in SHARES:
        return 1.0
    return NVLINK if key.endswith("_rate") else 0.0


def errors() -> dict[str, float]:
    """Return the medians of the absolute errors of steps and of collectives, as of now."""
    board._all.cache_clear()
    steps, exchanged = rh.scoreboard().error.abs(), published.collectives()
    collectives = exchanged[exchanged.judged].error.abs()
    return {
        "steps": round(float(steps.median()), 4),
        "collectives": round(float(collectives.median()), 4),
        "collectives, nine in ten": round(float(collectives.quantile(0.9)), 4),
    }


def one_by_one(count: Callable[[], dict[str, float]] = errors) -> dict[str, Any]:
    """Return the errors with all constants, and without each."""
    found: dict[str, Any] = {"all": count(), "without": {}}
    for name, table, key in list(constants()):
        value, other = table[key], without(name, key)
        table.pop(key) if other is None else table.update({key: other})
        try:
            found["without"][name] = {"value": value, **count()}
        finally:
            table[key] = value
    value, STEP.REACHED = STEP.REACHED, 1.0
    try:
        found["without"]["matrix"] = {"value": value, **count()}
    finally:
        STEP.REACHED = value
    board._all.cache_clear()
    return found


if __name__ == "__main__":
    keep("constants", {"command": "python -m tools.evidence.constants", **one_by_one()})
