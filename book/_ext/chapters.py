"""What the pages say of themselves: ``_toc.yml``, ``book/pages.toml``, titles and minutes."""

import json
import re
import tomllib
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

MINUTES = re.compile(r"\bAbout (\d+) minutes\b")
NOT_READ = ("Try it on your program", "Look it up")  # parts of the menu that are no chapters


@cache
def about(root: Path) -> dict[str, dict[str, Any]]:
    """Return what ``book/pages.toml`` says of each page."""
    return tomllib.loads((root / "book/pages.toml").read_text("utf-8"))


def opening(root: Path, page: str) -> tuple[str, int | None]:
    """Return a page's title and the minutes that it says it takes.

    Raises
    ------
    FileNotFoundError
        No such page, neither Markdown nor notebook.
    """
    notebook = root / f"{page}.ipynb"
    if notebook.is_file():
        cells = json.loads(notebook.read_text("utf-8"))["cells"]
        text = "\n".join("".join(one["source"]) for one in cells if one["cell_type"] == "markdown")
    else:
        text = (root / f"{page}.md").read_text("utf-8")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    minutes = MINUTES.search(text)
    return (title[1].strip() if title else page), int(minutes[1]) if minutes else None


def readings(root: Path) -> list[dict[str, Any]]:
    """Return part, number, page, title, minutes of what is read in order."""
    toc = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    chapters: list[dict[str, Any]] = []
    number = 0
    for part in toc.get("parts", []):
        if part.get("caption") in NOT_READ:
            continue
        for entry in part.get("chapters", []):
            page = entry["file"].removesuffix(".md").removesuffix(".ipynb")
            number += bool(part.get("numbered"))
            if any((root / f"{page}{suffix}").is_file() for suffix in (".md", ".ipynb")):
                title, minutes = opening(root, page)
                row = {"part": part["caption"], "number": number if part.get("numbered") else None}
                chapters.append(row | {"page": page, "title": title, "minutes": minutes})
    return chapters


def texts(root: Path) -> dict[str, str]:
    """Return what a page may write as ``{{ chapter_list }}`` and ``{{ chapter_… }}``."""
    rows = readings(root)
    lines: list[str] = []
    for part, members in groupby(rows, key=lambda row: row["part"]):
        lines += ["", f"**{part}**", ""]
        for row in members:
            suffix = "ipynb" if (root / f"{row['page']}.ipynb").is_file() else "md"
            mark = f"{row['number']}." if row["number"] else "-"
            minutes = f", {row['minutes']} min" if row["minutes"] else ""
            lines.append(f"{mark} [{row['title']}](/{row['page']}.{suffix}){minutes}")
    if not rows:
        return {}

    def hours(part: str) -> str:
        return f"{sum(row['minutes'] or 0 for row in rows if part in row['part']) / 60:.2g}"

    return {
        "chapter_list": "\n".join(lines).strip(),
        "chapter_total": str(sum(row["number"] is not None for row in rows)),
        "chapter_hours": hours(""),
        "part_hours": hours(rows[0]["part"]),
    }
