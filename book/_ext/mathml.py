"""Sphinx extension: formulas become MathML when the site is built; no script has to draw them.

Browsers show MathML, screen readers speak it, and a copy on disk needs nothing else. A formula that
the converter doesn't know is a warning, which fails the build.
"""

import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

ENVIRONMENTS = {"align*", "cases", "matrix", "pmatrix", "bmatrix", "vmatrix", "array"}
CHILDREN = {"mfrac": 2, "msub": 2, "msup": 2, "msubsup": 3, "mover": 2, "munder": 2, "mroot": 2}
_log = logging.getLogger(__name__)


def mathml(formula: str, display: bool) -> str:
    r"""Return a LaTeX formula as MathML.

    Parameters
    ----------
    formula : str
        LaTeX, without delimiters. Several paragraphs are lines of their own.
    display : bool
        A block of its own instead of a part of a line.

    Raises
    ------
    ValueError
        A command or an environment that isn't known, or an argument that is missing.
    """
    lines = [part.strip() for part in formula.split("\n\n") if part.strip()]
    text = r" \\ ".join(lines)
    if len(lines) > 1:
        text = rf"\begin{{align*}}{text}\end{{align*}}"
    text = text.replace("{aligned}", "{align*}")
    strange = set(re.findall(r"\\begin\{(\w+\*?)\}", text)) - ENVIRONMENTS
    if strange:
        raise ValueError(f"{formula!r}: {', '.join(sorted(strange))} isn't known")
    try:
        made = convert(text, display="block" if display else "inline")
        root = ElementTree.fromstring(made)
    except Exception as error:
        raise ValueError(f"{formula!r}: {type(error).__name__} {error}") from error
    for one in root.iter():
        tag = one.tag = one.tag.rpartition("}")[2]
        if len(one) != CHILDREN.get(tag, len(one)):
            raise ValueError(f"{formula!r}: {tag} with {len(one)} parts")
        if "\\" in (one.text or ""):
            raise ValueError(f"{formula!r}: {one.text} isn't known")
        # MathML Core takes these from style sheets
        if side := one.attrib.pop("columnalign", None):
            one.set("class", side)
        for name in ("rowspacing", "columnspacing", "linebreak"):
            one.attrib.pop(name, None)
        if tag == "mo" and one.text == "/":
            one.set("lspace", "0")
            one.set("rspace", "0")
        # Names of functions are identifiers; letters of one upright word belong together
        text = one.text or ""
        if tag == "mo" and (text == "∞" or (len(text) > 1 and text.isalpha())):
            one.tag = "mi"
        if tag == "mrow" and len(one) > 1 and all(part.get("mathvariant") for part in one):
            word = "".join(part.text or "" for part in one)
            for part in list(one):
                one.remove(part)
            ElementTree.SubElement(one, "mi").text = word
    return str(ElementTree.tostring(root, encoding="unicode", short_empty_elements=False))


def _math_element(translator: Any, node: nodes.Element, display: bool) -> str:
    try:
        return mathml(node.astext(), display)
    except ValueError as error:
        _log.warning("a formula that can't become MathML: %s", error, location=node)
        return str(translator.encode(node.astext()))


def visit_inline(translator: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(_math_element(translator, node, False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    translator.body.append(translator.starttag(node, "div", CLASS="math-block"))
    translator.body.append(_math_element(translator, node, True))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; ``html_math_renderer: mathml`` chooses it."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
