"""Each committed output, its text and its pictures, is what its cell gives now."""

from __future__ import annotations

import functools
import io
import re
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import numpy.typing as npt
import pytest
from executed import grouped
from PIL import Image

from tools import books
from tools.notebooks import once
from tools.notebooks import run as notebooks
from tools.site import front
from tools.site import pictures as committed

ALL = books.notebooks()
BLOCK = 16  # pixels
# Mean difference, of 255, that one block of 16 × 16 pixels may have. Two machines' rounding of the
# same line stays below 2; a line moved by one pixel gives more than 10 in each block it crosses.
THRESHOLD = 6.0
INSIDE = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=]+)")
# What has tests of its own in interactive outputs: the script with its hash, pictures
ELSEWHERE = [
    (re.compile(r"(?s)<script type=\"module\" data-roofline>.*?</script>"), "SCRIPT"),
    (re.compile(r"\broofline-(ask|lab)-[0-9a-f]{8}\b"), "ELEMENT"),
    (INSIDE, "PICTURE"),
]


@pytest.mark.parametrize("path", grouped(ALL))
def test_committed_outputs_are_given_now(path: Path) -> None:
    committed, now = notebooks.load(path), notebooks.normalise(once.run(path).notebook)
    notebooks.refuse_unfit(now, path.name)
    changes = [*changed_texts(committed, now), *changed_pictures(committed, now)]
    assert not changes, f"{path.name}: look, then `make notebooks`\n" + "\n".join(changes)


# --- text -----------------------------------------------------------------------------------------


def texts(cell: Any) -> list[str]:
    """What the outputs of a cell say, one entry a kind."""
    lines = []
    for output in cell.outputs:
        if output.output_type == "stream":
            lines.append(f"{output.name}: {output.text}")
        elif output.output_type == "error":
            lines.append(f"{output.ename}: {output.evalue}")
        for kind, text in sorted(output.get("data", {}).items()):
            if not kind.startswith("image/"):
                for pattern, name in ELSEWHERE:
                    text = pattern.sub(name, str(text))
                lines.append(f"{kind}: {text}")
    return lines


def changed_texts(committed: Any, now: Any) -> list[str]:
    """The cells whose texts are not those that are committed, with where they begin to differ."""
    changes = []
    for old, new in zip(committed.cells, now.cells, strict=True):
        if old.cell_type != "code" or notebooks.MACHINE in old.metadata.get("tags", []):
            continue
        before, after = "\n".join(texts(old)), "\n".join(texts(new))
        if before != after:
            at = next(
                (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), -1
            )
            was, is_now = (one[max(0, at - 30) : at + 50] if at >= 0 else one[-80:]
                           for one in (before, after))  # fmt: skip
            changes.append(f"{old.id}: was {was!r}, is {is_now!r}")
    return changes


# --- pictures -------------------------------------------------------------------------------------


def pixels(png: bytes) -> npt.NDArray[np.float64]:
    """A PNG on white, as red, green and blue."""
    image = Image.open(io.BytesIO(png)).convert("RGBA")
    ground = Image.new("RGBA", image.size, "white")
    ground.alpha_composite(image)
    return np.asarray(ground.convert("RGB"), dtype=np.float64)


