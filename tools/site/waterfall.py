"""Draw the waterfall of the README and the front page: one decode step, from a committed record.

python -m tools.site.waterfall          write book/images/waterfall.svg and its other versions
python -m tools.site.waterfall check    say which differ from what the record gives
"""

from __future__ import annotations

import re
import sys
from importlib import resources
from pathlib import Path

from roofline_helpers.explain import drawing
from tools import books
from tools.site import pictures

PICTURES = {
    f"book/images/waterfall{'.slim' * slim}{'.dark' * (theme == 'dark')}.svg": (theme, slim)
    for theme in ("light", "dark")
    for slim in (False, True)
}
"""Theme of each file, and whether it is the one for phones."""

SCALE = 1.25  # CSS pixels of one, where there is room
_BEGIN = {"light": ".explained {", "dark": 'html[data-theme="dark"] .explained {'}
_USED = ("text", ".value", ".ideal", ".loss", ".gain", ".rest", ".call")


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


def picture(theme: str, slim: bool) -> str:
    """Return the picture as SVG for light or for dark pages, as wide as most or as a phone."""
    sys.path.append(str(books.ROOT / "book/_ext"))  # where Sphinx finds it, too
    from page_figures import slow_step

    drawn = drawing.waterfall(slow_step(), slim=slim)
    head, _, body = drawn.partition(">")
    scale = 1 if slim else SCALE
    sides = [float(side) * scale for side in re.findall(r'viewBox="0 0 (\d+) (\d+)"', head)[0]]
    size = f'width="{sides[0]:.0f}" height="{sides[1]:.0f}"'
    head = head.replace("<svg", f'<svg xmlns="http://www.w3.org/2000/svg" {size}', 1)
    return f"{head}>\n<style>{style(theme)}</style>\n{body}\n"


def due() -> dict[str, bytes]:
    """Return what each picture should hold, by the record."""
    return {name: picture(*kind).encode() for name, kind in PICTURES.items()}


def differing(root: Path = books.ROOT) -> list[str]:
    """Return the pictures that are missing or show something else than the record has."""
    return pictures.differing(due(), root)


if __name__ == "__main__":
    sys.exit(pictures.main(due(), "python -m tools.site.waterfall"))
