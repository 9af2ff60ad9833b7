"""All findings of a case: each second is claimed once, and the largest loss comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from roofline.diagnosis.ceilings import CLOSE
from roofline.diagnosis.findings import again, devices, idle, kernels, moved, small, vain, wide
from roofline.diagnosis.findings.causes import (
    CAUSES,
    FLOOR,
    OVERSTATED,
    Case,
    Claim,
    Claims,
    Finding,
)
from roofline.diagnosis.rows import (
    BETWEEN,
    GAP,
    HOST,
    KERNEL,
    LOOP,
    TimedRow,
    family_of,
    grouped,
)
from roofline.xla.targets import clock_of
from roofline_helpers.common.show import many, si

LEAST_SHARE = 0.01
"""Findings that cost less than this share of the call are left out."""

_DETECTORS: tuple[Callable[[Case], Claims], ...] = (
    # A kernel's seconds go to the first cause that claims them. First what waits for others, then
    # what no result needs, since without it the rest is smaller too; how a kernel does what is
    # needed comes last
    idle.compiling,
    idle.transfers,
    devices.skew,
    vain.real_transforms,
    vain.in_vain,
    vain.branches,
    vain.as_written,
    vain.dearer_orders,
    small.factorisations,
    again.on_each_device,
    small.communication,
    again.recomputed,
    again.checkpoints,
    again.in_each_turn,
    again.residuals,
    small.turn_by_turn,
    wide.widened,
    wide.float64,
    again.random_numbers,
    moved.repeats,
    moved.relaid,
    moved.filled_stacks,
    moved.moved,
    kernels.vector_products,
    again.scores,
    again.large_between,
    vain.dilated,
    wide.narrow_sums,
    kernels.small_blocks,
    kernels.padded_products,
    kernels.transcendentals,
    kernels.chains,
    small.gathers,
    moved.strided,
    kernels.tails,
    small.short_kernels,
    idle.host,
)

# Fallbacks, if no cause explains the longest kernel: of one that ran, and of one that didn't, where
# no kernel is near its roof, since the time is the roof's
NEAR = {"hbm": "memory-bound", "matrix": "compute-bound", "vector": "vector-bound"}
MODELLED = {limit: f"least-{near}" for limit, near in NEAR.items()}
_NORMAL = dict.fromkeys((*NEAR.values(), *MODELLED.values(), "usual", "launch-bound"), 1)
_NORMAL["many-kernels"] = 2


def findings(case: Case) -> tuple[Finding, ...]:
    """Return the findings of a case, the largest loss first, the rest of many kernels last.

    What is in vain at one line of code is one finding, of the kind that costs most there; those
    that cost less than `LEAST_SHARE` of the call are left out. What causes leave of a bar of the
    waterfall, if it is more than `_BAR` of the call, has a finding that says how far it is from its
    roof, or what else is known of it.
    """
    left = {id(row): row.seconds for row in case.rows}
    by_line: dict[tuple[str, str], list[Taken]] = {}
    for detect in _DETECTORS:
        for claim in detect(case):
            taken = _taken(case, claim, left)
            if taken.seconds > 0:
                line = _line(claim)
                key = "" if CAUSES[claim.cause].kind and line else claim.cause, line
                by_line.setdefault(key, []).append(taken)
    claimed = [_finding(case, line, claims) for (_, line), claims in by_line.items()]
    kept = [finding for finding in claimed if finding.seconds >= LEAST_SHARE * case.wall]
    first: list[Finding] = []
    if not case.measured:  # what waits for the host takes a time that nothing here states
        waits = "callback"
        first = [replace(finding, share=0.0) for finding in claimed if finding.cause == waits]
        first += _uncounted(case)
        kept = [finding for finding in kept if finding.cause != waits]
    if first:  # of a call that may take any time there are no shares
        kept = [replace(finding, share=0.0) for finding in kept]
    else:
        kept += _kernels_left(case, left, bool(kept))
    kept += _idle_left(case, sum(taken.more for claims in by_line.values() for taken in claims))
    unused = [Finding("donation-unused", 0.0, (), text) for text in case.unused]
    # What many kernels lose together is no one change, and what takes a normal time no loss: both
    # come after whatever is
    kept.sort(key=lambda finding: (_NORMAL.get(finding.cause, 0), -finding.seconds))
    return (*first, *kept, *unused)


def _uncounted(case: Case) -> list[Finding]:
    """Return findings on kernels whose time can't be told, as nothing ran: they come first."""
    found = []
    loops = [row for row in case.rows if row.kernel.loop]
    if loops:
        called = ", ".join(dict.fromkeys(row.kernel.loop for row in loops))
        evidence = f"{called}: its kernels are counted once, and may take any time"
        kernels = tuple(row.name for row in loops)
        found.append(Finding("unknown-loop", 0.0, kernels, evidence))
    found += _once_a_line(
        Finding(
            claim.cause,
            0.0,
            tuple(row.name for row, _ in claim.parts),
            claim.evidence,
            claim.source,
            remedy=claim.remedy,
        )
        for claim in small.single_elements(case)
    )
    for cause, rows, reason in (
        ("no-roof", [row for row in case.rows if row.kernel.at_least], "so it may take any time"),
        (
            "transfer",
            [row for row in case.rows if row.kernel.host_bytes and row.kernel.overlaps],
            "so nobody knows whether kernels hide it",
        ),
    ):
        for first in rows[:1]:
            moved = si(sum(row.kernel.host_bytes * row.launches for row in rows), "B")
            why = first.kernel.at_least or f"{moved} cross the link to the host, of unknown rate"
            names = tuple(row.name for row in rows)
            evidence = f"{first.title}: {why}, {reason}"
            found.append(Finding(cause, 0.0, names, evidence, first.source))
    return found


