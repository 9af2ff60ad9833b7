"""Numbers in the text of a notebook are computed in that notebook.

Every number in Markdown, in a caption or in an alt text must be one that a cell prints, shows in a
table, or is given as input. Small whole numbers are words, not results. What a question says to an
answer is text too: its numbers come from f-strings, or are given in the question.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tools import books

NUMBER = re.compile(r"(?<![\w.^])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|(?<![\w.^])\d+(?:\.\d+)?")
# Formulas, code, links, and how long a chapter takes
ASK = re.compile(r"(rh\.)?ask\.(choice|number)$")
NOT_TEXT = re.compile(r"\$[^$]*\$|`[^`]*`|\]\([^)]*\)|https?://\S+|About \d+ minutes")
WORDS = 20  # whole numbers up to this are words


def numbers(text: str) -> list[tuple[str, float, float]]:
    """Return each number of a text: as written, its value, and half a unit of its last digit."""
    found = []
    for match in NUMBER.finditer(text):
        plain = match.group().replace(",", "")
        decimals = len(plain.partition(".")[2])
        found.append((match.group(), float(plain), 0.5 * 10.0**-decimals))
    return found


def said(cell: Any) -> tuple[str, list[str]]:
    """Return a cell's source with its questions but nothing that they say, and what they say.

    Feedback, hints and reasons are said; what an f-string computes is not text. Options are names:
    they may hold any number, and prove none.
    """
    lines = [line if line[:1] not in ("%", "!") else "" for line in cell.source.split("\n")]
    tree = ast.parse("\n".join(lines))
    texts: list[str] = []
    names: list[str] = []

    def take(node: ast.AST, to: list[str]) -> None:
        if isinstance(node, ast.Call) and ASK.match(ast.unparse(node.func)):
            ask(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            to.append(node.value)
            node.value = ""
        elif isinstance(node, ast.FormattedValue):
            take(node.value, to)
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                if key:
                    take(key, names)
            for value in node.values:
                take(value, to)
        else:
            for inner in ast.iter_child_nodes(node):
                take(inner, to)

    def ask(call: ast.Call) -> None:
        for part in call.args[1:]:
            take(part, texts)
        for word in call.keywords:
            if word.arg == "then":
                later(word.value)
                continue
            take(word.value, names if word.arg in {"key", "unit", "right", "lead"} else texts)

    def later(node: ast.AST) -> None:
        """What an answer unlocks: texts and questions; tables and figures show what they show."""
        if isinstance(node, ast.List | ast.Tuple):
            for inner in node.elts:
                later(inner)
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            take(node, texts)
        else:
            find(node)

    def find(node: ast.AST) -> None:
        if isinstance(node, ast.Call) and ASK.match(ast.unparse(node.func)):
            ask(node)
        else:
            for inner in ast.iter_child_nodes(node):
                find(inner)

    find(tree)
    return (ast.unparse(tree) if texts or names else cell.source), texts


def shown(cell: Any) -> str:
    """Return what a code cell gives and shows: its source and its outputs as text."""
    source, texts = said(cell)
    found = [re.sub(r"(?<=\d)_(?=\d)", "", source)]  # 10_000 is 10000
    for output in cell.get("outputs", []):
        found.append(output.get("text", ""))
        plain = output.get("data", {}).get("text/plain", "")
        if texts:  # what a question offers and says is not what the cell computes
            plain = re.sub(r"^  - .*", "", plain, flags=re.MULTILINE)
            for text in texts:
                plain = plain.replace(" ".join(text.split()), " ") if len(text) > 5 else plain
        found.append(plain)
    return "\n".join(found)


def uncomputed(notebook: Any) -> list[str]:
    """Return the numbers of the prose that no cell gives, each with some words around it."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    computed = [value for cell in code for _, value, _ in numbers(shown(cell))]
    texts = [NOT_TEXT.sub(" ", c.source) for c in notebook.cells if c.cell_type == "markdown"]
    for cell in code:
        texts += said(cell)[1]
        picture = cell.metadata.get("mystnb", {})
        texts.append(picture.get("image", {}).get("alt", ""))
        texts.append(picture.get("figure", {}).get("caption", ""))
    missing = []
    for text in texts:
        for written, value, slack in numbers(text):
            word = value == int(value) and value <= WORDS
            if not word and not any(abs(value - c) <= slack * 1.0001 for c in computed):
                at = text.index(written)
                missing.append(f"{written}: …{text[max(0, at - 40) : at + 40]!r}…")
    return missing


@pytest.mark.parametrize("path", books.notebooks(), ids=lambda path: path.stem)
def test_numbers_in_the_text_are_computed(path: Path) -> None:
    assert uncomputed(nbformat.read(path, as_version=4)) == []


def test_an_invented_number_is_found() -> None:
    cells = [
        nbformat.v4.new_code_cell("7 * 6", outputs=[nbformat.v4.new_output("stream", text="42")]),
        nbformat.v4.new_markdown_cell("It is 42, in other words 42.0, not 43 or 42.4."),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    assert [line.split(":")[0] for line in uncomputed(notebook)] == ["43", "42.4"]


def test_an_invented_number_in_a_question_is_found() -> None:
    source = """
rh.ask.choice(
    "A batch of 4096?",
    {"97": "It is 4096, or 77.", "no": f"It is {x} of 78."},
    right="no", key="a-4099", then=rh.ask.number("At 500?", solution=99, why="500 and 98 make 99"),
)"""
    plain = "A batch of 4096?\n  - 97\n  - no\nAnswer: no. It is 66 of 78.\n500 and 98 make 99"
    output = nbformat.v4.new_output("execute_result", data={"text/plain": plain})
    cells = [
        nbformat.v4.new_code_cell(source, outputs=[output]),
        nbformat.v4.new_markdown_cell("It is 66 of a 4096, or a 97."),
    ]
    found = uncomputed(nbformat.v4.new_notebook(cells=cells))
    assert [line.split(":")[0] for line in found] == ["97", "77", "78", "98"]
