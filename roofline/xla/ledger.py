"""The kernels of a program, in the order in which they run, each with its FLOPs and bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roofline.xla import hlo
from roofline.xla.collectives import (
    Axes,
    CollectiveOp,
    axis_of,
    chain_part,
    collective_of,
    rendezvous,
    trace_key,
    windowed_products,
)
from roofline.xla.flops import (
    PALLAS,
    Flops,
    counted_as,
    declared,
    flops_of,
    matmul_sides,
    matrix_types,
)
from roofline.xla.forms import Form, form_of
from roofline.xla.hlo import Computation, Instruction, Module, Site, parse
from roofline.xla.loops import (
    MOST_TURNS,
    carried,
    chosen_in,
    in_each_turn,
    number_of,
    same_in_all,
    turns_of_loop,
    values_of,
)
from roofline.xla.metadata import SourceLine, scope_of, source_of
from roofline.xla.pallas import PallasKernel
from roofline.xla.roles import role_of
from roofline.xla.traffic import HOST, Traffic, cycles_of, host_transfer, pallas_traffic, traffic_of
from roofline_helpers.common.checks import BadValue
from roofline_helpers.common.show import Fields, si
from roofline_helpers.roofline import NETWORK


@dataclass(frozen=True, repr=False)
class Row(Fields):
    """One kernel: the work of one launch, and the number of launches.

    `role` describes it in its author's terms, `source` is its line of code, `op_name` JAX's name.
    `flops` are by unit: `matrix`, `vector` (of which `transcendentals`), `declared` by a custom
    call; `unknown` names what declares none. `read` and `written` are bytes by memory level;
    `most_bytes` the most if data choose blocks, `at_least` why there is no upper end. Where data
    choose branches, `launches` are those of the cheapest ones, `dearest` those of the dearest.
    `matmul` has m, n and k; `form` the class and the sizes that a GPU's laws go by. `overlaps`
    marks an asynchronous copy or exchange, `behind` counts the rows between its start and its wait,
    and `loop` is the innermost loop of unknown trip count.

    Examples
    --------
    >>> row = Row("copy", "copy", read={"hbm": 4096}, written={"hbm": 4096})
    >>> row.bytes, row.launches
    (8192, 1)
    """

    name: str = ""
    opcode: str = ""
    role: str = ""
    source: SourceLine | None = None
    op_name: str = ""
    operations: Mapping[str, int] = field(default_factory=dict)
    flops: Flops = field(default_factory=Flops)
    read: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, int] = field(default_factory=dict)
    launches: int = 1
    dearest: int | None = None
    cycles: int | None = None
    padding: int = 0
    matrix_types: tuple[str, ...] = ()
    overlaps: bool = False
    collective: CollectiveOp | None = None
    loop: str = ""
    behind: int = 0
    most_bytes: int | None = None
    at_least: str = ""
    matmul: tuple[int, ...] = ()
    form: Form | None = None
    alike: int = 1

    @property
    def scope(self) -> str:
        """Its named scopes, joined with dots – "mlp.up"."""
        return scope_of(self.op_name).name

    @property
    def step(self) -> str:
        """Its pass – "forward", "backward" or "recomputed"."""
        return scope_of(self.op_name).step

    @property
    def bytes(self) -> int:
        """Bytes read from and written to the main memory by one launch."""
        return self.read_bytes + self.written_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes read from the main memory by one launch."""
        return self.read.get("hbm", 0)

    @property
    def written_bytes(self) -> int:
        """Bytes written to the main memory by one launch."""
        return self.written.get("hbm", 0)

    @property
    def is_scalar(self) -> bool:
        """Whether it only computes single numbers."""
        return not (self.read or self.written or self.collective)

    @property
    def host_bytes(self) -> int:
        """Bytes to and from the host in one launch – over its link, whose rate isn't known."""
        return self.read.get(HOST, 0) + self.written.get(HOST, 0)

    @property
    def untimed(self) -> str:
        """Why its counts don't say how long it takes; empty if they do."""
        if self.host_bytes and not self.overlaps:
            return f"{si(self.host_bytes, 'B')} cross the link to the host, whose rate isn't known"
        return self.at_least

    @property
    def at_most(self) -> Row:
        """The same row with `most_bytes`, counted as reads; itself if its bytes are known."""
        if self.most_bytes is None:
            return self
        read = {**self.read, "hbm": self.most_bytes - self.written_bytes}
        return replace(self, read=read, most_bytes=None)

    @property
    def at_dearest(self) -> Row:
        """The same row with the launches that it has if data choose the dearest branches."""
        return self if self.dearest is None else self.running(self.dearest)

    def running(self, launches: int, dearest: int | None = None) -> Row:
        """Return the same row with other launches."""
        exchange = self.collective and replace(self.collective, launches=launches)
        dearest = None if dearest == launches else dearest
        return replace(self, launches=launches, dearest=dearest, collective=exchange)

    @property
    def matrix_flops(self) -> float:
        """FLOPs of matmuls, and those that a custom call declares without a unit."""
        return self.flops.matrix + self.flops.declared

    @property
    def vector_flops(self) -> float:
        """FLOPs of everything else, transcendentals included."""
        return self.flops.vector

    @property
    def traffic(self) -> dict[str, float]:
        """Bytes read and written, by memory level, and bytes sent to other devices."""
        levels = dict.fromkeys(["hbm", *self.read, *self.written])
        moved: dict[str, float] = {
            level: self.read.get(level, 0) + self.written.get(level, 0) for level in levels
        }
        if self.collective is not None:
            moved[NETWORK] = self.collective.link_bytes
        return moved


