"""The book's questions: their texts are data, one file a chapter; a cell passes the values."""

from __future__ import annotations

import functools
import re
import string
import tomllib
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from importlib import resources
from io import BytesIO
from typing import Any, NamedTuple

import msgspec

from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    RooflineError,
    finite,
    flag,
    name_of,
    shown,
    single,
    text,
    whole,
)
from roofline_helpers.common.show import PREFIXES, Text, cell, reading, si, significant, table_html
from roofline_helpers.pages.element import Element
from roofline_helpers.pages.judge import check, slack

# --- What a question asks about – tables, figures, texts, other pieces – as HTML and as text -----


def filled(name: str, value: Any) -> str:
    r"""Return a text that is not empty, on one line.

    Examples
    --------
    >>> filled("caption", "A roof\nand a ridge")
    'A roof and a ridge'
    """
    line = " ".join(text(name, value).split())
    if not line:
        raise BadValue(f"{name} must not be empty")
    return line


def rendered(
    then: Any, alt: str | None, caption: str | None
) -> tuple[str, str, tuple[Element, ...]]:
    """Return what stands below a question as HTML, as text, and the elements in it."""
    if then is None:
        return "", "", ()
    if isinstance(then, list | tuple):
        parts = [rendered(one, alt, caption) for one in then]
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
        return table_html(then), reading(then).to_string(), ()
    figure = then if hasattr(then, "savefig") else getattr(then, "figure", None)
    if hasattr(figure, "savefig"):
        return picture(figure, alt, caption), f"Figure: {alt}", ()
    own = getattr(then, "_repr_html_", None)
    if own is not None and (html := own()):
        return str(html), repr(then), ()
    raise BadType(
        "then must be a table, a figure or its axes, an element, a text, or a list of these, "
        f"got {shown(then)}"
    )


def picture(figure: Any, alt: str | None, caption: str | None = None) -> str:
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


# --- What a question is made from: choices, numbers, sheets of exercises, and the reader's ledger

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
    The answer: rh.pages.answer("larger")
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
    The answer: rh.pages.answer("multiply-add")
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
    The answer: rh.pages.answer("first")
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
    words = [*plain, f'The answer: rh.pages.answer("{data["key"]}")', below]
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


# --- The book's questions, which are data: one file a chapter, one table a question --------------


class Option(msgspec.Struct, forbid_unknown_fields=True):
    """An answer to choose.

    Examples
    --------
    >>> Option("a straight line", "Ten times the intensity, ten times the speed.").right
    False
    """

    text: str
    feedback: str
    right: bool = False
    key: str = ""


class Wrong(msgspec.Struct, forbid_unknown_fields=True):
    """A known wrong number.

    Examples
    --------
    >>> Wrong("C is written once.", times=2).value
    'solution'
    """

    feedback: str
    value: float | str | tuple[float | str, float | str] = "solution"
    times: float | tuple[float, float] = 1.0


