"""What each constant of the network and of the reached matrix rate is worth.

    python -m tools.constants    write roofline/data/evidence/constants.json

Each is taken away in turn, as if the vendor's figure were reached, and the published steps and the
measured collectives are predicted anew. Those that NCCL's own source has are told apart.
"""

import importlib
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import roofline
from roofline import evidence, validation
from roofline.validation import board

TOPOLOGY: Any = importlib.import_module("roofline.network.topology")
STEP: Any = importlib.import_module("roofline.training.step")
NVLINK = 450e9  # byte/s one way of an H100, whose own rates by a protocol or to a peer are these
PUBLISHED = "published"
STEPS = {"REACHED": "matrix", "GROUPED": "grouped", "SLICES": "slices"}


def constants() -> Iterator[tuple[str, MutableMapping[str, Any], str]]:
    """Yield each constant of the network: its name, its table, its key.

    Tables are those of the file, which are changed in place. Of those that NCCL's source has the
    name begins with `PUBLISHED`.
    """
    data = TOPOLOGY._data()
    for kind in ("reached", PUBLISHED):
        waiting = [(kind, data[kind])]
        for place, table in waiting:
            for key, value in table.items():
                if isinstance(value, dict):
                    waiting.append((f"{place}.{key}", value))
                elif isinstance(value, float | int):
                    yield f"{place}.{key}".removeprefix("reached."), table, key


def without(name: str, key: str) -> float | None:
    """Return what replaces a constant; None where another chip's does."""
    if name.startswith("published.nvlink.b200"):
        return None
    if key in ("efficiency", "own_share"):
        return 1.0
    return NVLINK if key.endswith("_rate") else 0.0


def errors() -> dict[str, float]:
    """Return the medians of the absolute errors of steps and of collectives, as of now."""
    board.steps.cache_clear()
    steps = roofline.scoreboard().error.abs()
    exchanged = validation.collectives()
    collectives = exchanged[exchanged.judged].error.abs()
    return {
        "steps": round(float(steps.median()), 4),
        "collectives": round(float(collectives.median()), 4),
        "collectives, nine in ten": round(float(collectives.quantile(0.9)), 4),
    }


def one_by_one(count: Callable[[], dict[str, float]] = errors) -> dict[str, Any]:
    """Return the errors with all constants, and without each."""
    shown: dict[str, Any] = {"all": count(), "without": {}}
    for name, table, key in list(constants()):
        value = table[key]
        other = without(name, key)
        table.pop(key) if other is None else table.update({key: other})
        try:
            shown["without"][name] = {"value": value, **count()}
        finally:
            table[key] = value
    for name, other in (("REACHED", 1.0), ("GROUPED", 1.0), ("SLICES", 0.0)):
        value = getattr(STEP, name)
        setattr(STEP, name, other)
        try:
            shown["without"][STEPS[name]] = {"value": value, **count()}
        finally:
            setattr(STEP, name, value)
    board.steps.cache_clear()
    return shown


def main() -> None:
    """Write the record anew."""
    evidence.save("constants", {"command": "python -m tools.constants", **one_by_one()})


if __name__ == "__main__":
    main()
