"""Causes of lost time, and findings: a cause in one program.

A report of a compiled program holds findings, so what they are is told here. The texts of causes
are data, in `causes.toml`; `roofline.diagnosis.findings` detects them.
"""

from __future__ import annotations

import tomllib
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from roofline_helpers.common.show import Fields

UNUSED, ZEROS, MOVED, AGAIN, REPEATED, WIDE, KEPT, SMALL, SERIAL = KINDS = (
    "computed, not used",
    "zeros",
    "moved, not changed",
    "again",
    "repeated in memory",
    "wider than asked",
    "kept for later",
    "small, or waiting",
    "one at a time",
)
"""The kinds of what is in vain in a program, as its dataflow shows."""


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
    named : bool
        Whether it explains a loss; a fallback only says how near the longest kernel is to its roof.
    kind : str
        Which of the nine `KINDS` it belongs to; empty of what no dataflow shows.
    within : float
        How many times more or less than what is told a repair may gain.

    Examples
    --------
    >>> from roofline.diagnosis.findings import CAUSES
    >>> CAUSES["host"].title, CAUSES["one-hot"].kind
    ('the device waits for the host', 'zeros')
    """

    key: str
    title: str
    advice: str
    _: KW_ONLY
    named: bool = True
    kind: str = ""
    within: float = 1.5


_FILE = Path(__file__).parents[1] / "data/causes.toml"
CAUSES = {key: Cause(key, **told) for key, told in tomllib.loads(_FILE.read_text("utf-8")).items()}
"""The closed list, by key."""


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
        Least and most seconds that the call gains without it, where the work that is left is known.
    checked : str
        Why: by the time model, or by which pairs of programs.
    remedy : str
        What to change in this program; empty if the cause's advice says it.
    known : bool
        Whether the work that is left without it is known, so that the call gains these `seconds`.
        Otherwise the remedy is another algorithm, unit or type, and they are what it costs.

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
    remedy: str = ""
    known: bool = False

    @property
    def kind(self) -> str:
        """Which of the nine kinds it belongs to; empty of what no dataflow shows."""
        return CAUSES[self.cause].kind if self.cause in CAUSES else ""

    @property
    def named(self) -> bool:
        """False for the fallback that only reports the distance from the roof."""
        return self.cause not in CAUSES or CAUSES[self.cause].named

    @property
    def title(self) -> str:
        """What is wrong, in a few words."""
        return CAUSES[self.cause].title if self.cause in CAUSES else self.cause

    @property
    def page(self) -> str:
        """Where the book has it, before and after, by the address in its site."""
        return f"book/causes.html#{self.cause}"

    @property
    def advice(self) -> str:
        """The change to try."""
        return self.remedy or (CAUSES[self.cause].advice if self.cause in CAUSES else "")
