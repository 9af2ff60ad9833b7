"""The book's questions as data: what their files may hold, and what they become."""

import pytest

import roofline_helpers as rh
from roofline_helpers import UnknownName, pages
from roofline_helpers.pages import questions as module
from roofline_helpers.pages.questions import _FILL, read_questions

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
VALUES = {
    "roof": rh.Roofline(peak=1e15, levels=3.2e12),
    "n": 4096,
    "parts": {"one third": 1 / 3},
    "words": ["prefixes"],
}


@pytest.fixture
def questions(monkeypatch):
    """Let these be the questions of the book."""
    read = dict(read_questions("t", FILE))
    monkeypatch.setattr(module, "bank", lambda: read)


@pytest.mark.usefixtures("questions")
def test_a_number_is_what_the_cell_passes():
    element = pages.question("t-ridge", then=rh.table([{"a": "x", "b": 1}]), **VALUES)
    data = element.data
    assert data["question"] == "Peak: 1 PFLOP/s; 4,096 rows, 33% of {all}. Which ridge?"
    assert data["solution"] == 312.5
    assert [round(low, 2) for low, *_ in data["feedback"]] == [0.31, 625, 980]
    assert data["feedback"][0][2] == "Mind the prefixes."
    assert pages.answer("t-ridge").startswith("312 FLOP/byte.")
    assert "\na  b\n" in element.plain
    assert element.plain.endswith("It is 312.5, of 3,200 GB/s.")


@pytest.mark.usefixtures("questions")
def test_exercises_are_a_sheet():
    sheet = pages.exercises("t", size=1234.5)
    assert [exercise["question"] for exercise in sheet.data["exercises"]] == ["And 1,234?"]
    with pytest.raises(UnknownName, match=r"chapter with exercises 'u'.*Allowed: t"):
        pages.exercises("u")


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ("", "1,234"),
        (".2f kB", "1.23 kB"),
        ("si B", "1.23 kB"),
    ],
)
def test_a_format_may_end_with_a_unit(form, says):
    assert _FILL.vformat(f"{{x:{form}}}", (), {"x": 1234}) == says
