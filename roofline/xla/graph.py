"""A program's dataflow as one graph: fusions and calls inlined, loops closed, branches joined.

It is read from optimised HLO of any platform, and from HLO as JAX wrote it. A node is one value: it
knows its kernel, how often it is computed, and the loops and branches around it. What a loop
carries is one node with two sources, the value before the loop and that of the turn before.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from roofline.xla.flops import results
from roofline.xla.hlo import FREE_CALLS, Computation, Instruction, Module, Shape, Site
from roofline.xla.loops import carried, turns_of_loop, values_of
from roofline.xla.metadata import SourceLine, source_of

Value: TypeAlias = Any
"""A node, or a list of values for a tuple; None for what has no data, such as a token."""

CARRY, BRANCH, ELEMENT = "carry", "branch", "element"
"""Opcodes of nodes without an instruction of their own: what a loop carries, the result of a
choice; and one of several results of an instruction."""

_PASSED = frozenset("optimization-barrier opt-barrier add-dependency domain async-update".split())


@dataclass(eq=False, repr=False)
class Node:
    """One value in a program.

    Parameters
    ----------
    number : int
        Its place in the graph's order: operands come first, except what a turn hands to the next.
    op : str
        Its opcode, without "-start"; `CARRY`, `BRANCH` or `ELEMENT` of a node that has none.
    shape : Shape
        Its shape.
    instruction : Instruction or None
        The instruction that computes it.
    where : Computation or None
        The computation that the instruction is in.
    kernel : str
        The instruction that is launched for it: a fusion, or itself.
    runs : float
        How often it is computed in one call.
    loops, branches : tuple of str
        The loops around it, outermost first; the choices, each as "conditional/branch".
    copies : float
        Devices that compute it, each on arrays of its own: in the body of a `shard_map`.
    caller : Instruction or None
        Of an instruction in a called function, the call.
    ops, users : list of Node
        The values that it is computed from, and those computed from it.
    """

    number: int
    op: str
    shape: Shape
    instruction: Instruction | None
    where: Computation | None
    kernel: str
    runs: float
    loops: tuple[str, ...]
    branches: tuple[str, ...]
    copies: float = 1.0
    caller: Instruction | None = None
    ops: list[Node] = field(default_factory=list)
    users: list[Node] = field(default_factory=list)

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Its dimensions; those of the first array of several."""
        return self.shape.leaves[0].dims if self.shape.leaves else ()

    @cached_property
    def size(self) -> int:
        """Its elements; those of the first array of several."""
        return self.shape.leaves[0].elements if self.shape.leaves else 0

    @property
    def dtype(self) -> str:
        """Its data type; that of the first array of several."""
        return self.shape.leaves[0].dtype if self.shape.leaves else ""

    @property
    def op_name(self) -> str:
        """JAX's name of the operation, with that of the call around it."""
        own = self.instruction.op_name if self.instruction is not None else ""
        if self.caller is None or own.startswith("jit("):
            return own
        return f"{self.caller.op_name}/{own}".strip("/")

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """Return an attribute of its instruction as numbers; none if it has none."""
        return self.instruction.numbers(attribute) if self.instruction is not None else ()

    def attribute(self, name: str) -> str:
        """Return an attribute of its instruction as text; empty if it has none."""
        return self.instruction.attributes.get(name, "") if self.instruction is not None else ""

    def __repr__(self) -> str:
        name = self.instruction.name if self.instruction is not None else self.op
        return f"<{name} {self.shape}>"


@dataclass(frozen=True)
class Loop:
    """A loop: its instruction, the known number of its turns, and the nodes that it carries.

    `turns` is None if nothing says them, and `back` the values that a turn hands to the next.
    """

    name: str
    instruction: Instruction
    turns: int | None
    carry: tuple[Node, ...]
    back: tuple[Node, ...]


