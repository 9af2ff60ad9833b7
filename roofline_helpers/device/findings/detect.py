"""All findings of a case: each second is claimed once, and the largest loss comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from roofline_helpers.common.show import si
from roofline_helpers.device.findings import moving, waiting
from roofline_helpers.device.findings.causes import CAUSES, Case, Claim, Finding
from roofline_helpers.device.findings.fusing import (
    chains,
    gathers,
    recomputed,
    scores,
    sorts,
    split_reductions,
)
from roofline_helpers.device.findings.numbers import (
    dense_ragged,
    emulated_float64,
    float32,
    float64,
    one_hot,
    padded_products,
    small_products,
    vector_products,
)
from roofline_helpers.device.rows import KERNEL, TimedRow, grouped, kin

_DETECTORS: tuple[Callable[[Case], Iterator[Claim]], ...] = (
    # A kernel's seconds go to the first cause that claims them: the most particular one
    waiting.compiling,
    waiting.transfers,
    waiting.communication,
    recomputed,
    moving.growing,
    moving.relaid_weights,
    moving.reshapes,
    moving.copies,
    moving.turned_updates,
    moving.whole_updates,
    vector_products,
    one_hot,
    dense_ragged,
    float64,
    float32,
    scores,
    padded_products,
    small_products,
    split_reductions,
    chains,
    gathers,
    sorts,
    waiting.tails,
    waiting.short_kernels,
    waiting.fresh_results,
    waiting.host,
    emulated_float64,
)


def findings(case: Case) -> tuple[Finding, ...]:
    """Return the findings of a case, the largest loss first; there is always one.

    Claims of one cause and one line of code are one finding; those that cost less than
    `LEAST_SHARE` of the call are left out. Of the kernel that takes longest, where no cause
    explains it, the findings say how far it is from its roof.
    """
    left = {id(row): row.seconds for row in case.rows}
    grouped: dict[tuple[str, str], list[tuple[Claim, float]]] = {}
    for detect in _DETECTORS:
        for claim in detect(case):
            seconds = claim.more
            for row, lost, _ in claim.parts:
                mine = min(max(lost, 0.0), left[id(row)])
                left[id(row)] -= mine
                seconds += mine
            if seconds > 0:
                grouped.setdefault((claim.cause, _line(claim)), []).append((claim, seconds))
    made = [_finding(case, *key, claims) for key, claims in grouped.items()]
    kept = [finding for finding in made if case.enough(finding.seconds)]
    kept += _longest(case, left, bool(kept))
    return tuple(sorted(kept, key=lambda finding: -finding.seconds))


def _longest(case: Case, left: Mapping[int, float], named: bool) -> list[Finding]:
    """Return what is known of the kernel that takes longest, where no cause claims most of it."""
    families: dict[tuple[str, ...], list[TimedRow]] = {}
    for row in case.rows:
        if row.kind == KERNEL and left[id(row)] > 0.5 * row.seconds:
            families.setdefault(kin(row), []).append(row)
    if not families:
        return []
    longest = max(families.values(), key=lambda rows: sum(row.seconds for row in rows))
    (row,) = grouped(longest)
    share = min(row.seconds / case.wall, 1.0)
    if named and share < _WORTH:
        return []
    cause, reaches = _bound(case, row)
    evidence = f"{row.what} takes {share:.0%} of the call{reaches}"
    names = tuple(dict.fromkeys(each.name for each in longest))
    lost = max(row.lost, 0.0) if row.reachable is not None else 0.0
    return [Finding(cause, lost, names, evidence, row.source, row.bytes, share=share)]


def _bound(case: Case, row: TimedRow) -> tuple[str, str]:
    """Return the last cause that fits a kernel, and how near it is to its roof."""
    if row.reachable is None:
        return "no-roof", ""
    unit = " or ".join(_UNITS.get(limit, limit) for limit in row.limit.split(" or "))
    part = row.reachable / row.seconds if row.seconds else 1.0
    if not case.measured:
        if part < 0.5:
            each = si(row.seconds / max(row.launches, 1), "s")
            return "launch-bound", f", by {each} for each of {row.launches:,.0f} launches"
        return _near(row), f" by the roofline, bound by {unit}"
    reaches = f" and reaches {part:.0%} of its roof, bound by {unit}"
    return (_near(row) if part >= _CLOSE else "below-roof"), reaches


def _near(row: TimedRow) -> str:
    return "depends" if " or " in row.limit else _NEAR.get(row.limit, "memory-bound")


_WORTH = 0.1
"""Share of the call from which on the kernel that takes longest is a finding beside causes."""

_CLOSE = 0.6
"""Share of its roof from which on a kernel counts as near it."""

_UNITS = {"hbm": "memory", "matrix": "the matrix unit", "vector": "the vector unit"}
_NEAR = {"hbm": "memory-bound", "matrix": "compute-bound", "vector": "vector-bound"}


def _line(claim: Claim) -> str:
    """Return the line of code that a claim is about: that of its dearest kernel."""
    if claim.source:
        return claim.source
    parts = sorted(claim.parts, key=lambda part: -part[1])
    return next((row.source for row, _, _ in parts if row.source), "")


def _finding(case: Case, cause: str, line: str, claims: list[tuple[Claim, float]]) -> Finding:
    dearest = max(claims, key=lambda pair: pair[1])[0]
    kernels = dict.fromkeys(row.name for claim, _ in claims for row, _, _ in claim.parts)
    others = len({claim.evidence for claim, _ in claims}) - 1
    more = f", and {others} more like it" if others else ""
    seconds = min(sum(seconds for _, seconds in claims), case.wall)
    rows = {id(row): row for claim, _ in claims for row, _, _ in claim.parts}
    inside = sum(row.seconds for row in rows.values()) + sum(claim.more for claim, _ in claims)
    check = CAUSES[cause].checked.get(case.platform)
    return Finding(
        cause,
        seconds,
        tuple(kernels),
        dearest.evidence + more,
        line,
        sum(n for claim, _ in claims for _, _, n in claim.parts),
        min(inside / case.wall, 1.0),
        check and (check.low * seconds, min(check.high * seconds, case.wall)),
        check.how if check else "",
    )
