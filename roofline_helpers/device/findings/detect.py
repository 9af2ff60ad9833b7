"""All findings of a case: each second is claimed once, and the largest loss comes first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from roofline_helpers.common.show import si
from roofline_helpers.device.findings import arithmetic, copies, devices, fusion, idle
from roofline_helpers.device.findings.causes import OVERSTATED, Case, Cause, Claim, Claims, Finding
from roofline_helpers.device.rows import KERNEL, TimedRow, family_of, grouped
from roofline_helpers.xla.targets import clock_of

LEAST_SHARE = 0.01
"""Findings that cost less than this share of the call are left out."""

_DETECTORS: tuple[Callable[[Case], Claims], ...] = (
    # A kernel's seconds go to the first cause that claims them, so specific causes come before
    # general ones
    idle.compiling,
    idle.transfers,
    devices.skew,
    devices.sliced_sums,
    idle.communication,
    fusion.recomputed,
    copies.relaid_weights,
    copies.layout_copies,
    copies.turned_updates,
    copies.whole_updates,
    arithmetic.vector_products,
    arithmetic.one_hot,
    arithmetic.dense_ragged,
    arithmetic.float64,
    arithmetic.float32,
    fusion.scores,
    arithmetic.padded_products,
    arithmetic.transcendentals,
    fusion.chains,
    fusion.gathers,
    fusion.sorts,
    idle.tails,
    idle.short_kernels,
    idle.host,
    arithmetic.emulated_float64,
)

_last = functools.partial(Cause, named=False)

# Fallbacks, if no cause explains the longest kernel
BELOW_ROOF = _last(
    "below-roof",
    "a kernel stays below its roof",
    "time it alone with these shapes, then change one thing: its layout, its type, its sizes, "
    "or another way to write it (a library's kernel, Pallas)",
    "notebooks/where-the-time-goes",
)
NEAR = {
    "hbm": _last(
        "memory-bound",
        "a kernel is near its roof, bound by memory",
        "move fewer bytes: fuse it with its neighbours, store a narrower type, or do more with "
        "each byte (a larger batch)",
        "notebooks/fusion",
    ),
    "matrix": _last(
        "compute-bound",
        "a kernel is near its roof, bound by its arithmetic",
        "ask for fewer FLOPs, or a narrower type where this chip is faster in it",
        "notebooks/hardware-comparison",
    ),
    "vector": _last(
        "vector-bound",
        "a kernel is near its roof, bound by elementwise work",
        "do less per element (fewer exponentials and divisions), or write sums of products as "
        "matmuls",
        "notebooks/limitations",
    ),
}
DEPENDS = _last(
    "depends",
    "a kernel is near its roof, and what bounds it depends",
    "time it on the chip: a note says what the program alone can't tell, the blocks that data "
    "choose or a peak that nobody publishes",
    "notebooks/compiler-fusion",
)
CYCLES = _last(
    "slow-by-cycles",
    "the compiler expects a kernel to take longer than its roof",
    "look at what it does besides moving bytes and multiplying: changes of layout, small or odd "
    "sizes, work without a fast unit; change one of them, and compile again",
    "notebooks/limitations",
)
LAUNCH_BOUND = _last(
    "launch-bound",
    "a kernel does less than a launch takes",
    "do more in each launch: fuse it, batch it, or unroll the loop around it",
    "notebooks/limitations",
)
NO_ROOF = _last(
    "no-roof",
    "a kernel has no roof that is known here",
    "give ceilings= for this device, or a trace that carries its compiled program; where data "
    "decide how much a kernel does, time it with data like yours",
    "notebooks/where-the-time-goes",
)


def findings(case: Case) -> tuple[Finding, ...]:
    """Return the findings of a case, the largest loss first; there is always one.

    Claims of one cause and one line of code are one finding; those that cost less than
    `LEAST_SHARE` of the call are left out. If no cause explains the longest kernel, a finding says
    how far it is from its roof.
    """
    left = {id(row): row.seconds for row in case.rows}
    grouped: dict[tuple[str, str], list[tuple[Claim, float]]] = {}
    for detect in _DETECTORS:
        for claim in detect(case):
            seconds = claim.more
            for row, lost in claim.parts:
                mine = min(max(lost, 0.0), left[id(row)])
                left[id(row)] -= mine
                seconds += mine
            if seconds > 0:
                key = claim.cause.key, _line(claim)
                grouped.setdefault(key, []).append((claim, seconds))
    made = [_finding(case, line, claims) for (_, line), claims in grouped.items()]
    kept = [finding for finding in made if finding.seconds >= LEAST_SHARE * case.wall]
    if case.measured or not any(row.kernel.untimed for row in case.rows):
        kept += _longest(case, left, bool(kept))
    if not case.measured:  # what waits for the host takes a time that nothing here states
        waiting = [replace(each, share=0.0) for each in kept if each.cause == idle.HANDED.key]
        first = [*_uncounted(case), *waiting]
        kept = [each for each in kept if each.cause != idle.HANDED.key]
    else:
        first = []
    return (*first, *sorted(kept, key=lambda finding: -finding.seconds))


def _uncounted(case: Case) -> list[Finding]:
    """Return a finding on kernels whose time can't be told, as nothing ran: it comes first."""
    rows = [row for row in case.rows if row.kernel.at_least]
    if not rows:
        return []
    names, first = tuple(row.name for row in rows), rows[0]
    evidence = f"{first.what}: {first.kernel.at_least}, so it may take any time"
    return [Finding(NO_ROOF.key, 0.0, names, evidence, first.source)]


