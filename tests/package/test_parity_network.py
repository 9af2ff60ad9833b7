"""assets/network.js computes what `training.layer` does: every cut of every slice, in a browser."""

import json
from importlib import resources
from math import isclose

from roofline import labs, network, training
from roofline.labs.shardings import SLICES

TOKENS = (1, 100, 512, 65536)
WIDTHS = (1024, 28672)
RUN = """(points) => JSON.stringify(points.map(([cut, of]) => network.layer(cut, of)))"""


def points():
    """What the page computes, and Python's layer."""
    data = labs.sharding().data
    asked = []
    for chip, slice_ in data["places"].items():
        topology = network.topology(chip, SLICES[chip])
        figures = {name: slice_[name] for name in ("peak", "bits")}
        for cut in slice_["cuts"]:
            mesh = topology.mesh({name: cut[name] for name in ("fsdp", "tensor")})
            for tokens in TOKENS:
                for inner in WIDTHS:
                    sizes = {"tokens": tokens, "model": data["model"], "inner": inner}
                    layer = training.layer(
                        topology, mesh, tokens=tokens, d_model=data["model"], d_ff=inner
                    )
                    asked.append(([{**figures, **cut}, sizes], layer))
    return asked


def computed(page, script, asked):
    """What a script makes of the points."""
    text = page.evaluate(f"(points) => {{ {script}\nreturn ({RUN})(points) }}", asked)
    return list(json.loads(text))


NUMBERS = ("flops", "products", "gathers", "sums", "seconds", "attainable")


def faults(theirs, mine):
    """How many layers differ in any number or word."""
    return sum(
        answer.get("bound") != layer.bound
        or any(not isclose(answer[name], getattr(layer, name), rel_tol=1e-12) for name in NUMBERS)
        for answer, layer in zip(theirs, mine, strict=True)
    )


def test_javascript_agrees_with_python(chromium):
    script = (resources.files("roofline") / "labs/assets" / "network.js").read_text("utf-8")
    expected = points()
    inputs = [point for point, _ in expected]
    layers = [layer for _, layer in expected]
    assert len(expected) > 300
    assert {layer.bound for layer in layers} == {"compute", "weights", "sums"}
    page = chromium.new_page()
    assert faults(computed(page, script, inputs), layers) == 0
    page.close()
