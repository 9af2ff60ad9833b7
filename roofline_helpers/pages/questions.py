"""The book's questions: their texts are data, one file a chapter; a cell passes the values."""

from __future__ import annotations

import functools
import re
import string
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

from roofline_helpers.common.checks import BadType, BadValue, RooflineError, finite, name_of, shown
from roofline_helpers.common.show import PREFIXES, Text, cell, readable, si, significant, table_html
from roofline_helpers.pages.element import Element, fragment
from roofline_helpers.pages.judge import slack

# --- Content below a question (tables, texts, elements) as HTML and as text ----------------------


def rendered(then: Any) -> tuple[str, str, tuple[Element, ...]]:
    """Return the content below a question as HTML, as text, and its elements."""
    if then is None:
        return "", "", ()
    if isinstance(then, list | tuple):
        parts = [rendered(part) for part in then]
        return (
            "\n".join(html for html, _, _ in parts),
            "\n".join(plain for _, plain, _ in parts),
            tuple(element for _, _, inner in parts for element in inner),
        )
    if isinstance(then, Element):
        return then.markup(), then.plain, (then,)
    if isinstance(then, str):
        blocks = re.split(r"\n\s*\n", then.strip())
        paragraphs = [" ".join(block.split()) for block in blocks]
        return "".join(fragment("paragraph", part) for part in paragraphs), then.strip(), ()
    if hasattr(then, "to_html") and hasattr(then, "columns"):  # a table of pandas
        return table_html(then), readable(then).to_string(), ()
    own = getattr(then, "_repr_html_", None)
    if own is not None and (html := own()):
        return str(html), repr(then), ()
    raise BadType(
        f"then must be a table, an element, a text, or a list of these, got {shown(then)}"
    )


# --- Elements of questions: answers, sheets of exercises, and the reader's ledger ---------------

LARGEST_ANSWER = 1e30
"""The largest number that a field accepts."""

_ANSWERS: dict[str, str] = {}  # of the questions made in this session, by key


def answer(key: str) -> Text:
    """Return a question's answer as text.

    Parameters
    ----------
    key : str
        Key of a question that a cell of this session has asked.

    Raises
    ------
    BadType, UnknownName
        No such question so far.

    Examples
    --------
    >>> _ = question("an-slope")
    >>> print(answer("an-slope")[:15])
    a straight line
    """
    return Text(_ANSWERS[name_of("question asked in this session", key, _ANSWERS)])


def sheet(*elements: Element) -> Element:
    """Return exercises as one numbered list, each with its field, its check and its solution.

    Parameters
    ----------
    elements : Element
        Exercises: results of `build`, without `then`.

    Examples
    --------
    >>> sheet(question("an-slope")).kind
    'sheet'
    """
    return Element(
        "sheet",
        {"exercises": [element.data for element in elements]},
        str(fragment("sheet", [Markup(element.fallback) for element in elements])),
        "\n".join(f"{i}. {element.plain}" for i, element in enumerate(elements, 1)),
    )


