"""Causes of lost time, and findings: a cause in one program.

A report of a compiled program holds findings, so what they are is told here. The causes themselves
stand beside what detects them, in `roofline.diagnosis.findings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from roofline_helpers.common.show import Fields

CAUSES: dict[str, Cause] = {}
"""The closed list, by key: each cause is in the file of its detector, and enters itself here."""


class Check(NamedTuple):
    """The gains of pairs of programs, with a cause and without: shares of the claimed seconds.

    Examples
    --------
    >>> Check(0.83, 2.03, "6 pairs of programs timed on an H200").high
    2.03
    """

    low: float
    high: float
    how: str


@dataclass(frozen=True)
class Cause:
    """One member of the closed list.

    Parameters
    ----------
    key : str
        Its short name.
    title : str
        What is wrong, in a few words.
    advice : str
        What to try.
    chapter : str
        The page that teaches it, by its address in the book.
    checked : mapping of str to Check
        Measured gains from removing it, by platform ("cpu", "gpu", "tpu"); empty without any.
    named : bool
        Whether it explains a loss; a fallback only says how near the longest kernel is to its roof.

    Examples
    --------
    >>> from roofline.diagnosis.findings import CAUSES
    >>> CAUSES["host"].title
    'the device waits for the host'
    """

    key: str
    title: str
    advice: str
    chapter: str
    checked: Mapping[str, Check] = field(default_factory=dict)
    named: bool = True

    def __post_init__(self) -> None:
        CAUSES[self.key] = self


@dataclass(frozen=True, repr=False)
class Finding(Fields):
    """One cause of lost time in one call.

    Parameters
    ----------
    cause : str
        Its key in the closed list; `title` says what is wrong, `advice` what to try.
    seconds : float
        Estimated loss in one call. The gain to expect is `saves`.
    kernels : tuple of str
        The kernels that show it.
    evidence : str
        The observation behind it: bytes, launches, shapes.
    source : str
        The line of the reader's code; empty where nothing says it.
    share : float
        Share of the call that its kernels, or the waiting, take: between 0 and 1.
    saves : (float, float) or None
        Least and most seconds that removing it saved in pairs of programs, if any were measured.
    checked : str
        Which programs these were.

    Examples
    --------
    >>> from roofline.diagnosis.findings import Finding
    >>> finding = Finding("host", 1e-3, ("fusion",), "calls differ by 40%")
    >>> finding.title
    'the device waits for the host'
    """

    cause: str
    seconds: float
    kernels: tuple[str, ...]
    evidence: str
    source: str = ""
    share: float = 0.0
    saves: tuple[float, float] | None = None
    checked: str = ""

    @property
    def named(self) -> bool:
        """False for the fallback that only reports the distance from the roof."""
        return self.cause not in CAUSES or CAUSES[self.cause].named

    @property
    def title(self) -> str:
        """What is wrong, in a few words."""
        return CAUSES[self.cause].title if self.cause in CAUSES else self.cause

    @property
    def advice(self) -> str:
        """The change to try."""
        return CAUSES[self.cause].advice if self.cause in CAUSES else ""
