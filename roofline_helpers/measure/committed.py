"""The records that the package brings along, and the one to hold one's own against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofline_helpers import records
from roofline_helpers._checks import BadType, shown
from roofline_helpers.measure.machine import device, host
from roofline_helpers.measure.record import FIELDS, Record, load

COMPARED = "roofline_helpers.compared/1"
"""What a comparison with independent programs says of itself."""

_RATES = records.table_of(records.positive)
_SIDES: Mapping[str, Any] = {
    "cores": int,
    "rounds": int,
    "memory": {
        "stream": _RATES,
        "jax": _RATES,
        "ratio of the best": records.positive,
        "ratio by kernel": _RATES,
    },
    "compute": {"numpy": _RATES, "jax": _RATES, "ratio of the best": records.positive},
}
COMPARED_FIELDS: Mapping[str, Any] = {
    "schema": str,
    "date": str,
    "command": str,
    "device": FIELDS["device"],
    "host": FIELDS["host"],
    "software": FIELDS["software"],
    "size": records.positive,
    "notes": [str],
    "runs": [_SIDES],
}
"""What such a comparison holds."""

TRIAL = "roofline_helpers.trial/1"
"""What a trial of one kernel in several ways says of itself."""

TRIAL_FIELDS: Mapping[str, Any] = {
    "schema": str,
    "date": str,
    "command": str,
    "device": {"kind": str, "chip?": str},
    "software": records.table_of(str),
    "shape": [int],
    "error": records.positive,
    "notes": [str],
    "seconds": records.table_of([records.positive]),
}
"""What such a trial holds."""


def measured() -> dict[str, Record]:
    """Return the committed records, by name: "h100", "h200", …"""
    files = records.files(records.committed("measured"))
    return {name: load(file) for name, file in files.items()}


def compared(name: str = "cpu") -> dict[str, Any]:
    """Return a committed comparison with independent programs, as `tools/cpu/compare.py` made it.

    Best byte/s of STREAM's and JAX's kernels, best FLOP/s of NumPy's and JAX's matrix products,
    and the ratios of the best, on all cores of that machine and on one.

    Raises
    ------
    BadRecord
        No such file, or a damaged one.
    """
    return records.load(records.committed("compared", f"{name}.json"), COMPARED, COMPARED_FIELDS)


def trial(name: str) -> dict[str, Any]:
    """Return a committed trial: seconds of one kernel in several ways, on one device in one run.

    "h200-tma" is that of `tools/gpu/hopper_chain.py`. `error` is the largest difference between the
    results. It holds medians only, without the passes and spreads of a `Record`.

    Raises
    ------
    BadRecord
        No such file, or a damaged one.
    """
    return records.load(records.committed("trials", f"{name}.json"), TRIAL, TRIAL_FIELDS)


def beside(record: Record | None = None) -> Record | None:
    """Return the committed record of the same device, to hold one's own against.

    Parameters
    ----------
    record : Record, optional
        One's own; the default device if not given.

    Returns
    -------
    Record or None
        The latest of those whose device calls itself the same: by JAX's name of it
        (`device_kind`), or on a CPU, where that is only "cpu", by the processor's name and the
        number of cores. None if there is none.

    Raises
    ------
    BadType
        Not a record.
    """
    if record is not None and not isinstance(record, Record):
        raise BadType(f"record must be a Record, got {shown(record)}")
    own = _identity(device(), host()) if record is None else _identity(record.device, record.host)
    same = [each for each in measured().values() if _identity(each.device, each.host) == own]
    return max(same, key=lambda each: each.date, default=None)


def _identity(device: Mapping[str, Any], host: Mapping[str, Any]) -> tuple[Any, ...]:
    if device["platform"] == "cpu":
        return "cpu", device["name"], host["cores"]
    return device["platform"], device["kind"]