@dataclass(frozen=True, repr=False)
class Ledger(Fields):
    """The kernels of a program in order, with notes on anything that could not be counted.

    Examples
    --------
    >>> Ledger((Row("y", "tanh"),), ()).rows[0].opcode
    'tanh'
    """

    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def kernels(
    module: Module | str,
    platform: str = "tpu",
    *,
    turns: Mapping[str, int] | None = None,
    calls: Sequence[PallasKernel] = (),
) -> Ledger:
    """Return the kernels of a compiled program, each with its FLOPs and bytes.

    The result's `rows` are the kernels in order, each a `Row`; its `notes` name anything that could
    not be counted.

    Parameters
    ----------
    module : Module or str
        A program, or its HLO text.
    platform : {"tpu", "gpu", "cpu"}
        Its platform, which gives memory spaces their meaning.
    turns : mapping of str to int, optional
        Trip counts that the program doesn't state, by the loop's name or line ("model.py:30").
    calls : sequence of PallasKernel, optional
        Its Pallas kernels as traced; by default their declared costs count.

    Raises
    ------
    BadType, BadValue
        An option of another type, or outside what is allowed.
    UnreadableProgram
        Not HLO text.

    Examples
    --------
    >>> ledger = kernels('''HloModule tiny
    ... ENTRY %main (x: f32[1024]) -> f32[1024] {
    ...   %x = f32[1024]{0} parameter(0)
    ...   ROOT %y = f32[1024]{0} tanh(%x)
    ... }''')
    >>> [(row.name, row.flops.vector, row.bytes) for row in ledger.rows]
    [('y', 1024, 8192)]
    """
    if platform not in hlo.SPACES:
        raise BadValue(f"platform must be one of {', '.join(hlo.SPACES)}, got {platform!r}")
    program = parse(module) if isinstance(module, str) else module
    stated = dict(turns or {})
    walk = _Walk(program, hlo.SPACES[platform], stated, windowed_products(program), calls)
    # JAX's names of the arguments: "params['up']"
    names = [p.op_name.replace("\\'", "'") or None for p in program.entry.parameters]
    walk.enter(program.entry, 1, names)
    if not walk.rows:
        walk.single_numbers(program.entry, 1)
    unused = sorted(stated.keys() - walk.used)
    if unused:
        loops = ", ".join(walk.untold) or "none"
        raise BadValue(
            f"turns= names {', '.join(map(repr, unused))}, which is no loop of unknown trip count. "
            f"Such loops: {loops}"
        )
    notes = [*walk.notes, *(_undeclared(kind, names) for kind, names in walk.undeclared.items())]
    return Ledger(tuple(walk.rows), tuple(dict.fromkeys(notes)))


