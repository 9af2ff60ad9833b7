"""Changes between two programs: kernels, exchanges, tensors, expected and needed time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from roofline.xla.expected import expected_of, floor_of_launch
from roofline.xla.kernel import CompiledKernel, grouped, line_of
from roofline.xla.minimum import needed_seconds
from roofline_helpers.common.show import LONGEST, many, shortened, si

if TYPE_CHECKING:
    from roofline.xla.compiler import MemoryStats
    from roofline.xla.kernel import TimedCollective
    from roofline.xla.report import Report

NOTICED = 0.01
"""Relative difference of a place's bytes or FLOPs from which on it is a change."""


LOST_DONATION = "donation lost"
"""The place of that change, which is listed first, since each call makes a copy."""


@dataclass(frozen=True)
class Change:
    """One difference, in the kernels of a place or in an exchange.

    `kind` is "appeared", "gone", "split", "joined", "unrolled", "rolled", "grew", "shrank",
    "exchange", "memory" or "arguments"; `seconds`, `hbm_bytes` and `flops` are the increase of its
    expected time, its bytes and its FLOPs.

    Examples
    --------
    >>> print(Change("grew", "mlp.up", "model.py:18", "HBM 134 MB → 403 MB"))
    mlp.up (model.py:18): HBM 134 MB → 403 MB
    """

    kind: str
    location: str
    line: str
    text: str
    seconds: float = 0.0
    hbm_bytes: float = 0.0
    flops: float = 0.0

    def __str__(self) -> str:
        where = f" ({self.line})" if self.line else ""
        return f"{self.location}{where}: {self.text}"

    def __repr__(self) -> str:
        return shortened(f"<{self.kind}: {self}>", LONGEST)


