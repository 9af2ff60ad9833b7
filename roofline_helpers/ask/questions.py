"""What a question is made from: choices, numbers, sheets of exercises, and the reader's ledger."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from roofline_helpers._checks import (
    BadType,
    BadValue,
    finite,
    flag,
    name_of,
    shown,
    single,
    text,
    whole,
)
from roofline_helpers.ask.element import Element
from roofline_helpers.ask.render import filled, rendered
from roofline_helpers.judge import check, slack
from roofline_helpers.show import Text, significant

LARGEST_ANSWER = 1e30
"""No number above this is accepted in a field."""

_KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ANSWERS: dict[str, str] = {}  # of the questions made in this session, by key


def answer(key: str) -> Text:
    """Return a question's answer as text.

    Parameters
    ----------
    key : str
        Of a question that a cell of this session has asked.

    Raises
    ------
    BadType, UnknownName
        No such question so far.

    Examples
    --------
    >>> _ = choice("Larger?", {"2": "Right.", "1": "It is smaller."}, right="2", key="larger")
    >>> answer("larger")
    2. Right.
    """
    return Text(_ANSWERS[name_of("question asked in this session", key, _ANSWERS)])


def key_of(name: Any) -> str:
    """Return the name of a question or an instrument; raise BadValue if it is spelled otherwise.

    Examples
    --------
    >>> key_of("an-slope")
    'an-slope'
    """
    if not isinstance(name, str) or not _KEY.fullmatch(name):
        raise BadValue(
            f"key must be lower-case words joined by '-', such as 'ai-decode', got {shown(name)}"
        )
    return name


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
        What it asks about: it stands open below the question.
    alt, caption : str
        What the figure in `then` shows, for those who don't see it; and the caption below it.
    multi : bool
        Whether several may be chosen: check boxes.
    lead : str, optional
        The bold word before it: "Predict." where there is `then`.

    Raises
    ------
    BadType, BadValue, UnknownName
        Something missing or empty; a right answer that is no option; a figure without `alt`.

    Examples
    --------
    >>> print(choice("Larger?", {"2": "Right.", "1": "It is smaller."}, right="2", key="larger"))
    Larger?
      - 2
      - 1
    The answer: rh.ask.answer("larger")
    """
    question = filled("question", question)
    if not isinstance(options, Mapping) or len(options) < 2:
        raise BadType(
            f"options must map at least two answers to what is said of each, got {shown(options)}"
        )
    feedback = {
        filled("an option", option): filled(f"the feedback of {option!r}", words)
        for option, words in options.items()
    }
    if len(set(feedback.values())) < len(options):
        raise BadValue("each option needs its own feedback: two of these are the same")
    many = flag("multi", multi)
    correct = _right(right, many, feedback)
    later = rendered(then, alt, caption)
    data: dict[str, Any] = {
        "type": "choice",
        "key": key_of(key),
        "question": question,
        "lead": _lead(lead, later[0]),
        "multi": many,
        "options": [
            {"text": option, "feedback": words, "right": option in correct}
            for option, words in feedback.items()
        ],
    }
    answers = [
        (
            f"<p><strong>{escape(option)}.</strong>"
            if option in correct
            else f"<p>Not “{escape(option)}”:"
        )
        + f" {escape(feedback[option])}</p>"
        for option in sorted(feedback, key=lambda one: one not in correct)
    ]
    listed = [question, *(f"  - {one}" for one in feedback)]
    reply = " ".join(f"{one}. {feedback[one]}" for one in correct)
    return _made(data, _folded(data, answers), listed, reply, later)


