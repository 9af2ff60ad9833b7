"""The serving model in JavaScript: its data and its script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from roofline import network
from roofline.configurations import model as model_of
from roofline.serving.operations import COSTS, HANDED_ON, STORED
from roofline.serving.setting import NARROW
from roofline.serving.strategies import SPLIT, STRATEGIES, Fused
from roofline.serving.tensor_parallel import COUNTS, chip_counts
from roofline_helpers import work
from roofline_helpers.chips import Chip, Figure, all_chips
from roofline_helpers.common.dtypes import BITS
from roofline_helpers.models import LLAMA_3_8B, Decoder
from roofline_helpers.pages.element import Bundle, to_json
from roofline_helpers.work import operations

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
"""The data of a model for the script: one with grouped queries."""

EXPERTS = ("count", "active", "d_ff")
"""The experts of a mixture."""

MODELS = ("llama-3-8b", "llama-3-70b", "mixtral-8x7b")
"""The models that the script can serve."""


def tables() -> dict[str, Any]:
    """Return the data of assets/model.js, ready for JSON.

    Data types, FLOPs of operations, chips with their types and all-reduce times, the models and
    the fusion strategies. model.js and serving.js describe the keys.

    Examples
    --------
    >>> sorted(tables())[:2]
    ['bits', 'chips']
    """
    costs = {
        op: {"element": flops, "row": operations.ROW_COSTS.get(op, (0, 0))[0]}
        for op, (flops, _) in operations.COSTS.items()
    }
    costs |= {op: {"element": flops, "row": 0} for op, flops in COSTS.items()}
    scaled = work.naive_attention(1, 1)[1].vector_flops
    costs["scale+softmax"] = {"element": int(scaled), "row": 0}
    return {
        "bits": dict(BITS),
        "costs": costs,
        "narrow": NARROW,
        "counts": COUNTS,
        "stored": STORED,
        "handed": HANDED_ON,
        "chips": [_chip_data(chip) for chip in all_chips()],
        "models": {key: _model_data(model_of(key)) for key in MODELS},
        "strategies": _strategies(STRATEGIES),
        "split": _strategies(
            {name: kernels for name, kernels in SPLIT.items() if kernels != STRATEGIES[name]}
        ),
    }


def _model_data(model: Decoder) -> dict[str, Any]:
    experts = model.experts and {name: getattr(model.experts, name) for name in EXPERTS}
    return {**{name: getattr(model, name) for name in MODEL}, "experts": experts}


def _strategies(given: Mapping[str, tuple[Fused, ...]]) -> dict[str, Any]:
    return {name: [_shortened(kernel) for kernel in kernels] for name, kernels in given.items()}


def _sums(chip: Chip) -> dict[int, list[Any]]:
    """Return the lines of an all-reduce for each number of chips: published, and reached."""
    return {
        count: [
            network.collectives.lines(network.topology(chip, count, ceilings=each).fast)
            for each in network.CEILINGS
        ]
        for count in chip_counts(LLAMA_3_8B, chip)
        if count > 1
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
        "sums": _sums(chip),
    }


def _shortened(kernel: Fused) -> dict[str, Any]:
    """Return a kernel's fields that don't have their usual value."""
    usual = Fused(kernel.ops)
    fields = {name: getattr(kernel, name) for name in ("count", "keep")}
    changed = {name: value for name, value in fields.items() if value != getattr(usual, name)}
    return {"ops": kernel.ops, **changed}


def script() -> str:
    """Return the model in JavaScript: a constant `tables`, then assets/model.js and serving.js.

    Examples
    --------
    >>> script().startswith("const tables")
    True
    """
    data = json.dumps(tables(), ensure_ascii=False, separators=(",", ":"))
    return "\n".join([f"const tables = {data};", *_assets("model", "serving")])


def _assets(*names: str) -> list[str]:
    folder = resources.files("roofline") / "labs/assets"
    return [folder.joinpath(f"{name}.js").read_text("utf-8") for name in names]


def _lab() -> list[str]:
    models = _assets("model", "serving", "network", "verdicts", "briefs")
    return [f"const tables = {to_json(tables())};", *models, *_assets("chart", "labs")]


LAB = Bundle("lab", _lab)
"""The scripts of instruments and labs."""

RIDDLE = Bundle("riddle", lambda: _assets("riddle"))
"""The script of the decode step's riddle."""