def ledger() -> Element:
    """Return a table of the reader's answers in this browser, with export and reset.

    Examples
    --------
    >>> ledger().kind
    'ledger'
    """
    words = "Your answers in this book are shown here, in a browser that runs its scripts."
    return Element("ledger", {}, str(fragment("paragraph", words)), words)


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
    """The fields of every question.

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
    right: str | Collection[str] = (),
    **values: Any,
) -> Element:
    """Return a question of the book.

    Parameters
    ----------
    key : str
        Its name in ``data/questions``: "an-slope".
    then : table, element, text, or a list of these
        Content that is visible below the question.
    right : str, or several
        Text or key of the right options, if its file marks none.
    **values
        Values for its texts and its solution; by default the notebook's variables of these names.

    Raises
    ------
    UnknownName
        No such question.
    BadType, BadValue
        A missing or an unknown value; as in `build`.

    Examples
    --------
    >>> print(str(question("an-slope")).splitlines()[1])
      - a straight line, equally steep for every memory
    """
    asked = bank()[name_of("question", key, bank())]
    said = [right] if isinstance(right, str) else right
    values = _valued({key: asked}, values)
    return build(key, asked, values, said, then)


def exercises(chapter: str, **values: Any) -> Element:
    """Return a chapter's exercises as one numbered list.

    Parameters
    ----------
    chapter : str
        The name of its file in ``data/questions``: "fusion".
    **values
        As in `question`.

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
    ...     print(str(error)[:64])
    unknown chapter with exercises 'fussion'. Nearest: 'fusion'. All
    """
    chapters = dict.fromkeys(asked.chapter for asked in bank().values() if asked.exercise)
    name = name_of("chapter with exercises", chapter, chapters)
    mine = {key: asked for key, asked in bank().items() if asked.exercise and asked.chapter == name}
    values = _valued(mine, values)
    return sheet(*(build(key, asked, values) for key, asked in mine.items()))


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
    for path in sorted(folder.iterdir(), key=lambda file: file.name):
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
        A field that isn't allowed; the message names the question.

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
        raise BadValue(str(error)) from None


@contextmanager
def _placed(chapter: str, key: str = "") -> Iterator[None]:
    """Say in an error which question it is about."""
    source = f"{chapter}.toml" + (f", {key}" if key else "")
    try:
        yield
    except RooflineError as error:
        raise type(error)(f"{source}: {error}") from error
    except Exception as error:  # a text may use an attribute that a value doesn't have
        raise BadValue(f"{source}: {type(error).__name__}: {error}") from error


# --- building ------------------------------------------------------------------------------------


class _Fill(string.Formatter):
    """`str.format`, with numbers as in tables where no format is given, and with units."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        """Return the value of a field from the values that the cell passes."""
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
    fields: list[Any] = []
    if isinstance(entry, ChoiceEntry):
        texts += [words for option in entry.options for words in (option.text, option.feedback)]
    else:
        texts += [entry.hint, entry.why, *(wrong.feedback for wrong in entry.wrong)]
        fields = [entry.solution, *(v for wrong in entry.wrong for v in _pair(wrong.value))]
    fields += [field for words in texts for _, field, _, _ in _FILL.parse(words)]
    names = set()
    for field in fields:
        if isinstance(field, str):
            if not re.fullmatch(r"[^\W\d]\w*(\.\w+|\[[^\[\]]+\])*", field):
                raise BadValue(
                    f"{field!r} is no name with attributes and indices: compute in the cell"
                )
            names.add(re.split(r"[.[]", field)[0])
    return names - {"solution"}


def _valued(asked: Mapping[str, Asked], passed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of these questions: those passed, and the notebook's own variables."""
    needed: dict[str, str] = {}
    for key, (_, _, entry) in asked.items():
        for name in _names(entry):
            needed.setdefault(name, key)
    for name in passed:
        name_of(f"value for {', '.join(asked)}:", name, needed)
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    own = shell.user_ns if shell else {}
    values = {name: own[name] for name in needed if name in own} | dict(passed)
    missing = sorted(f"{name} (for {key})" for name, key in needed.items() if name not in values)
    if missing:
        raise BadValue(f"pass by name: {', '.join(missing)}; got {', '.join(passed) or 'none'}")
    return values


def build(
    key: str,
    asked: Asked,
    values: Mapping[str, Any],
    right: Collection[str] = (),
    then: Any = None,
) -> Element:
    """Return a question with its values in its texts, and store its text answer.

    Raises
    ------
    BadType, BadValue, UnknownName
        Not one right option, or several with `multi`; a solution that is no finite number of at
        least 0, or not near a whole one where it is said to be; a known wrong answer that is right.
    """
    entry = asked.entry
    with _placed(asked.chapter, key):
        if isinstance(entry, NumberEntry):
            values = {**values, "solution": _value(entry.solution, values)}
        content = [_text(entry.above, values) or None, then, _text(entry.below, values) or None]
        html, below, inner = rendered([part for part in content if part is not None])
        if isinstance(entry, ChoiceEntry):
            kind, (data, answers, reply) = "choice", _choice(entry, values, right)
        elif right:
            raise BadValue("it asks for a number: right= is for options")
        else:
            kind, (data, answers, reply) = "number", _number(entry, values)
        prompt = _line(entry.prompt, values)
    lead = entry.lead if entry.lead is not None else "Predict." if html else ""
    data = {"type": kind, "key": key, "question": prompt, "lead": lead, **data}
    options = data.get("options", ())
    folded = fragment("question", lead, prompt, options, answers)
    _ANSWERS[key] = reply
    words = [prompt, *(f"  - {option['text']}" for option in options)]
    words += [f'The answer: rh.pages.answer("{key}")', below]
    return Element("question", data, str(folded), "\n".join(filter(None, words)), html, inner=inner)


