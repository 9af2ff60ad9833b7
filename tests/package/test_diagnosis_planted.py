"""Planted faults are named, and programs without them are not."""

from __future__ import annotations

import statistics

import pytest
from planted_causes import PLANTED, Planted

from roofline.diagnosis.findings import CAUSES
from roofline.xla import can_compile

# What is compiled for a chip is kept; the others are measured here, once a week
CASES = [
    pytest.param(
        each, id=f"{each.cause}:{each.name}", marks=() if "chip" in each.how else pytest.mark.weekly
    )
    for each in PLANTED
]


@pytest.mark.parametrize("each", CASES)
def test_named_and_not_named(each: Planted) -> None:
    if "chip" in each.how and can_compile(each.how["chip"]) is not None:
        pytest.skip(str(can_compile(each.how["chip"])))
    faulty = each.explained(True)
    sound = each.explained(False)
    if faulty.withheld or sound.withheld:
        pytest.skip(f"NOT TESTED: {faulty.withheld or sound.withheld}")
    assert each.cause in {finding.cause for finding in faulty.findings}, str(faulty)
    named = each.cause in {finding.cause for finding in sound.findings}
    if named and statistics.median(sound.traced or (0,)) > 1.25 * sound.wall:
        pytest.skip("NOT TESTED: this machine was too busy while the profiler ran")
    assert not named, str(sound)
    for finding in faulty.findings:
        assert 0 <= finding.seconds <= faulty.wall * (1 + 1e-9)
        assert finding.seconds > 0 or not finding.named
        assert finding.evidence
    seconds = [finding.seconds for finding in faulty.findings]
    assert seconds == sorted(seconds, reverse=True)


def test_the_list_of_causes_is_closed() -> None:
    assert {each.cause for each in PLANTED} <= set(CAUSES)
