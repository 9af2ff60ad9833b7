"""What became slower from one explanation to the next, kernel by kernel, and what is only noise."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from roofline.diagnosis.rows import KERNEL, REST, TimedRow
from roofline.terminal import Grid
from roofline_helpers.common.show import cell, many, si, significant

if TYPE_CHECKING:
    from roofline.diagnosis.explanation import Explanation

NOTICED, UNSURE, FEW = 0.05, 0.10, 3
"""Relative difference from which on a time is a change; the same with fewer runs than a `FEW`. The
clock of an H200 that gets warm moves a matmul's time by 4% within a profile, single runs by 9%."""

SMALL = {True: 0.002, False: 0.02}
"""Share of the call up to which a change is noise, of kernels and of the time between them."""

SURE = 2.0
"""How many times as large as the runs' own spread a change must be."""

SHOWN = 12
"""Changed kernels that the text lists."""


@dataclass(frozen=True)
class Pair:
    """A kernel of both explanations, or those of one place: seconds of a call, and their spread.

    `spread` is how far the runs of both let the difference stray: half of each side's quartiles.
    `verdict` is "slower", "faster", "same", "new" or "gone".

    Examples
    --------
    >>> Pair("matmul", "model.py:8", 1e-3, 1.5e-3, 1e-5, (1, 1), "slower").change
    0.0005
    """

    what: str
    line: str
    before: float
    after: float
    spread: float
    kernels: tuple[int, int]
    verdict: str

    @property
    def change(self) -> float:
        """Seconds by which a call got longer."""
        return self.after - self.before


