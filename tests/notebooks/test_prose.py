"""Numbers in the text of a notebook are computed in that notebook.

Every number in Markdown, in a caption or in an alt text must be one that a cell prints, shows in a
table, or is given as input. Small whole numbers are words, not results. What a question says to an
answer is text too: its numbers come from expressions, or are given in the question.
"""

import re
import string
from html import unescape

import nbformat
import pytest

from roofline_helpers.pages.questions import ChoiceEntry, bank
from tools import books

NUMBER = re.compile(r"(?<![\w.^])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|(?<![\w.^])\d+(?:\.\d+)?")
# Formulas, code, links, how long a chapter takes, and a chapter's number
NOT_TEXT = re.compile(
    r"\$\$[^$]*\$\$|\$[^$]*\$|`[^`]*`|\]\([^)]*\)|https?://\S+|About \d+ minutes|[Cc]hapter \d+"
)
WORDS = 20  # whole numbers up to this are words


def numbers(text):
    """Return each number of a text: as written, its value, and half a unit of its last digit."""
    read = []
    for match in NUMBER.finditer(text):
        plain = match.group().replace(",", "")
        decimals = len(plain.partition(".")[2])
        read.append((match.group(), float(plain), 0.5 * 10.0**-decimals))
    return read


def without_fields(text):
    """Return a question's text without what expressions compute."""
    return " ".join(literal for literal, *_ in string.Formatter().parse(text))


def said(asked):
    """Yield what a question says to an answer; options are names, and prove nothing."""
    entry = asked.entry
    texts = [entry.above, entry.below]
    if isinstance(entry, ChoiceEntry):
        texts += [one.feedback for one in entry.options]
    else:
        texts += [entry.hint, entry.why, *(one.feedback for one in entry.wrong)]
    yield from map(without_fields, texts)


def shown(cell):
    """Return what a code cell gives and shows: its source and its outputs as text."""
    texts = [re.sub(r"(?<=\d)_(?=\d)", "", cell.source)]  # 10_000 is 10000
    for output in cell.get("outputs", []):
        texts.append(output.get("text", ""))
        data = output.get("data", {})
        html = data.get("text/html", "")
        texts += re.findall(r'"answer":"(.*?)"', html)  # of numbers
        texts.append(re.sub(r"<p>.*?</p>|<[^<>]*>", " ", below(output), flags=re.DOTALL))
        plain, *_ = data.get("text/plain", "").partition("\nThe answer: rh.pages.answer(")
        texts.append(re.sub(r"^  - .*", "", plain, flags=re.MULTILINE))
    return "\n".join(texts)


def below(output):
    """Return the HTML of what stands below a question, or of an output that asks none."""
    html = output.get("data", {}).get("text/html", "")
    return unescape(html.partition('<div class="then">')[2] if "<roofline-" in html else html)


def filled_in(cell, literal):
    """Return the numbers that expressions put into the texts below a question."""
    texts = [re.findall(r"<p>(.*?)</p>", below(one), re.DOTALL) for one in cell.outputs]
    return [n for text in texts for written, n, _ in numbers(str(text)) if written not in literal]


def uncomputed(notebook, questions):
    """Return the numbers of the prose that no cell gives, each with some words around it."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    in_view = [shown(cell) for cell in code] + [asked.entry.prompt for asked in questions]
    computed = [value for text in in_view for _, value, _ in numbers(text)]
    texts = [NOT_TEXT.sub(" ", c.source) for c in notebook.cells if c.cell_type == "markdown"]
    spoken = [text for asked in questions for text in said(asked)]
    texts += spoken
    literal = {written for text in spoken for written, *_ in numbers(text)}
    for cell in code:
        computed += filled_in(cell, literal)
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
def test_numbers_in_the_text_are_computed(path):
    questions = [asked for asked in bank().values() if asked.chapter == path.stem]
    assert uncomputed(nbformat.read(path, as_version=4), questions) == []
