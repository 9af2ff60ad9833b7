"""Pages with questions, for the tests of questions in a browser."""

import json
from collections.abc import Callable
from html import escape
from typing import Any

import pytest
from playwright.sync_api import Page

import roofline_helpers as rh
from roofline_helpers.pages import questions

TABLE = rh.table(
    [
        {"N": 64, "FLOP/byte": 21.3},
        {"N": 256, "FLOP/byte": 85.3},
    ]
)
OPTIONS = {
    "the batch": "The smallest dimension decides.",
    "4096": "It is large beside the batch.",
    "16384": "The largest dimension matters least.",
}
HEAD = (
    "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Questions</title>"
    "<meta name='viewport' content='width=device-width'>{head}</head>"
)
DARK = (
    "<style>@media (prefers-color-scheme: dark) {body {background: #121212; color: #eee}}</style>"
)


def asked(key, prompt, options=None, *, right=(), then=None, **fields):
    """A question that is in no file."""
    entry: Any
    if options:
        listed = [questions.Option(*words) for words in options.items()]
        entry = questions.ChoiceEntry(prompt=prompt, options=listed, **fields)
    else:
        entry = questions.NumberEntry(prompt=prompt, **fields)
    named = [right] if isinstance(right, str) else right
    return questions.build(key, questions.Asked("t", False, entry), {}, named, then)


def choice(then=None, key="t-choice"):
    return asked(key, "Which decides?", OPTIONS, right="the batch", then=then)


def number(**more):
    fields = {"solution": 1024 / 3, "unit": "FLOP/byte", "key": "t-number"} | more
    return asked(prompt="What is the intensity?", **fields)


def multi():
    options = {"reads": "They cross.", "writes": "They cross too.", "adds": "They stay inside."}
    right = ["reads", "writes"]
    return asked("t-multi", "What moves bytes?", options, right=right, multi=True)


def sheet():
    wrong = [questions.Wrong("That is N.", 1024)]
    return questions.sheet(
        number(key="t-ex", hint="Count three matrices.", why="N/3", wrong=wrong),
        multi(),
        asked("t-whole", "How many tokens?", solution=7, integer=True),
    )


Show = Callable[..., Page]


@pytest.fixture
def show(visit, serve, tmp_path):
    """Return a function that opens a page with these elements."""

    def open_page(*elements, head="", body="", **options):
        html = "\n".join(element.html() for element in elements)
        text = HEAD.format(head=DARK + head) + f"<body><main><h1>Questions</h1>{html}{body}</main>"
        (tmp_path / "index.html").write_text(text, "utf-8")
        return visit(serve(tmp_path) + "index.html", **options)

    return open_page


def piece(page, kind="question"):
    return page.locator(f"[data-kind={kind}]").first


def status(page):
    return " ".join(page.get_by_role("status").all_text_contents()).strip()


def stored(page):
    kept = page.evaluate("Object.fromEntries(Object.entries(localStorage))")
    return {key: json.loads(value) for key, value in kept.items()}


def framed(show, *elements):
    """The elements as Colab shows an output: in a frame of its own, without the page's rights."""
    html = (
        HEAD.format(head="<meta name='color-scheme' content='light dark'>")
        + "<main><h1>Output</h1>"
    )
    source = escape(html + "\n".join(one.html() for one in elements) + "</main>", quote=True)
    frame = '<iframe title="output" sandbox="allow-scripts" width="600" height="900" '
    frame += f'srcdoc="{source}"></iframe>'
    page = show(body=frame)
    element = page.wait_for_selector("iframe")
    content = element.content_frame()
    content.wait_for_load_state()
    return content
