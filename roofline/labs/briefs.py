"""Briefs of the design challenge: a target, a budget, a price for every choice, and a score."""

from __future__ import annotations

from collections.abc import Mapping
from operator import le
from typing import Any, NamedTuple

from roofline.serving import step

RENT: Mapping[str, float] = {
    "l40s": 1.0,
    "h100": 3.0,
    "h200": 4.0,
    "b200": 6.0,
    "v5e": 1.2,
    "v6e": 2.7,
}
"""US dollars per chip and hour: illustrative, in the range of on-demand prices in 2025."""

DAYS: Mapping[str, Mapping[str, float]] = {
    "fusion": {"none": 0, "epilogue": 4},
    "attention": {"naive": 0, "flash": 2},
    "weights": {"fp8": 3, "int8": 3, "int4": 6},
    "activations": {"fp8": 4, "int8": 4},
    "cache": {"fp8": 4, "int8": 4},
}
"""Days of work of each choice: illustrative. A type that isn't listed costs nothing."""

SHARING = 2
"""Days of work to use several chips."""

COUNTED: Mapping[str, Mapping[str, Any]] = {
    "reached": {"reached": True, "floor": True, "resident": True, "reserve": 0.1},
    "published": {"reached": False, "floor": False, "resident": False, "reserve": 0.1},
}
"""The two counts of a step: by measured rates and the floor of a launch, or by published rates.

A tenth of the memory is the runtime's, which was vLLM's default until it took 0.08.
"""

MARGIN: Mapping[str, float] = {"reached": 1.35, "published": 1.55}
"""Factor between the counted times of a design and the times to judge it by: no measured decode
step of the book takes longer than its count times this. There is no such measurement of prefill."""


class Brief(NamedTuple):
    """The model to serve, the limits, and the best design that a search found."""

    name: str
    story: str
    model: str
    context: int
    chips: tuple[str, ...]
    formats: tuple[tuple[str, str], ...]
    caches: tuple[str, ...]
    counted: str
    per_token: float
    first_token: float
    dollars: float
    days: float
    best: Mapping[str, Any]


class Outcome(NamedTuple):
    """The results of a design, with the margin: SI units, US dollars, days."""

    per_token: float
    first_token: float
    dollars: float
    days: float
    room: float
    """Bytes left on each chip; negative: missing."""
    cost: float
    """Dollars per million decoded tokens, without prefill."""
    met: bool


GPU_FORMATS = (("bf16", "bf16"), ("fp8", "bf16"), ("fp8", "fp8"), ("int4", "bf16"))
TPU_FORMATS = (("bf16", "bf16"), ("int8", "bf16"), ("int8", "int8"), ("int4", "bf16"))

BRIEFS: Mapping[str, Brief] = {
    "chat": Brief(
        name="Brief 1: chat",
        story="Serve Llama 3 8B to people who chat. Prompts and caches have 2,048 tokens.",
        model="llama-3-8b",
        context=2048,
        chips=("l40s", "h100", "h200"),
        formats=GPU_FORMATS,
        caches=("bf16", "fp8"),
        counted="reached",
        per_token=0.016,
        first_token=0.14,
        dollars=3.5,
        days=13,
        best={
            "chip": "h100",
            "chips": 1,
            "batch": 193,
            "fusion": "none",
            "attention": "flash",
            "weights": "fp8",
            "activations": "fp8",
            "cache": "fp8",
        },
    ),
    "mixture": Brief(
        name="Brief 2: a mixture of experts",
        story="Serve Mixtral 8x7B, which reads 2 of its 8 experts for each token. Prompts and "
        "caches have 4,096 tokens.",
        model="mixtral-8x7b",
        context=4096,
        chips=("h100", "h200", "b200"),
        formats=GPU_FORMATS,
        caches=("bf16", "fp8"),
        counted="reached",
        per_token=0.02,
        first_token=0.21,
        dollars=5.0,
        days=13,
        best={
            "chip": "h200",
            "chips": 1,
            "batch": 53,
            "fusion": "none",
            "attention": "flash",
            "weights": "fp8",
            "activations": "fp8",
            "cache": "fp8",
        },
    ),
    "assistant": Brief(
        name="Brief 3: a quick assistant on TPUs",
        story="Serve Llama 3 8B on TPUs to a program that waits for every token. Prompts and "
        "caches have 8,192 tokens.",
        model="llama-3-8b",
        context=8192,
        chips=("v5e", "v6e"),
        formats=TPU_FORMATS,
        caches=("bf16", "int8"),
        counted="published",
        per_token=0.006,
        first_token=0.125,
        dollars=12.0,
        days=15,
        best={
            "chip": "v6e",
            "chips": 4,
            "batch": 27,
            "fusion": "epilogue",
            "attention": "flash",
            "weights": "int8",
            "activations": "bf16",
            "cache": "int8",
        },
    ),
}


def days(design: Mapping[str, Any]) -> float:
    """Return the days of work of a design's choices."""
    chosen = sum(cost.get(design[choice], 0) for choice, cost in DAYS.items())
    return chosen + (SHARING if design["chips"] > 1 else 0)


def judge(brief: Brief, design: Mapping[str, Any]) -> Outcome:
    """Return the results of a design, and whether it meets the brief."""
    chosen = {**COUNTED[brief.counted], **design}
    decode = step(brief.model, chosen.pop("chip"), context=brief.context, **chosen)
    prefill, slower = decode.but(phase="prefill", batch=1), MARGIN[brief.counted]
    rent = RENT[design["chip"]] * design["chips"]
    spent = (slower * decode.seconds, slower * prefill.seconds, rent, days(design))
    limits = (brief.per_token, brief.first_token, brief.dollars, brief.days)
    met = decode.fits and all(map(le, spent, limits))
    cost = slower * rent / 3600 / decode.tokens_per_second * 1e6
    return Outcome(*spent, decode.memory.room, cost, met)
