"""The chapters ask: sound questions, answers that the numbers bear out, checked exercises.

And no cell states an answer: it is in the question's fold alone.
"""

import json
import math
import re
from html import unescape

import pytest

import page_questions
from roofline_helpers.pages.questions import bank
from tools import books
from tools.notebooks import run as notebooks

ALL = books.notebooks()
IDS = [path.stem for path in ALL]
PIECE = re.compile(r"""<roofline-\w+ data-kind="([\w-]+)"[^>]* data-json='(.*?)'>""")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")


def code(path):
    """The code cells of a notebook."""
    return [cell for cell in notebooks.load(path).cells if cell.cell_type == "code"]


def html(path):
    """The HTML of each output of a notebook."""
    for cell in code(path):
        yield from (output.get("data", {}).get("text/html", "") for output in cell.outputs)


def pieces(path):
    """The kind and the data of each interactive piece that a notebook shows."""
    for each in html(path):
        for kind, data in PIECE.findall(each):
            yield kind, json.loads(data)


def questions(data):
    """The data of each question of a piece, those of sheets and labs too."""
    if isinstance(data, dict) and data.get("type") in {"choice", "number"} and "key" in data:
        yield data
    elif isinstance(data, dict | list):
        for member in data.values() if isinstance(data, dict) else data:
            yield from questions(member)


def test_every_question_is_asked_once_and_where_it_belongs():
    faults = []
    for path in ALL:
        shown = sorted(q["key"] for _, data in pieces(path) for q in questions(data))
        mine = sorted(key for key, asked in bank().items() if asked.chapter == path.stem)
        faults += [] if shown == mine else [(path.stem, set(shown) ^ set(mine))]
    assert faults == []
    assert {asked.chapter for asked in bank().values()} <= {path.stem for path in ALL}


def test_prose_pages_ask_what_there_is():
    files = [*(books.ROOT / "book").glob("*.md"), books.ROOT / "index.md"]
    pages = [path.read_text("utf-8") for path in files]
    asked = re.findall(r"^:::\{ask\} (\S+)$", "\n".join(pages), re.MULTILINE)
    assert sorted(asked) == sorted(page_questions.questions())


LAB = "lab-"  # in a lab the reader sets the values first


@pytest.mark.parametrize("path", [one for one in ALL if not one.stem.startswith(LAB)])
def test_reasoning_stands_between_a_question_and_what_shows_its_answer(path):
    """A table right under its question answers it before anybody has thought."""
    bare = []
    for each in html(path):
        key = re.search(r'"key":"([\w-]+)"', each)
        _, found, below = each.partition('<div class="then">')
        if key and found and not (below.lstrip().startswith("<p>") and bank()[key[1]].entry.above):
            bare.append(key[1])
    assert bare == []


# --- no cell states an answer ---------------------------------------------------------------------


def answers(html):
    """The options of each question in an output, and its right answers, from its fold."""
    for question in re.findall(r"(?:<ul>(.*?)</ul>\s*)?<details>(.*?)</details>", html, re.DOTALL):
        options = [unescape(one) for one in re.findall(r"<li>(.*?)</li>", question[0])]
        right = re.findall(r"<p><strong>(.*?)\.?</strong>", question[1])
        yield options, [unescape(one) for one in right]


def telling(answer):
    """What of an answer would give it away: a phrase, or a number of three digits or more.

    Not a power of two: those are sizes, and everywhere.
    """
    if len(answer.split()) > 2:
        return [answer]
    numbers = NUMBER.findall(answer.replace(",", ""))
    return [n for n in numbers if len(n.strip("0.")) > 2 and not math.log2(float(n)).is_integer()]


def has(text, answer):
    """Whether a text says an answer."""
    if NUMBER.fullmatch(answer):
        plain = re.sub(r"(?<=\d)[_,](?=\d)", "", text)
        return bool(re.search(rf"(?<![\w.]){re.escape(answer)}(?![\w.])", plain))
    return answer in text