@dataclass(frozen=True)
class Changes:
    """The changes from one program to another, the most expensive first.

    Printed are their number and the first of them; `describe` returns all as text.
    `same_compiler` says whether the same version compiled both, since another one changes programs.
    `seconds` are expected of each, and `needed` its result's; `launching` is the cost of additional
    launches as text, which a TPU's time leaves out.

    Examples
    --------
    >>> print(Changes((), (1e-3, 1e-3), ("libtpu 1", "libtpu 1")))
    nothing changed
    """

    changes: tuple[Change, ...]
    seconds: tuple[float | None, float | None]
    compilers: tuple[str, str]
    launching: str = ""
    needed: tuple[float | None, float | None] = (None, None)

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def same_compiler(self) -> bool:
        """Whether the same version compiled both."""
        return self.compilers[0] == self.compilers[1]

    def _headline(self) -> str:
        before, after = self.seconds
        text = many(len(self.changes), "change") if self.changes else "nothing changed"
        if not before or after is None or abs(after - before) <= NOTICED / 10 * before:
            return text + self.launching
        text += f": {si(before, 's')} expected became {si(after, 's')} ({after / before - 1:+.1%})"
        text += self.launching
        least = [si(seconds, "s") for seconds in self.needed if seconds is not None]
        if len(least) < 2:
            return text
        both = least[0] if least[0] == least[1] else f"{least[0]}, then {least[1]}"
        return f"{text}; its result needs {both}"

    def describe(self) -> str:
        """Return all changes as text, one a line."""
        lines = [self._headline(), *(f"  {change}" for change in self.changes)]
        if not self.same_compiler:
            lines.append(f"  compiled by {self.compilers[0]}, then by {self.compilers[1]}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        first = f"\n  {self.changes[0]}" if self.changes else ""
        return shortened(self._headline() + first, LONGEST)


def changes(before: Report, after: Report) -> Changes:
    """Return the changes from one report to another.

    Kernels are compared by place (scope and pass, else the function they come from), since their
    names change with every compilation. The same kernel at another place, because a function was
    renamed or code moved, is no change.
    """
    old, new = grouped(before.kernels, "scope"), grouped(after.kernels, "scope")
    sides = {}
    for name in [*old, *new]:
        sides[name] = _without_exchanges(old.get(name, ())), _without_exchanges(new.get(name, ()))
    _leave_out_moved(list(sides.values()))
    changes = []
    for name, (was, now) in sides.items():
        change = _kernel_change(name, was, now)
        if change is not None:
            changes.append(replace(change, line=line_of(new.get(name) or old[name])))
    changes += _exchange_changes(before.exchanges, after.exchanges)
    changes.sort(key=lambda change: (-abs(change.seconds), -abs(change.hbm_bytes)))
    memory = _memory_changes(before.memory, after.memory)
    changes = [*changes, *_argument_changes(before, after), *memory]
    changes.sort(key=lambda change: change.location != LOST_DONATION)
    made = (f"{before.jax_version}, {before.compiler}", f"{after.jax_version}, {after.compiler}")
    times, least = [], []
    for report in (before, after):
        times.append(None if report.expected is None else report.expected.known)
        least.append(needed_seconds(report.needed, report.chip))
    return Changes(
        tuple(changes),
        (times[0], times[1]),
        made,
        _launching(before.kernels, after.kernels),
        (least[0], least[1]),
    )


def _without_exchanges(kernels: Sequence[CompiledKernel]) -> list[CompiledKernel]:
    """Return the kernels of a place without exchanges."""
    return [kernel for kernel in kernels if kernel.work.collective is None]


def _signature(kernel: CompiledKernel) -> tuple[object, ...]:
    """Return the key of the same kernel in two programs."""
    row = kernel.work
    moved = tuple(sorted(row.traffic.items()))
    return row.role, row.launches, row.flops.matrix, row.flops.vector, moved


def _leave_out_moved(sides: Sequence[tuple[list[CompiledKernel], list[CompiledKernel]]]) -> None:
    """Remove kernels that only moved from one place to another."""

    came = [(k, now) for was, now in sides for k in _surplus(now, was, _signature)]
    gone = [(k, was) for was, now in sides for k in _surplus(was, now, _signature)]
    for kernel, left in gone:
        for other, joined in came:
            if _signature(kernel)[1:] == _signature(other)[1:]:
                left.remove(kernel)
                joined.remove(other)
                came.remove((other, joined))
                break


def _surplus(side: Sequence[Any], other: Sequence[Any], key: Callable[[Any], Any]) -> list[Any]:
    """Return the members of one side without a partner on the other side."""
    matched, extra = Counter(map(key, other)), []
    for member in side:
        if matched[key(member)]:
            matched[key(member)] -= 1
        else:
            extra.append(member)
    return extra


def _kernel_change(
    name: str, was: Sequence[CompiledKernel], now: Sequence[CompiledKernel]
) -> Change | None:
    if Counter(map(_signature, was)) == Counter(map(_signature, now)):
        return None
    flops = [sum(k.matrix_flops + k.vector_flops for k in side) for side in (was, now)]
    moved = [sum(k.hbm_bytes for k in side) for side in (was, now)]
    nearer = [sum(k.traffic.get("vmem", 0) for k in side) for side in (was, now)]
    times = [sum(expected_of(k).known for k in side) for side in (was, now)]
    roofs = [sum(k.roof_seconds or 0.0 for k in side) for side in (was, now)]
    kind = _kind(was, now, (roofs, moved, nearer, flops))
    if kind is None:
        return None
    gone, fresh = Counter(map(_signature, was)), Counter(map(_signature, now))
    parts = [_counts(kind, was, now)]
    if was and now:
        parts += _difference("HBM", moved, "B") + _difference("VMEM", nearer, "B")
        parts += _difference("FLOPs", flops, "FLOP")
    roles = [str(role[0]) for role in (fresh - gone)]
    if roles and kind in ("grew", "split", "appeared"):
        parts.append(f"new: {', '.join(dict.fromkeys(roles))}")
    parts += _difference("expected", times, "s")
    text = "; ".join(part for part in parts if part)
    increases = [after - before for before, after in (times, moved, flops)]
    return Change(kind, name, "", text, *increases)


def _kind(
    was: Sequence[CompiledKernel], now: Sequence[CompiledKernel], pairs: Sequence[Sequence[float]]
) -> str | None:
    """Return the kind of change at a place; None if it is too small to list.

    `pairs` are least seconds, HBM bytes, bytes of nearer memories, and FLOPs, before and after.
    """
    if not was or not now:
        return "appeared" if now else "gone"
    for before, after in pairs:
        if abs(after - before) > NOTICED * max(before, after):
            return "grew" if after > before else "shrank"
    if len(now) == len(was):
        return None
    if sum(k.launches for k in now) == sum(k.launches for k in was):
        return "unrolled" if len(now) > len(was) else "rolled"
    return "split" if len(now) > len(was) else "joined"


def _counts(kind: str, was: Sequence[CompiledKernel], now: Sequence[CompiledKernel]) -> str:
    count = f"{_kernels(was)} → {len(now)}" if len(was) != len(now) else ""
    if kind == "appeared":
        moved = si(sum(k.hbm_bytes for k in now), "B")
        return f"{_kernels(now)} appeared, {moved} of HBM"
    if kind == "gone":
        return f"{_kernels(was)} gone"
    if kind in ("unrolled", "rolled"):
        turns = max(k.launches for k in (was if kind == "unrolled" else now))
        word = "unrolled" if kind == "unrolled" else "now a loop"
        return f"{word}, {turns} iterations: {count}"
    return f"{kind}: {count}{_launching(was, now)}" if count else kind


def _launching(was: Sequence[CompiledKernel], now: Sequence[CompiledKernel]) -> str:
    """Return the least cost of additional launches; "" if there are none, or it is unknown."""
    more = sum(k.launches for k in now) - sum(k.launches for k in was)
    chip = now[0].chip if now else None
    if more <= 0 or chip is None:
        return ""
    return f", {many(more, 'more launch')} of {si(floor_of_launch(chip), 's')} or longer"


def _kernels(side: Sequence[CompiledKernel]) -> str:
    return many(len(side), "kernel")


def _difference(quantity: str, pair: Sequence[float], unit: str) -> list[str]:
    before, after = pair
    if abs(after - before) <= NOTICED * max(before, after):
        return []
    return [f"{quantity} {si(before, unit)} → {si(after, unit)}"]


def _memory_changes(old: MemoryStats | None, new: MemoryStats | None) -> list[Change]:
    """Return the changes in a program's memory, such as lost donations."""
    if old is None or new is None or abs(new.total - old.total) <= NOTICED * old.total:
        return []
    text = f"{si(old.total, 'B')} → {si(new.total, 'B')} at most"
    lost = old.aliased - new.aliased
    if lost > 0:
        text = f"{si(lost, 'B')} is copied each call; memory {text}"
        return [Change("memory", LOST_DONATION, "", text)]
    words = {"code": "the program and its constants", "aliased": "results in donated arguments"}
    for name, before in asdict(old).items():
        after = getattr(new, name)
        if abs(after - before) > NOTICED * old.total:
            text += f"; {words.get(name, name)} {si(before, 'B')} → {si(after, 'B')}"
    return [Change("memory", "memory", "", text)]


def _argument_changes(before: Report, after: Report) -> list[Change]:
    """Return the changes in a program's arguments and target."""
    changes = []
    for name, old, new in (
        ("chip", before.target, after.target),
        ("topology", before.topology, after.topology),
        ("mesh", dict(before.mesh), dict(after.mesh)),
        ("arguments", ", ".join(before.arguments), ", ".join(after.arguments)),
    ):
        if old != new:
            changes.append(Change("arguments", name, "", f"{old or 'none'} → {new or 'none'}"))
    return changes


def _exchange_changes(
    old: Sequence[TimedCollective], new: Sequence[TimedCollective]
) -> list[Change]:
    """Return the exchanges that appeared, and those that are gone."""
    names = ("kind", "axis", "bytes_in", "bytes_out", "launches")
    key = attrgetter(*(f"collective.{name}" for name in names))
    changes = []
    for sign, side, other in ((1, new, old), (-1, old, new)):
        for exchange in _surplus(side, other, key):
            collective = exchange.collective
            axis = f" along {collective.axis}" if collective.axis else ""
            verb = "came in" if sign > 0 else "is gone"
            sizes = f"{si(collective.bytes_in, 'B')} in, {si(collective.bytes_out, 'B')} out"
            text = f"{collective.kind}{axis} {verb}: {sizes}, {collective.launches} ×, "
            text += si(exchange.seconds, "s")
            changes.append(
                Change("exchange", exchange.role, exchange.source, text, sign * exchange.exposed)
            )
    return changes
