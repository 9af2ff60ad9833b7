"""Questions in a real browser: by keyboard alone, what is kept, numbers as Python has them."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

from asking import (
    OPTIONS,
    TABLE,
    Show,
    choice,
    framed,
    number,
    piece,
    sheet,
    status,
    stored,
)
from browser import Visit, violations
from playwright.sync_api import Locator, Page, expect

import roofline_helpers as rh
from roofline_helpers import pages
from roofline_helpers.common.show import significant
from roofline_helpers.pages import questions

# --- by keyboard alone ---------------------------------------------------------------------------


def test_a_choice_is_judged_by_keyboard(show: Show) -> None:
    page = show(*(choice(then=TABLE, key=f"t-{downs}") for downs in range(3)))
    for downs, host in enumerate(page.locator("[data-kind=question]").all()):
        page.keyboard.press("Tab")
        answer_by_keyboard(page, host, downs, right=downs == 0)
        page.keyboard.press("Tab")  # past the folded answer


def answer_by_keyboard(page: Page, host: Locator, downs: int, right: bool) -> None:
    """Answer a question of one choice, whose first answer has the focus, and answer it again."""
    page.keyboard.press("Space")
    for _ in range(downs):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    chosen = list(OPTIONS)[downs]
    told = str(host.get_by_role("status").text_content()).strip()
    assert told == f"{'Right' if right else 'Wrong'}: {OPTIONS[chosen]}"
    expect(host.locator("details")).not_to_have_attribute("open", "")
    kept = stored(page)
    entry = kept[f"roofline:v1:t-{downs}"]
    assert (entry["given"], entry["right"]) == (chosen, right)
    assert len(kept) == downs + 1
    # Again: the first answer is kept beside the new one
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    entry = stored(page)[f"roofline:v1:t-{downs}"]
    assert entry["first"] == chosen != entry["given"]
    # The answer, with the reasons for the others
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    for reason in OPTIONS.values():
        expect(host.locator("details").get_by_text(reason)).to_be_visible()


BAD = {
    "": "Type a number.",
    "   ": "Type a number.",
    "abc": "Not a number",
    "12 apples": "Not a number",
    "1.2.3": "Not a number",
    "1e": "Not a number",
    "NaN": "Not a number",
    "Infinity": "Not a number",
    "0x10": "Not a number",
    "<b>1</b>": "Not a number",
    "0,56": "A decimal comma?",
    "0,012": "A decimal comma?",  # not twelve
    "12,5": "A decimal comma?",
    "1,2345": "A decimal comma?",
    "-3": "Not below zero.",
    "−3": "Not below zero.",
    "1e99": "At most 1e30.",
    "1e999": "At most 1e30.",
}


# What a field says of itself, and whether it has the focus
TOLD = """(field) => {
  const root = field.getRootNode(), [id] = field.getAttribute("aria-describedby").split(" ");
  return [field.getAttribute("aria-invalid") === "true", root.getElementById(id).textContent,
    root.activeElement === field];
}"""


def test_bad_numbers_get_a_word_and_are_not_kept(show: Show) -> None:
    page = show(number())
    field = page.get_by_role("textbox")
    for typed, word in BAD.items():
        field.fill(typed)
        field.press("Enter")
        assert word in status(page), typed
        invalid, described, focused = field.evaluate(TOLD)
        assert invalid, typed
        assert focused, typed
        assert word in described, typed
        field.fill("5")
        assert field.evaluate(TOLD)[0] is False, typed
    field.fill("")
    field.press("Enter")
    expect(field).to_have_accessible_description(re.compile(re.escape(BAD[""])))
    assert stored(page) == {}


def test_a_sheet_by_keyboard(show: Show) -> None:
    page = show(sheet())
    host = piece(page, "sheet")
    answer = host.get_by_text("341 FLOP/byte: N/3")
    expect(answer).to_be_hidden()
    page.keyboard.press("Tab")
    page.keyboard.type("1024")
    page.keyboard.press("Enter")
    assert status(page) == "Wrong: That is N. Hint: Count three matrices."
    expect(answer).to_be_hidden()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # Show the answer
    expect(answer).to_be_visible()
    page.keyboard.press("Enter")
    expect(answer).to_be_hidden()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("341")
    page.keyboard.press("Enter")
    assert status(page) == "Right: 341 FLOP/byte."
    # What the notebook has given is in its field, judged; nothing was said about it
    expect(page.get_by_role("textbox").nth(1)).to_have_value("8")
    expect(host).to_contain_text("Too large.")


# --- what is kept --------------------------------------------------------------------------------


def test_answers_come_back_and_can_be_forgotten(show: Show) -> None:
    page = show(choice(then=TABLE), number(), questions.ledger())
    host = piece(page, "ledger")
    expect(host).to_contain_text("Nothing answered yet")
    page.get_by_label("4096").check()
    page.get_by_role("button", name="Check").first.press("Enter")
    page.get_by_role("textbox").fill("341")
    page.get_by_role("textbox").press("Enter")
    page.reload()
    expect(page.get_by_label("4096")).to_be_checked()
    expect(page.get_by_role("textbox")).to_have_value("341")
    expect(page.locator(".feedback").first).to_have_text(f"✗{OPTIONS['4096']}")
    expect(host).to_contain_text("1 of 2 right at once")
    assert [row.inner_text().split("\t")[0] for row in host.get_by_role("row").all()[1:]] == [
        "Which decides?",
        "What is the intensity?",
    ]
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").press("Enter")
    saved = json.loads(Path(download.value.path()).read_text("utf-8"))
    assert saved["answers"]["t-choice"]["given"] == "4096"
    assert json.loads(host.get_by_role("textbox").input_value()) == saved
    page.get_by_role("button", name="Forget all answers").press("Enter")
    assert len(stored(page)) == 2, "asked once more before anything is lost"
    page.get_by_role("button", name="Really forget").press("Enter")
    assert stored(page) == {}
    expect(page.get_by_role("textbox").first).to_have_value("")
    expect(page.get_by_label("4096")).not_to_be_checked()
    expect(host).to_contain_text("Nothing answered yet")


def test_it_works_where_storage_is_refused(show: Show) -> None:
    frame = framed(show, choice(then=TABLE), questions.ledger())
    assert frame.evaluate("try { localStorage } catch (e) { e.name }") == "SecurityError"
    frame.get_by_label("16384").check()
    frame.get_by_role("button", name="Check").press("Enter")
    expect(piece(frame, "ledger")).to_contain_text("0 of 1 right")


def test_a_sandboxed_frame_as_in_colab(show: Show) -> None:
    frame = framed(show, choice(then=TABLE), sheet())
    assert frame.evaluate("origin") == "null"
    frame.get_by_label("the batch").focus()
    frame.page.keyboard.press("Space")
    frame.page.keyboard.press("ArrowDown")
    frame.page.keyboard.press("Tab")
    frame.page.keyboard.press("Enter")
    assert "Wrong: It is large beside the batch." in status(frame)
    field = frame.get_by_role("textbox").first
    field.fill("1024")
    field.press("Enter")
    assert "That is N." in status(frame)
    assert violations(frame) == []


# --- the parts that labs are made of -------------------------------------------------------------


def core(page: Page, code: str, argument: Any = None) -> Any:
    """Run JavaScript that sees `core`."""
    body = pages.script("ask").replace("core.start(", "window.core = core; core.start(")
    page.evaluate(body)
    return page.evaluate(code, argument)


def test_numbers_read_as_python_writes_them(visit: Visit) -> None:
    chance = random.Random(5)
    values = [
        0.0,
        1.0,
        999.5,
        999.4999,
        9995.0,
        0.125,
        2.5,
        12.5,
        1125.0,
        1135.0,
        1e22,
        1e-12,
        1e21,
    ]
    values += [10.0**n for n in range(-12, 23)] + [9.995 * 10.0**n for n in range(-10, 20)]
    values += [chance.choice((1, -1)) * 10 ** chance.uniform(-11, 22) for _ in range(2000)]
    values += [round(10 ** chance.uniform(-3, 9), chance.randint(0, 4)) for _ in range(2000)]
    values += [chance.randrange(1, 20000) / 8 for _ in range(1000)]  # many exact ties
    cases = [(value, digits) for value in values for digits in (2, 3, 4)]
    got = core(
        visit(),
        "cases => cases.map(([v, d]) => [core.si(v, 'B', d), core.significant(v, d)])",
        cases,
    )
    wrong = [
        (case, pair, expected)
        for case, pair in zip(cases, got, strict=True)
        for expected in [[rh.si(case[0], "B", digits=case[1]), significant(*case)]]
        if pair != expected
    ]
    assert len(cases) > 15_000
    assert wrong[:5] == []


def test_numbers_are_judged_as_in_python(visit: Visit) -> None:
    """By what a field gets and says: the same as `rh.check` says of the same number."""
    asked = {
        "plain": {"solution": 1024 / 3, "unit": "FLOP/byte"},
        "printed as 15": {"solution": 15.4, "digits": 2},
        "one": {"solution": 1.0},
        "none": {"solution": 0.0},
        "percent": {"solution": 41.6, "unit": "%"},
        "estimate": {"solution": 3000.0, "decades": 0.5},
        "strict": {"solution": 886.0, "tolerance": 0.001},
        "below zero": {"solution": -3.0, "smallest": -1e6},
    }
    factors = [0, 1e-9, 1e-6, 1e-3, 0.01, 0.05, 1 / 8, 0.25, 0.5, 0.9, 0.95, 0.97, 0.98, 0.999, 1]
    factors += [1.001, 1.02, 1.03, 1.05, 1.1, 1.11, 2, 2.05, 2.1, 3, 4, 8, 16, 100, 1e3, 1e6, 1e9]
    page, compared = visit(), 0
    for options in asked.values():
        element = questions.number("How much?", key="t-judged", **options)
        exact = options["solution"]
        values = [factor * exact for factor in factors]
        values += [15, 14, 16, 0, 1 / exact if exact else 7, *([-exact] if exact < 0 else [])]
        values = [value for value in values if value >= options.get("smallest", 0)]
        judged = """([data, values]) => { const ui = {say: () => {}}; return values.map((value) => {
            const one = core.question({...data, lead: "", value}, ui);
            return one.querySelector(".feedback .line").lastChild.textContent; }) }"""
        feedback = core(page, judged, [dict(element.data), values])
        for value, words in zip(values, feedback, strict=True):
            more = {name: each for name, each in options.items() if name != "solution"}
            expected = repr(rh.check(value, exact, **more))
            assert expected.removeprefix("Not yet. ") == words, (options, value)
            compared += 1
    assert compared > 200
