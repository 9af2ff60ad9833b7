"""Questions on the page: predict first, then see; and exercises that check a number.

A question is an object that shows itself in a notebook and on the published page. What it unlocks
is part of it, so that both are one output; any answer unlocks, a wrong one too. Without JavaScript
the question stands there with its answer folded.

>>> q = choice("Which is larger?", {"2": "Right.", "1": "It is smaller."}, right="2", key="larger")
>>> print(q)
Which is larger?
  - 2
  - 1
Answer: 2. Right.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from io import BytesIO
from typing import Any

from roofline_helpers import show
from roofline_helpers._checks import BadType, BadValue, finite, flag, name_of, shown, single, text
from roofline_helpers.show import table_html

BUNDLES: Mapping[str, tuple[str, ...]] = {
    "ask": ("numbers.js", "style.js", "core.js"),
    "lab": ("numbers.js", "style.js", "core.js", "model.js", "chart.js", "labs.js"),
}
"""Scripts of each kind of element: a question in a notebook doesn't bring the labs along."""

LARGEST_ANSWER = 1e30
"""No number above this is accepted in a field."""

_KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


# --- the script ----------------------------------------------------------------------------------


@functools.cache
def _sources(bundle: str) -> str:
    parts = []
    for name in BUNDLES[bundle]:
        if name == "model.js":  # what Python knows already is handed over, not typed again
            from roofline_helpers import serving

            parts.append(f"const tables = {_json(serving.tables())};")
        path = resources.files("roofline_helpers") / "assets" / name
        parts.append(path.read_text("utf-8"))
    # As it is written, less the comments and the indentation
    code = re.sub(r"^ */\*.*?\*/ *$", "", "\n".join(parts), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\n+", "\n", re.sub(r"^ *(//.*)?", "", code, flags=re.MULTILINE)).strip()


@functools.cache
def tag(bundle: str) -> str:
    """Return the name of the HTML element: it has the script's hash, for a name is defined once."""
    digest = hashlib.sha256(_sources(bundle).encode()).hexdigest()
    return f"roofline-{bundle}-{digest[:8]}"


def script(bundle: str, tags: Sequence[str] | None = None) -> str:
    """Return the JavaScript that brings elements to life.

    Parameters
    ----------
    bundle : str
        "ask" (questions) or "lab" (everything).
    tags : sequence of str, optional
        Names of the elements to define; the bundle's own if not given.
    """
    body = _sources(name_of("bundle", bundle, BUNDLES))
    start = f"core.start({_json(list(tags or [tag(bundle)]))});"
    return f'(() => {{\n"use strict";\n{body}\n{start}\n}})();\n'


def opening() -> str:
    """Return the tag that opens an element's script, by which tools find it again."""
    return '<script type="module" data-roofline>'


# --- elements ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Element:
    """An interactive piece: shows itself in notebooks and on the page, and as text elsewhere.

    Parameters
    ----------
    kind : str
        What `core.define` names in JavaScript.
    data : mapping
        What it is made from; goes to JavaScript as JSON.
    fallback : str
        HTML that stands there without JavaScript.
    plain : str
        The same as text.
    then : str
        HTML that is shown once the element unlocks it.
    bundle : str
        The scripts it needs: "ask" or "lab".
    inner : tuple of Element
        Elements inside `then`.
    """

    kind: str
    data: Mapping[str, Any]
    fallback: str
    plain: str
    then: str = ""
    bundle: str = "ask"
    inner: tuple[Element, ...] = ()

    def markup(self) -> str:
        """Return the element's HTML without its script, for use inside another one."""
        locked = f"\n<div data-then>\n{self.then}\n</div>" if self.then else ""
        marked = self.fallback if _LOCKED in self.fallback else self.fallback + _LOCKED
        return (
            f'<{tag(self.bundle)} data-kind="{escape(self.kind)}" '
            # JupyterLab's command mode takes the arrow keys unless this stands here
            'data-lm-suppress-shortcuts="true">\n'
            f'<script type="application/json">{_json(self.data)}</script>\n'
            f"{marked.replace(_LOCKED, locked)}\n</{tag(self.bundle)}>"
        )

    def html(self) -> str:
        """Return the element's HTML with its script, as a notebook stores it."""
        bundles = sorted({one.bundle for one in self._all()})
        code = script("lab" if "lab" in bundles else "ask", [tag(one) for one in bundles])
        return f"{self.markup()}\n{opening()}\n{code}</script>"

    def _all(self) -> list[Element]:
        return [self, *(deep for one in self.inner for deep in one._all())]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.plain}

    def __repr__(self) -> str:
        return self.plain


_LOCKED = "<!-- then -->"


def _json(value: Any) -> str:
    """Return JSON that can stand inside a script element."""
    dumped = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return dumped.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _folded(question: str, lines: Iterable[str], options: Sequence[str], lead: str) -> str:
    """Return a question as it stands without JavaScript, with its answer folded."""
    listed = "".join(f"<li>{escape(one)}</li>" for one in options)
    bold = f"<strong>{escape(lead)}</strong> " if lead else ""
    paragraphs = "".join(f"<p>{line}</p>" for line in lines)
    return (
        f"<p>{bold}{escape(question)}</p>\n"
        + (f"<ul>{listed}</ul>\n" if listed else "")
        + f"<details><summary>Answer</summary>\n{paragraphs}{_LOCKED}\n</details>"
    )


# --- arguments -----------------------------------------------------------------------------------


def filled(name: str, given: Any) -> str:
    """Return a text that is not empty, on one line."""
    line = " ".join(text(name, given).split())
    if not line:
        raise BadValue(f"{name} must not be empty")
    return line


def key_of(given: Any) -> str:
    """Return the name of a question or an instrument; raise BadValue if it is spelled otherwise."""
    if not isinstance(given, str) or not _KEY.fullmatch(given):
        raise BadValue(
            f"key must be lower-case words joined by '-', such as 'ai-decode', got {shown(given)}"
        )
    return given


def _shown_later(
    then: Any, alt: str | None, caption: str | None
) -> tuple[str, str, tuple[Element, ...]]:
    """Return what an answer unlocks as HTML, as text, and the elements in it."""
    if then is None:
        return "", "", ()
    if isinstance(then, list | tuple):
        parts = [_shown_later(one, alt, caption) for one in then]
        return (
            "\n".join(html for html, _, _ in parts),
            "\n".join(plain for _, plain, _ in parts),
            tuple(element for _, _, inner in parts for element in inner),
        )
    if isinstance(then, Element):
        return then.markup(), then.plain, (then,)
    if isinstance(then, str):
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", then.strip())]
        return "".join(f"<p>{escape(part)}</p>" for part in paragraphs), then.strip(), ()
    if hasattr(then, "to_html") and hasattr(then, "columns"):  # a table of pandas
        return table_html(then), then.to_string(), ()
    figure = then if hasattr(then, "savefig") else getattr(then, "figure", None)
    if hasattr(figure, "savefig"):
        return _picture(figure, alt, caption), f"Figure: {alt}", ()
    own = getattr(then, "_repr_html_", None)
    if own is not None and (html := own()):
        return str(html), repr(then), ()
    raise BadType(
        "then must be a table, a figure or its axes, an element, a text, or a list of these, "
        f"got {shown(then)}"
    )


def _picture(figure: Any, alt: str | None, caption: str | None = None) -> str:
    """Return a Matplotlib figure as an image of twice the page's pixels, and close it."""
    if alt is None or len(filled("alt", alt)) < 40:
        raise BadValue(
            "a figure in then needs alt=, a sentence of at least 40 characters that says what the "
            f"figure shows, got {shown(alt)}"
        )
    below = f"<figcaption>{escape(filled('caption', caption))}</figcaption>" if caption else ""
    import matplotlib.pyplot as plt

    buffer = BytesIO()
    dpi = 2 * figure.dpi
    figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)  # not shown a second time below the cell
    data = buffer.getvalue()
    # Width and height stand in a PNG's first chunk
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    return (
        f'<figure><img src="data:image/png;base64,{b64encode(data).decode()}" alt="{escape(alt)}" '
        f'width="{round(width / 2)}" height="{round(height / 2)}">{below}</figure>'
    )


