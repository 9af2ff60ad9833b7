"""Sphinx extension: the site's pictures, small, sized, and once more in colours for dark pages.

The dark version of a PNG has the same pixels and a palette turned around in Oklab.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sphinx.application import Sphinx

from tools.notebooks.pictures import in_few_colours

DARK, LIGHT = (0x12, 0x16, 0x1C), (0xE4, 0xE8, 0xEE)  # ground and ink of dark pages
BRIGHT = 0.68  # lightness of full colours on dark pages, about
SHARP = 2  # pixels of a picture to a pixel of the page

_TO_CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
_TO_LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


@dataclass(frozen=True)
class Picture:
    """A PNG of the site with its size on the page, in CSS pixels."""

    width: int
    height: int

    @classmethod
    def of(cls, path: Path) -> Picture | None:
        """Return the picture in a file, None for one that is no PNG."""
        if path.suffix != ".png" or not path.is_file():
            return None
        with Image.open(path) as picture:
            return cls(*(round(side / SHARP) for side in picture.size))

    def markup(self, address: str, alt: str, wait: bool) -> str:
        """Return its HTML; ``wait`` for a picture that is loaded when the reader comes near."""
        later = ' loading="lazy" decoding="async"' if wait else ""
        return (
            f'<picture><source data-dark srcset="{dark(Path(address)).as_posix()}"'
            ' media="(prefers-color-scheme: dark)">'
            f'<img alt="{alt}" src="{address}" width="{self.width}" height="{self.height}"{later}>'
            "</picture>\n"
        )


def dark(path: Path) -> Path:
    """Return where the dark version of a picture is."""
    return path.with_name(f"{path.stem}.dark{path.suffix}")


def oklab(rgb: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return sRGB colours (0 to 1) in Oklab: lightness, green to red, blue to yellow."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(linear @ np.array(_TO_CONES).T)
    return np.asarray(cones @ np.array(_TO_LAB).T)


def srgb(lab: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return Oklab colours in sRGB, 0 to 1; what lies outside is clipped."""
    cones = (lab @ np.linalg.inv(np.array(_TO_LAB)).T) ** 3
    linear = np.clip(cones @ np.linalg.inv(np.array(_TO_CONES)).T, 0, 1)
    curve = 1.055 * linear ** (1 / 2.4) - 0.055
    return np.asarray(np.where(linear <= 0.0031308, linear * 12.92, curve))


def darkened(palette: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return colours for a dark page: white becomes its ground, black its ink, hues stay.

    Lightness is turned around on Oklab's scale, so that what stood out still does. Full colours,
    those of lines and markers, stay bright: they have to stand out from black now.
    """
    lab = oklab(palette / 255)
    ground, ink = oklab(np.array([DARK, LIGHT]) / 255)
    light = 1 - np.clip(1 - lab[:, :1], 0, 1) ** 0.75  # a little brighter: thin lines on black
    turned = ground * light + ink * (1 - light)
    turned[:, 1:] += lab[:, 1:]
    chroma = np.hypot(lab[:, 1], lab[:, 2])
    full = np.clip((chroma - 0.07) / 0.06, 0, 1)
    bright = BRIGHT + 0.6 * (turned[:, 0] - 0.5)
    turned[:, 0] += full * np.clip(bright - turned[:, 0], 0, None)
    return np.asarray(np.round(srgb(turned) * 255).astype(np.uint8))


def small_and_dark(content: bytes) -> list[bytes]:
    """Return a PNG in few colours, and the same pixels in colours for dark pages."""
    small = in_few_colours(content)
    return [small, recoloured(small)]


def recoloured(png: bytes) -> bytes:
    """Return a PNG that has a palette with the colours for dark pages; its pixels stay as packed.

    A PNG is a list of chunks: length, type, content, checksum of type and content.
    """
    kind = png.index(b"PLTE", 8)
    (length,) = struct.unpack(">I", png[kind - 4 : kind])
    start, end = kind + 4, kind + 4 + length
    palette = np.frombuffer(png[start:end], np.uint8).reshape(-1, 3)
    chunk = b"PLTE" + darkened(palette).tobytes()
    return png[:kind] + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[end + 4 :]


def shrink(site: Path) -> None:
    """Make every PNG of the pages small, and write its dark version."""
    for path in sorted((site / "_images").glob("*.png")):
        few, turned = small_and_dark(path.read_bytes())
        path.write_bytes(few)
        dark(path).write_bytes(turned)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Make the dark versions once every picture is in its place."""
    if error is None and app.builder.name == "html":
        shrink(Path(app.outdir))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx, before what packs the finished site."""
    app.connect("build-finished", finish, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
