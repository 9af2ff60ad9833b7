"""The dataflow of one program by its kernels: what each of them does that results need.

`xla.graph` has a node a value, whatever kernel it is in; here they are put together again. A kernel
is told by its name, and may run at several places of a program, with a node for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from roofline.xla.facts import Known, facts_of, place_in, place_of
from roofline.xla.flops import flops_of
from roofline.xla.graph import CARRY, ELEMENT, Graph, Node
from roofline.xla.hlo import Module
from roofline.xla.needs import Needs, asked, needs_of
from roofline.xla.parts import Part

VIEWS = frozenset({"bitcast", "reshape", ELEMENT, CARRY})
"""Opcodes of nodes that are another's array under another name."""


@dataclass(frozen=True)
class Kept:
    """The shares of a kernel's FLOPs, and of its bytes read and written, that results need."""

    flops: float
    read: float
    written: float

    @property
    def least(self) -> float:
        """The smallest of them."""
        return min(self.flops, self.written)


_ALGORITHMS = frozenset(
    "custom-call sort fft cholesky triangular-solve reduce-window select-and-scatter".split()
)
"""Opcodes of what a library's function leaves to an algorithm of its own, with its own order."""


def _call_of(node: Node) -> str:
    """Return JAX's name of the call that a node is inside of; empty outside of any."""
    parts = node.op_name.split("/")
    calls = [n for n, part in enumerate(parts) if "jit(" in part and part != "jit(main)"]
    return "/".join(parts[: calls[-1] + 1]) if len(calls) > 1 else ""