@pytest.mark.parametrize("path", ALL, ids=IDS)
def test_no_answer_is_in_a_notebook_s_source(path):
    """Neither in its code nor, as a phrase, in the text above the question."""
    source = "\n".join(cell.source for cell in code(path))
    above, leaks, count = "", [], 0
    for cell in notebooks.load(path).cells:
        if cell.cell_type == "markdown":
            above += cell.source
            continue
        for output in cell.outputs:
            for options, right in answers(output.get("data", {}).get("text/html", "")):
                count += len(right)
                if options and all(has(source, option) for option in options):
                    continue  # they are what the chapter is about: none is told from the others
                leaks += [one for answer in right for one in telling(answer) if has(source, one)]
                leaks += [one for one in right if len(one.split()) > 2 and has(above, one)]
    assert count > 0 or "rh.pages." not in source
    assert leaks == []


@pytest.mark.parametrize("path", ALL, ids=IDS)
def test_what_a_page_prints_is_accepted(path):
    """The solution as it is shown, typed into the field, is right."""
    faults = []
    for _, data in pieces(path):
        for asked in questions(data):
            if asked["type"] == "number" and not asked["decades"]:
                printed = float(asked["answer"].split()[0].replace(",", "").rstrip("%"))
                if abs(printed - asked["solution"]) > asked["slack"] * (1 + 1e-12):
                    faults.append(asked["key"])
    assert faults == []


# --- the answer that a file marks as right is what the numbers say --------------------------------

# A question, a number that its answer says (or a ratio of two), and from where to where it may lie
FOLLOWS = [
    ("ct-side", r"(\d+)% of all rows", 70, 100),
    ("co-axes", r"([\d.]+) times the time", 0.45, 0.6),
    ("co-ways", r"(\d+) µs, where one shot takes (\d+)", 1.1, 100),
    ("co-ways", r"and (\d+) µs\..*everyone: ([\d,]+) µs", 0, 0.9),
    ("lab-design-prefill", r"([\d.]+)× as many", 1.22, 1.3),
    ("lab-design-chips", r"([\d.]+) ms with four, ([\d.]+) ms with eight", 1.15, 1.7),
    ("lab-wall-orin", r"ridge is at ([\d,]+) FLOP/byte, the matmul at ([\d,]+)", 0, 0.99),
    ("mk-median", r"about (\d+)%.*median of large matmuls is (\d+)%", 0.4, 0.7),
    ("pd-mesh", r"takes ([\d.]+) s, the other ([\d.]+) s", 0, 0.98),
    ("me-split", r"weights: ([\d.]+) ms instead of\s+([\d.]+) ms", 1.1, 10),
    ("pd-refuse", r"([\d.]+) GB too much", 0.1, 100),
    ("sv-narrow", r"([\d.]+) times in the median", 0.8, 1.05),
    ("sv-guess", r"factor of ([\d.]+)", 0.85, 1),
    ("sh-ring", r"takes ([\d.]+) ms with the parts in order and ([\d.]+) ms in zigzag", 1.5, 2),
    ("first-triad", r"It is (\d+) times", 30, 300),
    ("first-batch", r"([\d.]+) times as long\. Both", 1.15, 1.25),
    ("wt-healthy", r"([\d.]+) ms, most of it .* miss their roofs by ([\d.]+) ms", 1.1, 100),
]


@pytest.fixture(scope="module")
def folded():
    """The folded answer of each question, the right option first, as readers read it."""
    shown = [one for path in ALL for one in html(path)]
    shown += [piece.markup() for piece in page_questions.questions().values()]
    read = {}
    for one in shown:
        keys = [json.loads(data).get("key") for _, data in PIECE.findall(one)]
        if keys:
            answer = one.split("<details>", 1)[-1].split("</details>")[0]
            read[keys[0]] = unescape(re.sub(r"<[^<>]*>", "", answer))
    return read


@pytest.mark.parametrize(("key", "number", "low", "high"), FOLLOWS)
def test_the_right_answer_is_what_the_numbers_say(key, number, low, high, folded):
    said = re.search(number, folded[key], re.DOTALL)
    assert said, folded[key]
    values = [float(group.replace(",", "")) for group in said.groups()]
    assert low <= values[0] / (values[1] if values[1:] else 1) <= high
