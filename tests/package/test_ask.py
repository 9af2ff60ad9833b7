"""Questions as Python makes them: arguments, HTML, text, script."""

from __future__ import annotations

import json
import re
from html import escape, unescape
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import roofline_helpers as rh
from roofline_helpers import BadType, BadValue, UnknownName, ask
from roofline_helpers.ask.element import turned
from tools.notebooks import restamp

OPTIONS = {"the batch": "The smallest decides.", "4096": "It is large.", "16384": "It is larger."}
ALT = "A straight line from the lower left to the upper right, without a bend."


def choice(**changes: Any) -> ask.Element:
    options: dict[str, Any] = {"right": "the batch", "key": "t-choice"} | changes
    return ask.choice(options.pop("question", "Which?"), options.pop("options", OPTIONS), **options)


def number(**changes: Any) -> ask.Element:
    options: dict[str, Any] = {"solution": 240.5, "key": "t-number"} | changes
    return ask.number(options.pop("question", "How much?"), **options)


def sent(html: str) -> Any:
    """What JavaScript gets."""
    coded = re.findall(r'<script type="text/turned">(.*?)</script>', html)[0]
    return json.loads(turned(coded))


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"question": " "}, BadValue, "question must not be empty"),
        ({"question": 3}, BadType, r"question must be a name \(str\), got 3"),
        ({"options": {"a": "b"}}, BadType, "at least two answers"),
        ({"options": ["a", "b"]}, BadType, "at least two answers"),
        ({"options": {"a": "b", "c": ""}, "right": "a"}, BadValue, "the feedback of 'c' must not"),
        ({"options": {"a": "b", "c": "b"}, "right": "a"}, BadValue, "its own feedback"),
        ({"right": "the badge"}, UnknownName, "Nearest: 'the batch'"),
        ({"right": ["the batch"]}, BadType, "multi=True"),
        ({"right": "the batch", "multi": True}, BadType, "multi=True"),
        ({"right": [], "multi": True}, BadValue, "at least one"),
        ({"key": "Ai decode"}, BadValue, "'ai-decode', got 'Ai decode'"),
        ({"then": object()}, BadType, "then must be a table, a figure"),
        ({"then": 3}, BadType, "then must be a table, a figure"),
    ],
)
def test_a_bad_choice_is_refused(changes: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        choice(**changes)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"solution": "240"}, BadType, "solution must be a real number, got '240'"),
        ({"solution": np.array([1.0, 2.0])}, BadType, "solution must be a real number"),
        ({"solution": float("nan")}, BadValue, "solution must be a finite number"),
        ({"solution": -1}, BadValue, "solution must be from 0"),
        ({"tolerance": 0.1, "decades": 1}, BadValue, "tolerance or decades"),
        ({"tolerance": -0.1}, BadValue, "tolerance must be a positive"),
        ({"solution": 0, "decades": 1}, BadValue, "decades needs a solution above zero"),
        ({"feedback": [(240, "Close.")]}, BadValue, "would also meet the solution"),
        ({"feedback": [((100, 300), "Close.")]}, BadValue, "would also meet the solution"),
        ({"feedback": [((300, 250), "No.")]}, BadValue, r"a range is \(low, high\)"),
        ({"feedback": [120]}, BadType, "pairs of value and text"),
        ({"feedback": [(120, "")]}, BadValue, "a feedback must not be empty"),
        ({"answer": "much"}, BadType, "answer must be a real number"),
        ({"integer": 1}, BadType, "integer must be True or False"),
        ({"integer": True, "solution": 2.5}, BadValue, r"solution must be near a whole .* 2\.5"),
        (
            {"integer": True, "solution": 3, "answer": 2.5},
            BadValue,
            r"answer must be a whole .* 2\.5",
        ),
        ({"solution": np.complex64(3)}, BadType, "solution must be a real number"),
        ({"solution": np.bool_(True)}, BadType, "solution must be a real number"),
        ({"answer": -1}, BadValue, "your answer must be at least 0, got -1"),
        ({"answer": -6, "smallest": -5}, BadValue, "your answer must be at least -5, got -6"),
        ({"feedback": None}, BadType, "pairs of value and text, got None"),
    ],
)
def test_a_bad_number_is_refused(changes: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        number(**changes)


def test_spaces_of_the_right_answer_are_folded_as_those_of_the_options() -> None:
    options = {"a  b": "One.", "ab": "Two."}
    for right, correct in (("a  b", "a b"), ("a b ", "a b"), ("ab", "ab")):
        offered = choice(options=options, right=right).data["options"]
        assert [one["text"] for one in offered if one["right"]] == [correct]


def test_a_sheet_refuses_what_is_no_exercise() -> None:
    with pytest.raises(BadValue, match="each with its own key"):
        ask.sheet(number(), number())
    with pytest.raises(BadValue, match="needs exercises"):
        ask.sheet()
    with pytest.raises(BadValue, match="'t-number' has then="):
        ask.sheet(number(then="It is."))
    with pytest.raises(BadType, match="what choice and number return"):
        ask.sheet(ask.ledger())


def test_two_makings_are_the_same() -> None:
    assert choice(then=[rh.table([{"a": "x", "b": 1}]), number()]).html() == (
        choice(then=[rh.table([{"a": "x", "b": 1}]), number()]).html()
    )


def test_text_is_escaped_everywhere() -> None:
    evil = "</script><b onclick='x'>&"
    element = ask.choice(evil, {evil: f"1{evil}", "b": f"2{evil}"}, right="b", key="t", then=evil)
    html = element.markup()
    assert html.count("</script>") == 1
    assert "<b onclick" not in html
    assert f"<li>{escape(evil)}</li>" in html
    assert "<b" not in number(unit="<b>", why="<b>", hint="<b>", answer=3).markup()


def test_the_notebook_stores_html_and_text() -> None:
    bundle = choice(then=rh.table([{"a": "x", "b": 1.5}]))._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert bundle["text/plain"].splitlines() == [
        "Which?",
        "  - the batch",
        "  - 4096",
        "  - 16384",
        'The answer: rh.ask.answer("t-choice")',
    ]
    html = bundle["text/html"]
    assert html.count("<script") == 2
    assert 'data-lm-suppress-shortcuts="true"' in html
    assert "<details><summary>Answer</summary>" in html
    assert html.index("<summary>") < html.index("data-then") < html.index("</details>")
    assert '<table class="dataframe">' in html


def test_no_answer_is_readable_before_it_was_given() -> None:
    """Not as text, and not in the source of what a notebook or a page shows."""
    asked = choice(), number(why="Half of 481.", hint="Halve it."), ask.sheet(choice(), number())
    for element in asked:
        for text in (element.plain, element.markup()):
            for answer in ("The smallest decides.", "It is large.", "240", "Half of 481", "Halve"):
                assert answer not in text
    assert "The smallest decides." in unescape(choice().markup())
    assert ask.answer("t-choice") == "the batch. The smallest decides."
    number(why="Half of 481.", then=rh.table([{"a": "x", "b": 1.5}]))
    assert repr(ask.answer("t-number")).split() == "240. Half of 481. a b x 1.5".split()
    with pytest.raises(UnknownName, match="Nearest: 't-number'"):
        ask.answer("t-numbers")


def test_words_are_sent_once() -> None:
    """JavaScript takes them from what is there without it."""
    assert sent(choice().markup()) == {
        **{"type": "choice", "key": "t-choice", "multi": False, "right": [0]},
        **{"reveal": True, "locked": False},
    }
    assert "question" not in sent(number().markup())
    exercises = sent(ask.sheet(choice(), number()).markup())["exercises"]
    assert [one.get("right") for one in exercises] == [[0], None]


def test_what_an_answer_unlocks_may_be_many_things() -> None:
    figure, axes = plt.subplots(figsize=(3, 2))
    axes.plot([0, 1])
    element = choice(then=["One.\n\nTwo.", axes, number(then="Deep.")], alt=ALT, caption="A line.")
    assert "<p>One.</p><p>Two.</p>" in element.then
    assert f'alt="{ALT}"' in element.then
    assert "<figcaption>A line.</figcaption>" in element.then
    assert not plt.fignum_exists(figure.number)
    assert [one.data["key"] for one in element.inner] == ["t-number"]
    assert element.html().count("data-roofline") == 1
    assert f"Figure: {ALT}" in element.answer
    assert "Deep." not in element.answer
    assert ask.answer("t-number").endswith("Deep.")
    with pytest.raises(BadValue, match="needs alt="):
        choice(then=plt.subplots()[0])
    plt.close("all")


def test_a_picture_is_the_same_each_time_and_knows_its_size() -> None:
    def drawn() -> str:
        figure, axes = plt.subplots(figsize=(4, 3), dpi=100)
        axes.plot([0, 1])
        return choice(then=figure, alt=ALT).then

    assert drawn() == drawn()
    (width,) = re.findall(r'width="(\d+)"', drawn())
    assert 250 < int(width) < 420


def test_a_known_wrong_answer_is_met_within_the_tolerance() -> None:
    known = sent(number(feedback=[(120, "Half."), ((400, 500), "Twice.")]).markup())["feedback"]
    assert known == [[117.6, 122.4, "Half."], [400.0, 500.0, "Twice."]]


def test_an_answer_from_the_notebook_is_checked_there_too() -> None:
    assert "Right: 240 FLOP/byte." in number(answer=241, unit="FLOP/byte").plain
    assert "Not yet. Half of it" in number(answer=240.5 / 2).plain
    assert "Right" in number(answer=100, decades=0.5).plain
    assert "Not yet" in number(answer=10, decades=0.5).plain
    assert "Not yet" in number(answer=10_000, decades=0.5).plain
    assert "Right" in number(answer=240.5, decades=0.5).plain
    assert sent(number(answer=np.float32(2)).markup())["value"] == 2.0
    assert "Right: 4." in number(solution=4.001, answer=4, integer=True).plain
    assert "Right: -3." in number(solution=-3, answer=-3, smallest=-5, integer=True).plain
    assert "Too small" in number(solution=0, answer=-3, smallest=-5).plain


def test_the_lead_says_predict_where_something_is_locked() -> None:
    assert [choice().data["lead"], choice(then="It.").data["lead"]] == ["", "Predict."]
    assert number(then="It.", lead="Guess.").data["lead"] == "Guess."


def test_elements_inside_bring_the_larger_script() -> None:
    lab = ask.Element("roofline", {}, "<p>Lab</p>", "Lab", bundle="lab")
    html = choice(then=lab).html()
    starts = re.findall(r"core\.start\((.*?)\);\n", html)
    assert json.loads(starts[-1]) == [ask.tag("ask"), ask.tag("lab")]
    assert html.count('<script type="module"') == 1


def test_the_script_is_plain_and_asks_for_nothing() -> None:
    for bundle in ask.BUNDLES:
        code = ask.script(bundle)
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(|new Function|document\.write"
        requests = r"fetch\(|XMLHttpRequest|import\(|^import |setAttribute\(\"style\"|https?://(?!www\.w3\.org/2000/svg)"
        assert re.findall(f"{forbidden}|{requests}", code, re.MULTILINE) == []
        assert "</script" not in code
        assert not re.search(r"^\s*(//|/\*)", code, re.MULTILINE)


def test_an_element_is_named_after_its_script() -> None:
    assert re.fullmatch(r"roofline-ask-[0-9a-f]{8}", ask.tag("ask"))
    assert ask.tag("ask") != ask.tag("lab")


def test_old_outputs_are_restamped() -> None:
    html = choice(then=number()).html()
    old = re.sub(r"(roofline-ask-)[0-9a-f]{8}", r"\g<1>00000000", html).replace("use strict", "old")
    assert restamp.stamped(old) == restamp.stamped(html) == html
    assert restamp.stamped("<p>no element</p>") == "<p>no element</p>"
