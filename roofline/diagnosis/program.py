"""A compiled program: its kernels with their counts, what they consist of, and its dataflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from roofline import xla
from roofline.diagnosis.flow import Flow
from roofline.xla.hlo import Computation, Instruction, Site
from roofline.xla.pallas import PallasKernel

CONTAINERS = frozenset({"while", "conditional", "call", "async"})
"""Opcodes of instructions that only contain kernels."""


@dataclass(frozen=True)
class Program:
    """One compiled program.

    Parameters
    ----------
    source : str or Module
        Its HLO text, or what `xla.parse` read from it.
    platform : {"tpu", "gpu", "cpu"}
        Its target.
    wrapped : mapping of str to str
        Of instructions that only the profiler names, the asynchronous one that runs them.
    calls : tuple of PallasKernel
        Its Pallas kernels, as they were traced.
    turns : mapping of str to int
        Trip counts of loops whose count it doesn't state, as in `xla.kernels`.
    written : str
        Its HLO as JAX wrote it; empty if that isn't known.
    """

    source: str | xla.Module
    platform: str
    wrapped: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[PallasKernel, ...] = ()
    turns: Mapping[str, int] = field(default_factory=dict)
    written: str = ""

    @cached_property
    def flow(self) -> Flow:
        """The values of it by the kernels that compute them."""
        return Flow(self.module)

    @cached_property
    def intent(self) -> Flow | None:
        """The values of the program as JAX wrote it, where each instruction is a kernel."""
        return Flow(xla.parse(self.written)) if self.written else None

    @cached_property
    def module(self) -> xla.Module:
        """The program as data."""
        return xla.parse(self.source) if isinstance(self.source, str) else self.source

    @cached_property
    def opcodes(self) -> frozenset[str]:
        """The opcodes of all its instructions."""
        every = self.module.computations.values()
        return frozenset(i.opcode for where in every for i in where.instructions)

    @cached_property
    def ledger(self) -> xla.Ledger:
        """Its kernels, with notes on anything that could not be counted."""
        return xla.kernels(self.module, self.platform, calls=self.calls, turns=self.turns)

    @cached_property
    def rows(self) -> dict[str, xla.Row]:
        """Its kernels by name; one that is called from several places has all its launches."""
        rows: dict[str, xla.Row] = {}
        for row in self.ledger.rows:
            before = rows[row.name].launches if row.name in rows else 0
            rows[row.name] = replace(row, launches=before + row.launches)
        return rows

    @cached_property
    def sites(self) -> dict[str, Site]:
        """Every instruction that is listed, by name: of the entry, of loops and of calls."""
        return {
            instruction.name: Site(self.module, where, instruction)
            for where in self.listed
            for instruction in where.instructions
        }

    @cached_property
    def listed(self) -> list[Computation]:
        """The computations whose instructions are kernels: the entry, loops, calls, branches."""
        return self._within([self.module.entry])

    def _within(self, first: list[Computation]) -> list[Computation]:
        """Return some computations, and those that their loops, calls and branches run."""
        found: dict[str, Computation] = {}
        while first:
            where = first.pop()
            if where.name not in found:
                found[where.name] = where
                first += self._inside(*where.instructions)
        return list(found.values())

    def _inside(self, *instructions: Instruction) -> list[Computation]:
        containers = (instruction for instruction in instructions if instruction.base in CONTAINERS)
        return [
            inner for container in containers for inner in self.module.called(container, *_CALLING)
        ]

    def is_container(self, name: str) -> bool:
        """Return whether an instruction contains kernels."""
        site = self.sites.get(name)
        return site is not None and site.instruction.base in CONTAINERS

    def inside(self, name: str) -> list[xla.Row]:
        """Return the kernels inside a loop, call or branch, at any depth."""
        within = self._within(self._inside(self.sites[name].instruction))
        names = dict.fromkeys(
            instruction.name for where in within for instruction in where.instructions
        )
        return [self.rows[name] for name in names if name in self.rows]

    def instructions(self, name: str) -> Iterator[Site]:
        """Yield every instruction that a kernel consists of."""
        if name in self.sites:
            yield from self.sites[name].parts()


_CALLING = (
    "body",
    "condition",
    "calls",
    "to_apply",
    "branch_computations",
    "true_computation",
    "false_computation",
)