# --- questions -----------------------------------------------------------------------------------


def choice(
    question: str,
    options: Mapping[str, str],
    *,
    right: str | Sequence[str],
    key: str,
    then: Any = None,
    alt: str | None = None,
    caption: str | None = None,
    multi: bool = False,
    lead: str | None = None,
) -> Element:
    """Return a question with answers to choose from.

    Parameters
    ----------
    question : str
        Plain text.
    options : mapping of str to str
        Each answer and what is said to those who choose it: why it is right, or which
        misunderstanding leads to it. At least two; no two feedbacks are the same.
    right : str or sequence of str
        The right answer; several where ``multi``.
    key : str
        Its name in the reader's ledger, unique in the book: "ai-decode".
    then : table, figure, element, text, or a list of these
        What an answer unlocks, right or wrong.
    alt, caption : str
        What the figure in `then` shows, for those who don't see it; and what stands below it.
    multi : bool
        Whether several may be chosen: check boxes.
    lead : str, optional
        The bold word before it: "Predict." where there is `then`.

    Raises
    ------
    BadType, BadValue, UnknownName
        Something missing or empty; a right answer that is no option; a figure without `alt`.
    """
    question = filled("question", question)
    if not isinstance(options, Mapping) or len(options) < 2:
        raise BadType(
            f"options must map at least two answers to what is said of each, got {shown(options)}"
        )
    said = {
        filled("an option", option): filled(f"the feedback of {option!r}", feedback)
        for option, feedback in options.items()
    }
    if len(set(said.values())) < len(options):
        raise BadValue("each option needs its own feedback: two of these are the same")
    many = flag("multi", multi)
    if isinstance(right, str) and not many:
        wanted = [right]
    elif not many or isinstance(right, str) or not isinstance(right, Iterable):
        raise BadType(
            f"right must be one option, or a list of options with multi=True, got {shown(right)}"
        )
    else:
        wanted = list(right)
    folded = [" ".join(one.split()) if isinstance(one, str) else one for one in wanted]
    correct = [name_of("right answer", one, said) for one in folded]
    if not correct:
        raise BadValue("right must name at least one option")
    later, later_plain, inner = _shown_later(then, alt, caption)
    lead = _lead(lead, later)
    data = {
        "type": "choice",
        "key": key_of(key),
        "question": question,
        "lead": lead,
        "multi": many,
        "options": [
            {"text": option, "feedback": feedback, "right": option in correct}
            for option, feedback in said.items()
        ],
        "reveal": True,
        "locked": bool(later),
    }
    answers = [f"{one}. {said[one]}" for one in correct]
    others = [
        f"Not {escape(one)}: {escape(feedback)}"
        for one, feedback in said.items()
        if one not in correct
    ]
    lines = [
        *(f"<strong>{escape(one)}.</strong> {escape(said[one])}" for one in correct),
        *others,
    ]
    listed = [question, *(f"  - {one}" for one in said)]
    return Element(
        "question",
        data,
        _folded(question, lines, list(said), lead),
        _plain(listed, " ".join(answers), later_plain),
        later,
        inner=inner,
    )


