"""The book's questions: their texts are data, one file a chapter; a cell passes the values."""

from __future__ import annotations

import functools
import re
import string
import sys
import tomllib
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from importlib import resources
from io import BytesIO
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

from roofline_helpers.common.checks import (
    BadType,
    BadValue,
    RooflineError,
    finite,
    name_of,
    shown,
    text,
)
from roofline_helpers.common.show import PREFIXES, Text, cell, reading, si, significant, table_html
from roofline_helpers.pages.element import Element, fragment
from roofline_helpers.pages.judge import slack

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
    import matplotlib.pyplot as plt

    buffer = BytesIO()
    dpi = 2 * figure.dpi
    figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)  # not shown a second time below the cell
    data = buffer.getvalue()
    # Width and height stand in a PNG's first chunk
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    half = [round(pixels / 2) for pixels in (width, height)]
    below = caption and filled("caption", caption)
    return str(fragment("figure", b64encode(data).decode(), alt, half, below))


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
    right: str | Collection[str],
    multi: bool = False,
    **more: Any,
) -> Element:
    """Return a question with answers to choose from.

    Parameters
    ----------
    question : str
        Plain text.
    options : mapping of str to str
        Each answer and what is said to those who choose it: why it is right, or which
        misunderstanding leads to it. No two feedbacks are the same.
    right : str or collection of str
        The right answer; several where ``multi``.
    multi : bool
        Whether several may be chosen: check boxes.
    **more
        What every question has: ``key``, its name in the reader's ledger; ``then``, what it asks
        about; ``alt`` and ``caption`` of a figure in that; ``lead``, the bold word before it,
        "Predict." where there is `then`.

    Raises
    ------
    BadType, BadValue, UnknownName
        Something empty; a right answer that is no option; a figure without `alt`.

    Examples
    --------
    >>> print(choice("Larger?", {"2": "Right.", "1": "It is smaller."}, right="2", key="larger"))
    Larger?
      - 2
      - 1
    The answer: rh.pages.answer("larger")
    """
    feedback = {
        filled("an option", option): filled(f"the feedback of {option!r}", words)
        for option, words in options.items()
    }
    if len(set(feedback.values())) < len(options):
        raise BadValue("each option needs its own feedback: two of these are the same")
    wanted = [filled("right", one) for one in ([right] if isinstance(right, str) else right)]
    correct = [name_of("right answer", one, feedback) for one in wanted]
    if not correct or (len(correct) > 1 and not multi):
        raise BadValue(f"one option must be right, got {', '.join(correct) or 'none'}")
    data: dict[str, Any] = {
        "multi": multi,
        "options": [
            {"text": option, "feedback": words, "right": option in correct}
            for option, words in feedback.items()
        ],
    }
    answers = [(f"{one}.", f" {feedback[one]}") for one in feedback if one in correct]
    answers += [("", f"Not “{one}”: {feedback[one]}") for one in feedback if one not in correct]
    reply = " ".join(f"{one}. {feedback[one]}" for one in correct)
    return _made("choice", question, data, answers, reply, **more)


def number(
    question: str,
    *,
    solution: Any,
    unit: str = "",
    tolerance: float | None = None,
    decades: float | None = None,
    feedback: Iterable[tuple[Any, str]] = (),
    hint: str = "",
    why: str = "",
    integer: bool = False,
    digits: int = 3,
    **more: Any,
) -> Element:
    """Return a question whose answer is a number of at least 0.

    Parameters
    ----------
    question : str
        Plain text; say the unit.
    solution : number
        Computed, in `unit`.
    unit : str
        Shown behind the field and the solution.
    tolerance : float
        Largest relative difference that counts as right: 0.02 if not given. What is within half a
        unit of the last of `digits` is right in any case.
    decades : float
        For estimates, in place of `tolerance`: largest distance in powers of ten.
    feedback : iterable of (value, text) or ((low, high), text)
        What is said to known wrong answers, the first that fits. A single value is met within
        `tolerance` (2% for estimates). Any other is told which of `judge.SLIPS` fits.
    hint : str
        Said after a wrong answer.
    why : str
        Said with the solution.
    integer : bool
        Whether the field accepts whole numbers only.
    digits : int
        Significant digits of the solution as the page shows it; a whole one is shown whole.
    **more
        As in `choice`.

    Raises
    ------
    BadType, BadValue
        Something empty; a solution that is no finite number of at least 0, or with ``integer`` not
        near a whole one; both tolerances.

    Examples
    --------
    >>> print(number("FLOPs of a multiply-add?", solution=2, key="multiply-add"))
    FLOPs of a multiply-add?
    The answer: rh.pages.answer("multiply-add")
    >>> answer("multiply-add")
    2.
    """
    exact = finite("solution", solution)
    if tolerance is not None and decades is not None:
        raise BadValue("give tolerance or decades, not both")
    if not 0 <= exact <= LARGEST_ANSWER:
        raise BadValue(f"solution must be from 0 to {LARGEST_ANSWER:g}, got {exact:g}")
    within = tolerance or 0.02
    if integer:
        digits = min(len(f"{exact:.0f}"), 17)
        if decades is None and abs(round(exact) - exact) > within * exact:
            raise BadValue(f"solution must be near a whole number with integer=True, got {exact:g}")
    worded = f"{significant(exact, digits)} {unit}".replace(" %", "%").rstrip()
    spare = slack(exact, within, digits)
    why = " ".join(why.split())
    data = {
        "solution": exact,
        "answer": worded,
        "unit": unit,
        "slack": spare,
        "decades": decades,
        "min": 0.0,
        "max": LARGEST_ANSWER,
        "integer": integer,
        "feedback": _known(feedback, exact, within, 0.0 if decades else spare),
        "hint": " ".join(hint.split()),
        "why": why,
        "value": None,
    }
    reply = f"{worded}." + (f" {why}" if why else "")
    return _made("number", question, data, [(worded, why and f": {why}")], reply, **more)