def worst_block(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """The largest mean absolute difference of any block."""
    gap = np.abs(one - other).mean(axis=2)
    down, across = (-size % BLOCK for size in gap.shape)
    gap = np.pad(gap, ((0, down), (0, across)))
    blocks = gap.reshape(gap.shape[0] // BLOCK, BLOCK, gap.shape[1] // BLOCK, BLOCK)
    return float(blocks.mean(axis=(1, 3)).max())


def pictures(cell: Any) -> list[bytes]:
    """The pictures of a cell: outputs of their own, then those inside interactive ones."""
    data = [output.get("data", {}) for output in cell.outputs]
    inside = [picture for one in data for picture in INSIDE.findall(one.get("text/html", ""))]
    return [
        b64decode(png) for png in [*(o["image/png"] for o in data if "image/png" in o), *inside]
    ]


def changed_pictures(committed: Any, drawn: Any) -> list[str]:
    """What is not the same in the pictures of two runs of a notebook."""
    changes = []
    for old, new in zip(committed.cells, drawn.cells, strict=True):
        if old.cell_type != "code":
            continue
        before, now = pictures(old), pictures(new)
        if len(before) != len(now):
            changes.append(f"{old.id}: {len(before)} pictures committed, {len(now)} drawn now")
            continue
        if notebooks.MACHINE in old.metadata.get("tags", []):
            continue  # they must be there, that is all
        for number, (one, other) in enumerate(zip(before, now, strict=True), start=1):
            if one == other:
                continue  # byte by byte: nothing to decode
            left, right = pixels(one), pixels(other)
            if left.shape != right.shape:
                changes.append(f"{old.id}: picture {number} was {left.shape}, is {right.shape}")
            elif (gap := worst_block(left, right)) > THRESHOLD:
                changes.append(f"{old.id}: picture {number} differs by {gap:.1f} in one block")
    return changes


# --- both notice what they are for ----------------------------------------------------------------


@functools.cache
def drawn(ridge: float = 300.0, label: float = 0.5, width: float = 7.0) -> bytes:
    """A small roofline, its ridge and its label where asked."""
    figure, axes = plt.subplots(figsize=(width, 4.5))
    intensity = np.logspace(-1, 5, 400)
    axes.loglog(intensity, np.minimum(1.0, intensity / ridge), linewidth=1.5)
    axes.text(label, 0.3, "memory-bound", transform=axes.transAxes)
    axes.set(xlabel="intensity (FLOP/byte)", ylabel="fraction of peak")
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=100)
    plt.close(figure)
    return written.getvalue()


def test_chapter_1s_picture_is_drawn_now() -> None:
    with plt.rc_context():  # it sets the book's style
        left, right = pixels((books.ROOT / front.DRAWN).read_bytes()), pixels(front.drawn())
    assert left.shape == right.shape
    assert worst_block(left, right) <= THRESHOLD, "look, then `python -m tools.site.front`"


def test_copies_are_what_the_notebooks_have() -> None:
    assert committed.differing(front.copies()) == [], "run python -m tools.site.front"


def test_the_same_picture_passes() -> None:
    assert worst_block(pixels(drawn()), pixels(drawn.__wrapped__())) == 0.0  # drawn anew


def test_a_ridge_moved_by_three_percent_is_caught() -> None:
    assert worst_block(pixels(drawn()), pixels(drawn(ridge=309.0))) > THRESHOLD


def test_a_label_moved_by_two_pixels_is_caught() -> None:
    assert worst_block(pixels(drawn()), pixels(drawn(label=0.504))) > THRESHOLD


def test_a_missing_picture_and_another_size_are_caught() -> None:
    assert changed_pictures(holding(drawn()), holding(drawn())) == []
    assert len(changed_pictures(holding(drawn()), holding())) == 1
    assert len(changed_pictures(holding(drawn()), holding(drawn(width=8.0)))) == 1
    assert len(changed_pictures(holding(drawn()), holding(drawn(ridge=309.0)))) == 1


def test_a_picture_inside_an_interactive_output_is_compared() -> None:
    assert changed_pictures(locked(drawn()), locked(drawn())) == []
    assert len(changed_pictures(locked(drawn()), locked(drawn(ridge=309.0)))) == 1


def locked(png: bytes) -> Any:
    """A notebook of one cell with a question that unlocks this picture."""
    html = f'<img src="data:image/png;base64,{b64encode(png).decode()}" alt="a">'
    outputs = [nbformat.v4.new_output("execute_result", data={"text/html": html})]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=outputs)])


def holding(*pngs: bytes) -> Any:
    """A notebook of one cell with these pictures."""
    outputs = [
        nbformat.v4.new_output("display_data", data={"image/png": b64encode(png).decode()})
        for png in pngs
    ]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=outputs)])


def saying(text: str, kind: str = "text/plain", tag: str = "x") -> Any:
    """A notebook of one cell that shows this text."""
    output = nbformat.v4.new_output("execute_result", data={kind: text})
    cell = nbformat.v4.new_code_cell("", outputs=[output], metadata={"tags": [tag]})
    return nbformat.v4.new_notebook(cells=[cell])


def test_a_changed_text_is_caught() -> None:
    assert changed_texts(saying("300"), saying("300")) == []
    assert "300" in changed_texts(saying("300"), saying("301"))[0]
    assert len(changed_texts(saying("300"), saying("3000"))) == 1
    assert len(changed_texts(saying("300"), saying("300", "text/html"))) == 1
    assert len(changed_texts(saying("<b>1</b>", "text/html"), saying("<b>2</b>", "text/html"))) == 1
    timed = notebooks.MACHINE
    assert changed_texts(saying("1 s", tag=timed), saying("2 s", tag=timed)) == []
