"""Questions in a real browser: by keyboard alone, what is kept, numbers as Python has them."""

from __future__ import annotations

import json
import math
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
    multi,
    number,
    piece,
    sheet,
    status,
    stored,
)
from browser import Visit, violations
from playwright.sync_api import Locator, Page, expect

import roofline_helpers as rh
from roofline_helpers import ask
from roofline_helpers.show import significant

# --- by keyboard alone ---------------------------------------------------------------------------


def test_any_choice_unlocks_by_keyboard(show: Show) -> None:
    page = show(*(choice(then=TABLE, key=f"t-{downs}") for downs in range(3)))
    for downs, host in enumerate(page.locator("[data-kind=question]").all()):
        page.keyboard.press("Tab")
        answer_by_keyboard(page, host, downs, right=downs == 0)


def answer_by_keyboard(page: Page, host: Locator, downs: int, right: bool) -> None:
    """Answer a question of one choice, whose first answer has the focus, and answer it again."""
    table, status = host.get_by_role("table"), host.get_by_role("status")
    expect(table).to_be_hidden()
    page.keyboard.press("Space")
    for _ in range(downs):
        page.keyboard.press("ArrowDown")
    expect(table).to_be_hidden()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(table).to_be_visible()
    chosen = list(OPTIONS)[downs]
    expect(host).to_contain_text(OPTIONS[chosen])
    told = str(status.text_content()).strip()
    assert told.startswith(f"{'Right' if right else 'Wrong'}: {OPTIONS[chosen]}")
    assert OPTIONS["the batch"] in told, "the right answer is said too"
    assert "shown below" in told
    kept = stored(page)
    entry = kept[f"roofline:v1:t-{downs}"]
    assert (entry["given"], entry["right"]) == (chosen, right)
    assert len(kept) == downs + 1
    # Again: the same button, by keyboard; what was open stays open
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(table).to_be_visible()
    entry = stored(page)[f"roofline:v1:t-{downs}"]
    assert entry["first"] == chosen != entry["given"]


def test_nothing_chosen_is_said_and_unlocks_nothing(show: Show) -> None:
    page = show(choice(then=TABLE))
    page.get_by_role("button", name="Check my answer").press("Space")
    expect(page.get_by_role("table")).to_be_hidden()
    assert status(page) == "Choose an answer first."
    assert stored(page) == {}


NUMBERS = {
    "341.3": "Right.",
    "340": "Right.",
    "1024": "That is N, not N/3.",
    "1,024 FLOP/byte": "That is N, not N/3.",
    "683": "Twice as much",
    "1.7": "Too small.",
    "0": "Too small.",
}


def test_any_number_unlocks_by_keyboard(show: Show) -> None:
    more = {"feedback": [(1024, "That is N, not N/3.")], "why": "N/3 FLOP for each byte."}
    page = show(*(number(then=TABLE, key=f"t-{i}", **more) for i in range(len(NUMBERS))))
    hosts = page.locator("[data-kind=question]").all()
    for i, (host, (typed, feedback)) in enumerate(zip(hosts, NUMBERS.items(), strict=True)):
        page.keyboard.press("Tab")
        page.keyboard.type(typed)
        expect(host.get_by_role("table")).to_be_hidden()
        page.keyboard.press("Enter")
        expect(host.get_by_role("table")).to_be_visible()
        told = str(host.get_by_role("status").text_content())
        assert feedback in told, typed
        expect(host.get_by_role("button", name="Answer again")).to_be_focused()
        expect(host.get_by_role("textbox")).to_be_disabled()
        expect(host).to_contain_text(feedback)
        assert "Solution: 341 FLOP/byte: N/3 FLOP for each byte." in told
        entry = stored(page)[f"roofline:v1:t-{i}"]
        assert (entry["right"], entry["answer"]) == (feedback == "Right.", "341 FLOP/byte"), typed


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
WRITTEN = {
    "1e3": 1000,
    "1.2k": 1200,
    "4K": 4000,
    "2 M": 2e6,
    ".5": 0.5,
    "5.": 5,
    "+7": 7,
    "1_000": 1000,
    "1,024,000": 1024000,
    "1 024": 1024,
    " 12 ": 12,
    "3FLOP/byte": 3,
    "1E-3": 0.001,
}