def _kernels_left(case: Case, left: Mapping[int, float], named: bool) -> list[Finding]:
    """Return findings on the kernels that causes don't explain: all with a bar, and the longest."""
    kernels = [row for row in case.rows if row.kind == KERNEL]
    rows = [row for row in kernels if left[id(row)] > 0.5 * row.seconds]
    groups = sorted(grouped(rows), key=lambda row: -row.seconds)
    lost: dict[tuple[str, ...], float] = {}  # that no cause has claimed, by family
    for row in rows:
        of = family_of(row)
        lost[of] = lost.get(of, 0.0) + min(_lost(row), left[id(row)])
    losing = [row for row in groups if lost[family_of(row)] > _BAR * case.wall]
    longest = [row for row in groups[:1] if not named or row.seconds >= _WORTH * case.wall]
    found = []
    if not case.measured:  # all that they lose is the floor of their launches
        short = [row for row in groups if _bound(case, row)[0] == "launch-bound"]
        longest, losing = ([row for row in some if row not in short] for some in (longest, losing))
        little = sum(lost[family_of(row)] for row in short)
        if short and little > _BAR * case.wall:
            evidence = f"{short[0].title} takes {short[0].seconds / case.wall:.0%} of the call"
            evidence += f"{_bound(case, short[0])[1]}"
            evidence += f", and {len(short) - 1} more like it" if len(short) > 1 else ""
            names = tuple(row.name for row in short)
            share = min(sum(row.seconds for row in short) / case.wall, 1.0)
            found.append(Finding("launch-bound", little, names, evidence, short[0].source, share))
    for row in [*longest, *(row for row in losing if row not in longest)]:
        cause, reaches = _bound(case, row)
        share = row.seconds / case.wall
        slowed = ", timed with the profiler," if share > 1 else ""
        evidence = f"{row.title} takes {share:.0%} of the call{slowed}{reaches}"
        of = family_of(row)
        names = tuple(dict.fromkeys(alike.name for alike in rows if family_of(alike) == of))
        found.append(Finding(cause, lost[of], names, evidence, row.source, share=min(share, 1.0)))
    found = _once_a_line(found)
    others = [row for row in groups if row not in losing and case.measured]
    little = sum(lost[family_of(row)] for row in others)
    if little > _BAR * case.wall and len(others) > 1:
        share, names = little / case.wall, tuple(row.name for row in others)
        evidence = (
            f"{many(len(others), 'kernel')} together lose {share:.0%} of the call, none much of it"
        )
        found.append(Finding("many-kernels", little, names, evidence, share=min(share, 1.0)))
    return found


