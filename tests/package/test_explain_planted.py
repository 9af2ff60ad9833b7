"""Planted faults are named, and programs without them are not."""

from __future__ import annotations

import pytest
from explain_planted import PLANTED, Planted, explained

from roofline_helpers.compiled import can_compile
from roofline_helpers.explain import CAUSES, causes, ceilings

# Something else on this machine may take a second of a run: then the host does wait for long; or
# take bandwidth while the ceilings are measured: then a slow kernel is not far enough from its roof
TRIES = 5
# What is measured on this machine takes seconds; what is compiled for a chip is kept
CASES = [
    pytest.param(
        each,
        id=f"{each.cause}:{each.name}",
        marks=() if "chip" in each.how else pytest.mark.slow,
    )
    for each in PLANTED
]


def told_apart(each: Planted) -> bool:
    """Return whether the cause is named in the program that has it, and only there."""
    named = [
        each.cause in {finding.cause for finding in each.explained(faulty).findings}
        for faulty in (True, False)
    ]
    return named == [True, False]


@pytest.mark.parametrize("each", CASES)
def test_named_and_not_named(each: Planted) -> None:
    if "chip" in each.how and can_compile(each.how["chip"]) is not None:
        pytest.skip(str(can_compile(each.how["chip"])))
    for _ in range(TRIES - 1):
        if told_apart(each):
            break
        explained.cache_clear()
        ceilings._of_this_cpu.cache_clear()  # whatever disturbed a program may have disturbed these
    faulty, sound = each.explained(True), each.explained(False)
    assert each.cause in {finding.cause for finding in faulty.findings}, str(faulty)
    assert each.cause not in {finding.cause for finding in sound.findings}, str(sound)
    for finding in faulty.findings:
        assert 0 < finding.seconds <= faulty.wall * (1 + 1e-9)
        assert finding.evidence
    seconds = [finding.seconds for finding in faulty.findings]
    assert seconds == sorted(seconds, reverse=True)


def test_the_list_of_causes_is_closed() -> None:
    assert {each.cause for each in PLANTED} <= set(CAUSES)
    assert len(causes()) == len(CAUSES)
