"""Verdicts: the bound of a program, or the gain of a change, tested against its assumptions.

"Memory-bound" or "fuse this" is said only if it holds

- under published and under reached ceilings, which may disagree near a ridge,
- with a floor for each kernel and without,
- and whether tensors travel between kernels, or those that fit stay on the chip.

Otherwise the answer is "depends", and on what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from roofline_helpers.chips import Chip, floor_of
from roofline_helpers.chips import chip as chip_of
from roofline_helpers.common.checks import BadType, shown
from roofline_helpers.common.show import render, si, significant, span, table, table_html
from roofline_helpers.roofline import Kernel
from roofline_helpers.work import Work, resident

if TYPE_CHECKING:
    import pandas

DEPENDS = "depends"
"""The word of a verdict on which cases disagree."""

WORTH = 1.05
"""A change that gains less than this is not worth a recommendation."""


@dataclass(frozen=True)
class Scenario:
    """One combination of assumptions.

    Parameters
    ----------
    ceilings : {"published", "reached"}
    floor : {"without", "with"}
        Whether each kernel costs at least the floor: the time of a launch among small kernels.
    between : {"travels", "stays"}
        Whether tensors between kernels go through memory, or those that fit stay on the chip.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> case = next(iter(verdict(matmul(256, 8192, 8192), "h200").found))
    >>> case.ceilings, case.floor
    ('published', 'without')
    """

    ceilings: str = "published"
    floor: str = "without"
    between: str = "travels"


WORDS = {
    "ceilings": "the ceilings",
    "floor": "the floor",
    "between": "what stays on the chip",
}
"""The words for each field of `Scenario` that a verdict may depend on."""


@runtime_checkable
class StepLike(Protocol):
    """A program that counts its own kernels, as a step of `roofline.serving` does."""

    @property
    def name(self) -> str:
        """Its name in the result."""

    def chip_of_verdict(self) -> Chip:
        """Return its chip; raise BadValue if it runs on several."""

    def kernels_under(self, scenario: Scenario, chip: Chip) -> list[Kernel]:
        """Return its kernels with their roofs on a chip, as the scenario has them."""


Program: TypeAlias = Work | Kernel | StepLike | Sequence[Work | Kernel]
"""What a verdict is about."""


@dataclass(frozen=True)
class Found:
    """The verdict of one case: the largest part of the time, and the least seconds.

    Examples
    --------
    >>> Found("memory", 2e-6).bound
    'memory'
    """

    bound: str | None
    seconds: float


@dataclass(frozen=True, repr=False)
class _Results:
    """The result of each case, and whether they agree."""

    name: str
    chip: Chip
    found: dict[Scenario, Any]

    _word_of: ClassVar[Any]  # the word for the result of one case
    _cells: ClassVar[Any]  # its row of the table
    _range: ClassVar[Any]  # the numbers of all cases, as a phrase

    @property
    def word(self) -> str:
        """The word that all cases agree on, else "depends"."""
        words = {self._word_of(result) for result in self.found.values()}
        return words.pop() if len(words) == 1 else DEPENDS

    @property
    def on(self) -> tuple[str, ...]:
        """The fields of `Scenario` that alone change the word of some case."""
        words = {case: self._word_of(result) for case, result in self.found.items()}
        changing = set()
        for a, b in product(words, words):
            apart = [axis for axis in WORDS if getattr(a, axis) != getattr(b, axis)]
            if len(apart) == 1 and words[a] != words[b]:
                changing |= {*apart}
        return tuple(axis for axis in WORDS if axis in changing)

    def __repr__(self) -> str:
        why = f" on {' and '.join(WORDS[axis] for axis in self.on)}" if self.on else ""
        return f"<{self.name} on {self.chip.name}: {self.word}{why}, {self._range()}>"

    def table(self) -> pandas.DataFrame:
        """Return one row a case, with the fields in which they differ."""

        def values(axis: str) -> set[Any]:
            return {getattr(case, axis) for case in self.found}

        names = [axis for axis in WORDS if len(values(axis)) > 1]
        return table(
            {name: getattr(case, name) for name in names} | self._cells(result)
            for case, result in self.found.items()
        )

    def _repr_html_(self) -> str:
        line = render("<p>{{ line }}</p>", line=repr(self).strip("<>"))
        return f"{line}\n{table_html(self.table())}"


class Verdict(_Results):
    """What bounds a program on a chip, in each case.

    `word` is "memory", "compute", "network" or "latency" if all cases agree, else "depends", and
    `on` names the assumptions. `found` has the result of each `Scenario`, `table()` a row for each.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> verdict(matmul(8192, 8192, 8192), "h200").word
    'compute'
    """

    @staticmethod
    def _word_of(result: Found) -> str:
        return result.bound or "nothing"

    @staticmethod
    def _cells(result: Found) -> dict[str, str]:
        return {"bound": result.bound or "nothing", "least time": si(result.seconds, "s")}

    def _range(self) -> str:
        return f"at least {span(self.seconds, lambda seconds: si(seconds, 's'))}"

    @property
    def seconds(self) -> tuple[float, float]:
        """The least seconds of the fastest case, and of the slowest."""
        times = [result.seconds for result in self.found.values()]
        return min(times), max(times)


class Gain(_Results):
    """The speed-up by a change of a program on a chip, in each case.

    `word` is "gains", "loses" or "neither" (less than 5% either way) if all cases agree, else
    "depends"; `on`, `found` and `table()` as in `Verdict`.

    Examples
    --------
    >>> from roofline_helpers.work import fuse, fusion_chain
    >>> four = fusion_chain(65536, 4096)
    >>> gain(four, fuse(*four), "h100").word
    'gains'
    """

    @staticmethod
    def _word_of(result: float) -> str:
        if result >= WORTH:
            return "gains"
        return "loses" if result <= 1 / WORTH else "neither"

    @staticmethod
    def _cells(result: float) -> dict[str, str]:
        return {"times as fast": significant(result)}

    def _range(self) -> str:
        return f"{span(self.times, significant)} times as fast"

    @property
    def times(self) -> tuple[float, float]:
        """The least and the largest speed-up – seconds before over seconds after."""
        return min(self.found.values()), max(self.found.values())


def verdict(program: Program, chip: Any = None) -> Verdict:
    """Return the bound of a program on a chip, and the assumptions that it depends on.

    Parameters
    ----------
    program : Work, Kernel, a step of `roofline.serving`, or a list of the first two
        Kernels in order. Of a `Kernel` the launches count, not the roof.
    chip : str, Chip or jax.Device
        A step has its own. A floor that nobody measured is assumed (`chips.assumed_floor`).

    Raises
    ------
    BadType, BadValue, UnknownName
        Not kernels; no such chip; a data type that the chip has no peak for.

    Examples
    --------
    >>> from roofline_helpers.work import matmul
    >>> verdict(matmul(256, 8192, 8192), "h200")
    <matmul on NVIDIA H200 SXM: compute, at least 34.7 µs to 50.6 µs>
    """
    device, found = _chip_for(program, chip), {}
    for case in _cases(program, device):
        kernels = _kernels(program, device, case)
        found[case] = Found(_busiest(kernels), _seconds(kernels))
    if isinstance(program, StepLike):
        return Verdict(program.name, device, found)
    return Verdict(" → ".join(job.name for job, _ in _jobs(program)), device, found)


def gain(before: Program, after: Program, chip: Any = None, *, name: str = "the change") -> Gain:
    """Return the speed-up by a change, and the assumptions that it depends on.

    Parameters
    ----------
    before, after
        Programs, as `verdict` takes them.
    chip : optional
        As in `verdict`; two steps may be on different chips.
    name : str
        The name of the change.

    Raises
    ------
    BadType, BadValue, UnknownName
        As `verdict`.

    Examples
    --------
    >>> from roofline_helpers.work import fusion_chain, fuse
    >>> four = fusion_chain(65536, 4096)
    >>> gain(four, fuse(*four), "h100", name="fusion")
    <fusion on NVIDIA H100 SXM: gains, 2.5 times as fast>
    """
    devices = [_chip_for(program, chip) for program in (before, after)]
    runs = [*zip((before, after), devices, strict=True)]
    found = {}
    for case in dict.fromkeys(case for run in runs for case in _cases(*run)):
        slow, fast = (_seconds(_kernels(*run, case)) for run in runs)
        found[case] = slow / fast
    return Gain(name, devices[0], found)


def _chip_for(program: Program, chip: Any) -> Chip:
    if isinstance(program, StepLike):
        own = program.chip_of_verdict()
        return own if chip is None else chip_of(chip)
    if chip is None:
        raise BadType("a chip is needed: its name, or a step, which has one")
    return chip_of(chip)


def _jobs(program: Any) -> list[tuple[Work, int]]:
    """Return the works of a program, and how often each runs."""
    members = program if isinstance(program, Sequence) else [program]
    jobs = []
    for member in members:
        job, launches = (
            (member.work, member.launches) if isinstance(member, Kernel) else (member, 1)
        )
        if not isinstance(job, Work):
            raise BadType(
                "a Work, a Kernel of one, or a step of roofline.serving is needed, got "
                f"{shown(member)}"
            )
        jobs.append((job, launches))
    if not jobs:
        raise BadType("at least one kernel is needed, got none")
    return jobs


def _cases(program: Program, chip: Chip) -> list[Scenario]:
    """Return the cases that can differ here."""
    measured = chip.reached.matrix or chip.reached.vector or chip.reached.streams
    ceilings = ("published", "reached") if measured else ("published",)
    in_a_row = isinstance(program, StepLike) or len(_jobs(program)) > 1
    between = ("travels", "stays") if in_a_row else ("travels",)
    return [Scenario(*values) for values in product(ceilings, ("without", "with"), between)]


def _kernels(program: Program, chip: Chip, case: Scenario) -> list[Kernel]:
    """Return the kernels of a program with their roofs in one case."""
    reached = case.ceilings == "reached"
    least = floor_of(chip) if case.floor == "with" else None
    if isinstance(program, StepLike):
        kernels = program.kernels_under(case, chip)
        roofs = [kernel.roof and replace(kernel.roof, floor=least) for kernel in kernels]
        return [replace(kernel, roof=roof) for kernel, roof in zip(kernels, roofs, strict=True)]
    jobs = _jobs(program)
    works = [job for job, _ in jobs]
    if case.between == "stays":
        level, capacity = chip.on_chip
        works = [*resident(*works, capacity=capacity, level=level)]
    return [
        Kernel(job, replace(chip.roofline(job.dtype, reached=reached), floor=least), launches)
        for job, (_, launches) in zip(works, jobs, strict=True)
    ]


def _seconds(kernels: Sequence[Kernel]) -> float:
    return sum(kernel.roof_seconds or 0.0 for kernel in kernels)


def _busiest(kernels: Sequence[Kernel]) -> str | None:
    """Return the bound that most of the time goes to."""
    share: dict[str, float] = {}
    for kernel in kernels:
        if kernel.bound is not None:
            share[kernel.bound] = share.get(kernel.bound, 0.0) + (kernel.roof_seconds or 0.0)
    return max(share, key=lambda bound: share[bound], default=None)