def _taken(
    site: Site, branches: int, values: Mapping[str, Any], turns: int
) -> list[NDArray[np.bool_]] | None:
    """Return for each branch of a conditional the turns in which it runs; None if unknown."""
    index = number_of(values.get(site.instruction.operands[0]))
    if index is None:
        return None
    at = np.broadcast_to(index, (turns,))
    if site.operands[0].dtype == "pred":  # the first branch is that of a true condition
        at = np.where(at, 0, 1)
    at = np.where((at >= 0) & (at < branches), at, branches - 1)
    return [at == number for number in range(branches)]


def _undeclared(kind: str, names: Sequence[str]) -> str:
    """Return the note on kernels with unknown FLOPs."""
    if len(names) == 1:
        return f"{names[0]}: its FLOPs are unknown ({kind} declares none)"
    return f"{len(names)} calls of {kind}: their FLOPs are unknown (it declares none)"


def with_axes(row: Row, axes: Axes) -> Row:
    """Return a row whose collective has the name of its mesh axes.

    Examples
    --------
    >>> from roofline.xla.collectives import axes_of_mesh
    >>> gather = CollectiveOp("gather", "all-gather", 1024, 2048, 2, ((0, 1), (2, 3)))
    >>> row = Row("gather", "all-gather", collective=gather)
    >>> with_axes(row, axes_of_mesh({"x": 2, "y": 2})).collective.axis
    'y'
    """
    if row.collective is None or row.collective.groups is None:
        return row
    return replace(row, collective=replace(row.collective, axis=axis_of(row.collective, axes)))


def _cost(rows: Sequence[Row]) -> tuple[float, int]:
    """Return the cost of a branch: bytes of memory and links plus FLOPs / 200; then launches."""
    flops = sum((row.matrix_flops + row.vector_flops) * row.launches for row in rows)
    moved = sum(row.bytes * row.launches for row in rows)
    sent = sum(row.collective.link_bytes * row.launches for row in rows if row.collective)
    endless = any(row.loop or row.at_least for row in rows if row.launches)
    launches = sum(row.launches for row in rows)
    return math.inf if endless else moved + LINK * sent + flops / 200, launches


LINK = 10
"""Bytes of the main memory that cross in the time of one across a link, about."""


