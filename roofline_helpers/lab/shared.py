"""What instruments and labs share: the element that each becomes, and how numbers are written."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from io import BytesIO
from typing import Any

from roofline_helpers import ask, work
from roofline_helpers.ask import Element
from roofline_helpers.dtypes import BITS
from roofline_helpers.roofline import Roofline
from roofline_helpers.show import si, significant, table, table_html


def instrument(
    kind: str,
    key: str,
    title: str,
    start: Mapping[str, Any],
    plain: str,
    rows: Sequence[Mapping[str, Any]],
    bundle: str = "lab",
    **more: Any,
) -> Element:
    """Return an instrument: its starting values, and text and table where no script runs.

    `more` is what else its script needs.
    """
    data = {"key": ask.key_of(key), "title": ask.filled("title", title), "start": dict(start)}
    data |= more
    listed = table_html(table(rows))
    fallback = f"<p><strong>{escape(title)}</strong></p>\n<p>{escape(plain)}.</p>\n{listed}"
    return Element(kind, data, fallback, plain, bundle=bundle)


def first_compute_bound(roof: Roofline, dtype: str) -> int:
    """Return the first N of a square matmul that is compute-bound."""
    n = max(1, int(roof.ridge * BITS[dtype] * 3 / 16) - 2)
    while roof.bound(work.matmul(n, n, n, dtype).intensity) != "compute":
        n += 1
    return n


def matmul_row(roof: Roofline, dtype: str, side: int) -> dict[str, Any]:
    """Return a square matmul's row of a table: N, intensity, attainable, share, regime.

    As the charts have it, of many such products: under the roof alone, without the floor.
    """
    job = work.matmul(side, side, side, dtype)
    top = roof.attainable(job.intensity)
    return {
        "N": side,
        "FLOP/byte": job.intensity,
        "attainable": rate(top),
        "of the peak": percent(roof.mfu(top)),
        "regime": f"{roof.bound(job.intensity)}-bound",
    }


def rate(flops: float) -> str:
    """Return FLOP/s as the charts do: TFLOP/s, not PFLOP/s."""
    text = si(flops, "FLOP/s")
    return (
        si(flops, "FLOP/s", "T", max(3, len(str(int(flops / 1e12))))) if "PFLOP" in text else text
    )


def percent(share: float) -> str:
    """Return a share as a percentage of two digits, "100 %" for all of it."""
    return f"{significant(100 * share, 2 if share < 0.995 else 3)} %"


def lab(
    kind: str,
    data: Mapping[str, Any],
    predict: Element,
    rows: Sequence[Mapping[str, Any]],
    picture: Any,
    alt: str,
) -> Element:
    """Return a lab; where no script runs: story, question, picture, table and equations.

    `picture` draws into the Axes that it is given, and `alt` says what that shows.
    """
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(5.2, 3.6))
    picture(ax)
    drawn = _picture(figure, alt)
    story = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in data["story"])
    equations = escape("\n".join(data["equations"]))
    listed = table_html(table(rows))
    fallback = f"{story}\n{predict.fallback}\n{drawn}\n{listed}\n<pre>{equations}</pre>"
    plain = "\n".join([*data["story"], predict.plain])
    return Element(kind, data, fallback, plain, bundle="lab")


def _picture(figure: Any, alt: str) -> str:
    """Return a Matplotlib figure as an image of few colours, and close it.

    It is seen only where no script runs, so it weighs little: some 15 kB.
    """
    import matplotlib.pyplot as plt
    from PIL import Image

    drawn, small = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=160)
    plt.close(figure)
    picture: Any = Image.open(drawn).convert("RGB")
    picture.quantize(48).save(small, format="png", optimize=True)
    width, height = (round(side * 100 / 160) for side in picture.size)
    data = b64encode(small.getvalue()).decode()
    return (
        f'<img src="data:image/png;base64,{data}" alt="{escape(alt)}" '
        f'width="{width}" height="{height}">'
    )
