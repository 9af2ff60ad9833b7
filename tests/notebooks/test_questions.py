"""The chapters ask: sound questions, two of them before an answer is shown, checked exercises."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

import page_questions
from roofline_helpers import ask
from tools import books
from tools.notebooks import restamp
from tools.notebooks import run as notebooks

ALL = books.notebooks()
IDS = [path.stem for path in ALL]
LEAST = 2  # questions of a chapter that lock what follows
# Chapters whose questions are still Markdown: none may be added
PLAIN: set[str] = set()
DATA = re.compile(
    r'<roofline-\w+-\w+ data-kind="([\w-]+)"[^>]*>\s*'
    r'<script type="application/json">(.*?)</script>',
    re.DOTALL,
)


def pieces(path: Path) -> Iterator[tuple[str, Any]]:
    """The kind and the data of each interactive piece that a notebook shows."""
    for cell in notebooks.load(path).cells:
        for output in cell.get("outputs", []):
            for kind, data in DATA.findall(output.get("data", {}).get("text/html", "")):
                yield kind, json.loads(data)


def questions(path: Path) -> list[Any]:
    """The data of each question, those of sheets and labs too."""
    return [one for kind, data in pieces(path) for one in inside(data, kind)]


def inside(data: Any, kind: str) -> Iterator[Any]:
    if isinstance(data, dict) and data.get("type") in {"choice", "number"} and "key" in data:
        # a lab's questions lock what stands behind them in the lab
        yield {**data, "locked": data["locked"] or kind not in {"question", "sheet"}}
    elif isinstance(data, dict | list):
        for member in data.values() if isinstance(data, dict) else data:
            yield from inside(member, kind)


def prose_questions() -> list[Any]:
    """The data of each question of the prose pages."""
    return [
        one
        for piece in page_questions.questions().values()
        for one in inside(piece.data, piece.kind)
    ]


def test_prose_pages_ask_what_there_is() -> None:
    files = [*(books.ROOT / "book").glob("*.md"), books.ROOT / "index.md"]
    pages = [path.read_text("utf-8") for path in files]
    asked = re.findall(r"^:::\{ask\} (\S+)$", "\n".join(pages), re.MULTILINE)
    assert sorted(asked) == sorted(page_questions.questions())
    assert [one for question in prose_questions() for one in problems(question)] == []


def problems(question: Any) -> list[str]:
    """What is wrong with one question."""
    key, found = question["key"], []
    if question["type"] == "choice":
        said = [option["feedback"] for option in question["options"]]
        if len(set(said)) < len(said):
            found.append(f"{key}: two options have the same feedback")
        found += [
            f"{key}: the feedback {one!r} is too short to help" for one in said if len(one) < 15
        ]
    elif not question["why"]:
        found.append(f"{key}: the solution comes without a why")
    if "$" in question["question"] or "`" in question["question"]:
        found.append(f"{key}: formulas and code are not set in questions: {question['question']!r}")
    return found


@pytest.mark.parametrize("path", ALL, ids=IDS)
def test_questions_are_sound(path: Path) -> None:
    assert [one for question in questions(path) for one in problems(question)] == []


@pytest.mark.parametrize("path", ALL, ids=IDS)
def test_a_chapter_asks_before_it_answers(path: Path) -> None:
    if path.stem in PLAIN:
        assert questions(path) == [], "it asks now: take it out of PLAIN"
        pytest.skip("its questions are Markdown")
    locks = [one["key"] for one in questions(path) if one["locked"]]
    assert len(locks) >= LEAST
    assert "sheet" in [kind for kind, _ in pieces(path)], "no checked exercises"
    text = "\n".join(c.source for c in notebooks.load(path).cells if c.cell_type == "markdown")
    assert "**Predict" not in text, "a question that locks nothing"


def test_keys_are_unique_in_the_book() -> None:
    everywhere = [question for path in ALL for question in questions(path)] + prose_questions()
    counts = Counter(question["key"] for question in everywhere)
    assert [key for key, count in counts.items() if count > 1] == []


def test_outputs_carry_the_present_script() -> None:
    old = [path.name for path in ALL if restamp.restamp(path, write=False)]
    assert old == [], "run tools/notebooks/restamp.py"


def shown(*elements: ask.Element) -> Any:
    outputs = [
        nbformat.v4.new_output("execute_result", data=e._repr_mimebundle_()) for e in elements
    ]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=outputs)])


def test_poor_questions_are_noticed(tmp_path: Path) -> None:
    poor = ask.choice(
        "Is $N$ large?", {"yes": "No.", "no": "It is small, yes."}, right="no", key="a"
    )
    bare = ask.number("How much?", solution=3, key="b", then=poor)
    path = tmp_path / "a.ipynb"
    nbformat.write(shown(bare, ask.sheet(ask.number("How many?", solution=1, key="c"))), path)
    found = [one for question in questions(path) for one in problems(question)]
    assert [question["key"] for question in questions(path)] == ["b", "a", "c"]
    assert [one.split(":")[0] for one in found] == ["b", "a", "a", "c"]