class Entry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What every question has.

    Examples
    --------
    >>> bank()["an-slope"].entry.lead is None
    True
    """

    prompt: str
    above: str = ""
    below: str = ""
    lead: str | None = None


class ChoiceEntry(Entry, forbid_unknown_fields=True, kw_only=True):
    """A question with answers to choose from.

    Examples
    --------
    >>> [option.right for option in bank()["an-slope"].entry.options]
    [True, False, False, False]
    """

    options: list[Option]
    multi: bool = False


class NumberEntry(Entry, forbid_unknown_fields=True, kw_only=True):
    """A question whose answer is a number.

    Examples
    --------
    >>> bank()["ai-tile"].entry.unit
    'FLOP/byte'
    """

    solution: float | str
    unit: str = ""
    tolerance: float | None = None
    decades: float | None = None
    digits: int = 3
    integer: bool = False
    smallest: float = 0.0
    wrong: list[Wrong] = []
    hint: str = ""
    why: str = ""


class Asked(NamedTuple):
    """A question with its place.

    Examples
    --------
    >>> bank()["ai-tile"].chapter
    'arithmetic-intensity'
    """

    chapter: str
    exercise: bool
    entry: ChoiceEntry | NumberEntry


# --- for notebooks -------------------------------------------------------------------------------


def question(
    key: str,
    *,
    then: Any = None,
    alt: str | None = None,
    caption: str | None = None,
    answer: Any = None,
    right: str | Collection[str] = (),
    **values: Any,
) -> Element:
    """Return a question of the book.

    Parameters
    ----------
    key : str
        Its name in ``data/questions``: "an-slope".
    then : table, figure, element, text, or a list of these
        What it asks about: it stands open below the question.
    alt, caption : str
        What the figure in `then` shows, for those who don't see it; and the caption below it.
    answer : number, optional
        The reader's own, judged at once, for those who read without a browser.
    right : str, or several
        Text or key of the options that are right, where its file marks none.
    **values
        What its texts show, and its solution, by name.

    Raises
    ------
    UnknownName
        No such question.
    BadType, BadValue
        A value that it needs is missing, or one is not its own; what `choice` and `number` refuse.

    Examples
    --------
    >>> print(str(question("an-slope")).splitlines()[1])
      - a straight line, equally steep for every memory
    """
    asked = bank()[name_of("question", key, bank())]
    _check_values({key: asked}, values)
    own = {"answer": answer} if isinstance(asked.entry, NumberEntry) else {}
    said = [right] if isinstance(right, str) else right
    return _build(key, asked, values, said, then=then, alt=alt, caption=caption, **own)


def exercises(chapter: str, **values: Any) -> Element:
    """Return a chapter's exercises as one numbered list.

    Parameters
    ----------
    chapter : str
        The name of its file in ``data/questions``: "fusion".
    **values
        What their texts show, and their solutions, by name.

    Raises
    ------
    UnknownName
        No such chapter, or it has no exercises.
    BadType, BadValue
        As `question`.

    Examples
    --------
    >>> try:
    ...     exercises("fussion")
    ... except RooflineError as error:
    ...     print(str(error)[:63])
    unknown chapter with exercises 'fussion' (str). Nearest: 'fusio
    """
    chapters = dict.fromkeys(asked.chapter for asked in bank().values() if asked.exercise)
    name = name_of("chapter with exercises", chapter, chapters)
    mine = {k: asked for k, asked in bank().items() if asked.exercise and asked.chapter == name}
    _check_values(mine, values)
    return sheet(*(_build(key, asked, values) for key, asked in mine.items()))


# --- reading -------------------------------------------------------------------------------------


@functools.cache
def bank() -> dict[str, Asked]:
    """Return every question of the book by its key, in the files' order.

    Examples
    --------
    >>> len(bank()) > 100, "an-slope" in bank()
    (True, True)
    """
    questions: dict[str, Asked] = {}
    folder = resources.files("roofline_helpers") / "data" / "questions"
    for path in sorted(folder.iterdir(), key=lambda one: one.name):
        chapter = path.name.removesuffix(".toml")
        for key, asked in read_questions(chapter, path.read_text("utf-8")):
            if key in questions:
                raise BadValue(f"{path.name}: {key!r} is in {questions[key].chapter}.toml as well")
            questions[key] = asked
    return questions


def read_questions(chapter: str, text: str) -> Iterator[tuple[str, Asked]]:
    r"""Yield the questions of one file's text.

    Raises
    ------
    BadValue, UnknownName
        What is not as the module's description has it, and in which question.

    Examples
    --------
    >>> text = '[questions.two]\nprompt = "One and one?"\nsolution = 2\n'
    >>> [(key, asked.entry.solution) for key, asked in read_questions("sums", text)]
    [('two', 2.0)]
    """
    with _placed(chapter):
        kinds = {
            name_of("kind of table", kind, ["questions", "exercises"]): tables
            for kind, tables in tomllib.loads(text).items()
        }
    for kind, tables in kinds.items():
        for key, table in tables.items():
            with _placed(chapter, key):
                entry = _entry(table)
                _names(entry)
            yield key, Asked(chapter, kind == "exercises", entry)


def _entry(table: Any) -> ChoiceEntry | NumberEntry:
    kind: Any = ChoiceEntry if "options" in table else NumberEntry
    try:
        entry: ChoiceEntry | NumberEntry = msgspec.convert(table, kind)
        return entry
    except msgspec.ValidationError as error:
        if unknown := re.search(r"unknown field `(.*?)`", str(error)):
            inside = {".options[": Option, ".wrong[": Wrong}
            part = next((each for at, each in inside.items() if at in str(error)), kind)
            name_of("key", unknown[1], part.__struct_fields__)
        raise BadValue(str(error)) from None


@contextmanager
def _placed(chapter: str, key: str = "") -> Iterator[None]:
    """Say in an error where it is."""
    place = f"{chapter}.toml" + (f", {key}" if key else "")
    try:
        yield
    except RooflineError as error:
        raise type(error)(f"{place}: {error}") from error
    except Exception as error:  # a value may not have what a text wants of it
        raise BadValue(f"{place}: {type(error).__name__}: {error}") from error


# --- building ------------------------------------------------------------------------------------


class _Fill(string.Formatter):
    """`str.format`, with numbers as in tables where no format is given, and with units."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        """Return what a field names, of what the cell passes."""
        try:
            return super().get_field(field_name, args, kwargs)
        except (LookupError, AttributeError, TypeError) as error:
            raise BadValue(
                f"{field_name!r}: {type(error).__name__}: {error}; passed: {', '.join(kwargs)}"
            ) from error

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value by its format: "", ".1f", ".1f MB", "si B/s"."""
        form, _, unit = format_spec.partition(" ")
        if form == "si":
            return si(value, unit)
        if unit:
            value = value / PREFIXES[name_of("SI prefix", unit[0], PREFIXES)]
        return f"{format(value, form) if form else cell(value)} {unit}".rstrip()


