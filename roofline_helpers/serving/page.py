"""What the pages' script needs to know of the model, and the script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from roofline_helpers import work
from roofline_helpers.dtypes import BITS
from roofline_helpers.figures import Figure
from roofline_helpers.hardware import Chip, all_chips
from roofline_helpers.models import LLAMA_3_8B, Decoder
from roofline_helpers.serving.operations import COSTS, HANDED_ON, STORED
from roofline_helpers.serving.setting import NARROW
from roofline_helpers.serving.strategies import STRATEGIES, Fused

MODEL = (
    "name",
    "layers",
    "d_model",
    "heads",
    "kv_heads",
    "head_dim",
    "d_ff",
    "vocabulary",
    "source",
)
"""What the script knows of a model: a dense one with grouped queries."""


def tables(model: Decoder = LLAMA_3_8B) -> dict[str, Any]:
    """Return what assets/model.js needs to know, as plain data for JSON.

    Data types, FLOPs of operations, chips with the types that each can serve with, the model and
    the fusion strategies: the keys are described in model.js.

    Examples
    --------
    >>> sorted(tables())[:2]
    ['bits', 'chips']
    """
    costs = {
        op: {"element": sum(steps.values()), "row": sum(work.ROW_COSTS.get(op, {}).values())}
        for op, steps in {**work.COSTS, **COSTS}.items()
    }
    scaled = work.naive_attention(1, 1)[1].vector_flops
    costs["scale+softmax"] = {"element": int(scaled), "row": 0}
    return {
        "bits": dict(BITS),
        "costs": costs,
        "narrow": NARROW,
        "stored": STORED,
        "handed": HANDED_ON,
        "chips": [_chip_data(each) for each in all_chips()],
        "model": {name: getattr(model, name) for name in MODEL},
        "strategies": {
            name: [_shortened(kernel) for kernel in kernels] for name, kernels in STRATEGIES.items()
        },
    }


def _chip_data(chip: Chip) -> dict[str, Any]:
    def plain(figures: Mapping[str, Figure]) -> dict[str, float]:
        return {name: figure.value for name, figure in figures.items()}

    fastest = chip.reached.stream()
    return {
        **{name: getattr(chip, name) for name in ("key", "name", "vendor", "kind", "half")},
        "matrix": plain(chip.matrix),
        "vector": plain(chip.vector),
        "bandwidth": chip.roofline(chip.half).bandwidth,
        "capacity": chip.memory["hbm"].capacity.value,
        "inside": chip.on_chip[1],
        "floor": chip.floor and chip.floor.value,
        "reached": {
            "matrix": plain(chip.reached.matrix),
            "vector": plain(chip.reached.vector),
            "bandwidth": fastest and fastest.value,
        },
    }


def _shortened(kernel: Fused) -> dict[str, Any]:
    """Return a kernel's fields but those that are as usual."""
    usual = Fused(kernel.ops)
    fields = {name: getattr(kernel, name) for name in ("count", "keep")}
    changed = {name: value for name, value in fields.items() if value != getattr(usual, name)}
    return {"ops": kernel.ops, **changed}


def script() -> str:
    """Return the model in JavaScript: a constant `tables`, then assets/model.js.

    Examples
    --------
    >>> script().startswith("const tables")
    True
    """
    data = json.dumps(tables(), ensure_ascii=False, separators=(",", ":"))
    asset = resources.files("roofline_helpers").joinpath("assets", "model.js")
    return f"const tables = {data};\n{asset.read_text('utf-8')}"