class Graph:
    """The dataflow of a module.

    Parameters
    ----------
    module : Module
        The program, optimised or as written.
    turns : mapping of str to int, optional
        Trip counts that the program doesn't state, by the loop's name or line.

    Attributes
    ----------
    nodes : list of Node
        All values, in an order in which they can be computed.
    results : list of Node
        What the program returns.
    loops : dict of str to Loop
        Its loops, by the name that `Node.loops` has.
    conditions : list of Node
        Values that decide how often a loop turns, or which branch runs.
    branches : list of str
        Its branches, as `Node.branches` has them.
    places : Counter of str
        In how many places of the graph each kernel is: one in a called function may be in several.

    Examples
    --------
    >>> from roofline.xla.hlo import parse
    >>> graph = Graph(parse('''HloModule t
    ... ENTRY %m (a: f32[4,8]) -> f32[8,4] {
    ...   %a = f32[4,8] parameter(0)
    ...   ROOT %b = f32[8,4] transpose(%a), dimensions={1,0}
    ... }'''))
    >>> [(node.op, [operand.op for operand in node.ops]) for node in graph.nodes]
    [('parameter', []), ('transpose', ['parameter'])]
    """

    def __init__(self, module: Module, turns: Mapping[str, int] | None = None) -> None:
        self.module = module
        self.turns = dict(turns or {})
        self.nodes: list[Node] = []
        self.loops: dict[str, Loop] = {}
        self.conditions: list[Node] = []
        self.branches: list[str] = []
        self.places: Counter[str] = Counter()
        self.sites: dict[int, Site] = {}
        self._lines: dict[str, SourceLine | None] = {}
        entry = module.entry
        at = _Place()
        given = [self._new(p, entry, at) for p in entry.parameters]
        names = [p.op_name or p.name for p in entry.parameters]
        self.parameters = given
        self.results = flat(self._enter(entry, given, at, names))
        for node in self.nodes:
            for operand in node.ops:
                operand.users.append(node)

    def site(self, node: Node) -> Site:
        """Return the instruction of a node with its computation and its program."""
        assert node.instruction is not None
        assert node.where is not None
        if node.number not in self.sites:
            self.sites[node.number] = Site(self.module, node.where, node.instruction)
        return self.sites[node.number]

    def line(self, node: Node, reach: int = 24) -> SourceLine | None:
        """Return a node's line of the reader's code, or the nearest one in the graph."""
        near, seen = [node], {node.number}
        for each in near:
            for instruction in (each.instruction, each.caller):
                found = self._line(instruction) if instruction is not None else None
                if found is not None:
                    return found
            if len(near) < reach:
                beside = [n for n in (*each.users, *each.ops) if n.number not in seen]
                seen |= {n.number for n in beside}
                near += beside
        return None

    def _line(self, instruction: Instruction) -> SourceLine | None:
        text = instruction.metadata
        if text not in self._lines:
            self._lines[text] = source_of(text, self.module.frames)
        return self._lines[text]

    # -- the walk ---------------------------------------------------------------------------------

    def _new(
        self,
        instruction: Instruction | None,
        where: Computation | None,
        at: _Place,
        ops: Sequence[Value] = (),
        op: str = "",
        shape: Shape | None = None,
    ) -> Node:
        if shape is None:
            assert instruction is not None
            shape = results(instruction)
        node = Node(
            number=len(self.nodes),
            op=op or (instruction.base if instruction is not None else ""),
            shape=shape,
            instruction=instruction,
            where=where,
            kernel=at.kernel or (instruction.name if instruction is not None else ""),
            runs=at.runs,
            loops=at.loops,
            branches=at.branches,
            copies=at.copies,
            caller=at.caller,
            ops=flat(list(ops)),
        )
        self.nodes.append(node)
        return node

    def _enter(
        self, where: Computation, given: Sequence[Value], at: _Place, known: Sequence[Any] = ()
    ) -> Value:
        """Add the nodes of a computation with these parameters; return its result.

        `known` are known values of its parameters (`loops.values_of`), which a fusion doesn't need.
        """
        values = {} if at.kernel else values_of(self.module, where, known)
        env: dict[str, Value] = {
            parameter.name: value for parameter, value in zip(where.parameters, given, strict=False)
        }
        for instruction in where.instructions:
            if instruction.name not in env:
                ops = [env.get(name) for name in instruction.operands]
                facts = [values.get(name) for name in instruction.operands]
                env[instruction.name] = self._value(instruction, where, ops, facts, at)
        return env[where.root.name]

    def _value(
        self,
        instruction: Instruction,
        where: Computation,
        ops: list[Value],
        facts: list[Any],
        at: _Place,
    ) -> Value:
        opcode, base = instruction.opcode, instruction.base
        self.places[instruction.name] += not at.kernel
        called = self.module.called(instruction, "calls", "to_apply")
        if opcode == "tuple":
            return ops
        if opcode == "get-tuple-element":
            index = instruction.numbers("index")[0]
            if isinstance(ops[0], list):
                return ops[0][index] if index < len(ops[0]) else None
            if ops[0] is None:
                return None
            return self._new(instruction, where, at, ops, op=ELEMENT, shape=instruction.shape)
        if base in _PASSED or opcode.endswith("-done"):
            return ops[0]
        if base == "custom-call" and instruction.target in FREE_CALLS and len(ops) == 1:
            kept = isinstance(ops[0], Node) and ops[0].shape.leaves == instruction.shape.leaves
            if kept or instruction.shape.parts is not None:
                return ops[0]
        if base == "fusion":
            inner = at.inside(instruction.name if not at.kernel else at.kernel, instruction)
            return self._enter(called[0], ops, inner)
        if base in ("call", "async"):
            if not called:
                return ops[0]
            inner = at.called(instruction, self._copies(ops))
            return self._enter(called[0], ops, inner, facts)
        if opcode == "while":
            return self._loop(instruction, ops[0], facts[0], at)
        if opcode == "conditional":
            return self._choice(instruction, ops, facts, at)
        return self._new(instruction, where, at, ops)

    def _copies(self, ops: list[Value]) -> float:
        """Return the devices that run a called function, each on its part of whole arrays."""
        for node in flat(ops):
            source = node.ops[0] if node.op == ELEMENT else node
            target = source.instruction.target if source.instruction is not None else ""
            if target in ("xla.sdy.GlobalToLocalShape", "SPMDFullToShardShape"):
                return float(self.module.partitions)
        return 1.0

    def _choice(
        self, instruction: Instruction, ops: list[Value], facts: list[Any], at: _Place
    ) -> Value:
        """Add the branches of a conditional; return the values that join theirs."""
        self.conditions += flat(ops[0])
        names = "branch_computations", "true_computation", "false_computation"
        name = f"{instruction.name}#{len(self.branches)}"
        branches = self.module.called(instruction, *names)
        outcomes = []
        for number, (branch, given, fact) in enumerate(
            zip(branches, ops[1:], facts[1:], strict=True)
        ):
            inner = replace(at, branches=(*at.branches, f"{name}/{number}"))
            self.branches.append(inner.branches[-1])
            outcomes.append(self._enter(branch, [given], inner, [fact]))
        return self._joined(outcomes, instruction, at)

    def _joined(self, outcomes: list[Value], instruction: Instruction, at: _Place) -> Value:
        outcomes = [self._opened(outcome, at) for outcome in outcomes]
        if any(isinstance(outcome, list) for outcome in outcomes):
            columns = zip(*outcomes, strict=True)
            return [self._joined(list(column), instruction, at) for column in columns]
        nodes = flat(outcomes)
        if not nodes:
            return None
        return self._new(None, None, at.inside(instruction.name), nodes, BRANCH, nodes[0].shape)

    def _loop(self, instruction: Instruction, start: Value, facts: Any, at: _Place) -> Value:
        """Add a loop; return the nodes that it carries, which are also its result."""
        stated = None
        with contextlib.suppress(Exception):  # a loop in a form that nobody has seen
            stated = turns_of_loop(self.module, instruction, facts)
        turns = stated if stated is not None else self._told(instruction)
        known: Any = None
        with contextlib.suppress(Exception):
            known = carried(self.module, instruction, facts)
        (body,), (condition,) = (self.module.called(instruction, n) for n in ("body", "condition"))
        name = f"{instruction.name}#{len(self.loops)}"  # one loop may be called from many places
        inner = at.loop(name, 1 if turns is None else turns)
        start = self._opened(start, inner)
        carry = _each(start, lambda node: self._new(None, None, inner, [node], CARRY, node.shape))
        self.loops[name] = Loop(name, instruction, turns, (), ())
        out = self._enter(body, [carry], inner, [known])
        self.conditions += flat(self._enter(condition, [carry], inner, [known]))
        pairs = list(self._pairs(carry, out, inner))
        for node, back in pairs:
            node.ops.append(back)
        carries, backs = zip(*pairs, strict=True) if pairs else ((), ())
        self.loops[name] = Loop(name, instruction, turns, carries, backs)
        return carry

    def _opened(self, value: Value, at: _Place) -> Value:
        """Return the elements of a value that is a node with several results."""
        parts = value.shape.parts if isinstance(value, Node) else None
        if parts is None:
            return value
        return [
            self._new(None, None, at.inside(value.kernel), [value], ELEMENT, shape)
            for shape in parts
        ]

    def _pairs(self, carry: Value, out: Value, at: _Place) -> Iterator[tuple[Node, Node]]:
        """Yield each node that a loop carries with what its body makes of it."""
        if isinstance(carry, list):
            out = self._opened(out, at)
            for before, after in zip(carry, out, strict=True):
                yield from self._pairs(before, after, at)
        elif carry is not None and out is not None:
            yield carry, out

    def _told(self, instruction: Instruction) -> int | None:
        """Return the trip count that the reader stated for a loop."""
        line = self._line(instruction)
        for key, turns in self.turns.items():
            if key == instruction.name or (line is not None and str(line).endswith(key)):
                return turns
        return None


@dataclass(frozen=True)
class _Place:
    """Where the walk is: in which loops, branches and calls, and in which kernel."""

    runs: float = 1.0
    loops: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    caller: Instruction | None = None
    kernel: str = ""
    copies: float = 1.0

    def inside(self, kernel: str, fusion: Instruction | None = None) -> _Place:
        """Return the place inside a kernel."""
        return replace(self, kernel=kernel, caller=fusion or self.caller)

    def called(self, call: Instruction, copies: float) -> _Place:
        """Return the place inside a called function."""
        caller = call if call.metadata else self.caller
        return replace(self, caller=caller, copies=max(self.copies, copies))

    def loop(self, name: str, turns: int) -> _Place:
        """Return the place inside a loop's body."""
        return replace(self, runs=self.runs * turns, loops=(*self.loops, name))


def flat(value: Value) -> list[Node]:
    """Return the nodes in a value."""
    if isinstance(value, list):
        return [node for part in value for node in flat(part)]
    return [] if value is None else [value]


def _each(value: Value, change: Any) -> Value:
    if isinstance(value, list):
        return [_each(part, change) for part in value]
    return None if value is None else change(value)
