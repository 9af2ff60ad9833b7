"""The book's questions, which are data: one file a chapter, one table a question.

A table has these keys::

    [questions.ai-square]                  or [exercises.…]: those make the chapter's sheet
    prompt = "What is the intensity of …?"
    solution = "job.intensity"             a number, or an expression
    unit = "FLOP/byte"
    why = "2N³ FLOPs over three matrices of {n}² elements of 2 bytes."

    [[questions.ai-square.wrong]]          what is said to a known wrong number
    value = "2 * solution"                 also a pair: from, to
    feedback = "…"
    when = "…"                             a condition, where it isn't always said

or, where there are answers to choose from, at least two of these::

    [[questions.an-slope.options]]
    text = "a straight line, equally steep for every memory"
    feedback = "Ten times the intensity gives ten times the speed."
    right = true                           also a condition: "wide > narrow"

Further keys: `multi` (several may be right), `lead`, `where` (names for expressions, in order),
`above` and `below` (text around what the answer unlocks), and for numbers `tolerance`, `decades`,
`digits`, `integer`, `smallest`, `hint`, as in `choice` and `number`.

An expression is Python, as in an f-string: over the values that the cell passes by name, those of
`where`, `solution`, ``rh`` (this package), ``si`` and ``significant``. A text has expressions in
braces, with a format if wanted: ``{h100.ridge:.1f}``. Without one a number is shown as in tables.
The files belong to the package and are trusted as its code is.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from roofline_helpers._checks import BadValue, RooflineError, name_of
from roofline_helpers.ask.expressions import OWN, Fill, fields, names_in
from roofline_helpers.ask.questions import Question, Sheet, choice, number, sheet


class Option(msgspec.Struct, forbid_unknown_fields=True):
    """An answer to choose.

    Examples
    --------
    >>> Option("a straight line", "Ten times the intensity, ten times the speed.").right
    False
    """

    text: str
    feedback: str
    right: bool | str = False


class Wrong(msgspec.Struct, forbid_unknown_fields=True):
    """A known wrong number.

    Examples
    --------
    >>> Wrong(value="2 * solution", feedback="C is written once.").when
    'True'
    """

    value: float | str | tuple[float | str, float | str]
    feedback: str
    when: str = "True"


class Entry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What every question has.

    Examples
    --------
    >>> bank()["an-slope"].entry.lead is None
    True
    """

    prompt: str
    where: dict[str, str] = {}
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
    >>> bank()["ai-square"].entry.unit
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
    >>> bank()["ai-square"].chapter
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
    **values: Any,
) -> Question:
    """Return a question of the book.

    Parameters
    ----------
    key : str
        Its name in ``data/questions``: "an-slope".
    then : table, figure, element, text, or a list of these
        What any answer unlocks, right or wrong.
    alt, caption : str
        What the figure in `then` shows, for those who don't see it; and the caption below it.
    answer : number, optional
        The reader's own, judged at once, for those who read without a browser.
    **values
        What its texts and its solution are computed from, by name.

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
    return _build(key, asked, values, then=then, alt=alt, caption=caption, **own)


def exercises(chapter: str, **values: Any) -> Sheet:
    """Return a chapter's exercises as one numbered list.

    Parameters
    ----------
    chapter : str
        The name of its file in ``data/questions``: "fusion".
    **values
        What their texts and solutions are computed from, by name.

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
        for key, asked in read(chapter, path.read_text("utf-8")):
            if key in questions:
                raise BadValue(f"{path.name}: {key!r} is in {questions[key].chapter}.toml as well")
            questions[key] = asked
    return questions


