"""Questions as Python makes them: arguments, HTML, text, script."""

import json
import re
from html import escape

import pytest

import roofline_helpers as rh
from roofline_helpers import BadValue, UnknownName, pages
from roofline_helpers.pages import questions

OPTIONS = {"the batch": "The smallest decides.", "4096": "It is large.", "16384": "It is larger."}


def build(key, entry, right=(), then=None):
    return questions.build(key, questions.Asked("t", False, entry), {}, right, then)


def choice(then=None, **changes):
    fields = {
        "prompt": "Which?",
        "options": OPTIONS,
        "right": "the batch",
    } | changes
    fields["options"] = [questions.Option(*option) for option in fields["options"].items()]
    right = [fields.pop("right")]
    return build("t-choice", questions.ChoiceEntry(**fields), right, then)


def number(then=None, **changes):
    fields = {"prompt": "How much?", "solution": 240.5} | changes
    return build("t-number", questions.NumberEntry(**fields), then=then)


def sent(html):
    """What JavaScript gets."""
    return json.loads(re.findall("data-json='(.*?)'", html)[0])


@pytest.mark.parametrize(
    ("kind", "changes", "error", "text"),
    [
        (choice, {"options": {"a": "b", " a ": "c"}, "right": "a"}, BadValue, "read the same"),
        (choice, {"right": "the badge"}, UnknownName, "Nearest: 'the batch'"),
        (number, {"integer": True, "solution": 2.5}, BadValue, "near a whole number"),
        (number, {"wrong": [questions.Wrong("Close.", 240)]}, BadValue, "would also meet the sol"),
    ],
)
def test_a_bad_question_is_refused(kind, changes, error, text):
    with pytest.raises(error, match=text):
        kind(**changes)


def test_text_is_escaped_everywhere():
    evil = "</script><b onclick='x'>&"
    options = {evil: f"1{evil}", "b": f"2{evil}"}
    element = choice(prompt=evil, options=options, right="b", then=evil)
    html = element.markup()
    assert "</script>" not in html
    assert "<b onclick" not in html
    assert sent(number(why="It's >'> &.").markup())["why"] == "It's >'> &."
    assert f"<li>{escape(evil)}</li>" in html
    assert "<b" not in number(unit="<b>", why="<b>", hint="<b>").markup()


def test_the_answer_is_folded_with_the_reasons_and_not_in_the_text():
    element = choice()
    question, answer = element.fallback.split("<summary>Show the answer</summary>")
    assert "The smallest decides." not in question + element.plain
    assert "<p><strong>the batch.</strong> The smallest decides.</p>" in answer
    assert "<p>Not “4096”: It is large.</p>" in answer
    assert pages.answer("t-choice") == "the batch. The smallest decides."
    number(why="Half of 481.", then=rh.table([{"a": "x", "b": 1.5}]))
    assert pages.answer("t-number") == "240. Half of 481."
    with pytest.raises(UnknownName, match="Nearest: 't-number'"):
        pages.answer("t-numbers")
