"""HLO text as text: lines, brackets and commas, and the short form that people read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from roofline_helpers._checks import RooflineError

INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = ")
"""How the line of an instruction begins."""

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[(\[{]|[)\]}]|,|[^"()\[\]{},]+')
_DEPTH = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}  # by how much a token changes it


class UnreadableProgram(RooflineError, ValueError):
    """Text that is not a compiled HLO module.

    Examples
    --------
    >>> issubclass(UnreadableProgram, RooflineError)
    True
    """


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a module, each instruction as one.

    XLA breaks an instruction's line inside the metadata that a Pallas kernel carries.
    """
    pending = ""
    for line in text.splitlines():
        if pending and INSTRUCTION.match(line):  # the one before never closes: not ours to mend
            yield pending
            pending = ""
        pending += line
        if INSTRUCTION.match(pending) and _is_open(pending):
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _is_open(line: str) -> bool:
    """Return whether brackets that this line opens are closed on another one."""
    if all(line.count(opening) == line.count(closing) for opening, closing in ("()", "[]", "{}")):
        return False  # as nearly always; it saves reading the line token by token
    return sum(_DEPTH.get(token, 0) for token in _TOKEN.findall(line)) > 0


def split(text: str) -> list[str]:
    """Split at the commas outside of quotes and brackets."""
    parts, depth, piece = [], 0, ""
    for token in _TOKEN.findall(text):
        if token == "," and depth == 0:
            parts.append(piece.strip())
            piece = ""
            continue
        depth += _DEPTH.get(token, 0)
        piece += token
    return [*parts, piece.strip()] if piece.strip() else parts


def closing(text: str, at: int) -> int:
    """Return the index of the bracket that closes the one at `at`.

    Raises
    ------
    UnreadableProgram
        There is none.
    """
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += _DEPTH.get(token.group(), 0)
        if depth == 0:
            return token.start()
    raise UnreadableProgram(f"no closing bracket in {text[at : at + 60]!r}")


_NOTES = ("metadata", "backend_config", "frontend_attributes", "sharding", "is_scheduled")


def brief(text: str) -> str:
    r"""Return the computations of a module without the compiler's notes to itself.

    Drops the module's header, source positions, and the attributes metadata, backend_config,
    frontend_attributes and sharding of instructions. Brief text stays as it is.

    Examples
    --------
    >>> root = 'ROOT %x = f32[8] parameter(0), backend_config={"a":1}'
    >>> text = f"HloModule t\nENTRY %m (x: f32[8]) -> f32[8] {{\n  {root}\n}}"
    >>> "backend_config" in brief(text)
    False
    """
    kept = [line for line in lines(text) if line[:1] in ("%", "E", " ", "}")]
    return "\n".join(_without_notes(line) for line in kept if not line.startswith("Entry")).strip()


def _without_notes(line: str) -> str:
    for note in _NOTES:
        at = line.find(f", {note}=")
        while at >= 0:
            start = at + len(note) + 3
            if line[start : start + 1] == "{":
                end = closing(line, start) + 1
            else:
                end = next((i for i in range(start, len(line)) if line[i] in ",)"), len(line))
            line = line[:at] + line[end:]
            at = line.find(f", {note}=")
    return line