def test_right_but_not_all_is_said(show: Show) -> None:
    page = show(multi())
    page.get_by_label("reads").check()
    page.get_by_role("button", name="Check my answer").click()
    assert "They cross. Not all: 1 more belongs here." in status(page)
    expect(page.locator("p.bad").filter(has_text="Not all")).to_be_visible()
    assert [entry["right"] for entry in stored(page).values()] == [False]
    again = page.get_by_role("button", name="Answer again")
    if again.count():
        again.click()
    page.get_by_label("writes").check()
    page.get_by_role("button", name="Check my answer").click()
    expect(page.get_by_text("Not all")).to_have_count(0)


# What a field says of itself, and whether it has the focus
TOLD = """(field) => {
  const root = field.getRootNode(), [id] = field.getAttribute("aria-describedby").split(" ");
  return [field.getAttribute("aria-invalid") === "true", root.getElementById(id).textContent,
    root.activeElement === field];
}"""


def test_bad_numbers_get_a_word_and_unlock_nothing(show: Show) -> None:
    page = show(number(then=TABLE))
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
    expect(page.get_by_role("table")).to_be_hidden()
    assert stored(page) == {}


def test_numbers_may_be_written_in_many_ways(show: Show) -> None:
    page = show(number())
    for typed, value in WRITTEN.items():
        page.get_by_role("textbox").fill(typed)
        page.get_by_role("textbox").press("Enter")
        (entry,) = stored(page).values()
        assert entry["value"] == value, typed
        page.get_by_role("button", name="Answer again").press("Enter")


def test_whole_numbers_only_where_asked(show: Show) -> None:
    page = show(number(integer=True, smallest=2))
    for typed, word in (("2.5", "whole number"), ("1", "At least 2.")):
        page.get_by_role("textbox").fill(typed)
        page.get_by_role("textbox").press("Enter")
        assert word in status(page)


def test_an_estimate_is_judged_in_powers_of_ten(show: Show) -> None:
    judged = {"400": True, "3100": True, "300": False, "3300": False}
    page = show(*(number(decades=0.5, solution=1000, key=f"t-{typed}") for typed in judged))
    hosts = page.locator("[data-kind=question]").all()
    for host, (typed, right) in zip(hosts, judged.items(), strict=True):
        host.get_by_role("textbox").fill(typed)
        host.get_by_role("textbox").press("Enter")
        assert ("Right." in str(host.get_by_role("status").text_content())) is right, typed


def test_a_sheet_by_keyboard(show: Show) -> None:
    page = show(sheet())
    host = piece(page, "sheet")
    expect(host).not_to_contain_text("341 FLOP/byte")
    page.keyboard.press("Tab")
    page.keyboard.type("1024")
    page.keyboard.press("Enter")
    assert status(page) == "Wrong: That is N. Hint: Count three matrices."
    expect(host).not_to_contain_text("341 FLOP/byte")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # Show the solution
    expect(host).to_contain_text("341 FLOP/byte: N/3")
    expect(page.get_by_role("button", name="Hide the solution")).to_be_focused()
    page.keyboard.press("Enter")
    expect(host).not_to_contain_text("341 FLOP/byte")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("341")
    page.keyboard.press("Enter")
    assert status(page) == "Right: 341 FLOP/byte."
    # What the notebook has given is in its field, judged; nothing was said about it
    expect(page.get_by_role("textbox").nth(1)).to_have_value("8")
    expect(host).to_contain_text("Too large.")


def test_several_answers_by_keyboard(show: Show) -> None:
    page = show(multi())
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Answer again")).to_be_focused()
    for text in ("reads: They cross.", "adds: They stay inside.", "writes: They cross too."):
        assert text in status(page)
    assert stored(page)["roofline:v1:t-multi"]["right"] is False


