"""Social cards: the picture that a shared link shows, 1200 by 630, made of what a page has."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

SIZE = (1200, 630)
GROUND, PAPER, INK, MUTED, ROOF, AXIS = (
    "#16324f",
    "#ffffff",
    "#ffffff",
    "#b9c9da",
    "#f2a541",
    "#9fb3c8",
)
# Of the figures; found without importing Matplotlib
FONTS = Path(str(find_spec("matplotlib").origin)).parent / "mpl-data/fonts/ttf"  # type: ignore[union-attr]


@cache
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return the font of the book's figures."""
    return ImageFont.truetype(str(FONTS / f"DejaVuSans{'-Bold' if bold else ''}.ttf"), size)


@dataclass(frozen=True)
class Card:
    """The text of a card."""

    book: str
    label: str
    title: str
    picture: Path | None = None


def lines(text: str, face: ImageFont.FreeTypeFont, width: float) -> list[str]:
    """Break a text into lines no wider than ``width`` pixels."""
    made = [""]
    for word in text.split():
        longer = f"{made[-1]} {word}".strip()
        if face.getlength(longer) <= width or not made[-1]:
            made[-1] = longer
        else:
            made.append(word)
    return made


def roof(width: int, height: int, thick: int) -> Image.Image:
    """Return the book's sign: a slope that meets a flat ceiling, drawn large and scaled down."""
    big = Image.new("RGBA", (4 * width, 4 * height))
    draw = ImageDraw.Draw(big)
    w, h, t = 4 * width, 4 * height, 4 * thick
    knee = (0.45 * w, 0.3 * h)
    draw.line([(t, 0), (t, h - t), (w, h - t)], fill=AXIS, width=t // 2, joint="curve")
    draw.line([(0.1 * w, 0.85 * h), knee, (w - t, knee[1])], fill=ROOF, width=t, joint="curve")
    radius = 1.1 * t
    draw.ellipse(
        [knee[0] - radius, knee[1] - radius, knee[0] + radius, knee[1] + radius], fill=PAPER
    )
    return big.resize((width, height), Image.Resampling.LANCZOS)


def draw(card: Card) -> Image.Image:
    """Return the card as a picture."""
    made = Image.new("RGB", SIZE, GROUND)
    pen = ImageDraw.Draw(made)
    wide = 1080 if card.picture is None else 470
    size = 64 if wide > 600 else 52
    while size > 30:
        broken = lines(card.title, font(size, bold=True), wide)
        fits = all(font(size, bold=True).getlength(line) <= wide for line in broken)
        if fits and len(broken) * size * 1.25 <= 300:
            break
        size -= 2
    top = 150
    pen.rectangle([60, 76, 116, 84], fill=ROOF)
    if card.label:
        pen.text((60, 104), card.label, font=font(26), fill=MUTED)
    for i, line in enumerate(broken):
        pen.text((60, top + i * size * 1.25), line, font=font(size, bold=True), fill=INK)
    pen.text((60, 548), card.book.split(":")[0], font=font(26, bold=True), fill=PAPER)
    rest = card.book.partition(":")[2].strip()
    if rest:
        pen.text((60, 584), rest, font=font(20), fill=MUTED)
    if card.picture is None:
        sign = roof(420, 230, 10)
        made.paste(sign, (720, 330), sign)
        return made
    with Image.open(card.picture) as picture:
        figure = picture.convert("RGB")
    scale = min(560 / figure.width, 470 / figure.height)
    figure = figure.resize(
        (round(figure.width * scale), round(figure.height * scale)), Image.Resampling.LANCZOS
    )
    left, up = 860 - figure.width // 2, (SIZE[1] - figure.height) // 2
    pen.rounded_rectangle(
        [left - 16, up - 16, left + figure.width + 16, up + figure.height + 16], 14, fill=PAPER
    )
    made.paste(figure, (left, up))
    return made


def file(card: Card) -> bytes:
    """Return the card as a PNG."""
    small = draw(card).quantize(128, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    made = io.BytesIO()
    small.save(made, "PNG", optimize=True)
    return made.getvalue()


def write(site: Path, name: str, card: Card) -> None:
    """Write a card into the site's folder of cards."""
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_bytes(file(card))
