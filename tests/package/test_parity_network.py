"""assets/network.js computes what `training.layer` does: every cut of every slice, in a browser."""

from __future__ import annotations

import json
from importlib import resources
from math import isclose
from typing import Any

from playwright.sync_api import Browser

from roofline_helpers import lab, network, training

TOKENS = (1, 100, 512, 65536)
WIDTHS = (1024, 28672)
RUN = """(points) => JSON.stringify(points.map(([cut, of]) => network.layer(cut, of)))"""
SLIPS = [
    ("4 * tokens", "2 * tokens"),
    ("bits / 8", "bits / 4"),
    ("2 * gather", "gather"),
    ("inner) / tensor", "inner)"),
    ("tokens * tensor * model", "tokens * model"),
    ("Math.max(products, gathers, sums)", "products + gathers + sums"),
    ("flops / seconds }", "flops / products }"),
]
"""What the file says, and what a slip would make of it."""


def points() -> list[tuple[list[Any], training.Layer]]:
    """What the page computes, and Python's layer."""
    data = lab.sharding().data
    found = []
    for chip, place in data["places"].items():
        of = network.topology(chip, lab.SLICES[chip])
        given = {name: place[name] for name in ("peak", "bits")}
        for cut in place["cuts"]:
            mesh = of.mesh({name: cut[name] for name in ("fsdp", "tensor")})
            for tokens in TOKENS:
                for inner in WIDTHS:
                    sizes = {"tokens": tokens, "model": data["model"], "inner": inner}
                    layer = training.layer(
                        of, mesh, tokens=tokens, d_model=data["model"], d_ff=inner
                    )
                    found.append(([{**given, **cut}, sizes], layer))
    return found


def in_browser(chromium: Browser, script: str, given: list[Any]) -> list[dict[str, Any]]:
    page = chromium.new_page()
    try:
        return list(
            json.loads(page.evaluate(f"(points) => {{ {script}\nreturn ({RUN})(points) }}", given))
        )
    finally:
        page.close()


NUMBERS = ("flops", "products", "gathers", "sums", "seconds", "attainable")


def faults(theirs: list[dict[str, Any]], mine: list[training.Layer]) -> int:
    """How many layers differ in any number or word."""
    return sum(
        found.get("bound") != layer.bound
        or any(not isclose(found[name], getattr(layer, name), rel_tol=1e-12) for name in NUMBERS)
        for found, layer in zip(theirs, mine, strict=True)
    )


def test_javascript_agrees_with_python_and_a_slip_is_found(chromium: Browser) -> None:
    script = (resources.files("roofline_helpers") / "assets" / "network.js").read_text("utf-8")
    given = points()
    asked, layers = [point for point, _ in given], [layer for _, layer in given]
    assert len(given) > 300
    assert {layer.bound for layer in layers} == {"compute", "weights", "sums"}
    assert faults(in_browser(chromium, script, asked), layers) == 0
    for right, wrong in SLIPS:
        assert script.count(right) == 1, f"{right!r} is no longer in network.js once"
        changed = in_browser(chromium, script.replace(right, wrong), asked[::3])
        assert faults(changed, layers[::3]) > 0, right
