"""What the page of causes prints: the code's own list, with programs before and after."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import roofline_helpers as rh
from page_figures import ROOT
from page_promises import pairs
from roofline.diagnosis import ladder
from roofline.xla.causes import CAUSES, KINDS, Cause
from roofline_helpers.common.show import significant

FILE = ROOT / "book/causes.toml"
HEADS = {"zeros": "Zeros and one-hots"}
"""Headings that aren't their kind's name, which one of its causes has."""
JOBS = {
    "decode-rungs": "a decode step of Llama-3-8B",
    "prefill": "a prompt of 8,192 tokens through Llama-3-8B",
    "training": "a training step of one layer",
    "train-step": "a training step on four of them",
    "context": "attention over 131,072 tokens on four of them",
}
"""What the versions of a ladder are."""


def programs() -> dict[str, dict[str, Any]]:
    """Return the programs of each cause, by its key."""
    return tomllib.loads(FILE.read_text("utf-8"))


def step(name: str, rung: str, sizes: Mapping[str, int]) -> float:
    """Return the seconds of one version of a program."""
    steps = ladder.committed()[name].select(**sizes)
    return next(each.why.wall for each in steps if each.rung == rung and each.why is not None)


def gains(told: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Yield what was timed with a cause and without it: its name, and both seconds."""
    timed = {pair.name: pair.row for pair in pairs()}
    for name in told.get("pairs", ()):
        yield f"`{name}`", timed[name]["before"], timed[name]["after"]
    for name, before, after, sizes in told.get("steps", ()):
        yield JOBS[name], step(name, before, sizes), step(name, after, sizes)


def _gained(told: Mapping[str, Any]) -> str:
    texts = [
        f"{name} {rh.si(before, 's')} → {rh.si(after, 's')} "
        f"({significant(max(before, after) / min(before, after), 3)} times as "
        f"{'fast' if after < before else 'slow'})"
        for name, before, after in gains(told)
    ]
    return f"**Gained** on an H200: {'; '.join(texts)}." if texts else "**Gained:** not measured."


def _cause(cause: Cause, told: Mapping[str, Any] | None) -> str:
    text = f"### {cause.key}\n\n**{_capital(cause.title)}.** Try: {cause.advice}."
    if told is None:
        return text
    read = f" Read: [](../{told['read']}.ipynb)." if "read" in told else ""
    code = "\n".join(f"# {side}\n{told[side].strip()}" for side in ("before", "after"))
    note = f" {told['note']}" if "note" in told else ""
    return f"{text}\n\n```python\n{code}\n```\n\n{_gained(told)}{note}{read}"


def causes() -> str:
    """Return all causes, in groups: the nine kinds, what no dataflow shows, and the rest."""
    told = programs()
    named = [cause for cause in CAUSES.values() if cause.named]
    groups = [
        (HEADS.get(kind, _capital(kind)), kind, [c for c in named if c.kind == kind])
        for kind in KINDS
    ]
    groups.append(("What no dataflow shows", "other", [c for c in named if not c.kind]))
    groups.append(("Where no cause is found", "none", [c for c in CAUSES.values() if not c.named]))
    parts = []
    for head, kind, some in groups:
        parts += [f"## {head}", told["kinds"][kind]]
        parts += [_cause(cause, told.get(cause.key)) for cause in some]
    return "\n\n".join(parts)


def _capital(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"