_FILL = _Fill()


def _names(entry: ChoiceEntry | NumberEntry) -> set[str]:
    """Return the names of the values that a question's cell has to pass."""
    texts = [entry.prompt, entry.above, entry.below, entry.lead or ""]
    places: list[Any] = []
    if isinstance(entry, ChoiceEntry):
        texts += [words for one in entry.options for words in (one.text, one.feedback)]
    else:
        texts += [entry.hint, entry.why, *(one.feedback for one in entry.wrong)]
        places = [entry.solution, *(v for one in entry.wrong for v in _pair(one.value))]
    places += [field for words in texts for _, field, _, _ in _FILL.parse(words)]
    names = set()
    for place in places:
        if isinstance(place, str):
            if not re.fullmatch(r"[^\W\d]\w*(\.\w+|\[[^\[\]]+\])*", place):
                raise BadValue(
                    f"{place!r} is no name with attributes and indices: compute in the cell"
                )
            names.add(re.split(r"[.[]", place)[0])
    return names - {"solution"}


def _check_values(asked: Mapping[str, Asked], values: Mapping[str, Any]) -> None:
    """Raise unless just those values are given that these questions take from their cell."""
    needed: dict[str, str] = {}
    for key, (_, _, entry) in asked.items():
        for name in _names(entry):
            needed.setdefault(name, key)
    for name in values:
        name_of(f"value for {', '.join(asked)}:", name, needed)
    missing = sorted(f"{name} (for {key})" for name, key in needed.items() if name not in values)
    if missing:
        raise BadValue(f"pass by name: {', '.join(missing)}; got {', '.join(values) or 'none'}")


def _build(
    key: str,
    asked: Asked,
    values: Mapping[str, Any],
    right: Collection[str] = (),
    then: Any = None,
    **more: Any,
) -> Element:
    """Return a question with its values in its texts."""
    entry = asked.entry
    with _placed(asked.chapter, key):
        if isinstance(entry, NumberEntry):
            values = {**values, "solution": _value(entry.solution, values)}
        around = [_text(entry.above, values) or None, then, _text(entry.below, values) or None]
        more |= {
            "key": key,
            "then": [one for one in around if one is not None] or None,
            "lead": None if entry.lead is None else _text(entry.lead, values),
        }
        prompt = _text(entry.prompt, values)
        if isinstance(entry, ChoiceEntry):
            return choice(prompt, **_choice_parts(entry, right, values), **more)
        if right:
            raise BadValue("it asks for a number: right= is for options")
        return number(prompt, **_number_parts(entry, values), **more)


def _text(words: str, values: Mapping[str, Any]) -> str:
    return _FILL.vformat(words, (), values)


def _value(value: float | str, values: Mapping[str, Any]) -> Any:
    return _FILL.get_field(value, (), values)[0] if isinstance(value, str) else value


def _pair(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _choice_parts(
    entry: ChoiceEntry, right: Collection[str], values: Mapping[str, Any]
) -> dict[str, Any]:
    options = {_text(one.text, values): one for one in entry.options}
    if len(options) < len(entry.options):
        raise BadValue(f"two options read the same: {', '.join(options)}")
    marked = [text for text, one in options.items() if one.right]
    if right and marked:
        raise BadValue(f"right= is given, and {marked[0]!r} is marked as right")
    keys = {one.key or text: text for text, one in options.items()}
    said = marked or [keys[name_of("option", one, keys)] for one in right]
    if not entry.multi and len(said) != 1:
        raise BadValue(f"one option must be right, got {', '.join(said) or 'none'}")
    return {
        "options": {text: _text(one.feedback, values) for text, one in options.items()},
        "right": said if entry.multi else said[0],
        "multi": entry.multi,
    }


def _number_parts(entry: NumberEntry, values: Mapping[str, Any]) -> dict[str, Any]:
    known = []
    for one in entry.wrong:
        found = [_value(value, values) for value in _pair(one.value)]
        low_high = [value * factor for factor in _pair(one.times) for value in found]
        known.append(
            (low_high[0] if len(low_high) == 1 else tuple(low_high), _text(one.feedback, values))
        )
    plain = ("unit", "tolerance", "decades", "digits", "integer", "smallest")
    return {
        **{name: getattr(entry, name) for name in plain},
        "solution": values["solution"],
        "feedback": known,
        "hint": _text(entry.hint, values),
        "why": _text(entry.why, values),
    }
