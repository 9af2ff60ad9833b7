"""Answers that are right: as far from the solution as the page rounds it."""

import numpy as np

from roofline_helpers.common.show import significant
from roofline_helpers.pages.judge import slack


def test_what_the_page_prints_is_right():
    """Whatever the solution and however few its digits: read off the page, it is accepted."""
    faults = []
    for exact in [0, *np.geomspace(1.2e-9, 8.7e12, 997), 15.4, 12.5, 0.95, 9.995, 99.5, 104.9]:
        for digits in (1, 2, 3, 4):
            printed = float(significant(exact, digits).replace(",", ""))
            if abs(printed - exact) > slack(exact, 1e-6, digits) * (1 + 1e-12):
                faults.append((exact, digits, printed))
    assert faults == []
    assert slack(15.4, digits=2) < 0.6
