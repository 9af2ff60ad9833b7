"""An interactive element: its HTML, its script, and its fallback without a script."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from markupsafe import Markup

from roofline_helpers.common.show import template
from roofline_helpers.pages import judge


@dataclass(frozen=True)
class Bundle:
    """The scripts of one kind of element, after those of another that they build on.

    Parameters
    ----------
    name : str
        "ask" (questions), "instrument", "lab" or "riddle": its tag is ``<roofline-NAME>``.
    scripts : callable
        Returns the scripts' texts.
    after : Bundle, optional
        The bundle whose scripts stand before its own.

    Examples
    --------
    >>> ASK.name, ASK.names
    ('ask', ('ask',))
    """

    name: str
    scripts: Callable[[], list[str]]
    after: Bundle | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The kinds of elements that its scripts define."""
        return (*(self.after.names if self.after else ()), self.name)


def _ask() -> list[str]:
    # constants come from Python, so that they are written only once
    words = {
        "slips": judge.SLIPS,
        "large": judge.TOO_LARGE,
        "small": judge.TOO_SMALL,
    }
    folder = resources.files("roofline_helpers") / "pages/assets"
    own = [(folder / name).read_text("utf-8") for name in ("numbers.js", "style.js", "core.js")]
    return [f"const judge = {to_json(words)};", *own]


ASK = Bundle("ask", _ask)
"""The scripts of questions alone."""

# --- the script ----------------------------------------------------------------------------------


@functools.cache
def _code(bundle: Bundle) -> str:
    # drop comments and indentation
    code = re.sub(r"^ */\*.*?\*/ *$", "", "\n".join(bundle.scripts()), flags=re.M | re.S)
    bare = re.sub(r"^ *(//.*)?", "", code, flags=re.MULTILINE)
    before = f"{_code(bundle.after)}\n" if bundle.after else ""
    return before + re.sub(r"\n+", "\n", bare).strip()


def script(bundle: Bundle) -> str:
    """Return the JavaScript for the elements of a bundle, and of those before it.

    Examples
    --------
    >>> "customElements.define" in script(ASK)
    True
    """
    tags = [f"roofline-{name}" for name in bundle.names]
    start = f"core.start({to_json(tags)});"
    return f'(() => {{\n"use strict";\n{_code(bundle)}\n{start}\n}})();\n'


def to_json(value: Any) -> str:
    """Return JSON that is safe in a script element, or in an attribute in single quotes."""
    dumped = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&'\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", dumped)


def fragment(macro: str, *values: Any) -> Markup:
    """Return a macro of `assets/elements.html` rendered with values."""
    macros: Any = template("pages/assets/elements.html").module
    return Markup(getattr(macros, macro)(*values))


# --- elements ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Element:
    """An interactive element, for notebooks and pages, with plain text elsewhere.

    Parameters
    ----------
    kind : str
        Its name for `core.define` in JavaScript.
    data : mapping
        The data for its script.
    fallback : str
        HTML without JavaScript.
    plain : str
        The same as text, without the answer.
    then : str
        HTML that is always visible below it.
    bundle : Bundle
        The scripts it needs.
    inner : tuple of Element
        Elements inside `then`.

    Examples
    --------
    >>> Element("note", {"text": "a"}, "<p>a</p>", "a").kind
    'note'
    """

    kind: str
    data: Mapping[str, Any]
    fallback: str
    plain: str
    then: str = ""
    bundle: Bundle = ASK
    inner: tuple[Element, ...] = ()

    def markup(self) -> str:
        """Return the element's HTML without its script, for use inside another one."""
        parts = (Markup(text) for text in (to_json(self.data), self.fallback, self.then))
        return str(fragment("element", self.kind, self.bundle.name, *parts))

    def html(self) -> str:
        """Return the element's HTML with its script, as a cell shows it.

        Each output has the script, because in Colab each output is its own page.
        `tools/notebooks/run.py` removes it from committed notebooks.
        """
        bundles = (element.bundle for element in self._all())
        code = script(max(bundles, key=lambda bundle: len(bundle.names)))
        return str(fragment("script", Markup(self.markup()), Markup(code)))

    def _all(self) -> Iterable[Element]:
        yield self
        for element in self.inner:
            yield from element._all()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.plain}

    def __repr__(self) -> str:
        return self.plain
