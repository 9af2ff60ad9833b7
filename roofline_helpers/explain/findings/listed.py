"""All findings of a case: each second is claimed once, and the dearest come first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from roofline_helpers.explain.findings import fusing, moving, numbers, waiting
from roofline_helpers.explain.findings.base import Case, Claim, Finding

_DETECTORS: tuple[Callable[[Case], Iterator[Claim]], ...] = (
    # A kernel's seconds go to the first cause that claims them: the most particular one
    waiting.compiling,
    waiting.transfers,
    waiting.communication,
    fusing.recomputed,
    moving.copies,
    moving.turned_updates,
    moving.whole_updates,
    numbers.vector_products,
    numbers.float32,
    fusing.scores,
    numbers.padded_products,
    numbers.small_products,
    fusing.split_reductions,
    fusing.chains,
    fusing.gathers,
    waiting.tails,
    waiting.short_kernels,
    waiting.host,
)


def findings(case: Case) -> tuple[Finding, ...]:
    """Return the findings of a case, the dearest first.

    Claims of one cause and one line of code are one finding; those that cost less than
    `LEAST_SHARE` of the call are left out.
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
    kept = (finding for finding in made if case.enough(finding.seconds))
    return tuple(sorted(kept, key=lambda finding: -finding.seconds))


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
    return Finding(
        cause,
        min(sum(seconds for _, seconds in claims), case.wall),
        tuple(kernels),
        dearest.evidence + more,
        line,
        sum(n for claim, _ in claims for _, _, n in claim.parts),
    )