def test_a_question_inside_what_another_unlocks(show: Show) -> None:
    page = show(choice(then=[number(then="The deepest text.")]))
    expect(page.get_by_role("textbox")).to_be_hidden()
    page.get_by_label("4096").check()
    page.get_by_role("button", name="Check my answer").press("Enter")
    expect(page.get_by_text("The deepest text.")).to_be_hidden()
    page.get_by_role("textbox").fill("1")
    page.get_by_role("textbox").press("Enter")
    expect(page.get_by_text("The deepest text.")).to_be_visible()


def test_on_paper_an_open_question_has_its_answer(show: Show) -> None:
    page = show(number())
    paper = piece(page).locator(".solution, .paper")
    expect(paper).to_be_hidden()
    page.emulate_media(media="print")
    expect(paper).to_be_visible()
    page.emulate_media(media="screen")
    page.get_by_role("textbox").fill("341")
    page.get_by_role("textbox").press("Enter")
    page.emulate_media(media="print")
    seen = paper.locator("visible=true")
    expect(seen).to_have_count(1)  # not twice
    expect(seen).to_contain_text("341 FLOP/byte")


# --- what is kept --------------------------------------------------------------------------------


def test_answers_come_back_and_can_be_forgotten(show: Show) -> None:
    page = show(choice(then=TABLE), number(), ask.ledger())
    host = piece(page, "ledger")
    expect(host).to_contain_text("Nothing answered yet")
    page.get_by_label("4096").check()
    page.get_by_role("button", name="Check my answer").first.press("Enter")
    page.get_by_role("textbox").fill("341")
    page.get_by_role("textbox").press("Enter")
    page.reload()
    expect(page.get_by_label("4096")).to_be_checked()
    expect(page.get_by_role("textbox")).to_have_value("341")
    expect(page.locator("table.dataframe")).to_be_visible()
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
    expect(page.locator("table.dataframe")).to_be_hidden()
    expect(page.get_by_role("textbox").first).to_have_value("")
    expect(page.get_by_label("4096")).not_to_be_checked()
    expect(host).to_contain_text("Nothing answered yet")


def test_the_first_answer_counts(show: Show) -> None:
    page = show(choice(then=TABLE), number(), ask.ledger())
    host = piece(page, "ledger")
    page.get_by_label("4096").check()
    page.get_by_role("button", name="Check my answer").first.press("Enter")
    page.get_by_role("textbox").fill("341")
    page.get_by_role("textbox").press("Enter")
    for label in ("16384", "the batch"):
        page.get_by_role("button", name="Answer again").first.press("Enter")
        page.get_by_label(label).check()
        page.get_by_role("button", name="Check my answer").first.press("Enter")
    expect(host).to_contain_text("1 of 2 right at once, 1 later")
    row = host.get_by_role("row").filter(has_text="Which decides?")
    expect(row).to_contain_text("4096")
    expect(row).to_contain_text("✗, then ✓")
    page.reload()
    expect(host).to_contain_text("1 of 2 right at once, 1 later")
    # An answer from before that was kept: which one was right isn't
    kept = {"question": "Old?", "given": "b", "first": "a", "right": True, "answer": "b"}
    page.evaluate(f"localStorage['roofline:v1:t-old'] = {json.dumps(json.dumps(kept))}")
    page.reload()
    expect(host).to_contain_text("1 of 3 right at once, 2 later")


def unlocking(**more: Any) -> ask.Element:
    return choice(then=TABLE, **more)


def test_a_spoiled_entry_locks_nothing_up(show: Show) -> None:
    spoiled = ("{", "null", '{"value":[9]}', '{"value":"x"}', '{"value":{}}', "7")
    keys = range(len(spoiled))
    asked = [one(key=f"t-{i}{one.__name__}") for i in keys for one in (unlocking, number)]
    page = show(*asked, ask.ledger())
    kept = {f"roofline:v1:t-{i}{one}": spoiled[i] for i in keys for one in ("unlocking", "number")}
    page.evaluate("kept => Object.assign(localStorage, kept)", kept)
    page.reload()
    tables = page.locator("table.dataframe")
    expect(tables).to_have_count(len(spoiled))
    for i, host in enumerate(page.locator("[data-kind=question]").all()[::2]):
        expect(tables.nth(i)).to_be_hidden()
        host.get_by_label("4096").check()
        host.get_by_role("button", name="Check my answer").press("Enter")
        expect(tables.nth(i)).to_be_visible()
    expect(piece(page, "ledger")).to_contain_text(f"0 of {len(spoiled)} right")


