"""Budgets of tests: a function compiled for a chip, compared with limits or with its baseline."""

from __future__ import annotations

import hashlib
import math
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import pytest

from roofline.network.topology import slice_of
from roofline.storage import write
from roofline.testing.plugin import PROPERTY
from roofline.xla.analysis import analyze
from roofline.xla.changes import Changes
from roofline.xla.compiler import DoesNotFit
from roofline.xla.display import compiled_by, known
from roofline.xla.report import Report
from roofline.xla.targets import can_compile
from roofline_helpers import __version__
from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    RooflineError,
    flag,
    name_of,
    shown,
    single,
)
from roofline_helpers.common.records import BadRecord
from roofline_helpers.common.show import si

# --- Limits as tests write them: ``hbm_bytes="<= 1.2 GB"``, ``exposed="<= 5%"``, ``fits=True`` --

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
    return sum(exchange.exposed for exchange in report.exchanges) / whole if whole else None


_Ends: TypeAlias = "tuple[float, float] | None"


def _expected(report: Report) -> _Ends:
    """Return the time to expect, with the cheapest and with the dearest branches of conditionals.

    Its upper end is infinite where nobody knows how long a kernel takes.
    """
    times = [end.expected for end in report.ends if end.expected is not None]
    if not times:
        return None
    seconds = [known(time) for time in times]
    unknown = report.at_least or any(math.isinf(time.high) for time in times)
    return min(seconds), math.inf if unknown else max(seconds)


def _open(report: Report, measure: Callable[[Report], float | None]) -> _Ends:
    """Return a number with the cheapest and with the dearest branches of conditionals.

    Its upper end is infinite where counts are only the least.
    """
    ends = [value for value in map(measure, report.ends) if value is not None]
    return (min(ends), math.inf if report.at_least else max(ends)) if ends else None


METRICS: Mapping[str, tuple[str, Callable[[Report], _Ends]]] = {
    "hbm_bytes": ("B", lambda report: (report.hbm_bytes, report.most_bytes)),
    "flops": ("FLOP", lambda report: (report.flops, report.most_flops)),
    "seconds": ("s", _expected),
    "exposed": ("%", lambda report: _open(report, _exposed)),
    "memory": ("B", lambda report: (report.memory.total,) * 2 if report.memory else None),
    "kernels": ("", lambda report: (len(report.kernels),) * 2),
}
"""The quantities that can be limited: unit, and place in a report, as least and most.

Per device and per call: bytes that cross HBM; FLOPs; the time to expect; the part of the roof's
time in which exchanges are waited for; the memory that is needed at most; the number of kernels.
"""

