"""Claims of detectors, and the case that they look at; causes are in the detectors' files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from roofline import xla
from roofline.diagnosis.ceilings import Ceilings
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import BETWEEN, KERNEL, LOOP, TimedRow
from roofline.xla.causes import CAUSES as CAUSES
from roofline.xla.causes import Finding as Finding
from roofline.xla.expected import expected_of
from roofline.xla.kernel import kernel_of

OVERSTATED = 2.5
"""Cycles of so many times a kernel's roof mean that it is slow: copies that were published take 2.3
times as many as they last (`xla.expected.worth_of_cycles`, at a v7x's clock)."""


@dataclass(frozen=True)
class Claim:
    """The claim of one detector: kernels, and the seconds of a call that each loses.

    `more` are seconds that belong to no kernel: gaps, the host. `remedy` and `known` are those of
    the finding, and `sure` the share of the seconds that any such remedy gains.
    """

    cause: str
    parts: tuple[tuple[TimedRow, float], ...]
    evidence: str
    more: float = 0.0
    source: str = ""
    remedy: str = ""
    known: bool = False
    sure: float = 1.0


Claims: TypeAlias = Iterator[Claim]
"""The claims of a detector, as it finds them."""


FLOOR = {"cpu": 5e-6, "gpu": 6e-6, "tpu": 3e-6}
"""Seconds of a launch below which a kernel is short: about twice the shortest launch."""


@dataclass(frozen=True)
class Case:
    """The evidence of findings: one call, its kernels and their programs.

    Parameters
    ----------
    rows : tuple of TimedRow
        Of one call.
    programs : mapping of str to Program
        By the name of their modules.
    ceilings : Ceilings
        Over the device.
    platform : {"cpu", "gpu", "tpu"}
        Its kind.
    wall : float
        Seconds of a call.
    measured : bool
        Whether the seconds of rows were measured; otherwise they are those of their roofs.
    compiling : float
        Seconds of each call in which the host compiles.
    anew : tuple of str
        Why functions were compiled in a later call than the first.
    processors : int
        Multiprocessors of a GPU; 0 where that isn't known.
    unsteady : float
        Seconds by which the call took longer than the fastest one.
    by_device : mapping of str to tuple of TimedRow
        The rows of every device, by its number.
    unused : tuple of str
        Donated arguments that no result can take over.
    """

    rows: tuple[TimedRow, ...]
    programs: Mapping[str, Program]
    ceilings: Ceilings
    platform: str
    wall: float
    measured: bool = True
    compiling: float = 0.0
    anew: tuple[str, ...] = ()
    processors: int = 0
    unsteady: float = 0.0
    by_device: Mapping[str, tuple[TimedRow, ...]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    @cached_property
    def kernels(self) -> tuple[TimedRow, ...]:
        """The rows that are kernels of a known program, without those that take next to nothing."""
        known = (row for row in self.rows if row.kind == KERNEL and row.kernel.operations)
        least = 1e-4 * self.wall
        return tuple(
            row
            for row in known
            if row.program in self.programs
            and (row.seconds >= least or row.kernel.host_bytes or row.kernel.collective)
        )

    @cached_property
    def by_name(self) -> dict[tuple[str, str], TimedRow]:
        """Kernels by program and name."""
        return {(row.program, row.name): row for row in self.kernels}

    def program(self, row: TimedRow) -> Program:
        """Return the program of a kernel."""
        return self.programs[row.program]

    def row(self, beside: TimedRow, name: str) -> TimedRow | None:
        """Return the kernel of this name in the program of another one."""
        return self.by_name.get((beside.program, name))

    def slow(self, row: TimedRow) -> bool:
        """Return whether a kernel takes more than twice its roof, for more than its launches."""
        if row.reachable is None:
            return False
        least = max(OVERSTATED * row.reachable, 2 * FLOOR[self.platform] * row.launches)
        return row.lost >= 0.5 * row.seconds if self.measured else row.seconds > least

    @cached_property
    def gap(self) -> float:
        """Seconds between two kernels, by the profile."""
        between = (row for row in self.rows if row.kind == LOOP or row.name == BETWEEN)
        launches = sum(row.launches for row in self.rows if row.kind == KERNEL)
        return math.fsum(row.seconds for row in between) / max(launches, 1.0)

    @cached_property
    def floor(self) -> float:
        """Seconds of a call that does next to nothing: the host's, on a GPU."""
        dispatch = None if self.ceilings.chip is None else self.ceilings.chip.dispatch
        return dispatch.value if dispatch is not None and self.measured else 0.0

    def spread(self, row: TimedRow) -> tuple[float, float]:
        """Return the ends of a kernel's expected interval, as shares of its expected time."""
        chip = self.ceilings.chip
        if chip is None or self.ceilings.measured is not None:
            return 1.0, 1.0
        found = expected_of(kernel_of(row.kernel.running(1), self.ceilings.device))
        if not found.seconds or math.isinf(found.high):
            return 1.0, 1.0
        return found.low / found.seconds, found.high / found.seconds

    def likely(self, row: TimedRow, like: xla.Row) -> float:
        """Return the seconds to expect of a kernel's launches if its work were like this."""
        # the compiler's cycles, and sizes, are those of the work as it is
        like = replace(like, cycles=None, matmul=(), form=None)
        chip = self.ceilings.chip
        if chip is None or self.ceilings.measured is not None:
            return self.ceilings.seconds(like, row.launches) or 0.0
        launched = replace(like, launches=max(round(row.launches), 1))
        return expected_of(kernel_of(launched, self.ceilings.device)).known

    def saved(self, row: TimedRow, like: xla.Row) -> float:
        """Return the seconds that a kernel would save if its work were like this.

        Its seconds shrink as those to expect do: from 100 µs where 40 are to expect to 25 where 10
        are.
        """
        if not any(like.traffic.values()) and not like.flops.matrix + like.flops.vector:
            return row.seconds
        now, then = self.likely(row, row.kernel), self.likely(row, like)
        return row.seconds * max(1 - then / now, 0.0) if now else 0.0

    def without_bytes(self, row: TimedRow, read: float = 0.0, written: float = 0.0) -> float:
        """Return the seconds that a kernel would save without bytes, of one launch, in memory."""
        now = row.kernel
        left, wrote = max(now.read_bytes - read, 0), max(now.written_bytes - written, 0)
        like = replace(now, read={"hbm": round(left)}, written={"hbm": round(wrote)})
        return self.saved(row, like)


def whole(cause: str, row: TimedRow, evidence: str, source: str = "") -> Claim:
    """Return a claim on all of a kernel's time."""
    return Claim(cause, ((row, row.seconds),), evidence, source=source)