def number(
    question: str,
    *,
    solution: Any,
    key: str,
    unit: str = "",
    tolerance: float | None = None,
    decades: float | None = None,
    feedback: Iterable[tuple[Any, str]] = (),
    hint: str = "",
    why: str = "",
    then: Any = None,
    alt: str | None = None,
    caption: str | None = None,
    answer: Any = None,
    smallest: float = 0.0,
    integer: bool = False,
    digits: int = 3,
    reveal: bool = True,
    lead: str | None = None,
) -> Element:
    """Return a question whose answer is a number.

    Parameters
    ----------
    question : str
        Plain text; say the unit.
    solution : number
        Computed, in `unit`.
    key : str
        Its name in the reader's ledger, unique in the book.
    unit : str
        Shown behind the field and the solution.
    tolerance : float
        Largest relative difference that counts as right: 0.02 if not given.
    decades : float
        For estimates, in place of `tolerance`: largest distance in powers of ten.
    feedback : iterable of (value, text) or ((low, high), text)
        What is said to known wrong answers, the first that fits. A single value is met within
        `tolerance` (2 % for estimates).
    hint : str
        Said after a wrong answer where the solution is not shown at once (in a `sheet`).
    why : str
        Said with the solution.
    then, alt, caption
        As in `choice`: any number unlocks.
    answer : number, optional
        What the reader has put into the notebook; None is "not answered".
    smallest : float
        Least number that the field accepts.
    integer : bool
        Whether the field accepts whole numbers only.
    digits : int
        Significant digits of the solution as shown.
    reveal : bool
        Whether any answer shows the solution at once; False: it is one click away.
    lead : str, optional
        The bold word before it: "Predict." where there is `then`.

    Raises
    ------
    BadType, BadValue
        Something missing or empty; a solution or an answer that is no finite number, that is less
        than `smallest`; with ``integer``, an answer that is not whole, or a solution that no whole
        number meets; both tolerances.
    """
    question = filled("question", question)
    exact = finite("solution", solution)
    if tolerance is not None and decades is not None:
        raise BadValue("give tolerance or decades, not both")
    within = single("tolerance", 0.02 if tolerance is None else tolerance)
    spread = None if decades is None else single("decades", decades)
    if spread is not None and exact <= 0:
        raise BadValue(f"decades needs a solution above zero, got {shown(solution)}")
    least = finite("smallest", smallest)
    if not least <= exact <= LARGEST_ANSWER:
        raise BadValue(f"solution must be from {least:g} to {LARGEST_ANSWER:g}, got {exact:g}")
    behind = " ".join(text("unit", unit).split())
    worded = f"{show.significant(exact, digits)} {behind}".rstrip()
    why = " ".join(text("why", why).split())
    known = []
    for one in feedback if isinstance(feedback, Iterable) else [feedback]:
        if not isinstance(one, tuple | list) or len(one) != 2:
            raise BadType(f"feedback must be pairs of value and text, got {shown(one)}")
        low, high = _range(one[0], within)
        if low <= exact <= high:
            raise BadValue(f"feedback for {shown(one[0])} would also meet the solution, {exact:g}")
        known.append([low, high, filled("a feedback", one[1])])
    given = None if answer is None else finite("answer", answer)
    only_whole = flag("integer", integer)
    if only_whole and spread is None and abs(round(exact) - exact) > within * abs(exact):
        raise BadValue(f"solution must be near a whole number with integer=True, got {exact:g}")
    if only_whole and given is not None and not given.is_integer():
        raise BadValue(f"answer must be a whole number with integer=True, got {given:g}")
    later, later_plain, inner = _shown_later(then, alt, caption)
    lead = _lead(lead, later)
    data = {
        "type": "number",
        "key": key_of(key),
        "question": question,
        "lead": lead,
        "solution": exact,
        "answer": worded,
        "unit": behind,
        "tolerance": within,
        "decades": spread,
        "min": least,
        "max": LARGEST_ANSWER,
        "integer": only_whole,
        "feedback": known,
        "hint": " ".join(text("hint", hint).split()),
        "why": why,
        "value": given,
        "reveal": flag("reveal", reveal) or bool(later),
        "locked": bool(later),
    }
    lines = [f"<strong>{escape(worded)}</strong>" + (f": {escape(why)}" if why else "")]
    said = f"{worded}." + (f" {why}" if why else "")
    if given is not None:
        verdict = _verdict(given, exact, behind, within, spread, least)
        lines.insert(0, escape(verdict))
        said = f"{verdict} {said}"
    return Element(
        "question",
        data,
        _folded(question, lines, [], lead),
        _plain([question], said, later_plain),
        later,
        inner=inner,
    )