@dataclass(frozen=True)
class Upgrade:
    """Two explanations of one job, before and after a change of software, program or device.

    `pairs` are their kernels, the largest change first; `common` is the factor by which nearly all
    kernels take longer, as at another clock, 1 if there is none: it counts to no kernel.

    Examples
    --------
    >>> from roofline.diagnosis import compare, ladder
    >>> steps = ladder.committed()["decode"].steps
    >>> slower = compare(steps[3].why, steps[0].why)
    >>> slower.pairs[0].verdict, bool(slower), bool(compare(steps[0].why, steps[0].why))
    ('slower', True, False)
    """

    before: Explanation
    after: Explanation
    pairs: tuple[Pair, ...]
    common: float

    def __bool__(self) -> bool:
        return self._call != "same" or any(pair.verdict != "same" for pair in self.pairs)

    @property
    def _call(self) -> str:
        """The verdict on the whole call."""
        judge = _Judge(self.before, self.after, self.common)
        return judge.verdict(self.before.wall, self.after.wall, judge.spread)

    def __repr__(self) -> str:
        return f"<{self._headline()}>"

    def _headline(self) -> str:
        old, new = self.before.wall, self.after.wall
        counts = {"slower": 0, "faster": 0, "new": 0, "gone": 0, "same": 0}
        for pair in self.pairs:
            counts[pair.verdict] += 1
        said = [f"{count} {word}" for word, count in counts.items() if count and word != "same"]
        if counts["same"]:
            said.append(f"{counts['same']} the same but for noise")
        change = "the same but for noise"
        if self._call != "same":
            change = f"{abs(new / old - 1):.1%} {'more' if new > old else 'less'}"
            if new >= 2 * old:
                change = f"{significant(new / old)} times as long"
        return f"{si(old, 's')} a call became {si(new, 's')}, {change}: {', '.join(said)}"

    def table(self) -> Any:
        """Return all pairs as a table, in ms of a call; the last row is the call."""
        import pandas

        rows = [self._cells(pair) for pair in self.pairs]
        rest = self.before.unexplained, self.after.unexplained
        spread = _half(self.before.runs), _half(self.after.runs)
        whole = (
            Pair(REST, "", *rest, 0.0, (0, 0), "same"),
            Pair(
                "the call", "", self.before.wall, self.after.wall, math.hypot(*spread), (0, 0), ""
            ),
        )
        rows += [self._cells(pair) for pair in whole if pair.before or pair.after]
        rows[-1]["verdict"] = self._call
        return pandas.DataFrame(rows).set_index("what")

    @staticmethod
    def _cells(pair: Pair) -> dict[str, Any]:
        count = "{} → {} kernels: ".format(*pair.kernels) if len({*pair.kernels}) > 1 else ""
        known = pair.before > 0 and pair.after > 0
        return {
            "what": f"{count if known else ''}{pair.what}",
            "before ms": pair.before * 1e3,
            "after ms": pair.after * 1e3,
            "change ms": pair.change * 1e3,
            "times": pair.after / pair.before if known else None,
            "noise ms": SURE * pair.spread * 1e3,
            "verdict": pair.verdict,
            "line": pair.line,
        }

    def parts(self) -> list[str | Grid]:
        """Return what is printed: the answer in words, the changed kernels, what limits it."""
        changed = [pair for pair in self.pairs if pair.verdict != "same"]
        names = ["before ms", "after ms", "change ms", "times", "noise ms", "verdict", "line"]
        rows = []
        for pair in changed[:SHOWN]:
            cells = self._cells(pair)
            rows.append([cells["what"], *(cell(cells[name]) for name in names)])
        told: list[str | Grid] = [self._headline()]
        told += ["", Grid(["what", *names], rows)] if rows else []
        if len(changed) > SHOWN:
            rest = math.fsum(pair.change for pair in changed[SHOWN:])
            told.append(f"… and {len(changed) - SHOWN} more, {si(rest, 's')} together")
        return [*told, "", *(f"- {note}" for note in self._notes())]

    def _notes(self) -> Iterator[str]:
        old, new = self.before, self.after
        for name, was, now in (
            ("devices", old.device, new.device),
            ("arguments", ", ".join(old.arguments), ", ".join(new.arguments)),
        ):
            if was and now and was != now:
                yield f"other {name}: {was}, then {now}"
        versions = {*old.software, *new.software}
        for name in sorted(versions):
            was, now = old.software.get(name, "unknown"), new.software.get(name, "unknown")
            if was != now:
                yield f"{name} {was}, then {now}"
        if self.common != 1:
            more = "longer" if self.common > 1 else "shorter"
            yield (
                f"nearly every kernel takes {self.common:.3f} times as long, as at another clock, "
                f"or beside other work: that much {more} counts to none. Measure both in turn"
            )
        for when, why in (("before", old), ("after", new)):
            if why.withheld:
                yield f"{when}: {why.withheld}"
            if len(why.runs) < FEW and why.origin != "modelled":
                yield f"{when}: little is known of noise from {many(len(why.runs), 'run')}"
        judge = _Judge(old, new, self.common)
        yield (
            f"a kernel's change is more than {judge.noticed:.0%} of it, {SMALL[True]:.1%} of the "
            f"call and {SURE:g} times what its runs allow"
        )

    def data(self) -> dict[str, Any]:
        """Return the same for programs, in seconds."""
        sides = {"before": self.before, "after": self.after}
        return {
            **{name: {"seconds": why.wall, "runs": list(why.runs)} for name, why in sides.items()},
            "verdict": self._call,
            "common": self.common,
            "kernels": [
                {**vars(pair), "kernels": list(pair.kernels), "change": pair.change}
                for pair in self.pairs
            ],
            "notes": list(self._notes()),
        }


def compare(before: Explanation, after: Explanation) -> Upgrade:
    """Return what became slower from one explanation to another, kernel by kernel.

    Kernels are matched by line, role and work; else by line and role; else by line; and those
    without a line by the device's name for them, without its numbers. What is left is new or gone.

    Examples
    --------
    >>> from roofline.diagnosis import ladder
    >>> steps = ladder.committed()["decode"].steps
    >>> compare(steps[0].why, steps[3].why).before.wall > steps[3].why.wall
    True
    """
    left, right = list(before.rows), list(after.rows)
    matched: list[tuple[list[TimedRow], list[TimedRow]]] = []
    # from what says most of a kernel to what says least; each matches only what is left
    for key in (_work, _role, _line, _called, _numberless):
        olds, news = _grouped(left, key), _grouped(right, key)
        common = (olds.keys() & news.keys()) - {None}
        matched += [(olds.pop(name), news.pop(name)) for name in list(olds) if name in common]
        left = list(itertools.chain(*olds.values()))
        right = list(itertools.chain(*news.values()))
    judge = _Judge(before, after, _common(matched))
    matched += [(rows, []) for rows in _grouped(left, _numberless).values()]
    matched += [([], rows) for rows in _grouped(right, _numberless).values()]
    pairs = sorted(map(judge.pair, matched), key=lambda pair: -abs(pair.change))
    return Upgrade(before, after, tuple(pairs), judge.common)


