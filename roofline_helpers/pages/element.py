"""An interactive piece: its HTML, its script, and what is shown without it."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from markupsafe import Markup

from roofline_helpers.common.checks import name_of
from roofline_helpers.common.show import template
from roofline_helpers.pages import judge

BUNDLES: Mapping[str, tuple[str, ...]] = {
    "ask": ("numbers.js", "style.js", "core.js"),
    "lab": (
        *("numbers.js", "style.js", "core.js"),
        *("model.js", "serving.js", "network.js", "verdicts.js", "briefs.js"),
        *("chart.js", "labs.js"),
    ),
}
"""Scripts of each kind of element: a question in a notebook doesn't bring the labs along."""

# --- the script ----------------------------------------------------------------------------------


@functools.cache
def _sources(bundle: str) -> str:
    # What Python knows already is handed over, not typed again
    words = {
        "slips": judge.SLIPS,
        "large": judge.TOO_LARGE,
        "small": judge.TOO_SMALL,
    }
    parts = [f"const judge = {to_json(words)};"]
    for name in BUNDLES[bundle]:
        if name == "model.js":
            from roofline_helpers.pages import javascript

            parts.append(f"const tables = {to_json(javascript.tables())};")
        path = resources.files("roofline_helpers") / "pages/assets" / name
        parts.append(path.read_text("utf-8"))
    # As it is written, less the comments and the indentation
    code = re.sub(r"^ */\*.*?\*/ *$", "", "\n".join(parts), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\n+", "\n", re.sub(r"^ *(//.*)?", "", code, flags=re.MULTILINE)).strip()


def script(bundle: str) -> str:
    """Return the JavaScript that brings a bundle's elements, and those of questions, to life.

    Parameters
    ----------
    bundle : str
        "ask" (questions) or "lab" (instruments and labs).

    Examples
    --------
    >>> "customElements.define" in script("ask")
    True
    """
    body = _sources(name_of("bundle", bundle, BUNDLES))
    tags = [f"roofline-{kind}" for kind in dict.fromkeys(("ask", bundle))]
    start = f"core.start({to_json(tags)});"
    return f'(() => {{\n"use strict";\n{body}\n{start}\n}})();\n'


def widest(bundles: Iterable[str]) -> str:
    """Return the bundle that brings the most scripts along: that of questions is in each other.

    Examples
    --------
    >>> widest(["ask", "lab"])
    'lab'
    """
    return max(bundles, key=lambda bundle: len(BUNDLES[bundle]))


def to_json(value: Any) -> str:
    """Return JSON that can stand inside a script element, or an attribute in single quotes."""
    dumped = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&'\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", dumped)


def fragment(macro: str, *values: Any) -> Markup:
    """Return what a macro of `assets/elements.html` makes of values."""
    macros: Any = template("pages/assets/elements.html").module
    return Markup(getattr(macros, macro)(*values))


# --- elements ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Element:
    """An interactive piece: shows itself in notebooks and on the page, and as text elsewhere.

    Parameters
    ----------
    kind : str
        What `core.define` names in JavaScript.
    data : mapping
        What it is made from.
    fallback : str
        HTML that is shown without JavaScript.
    plain : str
        The same as text, without the answer.
    then : str
        HTML that stands open below it.
    bundle : str
        The scripts it needs: "ask" or "lab".
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
    bundle: str = "ask"
    inner: tuple[Element, ...] = ()

    def markup(self) -> str:
        """Return the element's HTML without its script, for use inside another one."""
        parts = (Markup(each) for each in (to_json(self.data), self.fallback, self.then))
        return str(fragment("element", self.kind, self.bundle, *parts))

    def html(self) -> str:
        """Return the element's HTML with its script, as a cell shows it.

        Each output has the script, because in Colab each is a page of its own. Committed notebooks
        have none: `tools/notebooks/run.py` takes it out.
        """
        code = script(widest({one.bundle for one in self._all()}))
        return str(fragment("script", Markup(self.markup()), Markup(code)))

    def _all(self) -> Iterable[Element]:
        yield self
        for one in self.inner:
            yield from one._all()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": self.plain}

    def __repr__(self) -> str:
        return self.plain