class Flow:
    """The values of a program by the kernels that compute them.

    Parameters
    ----------
    module : Module
        The program.
    """

    def __init__(self, module: Module) -> None:
        self.graph = Graph(module)
        self.known: Known = facts_of(self.graph)
        self.needs: Needs = needs_of(self.known)
        self._work: dict[int, float] = {}

    @cached_property
    def kernels(self) -> dict[str, list[Node]]:
        """The nodes of each kernel, by its name."""
        found: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            if node.instruction is not None and node.op != "parameter":
                found.setdefault(node.kernel, []).append(node)
        return found

    def line(self, node: Node) -> str:
        """Return a node's line of the reader's code, or the nearest one; empty without any."""
        return str(self.graph.line(node) or "")

    def work(self, node: Node) -> float:
        """Return the FLOPs of a node; a transcendental function counts as ten."""
        if node.instruction is None:
            return 0.0
        if node.number not in self._work:
            flops = flops_of(self.graph.site(node))
            amount = flops.matrix + flops.vector + flops.declared + 9 * flops.transcendentals
            self._work[node.number] = float(amount)
        return self._work[node.number]

    @property
    def products(self) -> Iterable[int]:
        """The numbers of the nodes that multiply and sum: dots, convolutions."""
        return self.known.spaces

    @cached_property
    def _library(self) -> tuple[str, ...]:
        """The calls of functions that leave work to an algorithm: a factorisation, a sort."""
        inside = (node for node in self.graph.nodes if node.op in _ALGORITHMS)
        return tuple({_call_of(node) for node in inside} - {""})

    def in_library(self, node: Node) -> bool:
        """Return whether a node is inside of such a call, which the reader can't change."""
        inside = bool(self._library) and _call_of(node).startswith(self._library)
        return inside or not self.inner_loops.isdisjoint(node.loops)

    @cached_property
    def inner_loops(self) -> set[str]:
        """The loops inside of one expression of the reader's: a library wrote them, or a compiler.

        All that they do is at the place in the code where they are, or they have the name of an
        operation.
        """
        found = set[str]()
        for name, loop in self.graph.loops.items():
            inside = (node for node in self.graph.nodes if name in node.loops and node.instruction)
            places = {place_of(node) for node in inside} - {""}
            frame = place_in(loop.instruction)
            named = loop.instruction.op_name.rpartition("/")[2] not in ("", "while")
            if named or ("stack_frame" in frame and places == {frame}):
                found.add(name)
        return found

    def is_algorithm(self, node: Node) -> bool:
        """Return whether a node is such an algorithm, and no product."""
        return node.op in _ALGORITHMS and node.number not in self.known.spaces

    @cached_property
    def results(self) -> set[int]:
        """The numbers of the nodes that the program returns."""
        return {node.number for node in self.graph.results}

    @cached_property
    def returned(self) -> set[int]:
        """The numbers of the values that the program returns, whatever their names."""
        return {self.source(node).number for node in self.graph.results}

    def made(self, name: str) -> list[Node]:
        """Return the values of a kernel that others read, or the program returns."""
        made = []
        for node in self.kernels.get(name, ()):
            inside = bool(node.users) and all(user.kernel == name for user in node.users)
            leaves = not inside or node.number in self.results
            if leaves and node.op not in ("constant", ELEMENT):
                made.append(node)
        return made

    def taken(self, name: str) -> Iterator[tuple[Node, Node, Part]]:
        """Yield what a kernel reads of other kernels' values: value, reader, and needed part."""
        for node in self.kernels.get(name, ()):
            for operand, part in asked(self.needs, node):
                if operand.kernel != name or operand.op in ("parameter", CARRY):
                    yield operand, node, part

    def readers(self, node: Node) -> list[Node]:
        """Return the nodes of other kernels that read a value, also under another name."""
        found, left, seen = list[Node](), list(node.users), set[int]()
        for user in left:
            if user.number in seen:
                continue
            seen.add(user.number)
            if user.op in VIEWS:
                left += user.users
            elif user.kernel != node.kernel:
                found.append(user)
        return found

    def source(self, node: Node) -> Node:
        """Return the value that a node is another name of."""
        while node.op in VIEWS and node.ops:
            node = node.ops[0]
        return node

    def kept(self, name: str, read: float, useful: Callable[[Node], Part]) -> Kept:
        """Return how much of a kernel's work is `useful`; `read` are the bytes that it reads."""
        nodes, made = self.kernels.get(name, []), self.made(name)
        work = [(self.work(node), useful(node).share) for node in nodes]
        total = sum(amount for amount, _ in work)
        size = sum(node.shape.bytes for node in made)
        written = sum(node.shape.bytes * useful(node).share for node in made)
        places = max(self.graph.places[name], 1)
        reads: dict[int, tuple[Node, Part]] = {}
        for operand, _, part in self.taken(name):
            before = reads.get(operand.number)
            reads[operand.number] = operand, part if before is None else before[1] | part
        taken = sum(operand.shape.bytes * part.share for operand, part in reads.values())
        return Kept(
            sum(amount * share for amount, share in work) / total if total else 1.0,
            min(1.0, taken / (read * places)) if read else 1.0,
            written / size if size else 1.0,
        )

    def whole(self, node: Node) -> Part:
        """Return the needed part of a node's work, whether it is on zeros or not."""
        space = self.known.spaces.get(node.number)
        return self.needs[node] if space is None else space.of_result(self.needs[node], 0)


def counted(share: float) -> str:
    """Return a share as people say it: "1 in 512", "98.4%".

    Examples
    --------
    >>> counted(0.0049), counted(0.29), counted(0.3), counted(0.99), counted(0.991), counted(1.0)
    ('1 in 204', '1 in 3', '30%', '99%', '99.1%', '100%')
    """
    if 0 < share < 0.3:
        return f"1 in {round(1 / share):,}"
    return f"{share:.0%}" if not 0.99 < share < 1 else f"{share:.1%}"


def largest(nodes: list[Node], cost: Callable[[Node], float]) -> Node | None:
    """Return the node with the largest cost, if any costs something."""
    best = max(nodes, key=cost, default=None)
    return best if best is not None and cost(best) > 0 else None
