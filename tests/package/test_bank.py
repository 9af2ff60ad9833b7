"""The book's questions as data: what their files may hold, and what they become."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import roofline_helpers as rh
from roofline_helpers import BadValue, UnknownName, ask
from roofline_helpers.ask import bank

FILE = """
[questions.t-ridge]
prompt = "A peak of {si(peak, 'FLOP/s')}: {n} rows, {share:.0%} of {{all}}. Which ridge?"
solution = "peak / bandwidth"
unit = "FLOP/byte"
where.n = "4096"
where.share = "1 / 3"
below = "It is {solution:.1f}."

[[questions.t-ridge.wrong]]
value = "solution / 1000"
feedback = "Mind the {words[0]}."

[[questions.t-ridge.wrong]]
value = ["2 * solution", "3 * solution"]
feedback = "Too much."

[[questions.t-ridge.wrong]]
value = 7
feedback = "Never said."
when = "peak < 0"

[questions.t-which]
prompt = "Which is
 wider?"
multi = true

[[questions.t-which.options]]
text = "a"
feedback = "One."
right = true

[[questions.t-which.options]]
text = "b"
feedback = "Two: {bandwidth}."
right = "bandwidth > 3"

[exercises.t-ex]
prompt = "And {size}?"
solution = 3
""".replace("is\n wider", "is wider")
VALUES = {"peak": 1e15, "bandwidth": 3.2e12, "words": ["prefixes"]}


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let these be the questions of the book."""
    read = dict(bank.read("t", FILE))
    monkeypatch.setattr(bank, "bank", lambda: read)


@pytest.mark.usefixtures("questions")
def test_a_number_is_computed_from_what_the_cell_passes() -> None:
    data = ask.question("t-ridge", then=rh.table([{"a": "x", "b": 1}]), **VALUES).data
    assert data["question"] == "A peak of 1 PFLOP/s: 4,096 rows, 33% of {all}. Which ridge?"
    assert data["solution"] == 312.5
    assert [round(low, 3) for low, *_ in data["feedback"]] == [0.306, 625]
    assert [words for *_, words in data["feedback"]] == ["Mind the prefixes.", "Too much."]
    assert data["lead"] == "Predict."
    assert ask.answer("t-ridge").startswith("312 FLOP/byte.\na  b")
    assert ask.answer("t-ridge").endswith("It is 312.5.")
    assert "Right: 312 FLOP/byte." in ask.question("t-ridge", answer=312, **VALUES).plain


@pytest.mark.usefixtures("questions")
def test_an_option_may_be_right_by_what_the_cell_passes() -> None:
    def right(bandwidth: float) -> list[str]:
        options = ask.question("t-which", bandwidth=bandwidth).data["options"]
        return [one["text"] for one in options if one["right"]]

    assert right(3.2) == ["a", "b"]
    assert right(3) == ["a"]


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
        ("t-ridge", {}, "pass by name: bandwidth (for t-ridge), peak (for t-ridge), words"),
        ("t-which", {"band": 1}, "unknown value for t-which: 'band' (str). Nearest: 'bandwidth'"),
        ("t-which", {"bandwidth": "x"}, "t.toml, t-which: TypeError: '>' not supported"),
        ("t-ridge", VALUES | {"words": []}, "t.toml, t-ridge: IndexError: list index out of"),
        ("t-ridge", VALUES | {"peak": -1}, "t.toml, t-ridge: solution must be from 0"),
    ],
)
def test_what_a_cell_passes_is_checked(key: str, values: dict[str, object], says: str) -> None:
    with pytest.raises(rh.RooflineError, match=re.escape(says)):
        ask.question(key, **values)


TWO = '[[questions.a.options]]\ntext="x"\nfeedback="1"\n[[questions.a.options]]\ntext="{b}"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[questions.a]\nprompt=", "t.toml: TOMLDecodeError: Invalid value"),
        ("[question.a]", "t.toml: unknown kind of table 'question' (str). Nearest: 'questions'"),
        ("[questions.a]\nsolution=3", "t.toml, a: Object missing required field `prompt`"),
        ('[questions.a]\nprompt="x"', "t.toml, a: Object missing required field `solution`"),
        ("[questions.a]\nprompt=3\nsolution=3", "a: Expected `str`, got `int` - at `$.prompt`"),
        ('[questions.a]\nprompt="x"\nsolutoin=3', "unknown key 'solutoin' (str). Nearest: 'sol"),
        (f'[questions.a]\nprompt="x"\nunit="m"\n{TWO}feedback="2"', "a: unknown key 'unit'"),
        (f'[questions.a]\nprompt="x"\n{TWO}feedbak="2"', "key 'feedbak' (str). Nearest: 'feedb"),
        ('[questions.a]\nprompt="x"\nsolution="3 +"', "t.toml, a: '3 +' is no expression"),
        ('[questions.a]\nprompt="{}"\nsolution=3', "t.toml, a: '' is no expression"),
        ('[questions.a]\nprompt="{x"\nsolution=3', "t.toml, a: ValueError: expected '}'"),
    ],
)
def test_a_faulty_file_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(rh.RooflineError, match=re.escape(says)):
        dict(bank.read("t", text))


@pytest.mark.parametrize(
    ("second", "says"),
    [("x", "two options read the same"), ("y", "one option must be right, got none")],
)
def test_options_are_told_apart_and_one_is_right(
    second: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = dict(bank.read("t", f'[questions.a]\nprompt="p"\n{TWO}feedback="2"'))
    monkeypatch.setattr(bank, "bank", lambda: read)
    with pytest.raises(BadValue, match=says):
        ask.question("a", b=second)


def test_a_key_is_one_question_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
