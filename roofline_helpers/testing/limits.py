"""Limits as tests write them: ``hbm_bytes="<= 1.2 GB"``, ``exposed="<= 5 %"``, ``fits=True``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from roofline_helpers._checks import BadType, BadValue, name_of, shown, single
from roofline_helpers.compiled.report import Report
from roofline_helpers.show import si

_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
UNITS: Mapping[str, Mapping[str, float]] = {
    "B": {f"{prefix}B": n for prefix, n in {**_PREFIXES, **_BINARY}.items()},
    "FLOP": {f"{prefix}FLOP": n for prefix, n in _PREFIXES.items()},
    "s": {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "μs": 1e-6, "us": 1e-6, "ns": 1e-9},
    "%": {"%": 0.01, "": 1.0},
    "": {"": 1.0, "k": 1e3, "M": 1e6},
}
"""Units by what they measure, each with its size in the SI's own."""


def _exposed(report: Report) -> float | None:
    whole = report.time_at_roof
    return sum(each.exposed for each in report.exchanges) / whole if whole else None


METRICS: Mapping[str, tuple[str, Callable[[Report], float | None]]] = {
    "hbm_bytes": ("B", lambda report: report.hbm_bytes),
    "flops": ("FLOP", lambda report: report.flops),
    "seconds": ("s", lambda report: report.time_at_roof),
    "exposed": ("%", _exposed),
    "memory": ("B", lambda report: report.memory.total if report.memory else None),
    "kernels": ("", lambda report: len(report.kernels)),
}
"""What can be limited: its unit, and where a report has it. Per device and per call: bytes that
cross HBM; FLOPs; the least time by the roof; the part of it that exchanges are waited for; the
memory that the program needs at most; and how many kernels there are."""

_LIMIT = re.compile(r"\s*(<=|>=|==|<|>)\s*([0-9][0-9_,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


@dataclass(frozen=True)
class Limit:
    """One limit: `metric` is a name of `METRICS`, `value` in SI base units, `text` as written.

    Examples
    --------
    >>> Limit.of("kernels", "<= 12").text
    '<= 12'
    """

    metric: str
    sign: str
    value: float
    text: str

    @classmethod
    def of(cls, metric: str, wanted: Any) -> Limit:
        """Read a limit.

        Parameters
        ----------
        metric : str
            A name of `METRICS`.
        wanted : str or number
            ``"<= 1.2 GB"``: a sign, a number, a unit. A number alone is the most that is allowed,
            in SI base units (of "exposed", a fraction).

        Raises
        ------
        UnknownName
            No such metric.
        BadType, BadValue
            No limit: the message says how one is written.

        Examples
        --------
        >>> Limit.of("hbm_bytes", "<= 1.2 GB").value
        1200000000.0
        """
        metric = name_of("limit", metric, METRICS)
        units = UNITS[METRICS[metric][0]]
        if isinstance(wanted, int | float) and not isinstance(wanted, bool):
            value = single(metric, wanted, zero=True)
            return cls(metric, "<=", value, f"<= {_shown(metric, value)}")
        listed = ", ".join(dict.fromkeys(unit for unit in units if unit)) or "no unit"
        form = f'a limit such as "<= 5{_example(metric)}" (<=, <, ==, >, >=; {listed}), or a number'
        if not isinstance(wanted, str):
            raise BadType(f"{metric} must be {form}, got {shown(wanted)}")
        parts = _LIMIT.fullmatch(wanted)
        if parts is None or parts[3] not in units:
            raise BadValue(f"{metric} must be {form}, got {shown(wanted)}")
        number = float(re.sub("[_,]", "", parts[2]))
        return cls(metric, parts[1], number * units[parts[3]], " ".join(wanted.split()))

    def broken(self, report: Report) -> str | None:
        """Return in words how a report breaks the limit; None where it holds."""
        value = METRICS[self.metric][1](report)
        if value is None:
            return f"{self.metric} {self.text}: not known of this program"
        if _SIGNS[self.sign](value, self.value):
            return None
        return f"{self.metric} {self.text}: it is {_shown(self.metric, value)}"


def _example(metric: str) -> str:
    unit = METRICS[metric][0]
    return {"B": " GB", "FLOP": " GFLOP", "s": " ms", "%": " %"}.get(unit, "")


def _shown(metric: str, value: float) -> str:
    unit = METRICS[metric][0]
    if unit == "%":
        return f"{100 * value:.3g} %"
    return si(value, unit) if unit else f"{value:g}"


def fits(report: Report) -> str | None:
    """Return in words by how much a program is too large for its device; None where it fits."""
    hbm = report.chip.memory["hbm"].capacity if report.chip is not None else None
    if report.memory is None or hbm is None:
        return "fits: what the program needs, or what the device has, is not known"
    if report.memory.total <= hbm.value:
        return None
    return f"fits: it needs {si(report.memory.total, 'B')} of {si(hbm.value, 'B')}"