def sheet(*exercises: Element) -> Element:
    """Return exercises as one numbered list, each with its field, its check and its solution.

    The solution is one click away; a wrong answer does not show it.

    Parameters
    ----------
    exercises : Element
        What `choice` and `number` return, without `then`.

    Raises
    ------
    BadType, BadValue
        None at all, something else, one that unlocks something, or two with one key.
    """
    for one in exercises:
        if not isinstance(one, Element) or one.kind != "question":
            raise BadType(f"a sheet holds what choice and number return, got {shown(one)}")
        if one.then:
            raise BadValue(f"exercise {one.data['key']!r} has then=: that is for questions alone")
    keys = [one.data["key"] for one in exercises]
    if not exercises or len(set(keys)) < len(keys):
        raise BadValue(f"a sheet needs exercises, each with its own key, got {keys}")
    items = "".join(f"<li>{one.fallback.replace(_LOCKED, '')}</li>" for one in exercises)
    return Element(
        "sheet",
        {"exercises": [{**one.data, "reveal": False} for one in exercises]},
        f"<ol>{items}</ol>",
        "\n".join(f"{i}. {one.plain}" for i, one in enumerate(exercises, 1)),
    )


def ledger() -> Element:
    """Return a table of what the reader has answered in this browser, with export and reset."""
    said = "Your answers in this book stand here, in a browser that runs its scripts."
    return Element("ledger", {}, f"<p>{said}</p>", said)


def _lead(given: str | None, later: str) -> str:
    return ("Predict." if later else "") if given is None else text("lead", given)


def _plain(lines: list[str], answer: str, later: str) -> str:
    return "\n".join([*lines, f"Answer: {answer}", *([later] if later else [])])


def _verdict(
    given: float, exact: float, unit: str, within: float, spread: float | None, least: float
) -> str:
    if spread is not None:
        near = given > 0 and abs(math.log10(given / exact)) <= spread
        within = max(1.001 * abs(given / exact - 1), 1e-12) if near else 1e-12
    return repr(show.check(given, exact, unit, within, least))


def _range(given: Any, tolerance: float) -> tuple[float, float]:
    """Return the least and the largest number that a feedback is for."""
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise BadType(f"a range is (low, high), got {shown(given)}")
        low, high = (finite("an end of a range", one) for one in given)
        if low > high:
            raise BadValue(f"a range is (low, high), got {shown(given)}")
        return low, high
    value = finite("a feedback's value", given)
    spare = abs(value) * min(tolerance, 0.02)
    return value - spare, value + spare