def _text(words: str, values: Mapping[str, Any]) -> str:
    return _FILL.vformat(words, (), values)


def _line(words: str, values: Mapping[str, Any]) -> str:
    return " ".join(_text(words, values).split())


def _value(value: float | str, values: Mapping[str, Any]) -> Any:
    return _FILL.get_field(value, (), values)[0] if isinstance(value, str) else value


def _pair(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


Parts = tuple[dict[str, Any], list[tuple[str, str]], str]
"""A question's data for JavaScript, the paragraphs of its folded answer, and its answer."""


def _choice(entry: ChoiceEntry, values: Mapping[str, Any], right: Collection[str]) -> Parts:
    options: dict[str, dict[str, Any]] = {}
    names = {}
    for option in entry.options:
        text, feedback = _line(option.text, values), _line(option.feedback, values)
        options[text] = {"text": text, "feedback": feedback, "right": option.right}
        names[option.key or text] = options[text]
    if len(options) < len(entry.options):
        raise BadValue(f"two options read the same: {', '.join(options)}")
    for name in right:
        names[name_of("option", name, names)]["right"] = True
    correct = {text: data["feedback"] for text, data in options.items() if data["right"]}
    if not correct or (len(correct) > 1 and not entry.multi):
        raise BadValue(f"one option must be right, got {', '.join(correct) or 'none'}")
    answers = [(f"{text}.", f" {feedback}") for text, feedback in correct.items()]
    reply = " ".join("".join(words) for words in answers)
    for text, data in options.items():
        if not data["right"]:
            answers.append(("", f"Not “{text}”: {data['feedback']}"))
    return {"multi": entry.multi, "options": [*options.values()]}, answers, reply


def _number(entry: NumberEntry, values: Mapping[str, Any]) -> Parts:
    exact, digits = finite("solution", values["solution"]), entry.digits
    if not 0 <= exact <= LARGEST_ANSWER:
        raise BadValue(f"solution must be from 0 to {LARGEST_ANSWER:g}, got {exact:g}")
    within = entry.tolerance or 0.02
    if entry.integer:
        digits = min(len(f"{exact:.0f}"), 17)
        if entry.decades is None and abs(round(exact) - exact) > within * exact:
            raise BadValue(f"the solution must be near a whole number, got {exact:g}")
    worded = f"{significant(exact, digits)} {entry.unit}".replace(" %", "%").rstrip()
    spare = slack(exact, within, digits)
    why = _line(entry.why, values)
    data = {
        "solution": exact,
        "answer": worded,
        "unit": entry.unit,
        "slack": spare,
        "decades": entry.decades,
        "min": 0.0,
        "max": LARGEST_ANSWER,
        "integer": entry.integer,
        "feedback": _wrong_ranges(entry, values, exact, 0.0 if entry.decades else spare),
        "hint": _line(entry.hint, values),
        "why": why,
        "value": None,
    }
    return data, [(worded, why and f": {why}")], f"{worded}. {why}".rstrip()


def _wrong_ranges(
    entry: NumberEntry, values: Mapping[str, Any], exact: float, near: float
) -> list[tuple[float, float, str]]:
    """Return the range of each known wrong answer, and its feedback."""
    known = []
    for wrong in entry.wrong:
        numbers = [_value(value, values) for value in _pair(wrong.value)]
        ends = [
            finite("a feedback's value", number * factor)
            for factor in _pair(wrong.times)
            for number in numbers
        ]
        low, high = ends[0], ends[-1]
        close = False
        if len(ends) == 1:
            close = abs(low - exact) <= near * (1 + 1e-12)
            spare = abs(low) * min(entry.tolerance or 0.02, 0.02)
            low, high = low - spare, high + spare
        if close or low <= exact <= high:
            raise BadValue(f"feedback for {shown(ends)} would also meet the solution, {exact:g}")
        known.append((low, high, _line(wrong.feedback, values)))
    return known
