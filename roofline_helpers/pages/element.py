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
    """The scripts of one kind of element, after those that questions need.

    Parameters
    ----------
    name : str
        "ask" (questions), "lab" (instruments and labs) or "riddle".
    more : callable, optional
        Returns the texts of further scripts.

    Examples
    --------
    >>> ASK.name, ASK.more()
    ('ask', [])
    """

    name: str
    more: Callable[[], list[str]] = list


ASK = Bundle("ask")
"""A notebook with questions alone doesn't load the scripts of labs."""

# --- the script ----------------------------------------------------------------------------------


@functools.cache
def _code(bundle: Bundle) -> str:
    # constants come from Python, so that they are written only once
    words = {
        "slips": judge.SLIPS,
        "large": judge.TOO_LARGE,
        "small": judge.TOO_SMALL,
    }
    folder = resources.files("roofline_helpers") / "pages/assets"
    own = [(folder / name).read_text("utf-8") for name in ("numbers.js", "style.js", "core.js")]
    parts = [f"const judge = {to_json(words)};", *own, *bundle.more()]
    # drop comments and indentation
    code = re.sub(r"^ */\*.*?\*/ *$", "", "\n".join(parts), flags=re.MULTILINE | re.DOTALL)
    bare = re.sub(r"^ *(//.*)?", "", code, flags=re.MULTILINE)
    return re.sub(r"\n+", "\n", bare).strip()


def script(bundle: Bundle) -> str:
    """Return the JavaScript for the elements of a bundle and of questions.

    Examples
    --------
    >>> "customElements.define" in script(ASK)
    True
    """
    tags = [f"roofline-{kind}" for kind in dict.fromkeys((ASK.name, bundle.name))]
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
        parts = (Markup(each) for each in (to_json(self.data), self.fallback, self.then))
        return str(fragment("element", self.kind, self.bundle.name, *parts))

    def html(self) -> str:
        """Return the element's HTML with its script, as a cell shows it.

        Each output has the script, because in Colab each output is its own page.
        `tools/notebooks/run.py` removes it from committed notebooks.
        """
        code = script(
            max((one.bundle for one in self._all()), key=lambda bundle: len(_code(bundle)))
        )
        return str(fragment("script", Markup(self.markup()), Markup(code)))

    def _all(self) -> Iterable[Element]:
        yield self
        for one in self.inner:
            yield from one._all()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.plain}

    def __repr__(self) -> str:
        return self.plain
