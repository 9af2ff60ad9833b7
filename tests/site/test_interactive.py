"""What a page with interactive pieces loads, and what it no longer carries."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.pyplot as plt

import interactive
import outputs
from roofline_helpers import ask

ALT = "A straight line from the lower left to the upper right, without a bend."


def loaded(html: str, folder: Path) -> dict[str, Any]:
    """Return the template's context after a page with this body has been prepared."""
    context: dict[str, Any] = {"body": html, "pathto": lambda name, resource: f"../{name}"}
    app = SimpleNamespace(outdir=str(folder))
    interactive.load(app, "notebooks/a", "page.html", context, None)  # type: ignore[arg-type]
    return context


def test_a_page_with_a_question_loads_one_script_and_carries_none(tmp_path: Path) -> None:
    figure, _ = plt.subplots(figsize=(3, 2))
    options = {"yes": "The line is straight.", "no": "It has no bend."}
    question = ask.choice("Straight?", options, right="yes", key="t", then=figure, alt=ALT)
    builder = SimpleNamespace(outdir=str(tmp_path), get_target_uri=lambda name: f"{name}.html")
    body = outputs.cleaned(question.html(), builder, "notebooks/a")  # type: ignore[arg-type]
    assert "data-roofline" not in body
    assert "data:image" not in body
    (picture,) = re.findall(r'src="\.\./(_images/ask-\w+\.png)"', body)
    assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    address = loaded(body, tmp_path)["interactive"]
    assert re.fullmatch(r"\.\./interactive/ask-\w+\.js", address)
    script = (tmp_path / address.removeprefix("../")).read_text("utf-8")
    assert 'core.start(["roofline-ask"])' in script


def test_a_page_without_a_piece_loads_nothing(tmp_path: Path) -> None:
    assert "interactive" not in loaded("<p>none</p>", tmp_path)
    assert list(tmp_path.iterdir()) == []
