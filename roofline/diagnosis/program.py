"""A compiled program as a graph: which kernel writes an array, and which kernels read it.

`xla.ledger` counts each kernel by itself, and many causes of lost time lie between kernels. So
values are followed here through instructions that cost nothing (tuples, bitcasts) to the kernels
at both ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from roofline import xla
from roofline.xla.hlo import FREE, Computation, Instruction, Site
from roofline.xla.pallas import PallasKernel

CONTAINERS = frozenset({"while", "conditional", "call", "async"})
"""Opcodes of instructions that only contain kernels."""

_CALLS = frozenset({"call", "async"})
_VIEWS = frozenset({"bitcast", "get-tuple-element", "opt-barrier", "optimization-barrier"})


@dataclass(frozen=True)
class Value:
    """An array where a kernel finds it.

    `kind` is "kernel" (another wrote it), "argument" (of the program), "carry" (of the loop that it
    is in) or "constant"; `name` the instruction; `index` which argument or element of the carry;
    `shape` its shape.
    """

    kind: str
    name: str
    shape: xla.Shape
    index: int = -1


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
    """

    source: str | xla.Module
    platform: str
    wrapped: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[PallasKernel, ...] = ()
    turns: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def module(self) -> xla.Module:
        """The program as data."""
        return xla.parse(self.source) if isinstance(self.source, str) else self.source

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

    @cached_property
    def loops(self) -> dict[str, Site]:
        """The loop that runs a computation, by the computation's name."""
        return {
            body.name: site
            for site in self.sites.values()
            if site.instruction.opcode == "while"
            for body in self.module.called(site.instruction, "body")
        }

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

    def in_loop(self, name: str) -> bool:
        """Return whether a kernel is in a loop's body."""
        site = self.sites.get(name)
        return site is not None and site.where.name in self.loops

    def instructions(self, name: str) -> Iterator[Site]:
        """Yield every instruction that a kernel consists of."""
        if name in self.sites:
            yield from self.sites[name].parts()

    def around(self, kernel: str, where: Computation) -> list[tuple[str, Computation]]:
        """Return the fusions around a computation in a kernel, and where each is, outer first."""
        site = self.sites[kernel]
        found: list[tuple[str, Computation]] = []
        while where is not site.where:
            inner = where is not site.fused and where.name in self._fusions
            name, where = self._fusions[where.name] if inner else (kernel, site.where)
            found.insert(0, (name, where))
        return found

    @cached_property
    def _fusions(self) -> dict[str, tuple[str, Computation]]:
        """The fusion that runs a computation, by the computation's name."""
        return {
            inner.name: (fusion.name, where)
            for where in self.module.computations.values()
            for fusion in where.instructions
            if fusion.opcode == "fusion"
            for inner in self.module.called(fusion, "calls")
        }

    # -- producers and readers --------------------------------------------------------------------

    def reads(self, name: str) -> list[Value]:
        """Return the arrays that a kernel reads, in the order of its operands."""
        site = self.sites[name]
        return [self.value(site.where, operand) for operand in site.instruction.operands]

    def arguments(self, name: str) -> list[Value]:
        """Return the program's arguments that a kernel reads."""
        return [value for value in self.reads(name) if value.kind == "argument"]

    def enters(self, loop: Site) -> list[Value]:
        """Return the elements of a loop's initial carry."""
        carry = loop.where.by_name[loop.instruction.operands[0]]
        return [self.value(loop.where, name) for name in carry.operands]

    @cached_property
    def _callers(self) -> dict[str, Site]:
        """The one call of a computation, by the computation's name."""
        calls = [site for site in self.sites.values() if site.instruction.base in _CALLS]
        called = [(self._called(site.instruction).name, site) for site in calls]
        times = Counter(name for name, _ in called)
        return {name: site for name, site in called if times[name] == 1}

    def _called(self, call: Instruction) -> Computation:
        return self.module.called(call, "calls", "to_apply")[0]

    def value(self, where: Computation, name: str) -> Value:
        """Return what an operand of a kernel is: another kernel's result, an argument, a carry."""
        source = where.by_name[name]
        shape = source.shape
        element: int | None = None
        while True:
            if source.opcode == "parameter" and where.name in self._callers:
                call = self._callers[where.name]
                where, number = call.where, int(source.literal or 0)
                source = where.by_name[call.instruction.operands[number]]
                continue
            if source.base in _CALLS and not source.opcode.endswith("-done"):
                where = self._called(source)
                source = where.root
                continue
            if source.opcode not in _VIEWS and not source.opcode.endswith(("-done", "tuple")):
                break
            if source.opcode == "tuple":
                if element is None:
                    break
                source, element = where.by_name[source.operands[element]], None
                continue
            if source.opcode == "get-tuple-element":
                element = source.numbers("index")[0]
            source = where.by_name[source.operands[0]]
        if source.opcode == "parameter":
            kind = "argument" if where is self.module.entry else "carry"
            number = int(source.literal or 0)
            return Value(kind, source.name, shape, number if element is None else element)
        if source.opcode in ("constant", "iota"):
            return Value("constant", source.name, shape)
        return Value("kernel", source.name, shape, -1 if element is None else element)

    @cached_property
    def readers(self) -> dict[str, list[str]]:
        """The kernels that read each kernel's results."""
        readers: dict[str, list[str]] = {}
        for name, site in self.sites.items():
            if site.instruction.opcode in FREE or name not in self.rows:
                continue
            for value in self.reads(name):
                if value.kind == "kernel" and name not in readers.setdefault(value.name, []):
                    readers[value.name].append(name)
        return readers

    def returned(self, name: str) -> bool:
        """Return whether a kernel's result leaves its computation, as a result or a carry."""
        where = self.sites[name].where
        return any(self.value(where, result).name == name for result in where.results)


_CALLING = (
    "body",
    "condition",
    "calls",
    "to_apply",
    "branch_computations",
    "true_computation",
    "false_computation",
)