@dataclass
class _Walk:
    """A walk over a program, which collects rows and notes."""

    program: Module
    spaces: Mapping[int, str]
    stated: Mapping[str, int]
    windowed: Mapping[str, str]
    calls: Sequence[PallasKernel]
    loop: str = ""
    begun: dict[str, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    products: dict[str, int] = field(default_factory=dict)
    undeclared: dict[str, list[str]] = field(default_factory=dict)

    def enter(
        self, where: Computation, times: int, given: Sequence[Any] = (), turns: int = 1
    ) -> None:
        """Add a row for each kernel of a computation that runs `times` times.

        `given` are known values of its parameters (`loops.values_of`), numbers of counters for each
        of so many `turns` of the loops around.
        """
        values = values_of(self.program, where, given)
        starts: dict[str, int] = {}  # the row that started each unfinished instruction
        for instruction in where.instructions:
            site = Site(self.program, where, instruction)
            if instruction.opcode in hlo.FREE:
                continue
            started = starts.get(instruction.operands[0]) if instruction.operands else None
            if instruction.opcode.endswith("-update") and started is not None:
                starts[instruction.name] = started
            elif instruction.opcode.endswith("-done"):
                self._ends(started)
            if instruction.opcode.endswith(("-done", "-update")):
                continue
            if instruction.opcode == "while":
                self._loop(instruction, times, values, turns)
            elif instruction.opcode == "conditional":
                self._branches(site, times, values, turns)
            elif instruction.base in ("call", "async"):
                first = len(self.rows)
                passed = [values.get(name) for name in instruction.operands]
                for called in self.program.called(instruction, "calls", "to_apply"):
                    self.enter(called, times, passed, turns)
                if instruction.opcode == "async-start":
                    starts[instruction.name] = first
                    self.rows[first:] = [replace(row, overlaps=True) for row in self.rows[first:]]
            elif instruction.base == "custom-call" and instruction.target in hlo.FREE_CALLS:
                continue
            elif self._is_refill(site):
                self.notes.append(
                    f"{instruction.name} fetches a value into fast memory for the next run of the "
                    "program, which then finds it there: counted once, not twice"
                )
            elif not _is_scalar(site) or host_transfer(site) or collective_of(site, 1):
                self._add(site, times, _arguments(site, values), starts)

    def _add(self, site: Site, times: int, read: tuple[str, ...], starts: dict[str, int]) -> None:
        """Add the row of a kernel, which may start an exchange, carry it on or wait for it."""
        instruction, part = site.instruction, chain_part(site)
        row = self._row(site, times, read, part)
        exchange = row.collective
        if part == "between" and (exchange is None or exchange.channel not in self.begun):
            part = None  # a whole exchange of its own
        if part == "start":
            row = replace(row, overlaps=True)
            self.begun[exchange.channel if exchange is not None else ""] = len(self.rows)
        elif part is not None:
            row = replace(row, collective=None)
        if part == "done" and exchange is not None:
            self._ends(self.begun.pop(exchange.channel, None))
            if not row.flops.matrix:
                return
        if exchange is not None and exchange.kind == "collective-permute":
            origin = trace_key(instruction)
            windowed = self.windowed.get(origin, "")
            # frame numbers depend on the caller of the program, so products are renumbered
            number = self.products.setdefault(origin, len(self.products) + 1)
            step_of = f"{instruction.op_name} ({number})"
            row = replace(row, collective=replace(exchange, windowed=windowed, step_of=step_of))
        met = rendezvous(instruction)
        if met is not None:  # a send's exchange ends with its recv
            row = replace(row, overlaps=True)
            for other in site.where.instructions if instruction.opcode == "send" else ():
                if other.opcode == "recv" and rendezvous(other) == met:
                    starts[other.name] = len(self.rows)
        elif row.overlaps:
            starts[instruction.name] = len(self.rows)
        self.rows.append(row)

    def _ends(self, start: int | None) -> None:
        """Set `behind` of the row that started an asynchronous pair."""
        if start is not None and start < len(self.rows):
            self.rows[start] = replace(self.rows[start], behind=len(self.rows) - 1 - start)

    def _is_refill(self, site: Site) -> bool:
        """Return whether a copy's result is never used: XLA refills VMEM before the end."""
        copy, where = site.instruction, site.where
        if copy.opcode not in ("copy-start", "slice-start") or where is not self.program.entry:
            return False
        return not copy.is_root and all(
            done.opcode.endswith("-done") and not done.is_root and done.name not in where.users
            for done in where.users.get(copy.name, [])
        )

    def _loop(self, loop: Instruction, times: int, values: Mapping[str, Any], turns: int) -> None:
        start, before = values.get(loop.operands[0]), self.loop
        trips = turns_of_loop(self.program, loop, start)
        if trips is None:
            trips, self.loop = self._stated_trips(loop)
        elif trips != 1:
            self.notes.append(f"loop {loop.name}: its body counts {trips} times")
        (condition,), (body,) = (self.program.called(loop, part) for part in ("condition", "body"))
        rows = len(self.rows)
        state = same_in_all(carried(self.program, loop, start))
        self.enter(condition, times * (trips + 1), [state])
        inside = turns * trips if self.loop == before else 0
        if 0 < inside <= MOST_TURNS:
            state = in_each_turn(self.program, loop, start, trips, turns)
        self.enter(body, times * trips, [state], inside if 0 < inside <= MOST_TURNS else 1)
        if len(self.rows) == rows:
            self.single_numbers(body, times * trips)
        self.loop = before

    def single_numbers(self, where: Computation, times: int) -> None:
        """Add one row for a computation that has no kernels: the work on single numbers in it.

        Beside kernels it costs next to nothing. Its name is that of the dearest operation.
        """
        sites = [Site(self.program, where, each) for each in where.instructions]
        work = [
            (site, flops_of(site)) for site in sites if site.instruction.base not in _CONTAINERS
        ]
        work = [(site, flops) for site, flops in work if flops.vector or flops.unknown]
        if work:
            dearest = max(work, key=lambda pair: (pair[1].transcendentals, pair[1].vector))[0]
            flops = sum((flops for _, flops in work), Flops())
            self.rows.append(replace(self._row(dearest, times, ()), flops=flops))

    def _stated_trips(self, loop: Instruction) -> tuple[int, str]:
        """Return the trip count that the reader stated for a loop; else 1 and the loop's name."""
        line = source_of(loop.metadata, self.program.frames)
        called = f"{loop.name} ({line})" if line is not None else loop.name
        self.untold.append(called)
        for key, trips in self.stated.items():
            if key == loop.name or (line is not None and str(line).endswith(key)):
                self.used.add(key)
                self.notes.append(f"loop {called}: its body counts {trips} times, as stated")
                return trips, self.loop
        self.notes.append(
            f"loop {called}: its trip count is unknown; counted once. State it with "
            f"turns={{{loop.name!r}: n}}"
        )
        return 1, loop.name

    def _branches(self, site: Site, times: int, values: Mapping[str, Any], turns: int) -> None:
        """Add the rows of a conditional: of each branch as often as its condition says.

        If that is unknown, the cheapest and the dearest branch are the ends of a range.
        """
        conditional, attributes = site.instruction, ("true_computation", "false_computation")
        branches = self.program.called(conditional, "branch_computations", *attributes)
        given = [values.get(name) for name in conditional.operands[1:]]
        taken = _taken(site, len(branches), values, turns)
        line = source_of(conditional.metadata, self.program.frames)
        called = f"conditional {conditional.name}{f' ({line})' if line is not None else ''}"
        if taken is not None:
            counts = [int(chosen.sum()) for chosen in taken]
            for branch, value, chosen, count in zip(branches, given, taken, counts, strict=True):
                if count:
                    inside = [chosen_in(value, chosen)]
                    self.enter(branch, times * count // turns, inside, count)
            if max(counts) < turns:
                often = ", ".join(f"{times * count // turns}" for count in counts)
                self.notes.append(f"{called}: its branches count {often} times, by its condition")
            return
        before, courses = self.rows, []
        for branch, value in zip(branches, given, strict=True):
            self.rows = []
            self.enter(branch, times, [value], turns)
            courses.append(self.rows)
        self.rows = before
        dearest = [[row.at_dearest for row in rows] for rows in courses]
        ends = (
            min(range(len(courses)), key=lambda number: _cost(courses[number])),
            max(range(len(courses)), key=lambda number: _cost(dearest[number])),
        )
        for number, rows in enumerate(courses):
            for row, most in zip(rows, dearest[number], strict=True):
                least = row.launches if number == ends[0] else 0
                self.rows.append(row.running(least, most.launches if number == ends[1] else 0))
        if _cost(dearest[ends[1]]) > _cost(courses[ends[0]]):
            cheap, dear = (branches[end].name for end in ends)
            self.notes.append(
                f"{called}: data choose one of {len(branches)} branches: counts are at least those "
                f"of the cheapest, {cheap}, and at most those of the dearest, {dear}"
            )

    def _row(self, site: Site, times: int, read: tuple[str, ...], part: str | None = None) -> Row:
        instruction = site.instruction
        flops = flops_of(site)
        moved = traffic_of(site, self.spaces, part)
        cost = declared(instruction)
        pallas = counted_as(site, self.calls)
        if pallas is not None:
            flops = Flops(pallas.matrix_flops, pallas.vector_flops, pallas.transcendentals)
            doubtful = pallas.at_least or (pallas.most_flops or 0) > 1.01 * pallas.flops
            flops = replace(flops, unknown=pallas.unsure if doubtful else ())
            moved = pallas_traffic(site, self.spaces, pallas)
        role, source, op_name = role_of(site, self.spaces, read)
        row = Row(
            name=instruction.name,
            opcode=instruction.base,
            role=role,
            source=source,
            op_name=op_name,
            operations=_operations(site),
            flops=flops,
            read=moved.read,
            written=moved.written,
            launches=times,
            cycles=cycles_of(instruction),
            padding=round(moved.padding),
            matrix_types=pallas.types if pallas is not None else matrix_types(site),
            overlaps=instruction.opcode.endswith("-start"),
            collective=collective_of(site, times),
            loop=self.loop,
            most_bytes=_most(instruction, moved, cost, pallas),
            at_least=pallas.at_least if pallas is not None else "",
            matmul=matmul_sides(site),
            form=form_of(site) if self.spaces is hlo.SPACES["gpu"] else None,
        )
        self.notes += _remarks(row, moved, cost, pallas)
        for kind in row.flops.unknown if pallas is None or not pallas.doubtful else ():
            self.undeclared.setdefault(kind, []).append(row.name)
        return row


def _remarks(
    row: Row, moved: Traffic, cost: Mapping[str, float], pallas: PallasKernel | None
) -> Iterator[str]:
    """Yield notes on what is unknown of a row, and on a declared cost that differs."""
    if pallas is not None and pallas.doubtful:
        least = f"at least {pallas.flops:,.0f} FLOP and {pallas.bytes:,.0f} bytes"
        if pallas.at_least:
            yield (
                f"{row.name}: {pallas.at_least}: {least}, and nothing in the program says how much "
                "more; time it with data like yours"
            )
        else:
            yield (
                f"{row.name}: data choose its branches: {least}, at most {pallas.most_flops:,.0f} "
                f"FLOP and {pallas.most or pallas.bytes:,.0f} bytes"
            )
        return
    stated = int(cost.get("bytes_accessed", moved.bytes))
    if row.most_bytes is not None:
        whose = "as its author declares" if row.most_bytes == stated else "if each step does"
        yield (
            f"{row.name}: data choose its blocks, so its bytes are between {moved.bytes:,} "
            f"(at least, which counts) and {row.most_bytes:,} ({whose})"
        )
    elif abs(stated - moved.bytes) > 0.01 * moved.bytes:
        yield (
            f"{row.name}: its author declares {stated:,} bytes, it moves {moved.bytes:,}; the "
            "latter count"
        )
    if pallas is None:
        return
    if pallas.machine != "tpu" and pallas.asked > 1.1 * pallas.bytes:
        yield (
            f"{row.name}: its programs ask the caches for {pallas.asked:,.0f} bytes; the main "
            f"memory moves at least {pallas.bytes:,.0f} of them, which count"
        )
    products, claimed = row.flops.matrix, float(cost.get("flops", row.flops.matrix))
    if abs(claimed - products) > 0.1 * products:
        yield (
            f"{row.name}: its author declares {claimed:.4g} FLOP, its matmuls have "
            f"{products:.4g} and all else {row.flops.vector:.4g}; the latter count"
        )


def _most(
    instruction: Instruction, moved: Traffic, cost: Mapping[str, float], pallas: PallasKernel | None
) -> int | None:
    """Return the most bytes of a Pallas kernel; None if its bytes are known."""
    if instruction.target not in PALLAS:
        return None
    most = pallas.most if pallas is not None else cost.get("bytes_accessed")
    if most is None or math.isinf(float(most)):
        return None
    return int(most) if int(most) > 1.01 * moved.bytes else None


def _arguments(site: Site, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the program's arguments among the operands of a kernel."""
    names: list[str] = []
    for operand, shape in zip(site.instruction.operands, site.operands, strict=True):
        if not shape.is_scalar:
            names += _names(values.get(operand))
    return tuple(dict.fromkeys(names))


def _names(value: Any) -> list[str]:
    if isinstance(value, list):
        return [name for part in value for name in _names(part)]
    return [value] if isinstance(value, str) else []


def _is_scalar(site: Site) -> bool:
    shapes = [site.instruction.shape, *site.operands]
    return all(s.is_scalar for s in shapes) and "custom-call" not in site.instruction.opcode


_CONTAINERS = frozenset({"while", "conditional", "call", "async"})
_UNLISTED = frozenset({"parameter", "constant", "bitcast", "tuple", "get-tuple-element"})


def _operations(site: Site) -> dict[str, int]:
    """Return the number of operations inside a kernel by opcode."""
    opcodes = (part.instruction.base for part in site.parts())
    return dict(Counter(opcode for opcode in opcodes if opcode not in _UNLISTED))
