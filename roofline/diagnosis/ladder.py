"""A ladder: one job written in several ways, each better than the one before, all explained."""

from __future__ import annotations

import msgspec

from roofline import storage
from roofline.diagnosis.explanation import Explanation
from roofline_helpers.common import records
from roofline_helpers.common.show import LONGEST, shortened

SCHEMA = "roofline.ladder/2"
"""The header of a record."""


class Step(msgspec.Struct, frozen=True):
    """One way to write the job.

    Parameters
    ----------
    rung, change : str
        Its name, and its change from the one before.
    setting : mapping
        Sizes: batch, context, tokens.
    why : Explanation or None
        Its explanation; None if it failed.
    failed : str
        Why it failed.

    Examples
    --------
    >>> committed()["decode"].steps[0].rung
    'as first written'
    """

    rung: str
    change: str
    setting: dict[str, int | float | str | bool]
    why: Explanation | None = None
    failed: str = ""

    def __repr__(self) -> str:
        text = self.failed or self.why
        return shortened(f"<step {self.rung}, {self.setting}: {text}>", LONGEST)


class Ladder(msgspec.Struct, frozen=True):
    """One job in several ways.

    Parameters
    ----------
    name, command : str
        Its name, and the command that made the record.
    steps : tuple of Step
        In the order of the rungs.

    Examples
    --------
    >>> committed()["decode"].name
    'decode'
    """

    name: str
    command: str = ""
    steps: tuple[Step, ...] = ()
    schema: str = SCHEMA

    def __repr__(self) -> str:
        return f"<ladder {self.name}: {len(self.steps)} steps>"

    def select(self, **setting: float | str) -> tuple[Step, ...]:
        """Return the steps of these sizes: ``ladder.select(batch=16)``."""
        return tuple(step for step in self.steps if setting.items() <= step.setting.items())


def committed() -> dict[str, Ladder]:
    """Return the package's own ladders by name, each one job in several versions.

    Examples
    --------
    >>> sorted(committed())
    ['context', 'decode', 'decode-rungs', 'energy', 'prefill', 'train-step', 'training']
    """
    files = records.files(records.committed("roofline", "explained", "ladders"))
    return {name: storage.load(file, SCHEMA, Ladder) for name, file in files.items()}