def read(chapter: str, text: str) -> Iterator[tuple[str, Asked]]:
    r"""Yield the questions of one file's text.

    Raises
    ------
    BadValue, UnknownName
        What is not as the module's description has it, and in which question.

    Examples
    --------
    >>> text = '[questions.two]\nprompt = "One and one?"\nsolution = 2\n'
    >>> [(key, asked.entry.solution) for key, asked in read("sums", text)]
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
                for expression in _expressions(entry):
                    names_in(expression)
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
    except Exception as error:  # an expression may raise anything
        raise BadValue(f"{place}: {type(error).__name__}: {error}") from error


# --- building ------------------------------------------------------------------------------------


def _expressions(entry: ChoiceEntry | NumberEntry) -> Iterator[str]:
    """Yield every expression of a question."""
    texts = [entry.prompt, entry.above, entry.below, entry.lead or ""]
    values: list[Any] = list(entry.where.values())
    if isinstance(entry, ChoiceEntry):
        texts += [words for one in entry.options for words in (one.text, one.feedback)]
        values += [one.right for one in entry.options]
    else:
        texts += [entry.hint, entry.why, *(one.feedback for one in entry.wrong)]
        values.append(entry.solution)
        for one in entry.wrong:
            values += [one.when, *(one.value if isinstance(one.value, tuple) else [one.value])]
    yield from (one for one in values if isinstance(one, str))
    for words in texts:
        yield from fields(words)


def _check_values(asked: Mapping[str, Asked], values: Mapping[str, Any]) -> None:
    """Raise unless just those values are given that these questions take from their cell."""
    needed: dict[str, str] = {}
    for key, (_, _, entry) in asked.items():
        for expression in _expressions(entry):
            for name in names_in(expression) - OWN - set(entry.where):
                needed.setdefault(name, key)
    for name in values:
        name_of(f"value for {', '.join(asked)}:", name, needed)
    missing = sorted(f"{name} (for {key})" for name, key in needed.items() if name not in values)
    if missing:
        raise BadValue(f"pass by name: {', '.join(missing)}; got {', '.join(values) or 'none'}")


def _build(
    key: str, asked: Asked, values: Mapping[str, Any], then: Any = None, **more: Any
) -> Question:
    """Return a question with its expressions computed."""
    entry, fill = asked.entry, Fill(values)
    with _placed(asked.chapter, key):
        for name, expression in entry.where.items():
            fill.names[name] = fill.value(expression)
        if isinstance(entry, NumberEntry):
            fill.names["solution"] = fill.value(entry.solution)
        around = [fill.text(entry.above) or None, then, fill.text(entry.below) or None]
        more |= {
            "key": key,
            "then": [one for one in around if one is not None] or None,
            "lead": None if entry.lead is None else fill.text(entry.lead),
        }
        prompt = fill.text(entry.prompt)
        if isinstance(entry, ChoiceEntry):
            return choice(prompt, **_choice_parts(entry, fill), **more)
        return number(prompt, **_number_parts(entry, fill), **more)


def _choice_parts(entry: ChoiceEntry, fill: Fill) -> dict[str, Any]:
    options = {fill.text(one.text): fill.text(one.feedback) for one in entry.options}
    if len(options) < len(entry.options):
        raise BadValue(f"two options read the same: {', '.join(options)}")
    right = [fill.text(one.text) for one in entry.options if fill.value(one.right)]
    if not entry.multi and len(right) != 1:
        raise BadValue(f"one option must be right, got {', '.join(right) or 'none'}")
    return {"options": options, "right": right if entry.multi else right[0], "multi": entry.multi}


def _number_parts(entry: NumberEntry, fill: Fill) -> dict[str, Any]:
    def computed(value: Any) -> Any:
        return tuple(map(fill.value, value)) if isinstance(value, tuple) else fill.value(value)

    wrong = [
        (computed(one.value), fill.text(one.feedback))
        for one in entry.wrong
        if fill.value(one.when)
    ]
    plain = ("unit", "tolerance", "decades", "digits", "integer", "smallest")
    return {
        **{name: getattr(entry, name) for name in plain},
        "solution": fill.names["solution"],
        "feedback": wrong,
        "hint": fill.text(entry.hint),
        "why": fill.text(entry.why),
    }