# --- Which kernels are the same ------------------------------------------------------------------


def _work(row: TimedRow) -> tuple[Any, ...] | None:
    kernel = row.kernel
    work = kernel.matrix_flops + kernel.vector_flops, kernel.read_bytes, kernel.written_bytes
    named = row.kind == KERNEL and kernel.role
    if not named:
        return None
    layerless = (re.sub(r"\d+", "#", text) for text in (kernel.role, kernel.scope))
    return (row.source, kernel.step, *layerless, *(f"{n:.3g}" for n in work))


def _role(row: TimedRow) -> tuple[Any, ...] | None:
    role = re.sub(r"\d+", "#", row.kernel.role)
    return (row.source, row.kernel.step, role) if role and row.source else None


def _line(row: TimedRow) -> tuple[Any, ...] | None:
    return (row.source, row.kernel.step) if row.source else None


def _called(row: TimedRow) -> tuple[Any, ...]:
    return (row.kind, row.label or row.name)


def _numberless(row: TimedRow) -> tuple[Any, ...]:
    return (row.kind, re.sub(r"[\d.]+", "#", row.label or row.kernel.role or row.name))


def _grouped(rows: Sequence[TimedRow], key: Callable[[TimedRow], Any]) -> dict[Any, list[TimedRow]]:
    groups: dict[Any, list[TimedRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _common(matched: Sequence[tuple[list[TimedRow], list[TimedRow]]]) -> float:
    """Return the factor by which nearly all matched kernels take longer; 1 if there is none."""
    kernels = [pair for pair in matched if pair[0][0].kind == KERNEL]
    sums = [(_busy(before), _busy(after)) for before, after in kernels]
    least = 0.002 * math.fsum(before for before, _ in sums)
    ratios = [after / before for before, after in sums if min(before, after) > least]
    if len(ratios) < 5:
        return 1.0
    middle = statistics.median(ratios)
    near = sum(abs(ratio / middle - 1) < NOTICED / 2 for ratio in ratios)
    return middle if near >= 0.8 * len(ratios) and abs(middle - 1) > NOTICED / 2 else 1.0


def _busy(rows: Sequence[TimedRow]) -> float:
    return math.fsum(row.busy or row.seconds for row in rows)


@dataclass(frozen=True)
class _Judge:
    """What is a change between two explanations, and what noise."""

    before: Explanation
    after: Explanation
    common: float

    @property
    def noticed(self) -> float:
        few = min(len(why.runs) for why in (self.before, self.after)) < FEW
        return UNSURE if few and "modelled" not in self.before.origin else NOTICED

    @property
    def spread(self) -> float:
        """Seconds by which the runs let the difference of the calls stray."""
        return math.hypot(*(_half(why.runs) for why in (self.before, self.after)))

    def pair(self, rows: tuple[list[TimedRow], list[TimedRow]]) -> Pair:
        """Return the pair of these rows; of what is no kernel the call's own spread counts."""
        was, now = rows
        first = (now or was)[0]
        kernel = first.kind == KERNEL
        before, after = (math.fsum(row.seconds for row in side) for side in rows)
        spread = math.hypot(*(math.fsum(map(_spread, side)) for side in rows))
        spread = spread if kernel else math.hypot(spread, self.spread)
        least = SMALL[kernel] * max(self.before.wall, self.after.wall)
        expected = (self.common if kernel else 1.0) * before
        verdict = self.verdict(expected, after, spread, least)
        if verdict != "same" and not (was and now):
            verdict = "new" if now else "gone"
        counts = len(was), len(now)
        return Pair(first.title, first.source, before, after, spread, counts, verdict)

    def verdict(self, before: float, after: float, spread: float, least: float = 0.0) -> str:
        """Return whether it is "slower", "faster" or the "same"."""
        if abs(after - before) <= max(self.noticed * max(before, after), SURE * spread, least):
            return "same"
        return "slower" if after > before else "faster"


def _spread(row: TimedRow) -> float:
    """Return half of the distance between the quartiles of a row's share of the call."""
    return row.seconds * (row.high - row.low) / row.busy / 2 if row.busy else 0.0


def _half(runs: Sequence[float]) -> float:
    """Return half of the distance between the quartiles of runs; of few, between all."""
    outer = (0.25, 0.75) if len(runs) > 2 * FEW else (0.0, 1.0)
    low, high = np.quantile(runs, outer)
    return float(high - low) / 2