_LIMIT = re.compile(r"\s*(<=|>=|==|<|>)\s*([0-9][0-9_,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


@dataclass(frozen=True)
class Limit:
    """One limit: `metric` is a name of `METRICS`, `value` in SI base units, `text` as written.

    Examples
    --------
    >>> Limit.parse("kernels", "<= 12").text
    '<= 12'
    """

    metric: str
    sign: str
    value: float
    text: str

    @classmethod
    def parse(cls, metric: str, wanted: Any) -> Limit:
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
        >>> Limit.parse("hbm_bytes", "<= 1.2 GB").value
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
        ends = METRICS[self.metric][1](report)
        if ends is None:
            return f"{self.metric} {self.text}: not known of this program"
        holds = [_SIGNS[self.sign](end, self.value) for end in ends]
        if all(holds):
            return None
        least, most = (_shown(self.metric, end) for end in ends)
        reason = f", {report.at_least}" if report.at_least else ""
        known = f"at least {least}{reason}" if math.isinf(ends[1]) else f"{least} to {most}"
        words = f"{self.metric} {self.text}: it is {least if ends[0] == ends[1] else known}"
        return f"{words}; whether that is within the limit isn't known" if any(holds) else words


def _is_limit(name: str, value: Any) -> bool:
    """Return whether an argument is a limit, if only of a metric that doesn't exist."""
    return name in METRICS or (isinstance(value, str) and _LIMIT.fullmatch(value) is not None)


def _example(metric: str) -> str:
    unit = METRICS[metric][0]
    return {"B": " GB", "FLOP": " GFLOP", "s": " ms", "%": "%"}.get(unit, "")


def _shown(metric: str, value: float) -> str:
    unit = METRICS[metric][0]
    if unit == "%":
        return f"{100 * value:.3g}%"
    return si(value, unit) if unit else f"{value:g}"


def memory_over(report: Report) -> str | None:
    """Return in words by how much a program is too large for its device; None where it fits."""
    hbm = report.chip.memory["hbm"].capacity if report.chip is not None else None
    if report.memory is None or hbm is None:
        return "fits: what the program needs, or what the device has, is not known"
    if report.memory.total <= hbm.value:
        return None
    return f"fits: it needs {si(report.memory.total, 'B')} of {si(hbm.value, 'B')}"


# --- Baselines: what a program was when someone looked at it, in small files next to the tests ---

FOLDER = ".roofline"
"""Beside a test file: its baselines, in a folder of the file's name."""


def baseline_path(test_file: Path, test: str, name: str | None = None) -> Path:
    """Return the path of a call's baseline.

    Parameters
    ----------
    test_file : Path
        The file of the test.
    test : str
        pytest's name of the test within it: "test_block[v6e]", "TestModel::test_block".
    name : str, optional
        The call's name, if a test has several.

    Examples
    --------
    >>> baseline_path(Path("tests/test_model.py"), "test_block[v6e]").as_posix()
    'tests/.roofline/test_model/test_block[v6e].json'
    """
    full = test if name is None else f"{test}.{name}"
    plain = re.sub(r"[^\w\-.\[\]=,]+", "_", full.replace("::", "."))
    if plain != full.replace("::", ".") or len(plain) > 100:  # two names must not share a file
        plain = f"{plain[:100]}-{hashlib.sha256(full.encode()).hexdigest()[:8]}"
    return test_file.parent / FOLDER / test_file.stem / f"{plain}.json"


def load_baseline(path: Path) -> Report | None:
    """Return the baseline of a file; None where there is none.

    Raises
    ------
    BadRecord
        The file is damaged, or of another version of this package.
    """
    if not path.is_file():
        return None
    try:
        return Report.from_json(path.read_text("utf-8"))
    except (BadRecord, UnicodeDecodeError) as error:
        raise BadRecord(f"{path}: {error}") from None


# --- The fixture: a function compiled for a chip, compared with limits or with its baseline ------

SHOWN = 12
"""The most changes that a failure lists."""

WRITTEN, UNCHANGED, OTHER = "written", "as it was", "another compiler"
"""The fate of a call's baseline, for the summary."""


@dataclass
class Budget:
    """The fixture `roofline` of one test: `roofline(fn, *args, chip="v6e")`.

    `command` runs the test again, `update` writes its baselines anew, `strict` fails another
    compiler's program, and `properties` has what became of each baseline.

    Examples
    --------
    >>> def test_block(roofline):  # doctest: +SKIP
    ...     roofline(block, params, x, chip="v6e", hbm_bytes="<= 1.2 GB")
    """

    test_file: Path
    test: str
    command: str
    update: bool = False
    strict: bool = True
    properties: list[tuple[str, object]] = field(default_factory=list)
    _names: set[str | None] = field(default_factory=set)

    def __call__(
        self,
        fn: Any,
        *args: Any,
        chip: Any,
        fits: bool = False,
        name: str | None = None,
        **named: Any,
    ) -> Report:
        """Compile a function for a chip, and fail the test if a limit or the baseline is violated.

        Parameters
        ----------
        fn, *args
            The function and its arguments, as `analyze` takes them; shapes are enough.
        chip : str
            The target: "v6e", or a slice such as "v6e-8".
        fits : bool
            Whether it has to fit into the device's memory.
        name : str, optional
            A name of this call, if the test has several.
        **named
            Limits, ``hbm_bytes="<= 1.2 GB"``, per device and call: `hbm_bytes` and `flops`;
            `seconds`, the time to expect; `exposed`, the part of its roof in which exchanges are
            waited for; `memory`, what the program needs at most; `kernels`, how many. A number
            alone is the most, in SI base units. Without any limit the program is compared with its
            baseline. Other names are options of `analyze`, or arguments of the function.

        Returns
        -------
        Report
        """
        __tracebackhide__ = True
        limits = {key: value for key, value in named.items() if _is_limit(key, value)}
        arguments = {key: value for key, value in named.items() if key not in limits}
        try:
            required = [Limit.parse(key, value) for key, value in limits.items()]
            must_fit, missing = flag("fits", fits), can_compile(slice_of(chip)[0])
        except RooflineError as error:
            _fail(str(error))
        if missing is not None:
            pytest.skip(f"roofline: {missing}")
        try:
            report = analyze(fn, *args, chip=chip, **arguments)
        except DoesNotFit as error:
            _fail(f"it does not fit: {error}")
        self._within(report, required, must_fit)
        if not required:
            self._as_it_was(report, name)
        return report

    def _within(self, report: Report, required: Sequence[Limit], must_fit: bool) -> None:
        __tracebackhide__ = True
        broken = [limit.broken(report) for limit in required]
        broken += [memory_over(report)] if must_fit else []
        violations = [line for line in broken if line is not None]
        if violations:
            where = report.chip.name if report.chip is not None else report.target
            first = f"{report.name} for {where} is over its budget, or may be:"
            _fail("\n  ".join([first, *violations]))

    def _as_it_was(self, report: Report, name: str | None) -> None:
        __tracebackhide__ = True
        if name in self._names:
            named = f"the name {name!r}" if name else "no name"
            raise BadValue(f"two calls of {self.test} have {named}: give each its own with name=")
        self._names.add(name)
        path = baseline_path(self.test_file, self.test, name)
        before = None
        try:
            before = load_baseline(path)
        except BadRecord as error:
            if not self.update:
                _fail(f"{error}. Write it anew: {self.command}")
        changes = None if before is None else before.diff(report)
        if self.update:
            same_package = before is not None and before.package == __version__
            if changes is not None and not changes and changes.same_compiler and same_package:
                self.properties.append((PROPERTY, UNCHANGED))
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, report.to_json(brief=True))
            self.properties.append((PROPERTY, WRITTEN))
        elif before is None or changes is None:
            where = os.path.relpath(path)
            _fail(f"no baseline {where} yet: {self.command}, look at it, commit it")
        elif changes:
            self._differs(os.path.relpath(path), before, report, changes)

    def _differs(self, path: str, before: Report, report: Report, changes: Changes) -> None:
        """Say what changed: by whose doing it may be, where compiler or counting differ."""
        __tracebackhide__ = True
        lines = changes.describe().splitlines()
        listed = lines[: SHOWN + 1]
        if len(lines) > len(listed):
            listed.append(f"  … and {len(lines) - len(listed)} more")
        if before.package != __version__:
            by = before.package or "of a version that it doesn't name"
            listed.append(
                f"  the baseline was counted by roofline_helpers {by}, this is {__version__}: "
                "a difference may be the counting's"
            )
        listing = "\n".join([*listed, f"if that is meant: {self.command}"])
        if changes.same_compiler:
            _fail(f"{report.name} is not what {path} says: {listing}")
        self.properties.append((PROPERTY, OTHER))
        message = (
            f"{report.name} was compiled by another version than its baseline: "
            f"{compiled_by(before)}, now {compiled_by(report)}. What follows may be the "
            f"compiler's doing, not yours; {listing}"
        )
        if self.strict:
            _fail(message)
        pytest.xfail(message)


def _fail(words: str) -> NoReturn:
    __tracebackhide__ = True
    raise pytest.fail.Exception(f"roofline: {words}", pytrace=False) from None
