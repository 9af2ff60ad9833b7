"""The records that the package brings along, and the one to hold one's own against."""

from __future__ import annotations

from typing import Any, NotRequired, TypeAlias, TypedDict

from roofline_helpers import records
from roofline_helpers._checks import BadType, shown
from roofline_helpers.measure.machine import Device, Host, device, host
from roofline_helpers.measure.record import Record, load
from roofline_helpers.records import Count, Positive

COMPARED = "roofline_helpers.compared/1"
"""What a comparison with independent programs says of itself."""

TRIAL = "roofline_helpers.trial/1"
"""What a trial of one kernel in several ways says of itself."""

_Rates: TypeAlias = dict[str, Positive]  # byte/s or FLOP/s by kernel

_Bandwidths = TypedDict(
    "_Bandwidths",
    {"stream": _Rates, "jax": _Rates, "ratio of the best": Positive, "ratio by kernel": _Rates},
)

_Products = TypedDict("_Products", {"numpy": _Rates, "jax": _Rates, "ratio of the best": Positive})


class _Sides(TypedDict):
    """Both sides of a comparison, on so many cores."""

    cores: Count
    rounds: Count
    memory: _Bandwidths
    compute: _Products


class _Compared(TypedDict):
    """A comparison with independent programs."""

    schema: str
    date: str
    command: str
    device: Device
    host: Host
    software: dict[str, str]
    size: Positive
    notes: list[str]
    runs: list[_Sides]


class _Tried(TypedDict):
    """What a trial was made on."""

    kind: str
    chip: NotRequired[str | None]


class _Trial(TypedDict):
    """A trial of one kernel in several ways: seconds by the way."""

    schema: str
    date: str
    command: str
    device: _Tried
    software: dict[str, str]
    shape: list[Count]
    error: Positive
    notes: list[str]
    seconds: dict[str, list[Positive]]


def measured() -> dict[str, Record]:
    """Return the committed records, by name: "h100", "h200", …

    Examples
    --------
    >>> list(measured())
    ['h100', 'h200']
    """
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

    Examples
    --------
    >>> sorted(compared())[:3]
    ['command', 'date', 'device']
    """
    return dict(records.load(records.committed("compared", f"{name}.json"), COMPARED, _Compared))


def trial(name: str) -> dict[str, Any]:
    """Return a committed trial: seconds of one kernel in several ways, on one device in one run.

    "h200-tma" is that of `tools/gpu/hopper_chain.py`. `error` is the largest difference between the
    results. It holds medians only, without the passes and spreads of a `Record`.

    Raises
    ------
    BadRecord
        No such file, or a damaged one.

    Examples
    --------
    >>> trial("h200-tma")["device"]["chip"]
    'h200'
    """
    return dict(records.load(records.committed("trials", f"{name}.json"), TRIAL, _Trial))


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

    Examples
    --------
    >>> from dataclasses import replace
    >>> mine = replace(measured()["h200"], command="roofline measure")
    >>> beside(mine).name
    'NVIDIA H200 SXM'
    """
    if record is not None and not isinstance(record, Record):
        raise BadType(f"record must be a Record, got {shown(record)}")
    own = _identity(device(), host()) if record is None else _identity(record.device, record.host)
    same = [each for each in measured().values() if _identity(each.device, each.host) == own]
    return max(same, key=lambda each: each.date, default=None)


def _identity(device: Device, host: Host) -> tuple[Any, ...]:
    if device["platform"] == "cpu":
        return "cpu", device["name"], host["cores"]
    return device["platform"], device["kind"]