def _once_a_line(found: Iterable[Finding]) -> list[Finding]:
    """Return findings in which the same one on several kernels of a line is told of the first."""
    alike: dict[tuple[str, str], list[Finding]] = {}
    for each in found:
        alike.setdefault((each.cause, each.source or each.evidence), []).append(each)
    return [
        replace(
            first,
            seconds=sum(each.seconds for each in (first, *others)),
            kernels=tuple(name for each in (first, *others) for name in each.kernels),
            evidence=first.evidence + (f", and {len(others)} more like it" if others else ""),
            share=min(sum(each.share for each in (first, *others)), 1.0),
        )
        for first, *others in alike.values()
    ]


def _lost(row: TimedRow) -> float:
    return max(row.lost, 0.0) if row.reachable is not None else 0.0


def _idle_left(case: Case, claimed: float) -> list[Finding]:
    """Return findings on the time without kernels that no cause explains, if it is much."""
    found = []
    for kinds, sort in (((LOOP, GAP), "iterations and kernels"), ((HOST,), "calls")):
        rows = [row for row in case.rows if row.kind in kinds]
        seconds = sum(row.seconds for row in rows) - claimed
        if seconds > _BAR * case.wall:
            share = min(seconds / case.wall, 1.0)
            evidence = f"no kernel runs for {share:.0%} of the call, between {sort}"
            found.append(Finding("idle", seconds, (), evidence, share=share))
    return found


def _bound(case: Case, row: TimedRow) -> tuple[str, str]:
    """Return the last cause that fits a kernel, and how near it is to its roof."""
    if row.reachable is None:
        return "no-roof", ""
    units = _UNITS | ({"matrix": _OWN, "vector": _OWN} if case.platform == "cpu" else {})
    unit = " or ".join(units.get(limit, limit) for limit in row.limit.split(" or "))
    part = row.reachable / row.seconds if row.seconds else 1.0
    unsure = " or " in row.limit or (row.flops is None and not case.measured)
    near = "depends" if unsure else NEAR.get(row.limit, NEAR["hbm"])
    if case.measured:
        cached = ": a cache holds what it reads" if row.limit == "hbm" else ""
        reaches = f" and reaches {part:.0%} of its roof{cached if part > 1.02 else ''}"
        if part > 1.02 and row.least is not None:  # a short run may stay below the power limit
            published = row.least / row.seconds
            reaches = f", beats the reached roof, and reaches {published:.0%} of the published one"
            reaches += cached if published > 1.02 else ""
        found = case.ceilings.judged(row)
        if part >= CLOSE:
            return near, reaches
        if found is None or found.expected is None:
            return "no-roof", f"{reaches}, but no kernels like it were measured"
        if found.step == INSIDE:
            ends = f"{si(found.low, 's')} to {si(found.high, 's')}"
            return "usual", f"{reaches}; such kernels take {ends} ({found.source})"
        normal = f"{found.seconds / found.expected:.1f} times what is normal ({found.source})"
        return "below-roof", f"{reaches}, bound by {unit}: {normal}"
    ticks = clock_of(case.ceilings.chip)
    cycles = (row.kernel.cycles or 0) * row.launches / ticks[0] if ticks else 0.0
    slow = cycles >= 0.99 * row.seconds
    times = f"{1 / part:.1f} times its roof" if part else "and moves nothing across HBM"
    if slow and part * OVERSTATED < 1:
        return "slow-by-cycles", f" by the compiler's cycles, {times}"
    each = row.seconds / max(row.launches, 1)
    if part < 0.5 and not slow and case.platform == "gpu" and each > FLOOR["gpu"]:
        return "usual", f" by measured kernels like it, {times}"
    if part < 0.5 and not slow:
        launch = si(row.seconds / max(row.launches, 1), "s")
        often = f"each of {row.launches:,.0f} launches" if row.launches > 1 else "its launch"
        return "launch-bound", f", by {launch} for {often}"
    near = near if near == "depends" else MODELLED.get(row.limit, MODELLED["hbm"])
    by = f"compiler's cycles, {times}" if slow and part < 0.95 else "roofline"
    return near, f" by the {by}, bound by {unit}"


