"""assets/model.js and serving.js compute what Python does: thousands of points in a real browser.

The points go through Chromium in one call, each result comes back whole, and every number of it is
held against Python's: rooflines, products, steps with all their kernels, memory, what would fit
instead, the best batch. Sums run in another order there, so the last digits may differ.
"""

from parity_suite import (
    THOROUGH,
    expected,
    faults,
    in_browser,
    one_in_a_few,
    points,
)

from roofline.labs.javascript import script as model_script


def test_javascript_agrees_with_python(chromium):
    few = {"product": 17, "step": 17, "instead": 4, "best": 4}
    asked = points() if THOROUGH else one_in_a_few(few)
    answers = in_browser(chromium, model_script(), asked)
    found = [
        fault
        for point, answer in zip(asked, answers, strict=True)
        for fault in faults(expected(point), answer, str(point))
    ]
    assert found[:5] == []
    assert len(asked) > (5000 if THOROUGH else 400)
