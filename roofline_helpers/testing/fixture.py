"""What a test calls: a function compiled for a chip, held against limits or its baseline."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from roofline_helpers import __version__
from roofline_helpers._checks import BadValue, UnknownName, flag, text
from roofline_helpers.compiled import targets
from roofline_helpers.compiled.analysis import analyze
from roofline_helpers.compiled.compiling import DoesNotFit
from roofline_helpers.compiled.display import compiled_by
from roofline_helpers.compiled.report import Report
from roofline_helpers.records import BadRecord
from roofline_helpers.testing import baselines
from roofline_helpers.testing.baselines import Baseline
from roofline_helpers.testing.limits import METRICS, Limit, fits

SHOWN = 12
"""How many changes a failure lists."""

WRITTEN, KEPT, OTHER = "written", "as it was", "another compiler"
"""What became of a call's baseline, for the summary."""


@dataclass
class Budget:
    """The fixture `roofline` of one test: `roofline(fn, *args, chip="v6e")`.

    `test_file` and `test` say where its baselines lie, `command` how the test is run again,
    `update` whether they are written anew, `strict` whether another compiler's program fails, and
    `note` takes what became of each baseline.

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
    note: Callable[[str], None] | None = None
    _names: set[str | None] = field(default_factory=set)

    def __call__(
        self,
        fn: Any,
        *args: Any,
        chip: Any,
        topology: str | None = None,
        fits: bool = False,
        name: str | None = None,
        static_argnums: int | Sequence[int] | None = None,
        static_argnames: str | Sequence[str] | None = None,
        donate_argnums: int | Sequence[int] | None = None,
        turns: Mapping[str, int] | None = None,
        **named: Any,
    ) -> Report:
        """Compile a function for a chip, and fail the test where it is not as it should be.

        Parameters
        ----------
        fn, *args
            The function and its arguments, as `analyze` takes them; shapes are enough.
        chip : str
            What to compile for: "v6e", or a slice such as "v6e-8".
        topology : str, optional
            Layout of the chips, for instance "4x4x4".
        fits : bool
            Whether it has to fit into the device's memory.
        name : str, optional
            Which of several calls this is; its baseline has it in its file's name.
        static_argnums, static_argnames, donate_argnums, turns : optional
            As `analyze` takes them.
        **named
            Limits, by the names of `limits.METRICS`: ``hbm_bytes="<= 1.2 GB"``. Without any, and
            without `fits`, the program is held against its baseline. Other names are arguments of
            the function.

        Returns
        -------
        Report
            For further assertions.
        """
        __tracebackhide__ = True
        wanted, arguments = _parted(fn, named)
        must_fit = flag("fits", fits)
        missing = targets.can_compile(targets.slice_of(chip)[0])
        if missing is not None:
            pytest.skip(f"roofline: {missing}")
        options: dict[str, Any] = {
            "static_argnums": static_argnums,
            "static_argnames": static_argnames,
            "donate_argnums": donate_argnums,
            "topology": topology,
            "turns": turns,
        }
        try:
            report = analyze(fn, *args, chip=chip, **options, **arguments)
        except DoesNotFit as error:
            _fail(f"it does not fit: {error}")
        if wanted or must_fit:
            self._within(report, wanted, must_fit)
        else:
            self._as_it_was(report, name)
        return report

    def _note(self, what: str) -> None:
        if self.note is not None:
            self.note(what)

    def _within(self, report: Report, wanted: Sequence[Limit], must_fit: bool) -> None:
        __tracebackhide__ = True
        broken = [limit.broken(report) for limit in wanted]
        broken += [fits(report)] if must_fit else []
        words = [each for each in broken if each is not None]
        if words:
            where = report.chip.name if report.chip is not None else report.target
            _fail("\n  ".join([f"{report.name} for {where} is over its budget:", *words]))

    def _as_it_was(self, report: Report, name: str | None) -> None:
        __tracebackhide__ = True
        if name is not None:
            text("name", name)
        if name in self._names:
            whose = f"the name {name!r}" if name else "no name"
            raise BadValue(f"two calls of {self.test} have {whose}: give each its own with name=")
        self._names.add(name)
        place = baselines.place_of(self.test_file, self.test, name)
        before = self._baseline(place)
        if before is None:
            if not self.update:
                _fail(f"no baseline {_short(place)} yet: {self.command}, look at it, commit it")
            baselines.save(place, report)
            self._note(WRITTEN)
            return
        self._compare(place, before, report)

    def _baseline(self, place: Path) -> Baseline | None:
        __tracebackhide__ = True
        try:
            return baselines.load(place)
        except BadRecord as error:
            if self.update:
                return None
            _fail(f"{error}. Write it anew: {self.command}")

    def _compare(self, place: Path, before: Baseline, report: Report) -> None:
        __tracebackhide__ = True
        changes = baselines.changes(before.report, report)
        same_package = before.package == __version__
        if self.update:
            changed = bool(changes) or not (changes.same_compiler and same_package)
            if changed:
                baselines.save(place, report)
            self._note(WRITTEN if changed else KEPT)
            return
        if not changes:
            return
        lines = str(changes).splitlines()
        listed = lines[: SHOWN + 1]
        if len(lines) > SHOWN + 1:
            listed.append(f"  … and {len(lines) - SHOWN - 1} more")
        counted = [] if same_package else [f"  {_counted(before.package)}"]
        what = "\n".join([*listed, *counted, f"if that is meant: {self.command}"])
        if changes.same_compiler:
            _fail(f"{report.name} is not what {_short(place)} says: {what}")
        self._note(OTHER)
        message = (
            f"{report.name} was compiled by another version than its baseline: "
            f"{compiled_by(before.report)}, now {compiled_by(report)}. What follows may be the "
            f"compiler's doing, not yours; {what}"
        )
        if self.strict:
            _fail(message)
        pytest.xfail(message)


def _parted(fn: Any, named: Mapping[str, Any]) -> tuple[list[Limit], dict[str, Any]]:
    """Return which named values are limits, and which are arguments of the function."""
    limits = [Limit.of(key, value) for key, value in named.items() if key in METRICS]
    others = {key: value for key, value in named.items() if key not in METRICS}
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return limits, others
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return limits, others
    unknown = [key for key in others if key not in parameters]
    if unknown:
        raise UnknownName(
            f"{unknown[0]!r} is neither a limit ({', '.join(METRICS)}, fits) nor an argument of "
            f"the function ({', '.join(parameters) or 'it takes none'})"
        )
    return limits, others


def _fail(words: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.fail(f"roofline: {words}", pytrace=False)


def _counted(package: str) -> str:
    by = f"by roofline_helpers {package}" if package else "by a version that it doesn't name"
    return (
        f"the baseline was counted {by}, this is roofline_helpers {__version__}: "
        "a difference may be the counting's"
    )


def _short(path: Path) -> str:
    """Return a path as seen from here, where it is below."""
    try:
        return path.relative_to(os.getcwd()).as_posix()
    except ValueError:
        return str(path)
