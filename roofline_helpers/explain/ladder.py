"""A ladder: one job written in several ways, each better than the one before, all explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from roofline_helpers import records
from roofline_helpers.explain.explanation import Explanation
from roofline_helpers.explain.record import fields

SCHEMA = "roofline_helpers.ladder/1"
"""What a record says of itself."""


@dataclass(frozen=True)
class Step:
    """One way to write the job.

    Parameters
    ----------
    rung, change : str
        What it is called, and what it changes about the one before.
    setting : mapping
        Sizes: batch, context, tokens.
    why : Explanation or None
        Where its time goes; None where it failed.
    failed : str
        Why it failed.

    Examples
    --------
    >>> committed()["decode"].steps[0].rung
    'as first written'
    """

    rung: str
    change: str
    setting: Mapping[str, Any]
    why: Explanation | None = None
    failed: str = ""


@dataclass(frozen=True)
class Ladder:
    """One job in several ways.

    Parameters
    ----------
    name, command : str
        What it is called, and what made the record.
    steps : tuple of Step
        In the order of the rungs.

    Examples
    --------
    >>> committed()["decode"].name
    'decode'
    """

    name: str
    command: str = ""
    steps: tuple[Step, ...] = field(default=())

    def with_step(
        self, rung: str, change: str, setting: Mapping[str, Any], why: Explanation
    ) -> Ladder:
        """Return the ladder with one more step."""
        return replace(self, steps=(*self.steps, Step(rung, change, setting, why)))

    def with_failure(
        self, rung: str, change: str, setting: Mapping[str, Any], failed: str
    ) -> Ladder:
        """Return the ladder with one more step, which failed."""
        return replace(self, steps=(*self.steps, Step(rung, change, setting, failed=failed)))

    def of(self, **setting: Any) -> tuple[Step, ...]:
        """Return the steps of these sizes: ``ladder.of(batch=16)``."""
        wanted = setting.items()
        return tuple(s for s in self.steps if all(s.setting.get(k) == v for k, v in wanted))


class _StoredStep(msgspec.Struct):
    rung: str
    change: str
    setting: dict[str, int | float | str | bool]
    failed: str
    explained: Explanation | None = None


class _Stored(msgspec.Struct):
    schema: str
    name: str
    command: str
    steps: list[_StoredStep]


def dumps(ladder: Ladder) -> str:
    """Return a ladder as the text of a record.

    Examples
    --------
    >>> ladder = committed()["decode"]
    >>> dumps(ladder).splitlines()[1]
    '"schema": "roofline_helpers.ladder/1",'
    """
    steps = [
        {
            "rung": step.rung,
            "change": step.change,
            "setting": dict(step.setting),
            "failed": step.failed,
            "explained": None if step.why is None else fields(step.why),
        }
        for step in ladder.steps
    ]
    head = {"schema": SCHEMA, "name": ladder.name, "command": ladder.command}
    return records.dumps({**head, "steps": steps})


def load(path: Any) -> Ladder:
    """Return the ladder that a record's file holds.

    Raises
    ------
    BadRecord
        No such file; damaged, foreign, older or newer: see `records.load`.

    Examples
    --------
    >>> load(records.committed("explained", "ladders", "decode.json")).name
    'decode'
    """
    stored = records.load(path, SCHEMA, _Stored)
    steps = (
        Step(one.rung, one.change, one.setting, one.explained, one.failed) for one in stored.steps
    )
    return Ladder(stored.name, stored.command, tuple(steps))


def committed() -> dict[str, Ladder]:
    """Return the ladders that the package brings along, by name.

    Examples
    --------
    >>> sorted(committed())
    ['contents', 'decode', 'decode-rungs', 'energy', 'prefill', 'training']
    """
    files = records.files(records.committed("explained", "ladders"))
    return {name: load(file) for name, file in files.items()}
