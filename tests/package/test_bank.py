"""The book's questions as data: what their files may hold, and what they become."""

from __future__ import annotations

import re
from typing import Any

import pytest

import roofline_helpers as rh
from roofline_helpers import BadValue, UnknownName, ask
from roofline_helpers.ask import bank

FILE = """
[questions.t-ridge]
prompt = "Peak: {roof.peak:si FLOP/s}; {n} rows, {parts[one third]:.0%} of {{all}}. Which ridge?"
solution = "roof.ridge"
unit = "FLOP/byte"
below = "It is {solution:.1f}, of {roof.bandwidth:,.0f GB/s}."

[[questions.t-ridge.wrong]]
times = 0.001
feedback = "Mind the {words[0]}."

[[questions.t-ridge.wrong]]
times = [2, 3]
feedback = "Too much."

[[questions.t-ridge.wrong]]
value = "roof.peak"
times = 1e-12
feedback = "That is the peak."

[questions.t-which]
prompt = "Which is wider?"

[[questions.t-which.options]]
key = "first"
text = "a"
feedback = "One."

[[questions.t-which.options]]
text = "b"
feedback = "Two: {n}."

[exercises.t-ex]
prompt = "And {size}?"
solution = 3
"""
VALUES: dict[str, Any] = {
    "roof": rh.Roofline(peak=1e15, levels=3.2e12),
    "n": 4096,
    "parts": {"one third": 1 / 3},
    "words": ["prefixes"],
}


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let these be the questions of the book."""
    read = dict(bank.read("t", FILE))
    monkeypatch.setattr(bank, "bank", lambda: read)


@pytest.mark.usefixtures("questions")
def test_a_number_is_what_the_cell_passes() -> None:
    element = ask.question("t-ridge", then=rh.table([{"a": "x", "b": 1}]), **VALUES)
    data = element.data
    assert data["question"] == "Peak: 1 PFLOP/s; 4,096 rows, 33% of {all}. Which ridge?"
    assert data["solution"] == 312.5
    assert [round(low, 2) for low, *_ in data["feedback"]] == [0.31, 625, 980]
    assert data["feedback"][0][2] == "Mind the prefixes."
    assert ask.answer("t-ridge").startswith("312 FLOP/byte.")
    assert "\na  b\n" in element.plain
    assert element.plain.endswith("It is 312.5, of 3,200 GB/s.")
    assert "Right: 312 FLOP/byte." in ask.question("t-ridge", answer=312, **VALUES).plain


@pytest.mark.usefixtures("questions")
@pytest.mark.parametrize(("right", "text"), [("first", "a"), (["b"], "b")])
def test_a_cell_may_say_which_option_is_right(right: Any, text: str) -> None:
    options = ask.question("t-which", right=right, n=2).data["options"]
    assert [one["text"] for one in options if one["right"]] == [text]


@pytest.mark.usefixtures("questions")
def test_exercises_are_a_sheet() -> None:
    sheet = ask.exercises("t", size=1234.5)
    assert [one["question"] for one in sheet.data["exercises"]] == ["And 1,234?"]
    with pytest.raises(UnknownName, match=r"chapter with exercises 'u'.*Allowed: t"):
        ask.exercises("u")


@pytest.mark.usefixtures("questions")
@pytest.mark.parametrize(
    ("key", "values", "says"),
    [
        ("t-rigde", {}, "unknown question 't-rigde' (str). Nearest: 't-ridge'"),
        ("t-ridge", {"n": 1}, "pass by name: parts (for t-ridge), roof (for t-ridge), words"),
        ("t-which", {"m": 1}, "unknown value for t-which: 'm' (str). Allowed: n"),
        ("t-which", {"n": 1}, "t.toml, t-which: one option must be right, got none"),
        ("t-which", {"n": 1, "right": "a"}, "t-which: unknown option 'a' (str). Allowed: first, b"),
        ("t-ridge", VALUES | {"right": "a"}, "t-ridge: it asks for a number: right= is for opt"),
        ("t-ridge", VALUES | {"words": []}, "t-ridge: 'words[0]': IndexError: list index out of"),
        ("t-ridge", VALUES | {"roof": 1}, "t-ridge: 'roof.ridge': AttributeError: 'int' obj"),
    ],
)
def test_what_a_cell_passes_is_checked(key: str, values: dict[str, Any], says: str) -> None:
    with pytest.raises(rh.RooflineError, match=re.escape(says)):
        ask.question(key, **values)


OPTION = '[[questions.a.options]]\ntext="{}"\nfeedback="1"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[questions.a]\nprompt=", "t.toml: TOMLDecodeError: Invalid value"),
        ("[question.a]", "t.toml: unknown kind of table 'question' (str). Nearest: 'questions'"),
        ("[questions.a]\nsolution=3", "t.toml, a: Object missing required field `prompt`"),
        ("[questions.a]\nprompt=3\nsolution=3", "a: Expected `str`, got `int` - at `$.prompt`"),
        ('[questions.a]\nprompt="x"\nsolutoin=3', "unknown key 'solutoin' (str). Nearest: 'sol"),
        ('[questions.a]\nprompt="x"\nsolution="a + b"', "'a + b' is no name with attributes"),
        ('[questions.a]\nprompt="{f(x)}"\nsolution=3', "'f(x)' is no name with attributes and in"),
        ('[questions.a]\nprompt="{x"\nsolution=3', "t.toml, a: ValueError: expected '}'"),
        ('[questions.a]\nprompt="{}"\nsolution=3', "t.toml, a: '' is no name"),
    ],
)
def test_a_faulty_file_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(rh.RooflineError, match=re.escape(says)):
        dict(bank.read("t", text))


@pytest.mark.parametrize(
    ("options", "values", "says"),
    [
        (OPTION.format("x") * 2, {}, "two options read the same"),
        (OPTION.format("x") + OPTION.format("y") + "right = true", {"right": "x"}, "'y' is marked"),
    ],
)
def test_options_are_told_apart(
    options: str, values: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = dict(bank.read("t", f'[questions.a]\nprompt="p"\n{options}'))
    monkeypatch.setattr(bank, "bank", lambda: read)
    with pytest.raises(BadValue, match=says):
        ask.question("a", **values)


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("", "1,234"),
        (".1f", "1234.0"),
        (".2f kB", "1.23 kB"),
        ("si B", "1.23 kB"),
        (" kB", "1.23 kB"),
    ],
)
def test_a_format_may_end_with_a_unit(form: str, says: str) -> None:
    assert bank._FILL.vformat(f"{{x:{form}}}", (), {"x": 1234}) == says


def test_a_key_is_one_question_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    folder = tmp_path / "data/questions"
    folder.mkdir(parents=True)
    for name in ("a", "b"):
        (folder / f"{name}.toml").write_text('[questions.q]\nprompt="p"\nsolution=1\n', "utf-8")
    monkeypatch.setattr(bank.resources, "files", lambda package: tmp_path)
    bank.bank.cache_clear()
    try:
        with pytest.raises(BadValue, match=re.escape("b.toml: 'q' is in a.toml as well")):
            bank.bank()
    finally:
        bank.bank.cache_clear()
