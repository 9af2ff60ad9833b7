"""Planted faults are named, and programs without them are not."""

import statistics

import pytest
from planted_causes import PLANTED, Planted, explained

from roofline.diagnosis import Explanation
from roofline.diagnosis.modelled import case_of
from roofline.xla import can_compile

# What is compiled for a chip is kept; the others are measured here, once a week
CASES = [
    pytest.param(
        planted,
        id=f"{planted.cause}:{planted.faulty.__name__}",
        marks=() if "chip" in planted.options else pytest.mark.weekly,
    )
    for planted in PLANTED
]


@pytest.mark.parametrize("planted", CASES)
def test_named_and_not_named(planted: Planted) -> None:
    if "chip" in planted.options and can_compile(planted.options["chip"]) is not None:
        pytest.skip(str(can_compile(planted.options["chip"])))
    faulty = explained(planted.faulty, **planted.options)
    sound = explained(planted.sound, **planted.options)
    busy = [one.withheld for one in (faulty, sound) if isinstance(one, Explanation)]
    if any(busy):
        pytest.skip(f"NOT TESTED: {busy}")
    assert planted.cause in {finding.cause for finding in faulty.findings}, str(faulty)
    named = planted.cause in {finding.cause for finding in sound.findings}
    ran = isinstance(sound, Explanation)
    if named and ran and statistics.median(sound.traced) > 1.25 * sound.wall:
        pytest.skip("NOT TESTED: this machine was too busy while the profiler ran")
    assert not named, str(sound)
    seconds = [finding.seconds for finding in faulty.findings if finding.named]
    assert seconds == sorted(seconds, reverse=True)
    wall = faulty.wall if isinstance(faulty, Explanation) else case_of(faulty).wall
    assert 0 <= seconds[-1] <= seconds[0] <= wall * (1 + 1e-9)
    assert all(finding.evidence for finding in faulty.findings)
    assert all(finding.seconds > 0 for finding in faulty.findings if finding.named)
