"""Questions in a real browser: by keyboard alone, what is kept, numbers as Python has them."""

import json
import random
import re
from pathlib import Path

import pytest
from asking import (
    OPTIONS,
    TABLE,
    asked,
    choice,
    framed,
    number,
    piece,
    sheet,
    status,
    stored,
)
from browser import violations
from playwright.sync_api import expect

import roofline_helpers as rh
from roofline_helpers import pages
from roofline_helpers.common.show import significant
from roofline_helpers.pages import judge, questions

# --- by keyboard alone ---------------------------------------------------------------------------


def test_a_choice_is_judged_by_keyboard(show):
    page = show(*(choice(then=TABLE, key=f"t-{downs}") for downs in range(3)))
    for downs, host in enumerate(page.locator("[data-kind=question]").all()):
        page.keyboard.press("Tab")
        answer_by_keyboard(page, host, downs, right=downs == 0)
        page.keyboard.press("Tab")  # past the folded answer


def answer_by_keyboard(page, host, downs, right):
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
    "abc": "Not a number",
    "<b>1</b>": "Not a number",
    "0,56": "A decimal comma?",
    "0,012": "A decimal comma?",  # not twelve
    "-3": "Not below zero.",
    "1e99": "At most 1e30.",
}


# What a field says of itself, and whether it has the focus
TOLD = """(field) => {
  const root = field.getRootNode(), [id] = field.getAttribute("aria-describedby").split(" ");
  return [field.getAttribute("aria-invalid") === "true", root.getElementById(id).textContent,
    root.activeElement === field];
}"""


def test_bad_numbers_get_a_word_and_are_not_kept(show):
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


# --- what is kept --------------------------------------------------------------------------------


def test_answers_come_back_and_can_be_forgotten(show):
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


def test_a_sandboxed_frame_as_in_colab(show):
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


def core(page, code, argument=None):
    """Run JavaScript that sees `core`."""
    body = pages.element.script(pages.element.ASK)
    body = body.replace("core.start(", "window.core = core; core.start(")
    page.evaluate(body)
    return page.evaluate(code, argument)


def test_numbers_read_as_python_writes_them(visit):
    chance = random.Random(5)
    values = [0.0, 999.5, 999.4999, 0.125, 1135.0, 1e-12, 1e21]
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


@pytest.mark.parametrize("solution", [0.0137, 312.6, 4.5e9])
def test_each_slip_is_named(visit, solution):
    named = {
        1.019: "Right",
        0.981: "Right",
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
        solution**-2: "Upside down",
    }
    page = visit()

    def feedback(factors, **options):
        element = asked("t-judged", "How much?", solution=solution, **options)
        judged = """([data, values]) => { const ui = {say: () => {}}; return values.map((value) => {
            const one = core.question({...data, lead: "", value}, ui);
            return one.querySelector(".feedback .line").lastChild.textContent; }) }"""
        values = [factor * solution for factor in factors]
        return core(page, judged, [dict(element.data), values])

    heard = dict(zip(named, feedback(named), strict=True))
    assert [heard[f] for f, words in named.items() if not heard[f].startswith(words)] == []
    few, many = feedback([2, 4], decades=0.5)
    assert (few[:5], many) == ("Right", judge.TOO_LARGE)
    assert feedback([0.01], unit="%") == ["A share of 1? Percent are asked for."]
    assert feedback([0.01], unit="µs") == [judge.TOO_SMALL]
