"""Compare the pictures of an executed cell with the committed ones, block by block of 16 pixels."""

import io
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

BLOCK = 16  # pixels
# Mean difference, of 255, that one block of 16 × 16 pixels may have. Two machines' rounding of the
# same line stays below 2; a line moved by one pixel gives more than 10 in each block it crosses.
THRESHOLD = 6.0
INSIDE = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=]+)")  # below a question


def pixels(png: bytes) -> npt.NDArray[np.float64]:
    """Return a PNG on white: an array of height × width × 3, red, green and blue from 0 to 255."""
    image = Image.open(io.BytesIO(png)).convert("RGBA")
    ground = Image.new("RGBA", image.size, "white")
    ground.alpha_composite(image)
    return np.asarray(ground.convert("RGB"), dtype=np.float64)


def in_few_colours(png: bytes) -> bytes:
    """Return a PNG on white in 256 colours, which are enough for a plot."""
    image, file = Image.fromarray(pixels(png).astype(np.uint8)), io.BytesIO()
    few = image.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(file, "PNG", optimize=True)
    return file.getvalue()


def worst_block(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Return the largest mean absolute difference of any block, of 255."""
    gap = np.abs(one - other).mean(axis=2)
    down, across = (-size % BLOCK for size in gap.shape)
    gap = np.pad(gap, ((0, down), (0, across)))
    blocks = gap.reshape(gap.shape[0] // BLOCK, BLOCK, gap.shape[1] // BLOCK, BLOCK)
    return float(blocks.mean(axis=(1, 3)).max())


def of(outputs: Sequence[Any]) -> list[bytes]:
    """Return the PNGs of a cell: outputs of their own, then those inside questions."""
    data = [output.get("data", {}) for output in outputs]
    inside = [picture for one in data for picture in INSIDE.findall(one.get("text/html", ""))]
    return [
        b64decode(png) for png in [*(d["image/png"] for d in data if "image/png" in d), *inside]
    ]


def changed(committed: Sequence[Any], now: Sequence[Any], compare: bool = True) -> list[str]:
    """Return how a cell's pictures differ from the committed ones, or only how many there are."""
    before, after = of(committed), of(now)
    if len(before) != len(after):
        return [f"{len(before)} pictures are committed, the cell draws {len(after)}"]
    changes = []
    for number, (one, other) in enumerate(zip(before, after, strict=True), start=1):
        if not compare or one == other:
            continue
        left, right = pixels(one), pixels(other)
        if left.shape != right.shape:
            sizes = [f"{width} × {height}" for height, width, _ in (left.shape, right.shape)]
            changes.append(f"picture {number} is committed with {sizes[0]} pixels, now {sizes[1]}")
        elif (gap := worst_block(left, right)) > THRESHOLD:
            changes.append(
                f"picture {number}: a block of {BLOCK} × {BLOCK} pixels differs by {gap:.1f} of 255"
                f" from the committed one, more than {THRESHOLD:g}"
            )
    return changes
