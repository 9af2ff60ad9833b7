"""Where things stand: the repository's root, and the files that its table of contents names."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = re.compile(r"\[([Cc]hapter) \d+([^\]]*\]\((?:[\w./-]*/)?([\w-]+)\.(?:ipynb|md))")
"""A link that calls a chapter by its number."""


def pages(root: Path = ROOT) -> list[str]:
    """Return the pages of ``_toc.yml`` in reading order, without suffix.

    Parameters
    ----------
    root : Path
        The folder that holds ``_toc.yml``.
    """
    toc: dict[str, Any] = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    names = [toc["root"]]

    def walk(node: Any) -> None:
        if isinstance(node, list):
            for item in node:
                walk(item)
        elif isinstance(node, dict):
            if "file" in node:
                names.append(node["file"])
            for key in ("parts", "chapters", "sections", "subtrees", "entries"):
                walk(node.get(key))

    walk({key: value for key, value in toc.items() if key != "root"})
    return [page.removesuffix(".md").removesuffix(".ipynb") for page in names]


def notebooks(root: Path = ROOT) -> list[Path]:
    """Return the notebooks of ``_toc.yml`` in reading order.

    Raises
    ------
    FileNotFoundError
        Where the table of contents names a page under ``notebooks/`` that does not exist.
    """
    paths = [root / f"{page}.ipynb" for page in pages(root) if page.startswith("notebooks/")]
    missing = [str(path.relative_to(root)) for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"_toc.yml names notebooks that do not exist: {', '.join(missing)}")
    return paths


def numbered(text: str) -> str:
    """Return a text in which each link "chapter N" has the number that ``_toc.yml`` gives it."""
    if not CHAPTER.search(text):
        return text
    toc: dict[str, Any] = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    parts = [part["chapters"] for part in toc["parts"] if part.get("numbered")]
    files = [Path(entry["file"]).stem for chapters in parts for entry in chapters]

    def link(found: re.Match[str]) -> str:
        word, rest, file = found.groups()
        return f"[{word} {files.index(file) + 1}{rest}" if file in files else found[0]

    return CHAPTER.sub(link, text)
