"""The book's questions, which are data: one file a chapter, one table a question.

A table has these keys::

    [questions.ai-tile]                    or [exercises.…]: those make the chapter's sheet
    prompt = "What is the intensity of … with tiles of {tile}?"
    solution = "tiled.intensity"           a number, or the name of one
    unit = "FLOP/byte"
    why = "A step of the sum does 2t² FLOPs on 2t numbers of 2 bytes."

    [[questions.ai-tile.wrong]]            what is said to a known wrong number
    value = "once.intensity"               a number, a name, or a pair: from, to
    times = 2                              of `value`, or of the solution if that is not given
    feedback = "…"

or, where there are answers to choose from, at least two of these::

    [[questions.an-slope.options]]
    text = "a straight line, equally steep for every memory"
    feedback = "Ten times the intensity gives ten times the speed."
    right = true

Where values decide which option is right, none is marked: the cell passes ``right=``, its text, or
the short `key` that it has for this. Further keys: `multi` (several may be right), `lead`, `above`
and `below` (text around what is shown below it), and for numbers `tolerance`, `decades`, `digits`,
`integer`, `smallest`, `hint`, as in `choice` and `number`.

The cell computes values and passes them by name. A text shows them as `str.format` does:
``{tiled.intensity:.1f}``, ``{step[2048].flops:,}``, where ``{solution}`` is the question's own.
Without a format a number is shown as in tables. A format may end with a unit:
``{tiled.bytes:.1f MB}`` is 25.2 MB, ``{h100.bandwidth:si B/s}`` has the prefix that suits it.
Nothing else is computed here.
"""

from __future__ import annotations

import functools
import re
import string
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from roofline_helpers._checks import BadValue, RooflineError, name_of
from roofline_helpers.ask.element import Element
from roofline_helpers.ask.questions import choice, number, sheet
from roofline_helpers.show import PREFIXES, cell, si


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