def _known(
    feedback: Iterable[tuple[Any, str]], exact: float, within: float, near: float
) -> list[tuple[float, float, str]]:
    """Return the range of each known wrong answer, and what is said to it."""
    known = []
    for wrong, words in feedback:
        if isinstance(wrong, tuple):
            low, high = (finite("an end of a range", one) for one in wrong)
        else:
            spare = abs(finite("a feedback's value", wrong)) * min(within, 0.02)
            low, high = wrong - spare, wrong + spare
            near_it = abs(wrong - exact) <= near * (1 + 1e-12)
        if low <= exact <= high or (not isinstance(wrong, tuple) and near_it):
            raise BadValue(f"feedback for {shown(wrong)} would also meet the solution, {exact:g}")
        known.append((low, high, filled("a feedback", words)))
    return known


def _made(
    kind: str,
    question: str,
    data: Mapping[str, Any],
    answers: list[tuple[str, str]],
    reply: str,
    *,
    key: str,
    then: Any = None,
    alt: str | None = None,
    caption: str | None = None,
    lead: str | None = None,
) -> Element:
    """Return a question, and keep its answer for those who ask for it."""
    html, below, inner = rendered(then, alt, caption)
    question = filled("question", question)
    bold = ("Predict." if html else "") if lead is None else lead
    data = {"type": kind, "key": key_of(key), "question": question, "lead": bold, **data}
    options = data.get("options", ())
    folded = fragment("question", bold, question, options, answers)
    _ANSWERS[key] = reply
    listed = [question, *(f"  - {one['text']}" for one in options)]
    words = [*listed, f'The answer: rh.pages.answer("{key}")', below]
    plain = "\n".join(filter(None, words))
    return Element("question", data, str(folded), plain, then=html, inner=inner)


def sheet(*exercises: Element) -> Element:
    """Return exercises as one numbered list, each with its field, its check and its solution.

    Parameters
    ----------
    exercises : Element
        What `choice` and `number` return, without `then`.

    Examples
    --------
    >>> first = number("Of 6 FLOPs and 3 bytes?", solution=2, key="first")
    >>> print(sheet(first))
    1. Of 6 FLOPs and 3 bytes?
    The answer: rh.pages.answer("first")
    """
    return Element(
        "sheet",
        {"exercises": [one.data for one in exercises]},
        str(fragment("sheet", [Markup(one.fallback) for one in exercises])),
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
    right : str, or several
        Text or key of the options that are right, where its file marks none.
    **values
        What its texts show, and its solution, by name. Those that aren't passed are the notebook's
        variables of that name.

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
    said = [right] if isinstance(right, str) else right
    values = _valued({key: asked}, values)
    return _build(key, asked, values, said, then=then, alt=alt, caption=caption)


def exercises(chapter: str, **values: Any) -> Element:
    """Return a chapter's exercises as one numbered list.

    Parameters
    ----------
    chapter : str
        The name of its file in ``data/questions``: "fusion".
    **values
        As `question` takes them.

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
    values = _valued(mine, values)
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
    feedback = {text: _text(one.feedback, values) for text, one in options.items()}
    return {"options": feedback, "right": said, "multi": entry.multi}


def _number_parts(entry: NumberEntry, values: Mapping[str, Any]) -> dict[str, Any]:
    known = []
    for one in entry.wrong:
        found = [_value(value, values) for value in _pair(one.value)]
        low_high = [value * factor for factor in _pair(one.times) for value in found]
        known.append(
            (low_high[0] if len(low_high) == 1 else tuple(low_high), _text(one.feedback, values))
        )
    plain = ("unit", "tolerance", "decades", "digits", "integer")
    return {
        **{name: getattr(entry, name) for name in plain},
        "solution": values["solution"],
        "feedback": known,
        "hint": _text(entry.hint, values),
        "why": _text(entry.why, values),
    }