def _right(right: Any, many: bool, options: Iterable[str]) -> list[str]:
    """Return the right ones among the options."""
    if isinstance(right, str) and not many:
        wanted = [right]
    elif not many or isinstance(right, str) or not isinstance(right, Iterable):
        raise BadType(
            f"right must be one option, or a list of options with multi=True, got {shown(right)}"
        )
    else:
        wanted = list(right)
    folded = [" ".join(one.split()) if isinstance(one, str) else one for one in wanted]
    correct = [name_of("right answer", one, options) for one in folded]
    if not correct:
        raise BadValue("right must name at least one option")
    return correct


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
        Largest relative difference that counts as right: 0.02 if not given. What is within half a
        unit of the last of `digits` is right in any case.
    decades : float
        For estimates, in place of `tolerance`: largest distance in powers of ten.
    feedback : iterable of (value, text) or ((low, high), text)
        What is said to known wrong answers, the first that fits. A single value is met within
        `tolerance` (2 % for estimates). Any other is told what `judge.slip` makes of it.
    hint : str
        Said after a wrong answer.
    why : str
        Said with the solution.
    then, alt, caption
        As in `choice`.
    answer : number, optional
        What the reader has put into the notebook; None is "not answered".
    smallest : float
        Least number that the field accepts.
    integer : bool
        Whether the field accepts whole numbers only.
    digits : int
        Significant digits of the solution as the page shows it; a whole one is shown whole.
    lead : str, optional
        The bold word before it: "Predict." where there is `then`.

    Raises
    ------
    BadType, BadValue
        Something missing or empty; a solution or an answer that is no finite number, that is less
        than `smallest`; with ``integer``, an answer that is not whole, or a solution that no whole
        number meets; both tolerances.

    Examples
    --------
    >>> print(number("FLOPs of a multiply-add?", solution=2, key="multiply-add"))
    FLOPs of a multiply-add?
    The answer: rh.ask.answer("multiply-add")
    >>> answer("multiply-add")
    2.
    """
    question = filled("question", question)
    of = _Solution.of(solution, unit, tolerance, decades, smallest, integer, digits)
    typed = None if answer is None else finite("answer", answer)
    if of.whole and typed is not None and not typed.is_integer():
        raise BadValue(f"answer must be a whole number with integer=True, got {typed:g}")
    why = " ".join(text("why", why).split())
    later = rendered(then, alt, caption)
    data = {
        "type": "number",
        "key": key_of(key),
        "question": question,
        "lead": _lead(lead, later[0]),
        "solution": of.exact,
        "answer": of.worded,
        "unit": of.unit,
        "slack": of.slack,
        "decades": of.decades,
        "min": of.least,
        "max": LARGEST_ANSWER,
        "integer": of.whole,
        "feedback": _known(feedback, of.exact, of.within, 0.0 if of.decades else of.slack),
        "hint": " ".join(text("hint", hint).split()),
        "why": why,
        "value": typed,
    }
    answers = [
        f"<p><strong>{escape(of.worded)}</strong>" + escape(f": {why}" if why else "") + "</p>"
    ]
    listed = [question]
    if typed is not None:
        place = (of.exact, of.unit, of.within, of.least)
        verdict = check(typed, *place, digits=of.digits, decades=of.decades)
        answers.insert(0, f"<p>{escape(verdict)}</p>")
        listed.append(verdict)
    reply = f"{of.worded}." + (f" {why}" if why else "")
    return _made(data, _folded(data, answers), listed, reply, later)


@dataclass(frozen=True)
class _Solution:
    """The solution of a question, checked, and what counts as right."""

    exact: float
    unit: str
    within: float
    decades: float | None
    least: float
    whole: bool
    digits: int

    @classmethod
    def of(
        cls,
        solution: Any,
        unit: str,
        tolerance: float | None,
        decades: float | None,
        smallest: float,
        integer: bool,
        digits: int,
    ) -> _Solution:
        """Check the arguments of `number`."""
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
        only = flag("integer", integer)
        if only and spread is None and abs(round(exact) - exact) > within * abs(exact):
            raise BadValue(f"solution must be near a whole number with integer=True, got {exact:g}")
        shown_as = min(len(f"{exact:.0f}"), 17) if only else whole("digits", digits, 17)
        return cls(exact, behind, within, spread, least, only, shown_as)

    @property
    def worded(self) -> str:
        """As the page shows it."""
        return f"{significant(self.exact, self.digits)} {self.unit}".rstrip()

    @property
    def slack(self) -> float:
        """How far from it an answer may be."""
        return slack(self.exact, self.within, self.digits)


def _known(
    feedback: Any, exact: float, tolerance: float, near: float
) -> list[tuple[float, float, str]]:
    """Return the range of each known wrong answer, and what is said to it."""
    known = []
    for one in feedback if isinstance(feedback, Iterable) else [feedback]:
        if not isinstance(one, tuple | list) or len(one) != 2:
            raise BadType(f"feedback must be pairs of value and text, got {shown(one)}")
        low, high = _range(one[0], tolerance)
        apart = isinstance(one[0], tuple | list) or abs(one[0] - exact) > near * (1 + 1e-12)
        if low <= exact <= high or not apart:
            raise BadValue(f"feedback for {shown(one[0])} would also meet the solution, {exact:g}")
        known.append((low, high, filled("a feedback", one[1])))
    return known


def sheet(*exercises: Element) -> Element:
    """Return exercises as one numbered list, each with its field, its check and its solution.

    Parameters
    ----------
    exercises : Element
        What `choice` and `number` return, without `then`.

    Raises
    ------
    BadType, BadValue
        None at all, something else, one with `then`, or two with one key.

    Examples
    --------
    >>> first = number("Of 6 FLOPs and 3 bytes?", solution=2, key="first")
    >>> print(sheet(first))
    1. Of 6 FLOPs and 3 bytes?
    The answer: rh.ask.answer("first")
    """
    for one in exercises:
        if not isinstance(one, Element) or one.kind != "question":
            raise BadType(f"a sheet holds what choice and number return, got {shown(one)}")
        if one.then:
            raise BadValue(f"exercise {one.data['key']!r} has then=: that is for questions alone")
    keys = [one.data["key"] for one in exercises]
    if not exercises or len(set(keys)) < len(keys):
        raise BadValue(f"a sheet needs exercises, each with its own key, got {keys}")
    items = "".join(f"<li>{one.fallback}</li>" for one in exercises)
    return Element(
        "sheet",
        {"exercises": [one.data for one in exercises]},
        f"<ol>{items}</ol>",
        "\n".join(f"{i}. {one.plain}" for i, one in enumerate(exercises, 1)),
    )


def ledger() -> Element:
    """Return a table of what the reader has answered in this browser, with export and reset.

    Examples
    --------
    >>> ledger().kind
    'ledger'
    """
    words = "Your answers in this book are shown here, in a browser that runs its scripts."
    return Element("ledger", {}, f"<p>{words}</p>", words)


# --- what they share -----------------------------------------------------------------------------


def _made(data: Mapping[str, Any], folded: str, plain: list[str], reply: str, then: Any) -> Element:
    """Return the question, and keep its answer for those who ask for it."""
    html, below, inner = then
    _ANSWERS[data["key"]] = reply
    words = [*plain, f'The answer: rh.ask.answer("{data["key"]}")', below]
    return Element("question", data, folded, "\n".join(filter(None, words)), then=html, inner=inner)


def _folded(data: Mapping[str, Any], answers: Iterable[str]) -> str:
    """Return a question as readers without JavaScript see it, its answer folded."""
    options = "".join(f"<li>{escape(one['text'])}</li>" for one in data.get("options", ()))
    lead = f"<strong>{escape(data['lead'])}</strong> " if data["lead"] else ""
    return (
        f"<p>{lead}{escape(data['question'])}</p>\n"
        + (f"<ul>{options}</ul>\n" if options else "")
        + f"<details><summary>Show the answer</summary>\n{''.join(answers)}\n</details>"
    )


def _lead(lead: str | None, later: str) -> str:
    return ("Predict." if later else "") if lead is None else text("lead", lead)


def _range(wrong: Any, tolerance: float) -> tuple[float, float]:
    """Return the least and the largest number that a feedback is for."""
    if isinstance(wrong, tuple | list):
        if len(wrong) != 2:
            raise BadType(f"a range is (low, high), got {shown(wrong)}")
        low, high = (finite("an end of a range", one) for one in wrong)
        if low > high:
            raise BadValue(f"a range is (low, high), got {shown(wrong)}")
        return low, high
    value = finite("a feedback's value", wrong)
    spare = abs(value) * min(tolerance, 0.02)
    return value - spare, value + spare
