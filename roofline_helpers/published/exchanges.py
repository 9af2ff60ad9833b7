"""Measured collectives beside the network model's times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from roofline_helpers import network

if TYPE_CHECKING:
    import pandas

LARGE = 0.30
"""An error above this share needs a reason."""

_UNSTEADY = 1.1
_BETWEEN = 8 * 2**20


def collectives() -> pandas.DataFrame:
    """Return every measured collective with its predicted time: one row each.

    Columns: "source", "chip", "collective", "pattern", "devices", "bytes", "measured µs",
    "predicted µs", "bound µs", "error" (predicted over measured, less one), "judged" and "reason".
    A row is not judged where its own curve contradicts it, a larger message having taken less time
    by more than a tenth; where the model's constants come from it; or where it is the floor of
    calling a program, which says nothing of the collective.
    """
    import pandas

    return pandas.DataFrame(list(_rows()))


@cache
def _records() -> tuple[dict[str, Any], ...]:
    folder = resources.files("roofline_helpers").joinpath("data", "collectives")
    paths = sorted(folder.iterdir(), key=lambda each: each.name)
    return tuple(json.loads(each.read_text("utf-8")) for each in paths)


def _rows() -> Iterator[dict[str, Any]]:
    for record in _records():
        for curve in record["curves"]:
            yield from _curve(record, curve)


def _curve(record: Mapping[str, Any], curve: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    chip, kind, devices = record["chip"], curve["kind"], curve["devices"]
    shape = curve.get("shape", devices)
    axes = [
        place[tuple(curve["axes"])] if "axes" in curve else place.fast
        for place in (network.topology(chip, shape, ceilings=each) for each in network.CEILINGS)
    ]
    points = curve["points"]
    for at, (nbytes, seconds) in enumerate(points):
        published, reached = (
            network.collective(kind, nbytes, over, sharing=curve.get("sharing", 1)) for over in axes
        )
        floor = record.get("floor", 0.0)
        predicted = max(reached.seconds, floor)
        least = min(later for _, later in points[at:])
        fitted = nbytes in curve.get("fitted", ())
        row = {
            "source": record["title"],
            "chip": chip,
            "collective": kind,
            "pattern": curve["pattern"],
            "devices": devices,
            "bytes": nbytes,
            "measured µs": seconds * 1e6,
            "predicted µs": predicted * 1e6,
            "bound µs": published.transfer * 1e6,
            "error": predicted / seconds - 1,
            "judged": seconds <= _UNSTEADY * least and not fitted and reached.seconds > floor / 2,
        }
        yield row | {"reason": reason(row) if abs(row["error"]) > LARGE else ""}


def reason(row: Mapping[str, Any]) -> str:
    """Return why the model is far off on a row of `collectives`; empty where nobody knows."""
    kind = row["collective"]
    if not row["judged"]:
        return "its own curve contradicts it, or it set a constant"
    if kind == "permute":
        return "to one peer NCCL uses few channels, more from 128 MiB up: one rate stands for all"
    if kind == "all-to-all" and row["devices"] < 8:
        return "to few peers NCCL uses few channels, as in a permute"
    held = row["bytes"] / (row["devices"] if kind == "all-to-all" else 1)
    if held <= _BETWEEN:
        return "between the two protocols, where the table's own times jump by a third and more"
    return ""
