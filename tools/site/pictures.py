"""Make the pictures of the prose pages and the README again, where they have changed.

    python -m tools.site.pictures

A copy is the checked output of a notebook's cell itself, so it cannot differ from what that draws.
What no notebook draws comes from ``book/_ext/page_figures.py``; the waterfall of the README and the
front page is one decode step, from a committed record.
"""

from __future__ import annotations

import re
import sys
from base64 import b64decode
from importlib import resources

from roofline_helpers.explain import drawing
from tools import books
from tools.notebooks import run as notebooks

sys.path.append(str(books.ROOT / "book/_ext"))  # where Sphinx finds it, too
from page_figures import draw_first_kernels, slow_step

TRUST = "notebooks/can-you-trust-a-roofline.ipynb"
COPIES = {
    "book/images/rooflines.png": ("notebooks/hardware-comparison.ipynb", "fig-four-roofs"),
    "book/images/scoreboard.png": (TRUST, "fig-board"),
    "book/images/scoreboard-errors.png": (TRUST, "fig-step-errors"),
}
DRAWN = "book/images/first-kernels.png"

WATERFALLS = {
    f"book/images/waterfall{'.slim' * slim}{'.dark' * (theme == 'dark')}.svg": (theme, slim)
    for theme in ("light", "dark")
    for slim in (False, True)
}
"""Theme of each file, and whether it is the one for phones."""

SCALE = 1.25  # CSS pixels of one, where there is room
_BEGIN = {"light": ".explained {", "dark": 'html[data-theme="dark"] .explained {'}
_USED = ("text", ".value", ".ideal", ".loss", ".gain", ".rest", ".call")


def picture(notebook: str, name: str) -> bytes:
    """Return the PNG that a notebook's cell with this figure name has drawn.

    Raises
    ------
    LookupError
        No such figure in that notebook, or it was not executed.
    """
    for cell in notebooks.load(books.ROOT / notebook).cells:
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if figure.get("name") == name:
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    return b64decode(output["data"]["image/png"])
    raise LookupError(f"{notebook} has no drawn figure named {name!r}")


def copies() -> dict[str, bytes]:
    """Return what each copy should hold: what the notebooks' cells have drawn."""
    return {name: picture(*source) for name, source in COPIES.items()}


def style(theme: str) -> str:
    """Return the rules for a drawing by itself, from the style sheet of explanations."""
    sheet = resources.files("roofline_helpers").joinpath("assets/explained.css").read_text("utf-8")
    colours = _variables(sheet, "light") | _variables(sheet, theme)
    rules = []
    for selectors, body in re.findall(r"^(\.explained svg [^{]+)\{([^}]*)\}", sheet, re.MULTILINE):
        for selector in selectors.replace(".explained svg", "").split(","):
            if selector.strip() in _USED:
                filled = re.sub(r"var\(--(\w+)\)", lambda name: colours[name[1]], body.strip())
                rules.append(f"{selector.strip()}{{{filled}}}")
    return "".join(rules)


def _variables(sheet: str, theme: str) -> dict[str, str]:
    block = sheet.partition(_BEGIN[theme])[2].partition("}")[0]
    return dict(re.findall(r"--(\w+): (#\w+)", block))


def waterfall(theme: str, slim: bool) -> str:
    """Return the picture as SVG for light or for dark pages, as wide as most or as a phone."""
    drawn = drawing.waterfall(slow_step(), slim=slim)
    head, _, body = drawn.partition(">")
    scale = 1 if slim else SCALE
    sides = [float(side) * scale for side in re.findall(r'viewBox="0 0 (\d+) (\d+)"', head)[0]]
    size = f'width="{sides[0]:.0f}" height="{sides[1]:.0f}"'
    head = head.replace("<svg", f'<svg xmlns="http://www.w3.org/2000/svg" {size}', 1)
    return f"{head}>\n<style>{style(theme)}</style>\n{body}\n"


def waterfalls() -> dict[str, bytes]:
    """Return what each waterfall should hold, by the record."""
    return {name: waterfall(*kind).encode() for name, kind in WATERFALLS.items()}


if __name__ == "__main__":
    due = {**copies(), **waterfalls(), DRAWN: draw_first_kernels()}
    for name, content in due.items():
        (books.ROOT / name).write_bytes(content)