_WORTH = 0.1
"""Share of the call from which on the longest kernel is a finding in addition to causes."""

_BAR = 0.05
"""Share of the call from which on whatever the waterfall shows has a finding."""

INSIDE = 7
"""The step of `rh.judge` for a time that is normal."""

_OWN = "its arithmetic"
_UNITS = {"hbm": "memory", "matrix": "the matrix unit", "vector": "the vector unit"}


def _line(claim: Claim) -> str:
    """Return the line of code that a claim is about: that of its most expensive kernel."""
    parts = sorted(claim.parts, key=lambda part: -part[1])
    return claim.source or next((row.source for row, _ in parts if row.source), "")


class Taken(NamedTuple):
    """What a claim gets: seconds of kernels, `more` beside them, and the ends of what they gain."""

    claim: Claim
    seconds: float
    more: float
    low: float
    high: float


def _taken(case: Case, claim: Claim, left: dict[int, float]) -> Taken:
    """Return what is left for a claim, and take it away from `left`.

    A kernel that goes away takes the gap beside it along. What is left of others takes as long as
    the ends of their expected times say.
    """
    gaps = [row for row in case.rows if row.kind == LOOP or row.name == BETWEEN]
    seconds, low, high, gone = 0.0, 0.0, 0.0, 0.0
    for row, lost in claim.parts:
        taken = min(max(lost, 0.0), left[id(row)])
        left[id(row)] -= taken
        seconds += taken
        rest, ends = row.seconds - taken, case.spread(row)
        low += max(taken - rest * (ends[1] - 1), 0.0)
        high += taken + rest * (1 - ends[0])
        gone += row.launches if claim.known and taken >= 0.99 * row.seconds else 0.0
    wanted, between = max(claim.more, gone * case.gap), 0.0
    for gap in gaps if claim.parts else ():
        share = min(wanted - between, left[id(gap)])
        left[id(gap)] -= share
        between += share
    more = between if claim.parts else claim.more
    return Taken(claim, seconds + more, more, low + more, high + more)


def _finding(case: Case, line: str, claims: list[Taken]) -> Finding:
    """Return the finding on the claims of one line: that of the cause which costs most there.

    They have one remedy, so that what they gain adds up; it is told if most of it is known.
    """
    sums: dict[str, float] = {}
    for taken in claims:
        key = taken.claim.cause
        sums[key] = sums.get(key, 0.0) + taken.seconds
    cause = CAUSES[max(sums, key=lambda key: sums[key])]
    own = [taken for taken in claims if taken.claim.cause == cause.key]
    dearest = max(own, key=lambda taken: taken.seconds).claim
    sure = [taken for taken in claims if taken.claim.known]
    known = bool(sure) and 2 * sum(t.seconds for t in sure) >= sum(t.seconds for t in claims)
    counted = sure if known else claims
    most = case.wall - case.floor
    seconds = min(sum(taken.seconds for taken in counted), most)
    others = len({taken.claim.evidence for taken in own}) - 1
    evidence = dearest.evidence + (f", and {others} more like it" if others else "")
    others_kinds = [CAUSES[key] for key in sums if sums[key] > 0.1 * sums[cause.key]]
    beside = [other.title for other in others_kinds if other.kind != cause.kind]
    evidence += f"; besides, {' and '.join(beside[:2])}" if beside else ""
    rows = {id(row): row for taken in claims for row, _ in taken.claim.parts}
    inside = sum(row.seconds for row in rows.values()) + sum(taken.more for taken in claims)
    low = sum(min(t.low, t.claim.sure * t.seconds) for t in sure)
    high = max(sum(taken.high for taken in sure), cause.within * seconds)
    saves = (min(low, seconds / cause.within), min(high, most)) if known and case.measured else None
    return Finding(
        cause.key,
        seconds,
        tuple(dict.fromkeys(row.name for row in rows.values())),
        evidence,
        line,
        min(inside / case.wall, 1.0),
        saves,
        "the time model" if saves else "",
        dearest.remedy,
        known,
    )
