"""Answers that are right, and what is said to those that aren't."""

from __future__ import annotations

import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers.common.show import significant
from roofline_helpers.pages import judge


def test_answers_are_checked() -> None:
    feedback = {
        (240, 240.5): "Right: 240 FLOP/byte.",
        (102, 100): "Right: 100 FLOP/byte.",
        (98, 100): "Right: 100 FLOP/byte.",
        (0, 0): "Right: 0 FLOP/byte.",
        (None, 100): "The solution is 100 FLOP/byte.",
        (1, 0): f"Not yet. {judge.TOO_LARGE}",
        (33, 100): f"Not yet. {judge.TOO_SMALL}",
    }
    assert {pair: repr(rh.check(*pair, "FLOP/byte")) for pair in feedback} == feedback


def test_an_answer_may_have_its_own_tolerance_and_no_unit() -> None:
    assert repr(rh.check(109, 100, tolerance=0.1)) == "Right: 100."
    assert repr(rh.check(111, 100, tolerance=0.1)).startswith("Not yet")
    assert repr(rh.check(np.float64(1), np.float32(1))) == "Right: 1."
    assert repr(rh.check(400, 1000, decades=0.5)) == "Right: 1,000."
    assert repr(rh.check(300, 1000, decades=0.5)) == f"Not yet. {judge.TOO_SMALL}"


def test_what_the_page_prints_is_right() -> None:
    """Whatever the solution and however few its digits: read off the page, it is accepted."""
    faults = []
    for exact in [*np.geomspace(1.2e-9, 8.7e12, 997), 15.4, 12.5, 0.95, 9.995, 99.5, 104.9, -15.4]:
        for digits in (1, 2, 3, 4):
            printed = float(significant(exact, digits).replace(",", ""))
            for answer in (printed, exact):
                feedback = rh.check(answer, exact, tolerance=1e-6, smallest=-1e3, digits=digits)
                if not feedback.startswith("Right"):
                    faults.append((exact, digits, answer, feedback))
    assert faults == []
    assert rh.check(15, 15.4, digits=2).startswith("Right: 15")
    assert rh.check(16, 15.4, digits=2).startswith("Not yet. Close")


@pytest.mark.parametrize("solution", [0.0137, 1.7, 312.6, 4.5e9])
def test_each_slip_is_named(solution: float) -> None:
    named = {
        1.05: "Close",
        0.93: "Close",
        2: "Twice as much",
        1 / 2: "Half of it: a multiply-add counts two FLOPs",
        4: "Four times as much: look at the bytes of an element",
        1 / 4: "A quarter of it",
        8: "Eight times as much: bits",
        1 / 8: "An eighth of it: bytes",
        1000: "A thousand times as much: look at the unit prefixes",
        1e-3: "A thousandth of it: look at the unit prefixes",
        1.024e6: "A million times as much",
        1e-6: "A millionth of it",
        1e9: "A billion times as much",
        1e-9: "A billionth of it",
        3: judge.TOO_LARGE,
        1 / 3: judge.TOO_SMALL,
    }
    feedback = {factor: judge.slip(factor * solution, solution) for factor in named}
    assert [feedback[f] for f, words in named.items() if not feedback[f].startswith(words)] == []
    assert judge.slip(1 / solution, solution).startswith("Upside down")
    assert judge.slip(2 * solution, solution, estimate=True) == judge.TOO_LARGE
    assert judge.slip(solution / 100, solution, "%") == "A share of 1? Percent are asked for."
    assert judge.slip(solution / 100, solution, "µs") == judge.TOO_SMALL
