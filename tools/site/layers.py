"""Draw the package's rooms and their imports: the picture of ``book/how-this-is-built.md``.

    python -m tools.site.layers          write book/images/layers.svg and layers.dark.svg
    python -m tools.site.layers check    say which differ from what the code imports

A room is a module or a folder of ``roofline_helpers``; it is drawn above all that it imports. Where
that is impossible, rooms import each other in a circle, which is an error.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from pathlib import Path

from tools import books
from tools.site import pictures

PACKAGE = "roofline_helpers"
PICTURES = {"light": "book/images/layers.svg", "dark": "book/images/layers.dark.svg"}
LEFT_OUT = {"__init__", "__main__"}  # they only hand on what others have
LIBRARIES = {"jax": "JAX", "matplotlib": "Matplotlib"}
WIDTH, ROW, BOX, EDGE, TOP = 400, 70, 26, 9, 8  # in units of the drawing
SCALE = 1.4  # CSS pixels of one, where there is room
COLOURS = {
    "light": {"ink": "#1c2330", "line": "#8a94a3", "box": "#eef3f8", "base": "#dde5ee"},
    "dark": {"ink": "#e4e8ee", "line": "#7d8896", "box": "#222b36", "base": "#2f3b49"},
}
Graph = dict[str, set[str]]


def imported(path: Path, root: Path) -> Iterator[str]:
    """Yield the full names that a file imports when it runs; those for type checkers only not."""
    package = list(path.relative_to(root).parts[:-1])
    waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{name.name}" for name in node.names)
        waiting += ast.iter_child_nodes(node)


def rooms(root: Path = books.ROOT) -> tuple[Graph, dict[str, set[str]]]:
    """Return what each room imports of the other rooms, and of the libraries that are marked."""
    names = {path.stem for path in (root / PACKAGE).glob("*.py")} - LEFT_OUT
    names |= {path.parent.name for path in (root / PACKAGE).glob("*/__init__.py")}
    graph: Graph = {name: set() for name in sorted(names)}
    libraries: dict[str, set[str]] = {name: set() for name in sorted(names)}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        room = path.relative_to(root / PACKAGE).parts[0].removesuffix(".py")
        if room in LEFT_OUT:
            continue
        for full in imported(path, root):
            parts = full.split(".")
            if parts[0] in LIBRARIES:
                libraries[room].add(parts[0])
            if parts[0] == PACKAGE and len(parts) > 1 and parts[1] in names - {room}:
                graph[room].add(parts[1])
    return graph, libraries


def levels(graph: Graph) -> dict[str, int]:
    """Return each room's floor: one above the highest that it imports.

    Raises
    ------
    ValueError
        Rooms import each other in a circle.
    """
    lines_of: dict[str, int] = {}

    def floor(room: str, above: tuple[str, ...]) -> int:
        if room in above:
            circle = " imports ".join([*above[above.index(room) :], room])
            raise ValueError(f"{PACKAGE}: {circle}")
        if room not in lines_of:
            below = [floor(one, (*above, room)) for one in sorted(graph[room])]
            lines_of[room] = 1 + max(below, default=-1)
        return lines_of[room]

    for room in graph:
        floor(room, ())
    return lines_of


def needed(graph: Graph) -> list[tuple[str, str]]:
    """Return the imports that no chain of others implies."""

    def reach(room: str) -> set[str]:
        return graph[room] | {far for near in graph[room] for far in reach(near)}

    return [
        (room, one)
        for room in graph
        for one in sorted(graph[room])
        if not any(one in reach(other) for other in graph[room] - {one})
    ]


def rows(graph: Graph) -> tuple[list[list[str]], list[tuple[str, str]]]:
    """Return the drawing's rows from the top, in an order with few crossings, and its lines.

    A line that passes a row gets a place in it, named by its ends and the row.
    """
    floor = levels(graph)
    base = {room for room in graph if floor[room] == 0}
    most = max(floor.values())
    made: list[list[str]] = [[] for _ in range(most)]
    for room in graph:
        if room not in base:
            made[most - floor[room]].append(room)
    lines: list[tuple[str, str]] = []
    for upper, lower in needed(graph):
        if lower in base:
            continue
        stops = [f"{upper}>{lower}@{at}" for at in range(floor[upper] - 1, floor[lower], -1)]
        for stop in stops:
            made[most - int(stop.partition("@")[2])].append(stop)
        chain = [upper, *stops, lower]
        lines += pairwise(chain)
    return ordered(made, lines), lines


def ordered(made: list[list[str]], lines: list[tuple[str, str]]) -> list[list[str]]:
    """Return the rows with neighbours near each other: each one at the mean of its neighbours."""
    neighbours: dict[str, list[str]] = {one: [] for row in made for one in row}
    for upper, lower in lines:
        neighbours[upper].append(lower)
        neighbours[lower].append(upper)
    best = made
    for _ in range(24):
        for row in made:
            place = positions(made)
            wanted = {one: [place[other][0] for other in neighbours[one]] for one in row}
            row.sort(
                key=lambda one: sum(wanted[one]) / len(wanted[one]) if wanted[one] else WIDTH / 2
            )
        made = [list(row) for row in made]
        if crossings(made, lines) < crossings(best, lines):
            best = made
    return best


def crossings(made: list[list[str]], lines: list[tuple[str, str]]) -> int:
    """Return how many pairs of lines cross."""
    at = {one: (number, place) for number, row in enumerate(made) for place, one in enumerate(row)}
    ends = sorted((*at[upper], at[lower][1]) for upper, lower in lines)
    return sum(
        first[0] == second[0] and (first[1] - second[1]) * (first[2] - second[2]) < 0
        for number, first in enumerate(ends)
        for second in ends[number + 1 :]
    )


def width(one: str) -> int:
    """Return how wide a room, or the place of a line that passes, is."""
    return 6 if "@" in one else 8 * len(one) + 16


def positions(made: list[list[str]]) -> dict[str, tuple[float, float]]:
    """Return where the middle of each one is."""
    place = {}
    for number, row in enumerate(made):
        gap = (WIDTH - sum(map(width, row))) / (len(row) + 1)
        right = 0.0
        for one in row:
            place[one] = (right + gap + width(one) / 2, TOP + number * ROW + BOX / 2)
            right += gap + width(one)
    return place


def box(x: float, y: float, name: str, marks: set[str], colour: dict[str, str]) -> str:
    """Return a room's drawing: its name, and a mark for each library that it needs."""
    wide = width(name)
    parts = [
        f'<rect x="{x - wide / 2:.1f}" y="{y - BOX / 2:.1f}" width="{wide}" height="{BOX}" rx="4"'
        f' fill="{colour["box"]}" stroke="{colour["line"]}"/>',
        f'<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle">{escape(name)}</text>',
    ]
    corner = x + wide / 2 - 5
    for library in sorted(marks):
        parts.append(mark(library, corner, y - BOX / 2, colour))
        corner -= 11
    return "".join(parts)


