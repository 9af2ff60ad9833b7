"""The serving model in JavaScript: its data and its script."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from roofline import network
from roofline.configurations import model as model_of
from roofline.serving.layer import COSTS, STATES, WEIGHTS
from roofline.serving.operations import ELSEWHERE, HANDED_ON
from roofline.serving.setting import NARROW
from roofline.serving.strategies import SPLIT, STRATEGIES, Fused
from roofline.serving.tensor_parallel import chip_counts
from roofline_helpers.chips import Chip, all_chips
from roofline_helpers.models import LLAMA_3_8B, Decoder
from roofline_helpers.models.layers import GROUP
from roofline_helpers.pages.element import ASK, Bundle, to_json
from roofline_helpers.pages.instruments import INSTRUMENT, model_script

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
    """Return the data of assets/serving.js, which describes the keys."""
    return {
        "costs": COSTS,
        "narrow": NARROW,
        "group": GROUP,
        "stored": WEIGHTS + STATES,
        "handed": HANDED_ON,
        "elsewhere": sorted(ELSEWHERE),
        "sums": {chip.key: _sums(chip) for chip in all_chips()},
        "models": {key: _model_data(model_of(key)) for key in MODELS},
        "strategies": _strategies(STRATEGIES),
        "split": _strategies(
            {name: kernels for name, kernels in SPLIT.items() if kernels != STRATEGIES[name]}
        ),
    }


def _model_data(model: Decoder) -> dict[str, Any]:
    experts = model.experts and {name: getattr(model.experts, name) for name in EXPERTS}
    return {**{name: getattr(model, name) for name in MODEL}, "experts": experts}


def _strategies(strategies: Mapping[str, tuple[Fused, ...]]) -> dict[str, Any]:
    return {
        name: [_shortened(kernel) for kernel in kernels] for name, kernels in strategies.items()
    }


def _sums(chip: Chip) -> dict[int, list[Any]]:
    """Return the lines of an all-reduce for each number of chips: published, and reached."""

    def lines(count: int, ceilings: str) -> Any:
        return network.collectives.lines(network.topology(chip, count, ceilings=ceilings).fast)

    counts = [count for count in chip_counts(LLAMA_3_8B, chip) if count > 1]
    return {count: [lines(count, ceilings) for ceilings in network.CEILINGS] for count in counts}


def _shortened(kernel: Fused) -> dict[str, Any]:
    """Return a kernel's fields that don't have their usual value."""
    usual = Fused(kernel.ops)
    fields = {name: getattr(kernel, name) for name in ("count", "keep")}
    changed = {name: value for name, value in fields.items() if value != getattr(usual, name)}
    return {"ops": kernel.ops, **changed}


def script() -> str:
    """Return the models in JavaScript: that of kernels, a constant, and assets/serving.js."""
    return f"{model_script()}\n{_serving()}"


def _serving() -> str:
    return f"const servingTables = {to_json(tables())};\n{_asset('serving')}"


def _asset(name: str) -> str:
    return (resources.files("roofline") / f"labs/assets/{name}.js").read_text("utf-8")


def _scripts() -> list[str]:
    return [_serving(), *(_asset(name) for name in ("network", "briefs", "labs"))]


LAB = Bundle("lab", _scripts, after=INSTRUMENT)
"""The scripts of the sharded layer and of labs."""

RIDDLE = Bundle("riddle", lambda: [_asset("riddle")], after=ASK)
"""The script of the decode step's riddle."""