def _longest(case: Case, left: Mapping[int, float], named: bool) -> list[Finding]:
    """Return a finding on the longest kernel, unless causes claim most of it."""
    kernels = [row for row in case.rows if row.kind == KERNEL]
    rows = [row for row in kernels if left[id(row)] > 0.5 * row.seconds]
    if not rows:
        return []
    row = max(grouped(rows), key=lambda each: each.seconds)
    share = row.seconds / case.wall
    if named and share < _WORTH:
        return []
    cause, reaches = _bound(case, row)
    slowed = ", timed with the profiler," if share > 1 else ""
    evidence = f"{row.what} takes {share:.0%} of the call{slowed}{reaches}"
    names = tuple(dict.fromkeys(each.name for each in rows if family_of(each) == family_of(row)))
    lost = max(row.lost, 0.0) if row.reachable is not None else 0.0
    return [Finding(cause.key, lost, names, evidence, row.source, share=min(share, 1.0))]


def _bound(case: Case, row: TimedRow) -> tuple[Cause, str]:
    """Return the last cause that fits a kernel, and how near it is to its roof."""
    if row.reachable is None:
        return NO_ROOF, ""
    units = _UNITS | ({"matrix": _OWN, "vector": _OWN} if case.platform == "cpu" else {})
    unit = " or ".join(units.get(limit, limit) for limit in row.limit.split(" or "))
    part = row.reachable / row.seconds if row.seconds else 1.0
    unsure = " or " in row.limit or (row.flops is None and not case.measured)
    near = DEPENDS if unsure else NEAR.get(row.limit, NEAR["hbm"])
    if case.measured:
        reaches = f" and reaches {part:.0%} of its roof"
        if part > 1.02 and row.least is not None:  # a short run may stay below the power limit
            published = row.least / row.seconds
            reaches = f", beats the reached roof, and reaches {published:.0%} of the published one"
        return (near, reaches) if part >= _CLOSE else (BELOW_ROOF, f"{reaches}, bound by {unit}")
    ticks = clock_of(case.ceilings.chip)
    cycles = (row.kernel.cycles or 0) * row.launches / ticks[0] if ticks else 0.0
    slow = cycles >= 0.99 * row.seconds
    if slow and part * OVERSTATED < 1:
        return CYCLES, f" by the compiler's cycles, {1 / part:.1f} times its roof"
    if part < 0.5 and not slow:
        each = si(row.seconds / max(row.launches, 1), "s")
        return LAUNCH_BOUND, f", by {each} for each of {row.launches:,.0f} launches"
    return near, f" by the roofline, bound by {unit}"


_WORTH = 0.1
"""Share of the call from which on the longest kernel is a finding in addition to causes."""

_CLOSE = 0.8
"""Share of its roof from which on a kernel counts as near it."""

_OWN = "its arithmetic"
_UNITS = {"hbm": "memory", "matrix": "the matrix unit", "vector": "the vector unit"}


def _line(claim: Claim) -> str:
    """Return the line of code that a claim is about: that of its most expensive kernel."""
    parts = sorted(claim.parts, key=lambda part: -part[1])
    return claim.source or next((row.source for row, _ in parts if row.source), "")


def _finding(case: Case, line: str, claims: list[tuple[Claim, float]]) -> Finding:
    dearest = max(claims, key=lambda pair: pair[1])[0]
    others = len({claim.evidence for claim, _ in claims}) - 1
    seconds = min(sum(seconds for _, seconds in claims), case.wall)
    rows = {id(row): row for claim, _ in claims for row, _ in claim.parts}
    inside = sum(row.seconds for row in rows.values())
    inside += sum(claim.more for claim, _ in claims)
    check = dearest.cause.checked.get(case.platform)
    return Finding(
        dearest.cause.key,
        seconds,
        tuple(dict.fromkeys(row.name for row in rows.values())),
        dearest.evidence + (f", and {others} more like it" if others else ""),
        line,
        min(inside / case.wall, 1.0),
        check and (check.low * seconds, min(check.high * seconds, case.wall)),
        check.how if check else "",
    )
