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
from playwright.sync_api import Browser

from roofline.labs.javascript import script as model_script


def test_javascript_agrees_with_python(chromium: Browser) -> None:
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


BAD = [
    'serving.step({chip: "h100", batch: 0})',
    'serving.step({chip: "h1000"})',
    'model.roof("v7x", "int8")',
    'model.matmul(0, 1, 1, "bf16")',
    'serving.bestBatch({chip: "h100"}, -1)',
]


def test_bad_arguments_are_refused_in_javascript(chromium: Browser) -> None:
    tried = ", ".join(f"() => {call}" for call in BAD)
    code = f"() => {{ {model_script()}\nreturn [{tried}].map((call) => "
    code += "{ try { return String(call()) } catch (e) { return e.name } }) }"
    page = chromium.new_page()
    answers = page.evaluate(code)
    page.close()
    assert {
        call: answer for call, answer in zip(BAD, answers, strict=True) if answer != "RangeError"
    } == {}
