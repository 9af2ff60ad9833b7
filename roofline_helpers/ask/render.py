"""What a question asks about – tables, figures, texts, other pieces – as HTML and as text."""

from __future__ import annotations

import re
from base64 import b64encode
from html import escape
from io import BytesIO
from typing import Any

from roofline_helpers._checks import BadType, BadValue, shown, text
from roofline_helpers.ask.element import Element
from roofline_helpers.show import reading, table_html


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