def mark(library: str, x: float, y: float, colour: dict[str, str]) -> str:
    """Return a library's sign: a circle for JAX, a square for Matplotlib."""
    if library == "jax":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour["ink"]}"/>'
    return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour["ink"]}"/>'


def line(start: tuple[float, float], end: tuple[float, float], last: bool) -> str:
    """Return a line from under a room to above the next one, with an arrow where it arrives."""
    (x, y), (u, v) = start, end
    y += BOX / 2
    v -= BOX / 2 + (EDGE if last else 0)
    bend = (v - y) / 2
    curve = f"M{x:.1f} {y:.1f}C{x:.1f} {y + bend:.1f} {u:.1f} {v - bend:.1f} {u:.1f} {v:.1f}"
    arrow = "" if last else f"V{v + BOX:.1f}"
    head = f'<path d="M{u - 4:.1f} {v:.1f}h8l-4 {EDGE - 1}z" class="head"/>' if last else ""
    return f'<path d="{curve}{arrow}" class="line"/>{head}'


def drawing(theme: str, root: Path = books.ROOT) -> str:
    """Return the picture as SVG for light or for dark pages."""
    graph, libraries = rooms(root)
    made, lines = rows(graph)
    colour, place = COLOURS[theme], positions(made)
    floor = TOP + len(made) * ROW - 10
    base = ", ".join(room for room, level in levels(graph).items() if level == 0)
    height = floor + 64
    body = [line(place[a], place[b], "@" not in b) for a, b in lines]
    for one, (x, y) in place.items():
        if "@" not in one:
            body.append(box(x, y, one, libraries[one], colour))
    body += [
        f'<rect x="8" y="{floor}" width="{WIDTH - 16}" height="{BOX}" rx="4" class="base"/>',
        f'<text x="{WIDTH / 2}" y="{floor + 17.5}" text-anchor="middle">{escape(base)}</text>',
        mark("jax", 14, floor + 47, colour),
        f'<text x="24" y="{floor + 51}" class="note">needs JAX, once called</text>',
        mark("matplotlib", 204, floor + 47, colour),
        f'<text x="214" y="{floor + 51}" class="note">needs Matplotlib</text>',
    ]
    style = (
        f"text{{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        f"fill:{colour['ink']}}}.note{{font:12px system-ui,sans-serif}}"
        f".line{{fill:none;stroke:{colour['line']};stroke-width:1.3}}"
        f".head{{fill:{colour['line']}}}.base{{fill:{colour['base']};stroke:{colour['line']}}}"
    )
    size = f'width="{WIDTH * SCALE:.0f}" height="{height * SCALE:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {height}">\n'
        f"<style>{style}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def due(root: Path = books.ROOT) -> dict[str, bytes]:
    """Return what each picture should hold, by what the code imports."""
    return {name: drawing(theme, root).encode() for theme, name in PICTURES.items()}


def differing(root: Path = books.ROOT) -> list[str]:
    """Return the pictures that are missing or show other imports than the code has."""
    return pictures.differing(due(root), root)


if __name__ == "__main__":
    sys.exit(pictures.main(due(), "python -m tools.site.layers"))