def test_it_works_where_storage_is_refused(show: Show) -> None:
    frame = framed(show, choice(then=TABLE), ask.ledger())
    assert frame.evaluate("try { localStorage } catch (e) { e.name }") == "SecurityError"
    frame.get_by_label("16384").check()
    frame.get_by_role("button", name="Check my answer").press("Enter")
    expect(frame.locator("table.dataframe")).to_be_visible()
    expect(piece(frame, "ledger")).to_contain_text("0 of 1 right")


def test_a_sandboxed_frame_as_in_colab(show: Show) -> None:
    frame = framed(show, choice(then=TABLE), sheet())
    assert frame.evaluate("origin") == "null"
    frame.get_by_label("the batch").focus()
    frame.page.keyboard.press("Space")
    frame.page.keyboard.press("ArrowDown")
    frame.page.keyboard.press("Tab")
    frame.page.keyboard.press("Enter")
    expect(frame.locator("table.dataframe")).to_be_visible()
    field = frame.get_by_role("textbox").first
    field.fill("1024")
    field.press("Enter")
    assert "That is N." in status(frame)
    assert violations(frame) == []


# --- the parts that labs are made of -------------------------------------------------------------


def core(page: Page, code: str, argument: Any = None) -> Any:
    """Run JavaScript that sees `core`."""
    body = ask.script("ask").replace("core.start(", "window.core = core; core.start(")
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
        element = ask.number("How much?", key="t-judged", reveal=False, **options)
        exact = options["solution"]
        values = [factor * exact for factor in factors]
        values += [15, 14, 16, 0, 1 / exact if exact else 7, *([-exact] if exact < 0 else [])]
        values = [value for value in values if value >= options.get("smallest", 0)]
        judged = """([data, values]) => { const ui = {say: () => {}}; return values.map((value) => {
            const one = core.question({...data, lead: "", value}, ui).node;
            return one.querySelector(".feedback .line").lastChild.textContent; }) }"""
        feedback = core(page, judged, [dict(element.data), values])
        for value, words in zip(values, feedback, strict=True):
            more = {name: each for name, each in options.items() if name != "solution"}
            expected = repr(rh.check(value, exact, **more))
            assert expected.removeprefix("Not yet. ") == words, (options, value)
            compared += 1
    assert compared > 200


def test_numbers_that_are_none_read_as_in_python(visit: Visit) -> None:
    got = core(visit(), "() => [Infinity, -Infinity, NaN].map(v => core.si(v, 'B'))")
    assert got == [rh.si(value, "B") for value in (math.inf, -math.inf, math.nan)]


def test_a_field_calls_with_sound_numbers_only(visit: Visit) -> None:
    page = visit()
    core(
        page,
        "() => { seen = []; const one = core.field({label: 'N', value: 512, min: 1, max: 1e6,"
        " integer: true, onvalue: v => seen.push(v)}); document.body.append(one.node); }",
    )
    field = page.get_by_label("N")
    for typed in ("1024", "", "x", "1e99", "-4", "2.5", "4k"):
        field.fill(typed)
    assert page.evaluate("seen") == [1024, 4000]


def test_the_address_holds_a_setting_on_the_site_only(show: Show) -> None:
    page = show(choice())
    core(page, "() => core.state.write('lab', {m: 1})")
    assert "#" not in page.url
    page.evaluate(
        "document.head.insertAdjacentHTML('beforeend', '<meta name=roofline-site content=1>')"
    )
    page.evaluate("core.state.write('lab', {m: 512, chip: 'h100', name: 'a&b'})")
    assert page.url.endswith("#lab?m=512&chip=h100&name=a%26b")
    assert page.evaluate("core.state.read('lab')") == {"m": "512", "chip": "h100", "name": "a&b"}
    assert page.evaluate("core.state.read('other')") == {}
