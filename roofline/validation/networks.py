"""Measured collectives, and the network model's times."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from roofline import network, storage
from roofline_helpers.common import records
from roofline_helpers.measured.record import SCHEMA as MEASURED

if TYPE_CHECKING:
    import pandas

SCHEMA = "roofline.collectives/1"
"""The header of a record of published collectives."""

LARGE = 0.30
"""An error above this share is large."""

_UNSTEADY = 1.1
_NAME = re.compile(r"([a-z -]+) ([\d.]+) (B|KiB|MiB|GiB) over (\d+)")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def collectives() -> pandas.DataFrame:
    """Return every measured collective with its predicted time: one row each.

    "error" is predicted over measured, minus 1. A row is not "judged" if its own curve contradicts
    it, with a larger message faster by more than a tenth; if the model's constants come from it; or
    if it is the host's time to start a collective, not the collective's.

    Examples
    --------
    >>> sorted(set(collectives()["chip"]))
    ['b200', 'h100', 'h200', 'v6e', 'v7x']
    """
    import pandas

    return pandas.DataFrame(list(_rows()))


def _read(folder: str, schema: str) -> list[dict[str, Any]]:
    """Return the records of a folder of the package's data."""
    files = records.files(records.committed("roofline", folder))
    return [storage.load(file, schema, dict) for file in files.values()]


@cache
def own_records() -> tuple[dict[str, Any], ...]:
    """Return our own records of several devices."""
    return tuple(_read("multi_device", MEASURED))


@cache
def _records() -> tuple[dict[str, Any], ...]:
    """Return others' records, and ours."""
    return (*_read("collectives", SCHEMA), *(measured(record) for record in own_records()))


def measured(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the collectives of a record of `roofline_helpers measure`, as curves.

    Its sizes are those of the whole array, of which a device sends its share in a permute. The time
    of the smallest of each kind is the host's time to start one over so many devices, which is the
    curves' floor.
    """
    curves: dict[tuple[str, int], list[list[float]]] = {}
    for sample in record["samples"]:
        named = _NAME.fullmatch(sample["name"])
        if sample["group"] != "collectives" or not sample["passes"] or not named:
            continue
        kind, size, unit, count = named.groups()
        nbytes = float(size) * _UNITS[unit] / (int(count) if kind.startswith("permute") else 1)
        seconds = statistics.median(run["median"] for run in sample["passes"])
        curves.setdefault((kind, int(count)), []).append([nbytes, seconds])
    device = record["device"]
    least: dict[int, list[float]] = {}
    for (_, count), points in curves.items():
        least.setdefault(count, []).append(min(points)[1])
    return {
        "title": f"Our {device['count']} × {device['name']}",
        "chip": device["chip"],
        "curves": [
            {
                "kind": kind.split()[0],
                "pattern": kind.partition(" ")[2],
                "devices": count,
                "floor": statistics.median(least[count]),
                "points": sorted(points),
            }
            for (kind, count), points in curves.items()
        ],
    }


def _rows() -> Iterator[dict[str, Any]]:
    for record in _records():
        for curve in record["curves"]:
            yield from _curve(record, curve)


def _curve(record: Mapping[str, Any], curve: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    chip, kind, devices = record["chip"], curve["kind"], curve["devices"]
    shape = curve.get("shape", devices)
    axes = []
    for ceilings in network.CEILINGS:
        topology = network.topology(chip, shape, ceilings=ceilings)
        axes.append(topology[tuple(curve["axes"])] if "axes" in curve else topology.fast)
    points = curve["points"]
    for at, (nbytes, seconds) in enumerate(points):
        on_links = nbytes * curve.get("sharing", 1)  # several run over the same links at once
        published, reached = (network.collective(kind, on_links, over) for over in axes)
        floor = curve.get("floor", 0.0)
        predicted = max(reached.seconds, floor)
        least = min(later for _, later in points[at:])
        fitted = nbytes in curve.get("fitted", ())
        yield {
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
            "judged": seconds <= _UNSTEADY * least and not fitted and reached.seconds >= floor,
        }
